"""`plan_sweep`: a plan by every heuristic under the same forecasts, of which the shortest is taken."""

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
    """Which task runs where and when, which file moves when.

    Attributes
    ----------
    heuristic
        The name of the one that made it.
    makespan
        When its last task is done, seconds on the clock of its progress.
    tasks, transfers
        In the order in which they were booked; those of a lane, and of a link, follow one another.
    """

    heuristic: str
    makespan: float
    tasks: tuple[TaskBooking, ...]
    transfers: tuple[TransferBooking, ...]


@dataclass(frozen=True)
class SweepDecision:
    """The plan that was taken, and what each heuristic would have come to."""

    plan: SweepPlan
    makespans: Mapping[str, float]


def plan_by(
    name: str, heuristic: Heuristic, costs: SweepCosts, progress: SweepProgress = BEGINNING
) -> SweepPlan:
    """Return the plan of one heuristic for the tasks that are not settled.

    Raises
    ------
    NoFeasiblePlanError
        The files of a task fit into no cache any more.
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
    """Return the plan with the shortest makespan, of those that the heuristics make.

    Raises
    ------
    NoFeasiblePlanError
        No heuristic has one; with the reason of each.
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
    """Say which of the waiting tasks asks least of a cache, and how much that is more than any has left."""
    size, room, number = chart.least_shortage()
    task, hosts = chart.costs.sweep.tasks[number], tuple(dict.fromkeys(chart.costs.hosts))
    reason = (
        f"task {task.name} needs {amount(size)} of files that no cache has, and the most that one has left "
        f"is {amount(room)}"
    )
    return Rejection(hosts, reason, (size, room), "storage")
