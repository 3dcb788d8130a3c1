"""`JobServiceExecutor`: the jobs of a live scheduler as jobs of this user's job service.

An attempt is a job of its own, whose id is the name of the folder that the scheduler chose: making the folder is
what begins it, so it begins at most once, whatever is repeated and whoever dies in between. Jobs belong to their
supervisors; this module starts, asks and ends them. That a host was left is said of this machine when no process
with the attempt's mark is on it, and of another machine, and of one whose topology daemon has given the attempt
CPUs, when it says so itself (`apples.cluster.host_checks`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from apples.cluster.host_checks import HostLooks
from apples.cluster.orders import (
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
    SelectedHosts,
    SelectOrder,
    StartOrder,
)
from apples.cluster.seals import bare
from apples.cluster.topology_daemons import SilentDaemonError, TopologyDaemons
from apples.errors import ApplesError, LaunchError, failure_of
from apples.io import record_folders
from apples.jobs import parked, service, store
from apples.jobs.record_changes import RecordChanges
from apples.jobs.records import JobStatus, conversation
from apples.launch import job_processes
from apples.launch.remote.addresses import is_here
from apples.malleable.control.client import ControlClient
from apples.resources import Host

# Without inotify watches (each user has a limited number) records are polled at this interval.
LOOK_SECONDS = 0.1
"""Between two looks at what the kernel says nothing of: hosts, and jobs of which it cannot tell."""
SURE_SECONDS, SURE_LOOKS = 2.0, 20
"""A job is looked at after so long, told of or not, for what the kernel tells may be lost; of many jobs, so many a
second are."""
ENDING_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Until a job that is ending is looked at again; each look lists this machine's processes."""
PAUSE_SECONDS = 0.01
"""At least, between two rounds of looks: what is told of in between is one."""
AT_ONCE = 8
"""Orders that are carried out at the same time."""

MOST_ESTIMATES = 1000
"""Estimates that are kept: a queue has many jobs that are alike."""
ESTIMATE_SECONDS = 60.0
"""For a model to say how long a job runs, which is the code of a user and may never return."""
SELECTIONS_AT_ONCE = 2
"""Models that are asked at the same time which hosts are best."""
FILES_OF_ESTIMATES = ("template", "user", "messages", "units")
"""Files of a job by which it is estimated, beside the host list."""
QUESTIONS = {
    "estimate": "apples.cluster.estimate:estimate",
    "select": "apples.cluster.selecting:select",
}
"""The functions that a fork of the parked interpreter runs to answer an order."""


@dataclass
class _Attempt:
    """What is known of an attempt here.

    Attributes
    ----------
    job
        Its record, which may not be there.
    hosts
        All on which it may ever have been, as far as was said. The set is replaced and never changed, so that a
        thread may go through it without the lock.
    map_epoch
        The job's own count of its maps, below which its record is out of date.
    epoch, refused
        The last order to resize it that was answered, and whether it was refused.
    told
        Whether the kernel tells of changes of its record.
    due, tries
        When it is looked at next, told of or not; and looks since it is ending.
    """

    number: int
    attempt: int
    job: store.StoredJob
    hosts: frozenset[str] = frozenset()
    map_epoch: int = 0
    epoch: int = 0
    refused: bool = False
    resizing: bool = False
    told: bool = False
    due: float = 0.0
    tries: int = 0
    changed: int = -1
    said: JobReport | None = None

    @property
    def key(self) -> tuple[int, int]:
        return self.number, self.attempt


def asked_of_a_fork(do: str, **arguments: Any) -> Any:
    """Return the answer of a fork of the parked interpreter to one of `QUESTIONS`; raises as `parked.call`."""
    return parked.call(do, at=QUESTIONS[do], **arguments)


@dataclass(frozen=True)
class JobVerbs:
    """The calls of the job service that an executor makes, and the source of changes of records.

    Attributes
    ----------
    begin, resize
        As of `apples.jobs.service`.
    control
        Returns the control client of a running job.
    ask
        Asks a fork of the parked interpreter, as `asked_of_a_fork`.
    changes
        Reports which records have changed.
    poll_seconds
        Fallback poll interval of each job's record.
    """

    begin: Callable[[store.StoredJob], Any] = service.begin
    resize: Callable[[str, dict[str, float]], Any] = service.resize
    control: Callable[[store.StoredJob], ControlClient] = conversation
    ask: Callable[..., Any] = asked_of_a_fork
    changes: RecordChanges = field(default_factory=RecordChanges)
    poll_seconds: float = SURE_SECONDS


