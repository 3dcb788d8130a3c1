"""The live scheduler as a state machine: events in, records and orders out; no clock, socket or process.

Only records change its state (`state`), and they are on the disk before an order or an answer leaves (`turn`). A
pass derives a ledger from the state (`pass_ledger`) and runs the same `Driver` and policies as the simulator;
decisions become records. A resize takes effect when the job reports it. A host is free when its executor reports
that no process of the job is left there. After a restart the scheduler asks for the state of every job before it
decides anything new.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import islice
from math import inf
from types import MappingProxyType
from typing import Any

from apples.cluster.admission import (
    check_host,
    check_predecessors,
    check_resizable,
    check_room,
    check_sharing,
    check_width,
    job_of,
    not_recorded,
)
from apples.cluster.host_choice import HostChooser
from apples.cluster.host_leases import MOVABLE, HostLeases
from apples.cluster.host_preference import HostPreference
from apples.cluster.inputs import BEGUN, MAX_INPUTS, InputLog, report_input, with_inputs, written
from apples.cluster.live_job import (
    CHANGING,
    MAX_RESTARTS,
    OVER,
    JobSubmission,
    LiveJob,
    LiveJobState,
    submission_document,
)
from apples.cluster.log import SchedulerLog
from apples.cluster.order_sender import OrderSender
from apples.cluster.orders import (
    LAST,
    AttemptPhase,
    EndOrder,
    EstimateOrder,
    HostAnswer,
    HostLease,
    HostLeft,
    HostLoad,
    JobReport,
    JobRunnerAnswer,
    Order,
    Report,
    RunTimeEstimate,
)
from apples.cluster.pass_ledger import Messages, Reported, ledger_of
from apples.cluster.progress import JobPace
from apples.cluster.state import (
    LOST_SUBMISSION,
    PROMISES_PER_RECORD,
    Quarantine,
    Record,
    SchedulerState,
    digest_of,
    quarantine_document,
)
from apples.cluster.timeouts import QueueLimits, Timeouts
from apples.errors import LaunchError, failure_of
from apples.io.journal import JournalError
from apples.scheduling.driver import FALLBACK, Driver, SchedulerBackend
from apples.scheduling.guard import GuardedPolicy
from apples.scheduling.instants import instant
from apples.scheduling.jobs import Job, JobKind, Wait
from apples.scheduling.ledger import ClusterLedger, Refused
from apples.scheduling.passes import PolicyFailedError, PolicyFailure, name_of
from apples.scheduling.policy import NodeLoad, RunningJob, SchedulingPolicy

SHOWN_ALARMS = 100
MOVED_AT_ONCE, ARCHIVE_SECONDS = 100, 60.0
"""Ended jobs that move to the history together, and the retry interval if it cannot be written."""
MAX_REFUSALS, MAX_DOUBLED = 3, 5
"""Refusals in a row after which a job gets no resize order for a time, and how often that time doubles."""
NOTED_LOAD = 0.05
"""Smaller changes of a host's load are ignored."""
HOST_FAILED = LaunchError.exit_code
"""The exit code of a run that failed because of its hosts, not because of its program."""


