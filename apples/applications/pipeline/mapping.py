"""`plan_pipeline`: which hosts do which task, pipelined on sets of their own or alternating on one set.

Up to `EXHAUSTIVE` assignments all are compared; of more, each of several beginnings is improved host by host, and
two by two, as long as that helps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations, product
from math import inf

from apples.applications.pipeline.estimate import PipelineCosts, PipelinePlan, Sets
from apples.resources.schedule import NoFeasiblePlanError, Rejection

# Two or three tasks on six hosts are exact. Improvement alone was over 1.5 times the best in one
# of a hundred worlds.
EXHAUSTIVE = 20_000
ALL_SUBSETS = 10
"""Of up to so many hosts every set is tried for alternating; of more, the quickest one, two, .. of them."""
NONE_FITS = "no mapping has an implementation, a row and memory for each task on each of its hosts"
NOBODY = -1
MAX_CANDIDATES = 5_000
"""Changes of each beginning, which is improved as far as they go."""
MIN_GAIN = 1e-12


@dataclass(frozen=True)
class PipelineDecision:
    """The quickest plan, and the best of each mode that there is one of."""

    plan: PipelinePlan
    plans: tuple[PipelinePlan, ...]


def plan_pipeline(costs: PipelineCosts) -> PipelineDecision:
    """Return the quickest of the pipelined and of the alternating plans.

    Raises
    ------
    NoFeasiblePlanError
        No host has an implementation, rows or memory for what there would be to do.
    """
    plans = [plan for plan in (best_mapping(costs), best_alternating(costs)) if plan is not None]
    if not plans:
        hosts = tuple(host.name for host in costs.hosts)
        raise NoFeasiblePlanError((Rejection(hosts, NONE_FITS, (0.0, 0.0), "memory"),))
    plans.sort(key=lambda plan: plan.seconds)
    return PipelineDecision(plans[0], tuple(plans))


def best_mapping(costs: PipelineCosts) -> PipelinePlan | None:
    """Return the quickest pipelined plan found; None where there is none."""
    count, tasks = len(costs.hosts), len(costs.tasks)
    if (tasks + 1) ** count <= EXHAUSTIVE:
        every = (_sets(each, tasks) for each in product(range(NOBODY, tasks), repeat=count))
        plans = (costs.plan("pipelined", sets) for sets in every if all(sets))
        return min((p for p in plans if p), key=lambda plan: plan.seconds, default=None)
    climbed = (climb(costs, list(each)) for each in beginnings(costs))
    return min((p for p in climbed if p), key=lambda plan: plan.seconds, default=None)


def best_alternating(costs: PipelineCosts) -> PipelinePlan | None:
    """Return the quickest plan that has all tasks in turn on one set of hosts; None where there is none."""
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
    """Return the plan that an assignment comes to when hosts change their tasks as long as it is quicker.

    Changes are tried one after the other from where the last was made, until none of them helps, or `most_tried`
    were.
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
    """Yield what may be changed: a host has this task, or (None) two have each other's."""
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
    """Yield assignments: the quickest host to the task that has most to do for what it has; in two orders."""
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
