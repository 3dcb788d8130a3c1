"""The live scheduler against an adversary, deterministic: one seed, one history.

The scheduler is the real one, with its real log in a real directory. Clients, jobs, hosts and the network are
simulated: orders and reports are lost, late, doubled and out of order, or cut off one way; the scheduler dies
between any two changes of its directory, or between record and order; its disk is full for a time; the world's
clock steps. `SimulatedCluster.run` checks after every event what must hold whatever happens:

- on no host are two jobs, nor two attempts of one job, and no job has two attempts that are not over;
- a host on which anything is of a job is not free for the scheduler, and a settled job is where it says;
- no job is started on a host that does not answer;
- no attempt begins twice;
- no job runs before those have finished that it comes after;
- an evolving job is told to have no number of hosts that it has not asked for;
- a submission that was acknowledged is known, and the same request has the same answer;
- time does not go back, and what the log has makes the state.

And some time after the last fault every job is over and every host is free.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from apples.errors import LaunchError, UsageError
from apples.scheduling.jobs import JobKind
from apples.scheduling.policies import POLICIES
from apples.scheduling.policy import SchedulingPolicy
from apples.scheduling.server.host_preference import HostPreference
from apples.scheduling.server.live_job import MOST_RESTARTS, JobSubmission, LiveJobState
from apples.scheduling.server.log import SchedulerLog, folded
from apples.scheduling.server.orders import (
    LAST,
    AskOrder,
    AttemptPhase,
    EndOrder,
    EstimateOrder,
    HostAnswer,
    HostLeft,
    JobReport,
    Order,
    Report,
    ResizeOrder,
    RunTimeEstimate,
    StartOrder,
)
from apples.scheduling.server.scheduler import LiveScheduler, Patience
from apples.storage.folder import Folder
from apples.storage.journal import parse
from apples.testing.faulty_folder import FaultyFolder, FolderFaults
from apples.testing.protocol.network import Clockwork, NetworkFaults, SimulatedNetwork
from apples.testing.protocol.simulation import BrokenPromiseError

LIVE_POLICIES = tuple(name for name in POLICIES if name not in {"sd", "slurm"})
FOLLOWING = 0.15
"""Part of the jobs that come after another."""
EVOLVING, ASKING = 0.25, 0.15
"""Part of the malleable jobs that ask for hosts themselves, and of the others that do so though they are not."""
MODELLED = 0.3
"""Part of the jobs whose run time nobody has estimated."""
ASKING_SECONDS = 20.0
ITERATIONS = 1000
"""Of every job; what it says of its progress is drawn, and goes back as often as on."""
SETTLING_SECONDS = 6000.0
"""After the last fault, for every job to end and every host to be free."""


class SimulatedCrashError(BaseException):
    """The scheduler's process is gone."""


@dataclass
class CrashingDisk(FolderFaults):
    """A directory in which a change may fail, or be the scheduler's last."""

    crash: bool = False

    def happen(self) -> None:
        """Fail, or end the scheduler."""
        if self.crash:
            raise SimulatedCrashError
        super().happen()


@dataclass
class SimulatedAttempt:
    """An attempt to run a job, as it really is.

    Attributes
    ----------
    on
        Hosts on which something of it is.
    pending
        The order to resize that is being carried out, 0: none.
    asked
        How many hosts its program has asked for, the last last.
    evolves
        Whether it is to have no others.
    """

    job: int
    attempt: int
    phase: AttemptPhase = AttemptPhase.STARTING
    hosts: tuple[str, ...] = ()
    on: set[str] = field(default_factory=set)
    epoch: int = 0
    pending: int = 0
    refused: bool = False
    state: str = ""
    exit_code: int | None = None
    asked: list[int] = field(default_factory=list)
    evolves: bool = False


