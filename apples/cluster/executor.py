"""`JobServiceExecutor`: the jobs of a live scheduler as jobs of this user's job service.

An attempt is a job of its own; its id is the name of the folder that the scheduler chose. Making the folder begins
it, so it begins at most once, even if an order is repeated or a process dies in between. Jobs belong to their
supervisors; this module starts, queries and ends them. It reports that a host was left when no process with the
job tag of the attempt runs on it. For another machine, and for a host with CPUs from a topology daemon, it uses
probes (`apples.cluster.host_checks`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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
    StartOrder,
    attached_requirement,
)
from apples.cluster.seals import bare
from apples.cluster.topology_daemons import SilentDaemonError, TopologyDaemons
from apples.errors import ApplesError, LaunchError, UsageError, failure_of
from apples.io import record_folders
from apples.jobs import children, service, store
from apples.jobs.records import JobStatus, control_client
from apples.launch import job_processes
from apples.launch.remote.addresses import is_here
from apples.malleable.control.client import ControlClient
from apples.resources import Host
from apples.ui.units import listed

HOSTS_POLL_SECONDS = 0.1
MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.05, 2.0
"""Limits of the poll interval of the records of jobs: a freed host is used within about 0.1 s where few jobs run,
and pages and commands show each change within 2 s."""
POLLS_PER_SECOND = 50
"""Polls of all records together in a second, within those limits: about 0.3 % of a CPU. A scheduler with 100 jobs
may take 1 %."""
MIN_PAUSE_SECONDS = 0.01
"""Pause between two rounds of polls."""
ENDING_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Intervals at which a job that is ending is polled; each of these polls lists this machine's processes."""
MAX_AT_ONCE: Mapping[type[Order], int] = {
    StartOrder: 8, ResizeOrder: 32, EndOrder: 8, AskOrder: 8, EstimateOrder: 2,
}  # fmt: skip
"""Orders of each kind that are carried out at the same time. Each kind has its own queue: a resize waits for its
job's safe point, and no end of a job waits for a resize."""
DAEMON_CHECKS_AT_ONCE = 2

MAX_ESTIMATES = 1000
"""Estimates in the cache: many jobs of a queue are alike."""
ESTIMATE_SECONDS = 60.0
"""Time limit of a user's run-time model."""
FILES_OF_ESTIMATES = ("template", "user", "messages", "units")
"""Files that determine the estimate of a job, besides the host list."""


@dataclass
class _Attempt:
    """The state of an attempt, as this executor knows it.

    Attributes
    ----------
    job
        Its record, which may be missing.
    hosts
        All hosts on which it may ever have been, by the orders so far. The set is replaced and never changed, so
        that a thread may iterate over it without the lock.
    map_epoch
        The job's own count of its maps; a record with a lower count is out of date.
    epoch, refused
        The last order to resize it that was answered, and whether it was refused.
    due, tries
        Time of its next poll; and number of polls since its end began.
    """

    number: int
    attempt: int
    job: store.StoredJob
    hosts: frozenset[str] = frozenset()
    map_epoch: int = 0
    epoch: int = 0
    refused: bool = False
    resizing: bool = False
    due: float = 0.0
    tries: int = 0
    changed: int = -1
    last_report: JobReport | None = None

    @property
    def key(self) -> tuple[int, int]:
        return self.number, self.attempt


def ask_model(**arguments: Any) -> Any:
    """Return the answer of a job's model in a child process; raises as `apples.jobs.children.call`."""
    return children.call("apples.cluster.job_models:estimate", **arguments)


@dataclass(frozen=True)
class JobVerbs:
    """The calls of the job service that an executor makes.

    Attributes
    ----------
    begin
        Starts the supervisor of a job, as `apples.jobs.children.begin`.
    resize
        As `apples.jobs.service.resize`.
    control
        Returns the control client of a running job.
    ask
        Asks a job's model, as `ask_model`.
    """

    begin: Callable[[store.StoredJob], Any] = children.begin
    resize: Callable[[str, dict[str, float]], Any] = service.resize
    control: Callable[[store.StoredJob], ControlClient] = control_client
    ask: Callable[..., Any] = ask_model


def question_key(work: dict[str, Any], *asked: object) -> str:
    """Return the cache key of a question about a job: a digest of it and of its files' modification times."""
    written = [_written(work.get(name)) for name in ("hosts", *FILES_OF_ESTIMATES)]
    question = json.dumps([work, written, *asked], sort_keys=True)
    return hashlib.sha256(question.encode()).hexdigest()


