"""The live scheduler against an adversary, deterministic: one seed, one history.

The scheduler is the real one, with its real log in a real directory. Clients, jobs, hosts and the network are
simulated: orders and reports are lost, late, doubled and out of order, or cut off one way; the scheduler dies
between any two changes of its directory, or between record and order; its disk is full for a time; the world's
clock steps. In a third of the histories the hosts are nodes of Slurm's allocations, followed by what follows them
in earnest (`apples.cluster.allocations`). Where jobs share hosts their topology daemons die, and come back.
`SimulatedCluster.run` checks after every event what must hold whatever happens:

- on no host are two jobs, nor two attempts of one job, and no job has two attempts that are not over; but for
  a guest of the other where hosts are shared: then no CPU has two jobs, and a job that is alone has all CPUs;
- a host on which anything is of a job is not free for the scheduler, and a settled job is where it says;
- no job is started on a host that does not answer, nor on one whose allocation is about to end, or is said to end
  before a job that cannot be moved would;
- no attempt begins twice, none is resized before it runs, and a job that is over has none that is not;
- no job runs before those have finished that it comes after;
- an evolving job is told to have no number of hosts that it has not asked for (where hosts stay);
- a submission that was acknowledged is known, and the same request has the same answer;
- time does not go back, and what the log has makes the state;
- a scheduler that is told what the log says that this one was told decides the same, at the same times.

And some time after the last fault every job is over and every host is free to be used.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

from adversaries.faulty_folder import FaultyFolder, FolderFaults
from adversaries.messages import NetworkFaults, SimulatedNetwork
from adversaries.protocol.network import Clockwork
from adversaries.protocol.simulation import BrokenPromiseError
from adversaries.simulated_slurm import POOL, SimulatedSlurm

from apples.cluster import (
    BEGUN,
    LAST,
    LOOK_SECONDS,
    MAX_RESTARTS,
    MOVABLE,
    AllocationFollower,
    AllocationWatch,
    AskOrder,
    AttemptPhase,
    EndOrder,
    EstimateOrder,
    HostAnswer,
    HostLease,
    HostLeft,
    HostPreference,
    JobReport,
    JobSubmission,
    LiveJobState,
    LiveScheduler,
    Order,
    Report,
    ResizeOrder,
    RunTimeEstimate,
    SchedulerLog,
    StartOrder,
    Timeouts,
    folded,
    replayed,
)
from apples.errors import LaunchError, UsageError
from apples.io import Folder, parse
from apples.resources import Host
from apples.scheduling import POLICIES, JobKind, SlowdownDriven
from apples.topology import (
    CpuAllocation,
    CpuSet,
    Unsatisfied,
    arrive,
    leave,
    synthetic,
    violations,
)

LIVE_POLICIES = tuple(POLICIES)
CPUS = 4
"""Of each host, where the policy has jobs share hosts."""
SHARING = SlowdownDriven(max_slowdown=inf, guard=False, free_nodes=True)
"""That policy: one that has jobs share hosts whenever it can."""
FOLLOWING = 0.15
"""Part of the jobs that come after another."""
EVOLVING, ASKING = 0.25, 0.15
"""Part of the malleable jobs that ask for hosts themselves, and of the others that do so though they are not."""
MODELLED = 0.3
"""Part of the jobs whose run time nobody has estimated."""
ALLOCATED = 1 / 3
"""Part of the histories whose hosts are nodes of allocations."""
TERM_SLACK = 3.0
"""By how much later than the scheduler it is noticed here that a term is about to end."""
ASKING_SECONDS = 20.0
PASSES = ((0.01, 0.05), (0.05, 0.0))
"""From an event to its pass, and between two passes: a scheduler's own, and one that gathers events for longer."""
DAEMON_NOTICED, DAEMON_ASKED = 20.0, 4.0
"""Until it is noticed at the latest that a topology daemon is down (it may hang), and until one is asked again."""
NO_DAEMON = "no topology daemon"
LONG_DOWN = 500.0
"""For how long some are: longer than a scheduler waits for a job to run."""
ITERATIONS = 1000
"""Of every job; what it says of its progress is drawn, and goes back as often as on."""
SETTLING_SECONDS = 6000.0
"""After the last fault, for every job to end and every host to be free."""


