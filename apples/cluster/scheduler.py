"""The live scheduler as a machine: events go in, records and orders come out; no clock, socket or process.

It runs the same `Driver`, ledger and policies as the simulator. What is different is what makes a thing true: the
state changes by records alone, records are on the disk before an order or an answer leaves (`turn`), a resize is
made when the job has said so, and a host is free when whoever runs jobs has said that nothing of the job is there.
After a restart every job is asked where it is before anything new is decided.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import islice
from math import inf
from types import MappingProxyType
from typing import Any

from apples.cluster.host_preference import HostPreference
from apples.cluster.inputs import BEGUN, MOST_INPUTS, InputLog, report_input, with_inputs, written
from apples.cluster.live_job import (
    CHANGING,
    MOST_RESTARTS,
    OVER,
    JobSubmission,
    LiveJob,
    LiveJobState,
    submission_document,
)
from apples.cluster.log import SchedulerLog
from apples.cluster.orders import (
    LAST,
    AskOrder,
    AttemptPhase,
    EndOrder,
    EstimateOrder,
    HostAnswer,
    HostLeft,
    HostLoad,
    HostTerm,
    JobReport,
    Order,
    Report,
    ResizeOrder,
    RunTimeEstimate,
    SelectedHosts,
    SelectOrder,
    ShepherdAnswer,
    StartOrder,
)
from apples.cluster.progress import JobPace
from apples.cluster.selections import HostSelections, HostWish
from apples.cluster.state import (
    LOST_SUBMISSION,
    Quarantine,
    Record,
    SchedulerState,
    digest_of,
    quarantine_document,
    unknown_job,
)
from apples.errors import LaunchError, UsageError
from apples.io.journal import JournalError
from apples.scheduling.driver import Driver, SchedulerBackend, name_of
from apples.scheduling.guard import PolicyFailure, guard_of
from apples.scheduling.instants import instant
from apples.scheduling.jobs import Job, JobKind
from apples.scheduling.ledger import ClusterLedger, Refused
from apples.scheduling.policy import NodeLoad, RunningJob, SchedulingPolicy
from apples.scheduling.proposals import Change

RESIZED = (Change.GROW, Change.SHRINK, Change.MIGRATE)
"""What counts as made only when the job has said so."""
SHOWN_ALARMS = 100
MOST_REFUSALS, MOST_DOUBLED = 3, 5
"""Changes in a row that a job may refuse until it rests, and how often its rest is doubled."""
NOTED_TERM = 2.0
"""By how many seconds the end of a term has changed that is looked at."""
MOVABLE = (JobKind.MALLEABLE, JobKind.EVOLVING)
"""Kinds of jobs that can leave a host while they run."""
SHARES = 0.05
"""To so much the shares of hosts are told: a question about hosts is not another one for less."""
NOTED_LOAD = 0.05
"""By how much a load has changed that is looked at."""
HOST_FAILED = LaunchError.exit_code
"""The exit code of a run whose hosts failed it, not its program."""


class CrowdedError(LaunchError):
    """There are too many of something. Transient."""

    code = "too-many-requests"


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Limits of a scheduler's queue, in jobs.

    Attributes
    ----------
    waiting
        Waiting jobs of all users.
    waiting_of_one
        Waiting jobs of one user, so that one user cannot keep out the others.
    reserved
        Of `waiting`, the places that only the operator has.
    ended
        Jobs that are over and stay in the state; older ones are in the history only.
    """

    waiting: int = 10_000
    waiting_of_one: int = 1000
    reserved: int = 1000
    ended: int = 1000


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a live scheduler waits for what, in seconds.

    Attributes
    ----------
    gather
        From an event to the pass that it makes: what comes meanwhile is in the same pass.
    apart
        At least, between two passes.
    settle, answer
        As `Driver.settle_seconds` and `ClusterLedger.answer_seconds`.
    heard
        After a start of the scheduler, until jobs that have not said where they are do not hold up the others.
    again
        Until an order that was not answered is given again.
    ask
        Between two questions to a job that runs.
    start
        For an attempt to run, or to say why not.
    leave
        For hosts to be left by what is over; then they are quarantined.
    look
        Between two looks at all that.
    estimate
        Until it is asked again how long a job is going to run.
    select
        For an application's model to say which hosts a job would rather have.
    rest
        For a job that has refused three changes in a row, until it is asked again; twice as long each time after.
    vacate
        Before the end of a host's term: it gets no job then, and jobs that can be moved leave it.
    """

    gather: float = 0.01
    apart: float = 0.05
    settle: float = 10.0
    answer: float = 30.0
    heard: float = 10.0
    again: float = 5.0
    ask: float = 30.0
    start: float = 400.0
    leave: float = 10.0
    look: float = 0.5
    estimate: float = 60.0
    select: float = 3.0
    rest: float = 10.0
    vacate: float = 60.0


class LiveScheduler(SchedulerBackend):
    """Schedules jobs on hosts.

    Parameters
    ----------
    log
        Where it is recorded; what is there already is taken up.
    policy
        Asked in every pass.
    hosts
        The host list, in its order.
    clock, wall
        What a clock that never goes back says now, and the world's; seconds.
    token
        Returns the name of a new folder; never the same twice.
    lost
        Hosts that get no job until it is said that they answer, and why.
    prefer
        Which hosts a job gets and keeps; None: the first of the list.
    nodes
        What a policy is shown of hosts that are monitored, by name: all but their loads.
    shared
        Whether each user's jobs are run by a process of that user, and wait until it is there.
    most_hosts
        As many hosts as there may ever be, where others join (`HostTerm`): a job that needs more than there are
        waits for them. None: there are those of the list.
    cpus
        CPUs of each host, which the policy lets two jobs share; 0: a host has one job.
    limits
        Limits of the queue.

    Attributes
    ----------
    name
        The first part of its jobs' ids.
    problems
        What was wrong with the log, one line each.
    trouble
        Why nothing can be recorded now, empty: it can.
    alarms
        The last that an operator ought to know, with its time.
    progress
        Job -> the last report of it while it ran.
    paces
        Job -> how fast it is where it is, and when it will end; not recorded, for jobs say it again.
    selections
        What is asked of the models of jobs about their hosts; not recorded: it is asked again.
    lost
        Hosts that cannot be asked what is there, and why; they get no job. It is not recorded: whoever runs the
        jobs says it again.
    nodes
        What is known of hosts that are monitored, by name; others are hosts of the same speed.
    loads
        Host -> what others want of it, as was said last; not recorded either.
    terms
        Host -> when it can be used no longer, and what ends then; -inf: it was said to be over. Not recorded: it
        is said again.
    passes
        How often the policy was asked.
    changes
        How many records it has made since it was started.
    touched, moved
        Jobs that records have changed, and jobs that said how far they are, since whoever looks emptied it.
    alarmed
        How many alarms there were since it was started.

    Raises
    ------
    JournalError
        Its start cannot be recorded.
    """

    def __init__(
        self,
        log: SchedulerLog,
        policy: SchedulingPolicy,
        hosts: Sequence[str],
        clock: float,
        wall: float,
        token: Callable[[], str],
        patience: Patience = Patience(),
        lost: Mapping[str, str] | None = None,
        prefer: HostPreference | None = None,
        nodes: Mapping[str, NodeLoad] = MappingProxyType({}),
        shared: bool = False,
        name: str = "local",
        most_hosts: int | None = None,
        cpus: int = 0,
        limits: QueueLimits = QueueLimits(),
    ) -> None:
        self.log, self.limits = log, limits
        self.cpus = cpus
        self.name = name
        self.policy = policy
        self.patience = patience
        self.state, self.problems = log.recover()
        self.now = max(
            self.state.time, instant(wall - self.state.wall) if self.state.incarnation else 0.0
        )
        self.trouble = ""
        self._on_disk: SchedulerState | None = None
        self.alarms: deque[tuple[float, str]] = deque(maxlen=SHOWN_ALARMS)
        self.progress: dict[int, JobReport] = {}
        self.paces: dict[int, JobPace] = {}
        self.lost = dict(lost or {})
        self.prefer = prefer
        self._most_hosts = most_hosts
        self.nodes = nodes
        self.loads: dict[str, NodeLoad] = {}
        self.terms: dict[str, tuple[float, str]] = {}
        self._ending: set[str] = set()
        self._deferred: set[int] = set()  # what is free to them goes before they end
        self._staying: set[int] = set()  # what cannot leave hosts that end was said of them
        self._served: set[str] | None = set() if shared else None
        self.passes = self.changes = self.alarmed = self._effects = 0
        self._inputs = InputLog()
        self.touched: set[int] = set()
        self.moved: set[int] = set()
        self._offset = self.now - clock
        self._token = token
        self._records: list[Record] = []
        self._ended: deque[int] = deque()
        self._just_over: list[int] = []
        self._followers: dict[int, set[int]] = {}
        self._active: set[int] = set()
        self._unheard: set[int] = set()
        self._unestimated: dict[int, float] = {}  # when each was asked about last
        self._orders: list[Order] = []
        self._wakes: list[float] = []
        self._dirty: float | None = self.now
        self._rebuild = self._tangled = (
            False  # tangled: jobs share hosts otherwise than the ledger can show
        )
        self._looked, self._retry, self._passed = self.now, self.now, -inf
        self._since: dict[int, float] = {}
        self._sent: dict[int, float] = {}
        self._sent_quarantined: dict[str, float] = {}
        self._verdicts: dict[int, tuple[int, bool]] = {}
        self._proposed: dict[int, int] = {}
        self._refused: dict[int, tuple[int, float]] = {}
        self._held_back: set[int] = set()
        self.selections = HostSelections(patience.select)
        self._open(hosts, wall)
        self.rebuild_ledger()

    def _open(self, hosts: Sequence[str], wall: float) -> None:
        """Record this start, and ask every job that is somewhere where it is."""
        state = self.state
        known, held = set(hosts), [*state.holders, *state.quarantined]
        gone = [host for host in dict.fromkeys(held) if host not in known]
        self.lost |= dict.fromkeys(gone, "it is not among the hosts any more")
        self._record(
            "open", incarnation=state.incarnation + 1, wall=wall - self.now, hosts=[*hosts, *gone],
            drained=sorted(state.drained & {*hosts, *gone}),
        )  # fmt: skip
        for job in list(state.jobs.values()):
            if job.waits and job.submission.name == LOST_SUBMISSION:
                self._change(job.end(LiveJobState.FAILED, LOST_SUBMISSION, self.now, True), "lost")
            elif job.waits:
                self._follow(job)
        for number in [*self._followers]:
            if number not in state.jobs or state.jobs[number].is_over:
                self._just_over.append(number)
        self._see_to_followers()
        self._active = {
            job.number for job in state.jobs.values() if not (job.is_over or job.waits)
        }
        self._unheard = set(self._active)
        self._unestimated = {job.number: -inf for job in state.jobs.values() if job.unestimated}
        self._heard_until = instant(self.now + self.patience.heard)
        for number in self._active:
            self._since[number] = self.now
            self._send(state.jobs[number], ask=True)
        self.log.rewrite(state, {
            "do": BEGUN, "name": self.name, "lost": sorted(self.lost), "shared": self._served is not None,
            "most_hosts": self._most_hosts, "cpus": self.cpus, "patience": written(asdict(self.patience)),
        })  # fmt: skip
        self._records = []
        self._ended = deque(job.number for job in state.jobs.values() if job.is_over)

    # ------------------------------------------------------------------- what clients ask for
    def submit(
        self, clock: float, submission: JobSubmission, request: str = "", operator: bool = True
    ) -> int:
        """Put a job into the queue; return its number, the same for the same request.

        Raises
        ------
        UsageError
            It can never run here; or the id of the request was used for another. Permanent.
        LaunchError
            The queue is full, or nothing can be recorded. Transient.
        """
        with self._input(clock, "submit", self.state.last + 1):
            return self._submit(submission, request, operator)

    def _submit(self, submission: JobSubmission, request: str, operator: bool) -> int:
        digest = digest_of(submission) if request else ""
        known = self.state.answered(request, digest) if request else None
        if known is not None:
            return known
        self._check_recording()
        self._check_room(submission.user, operator)
        most = len(self.state.hosts) if self._most_hosts is None else self._most_hosts
        if submission.maximum > most:
            at_most = "" if self._most_hosts is None else "never more than "
            raise UsageError(
                f"it wants up to {submission.maximum} hosts: there are {at_most}{most}",
                code="too-many-hosts", value=submission.maximum, bound=most,
            )  # fmt: skip
        if self.cpus and submission.kind is JobKind.MALLEABLE and "units" in submission.work:
            raise UsageError(
                f"{name_of(self.policy)} has malleable jobs share hosts, and a master with its workers cannot: "
                "--kind evolving or rigid",
                code="policy-unsuitable", policy=name_of(self.policy), field="kind",
            )  # fmt: skip
        self._check_after(submission.after)
        job = LiveJob(self.state.last + 1, submission, self.now)
        answer = {"answer": [request, digest, job.number, self.now]} if request else {}
        document = submission_document(submission)
        self._change(job, "submit", submission=document, submitted=self.now, **answer)
        self._follow(job)
        if job.unestimated:
            self._unestimated[job.number] = -inf
            self._ask_estimates()
        self._defer(job)
        if not self.is_kept_back(job):
            self.driver.submit(job.as_job(self.cpus))
        return job.number

    def _check_recording(self) -> None:
        """Reject an input while the log cannot be written: it would be lost if the scheduler ended."""
        if self.trouble:
            raise not_recorded(self.trouble)

    def _check_room(self, user: str, operator: bool) -> None:
        """Refuse a job where too many wait; the operator has places that no other takes."""
        most = self.limits.waiting - (0 if operator else self.limits.reserved)
        if self.state.waiting >= most:
            raise CrowdedError(f"{most} jobs wait already", code="queue-full", bound=most)
        most = self.limits.waiting_of_one
        if not operator and self.state.waiting_of[user] >= most:
            raise CrowdedError(
                f"{most} jobs of {user} wait already", code="queue-full", bound=most, user=user,
            )  # fmt: skip

    def comes_after(self, job: LiveJob) -> list[int]:
        """Return the jobs that have to be finished before a job waits for hosts, and are not over."""
        jobs = self.state.jobs
        return [one for one in job.submission.after if one in jobs and not jobs[one].is_over]

    def is_served(self, user: str) -> bool:
        """Whether somebody is there who runs a user's jobs."""
        return self._served is None or user in self._served

    def is_kept_back(self, job: LiveJob) -> bool:
        """Whether a job that waits does not wait for hosts yet: no policy sees it."""
        kept = bool(self.comes_after(job)) or not self.is_served(job.submission.user)
        return kept or job.number in self._deferred or bool(self.lacks_hosts(job))

    def lacks_hosts(self, job: LiveJob) -> str:
        """Return why a job waits that needs more hosts than there are, where others join; empty: it does not."""
        if self._most_hosts is None:
            return ""
        one, there = job.submission, len(self.state.hosts)
        needs = one.minimum if self.policy.uses_malleable else job.as_job().processors
        needs = one.maximum if one.kind is JobKind.RIGID else needs
        if needs <= there:
            return ""
        many, are = "s" * (needs > 1), "is" if there == 1 else "are"
        return f"needs {needs} host{many}, and there {are} {there or 'none'}: it waits for more to join"

    def outstays(self, job: LiveJob) -> str:
        """Return why a job waits for which the hosts do not stay long enough; empty: that is not why."""
        if job.number not in self._deferred or not self.terms:
            return ""
        needs, lasting = self._needs_lasting(job)
        free = "too few of the free hosts" if lasting >= needs else f"{lasting} of {needs} hosts"
        end, source = min(self.terms.values())
        return (
            f"{free} stay for the {job.requested:g} s that it is estimated to run, and it cannot be moved: "
            f"{source} ends in {max(0.0, end - self.now):.0f} s"
        )

    def _needs_lasting(self, job: LiveJob) -> tuple[int, int]:
        """Return the fewest hosts that a job can be started on, and how many would stay until its end."""
        one = job.submission
        needs = one.maximum if one.kind is JobKind.RIGID else one.minimum
        return needs, sum(self._lasts(host, job) for host in self.state.hosts)

    def _defer(self, job: LiveJob) -> None:
        """Have no policy look at a job that no hosts stay long enough for."""
        if self.terms and job.submission.kind not in MOVABLE:
            needs, lasting = self._needs_lasting(job)
            if lasting < needs:
                self._deferred.add(job.number)

    def said_of_term(self, host: str) -> str:
        """Return what ends and takes a host along that gets no job any more for that; empty: it gets jobs."""
        if host not in self._ending:
            return ""
        end, source = self.terms[host]
        return (
            f"{source} ends in {end - self.now:.0f} s" if end > self.now else f"{source} is over"
        )

    def _lasts(self, host: str, job: LiveJob) -> bool:
        """Whether a host can be used until a job would end that is started now."""
        return self.now + job.requested <= self.terms.get(host, (inf, ""))[0]

    def _check_after(self, after: Sequence[int]) -> None:
        """Refuse a job that is to come after one that is not there, or is over and not finished."""
        old: dict[int, LiveJob] = {}
        if any(
            0 < number <= self.state.last and number not in self.state.jobs for number in after
        ):
            old = {one.number: one for one in self.log.history()}
        for number in after:
            one = self.state.jobs.get(number) or old.get(number)
            if one is None:
                raise unknown_job(f"{self.name}.{number}", "after ")
            if one.is_over and one.state is not LiveJobState.FINISHED:
                raise UsageError(
                    f"after {self.name}.{number}: it is {one.state.value}, and never finishes",
                    code="dependency-failed", job=f"{self.name}.{number}", state=one.state.value,
                )  # fmt: skip

    def _follow(self, job: LiveJob) -> None:
        for number in job.submission.after:
            self._followers.setdefault(number, set()).add(job.number)

    def _see_to_followers(self) -> None:
        while self._just_over:
            self._go_on_after(self._just_over.pop())

    def _go_on_after(self, number: int) -> None:
        """Let the jobs wait for hosts that were to come after one that is over, or cancel them where it failed."""
        over = self.state.jobs.get(number)
        for follower in sorted(self._followers.pop(number, ())):
            job = self.state.jobs.get(follower)
            if job is None or not job.waits or job.attempt:
                continue
            if over is not None and over.state is not LiveJobState.FINISHED:
                reason = f"{self.name}.{number}, after which it was to come, is {over.state.value}"
                self._change(job.end(LiveJobState.CANCELLED, reason, self.now, True), "cancel")
            elif not self.comes_after(job):
                self._rebuild = True

    def cancel(self, clock: float, number: int, reason: str = "") -> None:
        """End a job, wherever it is; one that is over stays as it is.

        Raises
        ------
        UsageError
            There is none of this number.
        """
        with self._input(clock, "cancel", number, reason):
            self._cancel(self.job(number), reason)

    def _cancel(self, job: LiveJob, reason: str) -> None:
        number = job.number
        if job.is_over or job.outcome is LiveJobState.CANCELLED:
            return
        if job.waits:
            held = self.is_kept_back(job)
            self._change(job.end(LiveJobState.CANCELLED, reason, self.now, True), "cancel")
            if number in self.ledger.running:
                self.driver.end(number)
            elif not held:
                self.driver.withdraw(number)
        elif job.state is LiveJobState.ENDING:
            self._change(replace(job, outcome=LiveJobState.CANCELLED, reason=reason), "cancel")
        else:
            self._end(job, LiveJobState.CANCELLED, reason)

    def resize(self, clock: float, number: int, hosts: Sequence[str]) -> None:
        """Order a running job to be on these hosts.

        Raises
        ------
        UsageError
            It cannot be there: it is not malleable, or its size is the policy's. Permanent.
        LaunchError
            It does not run, is being resized, or another has one of the hosts. Transient.
        """
        with self._input(clock, "resize", number, list(hosts)):
            job = self.job(number)
            self._check_resize(job, hosts)
            if set(hosts) != set(job.hosts):
                stay = [host for host in job.hosts if host in hosts]
                come = [host for host in hosts if host not in job.hosts]
                self._send(self._change(job.resize((*stay, *come)), "resize"))
                self._rebuild = True

    def _check_resize(self, job: LiveJob, hosts: Sequence[str]) -> None:
        self._check_recording()
        one, name = job.submission, f"{self.name}.{job.number}"
        for host in hosts:
            self._check_host(host)
        if one.kind not in MOVABLE:
            raise UsageError(
                f"{self.name}.{job.number} is {one.kind.value}: only a malleable or evolving one is resized",
                code="job-not-resizable", job=name, kind=one.kind.value,
            )  # fmt: skip
        if not one.minimum <= len(set(hosts)) == len(hosts) <= one.maximum:
            raise UsageError(
                f"{self.name}.{job.number} was submitted for {one.minimum} to {one.maximum} hosts, each once",
                code="value-range", job=name, field="hosts", value=len(hosts), bound=[one.minimum, one.maximum],
            )  # fmt: skip
        if self.policy.uses_malleable and len(hosts) != len(job.hosts):
            raise UsageError(
                f"{self.name}.{job.number}: how many hosts it has is decided by {name_of(self.policy)}; "
                f"with as many as it has ({len(job.hosts)}) it can be moved",
                code="policy-unsuitable", job=name, policy=name_of(self.policy), field="hosts",
                bound=len(job.hosts),
            )  # fmt: skip
        if job.state is not LiveJobState.RUNNING or not job.settled:
            raise LaunchError(
                f"{self.name}.{job.number} is {job.state.value}: it is resized when it runs and has settled",
                code="job-busy", job=name, state=job.state.value,
            )  # fmt: skip
        if not self._is_alone(job):
            raise LaunchError(
                f"{self.name}.{job.number} shares its hosts: it is moved when it has them to itself",
                code="job-busy", job=name, hosts=list(job.hosts),
            )  # fmt: skip
        for host in hosts:
            if host not in job.hosts and not self._all_free([host]):
                shown = self.lost.get(host) or f"is {self.state.host_state(host)}"
                reason = self.said_of_term(host) or shown
                raise LaunchError(
                    f"{host}: {reason}",
                    code="host-lost" if host in self.lost else "host-busy",
                    host=host, reason=reason, state=self.state.host_state(host),
                )  # fmt: skip

    def drain(self, clock: float, host: str) -> None:
        """Have a host get no other job."""
        with self._input(clock, "drain", host):
            self._check_host(host)
            if host not in self.state.drained:
                self._record("drain", drained=sorted({*self.state.drained, host}))
                self.ledger.drain(self._node(host))

    def resume(self, clock: float, host: str) -> None:
        """Have a host get jobs again."""
        with self._input(clock, "resume", host):
            self._check_host(host)
            if host in self.state.drained:
                self._record("resume", drained=sorted(self.state.drained - {host}))
                self._offer(host)

    def job(self, number: int) -> LiveJob:
        """Return a job.

        Raises
        ------
        UsageError
            There is none of this number.
        """
        return job_of(self.state, number, self.name)

    def _check_host(self, host: str) -> None:
        if host not in self.state.hosts:
            raise UsageError(
                f"unknown host '{host}': the list has {', '.join(self.state.hosts)}",
                code="host-unknown", host=host, known=list(self.state.hosts),
            )  # fmt: skip

    # ------------------------------------------------------------------ what jobs and hosts say
    def report(self, clock: float, report: Report) -> None:
        """Take in what whoever runs jobs says."""
        if isinstance(report, HostLoad):
            self._at(clock)
            self._hear_load(report)
            return
        with self._input(clock, report):
            if isinstance(report, HostLeft):
                self._hear_left(report)
            elif isinstance(report, HostAnswer):
                self._hear_answer(report)
            elif isinstance(report, ShepherdAnswer):
                self._hear_shepherd(report)
            elif isinstance(report, RunTimeEstimate):
                self._hear_estimate(report)
            elif isinstance(report, SelectedHosts):
                self._hear_selected(report)
            elif isinstance(report, HostTerm):
                self._hear_term(report)
            else:
                self._hear(report)

    def _hear(self, report: JobReport) -> None:
        job = self.state.jobs.get(report.job)
        if job is None or report.attempt > job.attempt:
            if report.phase is not AttemptPhase.ENDED:
                self._alarm(
                    f"attempt {report.attempt} of {self.name}.{report.job} is unknown; it is ended"
                )
                self._orders.append(
                    EndOrder(report.job, report.attempt, self.state.incarnation, "", report.hosts)
                )
            return
        if report.attempt < job.attempt or job.is_over or job.waits:
            return
        starting = job.state is LiveJobState.STARTING
        self._effects += starting and job.number in self._unheard  # it may be given up from now on
        self._unheard.discard(job.number)
        if job.state is LiveJobState.ENDING:
            if report.phase is AttemptPhase.ENDED and not job.over:
                self._gone(self._change(job.end(OVER_UNKNOWN, "", self.now, True), "over"))
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
        self._note_messages(job, report)
        if report.asks is not None and report.asks != job.asks:
            job = self._hear_request(job, report.asks)
        if job.state is LiveJobState.STARTING:
            job = self._change(job.run(), "running")
            if job.number in self._held_back:
                self._held_back.discard(job.number)
                self._resize(job.number)
                return
        if job.state in CHANGING and report.epoch == job.epoch:
            done = not report.refused
            number = self._proposed.pop(job.number, 0)
            if number:
                self._verdicts[job.number] = number, done
            if not done:
                self._alarm(f"{self.name}.{job.number} was not resized: {report.reason}")
            self._note_verdict(job.number, done)
            placed_by = self.selections.said.pop(job.number, "") if done else job.placed_by
            self._answer(self._change(replace(job.settle(done), placed_by=placed_by), "verdict"))
        elif (
            job.state is LiveJobState.RUNNING
            and report.epoch == job.epoch
            and report.hosts
            and set(report.hosts) < set(job.hosts)
        ):
            self._send(self._change(job.lose(report.hosts), "lose"))
            self._rebuild = True

    def _note_pace(self, job: LiveJob, report: JobReport) -> None:
        """Have a job be expected to end as its progress says."""
        at, last = report.iteration, report.iterations
        if at is None or not last or job.state is not LiveJobState.RUNNING or not job.settled:
            return
        before = self.paces.get(job.number) or JobPace(job.hosts, self.now, at, self.now)
        pace = self.paces[job.number] = before.after(job.hosts, at, last, self.now)
        if pace.end != before.end:
            self._inputs.note(self.now, "pace", job.number, pace.end)
            self._expect_again(job.number)

    def _expect_again(self, number: int) -> None:
        """Have a job be expected to end as its pace says now."""
        end = self.paces[number].end
        if end is not None:
            self._expect(number, end)
            self._mark()

    def _note_messages(self, job: LiveJob, report: JobReport) -> None:
        """Let a policy that looks at it see what the hosts that a job has send each other."""
        if not self._shows_messages or job.number not in self.ledger.running:
            return
        hosts = {*job.hosts} if report.messages else set()
        nodes = {host: node for node, host in enumerate(self.state.hosts) if host in hosts}
        self.ledger.note_messages(
            job.number,
            tuple(
                (nodes[one], nodes[other], sent)
                for one, other, sent in report.messages
                if one in nodes and other in nodes
            ),
        )

    def _expect_all(self) -> None:
        """Have each job be expected to end as was known before the ledger was made anew."""
        for number, pace in self.paces.items():
            if pace.end is not None:
                self._expect(number, pace.end)

    def _expect(self, number: int, end: float) -> None:
        if number in self.ledger.running:
            self.ledger.time = self.now
            self.ledger.expect(number, end)

    def _hear_request(self, job: LiveJob, asks: tuple[int, int]) -> LiveJob:
        """Note that a job asks for other hosts; the next pass of the policy looks at it."""
        since = self._since[job.number]
        job = self._change(replace(job, asks=asks), "request")
        self._since[job.number] = since  # whatever else it is to answer
        running = self.ledger.running.get(job.number)
        if running is not None and running.job.kind is JobKind.EVOLVING:
            self.ledger.request(job.number, job.wants or running.nodes)
        else:
            self._rebuild = True
        return job

    def _ask_estimates(self) -> None:
        """Have it said of jobs how long they are going to run, where nobody has said so."""
        for number, asked in self._unestimated.items():
            job = self.state.jobs[number]
            if self.lacks_hosts(job) or not self.is_served(job.submission.user):
                continue
            if self.now >= asked + self.patience.estimate:
                self._unestimated[number] = self.now
                one, life = job.submission, self.state.incarnation
                self._orders.append(EstimateOrder(number, life, one.maximum, one.work, one.user))

    def _hear_estimate(self, said: RunTimeEstimate) -> None:
        """Plan by what an application's model says of a job; one that says how far it is knows better."""
        if self._unestimated.pop(said.job, None) is None:
            return
        self._undefer()
        job = self.state.jobs[said.job]
        since = self._since.get(job.number)
        job = self._change(replace(job, estimate=said.seconds or 0.0), "estimate")
        if since is not None:
            self._since[job.number] = since  # whatever it is to answer
        pace = self.paces.get(job.number)
        if job.waits:
            self.ledger.estimate(job.number, job.requested)
        elif job.started is not None and (pace is None or pace.end is None):
            self._expect(job.number, job.started + job.requested + job.delay)
        self._mark()

    def _awaits_model(self, number: int, come: Iterable[str]) -> bool:
        """Whether a decision by which hosts come to a job, or stay with it, waits for what its model says."""
        held, order = self.selections.ask(
            number,
            {*come},
            self.now,
            lambda wish, question: self._select_order(number, wish, question),
        )
        if order is not None:
            self._orders.append(order)
        return held

    def _select_order(self, number: int, wish: HostWish, question: int) -> SelectOrder | None:
        """Return what asks a job's model which hosts are best for it; None: it has none, or all are alike to it.

        The messages of a job say more of its hosts than its model does.
        """
        one = self.state.jobs[number].submission
        asks = self.prefer is not None and "template" in one.work and not one.messages
        if not (asks and 0 < wish.count < len(wish.among) and self.is_served(one.user)):
            return None
        assert self.prefer is not None  # noqa: S101 - for the type checker
        shares = dict(wish.shares)
        if not wish.speeds and self.prefer.under(shares).alike(wish.among):
            return None
        return SelectOrder(
            number, self.state.incarnation, question, wish.among, wish.count, wish.beside, wish.instead,
            shares, wish.speeds, self.patience.select, one.work, one.user,
        )  # fmt: skip

    def _hear_selected(self, said: SelectedHosts) -> None:
        """Have a decision that waited for a model be carried out, or made anew where other hosts are better."""
        differs = self.selections.hear(said)
        self._effects += differs is not None
        if differs is None or said.job not in self.selections.held:
            return
        if not differs or self._reseated(said.job, said.hosts):
            self._go_on(said.job)
        else:
            self._rebuild = True

    def _reseated(self, number: int, hosts: Sequence[str]) -> bool:
        """Have a job that is about to start be on other hosts, if the ledger has these free."""
        starts = number in self.ledger.running and self.state.jobs[number].waits
        return starts and self.ledger.reseat(number, frozenset(map(self._node, hosts)))

    def _go_on(self, number: int) -> None:
        """Carry out a decision that was held."""
        self.selections.held.discard(number)
        running = self.ledger.running.get(number)
        if running is None:
            return
        if self.state.jobs[number].waits:
            self.start_job(running)
        else:
            self._resize(number)

    def _note_verdict(self, number: int, done: bool) -> None:
        """Leave a job alone for a time that refuses whatever it is told, such as to go where it cannot."""
        refused = 0 if done else self._refused.pop(number, (0, 0.0))[0] + 1
        if refused >= MOST_REFUSALS:
            again = self.patience.rest * 2 ** min(refused - MOST_REFUSALS, MOST_DOUBLED)
            self._refused[number] = refused, self.now + again
            self._rebuild = True
        elif refused:
            self._refused[number] = refused, 0.0
        else:
            self._refused.pop(number, None)

    def rests(self, number: int) -> bool:
        """Whether a job is left alone for a time, since it has refused whatever it was told."""
        return self._refused.get(number, (0, 0.0))[1] > 0

    def _hear_ended(self, job: LiveJob, report: JobReport) -> None:
        outcome = LiveJobState.FAILED
        if report.state in OVER:
            outcome = LiveJobState(report.state)
        restarts = job.restarts
        hosts_failed = outcome is LiveJobState.FAILED and report.exit_code == HOST_FAILED
        if hosts_failed and self._lacks_cpus(job):
            outcome = LiveJobState.QUEUED
        elif hosts_failed and restarts < MOST_RESTARTS:
            outcome, restarts = LiveJobState.QUEUED, restarts + 1
        ended = replace(
            job.end(outcome, report.reason, self.now, True),
            exit_code=report.exit_code, restarts=restarts,
        )  # fmt: skip
        self._gone(self._change(ended, "end"))

    def _lacks_cpus(self, job: LiveJob) -> str:
        """Return the host that was lost before a job that shares CPUs ran there; empty: none was.

        It is the daemon that gives CPUs which does not answer there, so this counts as no failure of the job.
        """
        if job.state is not LiveJobState.STARTING or not self._shared_cpus(job):
            return ""
        return next((host for host in job.hosts if host in self.lost), "")

    def _hear_left(self, left: HostLeft) -> None:
        why = self.state.quarantined.get(left.host)
        if why is not None:
            if (why.job, why.attempt) == (left.job, left.attempt) and left.epoch >= why.epoch:
                self._record("free", quarantined={left.host: None})
                self._offer(left.host)
            return
        job = self.state.jobs.get(left.job)
        if job is None or left.attempt != job.attempt:
            return
        if left.epoch < job.leaving.get(left.host, LAST + 1):
            return
        job = self._change(job.leave(left.host), "left")
        self._gone(job)
        self._answer(job)

    def _hear_answer(self, answer: HostAnswer) -> None:
        host, reason = answer.host, answer.reason
        if host not in self.state.hosts or self.lost.get(host, "") == reason:
            return
        if not reason:
            self._effects += 1
            del self.lost[host]
            self._offer(host)
        else:
            if host not in self.lost:
                self._effects += 1
                self._alarm(f"{host} is lost: {reason}")
                self.ledger.drain(self._node(host))
            self.lost[host] = reason
        self._mark()

    def _hear_load(self, load: HostLoad) -> None:
        """Note what others want of a host: what jobs of ours want there is not theirs, also of those just over."""
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
        self.ledger.loads = self._node_loads()
        if self.ledger.loads:
            self._mark()

    def _node_loads(self) -> tuple[NodeLoad, ...]:
        """Return what a policy is shown that looks at it: nothing until all hosts that answer were measured."""
        hosts = self.state.hosts
        if "loads" not in self.policy.looks_at or any(
            host not in self.loads and host not in self.lost for host in hosts
        ):
            return ()
        return tuple(self.loads.get(host, NodeLoad(host)) for host in hosts)

    def _hear_shepherd(self, answer: ShepherdAnswer) -> None:
        """Let a user's jobs wait for hosts, or not; ask one who has come where they are."""
        if self._served is None:
            return
        if answer.here:
            self._served.add(answer.user)
            for number in self._unestimated:
                if self.state.jobs[number].submission.user == answer.user:
                    self._unestimated[number] = -inf
            for number in self._active:
                if self.state.jobs[number].submission.user == answer.user:
                    self._since[number] = self.now  # nobody could answer before
                    self._send(self.state.jobs[number], ask=True)
        else:
            self._served.discard(answer.user)
        self._rebuild = True

    def _hear_term(self, term: HostTerm) -> None:
        """Take in until when a host may be used; one that is new gets jobs when it has answered."""
        host, end = term.host, self.now + term.seconds if term.seconds > 0 else -inf
        if host not in self.state.hosts:
            if term.seconds <= 0:
                return
            self.lost[host] = "it has not answered yet"
            self._record("join", hosts=[*self.state.hosts, host])
        before, source = self.terms.get(host, (math.nan, ""))
        if source == term.source and (before == end or abs(before - end) < NOTED_TERM):
            return
        self.terms[host] = end, term.source
        self._deferred.clear()
        self._staying.clear()
        self._ending = self._about_to_end()
        self.rebuild_ledger()

    def _about_to_end(self) -> set[str]:
        """Return the hosts that get no job any more, for they cannot be used much longer."""
        soon = self.now + self.patience.vacate
        return {host for host, (end, _) in self.terms.items() if end <= soon}

    def _see_to_terms(self) -> None:
        """Have hosts get no job whose term is about to end, and forget empty ones that are said to be over."""
        if not self.terms:
            return
        soon = self._about_to_end()
        if soon != self._ending:
            self._ending, self._rebuild = soon, True
        state = self.state
        for number in self._active if soon else ():
            job = state.jobs[number]
            movable = job.submission.kind in MOVABLE and not self.rests(number)
            if (
                movable
                and job.state is LiveJobState.RUNNING
                and job.settled
                and soon & {*job.hosts}
            ):
                self._vacate(job)
        over = [
            host for host in sorted(soon)
            if self.terms[host][0] == -inf and host not in state.holders and host not in state.quarantined
        ]  # fmt: skip
        if over:
            left = [host for host in state.hosts if host not in over]
            for host in over:
                self.lost.pop(host, None)
                self.loads.pop(host, None)
                self._inputs.forget("load", host)
                del self.terms[host]
            self._ending -= set(over)
            drained = sorted(state.drained - set(over))
            self._record("leave", hosts=left, drained=drained)
            self.rebuild_ledger()

    def _vacate(self, job: LiveJob) -> None:
        """Order a job off hosts whose term is about to end: to as many others as are free, or with fewer."""
        stay = [host for host in job.hosts if host not in self._ending]
        others = [host for host in self.state.hosts if self._all_free([host])]
        lacks = len(job.hosts) - len(stay)
        come = others[:lacks] if self.prefer is None else self.prefer.best(others, lacks, stay)
        target = *stay, *come
        going = next(host for host in job.hosts if host in self._ending)
        end, source = self.terms[going]
        reason = f"{source} ends in {max(0.0, end - self.now):.0f} s"
        if len(target) >= job.submission.minimum:
            self._send(self._change(job.resize(target, reason), "vacate"))
            self._rebuild = True
        elif job.number not in self._staying:
            self._staying.add(job.number)
            few = (
                f"{len(target)} of the {job.submission.minimum} hosts that it needs would be left"
            )
            self._alarm(f"{self.name}.{job.number} cannot leave {going}: {reason}, and {few}")

    def _offer(self, host: str) -> None:
        """Have a host get jobs again, unless something else is against it."""
        state = self.state
        self._undefer()
        away = host in self.lost or host in self._ending
        if not (host in state.drained or host in state.quarantined or away):
            self.ledger.resume(self._node(host))
            self._rebuild |= bool(self.cpus)  # its job may share it again

    def _undefer(self) -> None:
        """Let jobs wait for hosts again for which those that were free did not stay long enough."""
        if self._deferred:
            self._deferred.clear()
            self._rebuild = True

    # ---------------------------------------------------------------------------------- time
    def tick(self, clock: float) -> None:
        """Do what is due: passes, questions, and what was waited for in vain."""
        self._at(clock)
        if self.now >= self._next_look:
            with self._input(clock, "look"):
                self._look()
        while self._wakes and self._wakes[0] <= self.now:
            heapq.heappop(self._wakes)
            self._mark()
        self._settle()
        if self._due() <= self.now:
            with self._input(clock, "pass"):
                self._pass()

    def _pass(self) -> None:
        """Ask the policy once."""
        self._dirty, self._passed = None, self.now
        self.passes += 1
        self._effects += 1
        self.ledger.loads = self._node_loads()
        self._tell_what_is_seen()
        self.driver.run_pass()

    def _tell_what_is_seen(self) -> None:
        """Have the inputs tell what a policy that looks at it sees, where they have not yet."""
        if "loads" in self.policy.looks_at:
            self._tell_loads(self.state.hosts)
        if self._shows_messages:
            for number, running in self.ledger.running.items():
                self._inputs.tell(self.now, "messages", number, running.messages)

    @property
    def _shows_messages(self) -> bool:
        """Whether the policy may look at messages: what a user's own code looks at is not known."""
        return "loads" in self.policy.looks_at or guard_of(self.policy) is not None

    def _tell_loads(self, hosts: Iterable[str]) -> None:
        for host in hosts:
            if host in self.loads:
                self._inputs.tell(self.now, "load", host, self.loads[host])

    @property
    def recorded(self) -> SchedulerState:
        """What may be told: the state; while nothing can be recorded, what is on the disk.

        Raises
        ------
        LaunchError
            It cannot be read. Transient.
        """
        if not self.trouble:
            return self.state
        if self._on_disk is None:
            self._on_disk = self.log.read()
        return self._on_disk

    @property
    def pass_is_due(self) -> bool:
        """Whether something has happened that no pass of the policy has seen."""
        return self._dirty is not None

    def next_time(self) -> float:
        """Return how many seconds from now `tick` has something to do at the latest."""
        wake = self._wakes[0] if self._wakes else inf
        return max(0.0, min(self._due(), wake, self._next_look) - self.now)

    @property
    def _next_look(self) -> float:
        return instant(self._looked + self.patience.look)

    def _due(self) -> float:
        """Return when the next pass is to be, if nothing else happens."""
        if self._dirty is None or self.trouble:
            return inf
        return max(
            instant(self._dirty + self.patience.gather),
            instant(self._passed + self.patience.apart),
            self._heard_until if self._unheard else -inf,
        )

    def turn(self) -> list[Order]:
        """Have all that was decided be on the disk, and return the orders that may be carried out now.

        Nothing that was decided before may be said to anybody before this returns without `trouble`.
        """
        if self._records or len(self._inputs) > MOST_INPUTS or not self.log.whole:
            inputs = self._inputs.take()
            if self.trouble and self.now < self._retry:
                self._records, self._orders = [], []
                return []
            try:
                if len(self._ended) > 2 * self.limits.ended:
                    self._forget()
                self.log.commit(with_inputs(self._records, inputs), self.state)
            except JournalError as error:
                # The state is right, and is written as a whole once the disk works; orders are given again then.
                self.trouble, self._retry = str(error), self.now + self.patience.look
                self._records, self._orders = [], []
                return []
        self.trouble, self._on_disk = "", None
        orders, self._records, self._orders = self._orders, [], []
        return orders

    def _forget(self) -> None:
        """Move the jobs that ended first from the state to the history."""
        oldest = sorted(islice(self._ended, self.limits.ended))
        self.log.archive([self.state.jobs[number] for number in oldest])
        for _ in oldest:
            self._ended.popleft()
        self._record("forget", forget=oldest)

    def _at(self, clock: float) -> None:
        self.now = max(self.now, instant(self._offset + clock))

    @contextmanager
    def _input(self, clock: float, told: str | Report, *words: Any) -> Iterator[None]:
        """Be told something at a time; the log has it if it has an effect."""
        self._at(clock)
        before = self.changes, self._effects  # what has an effect beside its records is counted
        try:
            yield
            self._settle()
        finally:
            if before != (self.changes, self._effects):
                about = [told, *words] if isinstance(told, str) else report_input(told)
                self._inputs.note(self.now, *about)

    def _mark(self) -> None:
        """Have a pass soon."""
        if self._dirty is None:
            self._dirty = self.now

    def _settle(self) -> None:
        """After an event: see to what follows from it; a ledger that does not show what is true is made anew."""
        self._see_to_followers()
        if self._rebuild:
            self.rebuild_ledger()

    def _look(self) -> None:
        """Repeat what was not answered, and give up what was waited for in vain."""
        self._looked, wait = self.now, self.patience
        self._let_go_on()
        for number in list(self._active):
            job = self.state.jobs[number]
            since = self.now - self._since[number]
            if job.state is LiveJobState.RESIZING and since > wait.answer:
                job = self._change(job.unsettle(), "unsettled")
            elif (given_up := self._start_given_up(job, since)) is not None:
                self._end(job, *given_up)
                continue
            elif (
                job.leaving
                and since > wait.leave
                and (job.over or job.hosts)
                and self._quarantine(job)
            ):
                continue
            resting = job.state is LiveJobState.RUNNING and not job.leaving
            if self.now - self._sent.get(number, -inf) >= (wait.ask if resting else wait.again):
                self._send(job, ask=number in self._unheard)
        self._ask_estimates()
        self._see_to_terms()
        for host, why in self.state.quarantined.items():
            if self.now - self._sent_quarantined.get(host, -inf) >= wait.again:
                self._sent_quarantined[host] = self.now
                self._orders.append(
                    AskOrder(
                        why.job, why.attempt, self.state.incarnation, why.folder, True,
                        ((host, why.epoch),), self._user_of(why.job),
                    )
                )  # fmt: skip

    def _let_go_on(self) -> None:
        """Go on with decisions whose model has not answered, and with jobs that were left alone for a time."""
        for number in self.selections.late(self.now):
            self._effects += 1
            self._go_on(number)
        for number, (refused, until) in self._refused.items():
            if 0 < until <= self.now:
                self._refused[number] = refused, 0.0
                self._rebuild = True

    def _start_given_up(self, job: LiveJob, since: float) -> tuple[LiveJobState, str] | None:
        """Return what becomes of a job that is being started in vain, and why; None: it is not, or not in vain."""
        wait = self.patience.start
        if job.state is not LiveJobState.STARTING or not self.is_served(job.submission.user):
            return None
        if job.number not in self._unheard and (lost := self._lacks_cpus(job)):
            return LiveJobState.QUEUED, f"{lost} is lost"
        if since > wait:
            return LiveJobState.FAILED, f"it did not run within {wait:g} s"
        return None

    def _quarantine(self, job: LiveJob) -> bool:
        """Let go of a job's hosts that do not say that it has left them, and give them to nobody.

        Return whether there was one: a host that is quarantined for another job stays this one's as well.
        """
        found: dict[str, Any] = {}
        for host, epoch in job.leaving.items():
            if host in self.state.quarantined:
                continue  # another job's that shared it: one after the other
            reason = f"it has not said that {self.name}.{job.number} has left it"
            found[host] = quarantine_document(
                Quarantine(job.number, job.attempt, job.folder, epoch, reason)
            )
            self._alarm(f"{host} is quarantined: {reason}")
            self.ledger.drain(self._node(host))
        if not found:
            return False
        for host in found:
            job = job.leave(host)
        job = self._change(job, "quarantine", quarantined=found)
        self._gone(job)
        self._answer(job)
        return True

    # ------------------------------------------------------------------------------- records
    def _record(self, do: str, **values: Any) -> None:
        """Change the state by a record."""
        record = {"do": do, "at": self.now, **values}
        self._mark()
        self.state.apply(record)
        self._records.append(record)
        self.changes += 1
        if "job" in values:
            self.touched.add(int(values["job"]))

    def _change(self, job: LiveJob, do: str, **values: Any) -> LiveJob:
        """Have a job be as it is now; return it."""
        before = self.state.jobs.get(job.number)
        if before is not None:
            job = job.counted(before, self.now)
        self._record(do, job=job.number, **{"is": job.document()}, **values)
        job = self.state.jobs[job.number]
        if job.is_over or job.waits:
            for known in (
                self._since, self._sent, self._proposed, self._verdicts, self.progress, self.paces,
            ):  # fmt: skip
                known.pop(job.number, None)
            self._inputs.forget("speeds", job.number)
            self._inputs.forget("messages", job.number)
            self._refused.pop(job.number, None)
            self._deferred.discard(job.number)
            self._staying.discard(job.number)
            self._held_back.discard(job.number)
            self._active.discard(job.number)
            self._unheard.discard(job.number)
            if job.is_over:
                self.selections.forget(job.number)
                self._unestimated.pop(job.number, None)
                self._ended.append(job.number)
                self._just_over.append(job.number)
        else:
            self._since[job.number] = self.now
            self._active.add(job.number)
        return job

    def _alarm(self, text: str) -> None:
        self.alarms.append((self.now, text))
        self.alarmed += 1

    def alarms_since(self, count: int) -> list[tuple[float, str]]:
        """Return the alarms after the first so many, as far as they are kept."""
        return list(self.alarms)[max(0, len(self.alarms) - self.alarmed + count) :]

    # -------------------------------------------------------------------------------- orders
    def _send(self, job: LiveJob, ask: bool = False) -> None:
        """Give the order that a job's state asks for, for the first time or again."""
        self._sent[job.number] = self.now
        where = job.number, job.attempt, self.state.incarnation, job.folder
        user = job.submission.user
        if job.state is LiveJobState.ENDING:
            self._orders.append(EndOrder(*where, tuple(job.leaving), user))
        elif ask or job.state is LiveJobState.RUNNING:
            begun = job.state is not LiveJobState.STARTING
            self._orders.append(AskOrder(*where, begun, tuple(job.leaving.items()), user))
        elif job.state is LiveJobState.STARTING:
            work, cpus = job.submission.work, self._shared_cpus(job)
            self._orders.append(StartOrder(*where, job.hosts, work, user, cpus))
        else:
            cpus = self._shared_cpus(job)
            self._orders.append(ResizeOrder(*where, job.epoch, job.wanted, user, cpus))

    def _shared_cpus(self, job: LiveJob) -> int:
        """Return how many CPUs a host has of which a job may have to share some, 0: it shares none."""
        return self.cpus if job.submission.kind is JobKind.MALLEABLE else 0

    def _user_of(self, number: int) -> str:
        """Return whose a job is; of one that went to the history nobody knows."""
        job = self.state.jobs.get(number)
        return "" if job is None else job.submission.user

    def _end(self, job: LiveJob, outcome: LiveJobState, reason: str) -> None:
        """Have an attempt ended of which it is not known that it is over."""
        self._send(self._change(job.end(outcome, reason, self.now, False), "ending"))

    def _gone(self, job: LiveJob) -> None:
        """Take a job off the ledger's nodes when it has left all its hosts."""
        if not (job.is_over or job.waits):
            return
        if job.number not in self.ledger.running or self._tangled:
            self._rebuild = True
            return
        self.driver.end(job.number)
        self._undefer()
        if job.waits and not self.is_kept_back(job):
            self.ledger.requeue(job.as_job(self.cpus))
        self._mark()

    def _answer(self, job: LiveJob) -> None:
        """Tell the ledger what became of a resize, when no host is being left any more."""
        if not job.settled:
            return
        found = self._verdicts.pop(job.number, None)
        if found is None:
            self._rebuild = True
            return
        number, done = found
        if not (self.driver.confirm(number) if done else self.driver.refuse(number)):
            self._rebuild = True
        self._mark()

    # ------------------------------------------------------------------ what the driver asks for
    def start_job(self, running: RunningJob) -> None:
        """Order the next attempt of a job, if its hosts are free by their own word, or its mates' alone."""
        job = self.state.jobs[running.job.id]
        hosts = self._names(running.node_ids)
        mates = [self.state.jobs[number] for number in running.mates]
        shared = {host for mate in mates for host in mate.hosts}
        free = self._all_free(host for host in hosts if host not in shared)
        if not (job.waits and free and shared <= {*hosts} and all(map(self._can_share, mates))):
            self._rebuild = True
            return
        if job.submission.kind not in MOVABLE and not all(
            self._lasts(host, job) for host in hosts
        ):
            self._deferred.add(job.number)
            self._rebuild = True
            return
        if self._awaits_model(job.number, hosts):
            return
        for mate in mates:
            since, delay = self._since[mate.number], self.ledger.running[mate.number].delay
            self._change(replace(mate, delay=delay), "share")
            self._since[mate.number] = since  # whatever it is to answer
        token, sharing = self._token(), (running.mates, running.share, running.delay)
        placed_by = self.selections.take(job.number)
        started = job.start(hosts, token, self.now, *sharing, placed_by)
        self._send(self._change(started, "start"))

    def _can_share(self, job: LiveJob) -> bool:
        """Whether a job's hosts may be given to a guest as well: it is settled, alone there, and they get jobs."""
        return job.settled and self._is_alone(job) and self._get_jobs(job.holds)

    def _is_alone(self, job: LiveJob) -> bool:
        return all(self.state.holders[host] == (job.number,) for host in job.holds)

    def _get_jobs(self, hosts: frozenset[str]) -> bool:
        away = self._ending.union(self.lost, self.state.drained, self.state.quarantined)
        return not away & hosts

    def resize_job(self, running: RunningJob, nodes_before: int) -> None:  # noqa: ARG002 - the hosts say it
        """Order a job to other hosts; one that is being started is told when it runs."""
        if self.state.jobs[running.job.id].state is LiveJobState.STARTING:
            self._held_back.add(running.job.id)
        else:
            self._resize(running.job.id)

    def migrate_job(self, running: RunningJob) -> None:
        """Order a job to other hosts, as many as it has."""
        self.resize_job(running, running.nodes)

    def _resize(self, number: int) -> None:
        running = self.ledger.running[number]
        proposal = self.ledger.proposals.get(running.proposal)
        job = self.state.jobs[number]
        if job.state is LiveJobState.ENDING:
            return
        if proposal is None or proposal.unsettled or not job.settled:
            self._rebuild = True
            return
        target = set(self._names(running.node_ids))
        stay = [host for host in job.hosts if host in target]
        come = [host for host in self._names(running.node_ids) if host not in job.hosts]
        if not self._all_free(come):
            self._rebuild = True
            return
        if self._awaits_model(number, come or target):
            return
        self.selections.said[number] = self.selections.take(number)
        self._proposed[number] = running.proposal
        self._send(self._change(job.resize((*stay, *come), proposal.reason), "resize"))

    def update_share(self, running: RunningJob) -> None:
        """Have a job's pace be measured anew; its CPUs are given and taken where its guest starts and ends."""
        self.paces.pop(running.job.id, None)

    def requeue_job(self, job: int) -> None:
        """End a job's attempt; it waits again when it has left its hosts."""
        self._end(self.state.jobs[job], LiveJobState.QUEUED, "its policy queued it again")
        self._rebuild = True  # the ledger takes its nodes for free

    def wake_at(self, time: float) -> None:
        """See that there is a pass at a time."""
        if time < inf:
            heapq.heappush(self._wakes, instant(time))

    def reject_job(self, job: int, reason: str) -> None:
        """Record that a job will never run."""
        self._change(
            self.state.jobs[job].end(LiveJobState.FAILED, reason, self.now, True), "reject"
        )

    def policy_failed(self, failure: PolicyFailure) -> None:
        """Say that first-come-first-served decides instead."""
        self._alarm(f"{failure}; first-come-first-served decided instead")

    def refuse(self, refused: Refused) -> None:
        """Say which decision of the policy could not be carried out."""
        self._alarm(f"{name_of(self.policy)}: {refused}")

    # -------------------------------------------------------------------------------- ledger
    def _all_free(self, hosts: Iterable[str]) -> bool:
        """Whether a job may be put on all of these hosts."""
        away = self._ending.union(self.lost)
        return all(self.state.is_free(host) and host not in away for host in hosts)

    def _chosen(
        self, job: int, nodes: Sequence[int], count: int, beside: frozenset[int]
    ) -> frozenset[int]:
        """Return which of some nodes a job gets or keeps: by what it has measured, where that is all of them.

        The host that it cannot leave it keeps.
        """
        assert self.prefer is not None  # noqa: S101 - for the type checker: it is asked only then
        names, loads = self._names(nodes), self.loads
        self._tell_loads((*names, *self._names(beside)))
        said = self.progress.get(job)
        speeds, anchor = ({}, "") if said is None else (said.speeds, said.anchor)
        self._inputs.tell(self.now, "speeds", job, speeds, anchor)
        quiet = [host for host in names if host not in loads or not loads[host].owner_back]
        prefer = self.prefer.under({host: load.share for host, load in loads.items()})
        if speeds:
            prefer = prefer.measured(speeds)
        one = self.state.jobs.get(job)
        if one is not None and one.submission.messages:
            prefer = prefer.talking(one.submission.messages)
        lasting = [host for host in quiet if one is not None and self._lasts(host, one)]
        kept = {anchor}.intersection(names) if count else set[str]()
        for better in (quiet, lasting):
            if len(better) >= count:
                names = tuple(better)
        rest = tuple(host for host in names if host not in kept)
        stay = *self._names(beside), *sorted(kept)
        best = prefer.best(rest, count - len(kept), stay)
        told = speeds if speeds.keys() >= {*rest} else {}
        wish = HostWish(rest, len(best), stay, self._shares({*rest, *stay}), best, told)
        best = self.selections.chosen(job, wish, self.now)
        return frozenset(map(self._node, (*kept, *best)))

    def _shares(self, hosts: Collection[str]) -> tuple[tuple[str, float], ...]:
        """Return what others leave of hosts that are monitored: one weather for all jobs, as far as it matters."""
        found = ((host, load.share) for host, load in sorted(self.loads.items()) if host in hosts)
        told = ((host, max(1, round(share / SHARES)) * SHARES) for host, share in found)
        return tuple((host, share) for host, share in told if share < 1.0)

    def _node(self, host: str) -> int:
        return self.state.hosts.index(host)

    def _names(self, nodes: Iterable[int]) -> tuple[str, ...]:
        return tuple(self.state.hosts[node] for node in sorted(nodes))

    def rebuild_ledger(self) -> None:
        """Make the ledger anew from the state.

        A job that is not settled is a rigid one there, on all the hosts that it holds; the ledger is made anew
        again when it is.
        """
        # One rebuild replaces a repair for each surprise (restart, lost host, refused start).
        self._rebuild = False
        self._effects += 1
        self._inputs.forget("messages")
        self._verdicts.clear()
        self._proposed.clear()
        self._held_back.clear()
        self.selections.release()
        state = self.state
        ledger = ClusterLedger(
            len(state.hosts), self.cpus or 1, track_node_ids=True, acknowledged=RESIZED,
            answer_seconds=self.patience.answer, usage_half_life=self.policy.usage_half_life,
            choose=self._chosen if self.prefer else None,
        )  # fmt: skip
        self.ledger = ledger
        self.driver = Driver(
            self.policy, ledger, lambda: self.now, self, settle_seconds=self.patience.settle
        )
        nodes = {host: node for node, host in enumerate(state.hosts)}
        active = [state.jobs[number] for number in self._active]
        guests = self._guests(active)
        taken: set[str] = set()
        runs, self._tangled = [], False
        sharing = {*guests}.union(*(mates for mates, _ in guests.values()))
        for job in sorted(active, key=lambda job: (job.started or 0.0, job.number)):
            tangled = not (job.number in sharing or self._is_alone(job))
            rest = job.holds - taken if tangled else job.holds
            self._tangled |= tangled
            taken |= rest
            holds = frozenset(nodes[host] for host in rest)
            if holds:
                shown = self._shown(job, len(holds), tangled)
                runs.append((shown, job.started or 0.0, holds))
        came = {job.number: job.placed for job in active if job.placed is not None}
        delays = {job.number: job.delay for job in active}
        ledger.adopt(runs, came, delays, guests)
        ledger.loads = self._node_loads()
        for shown, _, holds in runs:
            if shown.kind is JobKind.EVOLVING:
                ledger.request(shown.id, state.jobs[shown.id].wants or len(holds))
        ledger.time = self.now
        for job in sorted(state.jobs.values(), key=lambda job: (job.submitted, job.number)):
            if job.waits:
                self._defer(job)
                if not self.is_kept_back(job):
                    ledger.submit(job.as_job(self.cpus))
        for host in (*state.drained, *state.quarantined, *self.lost, *self._ending):
            if host in nodes:
                ledger.drain(nodes[host])
        self._expect_all()
        ledger.settle()
        self._mark()

    def _guests(self, active: Iterable[LiveJob]) -> dict[int, tuple[tuple[int, ...], float]]:
        """Return the guests that have all hosts of their mates, which hold no others, with those and their share.

        Sharing of any other form comes of hosts that are lost or being left, and the ledger cannot show it.
        """
        found = {}
        for job in active:
            mates = [self.state.jobs[mate] for mate in job.mates if mate in self.state.jobs]
            hosts = [host for mate in mates for host in mate.holds]
            both = [{mate.number, job.number} for mate in mates for _ in mate.holds]
            alone = [{*self.state.holders[host]} for host in hosts] == both
            if mates and alone and {*hosts} <= job.holds:
                found[job.number] = tuple(mate.number for mate in mates), job.share
        return found

    def _shown(self, job: LiveJob, nodes: int, tangled: bool) -> Job:
        """Return a job that is on so many nodes as a policy sees it."""
        as_it_is = job.as_job(self.cpus)
        if self.cpus and not self._get_jobs(job.holds):
            as_it_is = replace(as_it_is, exclusive=True)
        rigid = job.submission.kind is JobKind.RIGID
        fits = job.submission.minimum <= nodes <= job.submission.maximum
        fits = fits and not self.rests(job.number)
        settled = job.settled and not tangled
        if settled and fits and not (rigid and nodes != job.submission.maximum):
            return as_it_is
        has = nodes * (self.cpus or 1)
        return replace(as_it_is, kind=JobKind.RIGID, processors=has, minimum=has, maximum=has)