def question_key(work: dict[str, Any], *asked: object) -> str:
    """Return the cache key of a question about a job: a digest of it and of its files' modification times."""
    written = [_written(work.get(name)) for name in ("hosts", *FILES_OF_ESTIMATES)]
    question = json.dumps([work, written, *asked], sort_keys=True)
    return hashlib.sha256(question.encode()).hexdigest()


def _written(path: object) -> int:
    """Return when a file was written last; 0: there is none, or none is named."""
    with contextlib.suppress(OSError, ValueError):
        return Path(path).stat().st_mtime_ns if isinstance(path, str) else 0
    return 0


def _asked(record: store.Record) -> tuple[int, int] | None:
    """Return fewest and most hosts that a job has asked for, as its record says; None: it has not, or none."""
    match record.get("asks"):
        case [int(least), int(most)] if 0 < least <= most:
            return least, most
    return None


def _anchor(record: store.Record) -> str:
    """Return the host that a job cannot leave, as its record says; empty: none."""
    found = record.get("anchor")
    return found if isinstance(found, str) else ""


def _speeds(record: store.Record) -> dict[str, float]:
    """Return the rows a second of each host, as a job has measured them where it is."""
    measured = record.get("measured")
    if not isinstance(measured, dict):
        return {}
    rows, seconds = measured["rows"], measured["compute_seconds"]
    return {host: rows[host] / seconds[host] for host in rows if seconds.get(host, 0.0) > 0}


def _messages(record: store.Record) -> tuple[tuple[str, str, float], ...]:
    """Return from host to host the bytes of an iteration of a job, as its record says; empty: it does not."""
    found = record.get("iteration_messages")
    try:
        return tuple((str(a), str(b), float(sent)) for a, b, sent in found or ())
    except (TypeError, ValueError):
        return ()


