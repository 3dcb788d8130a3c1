"""Moving an application while it runs: what was promised, what is measured, what a move would bring and cost.

`Move` is a proposal weighed against the contract (`apples.agent.contract`), `Tended` an execution that a policy
looks after. The policy itself is a blueprint's: plain functions over the coordinator's verbs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from apples.agent.contract import Contract
from apples.agent.information import InformationPool
from apples.agent.monitoring import Watched
from apples.errors import InfeasibleError, LaunchError
from apples.launch.actuator import Execution, Outcome, Progress, Resized
from apples.schedule import Estimate, Schedule
from apples.units import duration

ANSWER_SECONDS = 1.0


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

    def pays(self, least: float, errors: float, times_the_cost: float) -> bool:
        """Whether it makes an iteration shorter by more than a part and than so many errors, and gains enough."""
        enough = max(least, errors * self.error)
        return self.improvement > enough and self.gain > times_the_cost * self.cost

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


def as_it_goes(run: Tended) -> Contract:
    """Return the contract that is just what is measured now."""
    pace = run.watched.pace()
    return run.contract if pace is None else Contract(pace.iteration_seconds, pace.compute_seconds)
