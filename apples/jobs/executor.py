"""`JobServiceExecutor`: the jobs of a live scheduler as jobs of this user's job service.

An attempt is a job of its own, whose id is the name of the folder that the scheduler chose: making the folder is
what begins it, so it begins at most once, whatever is repeated and whoever dies in between. Jobs belong to their
supervisors; this module starts, asks and ends them. That a host was left is said of this machine when no process
with the attempt's mark is on it, and of another machine when it says so itself (`apples.jobs.host_looks`).
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from apples.errors import ApplesError, LaunchError
from apples.jobs import parked, service, store
from apples.jobs.host_looks import HostLooks
from apples.jobs.records import JobStatus
from apples.jobs.seals import bare
from apples.launch.remote.addresses import is_here
from apples.refusals import refusal_of
from apples.resources import Host
from apples.scheduling.server.orders import (
    LAST,
    AskOrder,
    AttemptOrder,
    AttemptPhase,
    EndOrder,
    EstimateOrder,
    HostLeft,
    JobExecutor,
    JobReport,
    Order,
    Report,
    ResizeOrder,
    RunTimeEstimate,
    StartOrder,
)
from apples.supervision import job_processes

LOOK_SECONDS = 0.1
"""Between two looks at the records of the jobs."""
SURE_SECONDS = 2.0
"""A record is read again after so long, changed or not: who dies writes nothing."""
AT_ONCE = 8
"""Orders that are carried out at the same time."""

MOST_ESTIMATES = 1000
"""Estimates that are kept: a queue has many jobs that are alike."""
FILES_OF_ESTIMATES = ("template", "user", "messages")
"""Files of a job by which it is estimated, beside the host list."""


@dataclass
class _Attempt:
    """What is known of an attempt here.

    Attributes
    ----------
    job
        Its record, which may not be there.
    hosts
        All on which it may ever have been, as far as was said.
    map_epoch
        The job's own count of its maps, below which its record is out of date.
    epoch, refused
        The last order to resize it that was answered, and whether it was refused.
    """

    number: int
    attempt: int
    job: store.StoredJob
    hosts: set[str] = field(default_factory=set)
    map_epoch: int = 0
    epoch: int = 0
    refused: bool = False
    resizing: bool = False
    changed: int = -1
    read: float = 0.0
    said: JobReport | None = None

    @property
    def key(self) -> tuple[int, int]:
        return self.number, self.attempt


def _written(path: object) -> int:
    """Return when a file was written last; 0: there is none."""
    with contextlib.suppress(OSError, ValueError):
        return Path(str(path)).stat().st_mtime_ns
    return 0


def _asked(record: store.Record) -> tuple[int, int] | None:
    """Return fewest and most hosts that a job has asked for, as its record says; None: it has not, or none."""
    match record.get("asks"):
        case [int(least), int(most)] if 0 < least <= most:
            return least, most
    return None


def _speeds(record: store.Record) -> dict[str, float]:
    """Return the rows a second of each host, as a job has measured them where it is."""
    measured = record.get("measured")
    if not isinstance(measured, dict):
        return {}
    rows, seconds = measured["rows"], measured["compute_seconds"]
    return {host: rows[host] / seconds[host] for host in rows if seconds.get(host, 0.0) > 0}


class JobServiceExecutor(JobExecutor):
    """Runs jobs by the job service.

    Parameters
    ----------
    name
        Of the scheduler: it stands in the order of each of its jobs.
    hosts
        The scheduler's host list.
    clock
        Seconds; never goes back.
    news
        Called from any thread when there is something new to report.
    actuator
        Starts the jobs.
    looks
        Makes what looks at the hosts of the list that are other machines; None: there are none.
    """

    def __init__(
        self,
        name: str,
        hosts: Path,
        clock: Callable[[], float],
        news: Callable[[], None],
        actuator: str = "local",
        looks: Callable[[Callable[[Report], None]], HostLooks] | None = None,
    ) -> None:
        self._name, self._hosts, self._clock, self._news = name, hosts, clock, news
        self._actuator = actuator
        self._reports: SimpleQueue[Report] = SimpleQueue()
        self._attempts: dict[tuple[int, int], _Attempt] = {}
        self._doing: set[tuple[bool, int, int]] = set()
        self._lock = threading.Lock()
        self._folder = store.folder()
        self._workers = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="order")
        self._estimators = ThreadPoolExecutor(1, thread_name_prefix="estimate")
        self._estimates: OrderedDict[str, float | None] = OrderedDict()
        self._looks = None if looks is None else looks(self._say)
        self._stop = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="watch", daemon=True)
        self._watcher.start()

    def carry_out(self, orders: Sequence[Order]) -> None:
        """Begin to carry orders out; an order to an attempt that is at another is left out, for it is given again.

        An order to end must not meet one to start half-way: it would find nothing to end. A resize may take long,
        and an attempt may be asked and ended meanwhile.
        """
        for order in orders:
            if isinstance(order, EstimateOrder):
                self._estimators.submit(self._estimate, order)
                continue
            doing = isinstance(order, ResizeOrder), order.job, order.attempt
            with self._lock:
                if doing in self._doing or not store.IDENTIFIER.fullmatch(order.folder):
                    continue
                self._doing.add(doing)
            self._workers.submit(self._obey, order, doing)

    def reports(self) -> list[Report]:
        """Return what is new."""
        found: list[Report] = []
        with contextlib.suppress(Empty):
            while True:
                found.append(self._reports.get_nowait())
        return found

    def close(self) -> None:
        """Stop looking; the jobs go on."""
        self._stop.set()
        self._watcher.join()
        if self._looks is not None:
            self._looks.close()
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._estimators.shutdown(wait=False, cancel_futures=True)

    def join(self, host: Host) -> None:
        """Use one more host from now on."""
        if self._looks is not None:
            self._looks.join(host, here=is_here(host))

    def end(self, host: str) -> None:
        """Take it that a host was taken back."""
        if self._looks is not None:
            self._looks.end(host)

    def _say(self, report: Report) -> None:
        self._reports.put(report)
        self._news()

    # ------------------------------------------------------------------------------- orders
    def _obey(self, order: AttemptOrder, doing: tuple[bool, int, int]) -> None:
        try:
            if isinstance(order, StartOrder):
                self._start(order)
            elif isinstance(order, ResizeOrder):
                self._resize(order)
            elif isinstance(order, EndOrder):
                self._end(order)
            else:
                self._ask(order)
        except (ApplesError, OSError):
            pass  # it is given again, for nothing was reported
        finally:
            with self._lock:
                self._doing.discard(doing)

    def _known(self, order: AttemptOrder) -> _Attempt:
        """Return an attempt, watched from now on; its next report says all."""
        with self._lock:
            one = self._attempts.get((order.job, order.attempt))
            if one is None:
                job = store.StoredJob(self._folder / order.folder)
                one = _Attempt(order.job, order.attempt, job)
                self._attempts[one.key] = one
            one.said, one.changed = None, -1
        return one

    def _start(self, order: StartOrder) -> None:
        """Make the attempt's folder and start its supervisor, unless it had one."""
        try:
            silent = [] if self._looks is None else self._looks.silent()
            where = {"on": list(order.hosts), "silent": silent}
            job = self._create(order, {**bare(order.work), **where})
        except FileExistsError:
            job = store.StoredJob(self._folder / order.folder)
            if not job.unbegun():
                self._known(order).hosts |= set(order.hosts)
                return
        except OSError as error:
            reason, code = refusal_of(error)
            self._say_ended(order, "failed", reason, code, order.hosts)
            return
        with contextlib.suppress(LaunchError, OSError):  # the record says it
            service.begin(job)
        self._known(order).hosts |= set(order.hosts)

    def _create(self, order: AttemptOrder, work: dict[str, Any]) -> store.StoredJob:
        scheduled = {"scheduler": self._name, "job": order.job, "attempt": order.attempt}
        where = {"hosts": str(self._hosts), "actuator": self._actuator}
        found = {**work, **where, "scheduled": scheduled}
        return store.create(found, "", identifier=order.folder)

    def _never(self, order: AttemptOrder, state: str, reason: str) -> None:
        """Make the folder of an attempt that is not to begin: now it never does."""
        job = self._create(order, {})
        code = LaunchError.exit_code
        job.write_last({**job.record(), "state": state, "reason": reason, "exit_code": code})

    def _resize(self, order: ResizeOrder) -> None:
        """Move a job to the hosts of an order, unless it is there; say what became of it."""
        one = self._known(order)
        with self._lock:
            one.resizing = True
            one.hosts |= set(order.hosts)
        reason = ""
        try:
            before = JobStatus.of(one.job)
            if set(before.hosts) != set(order.hosts):
                service.resize(one.job.id, dict.fromkeys(order.hosts, 1.0))
        except ApplesError as error:
            reason = str(error)
        after = JobStatus.of(one.job)
        if after.state == "running":
            done = set(after.hosts) == set(order.hosts)
            with self._lock:
                one.map_epoch = max(one.map_epoch, after.epoch or 0)
                one.epoch, one.refused = order.epoch, not done
            hosts = after.hosts if done else ()
            self._say(
                JobReport(
                    *one.key, AttemptPhase.RUNNING, order.epoch, not done, hosts, after.iteration,
                    after.iterations, reason=reason,
                )
            )  # fmt: skip
            # The job says that it is resized when the hosts that it leaves are empty, or lost.
            self._say_left(one, [(host, order.epoch) for host in one.hosts], after.hosts)
        with self._lock:
            one.resizing = False

    def _end(self, order: EndOrder) -> None:
        """See that an attempt is over, or never begins."""
        if not (self._folder / order.folder).exists():
            with contextlib.suppress(FileExistsError):
                self._never(order, "cancelled", "")
        service.cancel(order.folder)
        self._known(order).hosts |= set(order.hosts)

    def _ask(self, order: AskOrder) -> None:
        """Say where an attempt is."""
        job = store.StoredJob(self._folder / order.folder)
        if not order.begun and (not job.folder.exists() or job.unbegun()):
            self._say(JobReport(order.job, order.attempt, AttemptPhase.ABSENT))
            return
        if not job.folder.exists():
            self._never(order, "failed", "its folder is gone")
        one = self._known(order)
        one.hosts |= {host for host, _ in order.leaving}
        if order.leaving and not one.resizing:
            status = JobStatus.of(one.job)
            if status.state == "running" and status.hosts:
                self._say_left(one, order.leaving, status.hosts)

    def _say_left(
        self, one: _Attempt, leaving: Sequence[tuple[str, int]], hosts: Sequence[str]
    ) -> None:
        for host, epoch in leaving:
            if host not in hosts:
                self._left(one, host, epoch)

    def _left(self, one: _Attempt, host: str, epoch: int) -> None:
        """Say that a host of this machine was left; have one that is another machine asked."""
        if self._looks is None or not self._looks.left(*one.key, one.job.id, host, epoch):
            self._say(HostLeft(*one.key, host, epoch))

    def _say_ended(
        self, order: AttemptOrder, state: str, reason: str, code: int, hosts: Sequence[str]
    ) -> None:
        where = order.job, order.attempt
        self._say(
            JobReport(*where, AttemptPhase.ENDED, state=state, reason=reason, exit_code=code)
        )
        for host in hosts:
            self._say(HostLeft(*where, host, LAST))

    def _estimate(self, order: EstimateOrder) -> None:
        """Say how long a job is going to run; one that is like one before is not estimated again."""
        work = {**bare(order.work), "hosts": str(self._hosts)}
        written = [_written(work.get(name)) for name in ("hosts", *FILES_OF_ESTIMATES)]
        like = json.dumps([work, order.hosts, written], sort_keys=True)
        if like not in self._estimates:
            seconds = None
            with contextlib.suppress(ApplesError):  # its start says why
                seconds = parked.call("estimate", order=work, hosts=order.hosts)
            self._estimates[like] = seconds
            if len(self._estimates) > MOST_ESTIMATES:
                self._estimates.popitem(last=False)
        self._say(RunTimeEstimate(order.job, self._estimates[like]))

    # ----------------------------------------------------------------------------- watching
    def _watch(self) -> None:
        """Look at the records of the jobs, and report what has changed."""
        while not self._stop.wait(LOOK_SECONDS):
            with self._lock:
                watched = list(self._attempts.values())
            for one in watched:
                with contextlib.suppress(OSError):
                    self._look(one)
            if self._looks is not None:
                self._looks.step({host for one in watched for host in one.hosts})

    def _look(self, one: _Attempt) -> None:
        try:
            now, changed = self._clock(), (one.job.folder / "job.json").stat().st_mtime_ns
        except FileNotFoundError:  # whoever made the folder died before its record was whole
            reason = "its record was not completed; it never began"
            failed = {"state": "failed", "reason": reason, "exit_code": LaunchError.exit_code}
            one.job.write({**store.first_record(one.job.id, ""), **failed})
            return
        if changed == one.changed and now < one.read + SURE_SECONDS:
            return
        record = one.job.record()
        one.changed, one.read = changed, now
        if record["state"] in store.OVER:
            if one.job.supervised() or job_processes.marked(one.job.id):
                one.changed = -1  # it is ending
                return
            self._over(one, record)
            return
        with self._lock:
            current = not one.resizing and int(record.get("epoch") or 0) >= one.map_epoch
            report = JobReport(
                *one.key,
                AttemptPhase.RUNNING if record["state"] == "running" else AttemptPhase.STARTING,
                one.epoch,
                one.refused,
                tuple(record.get("hosts", ())) if current else (),
                record.get("iteration"),
                record.get("iterations"),
                asks=_asked(record),
                speeds=_speeds(record),
            )
        if report != one.said:
            one.said = report
            self._say(report)

    def _over(self, one: _Attempt, record: store.Record) -> None:
        """Say that an attempt is over, and has left what is of this machine: no process of it is there."""
        with self._lock:
            self._attempts.pop(one.key, None)
        self._say(
            JobReport(
                *one.key, AttemptPhase.ENDED, one.epoch, one.refused, state=record["state"],
                reason=record.get("reason") or "", exit_code=record.get("exit_code"),
                iteration=record.get("iteration"), iterations=record.get("iterations"),
            )
        )  # fmt: skip
        for host in one.hosts:
            self._left(one, host, LAST)