def _has_shared(job: store.StoredJob) -> bool:
    """Whether an attempt may have CPUs of topology daemons: not where its order says that it asks for none."""
    scheduled = job.order().get("scheduled")
    return not isinstance(scheduled, dict) or "topologyd" in scheduled


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
        Makes what looks at the hosts of the list that can be silent; None: there are none.
    daemons
        Give the CPUs of hosts that jobs share, and are what `looks` asks; None: no order asks for that.
    verbs
        The calls of the job service; None: the real ones.
    lock
        Guards the attempts.
    """

    def __init__(
        self,
        name: str,
        hosts: Path,
        clock: Callable[[], float],
        news: Callable[[], None],
        actuator: str = "local",
        looks: Callable[[Callable[[Report], None]], HostLooks] | None = None,
        daemons: TopologyDaemons | None = None,
        verbs: JobVerbs | None = None,
        lock: contextlib.AbstractContextManager[Any] | None = None,
    ) -> None:
        self._verbs = verbs or JobVerbs()
        self._name, self._hosts, self._clock, self._news = name, hosts, clock, news
        self._actuator = actuator
        self._daemons = daemons
        self._reports: SimpleQueue[Report] = SimpleQueue()
        self._attempts: dict[tuple[int, int], _Attempt] = {}
        self._doing: set[tuple[bool, int, int]] = set()
        self._lock = lock or threading.Lock()
        self._folder = store.folder()
        self._workers = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="order")
        self._estimators = ThreadPoolExecutor(1, thread_name_prefix="estimate")
        self._estimates: OrderedDict[str, float | None] = OrderedDict()
        self._selectors = ThreadPoolExecutor(SELECTIONS_AT_ONCE, thread_name_prefix="select")
        self._selections: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._looks = None if looks is None else looks(self._say)
        self._changes = self._verbs.changes
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
            if isinstance(order, SelectOrder):
                self._selectors.submit(self._select, order, self._clock() + order.seconds)
                continue
            doing = isinstance(order, ResizeOrder), order.job, order.attempt
            with self._lock:
                if doing in self._doing or not record_folders.IDENTIFIER.fullmatch(order.folder):
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

    def orders_in_progress(self) -> frozenset[tuple[bool, int, int]]:
        """Return the orders that are being carried out: whether it is a resize, job and attempt."""
        with self._lock:
            return frozenset(self._doing)

    def attempt_hosts(self) -> dict[tuple[int, int], frozenset[str]]:
        """Return the hosts of each watched attempt, by job and attempt; does not take the lock."""
        return {key: attempt.hosts for key, attempt in self._attempts.items()}

    def close(self) -> None:
        """Stop looking; the jobs go on."""
        self._stop.set()
        self._watcher.join()
        self._changes.close()
        if self._looks is not None:
            self._looks.close()
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._estimators.shutdown(wait=False, cancel_futures=True)
        self._selectors.shutdown(wait=False, cancel_futures=True)

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

    def _known(self, order: AttemptOrder, hosts: Iterable[str]) -> _Attempt:
        """Return an attempt, watched from now on, which may be on these hosts as well; its next report says all.

        It has the hosts before the thread that watches can see it: an attempt that is over says of each of them
        that it was left.
        """
        with self._lock:
            one = self._attempts.get((order.job, order.attempt))
            if one is None:
                job = store.StoredJob(self._folder / order.folder)
                one = _Attempt(order.job, order.attempt, job, told=self._changes.watch(job))
                self._attempts[one.key] = one
            one.hosts |= {*hosts}
            one.said, one.changed, one.due = None, -1, 0.0
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
                self._known(order, order.hosts)
                return
        except OSError as error:
            failure = failure_of(error)
            self._say_ended(order, "failed", failure.message, failure.exit_code, order.hosts)
            return
        try:
            if self._has_cpus(order, job):
                self._verbs.begin(job)
        except SilentDaemonError:
            return  # it has not begun, and is told to again, or to end
        except (LaunchError, OSError):
            pass  # the record says it
        self._known(order, order.hosts)

    def _has_cpus(self, order: StartOrder, job: store.StoredJob) -> bool:
        """Whether an attempt has the CPUs of its hosts that it is to have; one that is refused them never begins.

        Raises
        ------
        SilentDaemonError
            It may have them later.
        """
        try:
            self._give_cpus(order, order.hosts)
        except SilentDaemonError:
            raise
        except ApplesError as error:
            self._write_never(job, "failed", str(error))
            return False
        return True

    def _give_cpus(
        self, order: StartOrder | ResizeOrder, hosts: Collection[str], epoch: int = 0
    ) -> None:
        """Have an attempt have CPUs of hosts, if it asks for them; raises as `TopologyDaemons.allocate`."""
        if order.cpus and self._daemons is not None:
            with self._missing():
                self._daemons.allocate(order.folder, hosts, epoch)
            if self._looks is not None:
                self._looks.used(hosts)

    @contextlib.contextmanager
    def _missing(self) -> Iterator[None]:
        """Have it said of the host of a daemon that does not answer."""
        try:
            yield
        except SilentDaemonError as error:
            if self._looks is not None:
                self._looks.miss(error.host, str(error))
            raise

    def _create(self, order: AttemptOrder, work: dict[str, Any]) -> store.StoredJob:
        scheduled: dict[str, Any] = {
            "scheduler": self._name, "job": order.job, "attempt": order.attempt,
        }  # fmt: skip
        no_cpus = isinstance(order, StartOrder) and not order.cpus  # of any other nobody knows
        if self._daemons is not None and not no_cpus:
            scheduled["topologyd"] = self._daemons.sockets
        where = {"hosts": str(self._hosts), "actuator": self._actuator}
        found = {**work, **where, "scheduled": scheduled}
        return store.create(found, "", identifier=order.folder)

    def _never(self, order: AttemptOrder, state: str, reason: str) -> None:
        """Make the folder of an attempt that is not to begin: now it never does."""
        self._write_never(self._create(order, {}), state, reason)

    def _write_never(self, job: store.StoredJob, state: str, reason: str) -> None:
        """Write into the record of an attempt that has not begun that it never does."""
        code = LaunchError.exit_code
        job.write_last({**job.record(), "state": state, "reason": reason, "exit_code": code})

    def _resize(self, order: ResizeOrder) -> None:
        """Move a job to the hosts of an order, unless it is there; say what became of it."""
        one = self._known(order, order.hosts)
        with self._lock:
            one.resizing = True
        try:
            self._move(one, order)
        finally:
            with self._lock:
                # A record that was read meanwhile was reported without its hosts, and is to be read again.
                one.resizing, one.changed = False, -1

    def _move(self, one: _Attempt, order: ResizeOrder) -> None:
        reason = ""
        try:
            before = JobStatus.of(one.job)
            if set(before.hosts) != set(order.hosts):
                if self._verbs.control(one.job).status()["busy"]:
                    return  # with what it was told before a restart, or by its user: this is given again
                self._give_cpus(order, set(order.hosts) - set(before.hosts), order.epoch)
                self._verbs.resize(one.job.id, dict.fromkeys(order.hosts, 1.0))
        except ApplesError as error:
            reason = str(error)
        after = JobStatus.of(one.job)
        if after.state != "running":
            return
        done = not reason or set(after.hosts) == set(order.hosts)
        with self._lock:
            one.map_epoch = max(one.map_epoch, after.epoch or 0)
            one.epoch, one.refused = order.epoch, not done
        hosts = after.hosts if done else ()
        self._say(
            JobReport(
                *one.key, AttemptPhase.RUNNING, order.epoch, not done, hosts, after.iteration,
                after.iterations, reason=reason, anchor=_anchor(one.job.record()),
            )
        )  # fmt: skip
        # The job says that it is resized when the hosts that it leaves are empty, or lost.
        self._say_left(one, [(host, order.epoch) for host in one.hosts], after.hosts)

    def _end(self, order: EndOrder) -> None:
        """See that an attempt is over, or never begins."""
        job = store.StoredJob(self._folder / order.folder)
        if not job.folder.exists():
            with contextlib.suppress(FileExistsError):
                self._never(order, "cancelled", "")
        elif job.unbegun():
            self._write_never(job, "cancelled", "")
        service.cancel(order.folder)
        self._known(order, order.hosts)

    def _ask(self, order: AskOrder) -> None:
        """Say where an attempt is."""
        job = store.StoredJob(self._folder / order.folder)
        if not order.begun and (not job.folder.exists() or job.unbegun()):
            self._say(JobReport(order.job, order.attempt, AttemptPhase.ABSENT))
            return
        if not job.folder.exists():
            self._never(order, "failed", "its folder is gone")
        one = self._known(order, (host for host, _ in order.leaving))
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
        """Say that a host of this machine was left; have one asked that is another, or has given it CPUs."""
        looks = None if self._daemons is not None and not _has_shared(one.job) else self._looks
        if looks is None or not looks.left(*one.key, one.job.id, host, epoch):
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

    def _keep(self, answers: OrderedDict[str, Any], like: str, answer: Any) -> None:
        """Keep an answer for jobs that are alike; one that is transient (`LaunchError`) is asked for again."""
        with self._lock:
            answers[like] = answer
            if len(answers) > MOST_ESTIMATES:
                answers.popitem(last=False)

    def _estimate(self, order: EstimateOrder) -> None:
        """Say how long a job is going to run; one that is like one before is not estimated again.

        A model that has not answered in time counts as one that cannot say, also for jobs that are like this one:
        they would each hold up the estimates of all others for as long.
        """
        work = {**bare(order.work), "hosts": str(self._hosts)}
        like = question_key(work, order.hosts)
        seconds = self._estimates.get(like)
        if like not in self._estimates:
            keep = True
            try:
                seconds = self._verbs.ask(
                    "estimate", seconds=ESTIMATE_SECONDS, order=work, hosts=order.hosts
                )
            except ApplesError as error:  # its start says why
                late = isinstance(error, parked.UnansweredError)
                keep = late or not isinstance(error, LaunchError)
            if keep:
                self._keep(self._estimates, like, seconds)
        self._say(RunTimeEstimate(order.job, seconds))

    def _select(self, order: SelectOrder, until: float) -> None:
        """Say which hosts a job would rather have; where one that is like it was asked the same, as it was."""
        work = {**bare(order.work), "hosts": str(self._hosts)}
        asked = {
            "among": order.among, "count": order.count, "beside": order.beside, "instead": order.instead,
            "shares": dict(order.shares), "speeds": dict(order.speeds),
        }  # fmt: skip
        like = question_key(work, asked)
        if (found := self._selections.get(like)) is None:
            if (seconds := until - self._clock()) <= 0:
                return  # nobody waits for it any more
            found, keep = {}, True
            try:
                found = self._verbs.ask("select", seconds=seconds, order=work, **asked)
            except ApplesError as error:  # its start says why
                keep = not isinstance(error, LaunchError)
            if keep:
                self._keep(self._selections, like, found)
        said = tuple(found.get("hosts", ())), found.get("seconds", 0.0), found.get("otherwise")
        self._say(SelectedHosts(order.job, order.question, *said))

    # ----------------------------------------------------------------------------- watching
    def _watch(self) -> None:
        """Look at the records of the jobs, and report what has changed."""
        while not self._stop.is_set():
            told = self._changes.wait(self._seconds())
            now = self._clock()
            with self._lock:
                watched = list(self._attempts.values())
            sure = max(self._verbs.poll_seconds, len(watched) / SURE_LOOKS)
            for one in watched:
                if one.told and one.job.id not in told and now < one.due:
                    continue
                one.due = now + sure
                with contextlib.suppress(Exception):  # a record that is none keeps no other unread
                    self._look(one)
            if self._looks is not None:
                with contextlib.suppress(Exception):  # nobody else would look at the jobs
                    self._looks.step({host for one in watched for host in one.hosts})
            self._stop.wait(PAUSE_SECONDS)

    def _seconds(self) -> float:
        """Return for how long the jobs may be left alone of which nothing is told."""
        now = self._clock()
        with self._lock:
            due = min((one.due for one in self._attempts.values()), default=now + LOOK_SECONDS)
        return min(LOOK_SECONDS, max(0.0, due - now))

    def _look(self, one: _Attempt) -> None:
        try:
            changed = (one.job.folder / "job.json").stat().st_mtime_ns
        except FileNotFoundError:  # whoever made the folder died before its record was whole
            reason = "its record was not completed; it never began"
            failed = {"state": "failed", "reason": reason, "exit_code": LaunchError.exit_code}
            one.job.write({**store.first_record(one.job.id, ""), **failed})
            return
        if changed == one.changed and one.job.supervised():
            return
        record = one.job.record()
        one.changed = changed
        if record["state"] in store.OVER:
            if one.job.supervised() or job_processes.marked(one.job.id):
                wait = ENDING_SECONDS[min(one.tries, len(ENDING_SECONDS) - 1)]
                one.tries, one.changed, one.due = one.tries + 1, -1, self._clock() + wait
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
                messages=_messages(record),
                anchor=_anchor(record),
            )
        if report != one.said:
            one.said = report
            self._say(report)

    def _over(self, one: _Attempt, record: store.Record) -> None:
        """Say that an attempt is over, and has left what is of this machine: no process of it is there."""
        with self._lock:
            self._attempts.pop(one.key, None)
        self._changes.forget(one.job)
        hosts_failed = (
            record["state"] == "failed" and record.get("exit_code") == LaunchError.exit_code
        )
        if self._daemons is not None and hosts_failed:
            self._workers.submit(self._say_failed, one, record, self._daemons)
        else:
            self._say_over(one, record)

    def _say_failed(self, one: _Attempt, record: store.Record, daemons: TopologyDaemons) -> None:
        """Say that its hosts failed an attempt; first which of their daemons is down, for then it is to blame.

        A host that is not in the list any more has no daemon here to be asked.
        """
        try:
            with contextlib.suppress(ApplesError), self._missing():
                for host in sorted(one.hosts & daemons.sockets.keys()):
                    if _has_shared(one.job):
                        daemons.check(host)
        finally:
            self._say_over(one, record)

    def _say_over(self, one: _Attempt, record: store.Record) -> None:
        self._say(
            JobReport(
                *one.key, AttemptPhase.ENDED, one.epoch, one.refused, state=record["state"],
                reason=record.get("reason") or "", exit_code=record.get("exit_code"),
                iteration=record.get("iteration"), iterations=record.get("iterations"),
            )
        )  # fmt: skip
        for host in one.hosts:
            self._left(one, host, LAST)
