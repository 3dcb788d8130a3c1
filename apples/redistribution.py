"""Moving an application while it runs: what was promised, what is measured, what a move would bring and cost.

`Move` is a proposal weighed against the contract (`apples.contract`), `Tended` an execution that a policy looks
after. The policy itself is a blueprint's: plain functions over the coordinator's verbs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from apples.actuator import Execution, Outcome, Progress, Resized
from apples.contract import Contract
from apples.errors import InfeasibleError, LaunchError
from apples.estimator import PerformanceEstimator
from apples.information import InformationPool
from apples.monitoring import Watched
from apples.quantities import duration
from apples.schedule import Allocation, Estimate, Schedule

ANSWER_SECONDS = 1.0
STALL_SECONDS = 0.5
"""What a move is taken to cost beside its data, until one was measured."""


@dataclass(frozen=True, slots=True)
class Move:
    """A proposal to go on elsewhere, weighed.

    Attributes
    ----------
    estimate
        The candidate.
    iteration_seconds, next_seconds
        Measured now, and predicted after the move.
    remaining
        Iterations left.
    cost
        Seconds the job would stand still for the move.
    error
        Relative error of what was measured: an improvement must be beyond it.
    breach
        Why it was looked for.
    """

    estimate: Estimate
    iteration_seconds: float
    next_seconds: float
    remaining: int
    cost: float
    error: float
    breach: str

    @property
    def improvement(self) -> float:
        """By what part an iteration would become shorter."""
        return 1.0 - self.next_seconds / self.iteration_seconds

    @property
    def gain(self) -> float:
        """Seconds that the iterations left would take less; without the cost."""
        return self.remaining * (self.iteration_seconds - self.next_seconds)

    @property
    def payback(self) -> float:
        """Seconds after which the move has paid for itself; infinite where it never does."""
        saved = self.iteration_seconds - self.next_seconds
        return self.cost / saved * self.next_seconds if saved > 0 else float("inf")

    def explained(self) -> str:
        """Return what it would bring and cost, in words."""
        schedule = self.estimate.schedule
        where = ", ".join(f"{a.host.name} {a.rows:.0f}" for a in schedule.allocations)
        payback = f", paid back after {duration(self.payback)}" if self.payback < 1e9 else ""
        return (
            f"{self.breach or 'a look around'}: on {where} an iteration would take "
            f"{duration(self.next_seconds)} in place of {duration(self.iteration_seconds)}; "
            f"{self.remaining} are left, gain {duration(max(0.0, self.gain))}, cost {duration(self.cost)}{payback}"
        )

    def same_as(self, rows: Mapping[str, int]) -> bool:
        """Whether it would change nothing."""
        schedule = self.estimate.schedule
        return {a.host.name: int(a.rows) for a in schedule.allocations} == dict(rows)


@dataclass(frozen=True, slots=True)
class Redistribution:
    """What was decided about a move, and why: the record."""

    iteration: int
    moved: bool
    explanation: str
    move: Move
    seconds: float | None = None

    def document(self) -> dict[str, Any]:
        """Return the record as JSON."""
        move, payback = self.move, self.move.payback
        schedule = move.estimate.schedule
        return {
            "iteration": self.iteration, "moved": self.moved, "explanation": self.explanation,
            "breach": move.breach, "hosts": [a.host.name for a in schedule.allocations],
            "rows": [int(a.rows) for a in schedule.allocations],
            "iteration_seconds": move.iteration_seconds, "predicted_seconds": move.next_seconds,
            "remaining": move.remaining, "error": move.error, "gain_seconds": move.gain, "cost_seconds": move.cost,
            "payback_seconds": payback if payback < float("inf") else None,
            "resize_seconds": self.seconds,
        }  # fmt: skip


Policy = Callable[["Tended"], None]


@dataclass
class Tended(Execution):
    """An execution that a policy may move while it runs.

    Attributes
    ----------
    execution
        What runs.
    policy
        Called after each progress.
    contract
        What it is expected to take now.
    watched
        What it is measured to take.
    decisions
        Every move that was weighed; kept to the last `KEPT`.
    costs
        Measured seconds of the moves made.
    proposed, doubted
        Whether a look found a move that pays; whether the contract was found broken, and is measured once
        more or was.
    paces
        By host the job was on: how many times longer it took there than the model says.
    bias
        The least of them there ever was: what the model leaves out everywhere, load or no load.
    looked
        When one looked for a move last, on the clock of `watched`.
    """

    execution: Execution
    policy: Policy
    contract: Contract
    watched: Watched = field(default_factory=Watched)
    decisions: list[Redistribution] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    proposed: bool = False
    doubted: bool = False
    paces: dict[str, float] = field(default_factory=dict)
    bias: float = 1.0
    tell: Callable[[Redistribution], None] = lambda _: None
    looked: float = float("-inf")

    KEPT = 100

    @property
    def moved(self) -> bool:
        """Whether it is elsewhere than it began."""
        return self.execution.moved or bool(self.costs)

    @property
    def movable(self) -> bool:
        """Whether it can be moved: yes."""
        return True

    @property
    def measured(self) -> bool:
        """Whether there is anything to hold against the contract yet."""
        pace = self.watched.pace()
        return pace is not None and pace.seconds >= self.watched.window / 2

    @property
    def dwell(self) -> float:
        """Seconds it has been where it is."""
        return self.watched.dwell

    @property
    def rested(self) -> float:
        """Seconds since one looked for a move last."""
        return self.watched.clock() - self.looked

    def monitor(self) -> Iterator[Progress]:
        """Yield progress until the run ends; the policy sees each first."""
        for progress in self.execution.monitor():
            self.watched.see(progress)
            looked = self.looked
            try:
                self.policy(self)
            except (LaunchError, InfeasibleError):  # it may have ended; no host may be fit
                self.content()
            if self.looked != looked:  # the sensors took their part of the CPUs
                self.watched.disturbed()
                self.looked = self.watched.clock()
            yield progress

    def content(self) -> None:
        """Expect from now on what is measured now: nobody is in doubt, and nothing proposed."""
        self.proposed = self.doubted = False
        self.contract = as_it_goes(self)

    def learn(self, measured: InformationPool, rows: Mapping[str, int]) -> None:
        """Take in how far the model is off on the hosts the job is on."""
        seen = {name: measured.pace[name] for name in rows if name in measured.pace}
        known = list(self.paces.values())
        self.paces.update(seen)
        if seen:
            self.bias = min([*([self.bias] if known else []), *seen.values()])

    def decide(
        self, move: Move, explanation: str, resized: Resized | None = None
    ) -> Redistribution:
        """Record a decision."""
        iteration = self.watched.last.iteration if self.watched.last else 0
        seconds = resized.seconds if resized else None
        found = Redistribution(iteration, resized is not None, explanation, move, seconds)
        self.decisions = [*self.decisions, found][-self.KEPT :]
        self.tell(found)
        return found

    def position(self, seconds: float = 10.0) -> Mapping[str, Any]:
        """Return where the job is; it has `seconds` to answer."""
        return self.execution.position(seconds)

    def resize(self, schedule: Schedule, *, ordered: bool = False) -> Resized:
        """Move the job."""
        done = self.execution.resize(schedule, ordered=ordered)
        self.costs.append(done.seconds)
        self.watched.moved()
        return done

    def outcome(self) -> Outcome | None:
        """Return what was measured, waiting for the end and tending it till then."""
        for _ in self.monitor():
            pass
        return self.execution.outcome()

    def cancel(self) -> None:
        """End the run."""
        self.execution.cancel()

    def rows(self) -> dict[str, int]:
        """Return the rows each host has now."""
        at = self.position(ANSWER_SECONDS)
        if not at["hosts"]:
            raise LaunchError("the job is nowhere just now")
        return dict(zip(at["hosts"], at["rows"], strict=True))


def weighed(
    run: Tended, candidate: Estimate, information: InformationPool, estimator: PerformanceEstimator
) -> Move | None:
    """Return what moving a run to a candidate would bring and cost, in a pool of what was measured.

    None where nothing was measured yet, or the candidate is what it has.
    """
    pace, last = run.watched.pace(), run.watched.last
    if pace is None or last is None:
        return None
    rows = run.rows()
    here = _as_it_is(rows, information, estimator)
    # What the model leaves out of an iteration here it leaves out there too.
    overhead = max(1.0, pace.iteration_seconds / here.iteration_seconds)
    move = Move(
        candidate,
        pace.iteration_seconds,
        candidate.iteration_seconds * overhead,
        max(0, last.iterations - last.iteration),
        max([_cost(rows, candidate.schedule, information), *run.costs[-3:]]),
        pace.error,
        run.contract.breach(pace),
    )
    return None if move.same_as(rows) else move


def _as_it_is(
    rows: Mapping[str, int], information: InformationPool, estimator: PerformanceEstimator
) -> Estimate:
    hosts = information.hosts
    allocations = tuple(
        Allocation(hosts[name], float(count), information.implementation(hosts[name]))
        for name, count in rows.items()
    )
    return estimator.estimate(Schedule(allocations), information)


def _cost(rows: Mapping[str, int], schedule: Schedule, information: InformationPool) -> float:
    """Return the seconds a move is expected to take: its rows over the slowest link, and the stall."""
    application, conditions = information.application, information.conditions
    size = application.strip_memory(1) - application.strip_memory(0)
    here = [information.hosts[name] for name in rows]
    seconds = STALL_SECONDS
    for one in schedule.allocations:
        more = int(one.rows) - rows.get(one.host.name, 0)
        links = [conditions.link(other, one.host).link for other in here if other is not one.host]
        if more > 0 and links:
            seconds += more * size / min(link.bandwidth for link in links)
    return seconds


def as_it_goes(run: Tended) -> Contract:
    """Return the contract that is just what is measured now."""
    pace = run.watched.pace()
    return run.contract if pace is None else Contract(pace.iteration_seconds, pace.compute_seconds)