def _pass(_: str) -> None:
    """Do nothing: nobody else has a host, and nobody reads what is said."""


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
    folder
        Under which its hosts' topology daemons know it; empty: it asks none.
    begun
        Whether it has begun, which it cannot without CPUs.
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
    folder: str = ""
    begun: bool = False


class SimulatedHostCpus:
    """The CPUs of the hosts, as a topology daemon on each gives them: by its own rules, and at once.

    Attributes
    ----------
    down
        Hosts whose daemon does not answer: who has which CPUs there stays as it is.
    """

    def __init__(self) -> None:
        self.down: set[str] = set()
        self._machine = synthetic(f"pu:{CPUS}")
        self._jobs: dict[str, dict[str, CpuAllocation]] = {}

    def allocate(self, host: str, name: str) -> None:
        """Give an attempt all CPUs of a host, or a part of them where another has them."""
        jobs = self._jobs.setdefault(host, {})
        if name in jobs:
            return
        job = CpuAllocation(name, 1, "uid:0", least=1, count=CPUS)
        all_cpus = self._machine.cpus
        changes: Mapping[str, CpuAllocation] | Unsatisfied
        if jobs:
            changes = arrive(self._machine, jobs, job, CpuSet(), SHARING.sharing_factor)
        else:
            changes = {name: job.change(owns=all_cpus, holds=all_cpus)}
        if isinstance(changes, Unsatisfied):
            raise BrokenPromiseError(f"{host} has no CPUs for {name}: {changes.reason}")
        jobs.update(changes)
        self._check(host)

    def release(self, host: str, name: str) -> None:
        """Take an attempt's CPUs on a host back; whoever is there besides has them."""
        jobs = self._jobs.get(host, {})
        if name in jobs:
            changes = leave(jobs, name)
            del jobs[name]
            jobs.update(changes)
            self._check(host)

    def _check(self, host: str) -> None:
        jobs = self._jobs[host]
        wrong = [*violations(jobs, self._machine.cpus)]
        if len(jobs) == 1 and len(next(iter(jobs.values())).holds) < CPUS:
            wrong.append(f"{next(iter(jobs))} is alone and has not got all CPUs back")
        if wrong:
            raise BrokenPromiseError(f"{host}: {wrong[0]}")