def _written(path: object) -> int:
    """Return the time at which a file was written last; 0: it does not exist, or no path is given."""
    with contextlib.suppress(OSError, ValueError):
        return Path(path).stat().st_mtime_ns if isinstance(path, str) else 0
    return 0


def _asked(record: store.Record) -> tuple[int, int] | None:
    """Return the limits in hosts that a job has asked for, from its record; None: it has asked for none."""
    match record.get("asks"):
        case [int(least), int(most)] if 0 < least <= most:
            return least, most
    return None


def _anchor(record: store.Record) -> str:
    """Return the host that a job cannot leave, from its record; empty: it can leave every host."""
    anchor = record.get("anchor")
    return anchor if isinstance(anchor, str) else ""


def _verifying_until(record: store.Record) -> float | None:
    """Return the estimated end of the verification of a job, seconds since the epoch; None if there is none."""
    return record.get("verifying_until") if record["state"] == store.VERIFYING else None


def _speeds(record: store.Record) -> dict[str, float]:
    """Return the rows a second that a job has measured on each of its hosts."""
    measured = record.get("measured")
    if not isinstance(measured, dict):
        return {}
    rows, seconds = measured["rows"], measured["compute_seconds"]
    return {host: rows[host] / seconds[host] for host in rows if seconds.get(host, 0.0) > 0}


def _messages(record: store.Record) -> tuple[tuple[str, str, float], ...]:
    """Return the bytes from host to host in an iteration of a job, from its record; empty: they are not known."""
    messages = record.get("iteration_messages")
    try:
        return tuple((str(a), str(b), float(sent)) for a, b, sent in messages or ())
    except (TypeError, ValueError):
        return ()


def has_shared(job: store.StoredJob) -> bool:
    """Return whether an attempt may have CPUs of topology daemons: unless its order asks for none."""
    scheduled = job.order().get("scheduled")
    return not isinstance(scheduled, dict) or "topologyd" in scheduled