class LiveScheduler(SchedulerBackend):
    """Schedules jobs on hosts.

    Parameters
    ----------
    log
        The scheduler's log; the scheduler continues from the state that it holds.
    policy
        Decides in every pass.
    hosts
        The host list, in its order.
    clock, wall
        Present times in seconds: of a monotonic clock, and since the epoch.
    token
        Returns a new folder name at each call.
    lost
        Hosts that get no job until they answer, with the reason.
    prefer
        Chooses the hosts that a job gets and keeps; None: the first of the list.
    nodes
        Monitored hosts as a policy sees them, by name, without their loads.
    shared
        Whether a process of each user runs that user's jobs; they wait until it is connected.
    most_hosts
        The most hosts that there may be if hosts join (`HostLease`); a job that needs more than are there waits
        for them. None: only the hosts of the list.
    cpus
        CPUs of each host if the policy lets two jobs share a host; 0: a host has one job.
    limits
        Limits of the queue.
    started_with
        Policy, options and host list, for a replay of the log.

    Attributes
    ----------
    name
        The first part of its jobs' ids.
    problems
        Defects of the log, one line each.
    trouble
        Reason that nothing can be recorded now; empty: recording works.
    alarms
        The last alarms for an operator, each with its time.
    progress
        Job -> its last report while it ran.
    paces
        Job -> its speed on its present hosts and its expected end; not recorded, because jobs report it again.
    lost
        Hosts that cannot be reached, with the reason; they get no job. Not recorded: the executor reports it
        again.
    nodes
        Monitored hosts by name; others are hosts of the same speed.
    loads
        Host -> the last reported load by other processes; not recorded either.
    leases
        Ends of the times for which hosts can be used. Not recorded: they are reported again.
    waits
        Job -> the reason that the policy gave in its last pass for its waiting.
    passes
        Number of passes.
    changes
        Number of records since the start of the scheduler.
    touched, moved
        Jobs that records have changed, and jobs that reported progress, since a reader last emptied these sets.
    alarmed
        Number of alarms since the start of the scheduler.
    moves
        Number of moves of ended jobs to the history since the start of the scheduler.

    Raises
    ------
    JournalError
        Its start cannot be recorded.
    """

    _failed_kinds: frozenset[str] = frozenset()
    _archive_at = -inf
    _archive_failure = ""

    def __init__(
        self,
        log: SchedulerLog,
        policy: SchedulingPolicy,
        hosts: Sequence[str],
        clock: float,
        wall: float,
        token: Callable[[], str],
        timeouts: Timeouts | None = None,
        lost: Mapping[str, str] | None = None,
        prefer: HostPreference | None = None,
        nodes: Mapping[str, NodeLoad] = MappingProxyType({}),
        shared: bool = False,
        name: str = "local",
        most_hosts: int | None = None,
        cpus: int = 0,
        limits: QueueLimits | None = None,
        started_with: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.log, self.limits, self._started_with = log, limits or QueueLimits(), started_with
        self.timeouts = timeouts = timeouts or Timeouts()
        self.cpus = cpus
        self.name = name
        self.policy = policy
        self.state, self.problems = log.recover()
        self.now = max(
            self.state.time, instant(wall - self.state.wall) if self.state.incarnation else 0.0
        )
        self.trouble = ""
        self._on_disk: SchedulerState | None = None
        self.alarms = deque[tuple[float, str]](maxlen=SHOWN_ALARMS)
        self.progress: dict[int, JobReport] = {}
        self.paces: dict[int, JobPace] = {}
        self.lost = dict(lost or {})
        self.prefer = prefer
        self._most_hosts = most_hosts
        self.nodes = nodes
        self.loads: dict[str, NodeLoad] = {}
        self._chooser = None if prefer is None else HostChooser(prefer, self.loads)
        self.leases = HostLeases(timeouts.vacate)
        self._staying: set[int] = set()  # jobs with an alarm that they cannot leave hosts
        self.waits: dict[int, Wait] = {}
        self._promised: dict[int, float] = {}
        self._served: set[str] | None = set() if shared else None
        self.passes = self.changes = self.alarmed = self._effects = self.moves = 0
        self._failures: set[str] = set()
        self._inputs = InputLog()
        self.touched: set[int] = set()
        self.moved: set[int] = set()
        self._offset = self.now - clock
        self._token = token
        self._records: list[Record] = []
        self._ended: deque[int] = deque()
        self._newly_ended: list[int] = []
        self._followers: dict[int, set[int]] = {}
        self._active: set[int] = set()
        self._waiting: dict[int, Job] = {}  # as a policy sees them, in the order of their numbers
        self._conditional: set[int] = (
            set()
        )  # waiting jobs that come after other jobs or wait for a model
        self._changing: set[int] = set()  # jobs that are being resized
        self._unconfirmed: set[int] = set()  # jobs that have not reported since the restart
        self._unestimated: dict[int, float] = {}  # job -> time of the last question to its model
        self._sender = OrderSender(cpus)
        self._wakes: list[float] = []
        self._dirty: float | None = self.now
        self._checked, self._retry, self._passed = self.now, self.now, -inf
        self._since: dict[int, float] = {}
        self._refused: dict[int, tuple[int, float]] = {}
        self._last_pass: ClusterLedger | None = None
        self._open(hosts, wall)

    def _open(self, hosts: Sequence[str], wall: float) -> None:
        """Record this start, and ask for the state of every job that has hosts."""
        state = self.state
        known, held = set(hosts), [*state.holders, *state.quarantined]
        gone = [host for host in dict.fromkeys(held) if host not in known]
        of_other_policy = [*state.held] if state.policy != name_of(self.policy) else []
        self.lost |= dict.fromkeys(gone, "it is not among the hosts any more")
        # The rounding of `now` would make `wall - now` differ from the last start's, and shift displayed times.
        same_epoch = state.incarnation and self.now == instant(wall - state.wall)
        self._record(
            "open", incarnation=state.incarnation + 1,
            wall=state.wall if same_epoch else wall - self.now, hosts=[*hosts, *gone],
            drained=sorted(state.drained & {*hosts, *gone}), policy=name_of(self.policy),
            half_life=self.policy.usage_half_life, cpus=self.cpus,
        )  # fmt: skip
        self._release(of_other_policy)
        self._sender.incarnation = state.incarnation
        for job in list(state.jobs.values()):
            if job.waits and job.submission.name == LOST_SUBMISSION:
                self._change(job.end(LiveJobState.FAILED, LOST_SUBMISSION, self.now, True), "lost")
            elif job.waits:
                self._follow(job)
        for number in [*self._followers]:
            if number not in state.jobs or state.jobs[number].is_over:
                self._newly_ended.append(number)
        self._check_followers()
        for job in state.jobs.values():
            self._sort_in(job)
        self._unconfirmed = set(self._active)
        self._recovered_at = instant(self.now + self.timeouts.recovery_grace)
        for number in self._active:
            self._since[number] = self.now
            self._sender.send(state.jobs[number], self.now, ask=True)
        for time in state.promises.values():
            self.wake_at(time)
        self.problems += self.log.import_history(self.name, state.wall)
        self.log.rewrite(state, {
            "do": BEGUN, "name": self.name, "lost": sorted(self.lost), "shared": self._served is not None,
            "most_hosts": self._most_hosts, "cpus": self.cpus, "timeouts": written(asdict(self.timeouts)),
            "limits": asdict(self.limits),
            "with": dict(self._started_with),
        })  # fmt: skip
        self._records = []
        self._ended = deque(job.number for job in state.jobs.values() if job.is_over)

    def _release(self, held: Iterable[int]) -> None:
        """Put the jobs that an earlier policy held back into the queue, because this policy has not seen them."""
        for number in sorted(held):
            self._change(replace(self.state.jobs[number], held=""), "release")

    # ----------------------------------------------------------------------- client requests
    def submit(
        self,
        clock: float,
        submission: JobSubmission,
        request: str = "",
        operator: bool = True,
        past: Mapping[int, str] = MappingProxyType({}),
    ) -> int:
        """Put a job into the queue and return its number; a repeated request gets the same number.

        Parameters
        ----------
        past
            Final states of those jobs in the history that have to finish before this job.

        Raises
        ------
        UsageError
            The job can never run here, or the request id was used for another submission. Permanent.
        LaunchError
            The queue is full, or nothing can be recorded. Transient.
        """
        with self._input(clock, "submit", self.state.last + 1):
            return self._submit(submission, request, operator, past)

    def _submit(
        self,
        submission: JobSubmission,
        request: str,
        operator: bool,
        past: Mapping[int, str],
    ) -> int:
        digest = digest_of(submission) if request else ""
        known = self.state.answered(request, digest) if request else None
        if known is not None:
            return known
        self._check_recording()
        self.check_submission(submission, operator, past)
        job = LiveJob(self.state.last + 1, submission, self.now)
        answer = {"answer": [request, digest, job.number, self.now]} if request else {}
        document = submission_document(submission)
        self._change(job, "submit", submission=document, submitted=self.now, **answer)
        self._follow(job)
        self._ask_model(job.number)
        return job.number

    def check_submission(
        self,
        submission: JobSubmission,
        operator: bool = True,
        past: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        """Raise as `submit` if the scheduler would reject this job; change nothing."""
        check_room(self.state, self.limits, submission, operator)
        most = len(self.state.hosts) if self._most_hosts is None else self._most_hosts
        check_width(submission, most, joins=self._most_hosts is not None)
        if self.cpus:
            check_sharing(submission, name_of(self.policy))
        check_predecessors(self.state, past, self.name, submission.after)

    def _check_recording(self) -> None:
        """Reject an input while the log cannot be written: the end of the scheduler would lose it."""
        if self.trouble:
            raise not_recorded(self.trouble)

    def comes_after(self, job: LiveJob) -> list[int]:
        """Return the predecessors of a job that are not over."""
        jobs = self.state.jobs
        return [one for one in job.submission.after if one in jobs and not jobs[one].is_over]

    def is_served(self, user: str) -> bool:
        """Whether a process that runs the jobs of a user is connected."""
        return self._served is None or user in self._served

    def is_ineligible(self, job: LiveJob) -> bool:
        """Whether a waiting job is hidden from the policy, because it waits for more than hosts."""
        return (
            job.number in self._conditional
            and (bool(self.comes_after(job)) or self.awaits_model(job))
        ) or bool(
            not self.is_served(job.submission.user)
            or self.lacks_hosts(job)
            or self.leases.is_too_short(job, len(self.state.hosts), self.now)
        )

    def awaits_model(self, job: LiveJob) -> bool:
        """Whether a job waits, for a limited time, until its model has chosen its hosts."""
        return (
            self.now < job.submitted + self.timeouts.model
            and job.number in self._unestimated
            and not job.attempt
            and self._chooser is not None
            and self._chooser.asks(job, self.state.hosts)
        )

    def lacks_hosts(self, job: LiveJob) -> str:
        """Return the reason that a job waits for further hosts to join; empty: it does not."""
        if self._most_hosts is None:
            return ""
        one, there = job.submission, len(self.state.hosts)
        needs = one.minimum if self.policy.uses_malleable else job.as_job().processors
        needs = one.maximum if one.kind is JobKind.RIGID else needs
        if needs <= there:
            return ""
        many, are = "s" * (needs > 1), "is" if there == 1 else "are"
        return f"needs {needs} host{many}, and there {are} {there or 'none'}: it waits for more to join"

    def exceeds_host_leases(self, job: LiveJob) -> str:
        """Return the reason that a job waits for hosts with a longer lease; empty: it does not."""
        return self.leases.wait_reason(job, len(self.state.hosts), self.now)

    def lease_reason(self, host: str) -> str:
        """Return the end of the lease that keeps jobs off a host, as text; empty: the host gets jobs."""
        return self.leases.ending_reason(host, self.now)

    def _follow(self, job: LiveJob) -> None:
        for number in job.submission.after:
            self._followers.setdefault(number, set()).add(job.number)

    def _check_followers(self) -> None:
        while self._newly_ended:
            self._release_followers(self._newly_ended.pop())

    def _release_followers(self, number: int) -> None:
        """Let the followers of an ended job wait for hosts; cancel them if it did not finish."""
        over = self.state.jobs.get(number)
        for follower in sorted(self._followers.pop(number, ())):
            job = self.state.jobs.get(follower)
            if job is None or not job.waits or job.attempt:
                continue
            if over is not None and over.state is not LiveJobState.FINISHED:
                reason = f"{self.name}.{number}, after which it was to come, is {over.state.value}"
                self._change(job.end(LiveJobState.CANCELLED, reason, self.now, True), "cancel")
            elif not self.comes_after(job):
                self._sort_in(job)
                self._request_pass()

    def cancel(self, clock: float, number: int, reason: str = "", operator: bool = False) -> None:
        """End a job in any state; a job that is over does not change.

        In a shared scheduler only its user's job runner can end a running job. If the job runner is away and the
        operator cancels the job a second time, the scheduler counts the job as over. It quarantines its hosts
        until the job runner reports that the job left them.

        Raises
        ------
        UsageError
            No job has this number.
        """
        with self._input(clock, "cancel", number, reason, operator):
            self._cancel(self.job(number), reason, operator)

    def _cancel(self, job: LiveJob, reason: str, operator: bool) -> None:
        if job.is_over:
            return
        if job.outcome is LiveJobState.CANCELLED:
            if operator and self.lacks_runner(job):
                self._abandon(job)
            return
        if job.waits:
            self._change(job.end(LiveJobState.CANCELLED, reason, self.now, True), "cancel")
        elif job.state is LiveJobState.ENDING:
            self._change(replace(job, outcome=LiveJobState.CANCELLED, reason=reason), "cancel")
        else:
            self._end(job, LiveJobState.CANCELLED, reason)

    def lacks_runner(self, job: LiveJob) -> bool:
        """Whether a job has to end while its user's job runner, which alone can end it, is away."""
        ends = job.state is LiveJobState.ENDING and not job.over
        return ends and not self.is_served(job.submission.user)

    def _abandon(self, job: LiveJob) -> None:
        """End a job with processes that cannot be ended now; quarantine its hosts."""
        reason = job.reason or f"the job runner of {job.submission.user} is away"
        job = self._change(
            replace(job.end(DEFAULT_OUTCOME, "", self.now, True), reason=reason), "abandon"
        )
        if job.leaving:
            self._quarantine(job)

    def resize(self, clock: float, number: int, hosts: Sequence[str]) -> None:
        """Order a running job to move to these hosts.

        Raises
        ------
        UsageError
            The job cannot be resized: it is not malleable, or the policy decides its size. Permanent.
        LaunchError
            It does not run, is being resized, or one of the hosts is not free. Transient.
        """
        with self._input(clock, "resize", number, list(hosts)):
            job = self.job(number)
            self._check_resize(job, hosts)
            if set(hosts) != set(job.hosts):
                stay = [host for host in job.hosts if host in hosts]
                come = [host for host in hosts if host not in job.hosts]
                self._send(self._change(job.resize((*stay, *come)), "resize"))

    def _check_resize(self, job: LiveJob, hosts: Sequence[str]) -> None:
        self._check_recording()
        for host in hosts:
            check_host(self.state, host)
        check_resizable(self.state, job, hosts, self.name, self.policy)
        for host in hosts:
            if host not in job.hosts and not self._all_free([host]):
                shown = self.lost.get(host) or f"is {self.state.host_state(host)}"
                reason = self.lease_reason(host) or shown
                raise LaunchError(
                    f"{host}: {reason}",
                    code="host-lost" if host in self.lost else "host-busy",
                    host=host, reason=reason, state=self.state.host_state(host),
                )  # fmt: skip

    def drain(self, clock: float, host: str) -> None:
        """Stop scheduling jobs on a host."""
        with self._input(clock, "drain", host):
            check_host(self.state, host)
            if host not in self.state.drained:
                self._record("drain", drained=sorted({*self.state.drained, host}))

    def resume(self, clock: float, host: str) -> None:
        """Schedule jobs on a drained host again."""
        with self._input(clock, "resume", host):
            check_host(self.state, host)
            if host in self.state.drained:
                self._record("resume", drained=sorted(self.state.drained - {host}))
                self._host_is_free()

    def job(self, number: int) -> LiveJob:
        """Return a job.

        Raises
        ------
        UsageError
            No job has this number.
        """
        return job_of(self.state, number, self.name)

    # ---------------------------------------------------------------------------- reports
    def report(self, clock: float, report: Report) -> None:
        """Take in a report of the executor."""
        if isinstance(report, HostLoad):
            self._at(clock)
            self._hear_load(report)
            return
        with self._input(clock, report):
            if isinstance(report, HostLeft):
                self._hear_left(report)
            elif isinstance(report, HostAnswer):
                self._hear_answer(report)
            elif isinstance(report, JobRunnerAnswer):
                self._hear_job_runner(report)
            elif isinstance(report, RunTimeEstimate):
                self._hear_estimate(report)
            elif isinstance(report, HostLease):
                self._hear_lease(report)
            else:
                self._hear(report)

    def _hear(self, report: JobReport) -> None:
        job = self.state.jobs.get(report.job)
        if job is None or report.attempt > job.attempt:
            self._end_unknown(report)
            return
        if job.is_over and report.attempt == job.attempt:
            if report.phase is not AttemptPhase.ENDED:  # its hosts are quarantined
                self._sender.end_again(job, report.hosts)
            return
        if report.attempt < job.attempt or job.is_over or job.waits:
            return
        self._hear_attempt(job, report)

    def _end_unknown(self, report: JobReport) -> None:
        """End an attempt that the log does not have."""
        if report.phase is AttemptPhase.ENDED:
            return
        self._alarm(
            f"attempt {report.attempt} of {self.name}.{report.job} is unknown; it is ended"
        )
        self._sender.add(
            EndOrder(report.job, report.attempt, self.state.incarnation, "", report.hosts)
        )

    def _hear_attempt(self, job: LiveJob, report: JobReport) -> None:
        starting = job.state is LiveJobState.STARTING
        self._effects += (
            starting and job.number in self._unconfirmed
        )  # from now on the start may be given up
        self._unconfirmed.discard(job.number)
        if job.state is LiveJobState.ENDING:
            if report.phase is AttemptPhase.ENDED and not job.over:
                self._change(job.end(DEFAULT_OUTCOME, "", self.now, True), "over")
        elif report.phase is AttemptPhase.ABSENT:
            if job.state is LiveJobState.STARTING:
                self._send(job)
        elif report.phase is AttemptPhase.RUNNING:
            self._hear_running(job, report)
        elif report.phase is AttemptPhase.ENDED:
            self._hear_ended(job, report)

    def _hear_running(self, job: LiveJob, report: JobReport) -> None:
        self.progress[job.number] = report
        self.moved.add(job.number)
        self._note_pace(job, report)
        if report.asks is not None and report.asks != job.asks:
            job = self._hear_request(job, report.asks)
        if job.state is LiveJobState.STARTING:
            job = self._change(job.run(), "running")
        if job.state in CHANGING and report.epoch == job.epoch:
            done = not report.refused
            if not done:
                self._alarm(f"{self.name}.{job.number} was not resized: {report.reason}")
            self._note_verdict(job.number, done)
            placed_by = "" if done else job.placed_by
            self._change(replace(job.settle(done), placed_by=placed_by), "verdict")
        elif (
            job.state is LiveJobState.RUNNING
            and report.epoch == job.epoch
            and report.hosts
            and set(report.hosts) < set(job.hosts)
        ):
            self._send(self._change(job.lose(report.hosts), "lose"))

    def _note_pace(self, job: LiveJob, report: JobReport) -> None:
        """Estimate the end of a job from its progress."""
        at, last = report.iteration, report.iterations
        if at is None or not last or job.state is not LiveJobState.RUNNING or not job.settled:
            return
        before = self.paces.get(job.number) or JobPace(job.hosts, self.now, at, self.now)
        pace = self.paces[job.number] = before.after(job.hosts, at, last, self.now)
        if pace.end != before.end:
            self._inputs.note(self.now, "pace", job.number, pace.end)
            self._request_pass()

    @property
    def _messages(self) -> dict[int, Messages]:
        """The messages between the hosts of each job; empty if the policy does not look at them."""
        if not self._shows_messages:
            return {}
        return {number: report.messages for number, report in self.progress.items()}

    def _hear_request(self, job: LiveJob, asks: tuple[int, int]) -> LiveJob:
        """Note a job's request for other hosts; the next pass of the policy sees it."""
        since = self._since[job.number]
        job = self._change(replace(job, asks=asks), "request")
        self._since[job.number] = since  # keep the timeout of an open order
        return job

    def _ask_models(self) -> None:
        """Ask the models of jobs for run times and for the best hosts."""
        for number in self._unestimated:
            self._ask_model(number)

    def _ask_model(self, number: int) -> None:
        """Ask the model of a job, unless it has none, has answered, or was asked a short time ago."""
        job, asked = self.state.jobs[number], self._unestimated.get(number, inf)
        if self.now < asked + self.timeouts.estimate_interval:
            return
        if not self.lacks_hosts(job) and self.is_served(job.submission.user):
            self._unestimated[number] = self.now
            self._sender.add(self._model_order(job))

    def _model_order(self, job: LiveJob) -> EstimateOrder:
        if self._chooser is not None and job.waits:
            return self._chooser.order(job, self.state.incarnation, self.state.hosts)
        one = job.submission
        return EstimateOrder(job.number, self.state.incarnation, one.maximum, one.work, one.user)

    def _hear_estimate(self, answer: RunTimeEstimate) -> None:
        """Plan with the estimate of a job's model; a pace measured later takes precedence."""
        if self._unestimated.pop(answer.job, None) is None:
            return
        self.leases.too_short.discard(answer.job)
        job = self.state.jobs[answer.job]
        since = self._since.get(job.number)
        seconds = (answer.seconds or 0.0) if job.submission.modelled else 0.0
        choices = job.host_choices if answer.choices is None else answer.choices
        job = self._change(replace(job, estimate=seconds, host_choices=choices), "estimate")
        if since is not None:
            self._since[job.number] = since  # keep the timeout of an open order

    def _note_verdict(self, number: int, done: bool) -> None:
        """Note the answer to a resize order; pause the orders after `MAX_REFUSALS` refusals in a row."""
        refused = 0 if done else self._refused.pop(number, (0, 0.0))[0] + 1
        if refused >= MAX_REFUSALS:
            again = self.timeouts.retry_backoff * 2 ** min(refused - MAX_REFUSALS, MAX_DOUBLED)
            self._refused[number] = refused, self.now + again
            self._request_pass()
        elif refused:
            self._refused[number] = refused, 0.0
        else:
            self._refused.pop(number, None)

    def rests(self, number: int) -> bool:
        """Whether the scheduler sends a job no resize orders for a time, because it refused several in a row."""
        return self._refused.get(number, (0, 0.0))[1] > 0

    def _hear_ended(self, job: LiveJob, report: JobReport) -> None:
        outcome = LiveJobState.FAILED
        if report.state in OVER:
            outcome = LiveJobState(report.state)
        restarts = job.restarts
        hosts_failed = outcome is LiveJobState.FAILED and report.exit_code == HOST_FAILED
        if hosts_failed and self._lacks_cpus(job):
            outcome = LiveJobState.QUEUED
        elif hosts_failed and restarts < MAX_RESTARTS:
            outcome, restarts = LiveJobState.QUEUED, restarts + 1
        ended = replace(
            job.end(outcome, report.reason, self.now, True),
            exit_code=report.exit_code, restarts=restarts,
        )  # fmt: skip
        self._change(ended, "end")

    def _lacks_cpus(self, job: LiveJob) -> str:
        """Return a lost host of a starting job that needs CPUs from topology daemons; empty: none.

        The daemon of a lost host does not answer, so the end of the attempt is not a failure of the job.
        """
        asks = self._sender.shared_cpus(job) or bool(job.requirement)
        if job.state is not LiveJobState.STARTING or not asks:
            return ""
        return next((host for host in job.hosts if host in self.lost), "")

    def _hear_left(self, left: HostLeft) -> None:
        why = self.state.quarantined.get(left.host)
        if why is not None:
            if (why.job, why.attempt) == (left.job, left.attempt) and left.epoch >= why.epoch:
                self._record("free", quarantined={left.host: None})
                self._host_is_free()
            return
        job = self.state.jobs.get(left.job)
        if job is None or left.attempt != job.attempt:
            return
        if left.epoch < job.leaving.get(left.host, LAST + 1):
            return
        self._change(job.leave(left.host), "left")

    def _hear_answer(self, answer: HostAnswer) -> None:
        host, reason = answer.host, answer.reason
        if host not in self.state.hosts or self.lost.get(host, "") == reason:
            return
        if not reason:
            self._effects += 1
            del self.lost[host]
            self._host_is_free()
        else:
            if host not in self.lost:
                self._effects += 1
                self._alarm(f"{host} is lost: {reason}")
            self.lost[host] = reason
        self._request_pass()

    def _hear_load(self, load: HostLoad) -> None:
        """Note the load of a host by processes that belong to none of the scheduler's present or recent jobs."""
        if load.host not in self.state.hosts:
            return
        ours = {job.folder for job in self.state.jobs.values() if job.folder}
        others = sum(wanting for job, wanting in load.wanting.items() if job not in ours)
        error = math.sqrt(sum(e**2 for job, e in load.errors.items() if job not in ours))
        before = self.loads.get(load.host)
        known = self.nodes.get(load.host, before or NodeLoad(load.host))
        now = known._replace(cpus=load.cpus, others=others, parts=load.parts, error=error)
        if before is not None and _alike(before, now):
            return
        self.loads[load.host] = now
        if self._node_loads():
            self._request_pass()

    def _node_loads(self) -> tuple[NodeLoad, ...]:
        """Return the loads for the policy; empty if it reads none or a host that answers is not measured yet."""
        hosts = self.state.hosts
        if "loads" not in self.policy.looks_at or any(
            host not in self.loads and host not in self.lost for host in hosts
        ):
            return ()
        return tuple(self.loads.get(host, NodeLoad(host)) for host in hosts)

    def _hear_job_runner(self, answer: JobRunnerAnswer) -> None:
        """Note whether a user's job runner is connected; ask a new job runner for the state of the user's jobs."""
        if self._served is None:
            return
        if answer.here:
            self._served.add(answer.user)
            for number in self._unestimated:
                if self.state.jobs[number].submission.user == answer.user:
                    self._unestimated[number] = -inf
            for number in self._active:
                if self.state.jobs[number].submission.user == answer.user:
                    self._since[number] = self.now  # no job runner could answer before
                    self._sender.send(self.state.jobs[number], self.now, ask=True)
        else:
            self._served.discard(answer.user)
        self._effects += 1
        self._request_pass()

    def _hear_lease(self, lease: HostLease) -> None:
        """Note the lease of a host; a new host gets jobs after it has answered."""
        if lease.host not in self.state.hosts:
            if lease.seconds <= 0:
                return
            self.lost[lease.host] = "it has not answered yet"
            self._record("join", hosts=[*self.state.hosts, lease.host])
            self._last_pass = None  # its node numbers are out of date
        if self.leases.renew(lease, self.now):
            self._effects += 1
            self._staying.clear()
            self._request_pass()

    def _check_leases(self) -> None:
        """Move jobs off hosts with leases that end soon, and remove empty hosts with leases that are over."""
        if not self.leases:
            return
        soon = self.leases.about_to_end(self.now)
        if soon != self.leases.ending:
            self.leases.ending = soon
            self._effects += 1
            self._request_pass()
        state = self.state
        for number in sorted(self._active) if soon else ():
            job = state.jobs[number]
            movable = job.submission.kind in MOVABLE and not self.rests(number)
            if (
                movable
                and job.state is LiveJobState.RUNNING
                and job.settled
                and soon & {*job.hosts}
            ):
                self._vacate(job)
            elif job.settled or job.state is LiveJobState.UNSETTLED:
                self._end_on_lost_lease(job)
        over = [
            host for host in sorted(soon)
            if self.leases.is_over(host) and host not in state.holders and host not in state.quarantined
        ]  # fmt: skip
        if over:
            left = [host for host in state.hosts if host not in over]
            for host in over:
                self.lost.pop(host, None)
                self.loads.pop(host, None)
                self._inputs.forget("load", host)
            self.leases.forget(over)
            drained = sorted(state.drained - set(over))
            self._record("leave", hosts=left, drained=drained)
            self._last_pass = None  # its node numbers are out of date

    def _vacate(self, job: LiveJob) -> None:
        """Order a job to leave hosts with leases that end soon; free hosts replace them as far as possible."""
        ending = self.leases.ending
        stay = [host for host in job.hosts if host not in ending]
        others = [host for host in self.state.hosts if self._all_free([host])]
        lacks = len(job.hosts) - len(stay)
        come = others[:lacks] if self.prefer is None else self.prefer.best(others, lacks, stay)
        target = *stay, *come
        going = next(host for host in job.hosts if host in ending)
        reason = self.leases.vacate_reason(going, self.now)
        if len(target) >= job.submission.minimum:
            self._send(self._change(job.resize(target, reason), "vacate"))
        elif not self._end_on_lost_lease(job) and job.number not in self._staying:
            self._staying.add(job.number)
            few = (
                f"{len(target)} of the {job.submission.minimum} hosts that it needs would be left"
            )
            self._alarm(f"{self.name}.{job.number} cannot leave {going}: {reason}, and {few}")

    def _end_on_lost_lease(self, job: LiveJob) -> bool:
        """End the attempt of a job on a host that was taken back and put the job into the queue again.

        Return whether the job has such a host. Over ssh its processes may continue there without an allocation.
        """
        gone = next((host for host in job.hosts if self.leases.is_lost(host, self.now)), "")
        if gone:
            reason = f"{gone}: {self.leases.ending_reason(gone, self.now)}"
            self._end(job, LiveJobState.QUEUED, reason)
        return bool(gone)

    def _host_is_free(self) -> None:
        """Request a pass; it may try again the jobs for which the leases of the free hosts were too short."""
        self.leases.too_short.clear()
        self._request_pass()

    # ---------------------------------------------------------------------------------- time
    def tick(self, clock: float) -> None:
        """Run the passes, repetitions and timeouts that are due."""
        self._at(clock)
        if self.now >= self._next_check:
            with self._input(clock, "look"):
                self._check_timeouts()
        while self._wakes and self._wakes[0] <= self.now:
            heapq.heappop(self._wakes)
            self._request_pass()
        if isinstance(self.policy, GuardedPolicy) and self.policy.has_answered:
            self._request_pass()
        self._after_event()
        if self._due() <= self.now:
            with self._input(clock, "pass"):
                self._pass()

    def _pass(self) -> None:
        """Run the policy once on a ledger that is derived from the state."""
        self._dirty, self._passed = None, self.now
        self.passes += 1
        self._effects += 1
        self._tell_what_is_seen()
        ledger = self._derived()
        ledger.note_changes(self._last_pass)
        before, self._last_pass = self._last_pass, ledger
        driver = Driver(self.policy, ledger, lambda: self.now, self)
        try:
            driver.run_pass()
        except PolicyFailedError as error:  # none of its decisions is carried out
            self.policy_failed(error.failure)
            driver = Driver(FALLBACK, ledger, lambda: self.now, self)
            driver.run_pass()
        if driver.seen:
            self.waits = ledger.waits
        else:  # a guarded policy has yet to decide about these events
            self._last_pass = before
        self._record_promises()

    def _record_promises(self) -> None:
        """Record new or changed promises of hosts to jobs."""
        known, jobs = self.state.promises, self.state.jobs
        new = [
            (job, time)
            for job, time in self._promised.items()
            if known.get(job) != time and jobs[job].waits
        ]
        self._promised = {}
        dirty = self._dirty
        for first in range(0, len(new), PROMISES_PER_RECORD):
            part = new[first : first + PROMISES_PER_RECORD]
            self._record("promise", promises={str(job): time for job, time in part})
        self._dirty = dirty  # the policy's own promises need no further pass

    @property
    def ledger(self) -> ClusterLedger:
        """The ledger of a pass at this moment, as a copy."""
        return self._derived()

    @property
    def free_hosts(self) -> int:
        """Number of hosts on which a job may start now."""
        return sum(self._all_free([host]) for host in self.state.hosts)

    def _derived(self) -> ClusterLedger:
        """Return a new ledger of the state."""
        ends = {job: pace.end for job, pace in self.paces.items() if pace.end is not None}
        resting = [number for number in self._refused if self.rests(number)]
        away = self.leases.ending.union(self.lost)
        reported = Reported(self.now, away, ends, resting, self._messages, self._node_loads())
        choose = None if self._chooser is None else self._chosen
        return ledger_of(self.state, reported, self._active, self.eligible, self.cpus, choose)

    @property
    def eligible(self) -> dict[int, Job]:
        """The waiting jobs that a policy may start, in the order of their numbers."""
        jobs = self.state.jobs
        for_all = self._served is not None or self._most_hosts is not None or bool(self.leases)
        asked = self._waiting if for_all else self._conditional
        hidden = {number for number in asked if self.is_ineligible(jobs[number])}
        if not for_all:  # each condition is met once and remains so
            self._conditional &= hidden
        if not hidden:
            return dict(self._waiting)
        return {number: job for number, job in self._waiting.items() if number not in hidden}

    def _tell_what_is_seen(self) -> None:
        """Log the loads and messages that the policy reads, unless the log has them."""
        if "loads" in self.policy.looks_at:
            self._tell_loads(self.state.hosts)
        if self._shows_messages:
            for number, sent in self._messages.items():
                self._inputs.tell(self.now, "messages", number, sent)

    @property
    def _shows_messages(self) -> bool:
        """Whether the policy may read messages; a user's own policy may read anything."""
        return "loads" in self.policy.looks_at or isinstance(self.policy, GuardedPolicy)

    def _tell_loads(self, hosts: Iterable[str]) -> None:
        for host in hosts:
            if host in self.loads:
                self._inputs.tell(self.now, "load", host, self.loads[host])

    @property
    def recorded(self) -> SchedulerState:
        """The state that answers may show: while recording fails, the state on the disk.

        Raises
        ------
        LaunchError
            The state on the disk cannot be read. Transient.
        """
        if not self.trouble:
            return self.state
        if self._on_disk is None:
            self._on_disk = self.log.read()
        return self._on_disk

    @property
    def pass_is_due(self) -> bool:
        """Whether an event has happened that no pass of the policy has seen."""
        return self._dirty is not None

    def next_time(self) -> float:
        """Return the seconds after which `tick` has to be called at the latest."""
        wake = self._wakes[0] if self._wakes else inf
        return max(0.0, min(self._due(), wake, self._next_check) - self.now)

    @property
    def _next_check(self) -> float:
        return instant(self._checked + self.timeouts.check_interval)

    def _due(self) -> float:
        """Return the time of the next pass, if no further event happens."""
        if self._dirty is None or self.trouble:
            return inf
        settle = self.timeouts.settle
        return max(
            instant(self._dirty + self.timeouts.batch_window),
            instant(self._passed + self.timeouts.min_pass_interval),
            self._recovered_at if self._unconfirmed else -inf,
            max((instant(self._since[job] + settle) for job in self._changing), default=-inf),
        )

    def turn(self) -> list[Order]:
        """Write all decisions to the disk, and return the orders that may be carried out now.

        No decision may leave the scheduler, for example in an answer, before this returns without `trouble`.
        """
        if self._records or len(self._inputs) > MAX_INPUTS or not self.log.whole:
            inputs = self._inputs.take()
            if self.trouble and self.now < self._retry:
                self._drop()
                return []
            try:
                self.log.commit(with_inputs(self._records, inputs), self.state)
                if self._moved_to_history():
                    self.log.commit(self._records[-1:], self.state)
            except JournalError as error:
                self.trouble, self._retry = str(error), self.now + self.timeouts.check_interval
                self._drop()
                return []
        self.trouble, self._on_disk = "", None
        self._records = []
        return self._sender.take()

    def _drop(self) -> None:
        """Drop unrecorded changes and orders: the whole state is written later, and orders are sent again."""
        self._records = []
        self._sender.take()

    def _moved_to_history(self) -> bool:
        """Move the jobs that ended first to the history, if there are enough of them; return whether it did."""
        limit = self.limits.ended
        more = len(self._ended) - limit
        if more <= min(limit, MOVED_AT_ONCE) or self.now < self._archive_at:
            return False
        oldest = sorted(islice(self._ended, more))
        requests = self.state.requests_of({*oldest})
        jobs = [self.state.jobs[number] for number in oldest]
        try:
            self.log.archive(jobs, self.name, self.state.wall, requests)
        except JournalError as error:
            self._archive_at = self.now + ARCHIVE_SECONDS
            if str(error) != self._archive_failure:
                self._archive_failure = str(error)
                self._alarm(
                    f"{error}: ended jobs stay in the journal; tried again every {ARCHIVE_SECONDS:g} s: "
                    "free space on its disk, or move a damaged file aside"
                )
            return False
        self._archive_failure = ""
        for _ in oldest:
            self._ended.popleft()
        self.moves += 1
        self._record("forget", forget=oldest)
        return True

    def _at(self, clock: float) -> None:
        self.now = max(self.now, instant(self._offset + clock))

    @contextmanager
    def _input(self, clock: float, told: str | Report, *words: Any) -> Iterator[None]:
        """Take in an input; log it if it has an effect."""
        self._at(clock)
        before = self.changes, self._effects  # `_effects` counts the effects that no record shows
        try:
            yield
            self._after_event()
        finally:
            if before != (self.changes, self._effects):
                about = [told, *words] if isinstance(told, str) else report_input(told)
                self._inputs.note(self.now, *about)

    def _request_pass(self) -> None:
        """Run a pass soon."""
        if self._dirty is None:
            self._dirty = self.now

    def _after_event(self) -> None:
        """Release or cancel the jobs that come after jobs which have ended."""
        self._check_followers()

    def _check_timeouts(self) -> None:
        """Send unanswered orders again, and give up orders after their timeout."""
        self._checked, wait = self.now, self.timeouts
        self._end_backoffs()
        for number in list(self._active):
            job = self.state.jobs[number]
            since = self.now - self._since[number]
            if job.state is LiveJobState.RESIZING and since > wait.resize:
                job = self._change(job.unsettle(), "unsettled")
            elif (given_up := self._start_given_up(job, since)) is not None:
                self._end(job, *given_up)
                continue
            elif (
                job.leaving
                and since > wait.release_timeout
                and (job.over or job.hosts)
                and self._quarantine(job)
            ):
                continue
            resting = job.state is LiveJobState.RUNNING and not job.leaving
            interval = wait.poll_interval if resting else wait.resend_interval
            if self._sender.is_due(job, self.now, interval):
                self._sender.send(job, self.now, ask=number in self._unconfirmed)
        self._ask_models()
        self._check_leases()
        for host, why in self.state.quarantined.items():
            user = self._user_of(why.job)
            self._sender.ask_of_quarantine(host, why, user, self.now, wait.resend_interval)

    def _end_backoffs(self) -> None:
        """Allow resize orders again to jobs with a pause that is over."""
        for number, (refused, until) in self._refused.items():
            if 0 < until <= self.now:
                self._refused[number] = refused, 0.0
                self._effects += 1
                self._request_pass()

    def _start_given_up(self, job: LiveJob, since: float) -> tuple[LiveJobState, str] | None:
        """Return the next state of a job and the reason, if its start is given up, else None."""
        wait = self.timeouts.start
        if job.state is not LiveJobState.STARTING or not self.is_served(job.submission.user):
            return None
        if job.number not in self._unconfirmed and (lost := self._lacks_cpus(job)):
            return LiveJobState.QUEUED, f"{lost} is lost"
        if since > wait:
            return LiveJobState.FAILED, f"it did not run within {wait:g} s"
        return None

    def _quarantine(self, job: LiveJob) -> bool:
        """Quarantine the hosts that have not reported that a job has left them, and take them from the job.

        Return whether there was such a host. A host that another job has in quarantine stays with this job.
        """
        found: dict[str, Any] = {}
        for host, epoch in job.leaving.items():
            if host in self.state.quarantined:
                continue  # for another job that shared it: one quarantine at a time
            reason = f"it has not confirmed that {self.name}.{job.number} has left it"
            found[host] = quarantine_document(
                Quarantine(job.number, job.attempt, job.folder, epoch, reason)
            )
            self._alarm(f"{host} is quarantined: {reason}")
        if not found:
            return False
        for host in found:
            job = job.leave(host)
        self._change(job, "quarantine", quarantined=found)
        return True

    # ------------------------------------------------------------------------------- records
    def _record(self, do: str, **values: Any) -> None:
        """Change the state by a record."""
        record = {"do": do, "at": self.now, **values}
        self._request_pass()
        self.state.apply(record)
        self._records.append(record)
        self.changes += 1
        if "job" in values:
            self.touched.add(int(values["job"]))

    def _change(self, job: LiveJob, do: str, **values: Any) -> LiveJob:
        """Record the new state of a job; return the job."""
        before = self.state.jobs.get(job.number)
        if before is not None:
            job = job.counted(before, self.now)
        self._record(do, job=job.number, **{"is": job.document()}, **values)
        job = self.state.jobs[job.number]
        if job.is_over or job.waits:
            self._forget_attempt(job.number)
            if job.is_over:
                self._unestimated.pop(job.number, None)
                self._ended.append(job.number)
                self._newly_ended.append(job.number)
        else:
            self._since[job.number] = self.now
        self._sort_in(job)
        return job

    def _forget_attempt(self, number: int) -> None:
        """Forget the reports of an attempt that is over; its hosts are free."""
        for known in (self._since, self.progress, self.paces, self._refused):
            known.pop(number, None)
        self._sender.forget(number)
        self._inputs.forget("speeds", number)
        self._inputs.forget("messages", number)
        self._staying.discard(number)
        self._unconfirmed.discard(number)
        if number in self._active:
            self._host_is_free()
        self.leases.too_short.discard(number)

    def _sort_in(self, job: LiveJob) -> None:
        """Put a job among the active or the waiting jobs, by its state."""
        number = job.number
        if job.waits:
            self._active.discard(number)
            self._changing.discard(number)
            self._sort_in_waiting(job)
            return
        self._waiting.pop(number, None)
        self._conditional.discard(number)
        moves = job.state is LiveJobState.RUNNING and bool(job.leaving)
        _keep(self._active, number, not job.is_over)
        _keep(self._changing, number, job.state is LiveJobState.RESIZING or moves)
        if job.unestimated:
            self._unestimated.setdefault(number, -inf)

    def _sort_in_waiting(self, job: LiveJob) -> None:
        """Derive the policy's view of a waiting job, once for each record."""
        number = job.number
        if self._asks_model(job):
            self._unestimated.setdefault(number, -inf)
        if self.awaits_model(job):
            self.wake_at(job.submitted + self.timeouts.model)
        conditional = number in self._unestimated or bool(self.comes_after(job))
        _keep(self._conditional, number, conditional)
        if job.held:
            self._waiting.pop(number, None)
            return
        last = next(reversed(self._waiting), 0)
        self._waiting[number] = job.as_job(self.cpus)
        if number < last:  # queued again: in its old place
            self._waiting = dict(sorted(self._waiting.items()))

    def _asks_model(self, job: LiveJob) -> bool:
        """Whether a job's model is asked for its run time or its best hosts."""
        return job.unestimated or (
            job.attempt == 0
            and job.estimate is None
            and self._chooser is not None
            and self._chooser.asks(job, self.state.hosts)
        )

    def _alarm(self, text: str) -> None:
        self.alarms.append((self.now, text))
        self.alarmed += 1

    def note_failure(self, step: str, error: Exception) -> None:
        """Raise an alarm for each new failure of a step of the deciding thread."""
        text = f"{step} failed: {failure_of(error).message}"
        if text not in self._failures and len(self._failures) < SHOWN_ALARMS:
            self._failures.add(text)
            self._alarm(text)

    def alarms_since(self, count: int) -> list[tuple[float, str]]:
        """Return the alarms after the first `count`, as far as they are kept."""
        return list(self.alarms)[max(0, len(self.alarms) - self.alarmed + count) :]

    # -------------------------------------------------------------------------------- orders
    def _send(self, job: LiveJob) -> None:
        """Send the order that the state of a job requires."""
        self._sender.send(job, self.now)

    def _user_of(self, number: int) -> str:
        """Return the user of a job; empty: the job is in the history."""
        job = self.state.jobs.get(number)
        return "" if job is None else job.submission.user

    def _end(self, job: LiveJob, outcome: LiveJobState, reason: str) -> None:
        """End an attempt that may still run."""
        self._send(self._change(job.end(outcome, reason, self.now, False), "ending"))

    # ---------------------------------------------------------------- requests of the driver
    def start_job(self, running: RunningJob) -> None:
        """Order the next attempt of a job, unless a host is not free or its lease is too short."""
        job = self.state.jobs[running.job.id]
        if not job.waits:  # queued again in this pass: its last attempt has to end first
            return
        hosts = self._names(running.node_ids)
        mates = [self.state.jobs[number] for number in running.mates]
        shared = {host for mate in mates for host in mate.hosts}
        if not self._all_free(host for host in hosts if host not in shared):
            return
        if job.submission.kind not in MOVABLE and not all(
            self.leases.lasts(host, job, self.now) for host in hosts
        ):
            self.leases.too_short.add(job.number)
            self._request_pass()  # the hosts are free for the jobs behind it
            return
        for mate in mates:
            since = self._since[mate.number]
            self._change(replace(mate, delay=mate.delay + running.job.requested), "share")
            self._since[mate.number] = since  # keep the timeout of an open order
        token, sharing = self._token(), (running.mates, running.share, running.delay)
        placed_by = ""
        if self._chooser is not None:
            placed_by = self._chooser.take_reason(job, self.timeouts.model)
        started = job.start(hosts, token, self.now, *sharing, placed_by)
        self._send(self._change(started, "start"))

    def resize_job(self, running: RunningJob, nodes_before: int) -> None:  # noqa: ARG002 - the hosts suffice
        """Order a running job that can be moved to other hosts; a decision that changes none is ignored."""
        job = self.state.jobs[running.job.id]
        hosts = self._names(running.node_ids)
        stay = [host for host in job.hosts if host in hosts]
        come = [host for host in hosts if host not in job.hosts]
        can_move = (
            job.state is LiveJobState.RUNNING and job.settled and job.submission.kind in MOVABLE
        )
        change = self._last_pass and self._last_pass.resizing.get(job.number)
        if can_move and change and {*hosts} != {*job.hosts} and self._all_free(come):
            self._send(self._change(job.resize((*stay, *come), change.reason), "resize"))

    def migrate_job(self, running: RunningJob) -> None:
        """Order a job to other hosts, as many as it has."""
        self.resize_job(running, running.nodes)

    def update_share(self, running: RunningJob) -> None:
        """Measure a job's pace anew: its CPUs change when a guest starts or ends on its hosts."""
        self.paces.pop(running.job.id, None)

    def requeue_job(self, job: int) -> None:
        """End a job's attempt; the job waits again when it has left its hosts."""
        if self.state.jobs[job].state is not LiveJobState.ENDING:
            self._end(self.state.jobs[job], LiveJobState.QUEUED, "its policy queued it again")

    def promise_start(self, job: int, time: float) -> None:
        """Record the time for which the policy promised a job hosts, and request a pass at that time."""
        self._promised[job] = time
        self.wake_at(time)

    def hold_job(self, job: int, reason: str) -> None:
        """Record that a policy took a job out of the queue."""
        self._change(replace(self.state.jobs[job], held=reason or "held"), "hold")

    def wake_at(self, time: float) -> None:
        """Request a pass at a time."""
        if time < inf:
            heapq.heappush(self._wakes, instant(time))

    def reject_job(self, job: int, reason: str) -> None:
        """Record that a waiting job will never run."""
        if (rejected := self.state.jobs[job]).waits:
            self._change(rejected.end(LiveJobState.FAILED, reason, self.now, True), "reject")

    def policy_failed(self, failure: PolicyFailure) -> None:
        """Raise an alarm for the first failure of each kind: first-come-first-served decides instead."""
        if failure.kind not in self._failed_kinds:
            self._failed_kinds |= {failure.kind}
            self._alarm(f"{failure}; first-come-first-served decided instead")

    def refuse(self, refused: Refused) -> None:
        """Raise an alarm with a decision of the policy that could not be carried out."""
        self._alarm(f"{name_of(self.policy)}: {refused}")

    # -------------------------------------------------------------------------------- ledger
    def _all_free(self, hosts: Iterable[str]) -> bool:
        """Whether a job may start on all of these hosts."""
        away = self.leases.ending.union(self.lost)
        return all(self.state.is_free(host) and host not in away for host in hosts)

    def _chosen(
        self, job: int, nodes: Sequence[int], count: int, beside: frozenset[int]
    ) -> frozenset[int]:
        """Return the nodes that a job gets or keeps; it always keeps the host that it cannot leave.

        If the job has measured its speed on all of `nodes`, these speeds decide.
        """
        assert self._chooser is not None  # noqa: S101 - for the type checker: it is asked only then
        names = self._names(nodes)
        self._tell_loads((*names, *self._names(beside)))
        report = self.progress.get(job)
        speeds, anchor = ({}, "") if report is None else (report.speeds, report.anchor)
        self._inputs.tell(self.now, "speeds", job, speeds, anchor)
        one = self.state.jobs[job]
        lasting = [host for host in names if self.leases.lasts(host, one, self.now)]
        chosen = self._chooser.choose(
            one, names, count, self._names(beside), lasting, speeds, anchor
        )
        return frozenset(map(self.state.hosts.index, chosen))

    def _names(self, nodes: Iterable[int]) -> tuple[str, ...]:
        return tuple(self.state.hosts[node] for node in sorted(nodes))


def _keep(numbers: set[int], number: int, there: bool) -> None:
    """Add a number to a set, or remove it."""
    if there:
        numbers.add(number)
    else:
        numbers.discard(number)


def _alike(one: NodeLoad, other: NodeLoad) -> bool:
    """Return whether two loads of a host differ too little to affect a decision."""
    if [name for name, _ in one.parts] != [name for name, _ in other.parts]:
        return False
    rest = other._replace(cpus=one.cpus, others=one.others, parts=one.parts, error=one.error)
    if one != rest:  # another entry in the host list
        return False
    parts = zip(one.parts, other.parts, strict=True)
    apart = [abs(one.others - other.others), abs(one.error - other.error)]
    apart += [*(abs(a[1] - b[1]) for a, b in parts)]
    return max(apart) < NOTED_LOAD and one.owner_back == other.owner_back


DEFAULT_OUTCOME = LiveJobState.LOST
"""Placeholder for the outcome of an ending attempt, which its record already has."""
