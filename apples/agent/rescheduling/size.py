"""The hosts for a running application that asks for another number of them (an evolving job)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from apples.agent.coordinator import Coordinator, DecisionLog
from apples.agent.rescheduling.evaluation import as_measured
from apples.resources.schedule import Estimate


def best_of_size(
    coordinator: Coordinator,
    rows: Mapping[str, int],
    seconds: Mapping[str, float],
    fewest: int,
    most: int,
) -> Estimate:
    """Return the best schedule of so many hosts for an application that runs, under the weather of this moment.

    Parameters
    ----------
    rows, seconds
        By host: what it has now, and what it was measured to compute in an iteration.
    fewest, most
        Hosts; they take the place of what the user specifications say.

    Raises
    ------
    NoFeasiblePlanError
        The host list has no such set that is feasible; carries every refusal.
    """
    measured = as_measured(coordinator.refresh(coordinator.information), rows, seconds)
    limits = {"minimum_hosts": fewest, "maximum_hosts": most}
    constraints = measured.specifications.constraints.model_copy(update=limits)
    sized = measured.specifications.model_copy(update={"constraints": constraints})
    other = coordinator.under(replace(measured, specifications=sized), DecisionLog())
    candidates = []
    for resources in other.select_resources():
        schedule = other.plan(resources)
        if other.is_feasible(schedule):
            candidates.append(other.estimate(schedule))
    return other.best(candidates)
