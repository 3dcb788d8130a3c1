"""`plan_pipeline`: the hosts of each task, pipelined on separate sets of hosts or alternating on one set.

Up to `EXHAUSTIVE` assignments all are compared. Above that, a search starts from several assignments and changes
single hosts and pairs of hosts while that helps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations, product
from math import inf

from apples.applications.pipeline.estimate import PipelineCosts, PipelinePlan, Sets
from apples.resources.schedule import NoFeasiblePlanError, Rejection

# Two or three tasks on six hosts are exact. Local search alone gave over 1.5 times the best in one
# of a hundred worlds.
EXHAUSTIVE = 20_000
ALL_SUBSETS = 10
"""Hosts up to which alternating tries every set; of more, it tries the fastest, the two fastest, and so on."""
NONE_FITS = "no mapping has an implementation, a row and memory for each task on each of its hosts"
NOBODY = -1
MAX_CANDIDATES = 5_000
"""Changes that the local search tries from each start."""
MIN_GAIN = 1e-12


@dataclass(frozen=True)
class PipelineDecision:
    """The fastest plan, and the best plan of each feasible mode."""

    plan: PipelinePlan
    plans: tuple[PipelinePlan, ...]


def plan_pipeline(costs: PipelineCosts) -> PipelineDecision:
    """Return the faster of the best pipelined and the best alternating plan.

    Raises
    ------
    NoFeasiblePlanError
        No host has an implementation, rows or memory for some task.
    """
    plans = [plan for plan in (best_mapping(costs), best_alternating(costs)) if plan is not None]
    if not plans:
        hosts = tuple(host.name for host in costs.hosts)
        raise NoFeasiblePlanError((Rejection(hosts, NONE_FITS, (0.0, 0.0), "memory"),))
    plans.sort(key=lambda plan: plan.seconds)
    return PipelineDecision(plans[0], tuple(plans))


def best_mapping(costs: PipelineCosts) -> PipelinePlan | None:
    """Return the fastest pipelined plan found; None if none is feasible."""
    count, tasks = len(costs.hosts), len(costs.tasks)
    if (tasks + 1) ** count <= EXHAUSTIVE:
        every = (_sets(each, tasks) for each in product(range(NOBODY, tasks), repeat=count))
        plans = (costs.plan("pipelined", sets) for sets in every if all(sets))
        return min((p for p in plans if p), key=lambda plan: plan.seconds, default=None)
    climbed = (climb(costs, list(each)) for each in beginnings(costs))
    return min((p for p in climbed if p), key=lambda plan: plan.seconds, default=None)


def best_alternating(costs: PipelineCosts) -> PipelinePlan | None:
    """Return the fastest plan with all tasks in turn on one set of hosts; None if none is feasible."""
    numbers = range(len(costs.hosts))
    order = sorted(numbers, key=lambda host: float(costs.point[host]))
    if len(order) <= ALL_SUBSETS:
        sets: Iterator[tuple[int, ...]] = chain.from_iterable(
            combinations(numbers, size) for size in range(1, len(order) + 1)
        )
    else:
        sets = (tuple(sorted(order[:size])) for size in range(1, len(order) + 1))
    plans = (costs.plan("alternating", (each,) * len(costs.tasks)) for each in sets)
    return min((p for p in plans if p), key=lambda plan: plan.seconds, default=None)


def climb(
    costs: PipelineCosts, tasks_of: list[int], most_tried: int = MAX_CANDIDATES
) -> PipelinePlan | None:
    """Return the plan of an assignment after a local search: hosts change their tasks while the plan gets faster.

    Changes are tried in turn, each from the last success, until no change helps or `most_tried` were tried.
    """
    best, tried, better = _plan(costs, tasks_of), 0, True
    while better:
        better = False
        for change in _changes(len(tasks_of), len(costs.tasks)):
            other = _changed(tasks_of, change)
            if other == tasks_of:
                continue
            if tried == most_tried:
                return best
            tried += 1
            found = _plan(costs, other)
            if found and (best is None or found.seconds < best.seconds * (1 - MIN_GAIN)):
                tasks_of, best, better = other, found, True
    return best


def _changes(hosts: int, tasks: int) -> Iterator[dict[int, int | None]]:
    """Yield the changes: a host gets another task, or (None) two hosts exchange their tasks."""
    for host, task in product(range(hosts), range(NOBODY, tasks)):
        yield {host: task}
    for one, other in combinations(range(hosts), 2):
        yield {one: None, other: None}


def _changed(tasks_of: list[int], change: dict[int, int | None]) -> list[int]:
    changed = list(tasks_of)
    hosts = list(change)
    for host, other in zip(hosts, reversed(hosts), strict=True):
        task = change[host]
        changed[host] = tasks_of[other] if task is None else task
    return changed


def beginnings(costs: PipelineCosts) -> Iterator[list[int]]:
    """Yield starts: each host goes to the task with least speed so far; fastest hosts first, or in list order."""
    tasks = range(len(costs.tasks))
    numbers = range(len(costs.hosts))
    by_speed = sorted(numbers, key=lambda host: float(costs.point[host]))
    for order in (by_speed, list(numbers)):
        found, speed = [NOBODY] * len(costs.hosts), [0.0] * len(costs.tasks)
        for host in order:
            able = [task for task in tasks if costs.seconds[task, host] < inf]
            if able:
                task = min(able, key=lambda task: speed[task])
                found[host] = task
                speed[task] += 1.0 / max(1e-300, float(costs.seconds[task, host]))
        yield found


def _plan(costs: PipelineCosts, tasks_of: list[int]) -> PipelinePlan | None:
    sets = _sets(tasks_of, len(costs.tasks))
    return costs.plan("pipelined", sets) if all(sets) else None


def _sets(tasks_of: tuple[int, ...] | list[int], tasks: int) -> Sets:
    return tuple(
        tuple(host for host, task in enumerate(tasks_of) if task == each) for each in range(tasks)
    )
