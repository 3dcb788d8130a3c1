"""`Move` and `evaluate_move`: what moving a running application would bring, and what it would cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from apples.agent.estimator import PerformanceEstimator
from apples.agent.information import InformationPool
from apples.agent.rescheduling.monitor import IterationRate
from apples.schedule import Allocation, Estimate, Schedule
from apples.units import duration

STALL_SECONDS = 0.5
"""Assumed standstill of a move beside the transfer of its data, until a move of the run was measured."""
REMEMBERED_MOVES = 3
"""The largest of so many measured standstills is a lower bound on the cost of the next move."""


@dataclass(frozen=True, slots=True)
class Move:
    """A proposal to continue on other hosts or rows, evaluated.

    Attributes
    ----------
    estimate
        The candidate.
    iteration_seconds, next_seconds
        One iteration as measured now, and as predicted after the move.
    remaining
        Iterations left.
    cost
        Seconds the application would stand still for the move.
    error
        Relative standard error of the measurement: an improvement must exceed it.
    violation
        Which host violates the contract, in words; empty where the evaluation was periodic.
    """

    estimate: Estimate
    iteration_seconds: float
    next_seconds: float
    remaining: int
    cost: float
    error: float
    violation: str

    @property
    def improvement(self) -> float:
        """The part by which an iteration would become shorter."""
        return 1.0 - self.next_seconds / self.iteration_seconds

    @property
    def gain(self) -> float:
        """Seconds that the iterations left would take less, before the cost is subtracted."""
        return self.remaining * (self.iteration_seconds - self.next_seconds)

    @property
    def payback(self) -> float:
        """Seconds after which the move has paid for itself; infinite where it never does."""
        saved = self.iteration_seconds - self.next_seconds
        return self.cost / saved * self.next_seconds if saved > 0 else float("inf")

    def pays(
        self, least_improvement: float, standard_errors: float, times_the_cost: float
    ) -> bool:
        """Whether the improvement exceeds both a part and so many errors, and the gain a multiple of the cost."""
        enough = max(least_improvement, standard_errors * self.error)
        return self.improvement > enough and self.gain > times_the_cost * self.cost

    def explanation(self) -> str:
        """Return the reason, the gain and the cost in words."""
        schedule = self.estimate.schedule
        where = ", ".join(f"{a.host.name} {a.rows:.0f}" for a in schedule.allocations)
        payback = f", paid back after {duration(self.payback)}" if self.payback < 1e9 else ""
        return (
            f"{self.violation or 'a look around'}: on {where} an iteration would take "
            f"{duration(self.next_seconds)} in place of {duration(self.iteration_seconds)}; "
            f"{self.remaining} are left, gain {duration(max(0.0, self.gain))}, cost {duration(self.cost)}{payback}"
        )


def evaluate_move(
    candidate: Estimate,
    rows: Mapping[str, int],
    rate: IterationRate,
    remaining: int,
    information: InformationPool,
    estimator: PerformanceEstimator,
    *,
    costs: Sequence[float] = (),
    violation: str = "",
) -> Move | None:
    """Return what moving a running application to a candidate would bring and cost; None where it would not move.

    Parameters
    ----------
    rows
        The rows of each host now, in strip order.
    rate
        The measured iteration rate on them.
    remaining
        Iterations left.
    information
        The pool in which the hosts in use take what they were measured to take (`as_measured`).
    costs
        Measured seconds of the moves made so far.
    violation
        Why the evaluation was made.
    """
    if {a.host.name: int(a.rows) for a in candidate.schedule.allocations} == dict(rows):
        return None
    staying = _estimate_of(rows, information, estimator)
    # An iteration here takes longer than the model says by what the model leaves out; so it does there.
    overhead = max(1.0, rate.iteration_seconds / staying.iteration_seconds)
    return Move(
        candidate,
        rate.iteration_seconds,
        candidate.iteration_seconds * overhead,
        remaining,
        max([_move_seconds(rows, candidate.schedule, information), *costs[-REMEMBERED_MOVES:]]),
        rate.error,
        violation,
    )


def _estimate_of(
    rows: Mapping[str, int], information: InformationPool, estimator: PerformanceEstimator
) -> Estimate:
    """Return the estimate of the hosts and rows the application has now."""
    hosts = information.hosts
    allocations = tuple(
        Allocation(hosts[name], float(count), information.implementation(hosts[name]))
        for name, count in rows.items()
    )
    return estimator.estimate(Schedule(allocations), information)


def _move_seconds(
    rows: Mapping[str, int], schedule: Schedule, information: InformationPool
) -> float:
    """Return the expected seconds of a move: the rows each host gains over its slowest link, and the stall."""
    application, conditions = information.application, information.conditions
    row_bytes = application.strip_memory(1) - application.strip_memory(0)
    current = [information.hosts[name] for name in rows]
    seconds = STALL_SECONDS
    for one in schedule.allocations:
        gained = int(one.rows) - rows.get(one.host.name, 0)
        links = [
            conditions.link(other, one.host).link for other in current if other is not one.host
        ]
        if gained > 0 and links:
            seconds += gained * row_bytes / min(link.bandwidth for link in links)
    return seconds