class SimulatedJobs:
    """Runs simulated jobs on simulated hosts, which do what they are told in their own time.

    Attributes
    ----------
    begun
        (job, attempt) -> how often it began.
    slurm
        Gives the hosts; None: they stay.
    missed
        Called with a host whose daemon did not answer.
    """

    def __init__(
        self,
        clock: Clockwork,
        chance: random.Random,
        tell: Callable[[Report], None],
        moods: random.Random,
        slurm: SimulatedSlurm | None = None,
        missed: Callable[[str], object] = _pass,
    ) -> None:
        self.clock, self.chance, self.tell, self.moods = clock, chance, tell, moods
        self.slurm, self.missed = slurm, missed
        self.attempts: dict[tuple[int, int], SimulatedAttempt] = {}
        self.begun: dict[tuple[int, int], int] = {}
        self.cpus = SimulatedHostCpus()
        self._incarnation = 0

    def carry_out(self, order: Order) -> None:
        """Do what an order says, at most once, unless a newer scheduler has given one."""
        if order.incarnation < self._incarnation:
            return
        self._incarnation = order.incarnation
        if isinstance(order, EstimateOrder):
            self._estimate(order)
            return
        one = self.attempts.get((order.job, order.attempt))
        if isinstance(order, StartOrder) and (one is None or one.phase is AttemptPhase.ABSENT):
            one = self._begin(order, one)
            if not one.begun:
                return
        elif one is not None:
            self._obey(one, order)
        elif isinstance(order, EndOrder):  # it never begins
            one = SimulatedAttempt(order.job, order.attempt, AttemptPhase.ENDED, state="cancelled")
            self.attempts[order.job, order.attempt] = one
            self._obey(one, order)
        elif isinstance(order, ResizeOrder) or (isinstance(order, AskOrder) and order.begun):
            raise BrokenPromiseError(f"attempt {order.attempt} of job {order.job} never began")
        self._say(order.job, order.attempt, one)

    def _estimate(self, order: EstimateOrder) -> None:
        """Report what a job's model estimates, with any sets of hosts, some time later, or never."""
        seconds, choices = self.moods.choice((None, 10.0, 300.0)), None
        if order.among:
            hosts = tuple(self.moods.sample(order.among, len(order.among)))
            sets = (hosts[: order.hosts], hosts[order.hosts :])
            choices = tuple((one, 9.0) for one in sets if one and self.moods.random() < 0.9)
        answer = RunTimeEstimate(order.job, seconds, choices)
        later = self.moods.choice((0.0, 0.3, 1.0, 5.0, inf))
        if later < inf:
            self.clock.after(later, lambda: self.tell(answer))

    def _obey(self, one: SimulatedAttempt, order: Order) -> None:
        if isinstance(order, ResizeOrder):
            if one.phase in {AttemptPhase.ABSENT, AttemptPhase.STARTING}:
                raise BrokenPromiseError(f"job {one.job} is resized, and is {one.phase}")
            if one.phase is AttemptPhase.RUNNING and not one.pending:
                self._resize(one, order)
        elif isinstance(order, EndOrder):
            self._end(one, "cancelled", None)
            self._say_left(one, [(host, LAST) for host in order.hosts])
        elif isinstance(order, AskOrder):
            self._say_left(one, order.leaving)

    def _begin(self, order: StartOrder, one: SimulatedAttempt | None) -> SimulatedAttempt:
        """Begin an attempt; one that is to have CPUs of a daemon that is down has not begun then."""
        key = order.job, order.attempt
        there = self._there(order.hosts)
        if one is None:
            one = self.attempts[key] = SimulatedAttempt(*key, AttemptPhase.ABSENT)
        if order.cpus:
            one.folder = order.folder
            if not self._allocate(one, there):
                return one
        one.phase, one.hosts, one.on, one.begun = AttemptPhase.STARTING, order.hosts, there, True
        self.begun[key] = self.begun.get(key, 0) + 1
        if len(there) < len(order.hosts):
            self._end(one, "failed", 4)
            return one
        chance = self.chance
        self.clock.after(chance.uniform(0.0, 5.0), lambda: self._run(one))
        self.clock.after(chance.expovariate(1 / 80.0), lambda: self._finish(one))
        if "asks" in order.work:
            self._ask_later(one, tuple(order.work["asks"]), bool(order.work["evolves"]))
        return one

    def _allocate(self, one: SimulatedAttempt, hosts: set[str]) -> bool:
        """Give an attempt CPUs of hosts, up to the first whose daemon is down; whether none is."""
        for host in sorted(hosts):
            if host in self.cpus.down:
                self.missed(host)
                return False
            self.cpus.allocate(host, one.folder)
            one.on.add(host)
        return True

    def _ask_later(self, one: SimulatedAttempt, limits: tuple[int, ...], evolves: bool) -> None:
        """Have a program ask for other hosts, again and again."""

        def ask() -> None:
            if one.phase is AttemptPhase.RUNNING:
                one.asked.append(self.moods.randint(*limits))
                self._say(one.job, one.attempt, one)
            if one.phase is not AttemptPhase.ENDED:
                self._ask_later(one, limits, evolves)

        one.evolves = evolves and self.slurm is None  # else it has to do with what is left
        self.clock.after(self.moods.expovariate(1 / ASKING_SECONDS), ask)

    def _run(self, one: SimulatedAttempt) -> None:
        if one.phase is not AttemptPhase.STARTING:
            return
        if one.folder and (down := sorted(one.on & self.cpus.down)):
            self.missed(down[0])
            self._end(one, "failed", 4)
        elif self.chance.random() < 0.1:
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
        there = self._there(order.hosts)
        given = not order.cpus or self._allocate(one, there)
        one.on |= there if given else set()
        seconds = self.chance.choice((0.1, 1.0, 1.0, 5.0, 60.0))
        done = self.chance.random() < 0.7 and given
        self.clock.after(seconds, lambda: self._resized(one, order, done))

    def _resized(self, one: SimulatedAttempt, order: ResizeOrder, done: bool) -> None:
        if one.phase is AttemptPhase.ENDED:
            return
        done = done and one.on.issuperset(order.hosts)
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

    def _there(self, hosts: Sequence[str]) -> set[str]:
        """Return those of some hosts that there are now."""
        slurm, now = self.slurm, self.clock.now
        return {host for host in hosts if slurm is None or slurm.gives(host, now)}

    def take_back(self) -> None:
        """Lose what is on hosts that no allocation has any more; who can do without them sometimes does."""
        for one in self.attempts.values():
            gone = one.on - self._there(sorted(one.on))
            if not gone:
                continue
            one.on -= gone
            for host in gone:
                self.cpus.release(host, one.folder)
            left = tuple(host for host in one.hosts if host not in gone)
            if one.phase is AttemptPhase.ENDED or left == one.hosts:
                continue
            runs = one.phase is AttemptPhase.RUNNING and not one.pending
            if runs and left and self.moods.random() < 0.5:
                one.hosts = left
            else:
                self._end(one, "failed", 4)
            self._say(one.job, one.attempt, one)

    def _leave(self, one: SimulatedAttempt, hosts: Sequence[str]) -> None:
        """Have a host be left some time later, unless it is taken again before."""

        def gone(host: str, epoch: int) -> None:
            if one.folder and host in self.cpus.down:  # it is asked again
                self.clock.after(DAEMON_ASKED, lambda: gone(host, epoch))
            elif one.phase is AttemptPhase.ENDED or (one.epoch == epoch and not one.pending):
                one.on.discard(host)
                self.cpus.release(host, one.folder)
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
        if one is None or one.phase is AttemptPhase.ABSENT:
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
    policy
        Its name; empty: drawn.

    Attributes
    ----------
    policy, prefer
        Of the scheduler; drawn.
    acknowledged
        Request -> the job that it was answered with.
    replayed
        How many decisions were made again by who was told the same.
    crashes, passes, downs
        How often the scheduler died, its policy was asked, and a topology daemon died.
    """

    def __init__(
        self,
        seed: int,
        directory: Path,
        jobs: int = 25,
        faults: NetworkFaults | None = None,
        policy: str = "",
    ) -> None:
        self._seed = seed
        self.chance = chance = random.Random(seed)
        self._order = random.Random(seed + 1)
        self._moods = random.Random(seed + 2)
        self._after: dict[str, tuple[int, ...]] = {}
        self.faults = faults or NetworkFaults(stop=300.0, partitions=6)
        self.clock = Clockwork()
        self.network = SimulatedNetwork(self.clock, chance, self.faults)
        self.hosts = tuple(f"h{k}" for k in range(chance.randint(3, 8)))
        self._terms = random.Random(seed + 3)
        self._deaths = random.Random(seed + 4)
        allocated = self._terms.random() < ALLOCATED
        self.slurm = (
            SimulatedSlurm(self.hosts, self._terms, self.faults.stop) if allocated else None
        )
        # until when the scheduler was told that it may use hosts, and which starts were looked at
        self._told: dict[str, float] = {}
        self._checked: set[tuple[int, int]] = set()
        self.executor = SimulatedJobs(
            self.clock, chance, self._say, self._moods, self.slurm, self._hear_answer
        )
        self.directory = directory
        self.disk = CrashingDisk()
        self.acknowledged: dict[str, int] = {}
        self.crashes = self.passes = self.replayed = self.downs = 0
        drawn = chance.choice((*["equipartition"] * 4, *LIVE_POLICIES))
        self._cpus = CPUS if (policy or drawn) == "sd" else 0
        self.policy = SHARING if self._cpus else POLICIES[policy or drawn]()
        self.prefer = HostPreference({
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
        with self._kept_promises():
            self._start()
        for k in range(jobs):
            self.clock.after(
                chance.uniform(0, self.faults.stop), self._submission(f"r{k}", self._drawn_job())
            )
        for act in (self._cancel, self._drain, self._lose, self._replay):
            self.clock.after(chance.uniform(5, 60), act)
        if self._cpus:
            self.clock.after(self._deaths.uniform(5, 60), self._fell)
        for end in self.slurm.ends if self.slurm else ():
            self.clock.after(end, self.executor.take_back)
        if self.faults.crashes:
            for _ in range(chance.randint(0, 6)):
                self.clock.after(chance.uniform(0, self.faults.stop), self._strike)

    # ------------------------------------------------------------------------------ running
    def run(self) -> None:
        """Let time pass until all is done, and check after every event.

        Raises
        ------
        BrokenPromiseError
            What must hold does not, or the scheduler raised what nobody asked for, or long after the last fault
            something is not done: with the seed, and the number of the event.
        """
        with self._kept_promises():
            limit = self.faults.stop + SETTLING_SECONDS
            self.clock.run(limit, self._check, lambda: self.done)
            if not self.done:
                raise BrokenPromiseError(
                    f"not all is done {SETTLING_SECONDS:g} s after the last fault"
                )
            if self.scheduler is not None:
                self._check_log(self.scheduler)
                self._check_attempts(self.scheduler)
                self._check_replay()
                self.scheduler.log.close()

    @contextmanager
    def _kept_promises(self) -> Iterator[None]:
        """Have whatever is raised be a broken promise that says how it is met again."""
        try:
            yield
        except Exception as error:
            kind = "" if isinstance(error, BrokenPromiseError) else f"{type(error).__name__}: "
            at = f"seed {self._seed}, event {self.clock.events} at {self.clock.now:.6g} s"
            raise BrokenPromiseError(f"{at}: {kind}{error}") from error

    @property
    def done(self) -> bool:
        """Whether every job that was submitted is over, and every host is free."""
        one = self.scheduler
        return (
            one is not None
            and self.clock.now > self.faults.stop
            and len(self.acknowledged) == self._wanted
            and all(job.is_over for job in one.state.jobs.values())
            and not one.lost
            and set(one.state.hosts) == set(self.hosts)
            and all(one.state.is_free(host) for host in self.hosts)
        )

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
        if modelled:
            work["template"] = "t.toml"
        return JobSubmission(
            least, most, kind, chance.uniform(1.0, 200.0), work=work, modelled=modelled
        )

    # -------------------------------------------------------------------------- the scheduler
    def _start(self) -> None:
        """Start a scheduler on what the last one left."""
        self._wall += self.chance.choice((0.0, 0.0, 3600.0, -3600.0))
        folder = FaultyFolder(Folder.open(self.directory, links=True), self.disk)
        gather, apart = self.chance.choice(PASSES)
        timeouts = Timeouts(gather, apart, recovery_grace=self.chance.choice((0.0, 10.0)))
        log = SchedulerLog(folder)
        watch = None if self.slurm is None else self._watch(self.slurm)
        terms: list[HostLease] = []
        hosts, lost = self.hosts, dict.fromkeys(self.executor.cpus.down, NO_DAEMON)
        try:
            if watch is not None:
                terms = watch.look()
                hosts = tuple(one.host for one in terms)
                lost = dict.fromkeys(hosts, "it has not answered yet")
            self.scheduler = LiveScheduler(
                log, self.policy, hosts, self.clock.now, self._wall + self.clock.now, self._token, timeouts,
                lost=lost, prefer=self.prefer, cpus=self._cpus,
                most_hosts=None if watch is None else len(self.hosts),
            )  # fmt: skip
        except (SimulatedCrashError, LaunchError):
            self.disk.crash = False
            log.close()
            self.clock.after(1.0, self._start)
            return
        self._checked |= {(one.number, one.attempt) for one in self.scheduler.state.jobs.values()}
        self._ticking += 1
        if watch is not None:
            self._follow(watch, terms, self._ticking)
        self._tick(self._ticking)

    def _watch(self, slurm: SimulatedSlurm) -> AllocationWatch:
        """Return what sees the allocations."""
        clock = self.clock
        return AllocationWatch(
            [POOL], None, self.directory / "hosts.toml",
            lambda: slurm.allocations(clock.now, self._wall + clock.now), slurm.nodes,
            lambda: self._wall + clock.now, parts=lambda _: {},
        )  # fmt: skip

    def _follow(self, watch: AllocationWatch, terms: Sequence[HostLease], ticking: int) -> None:
        """Have the scheduler know its hosts, as long as it lives."""
        scheduler = self.scheduler
        assert scheduler is not None
        self._told.clear()

        def hear(term: HostLease) -> None:
            self._told[term.host] = self.clock.now + term.seconds
            self._act(lambda one: one.report(self.clock.now, term))

        def joins(host: Host) -> None:
            self.clock.after(self._terms.uniform(0.0, 3.0), lambda: self._find(host.name))

        def look() -> None:
            if ticking == self._ticking and self.scheduler is not None:
                follower.look(hear)
                self.clock.after(LOOK_SECONDS, look)

        follower = AllocationFollower(watch, joins, _pass, _pass, _pass)
        over = [host for host in scheduler.state.hosts if host not in {one.host for one in terms}]
        begun = [*terms, *(HostLease(host, 0.0, "its allocation") for host in over)]
        follower.take_in(begun, hear)
        self.clock.after(LOOK_SECONDS, look)

    def _token(self) -> str:
        self._tokens += 1
        return f"{self._tokens:08x}"

    def _crash(self) -> None:
        """Lose the scheduler with all that it had not recorded, or not said."""
        if self.scheduler is not None:
            self.crashes += 1
            self._check_replay()
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

        def drain(one: LiveScheduler) -> None:
            if host in one.state.hosts:
                one.drain(self.clock.now, host)

        self._act(drain)
        self.clock.after(self.chance.uniform(1, 60), lambda: self._resume(host))
        if self.clock.now < self.faults.stop:
            self.clock.after(self.chance.uniform(5, 100), self._drain)

    def _resume(self, host: str) -> None:
        def resume(one: LiveScheduler) -> None:
            if host in one.state.hosts:
                one.resume(self.clock.now, host)

        if not self._act(resume):
            self.clock.after(5.0, lambda: self._resume(host))

    def _lose(self) -> None:
        """Have a host not answer for a time."""
        host = self.chance.choice(self.hosts)
        self._act(lambda one: one.report(self.clock.now, HostAnswer(host, "no answer")))
        self.clock.after(self.chance.uniform(1, 60), lambda: self._find(host))
        if self.clock.now < self.faults.stop:
            self.clock.after(self.chance.uniform(5, 100), self._lose)

    def _find(self, host: str) -> None:
        """Have a host answer as soon as it is there and can be heard."""
        if not self._hear_answer(host):
            self.clock.after(5.0, lambda: self._find(host))

    def _hear_answer(self, host: str) -> bool:
        """Have the scheduler hear whether a host answers; whether it does and that was heard."""
        there = self.slurm is None or self.slurm.gives(host, self.clock.now)
        reason = NO_DAEMON * (host in self.executor.cpus.down) if there else "no answer"
        heard = self._act(lambda one: one.report(self.clock.now, HostAnswer(host, reason)))
        return heard and not reason

    def _fell(self) -> None:
        """Have a topology daemon die, which is noticed later, and come back."""
        dice, down = self._deaths, self.executor.cpus.down
        host = dice.choice(self.hosts)

        def hear() -> None:
            self._hear_answer(host)

        def rise() -> None:
            down.discard(host)
            self._find(host)

        if host not in down:
            down.add(host)
            self.downs += 1
            self.clock.after(dice.uniform(0.0, DAEMON_NOTICED), hear)
            seconds = dice.choice((2.0, dice.uniform(1, 60), LONG_DOWN))
            self.clock.after(seconds, rise)
        if self.clock.now < self.faults.stop:
            self.clock.after(dice.uniform(5, 100), self._fell)

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
        self._check_held(on, scheduler)
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

    @staticmethod
    def _check_held(on: Mapping[str, Sequence[tuple[int, int]]], scheduler: LiveScheduler) -> None:
        """Check that what is on hosts is what the scheduler has there, and that two jobs share only as agreed."""
        for host, there in on.items():
            held = scheduler.state.holders.get(host, ())
            for job, attempt in there:
                if host not in scheduler.state.quarantined and job not in held:
                    raise BrokenPromiseError(
                        f"{host} has attempt {attempt} of job {job}, and is free"
                    )
            mates = {mate for job, _ in there for mate in scheduler.state.jobs[job].mates}
            if (why := scheduler.state.quarantined.get(host)) is not None:
                mates.add(why.job)  # one that was let go of is nobody's mate any more
            if len(there) > 1 and not mates & {job for job, _ in there}:
                raise BrokenPromiseError(f"{host} has {there}, and none is a guest of the other")

    def _check_place(self, one: SimulatedAttempt, scheduler: LiveScheduler) -> None:
        """Check that a job is nowhere but where the scheduler says, when both have settled."""
        if one.phase in {AttemptPhase.ABSENT, AttemptPhase.ENDED}:
            return
        job = scheduler.state.jobs[one.job]
        if job.is_over:
            raise BrokenPromiseError(
                f"job {one.job} is {job.state}, and attempt {one.attempt} is {one.phase}"
            )
        if one.phase is not AttemptPhase.RUNNING or one.pending:
            return
        for before in job.submission.after:
            first = scheduler.state.jobs.get(before)
            if first is not None and first.state is not LiveJobState.FINISHED:
                raise BrokenPromiseError(f"job {one.job} runs, and job {before} is {first.state}")
        settled = job.state is LiveJobState.RUNNING and not job.leaving
        if settled and one.epoch == job.epoch and not set(one.hosts) <= set(job.hosts):
            raise BrokenPromiseError(f"job {one.job} is on {one.hosts}, not on {job.hosts}")

    def _check_starts(self, scheduler: LiveScheduler) -> None:
        """Check that no job has just been started on a host that does not answer, or does not stay."""
        for job in scheduler.state.jobs.values():
            start = job.number, job.attempt
            if job.state is not LiveJobState.STARTING or start in self._checked:
                continue
            self._checked.add(start)
            if lost := scheduler.lost.keys() & job.hosts:
                raise BrokenPromiseError(f"job {job.number} is started on {lost}, which is lost")
            stays = min((self._told.get(host, inf) for host in job.hosts), default=inf)
            needs = scheduler.timeouts.vacate
            if job.submission.kind not in MOVABLE:
                needs = max(needs, job.requested)
            if stays - self.clock.now < needs - TERM_SLACK:
                raise BrokenPromiseError(
                    f"job {job.number} is started on {job.hosts} for {needs:g} s: one is told to stay "
                    f"for {stays - self.clock.now:g} s"
                )

    def _check_hosts(self) -> dict[str, list[tuple[int, int]]]:
        """Check and return what is really on the hosts."""
        found: dict[str, list[tuple[int, int]]] = {}
        alive: dict[int, int] = {}
        for key, one in self.executor.attempts.items():
            for host in one.on:
                there = found.setdefault(host, [])
                there.append(key)
                if len({job for job, _ in there}) < len(there) or len(there) > 1 + bool(
                    self._cpus
                ):
                    raise BrokenPromiseError(f"{host} has {there} at once")
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
            few = job.exit_code in {4, None} and begun <= MAX_RESTARTS
            if job.state is LiveJobState.FAILED and few:
                raise BrokenPromiseError(f"job {job.number} failed after {begun} attempts")

    def _check_replay(self) -> None:
        """Check that a scheduler which is told what the log says makes its records, as far as it goes back."""
        records, problems, _ = parse((self.directory / "journal").read_bytes())
        if problems or not any(one.get("do") == BEGUN for one in records):
            return
        found = replayed(records, self.policy, self.prefer)
        if found.parting is not None:
            one, other = found.parting
            raise BrokenPromiseError(f"the log has {one}, and a replay has {other}")
        self.replayed += found.decisions

    def _check_log(self, scheduler: LiveScheduler) -> None:
        """Check that what is on the disk makes the state; not while it cannot be written."""
        if scheduler.trouble or not scheduler.log.whole:
            return
        records, _, _ = parse((self.directory / "journal").read_bytes())
        kept, problems = folded(records)
        if problems or kept.records() != scheduler.state.records():
            raise BrokenPromiseError("the log does not make the state")
