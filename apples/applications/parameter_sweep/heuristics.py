"""In which order a sweep's tasks are placed, and where: the heuristics of Casanova et al. 2000, and a work queue.

A heuristic is a plain function: the chart in, the column of the task to place next out; the task goes where it
is done first. Only the work queue also says where: it knows no predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from apples.applications.parameter_sweep.costs import Numbers
from apples.applications.parameter_sweep.gantt import SweepGantt

Heuristic = Callable[[SweepGantt], tuple[int, int | None]]
"""Returns the column of the next task, whose completion is finite, and its lane; None: where it is done first."""


def min_min(chart: SweepGantt) -> tuple[int, int | None]:
    """Return the task that can be done first."""
    return int(chart.first.min(axis=0).argmin()), None


def max_min(chart: SweepGantt) -> tuple[int, int | None]:
    """Return the task whose earliest completion is latest."""
    return _largest(first := chart.first.min(axis=0), first), None


def sufferage(chart: SweepGantt) -> tuple[int, int | None]:
    """Return the task that would suffer most if it did not get the lane on which it is done first."""
    first, second = chart.best()
    return _largest(_loss(first, second), first), None


def xsufferage(chart: SweepGantt) -> tuple[int, int | None]:
    """Return the task that would suffer most if it did not get the site where it is done first.

    With one site there is no other to suffer at: then as `sufferage`.
    """
    if len(chart.costs.caches) == 1:
        return sufferage(chart)
    first, second = chart.best_caches()
    return _largest(_loss(first, second), first), None


def work_queue(chart: SweepGantt) -> tuple[int, int | None]:
    """Return the next task of the list that fits anywhere, and the lane that is free first; predicts nothing."""
    column = int(np.isfinite(chart.first.min(axis=0)).argmax())
    return column, chart.next_lane(column)


HEURISTICS: Mapping[str, Heuristic] = {
    "min-min": min_min,
    "max-min": max_min,
    "sufferage": sufferage,
    "xsufferage": xsufferage,
    "work-queue": work_queue,
}
SECOND_LANE = {"sufferage", "xsufferage"}
"""Those that read `SweepGantt.second`."""


def _loss(first: Numbers, second: Numbers) -> Numbers:
    """Return second less first; where there is no first, less than any loss."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(first), second - first, -np.inf)


def _largest(value: Numbers, first: Numbers) -> int:
    return int(np.where(np.isfinite(first), value, -np.inf).argmax())
