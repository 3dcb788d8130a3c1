"""`plan_sweep`: makes a plan by every heuristic under the same forecasts, and takes the shortest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from apples.applications.parameter_sweep.costs import SweepCosts
from apples.applications.parameter_sweep.gantt import (
    SweepGantt,
    SweepProgress,
    TaskBooking,
    TransferBooking,
)
from apples.applications.parameter_sweep.heuristics import HEURISTICS, SECOND_LANE, Heuristic
from apples.resources.schedule import NoFeasiblePlanError, Rejection
from apples.ui.units import amount

BEGINNING = SweepProgress()


@dataclass(frozen=True)
class SweepPlan:
    """The host and the times of each task, and the times of each transfer.

    Attributes
    ----------
    heuristic
        Name of the heuristic that made it.
    makespan
        End of its last task, in seconds on the clock of its progress.
    tasks, transfers
        In the order of booking; those of a lane, and of a link, follow one another.
    """

    heuristic: str
    makespan: float
    tasks: tuple[TaskBooking, ...]
    transfers: tuple[TransferBooking, ...]


@dataclass(frozen=True)
class SweepDecision:
    """The chosen plan, and the makespan of each heuristic's plan."""

    plan: SweepPlan
    makespans: Mapping[str, float]


def plan_by(
    name: str, heuristic: Heuristic, costs: SweepCosts, progress: SweepProgress = BEGINNING
) -> SweepPlan:
    """Return the plan of one heuristic for the tasks that are not settled.

    Raises
    ------
    NoFeasiblePlanError
        The files of a task fit into no cache.
    """
    chart = SweepGantt(costs, progress, runner_up=name not in HEURISTICS or name in SECOND_LANE)
    while chart.left:
        if not np.isfinite(chart.first).any():
            raise NoFeasiblePlanError((_too_large(chart),))
        chart.place(*heuristic(chart))
    ends = [booking.end for booking in chart.tasks]
    return SweepPlan(
        name, max(ends, default=progress.now), tuple(chart.tasks), tuple(chart.transfers)
    )


def plan_sweep(
    costs: SweepCosts,
    progress: SweepProgress = BEGINNING,
    heuristics: Mapping[str, Heuristic] = HEURISTICS,
) -> SweepDecision:
    """Return the plan with the shortest makespan among the heuristics' plans.

    Raises
    ------
    NoFeasiblePlanError
        All heuristics failed; with the reason of each.
    """
    plans: list[SweepPlan] = []
    refused: tuple[Rejection, ...] = ()
    for name, heuristic in heuristics.items():
        try:
            plans.append(plan_by(name, heuristic, costs, progress))
        except NoFeasiblePlanError as error:
            refused += error.rejections
    if not plans:
        raise NoFeasiblePlanError(refused)
    best = min(plans, key=lambda plan: plan.makespan)
    return SweepDecision(best, {plan.heuristic: plan.makespan for plan in plans})


def _too_large(chart: SweepGantt) -> Rejection:
    """Return the waiting task that lacks fewest bytes of cache space, as a rejection with the two numbers."""
    size, room, number = chart.least_shortage()
    task, hosts = chart.costs.sweep.tasks[number], tuple(dict.fromkeys(chart.costs.hosts))
    reason = (
        f"task {task.name} needs {amount(size)} of files that no cache has, and the most that one has left "
        f"is {amount(room)}"
    )
    return Rejection(hosts, reason, (size, room), "storage")