class SimulatedJobs:
    """Runs simulated jobs on simulated hosts, which do what they are told in their own time.

    Attributes
    ----------
    begun
        (job, attempt) -> how often it began.
    """

    def __init__(
        self,
        clock: Clockwork,
        chance: random.Random,
        tell: Callable[[Report], None],
        moods: random.Random,
    ) -> None:
        self.clock, self.chance, self.tell, self.moods = clock, chance, tell, moods
        self.attempts: dict[tuple[int, int], SimulatedAttempt] = {}
        self.begun: dict[tuple[int, int], int] = {}
        self._incarnation = 0

    def carry_out(self, order: Order) -> None:
        """Do what an order says, at most once, unless a newer scheduler has given one."""
        if order.incarnation < self._incarnation:
            return
        self._incarnation = order.incarnation
        if isinstance(order, EstimateOrder):
            self.tell(RunTimeEstimate(order.job, self.moods.choice((None, 10.0, 300.0))))
            return
        one = self.attempts.get((order.job, order.attempt))
        if one is not None:
            self._obey(one, order)
        elif isinstance(order, StartOrder):
            one = self._begin(order)
        elif isinstance(order, EndOrder):  # it never begins
            one = SimulatedAttempt(order.job, order.attempt, AttemptPhase.ENDED, state="cancelled")
            self.attempts[order.job, order.attempt] = one
            self._obey(one, order)
        elif isinstance(order, AskOrder) and order.begun:
            raise BrokenPromiseError(f"attempt {order.attempt} of job {order.job} never began")
        self._say(order.job, order.attempt, one)

    def _obey(self, one: SimulatedAttempt, order: Order) -> None:
        if isinstance(order, ResizeOrder):
            if one.phase is AttemptPhase.RUNNING and not one.pending:
                self._resize(one, order)
        elif isinstance(order, EndOrder):
            self._end(one, "cancelled", None)
            self._say_left(one, [(host, LAST) for host in order.hosts])
        elif isinstance(order, AskOrder):
            self._say_left(one, order.leaving)

    def _begin(self, order: StartOrder) -> SimulatedAttempt:
        key = order.job, order.attempt
        one = SimulatedAttempt(*key, hosts=order.hosts, on=set(order.hosts))
        self.attempts[key] = one
        self.begun[key] = self.begun.get(key, 0) + 1
        chance = self.chance
        self.clock.after(chance.uniform(0.0, 5.0), lambda: self._run(one))
        self.clock.after(chance.expovariate(1 / 80.0), lambda: self._finish(one))
        if "asks" in order.work:
            self._ask_later(one, tuple(order.work["asks"]), bool(order.work["evolves"]))
        return one

    def _ask_later(self, one: SimulatedAttempt, limits: tuple[int, ...], evolves: bool) -> None:
        """Have a program ask for other hosts, again and again."""

        def ask() -> None:
            if one.phase is AttemptPhase.RUNNING:
                one.asked.append(self.moods.randint(*limits))
                self._say(one.job, one.attempt, one)
            if one.phase is not AttemptPhase.ENDED:
                self._ask_later(one, limits, evolves)

        one.evolves = evolves
        self.clock.after(self.moods.expovariate(1 / ASKING_SECONDS), ask)

    def _run(self, one: SimulatedAttempt) -> None:
        if one.phase is not AttemptPhase.STARTING:
            return
        if self.chance.random() < 0.1:
            self._end(one, "failed", self.chance.choice((3, 4, 4, 5)))
        else:
            one.phase = AttemptPhase.RUNNING
            if len(one.hosts) > 1 and self.chance.random() < 0.1:  # its plan does without a host
                self._leave(one, one.hosts[-1:])
                one.hosts = one.hosts[:-1]
        self._say(one.job, one.attempt, one)

    def _finish(self, one: SimulatedAttempt) -> None:
        code = self.chance.choice((0, 0, 0, 0, 0, 0, 4, 5))
        self._end(one, "failed" if code else "finished", code)
        self._say(one.job, one.attempt, one)

    def _resize(self, one: SimulatedAttempt, order: ResizeOrder) -> None:
        if order.epoch <= one.epoch:
            return
        if one.evolves and len(order.hosts) not in one.asked:
            asked = f"has asked for {one.asked}"
            raise BrokenPromiseError(f"job {one.job} {asked}: it is to have {len(order.hosts)}")
        one.pending = order.epoch
        one.on |= set(order.hosts)
        seconds = self.chance.choice((0.1, 1.0, 1.0, 5.0, 60.0))
        done = self.chance.random() < 0.7
        self.clock.after(seconds, lambda: self._resized(one, order, done))

    def _resized(self, one: SimulatedAttempt, order: ResizeOrder, done: bool) -> None:
        if one.phase is AttemptPhase.ENDED:
            return
        goes = set(one.hosts if done else order.hosts) - set(order.hosts if done else one.hosts)
        one.hosts = order.hosts if done else one.hosts
        one.epoch, one.refused, one.pending = order.epoch, not done, 0
        self._leave(one, tuple(sorted(goes)))
        self._say(one.job, one.attempt, one)

    def _end(self, one: SimulatedAttempt, state: str, code: int | None) -> None:
        if one.phase is not AttemptPhase.ENDED:
            one.phase, one.state, one.exit_code, one.hosts, one.pending = (
                AttemptPhase.ENDED, state, code, (), 0,
            )  # fmt: skip
            self._leave(one, tuple(sorted(one.on)))

    def _leave(self, one: SimulatedAttempt, hosts: Sequence[str]) -> None:
        """Have a host be left some time later, unless it is taken again before."""

        def gone(host: str, epoch: int) -> None:
            if one.phase is AttemptPhase.ENDED or (one.epoch == epoch and not one.pending):
                one.on.discard(host)
                self._say_left(one, [(host, 0)])

        for host in hosts:
            seconds = self.chance.choice((0.0, 0.1, 1.0, 3.0, 40.0))
            self.clock.after(seconds, lambda host=host, epoch=one.epoch: gone(host, epoch))  # type: ignore[misc]

    def _say_left(self, one: SimulatedAttempt, asked: Sequence[tuple[str, int]]) -> None:
        for host, epoch in asked:
            if one.phase is AttemptPhase.ENDED and host not in one.on:
                self.tell(HostLeft(one.job, one.attempt, host, LAST))
            elif not one.pending and host not in one.hosts and one.epoch >= epoch:
                if host in one.on:
                    self._leave(one, (host,))
                else:
                    self.tell(HostLeft(one.job, one.attempt, host, one.epoch))

    def _say(self, job: int, attempt: int, one: SimulatedAttempt | None) -> None:
        if one is None:
            self.tell(JobReport(job, attempt, AttemptPhase.ABSENT))
            return
        self.tell(
            JobReport(
                job, attempt, one.phase, one.epoch, one.refused, one.hosts,
                state=one.state, exit_code=one.exit_code,
                asks=(one.asked[-1], one.asked[-1]) if one.asked else None,
                iteration=self.moods.randint(0, ITERATIONS), iterations=ITERATIONS,
                speeds={host: self.moods.choice((1.0, 5.0)) for host in one.hosts},
            )
        )  # fmt: skip


