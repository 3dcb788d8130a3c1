"""The order in which a sweep's tasks are placed: the heuristics of Casanova et al. 2000, and a work queue.

A heuristic is a plain function from the chart to the column of the next task; the task is placed on the lane that
completes it first. Only the work queue also returns the lane, because it uses no predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from apples.applications.parameter_sweep.costs import Numbers
from apples.applications.parameter_sweep.gantt import SweepGantt

Heuristic = Callable[[SweepGantt], tuple[int, int | None]]
"""Returns the column of the next task, with finite completion, and its lane; None: the earliest to complete it."""


def min_min(chart: SweepGantt) -> tuple[int, int | None]:
    """Return the task with the earliest completion."""
    return int(chart.first.min(axis=0).argmin()), None


def max_min(chart: SweepGantt) -> tuple[int, int | None]:
    """Return the task whose best completion is the latest of all tasks."""
    return _largest(first := chart.first.min(axis=0), first), None


def sufferage(chart: SweepGantt) -> tuple[int, int | None]:
    """Return the task that loses most time without its best lane."""
    first, second = chart.best()
    return _largest(_loss(first, second), first), None


def xsufferage(chart: SweepGantt) -> tuple[int, int | None]:
    """Return the task that loses most time without its best site.

    With one site, no other site can be compared: this is then the same as `sufferage`.
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
"""Heuristics that read `SweepGantt.second`."""


def _loss(first: Numbers, second: Numbers) -> Numbers:
    """Return second less first; without a first, a number less than any loss."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(first), second - first, -np.inf)


def _largest(value: Numbers, first: Numbers) -> int:
    return int(np.where(np.isfinite(first), value, -np.inf).argmax())