def job_of(state: SchedulerState, number: int, name: str) -> LiveJob:
    """Return a job of a state; the scheduler's name is for messages.

    Raises
    ------
    UsageError
        There is none of this number.
    """
    found = state.jobs.get(number)
    if found is None:
        raise unknown_job(f"{name}.{number}")
    return found


def not_recorded(trouble: str, *, pending: bool = False) -> LaunchError:
    """Return the error of an input while the log cannot be written; `pending`: it may still have an effect."""
    later = "; the request may be carried out when the log can be written" if pending else ""
    return LaunchError(
        f"nothing can be recorded: {trouble}{later}",
        code="log-unwritable",
        reason=trouble,
        pending=pending,
    )


def _alike(one: NodeLoad, other: NodeLoad) -> bool:
    """Return whether two loads of a host are so much alike that nothing follows from the difference."""
    if [name for name, _ in one.parts] != [name for name, _ in other.parts]:
        return False
    rest = other._replace(cpus=one.cpus, others=one.others, parts=one.parts, error=one.error)
    if one != rest:  # what the host list says is another
        return False
    parts = zip(one.parts, other.parts, strict=True)
    apart = [abs(one.others - other.others), abs(one.error - other.error)]
    apart += [*(abs(a[1] - b[1]) for a, b in parts)]
    return max(apart) < NOTED_LOAD and one.owner_back == other.owner_back


OVER_UNKNOWN = LiveJobState.LOST
"""Of an attempt that is ending: what it becomes is known already."""