class SimulatedCluster:
    """One scheduler, its clients, jobs and hosts, and what goes wrong until `faults.stop`.

    Parameters
    ----------
    seed
        Of everything.
    directory
        An empty one, for the scheduler's log.

    Attributes
    ----------
    acknowledged
        Request -> the job that it was answered with.
    """

    def __init__(
        self, seed: int, directory: Path, jobs: int = 25, faults: NetworkFaults | None = None
    ) -> None:
        self.chance = chance = random.Random(seed)  # noqa: S311 - a simulation's dice, not a secret
        self._order = random.Random(seed + 1)  # noqa: S311 - which job comes after which
        self._moods = random.Random(seed + 2)  # noqa: S311 - which job asks for what
        self._after: dict[str, tuple[int, ...]] = {}
        self.faults = faults or NetworkFaults(stop=300.0, partitions=6)
        self.clock = Clockwork()
        self.network = SimulatedNetwork(self.clock, chance, self.faults)
        self.executor = SimulatedJobs(self.clock, chance, self._say, self._moods)
        self.hosts = tuple(f"h{k}" for k in range(chance.randint(3, 8)))
        self.directory = directory
        self.disk = CrashingDisk()
        self.acknowledged: dict[str, int] = {}
        self.crashes = self.passes = 0
        self._policy = self._drawn_policy()
        self._prefer = HostPreference({
            host: (chance.choice("xy"), chance.choice((1.0, 2.0))) for host in self.hosts
        })  # fmt: skip
        self._wall = 1e9
        self._tokens = 0
        self._last = 0.0
        self._said: list[Report] = []
        self._ordered: list[Order] = []
        self._wanted = jobs
        self._ticking = 0
        self.scheduler: LiveScheduler | None = None
        self._start()
        for k in range(jobs):
            self.clock.after(
                chance.uniform(0, self.faults.stop), self._submission(f"r{k}", self._drawn_job())
            )
        for act in (self._cancel, self._drain, self._lose, self._replay):
            self.clock.after(chance.uniform(5, 60), act)
        if self.faults.crashes:
            for _ in range(chance.randint(0, 6)):
                self.clock.after(chance.uniform(0, self.faults.stop), self._strike)

    # ------------------------------------------------------------------------------ running
    def run(self) -> None:
        """Let time pass until all is done, and check after every event.

        Raises
        ------
        BrokenPromiseError
            What must hold does not, or long after the last fault something is not done.
        """
        limit = self.faults.stop + SETTLING_SECONDS
        self.clock.run(limit, self._check, lambda: self.done)
        if not self.done:
            raise BrokenPromiseError(
                f"not all is done {SETTLING_SECONDS:g} s after the last fault"
            )
        if self.scheduler is not None:
            self._check_log(self.scheduler)
            self._check_attempts(self.scheduler)
            self.scheduler.log.close()

    @property
    def done(self) -> bool:
        """Whether every job that was submitted is over, and every host is free."""
        one = self.scheduler
        return (
            one is not None
            and self.clock.now > self.faults.stop
            and len(self.acknowledged) == self._wanted
            and all(job.is_over for job in one.state.jobs.values())
            and all(one.state.is_free(host) for host in self.hosts)
        )

    def _drawn_policy(self) -> SchedulingPolicy:
        return POLICIES[self.chance.choice((*["equipartition"] * 4, *LIVE_POLICIES))]()

    def _drawn_job(self) -> JobSubmission:
        chance = self.chance
        kind = chance.choice((JobKind.RIGID, JobKind.MALLEABLE, JobKind.MALLEABLE))
        most = chance.randint(1, len(self.hosts))
        least = most if kind is JobKind.RIGID else chance.randint(1, most)
        work: dict[str, Any] = {}
        if kind is JobKind.MALLEABLE and self._moods.random() < EVOLVING:
            kind, work = JobKind.EVOLVING, {"asks": [least, most], "evolves": True}
        elif self._moods.random() < ASKING:
            work = {"asks": [1, len(self.hosts)], "evolves": False}
        modelled = self._moods.random() < MODELLED
        return JobSubmission(
            least, most, kind, chance.uniform(1.0, 200.0), work=work, modelled=modelled
        )

    # -------------------------------------------------------------------------- the scheduler
    def _start(self) -> None:
        """Start a scheduler on what the last one left."""
        self._wall += self.chance.choice((0.0, 0.0, 3600.0, -3600.0))
        folder = FaultyFolder(Folder.open(self.directory, links=True), self.disk)
        patience = Patience(heard=self.chance.choice((0.0, 10.0)))
        log = SchedulerLog(folder)
        try:
            self.scheduler = LiveScheduler(
                log, self._policy, self.hosts, self.clock.now, self._wall + self.clock.now, self._token, patience,
                prefer=self._prefer,
            )  # fmt: skip
        except (SimulatedCrashError, LaunchError):
            self.disk.crash = False
            log.close()
            self.clock.after(1.0, self._start)
            return
        self._ticking += 1
        self._tick(self._ticking)

    def _token(self) -> str:
        self._tokens += 1
        return f"{self._tokens:08x}"

    def _crash(self) -> None:
        """Lose the scheduler with all that it had not recorded, or not said."""
        if self.scheduler is not None:
            self.crashes += 1
            self.scheduler.log.close()
            self.scheduler = None
            self.disk.at, self.disk.crash, self.disk.persistent = 0, False, False
            self.clock.after(self.chance.uniform(0.1, 30.0), self._start)

    def _tick(self, ticking: int) -> None:
        if ticking == self._ticking and self.scheduler is not None:
            self._act(lambda one: one.tick(self.clock.now))
            seconds = self.scheduler.next_time() if self.scheduler is not None else 0.0
            self.clock.after(max(0.01, seconds), lambda: self._tick(ticking))

    def _act(self, event: Callable[[LiveScheduler], object]) -> bool:
        """Have the scheduler take an event in and record it; whether it did."""
        one = self.scheduler
        if one is None:
            return False
        try:
            event(one)
            orders = one.turn()
            self.passes += one.passes
            one.passes = 0
        except SimulatedCrashError:
            self._crash()
            return False
        if self.chance.random() < 0.002 and self.clock.now < self.faults.stop:
            self._crash()  # it is recorded, and nobody was told
            return False
        self._ordered += orders
        for order in orders:
            self.network.carry(">", lambda order=order: self.executor.carry_out(order))  # type: ignore[misc]
        return not one.trouble

    def _say(self, report: Report) -> None:
        def hear() -> None:
            self._act(lambda one: one.report(self.clock.now, report))

        self._said.append(report)
        self.network.carry("<", hear)

    # ------------------------------------------------------------------------------- clients
    def _submission(self, request: str, submission: JobSubmission) -> Callable[[], None]:
        def submit() -> None:
            answer: list[int] = []

            def ask(one: LiveScheduler) -> None:
                try:
                    answer.append(
                        one.submit(self.clock.now, self._following(request, submission), request)
                    )
                except LaunchError:
                    answer.clear()
                except UsageError:  # what it was to come after has failed
                    self._after[request] = ()

            recorded = self._act(ask) and answer
            if recorded:
                known = self.acknowledged.setdefault(request, answer[0])
                if known != answer[0]:
                    raise BrokenPromiseError(f"{request} is job {known}, and then {answer[0]}")
            if not recorded or self.chance.random() < 0.2:  # it did not hear the answer
                self.clock.after(self.chance.uniform(0.5, 20.0), submit)

        return submit

    def _following(self, request: str, submission: JobSubmission) -> JobSubmission:
        """Return a submission that is to come after another job, for some requests."""
        known = list(self.acknowledged.values())
        if request not in self._after:
            follows = known and self._order.random() < FOLLOWING
            self._after[request] = (self._order.choice(known),) if follows else ()
        return replace(submission, after=self._after[request])

    def _cancel(self) -> None:
        if self.acknowledged and self.clock.now < self.faults.stop:
            number = self.chance.choice(list(self.acknowledged.values()))
            self._act(lambda one: one.cancel(self.clock.now, number))
            self.clock.after(self.chance.uniform(5, 60), self._cancel)

    def _drain(self) -> None:
        host = self.chance.choice(self.hosts)
        self._act(lambda one: one.drain(self.clock.now, host))
        self.clock.after(self.chance.uniform(1, 60), lambda: self._resume(host))
        if self.clock.now < self.faults.stop:
            self.clock.after(self.chance.uniform(5, 100), self._drain)

    def _resume(self, host: str) -> None:
        if not self._act(lambda one: one.resume(self.clock.now, host)):
            self.clock.after(5.0, lambda: self._resume(host))

    def _lose(self) -> None:
        """Have a host not answer for a time."""
        host = self.chance.choice(self.hosts)
        self._act(lambda one: one.report(self.clock.now, HostAnswer(host, "no answer")))
        self.clock.after(self.chance.uniform(1, 60), lambda: self._find(host))
        if self.clock.now < self.faults.stop:
            self.clock.after(self.chance.uniform(5, 100), self._lose)

    def _find(self, host: str) -> None:
        if not self._act(lambda one: one.report(self.clock.now, HostAnswer(host))):
            self.clock.after(5.0, lambda: self._find(host))

    # ----------------------------------------------------------------------------- adversary
    def _strike(self) -> None:
        """Let one of the next changes of the directory fail, for once, for a time, or be the last."""
        self.disk.at = len(self.disk.changes) + self.chance.randint(1, 8)
        self.disk.error = self.chance.choice((errno.ENOSPC, errno.EIO))
        self.disk.crash = self.chance.random() < 0.6
        self.disk.persistent = self.chance.random() < 0.5
        self.clock.after(self.chance.uniform(1.0, 20.0), self._mend)

    def _mend(self) -> None:
        if self.chance.random() < 0.3:
            self._crash()
        self.disk.at, self.disk.persistent = 0, False

    def _replay(self) -> None:
        """Say something again, and order something again, that was said or ordered some time ago."""
        if self._said:
            said = self._said[-200:]
            left = [one for one in said if isinstance(one, HostLeft) and one.epoch < LAST]
            report = self.chance.choice(left if left and self.chance.random() < 0.5 else said)
            self._act(lambda one: one.report(self.clock.now, report))
        if self._ordered:
            self.executor.carry_out(self.chance.choice(self._ordered[-100:]))
        if self.clock.now < self.faults.stop:
            self.clock.after(self.chance.expovariate(1.0), self._replay)

    # ------------------------------------------------------------------------------ promises
    def _check(self) -> None:
        on = self._check_hosts()
        scheduler = self.scheduler
        if scheduler is None:
            return
        for host, (job, attempt) in on.items():
            known = host in scheduler.state.quarantined or scheduler.state.holders.get(host) == job
            if not known:
                raise BrokenPromiseError(f"{host} has attempt {attempt} of job {job}, and is free")
        for one in self.executor.attempts.values():
            self._check_place(one, scheduler)
        self._check_starts(scheduler)
        if scheduler.now < self._last:
            raise BrokenPromiseError(f"time went back from {self._last} to {scheduler.now}")
        if not scheduler.trouble:
            self._last = scheduler.state.time
        unknown = set(self.acknowledged.values()) - scheduler.state.jobs.keys()
        if unknown:
            raise BrokenPromiseError(f"jobs {unknown} were acknowledged and are not known")
        if self.chance.random() < 0.01:
            self._check_log(scheduler)

    def _check_place(self, one: SimulatedAttempt, scheduler: LiveScheduler) -> None:
        """Check that a job is nowhere but where the scheduler says, when both have settled."""
        if one.phase is not AttemptPhase.RUNNING or one.pending:
            return
        job = scheduler.state.jobs[one.job]
        for before in job.submission.after:
            first = scheduler.state.jobs.get(before)
            if first is not None and first.state is not LiveJobState.FINISHED:
                raise BrokenPromiseError(f"job {one.job} runs, and job {before} is {first.state}")
        settled = job.state is LiveJobState.RUNNING and not job.leaving
        if settled and one.epoch == job.epoch and not set(one.hosts) <= set(job.hosts):
            raise BrokenPromiseError(f"job {one.job} is on {one.hosts}, not on {job.hosts}")

    @staticmethod
    def _check_starts(scheduler: LiveScheduler) -> None:
        """Check that no job has just been started on a host that does not answer."""
        for job in scheduler.state.jobs.values():
            lost = scheduler.lost.keys() & job.hosts
            if lost and job.state is LiveJobState.STARTING and job.started == scheduler.now:
                raise BrokenPromiseError(f"job {job.number} is started on {lost}, which is lost")

    def _check_hosts(self) -> dict[str, tuple[int, int]]:
        """Check and return what is really on the hosts."""
        found: dict[str, tuple[int, int]] = {}
        alive: dict[int, int] = {}
        for key, one in self.executor.attempts.items():
            for host in one.on:
                if found.setdefault(host, key) != key:
                    raise BrokenPromiseError(f"{host} has {found[host]} and {key} at once")
            if (
                one.phase is not AttemptPhase.ENDED
                and alive.setdefault(one.job, one.attempt) != one.attempt
            ):
                raise BrokenPromiseError(f"job {one.job} runs twice")
        if max(self.executor.begun.values(), default=0) > 1:
            raise BrokenPromiseError("an attempt began twice")
        return found

    def _check_attempts(self, scheduler: LiveScheduler) -> None:
        """Check that no job is lost, and that one which its hosts failed had all its attempts."""
        for job in scheduler.state.jobs.values():
            if job.state is LiveJobState.LOST:
                raise BrokenPromiseError(f"job {job.number} is lost")
            begun = sum(number == job.number for number, _ in self.executor.begun)
            if job.state is LiveJobState.FAILED and job.exit_code == 4 and begun <= MOST_RESTARTS:
                raise BrokenPromiseError(f"job {job.number} failed after {begun} attempts")

    def _check_log(self, scheduler: LiveScheduler) -> None:
        """Check that what is on the disk makes the state; not while it cannot be written."""
        if scheduler.trouble or not scheduler.log.whole:
            return
        records, _, _ = parse((self.directory / "journal").read_bytes())
        kept, problems = folded(records)
        if problems or kept.records() != scheduler.state.records():
            raise BrokenPromiseError("the log does not make the state")