class JobServiceExecutor(JobExecutor):
    """Runs jobs by the job service.

    Parameters
    ----------
    name
        Name of the scheduler; it stands in the order of each of its jobs.
    hosts
        The scheduler's host list.
    clock
        Monotonic, in seconds.
    news
        Called from any thread when there is a new report.
    actuator
        Starts the jobs.
    looks
        Makes the `HostLooks` of the hosts that can fail to answer; None: all hosts are parts of this machine.
    daemons
        Allocate CPUs on shared hosts; `looks` probes them. None: no order requires that.
    verbs
        The calls of the job service; None: the real functions.
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
        self._queues = {
            kind: ThreadPoolExecutor(limit, thread_name_prefix=kind.__name__)
            for kind, limit in MAX_AT_ONCE.items()
        }
        self._daemon_checks = ThreadPoolExecutor(DAEMON_CHECKS_AT_ONCE)
        self._estimates: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._looks = None if looks is None else looks(self._report)
        self._stop = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="watch", daemon=True)
        self._watcher.start()

    def carry_out(self, orders: Sequence[Order]) -> None:
        """Begin to carry out orders.

        An order to an attempt that is busy with another order is dropped: the scheduler gives it again. An order
        to end must not run at the same time as an order to start: the attempt would not exist yet. A resize may
        take long; meanwhile the attempt can be asked and ended.
        """
        for order in orders:
            queue = self._queues[type(order)]
            if isinstance(order, EstimateOrder):
                queue.submit(self._estimate, order)
                continue
            doing = isinstance(order, ResizeOrder), order.job, order.attempt
            with self._lock:
                if doing in self._doing or not record_folders.IDENTIFIER.fullmatch(order.folder):
                    continue
                self._doing.add(doing)
            queue.submit(self._order, order, doing)

    def reports(self) -> list[Report]:
        """Return the reports since the last call."""
        reports: list[Report] = []
        with contextlib.suppress(Empty):
            while True:
                reports.append(self._reports.get_nowait())
        return reports

    def orders_in_progress(self) -> frozenset[tuple[bool, int, int]]:
        """Return the orders that are being carried out: whether it is a resize, job and attempt."""
        with self._lock:
            return frozenset(self._doing)

    def attempt_hosts(self) -> dict[tuple[int, int], frozenset[str]]:
        """Return the hosts of each watched attempt, by job and attempt; does not take the lock."""
        return {key: attempt.hosts for key, attempt in self._attempts.items()}

    def close(self) -> None:
        """Stop polling; the jobs continue."""
        self._stop.set()
        self._watcher.join()
        if self._looks is not None:
            self._looks.close()
        if self._daemons is not None:
            self._daemons.close()
        for queue in (*self._queues.values(), self._daemon_checks):
            queue.shutdown(wait=False, cancel_futures=True)

    def join(self, host: Host) -> None:
        """Use a further host from now on."""
        here = is_here(host)
        if self._daemons is not None:
            self._daemons.join(host, here=here)
        if self._looks is not None:
            self._looks.join(host, here=here and self._daemons is None)

    def end(self, host: str) -> None:
        """Note that a host was taken back."""
        if self._looks is not None:
            self._looks.end(host)

    def _report(self, report: Report) -> None:
        self._reports.put(report)
        self._news()

    # ------------------------------------------------------------------------------- orders
    def _order(self, order: AttemptOrder, doing: tuple[bool, int, int]) -> None:
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
            pass  # nothing was reported, so the scheduler gives the order again
        finally:
            with self._lock:
                self._doing.discard(doing)

    def _known(self, order: AttemptOrder, hosts: Iterable[str]) -> _Attempt:
        """Return an attempt that may also be on these hosts; poll it from now on, and report it completely.

        It gets the hosts before the polling thread sees it: when an attempt is over, each of its hosts is
        reported as left.
        """
        with self._lock:
            attempt = self._attempts.get((order.job, order.attempt))
            if attempt is None:
                job = store.StoredJob(self._folder / order.folder)
                attempt = _Attempt(order.job, order.attempt, job)
                self._attempts[attempt.key] = attempt
            attempt.hosts |= {*hosts}
            attempt.last_report, attempt.changed, attempt.due = None, -1, 0.0
        return attempt

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
            self._report_ended(order, "failed", failure.message, failure.exit_code, order.hosts)
            return
        try:
            if self._has_cpus(order, job):
                self._verbs.begin(job)
        except SilentDaemonError:
            return  # the attempt has not begun; the scheduler repeats the order, or ends the attempt
        except (LaunchError, OSError):
            pass  # the record has the reason
        self._known(order, order.hosts)

    def _has_cpus(self, order: StartOrder, job: store.StoredJob) -> bool:
        """Return whether an attempt has the CPUs that it requires; if a daemon refuses them, it never begins.

        Raises
        ------
        SilentDaemonError
            A daemon does not answer; it may allocate them later.
        """
        try:
            self._give_cpus(order, order.hosts)
        except SilentDaemonError:
            raise
        except ApplesError as error:
            job.never_begins("failed", str(error), error.exit_code)
            return False
        return True

    def _give_cpus(self, order: StartOrder | ResizeOrder, hosts: Collection[str]) -> None:
        """Allocate CPUs of hosts for an attempt, if it requires them; raises as `TopologyDaemons.allocate`."""
        work = (
            order.work
            if isinstance(order, StartOrder)
            else store.StoredJob(self._folder / order.folder).order()
        )
        requirement = attached_requirement(work)
        if requirement and self._daemons is None:
            raise UsageError(
                f"--require: {listed(sorted(hosts))}: no topology daemon; start one there, name its socket in the "
                'host list (topologyd = "/path/of/its/socket"), and start the scheduler again',
                code="daemon-missing", option="--require", hosts=sorted(hosts),
            )  # fmt: skip
        if (order.cpus or requirement) and self._daemons is not None:
            with self._reporting_silence():
                self._daemons.allocate(order.folder, hosts, requirement)
            if self._looks is not None:
                self._looks.used(hosts)

    @contextlib.contextmanager
    def _reporting_silence(self) -> Iterator[None]:
        """Report the host of a daemon that does not answer."""
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
        no_cpus = isinstance(order, StartOrder) and not (
            order.cpus or attached_requirement(work)
        )  # only a start order shows whether the attempt requires CPUs
        if self._daemons is not None and not no_cpus:
            scheduled["topologyd"] = {
                host: socket for host, socket in self._daemons.sockets.items() if socket
            }
        where = {"hosts": str(self._hosts), "actuator": self._actuator}
        document = {**work, **where, "scheduled": scheduled}
        return store.create(document, "", identifier=order.folder)

    def _never(self, order: AttemptOrder, state: str, reason: str) -> None:
        """Make the folder of an attempt that must not begin; this prevents a later start."""
        self._create(order, {}).never_begins(state, reason)

    def _resize(self, order: ResizeOrder) -> None:
        """Move a job to the hosts of an order, unless it is there, and report the outcome."""
        attempt = self._known(order, order.hosts)
        with self._lock:
            attempt.resizing = True
        try:
            self._move(attempt, order)
        finally:
            with self._lock:
                # A record that was read during the resize was reported without its hosts: read it again.
                attempt.resizing, attempt.changed = False, -1

    def _move(self, attempt: _Attempt, order: ResizeOrder) -> None:
        reason = ""
        try:
            before = JobStatus.of(attempt.job)
            if set(before.hosts) != set(order.hosts):
                with self._verbs.control(attempt.job) as control:
                    busy = control.status()["busy"]
                if busy:
                    return  # an earlier resize, by a user or before a restart, goes on: the order is given again
                self._give_cpus(order, set(order.hosts) - set(before.hosts))
                self._verbs.resize(attempt.job.id, dict.fromkeys(order.hosts, 1.0))
        except ApplesError as error:
            reason = str(error)
        after = JobStatus.of(attempt.job)
        if after.state not in store.ON_HOSTS:
            return
        done = not reason or set(after.hosts) == set(order.hosts)
        with self._lock:
            attempt.map_epoch = max(attempt.map_epoch, after.epoch or 0)
            attempt.epoch, attempt.refused = order.epoch, not done
        hosts = after.hosts if done else ()
        self._report(
            JobReport(
                *attempt.key, AttemptPhase.RUNNING, order.epoch, not done, hosts, after.iteration,
                after.iterations, reason=reason, anchor=_anchor(attempt.job.record()),
            )
        )  # fmt: skip
        # The resize ends when the hosts that the job leaves are empty, or lost.
        self._report_left(attempt, [(host, order.epoch) for host in attempt.hosts], after.hosts)

    def _end(self, order: EndOrder) -> None:
        """End an attempt, or ensure that it never begins."""
        job = store.StoredJob(self._folder / order.folder)
        if not job.folder.exists():
            with contextlib.suppress(FileExistsError):
                self._never(order, "cancelled", "")
        elif job.unbegun():
            job.never_begins("cancelled", "")
        service.cancel(order.folder)
        self._known(order, order.hosts)

    def _ask(self, order: AskOrder) -> None:
        """Report the state of an attempt."""
        job = store.StoredJob(self._folder / order.folder)
        if not order.begun and (not job.folder.exists() or job.unbegun()):
            self._report(JobReport(order.job, order.attempt, AttemptPhase.ABSENT))
            return
        if not job.folder.exists():
            self._never(order, "failed", "its folder is gone")
        attempt = self._known(order, (host for host, _ in order.leaving))
        if order.leaving and not attempt.resizing:
            status = JobStatus.of(attempt.job)
            if status.state in store.ON_HOSTS and status.hosts:
                self._report_left(attempt, order.leaving, status.hosts)

    def _report_left(
        self, attempt: _Attempt, leaving: Sequence[tuple[str, int]], hosts: Sequence[str]
    ) -> None:
        for host, epoch in leaving:
            if host not in hosts:
                self._left(attempt, host, epoch)

    def _left(self, attempt: _Attempt, host: str, epoch: int) -> None:
        """Report a host of this machine as left; probe another machine, or a host that has allocated CPUs."""
        daemons = self._daemons
        here = daemons is not None and not daemons.is_far(host)
        looks = None if here and not has_shared(attempt.job) else self._looks
        if looks is None or not looks.left(*attempt.key, attempt.job.id, host, epoch):
            self._report(HostLeft(*attempt.key, host, epoch))

    def _report_ended(
        self, order: AttemptOrder, state: str, reason: str, code: int, hosts: Sequence[str]
    ) -> None:
        where = order.job, order.attempt
        self._report(
            JobReport(*where, AttemptPhase.ENDED, state=state, reason=reason, exit_code=code)
        )
        for host in hosts:
            self._report(HostLeft(*where, host, LAST))

    def _estimate(self, order: EstimateOrder) -> None:
        """Report a job's run time by its model, and its best hosts; similar jobs share one estimate.

        A model that has not answered in time counts as a model that cannot estimate, also for similar jobs: each
        of them would delay the estimates of all others by the same time.
        """
        work = {**bare(order.work), "hosts": str(self._hosts)}
        asked = {"hosts": order.hosts, "among": order.among, "shares": dict(order.shares)}
        like = question_key(work, asked)
        answer = self._estimates.get(like)
        if answer is None:
            answer, keep = {}, True
            try:
                answer = self._verbs.ask(seconds=ESTIMATE_SECONDS, order=work, **asked)
            except ApplesError as error:  # its start reports it
                keep = not isinstance(error, LaunchError)
            if keep:
                self._cache(like, answer)
        choices = tuple((tuple(hosts), seconds) for hosts, seconds in answer.get("choices", ()))
        self._report(
            RunTimeEstimate(order.job, answer.get("seconds"), choices if order.among else None)
        )

    def _cache(self, like: str, answer: dict[str, Any]) -> None:
        """Cache an answer for similar jobs."""
        with self._lock:
            self._estimates[like] = answer
            if len(self._estimates) > MAX_ESTIMATES:
                self._estimates.popitem(last=False)

    # ----------------------------------------------------------------------------- watching
    def _watch(self) -> None:
        """Poll the records of the jobs and the hosts, and report changes."""
        wait = 0.0
        while not self._stop.wait(wait):
            now = self._clock()
            with self._lock:
                watched = list(self._attempts.values())
            interval = len(watched) / POLLS_PER_SECOND
            interval = min(MAX_POLL_SECONDS, max(MIN_POLL_SECONDS, interval))
            for attempt in watched:
                if now < attempt.due:
                    continue
                attempt.due = now + interval
                with contextlib.suppress(Exception):  # a damaged record must not block the others
                    self._poll(attempt)
            if self._looks is not None:
                with contextlib.suppress(Exception):  # a failed probe must not block the polls
                    self._looks.step({host for attempt in watched for host in attempt.hosts})
            due = min((attempt.due for attempt in watched), default=now + HOSTS_POLL_SECONDS)
            wait = min(HOSTS_POLL_SECONDS, max(MIN_PAUSE_SECONDS, due - self._clock()))

    def _poll(self, attempt: _Attempt) -> None:
        try:
            changed = (attempt.job.folder / "job.json").stat().st_mtime_ns
        except (
            FileNotFoundError
        ):  # the process that made the folder died before it completed the record
            reason = "its record was not completed; it never began"
            failed = {"state": "failed", "reason": reason, "exit_code": LaunchError.exit_code}
            attempt.job.write({**store.first_record(attempt.job.id, ""), **failed})
            return
        if changed == attempt.changed and attempt.job.supervised():
            return
        record = attempt.job.record()
        attempt.changed = changed
        if record["state"] in store.OVER:
            if attempt.job.supervised() or job_processes.marked(attempt.job.id):
                wait = ENDING_SECONDS[min(attempt.tries, len(ENDING_SECONDS) - 1)]
                attempt.tries, attempt.changed, attempt.due = (
                    attempt.tries + 1,
                    -1,
                    self._clock() + wait,
                )
                return
            self._over(attempt, record)
            return
        with self._lock:
            current = not attempt.resizing and int(record.get("epoch") or 0) >= attempt.map_epoch
            report = JobReport(
                *attempt.key,
                AttemptPhase.RUNNING
                if record["state"] in store.ON_HOSTS
                else AttemptPhase.STARTING,
                attempt.epoch,
                attempt.refused,
                tuple(record.get("hosts", ())) if current else (),
                record.get("iteration"),
                record.get("iterations"),
                asks=_asked(record),
                speeds=_speeds(record),
                messages=_messages(record),
                anchor=_anchor(record),
                verifying_until=_verifying_until(record),
            )
        if report != attempt.last_report:
            attempt.last_report = report
            self._report(report)

    def _over(self, attempt: _Attempt, record: store.Record) -> None:
        """Report that an attempt is over and that this machine has no process of it."""
        with self._lock:
            self._attempts.pop(attempt.key, None)
        hosts_failed = (
            record["state"] == "failed" and record.get("exit_code") == LaunchError.exit_code
        )
        if self._daemons is not None and hosts_failed:
            self._daemon_checks.submit(self._report_failed, attempt, record, self._daemons)
        else:
            self._report_over(attempt, record)

    def _report_failed(
        self, attempt: _Attempt, record: store.Record, daemons: TopologyDaemons
    ) -> None:
        """Report that its hosts failed an attempt, after reporting their topology daemons that do not answer.

        A host that left the list has no daemon here to check.
        """
        try:
            for host in sorted(attempt.hosts & daemons.sockets.keys()):
                with contextlib.suppress(ApplesError), self._reporting_silence():
                    if has_shared(attempt.job):
                        daemons.check(host)
        finally:
            self._report_over(attempt, record)

    def _report_over(self, attempt: _Attempt, record: store.Record) -> None:
        self._report(
            JobReport(
                *attempt.key, AttemptPhase.ENDED, attempt.epoch, attempt.refused, state=record["state"],
                reason=record.get("reason") or "", exit_code=record.get("exit_code"),
                iteration=record.get("iteration"), iterations=record.get("iterations"),
            )
        )  # fmt: skip
        for host in attempt.hosts:
            self._left(attempt, host, LAST)
