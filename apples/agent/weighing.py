"""Weighing a move: what it would bring an application that runs, and what it would cost."""

from __future__ import annotations

from collections.abc import Mapping

from apples.agent.estimator import PerformanceEstimator
from apples.agent.information import InformationPool
from apples.agent.rescheduling import Move, Tended
from apples.schedule import Allocation, Estimate, Schedule

STALL_SECONDS = 0.5
"""What a move is taken to cost beside its data, until one was measured."""


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
