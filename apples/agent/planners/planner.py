"""`Planner`: turns an ordered set of hosts into a schedule for the objective of the user.

A planner is a plain callable: ``planner(resources, information) -> Schedule``. Its contract:

- The schedule has hosts of `resources` only, each once, strips in their order (rectangles in any order).
- Each strip has whole rows, at least one; the rows add up to the grid. If that is impossible, for example because
  memory is short, the planner returns its result all the same, and a filter rejects it with numbers.
- Hosts without work are listed in `Schedule.dropped`.
- It is pure: the same two arguments give the same schedule.

A user's own planner is ``--planner module:name`` or ``file.py:name``. `equal_strips` is the simplest planner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from apples.agent.information import InformationPool
from apples.resources import Host, ResourceSet
from apples.resources.apportionment import equal_parts
from apples.resources.schedule import Allocation, Schedule

Planner = Callable[[ResourceSet, InformationPool], Schedule]


def schedule(
    information: InformationPool,
    hosts: Sequence[Host],
    rows: Iterable[float],
    planner: str,
    dropped: Sequence[Host] = (),
) -> Schedule:
    """Return the schedule that gives each host its rows, with the implementation of the active set."""
    allocations = tuple(
        Allocation(host, strip, information.implementation(host))
        for host, strip in zip(hosts, rows, strict=True)
    )
    return Schedule(allocations, planner, tuple(dropped))


def by_threads(schedule: Schedule, information: InformationPool) -> Schedule:
    """Return the schedule by threads instead of ranks, if it has one host and is estimated to be faster so.

    It stays unchanged if the template has no such implementation for the host, if no calibration measured that
    implementation there, or if the host has a rectangle.
    """
    if len(schedule.allocations) != 1 or schedule.rectangles:
        return schedule
    (one,) = schedule.allocations
    threads = information.by_threads_on(one.host)
    if threads is None:
        return schedule
    name = threads.implementation(one.host)
    shared = replace(one, implementation=name, threads=one.host.slots)
    found = replace(schedule, allocations=(shared,))
    by_thread, by_rank = (information.model_of(s).iteration_seconds(s) for s in (found, schedule))
    return found if by_thread < by_rank else schedule


def equal_strips(resources: ResourceSet, information: InformationPool) -> Schedule:
    """Return the schedule with equal rows on all hosts; the first hosts get one row more where needed.

    This is a compile-time block distribution, independent of the hosts' performance. The paper's method 1 cuts
    square blocks (HPF); this planner cuts equal strips, and the tables state that.
    """
    rows = equal_parts(information.application.rows, len(resources))
    return schedule(information, resources, rows, "blocked")
