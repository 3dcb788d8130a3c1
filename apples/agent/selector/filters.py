"""Filters: rules by which a host is unusable or a schedule infeasible; each refusal has two numbers.

A `HostFilter` checks one host before planning; a `Filter` checks a schedule (Berman et al. 1996, section 2.3:
negative strips, free memory; section 4.4: access rights, implementations).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from apples.agent.information import InformationPool, refusal
from apples.agent.models.rectangle import covered_once
from apples.errors import UsageError, place_of_function
from apples.resources import Host, ResourceSet, names
from apples.resources.schedule import Rejection, Schedule
from apples.ui.units import amount, duration, listed

HostFilter = Callable[[Host, InformationPool], Rejection | None]
Filter = Callable[[Schedule, InformationPool], Rejection | None]


def checked(refuse: Callable[..., object], answer: object) -> Rejection:
    """Return the answer of a filter after a check of its type.

    Raises
    ------
    UsageError
        The answer is neither a `Rejection` nor None; the message has the first line of the filter. Permanent.
    """
    if isinstance(answer, Rejection):
        return answer
    place = place_of_function(refuse)
    where = f"{place['file']}:{place['line']}: " if place else ""
    name = getattr(refuse, "__name__", type(refuse).__name__)
    raise UsageError(
        f"{where}filter {name} returned {answer!r:.80}; a filter returns None or a Rejection",
        code="filter-invalid",
        value=f"{answer!r:.80}",
        filter=name,
        **place,
    )


def access(host: Host, information: InformationPool) -> Rejection | None:
    """Refuse a host that the user specifications do not allow."""
    reason = information.specifications.constraints.refusal(host.name, host.site)
    if reason is None:
        return None
    return Rejection((host.name,), reason, (1.0, 0.0), "access")


def chosen_already(
    names: Sequence[str],
    host: Host,
    information: InformationPool,  # noqa: ARG001 - as every filter
) -> Rejection | None:
    """Refuse a host that is not among the hosts chosen in advance."""
    if host.name in names:
        return None
    reason = f"{host.name} is none of the {len(names)} hosts chosen already: {', '.join(names)}"
    return Rejection((host.name,), reason, (0.0, 1.0), "chosen_already")


def fitness(host: Host, information: InformationPool) -> Rejection | None:
    """Refuse a host that did not answer its check, or lacks a requirement of the run."""
    reason = refusal(information, host)
    if not reason:
        return None
    return Rejection((host.name,), f"{host.name} cannot be used: {reason}", (0.0, 1.0), "fitness")


def implementation(host: Host, information: InformationPool) -> Rejection | None:
    """Refuse a host on which no implementation of the template is available."""
    if information.implementation(host):
        return None
    count = len(information.template.implementations)
    return Rejection(
        (host.name,),
        f"{host.name} can run 0 of {count} implementations: {information.active_set.left_out.get(host.name, '')}",
        (0.0, float(count)),
        "implementation",
    )


def one_row_of_memory(host: Host, information: InformationPool) -> Rejection | None:
    """Refuse a host without free memory for a strip of a single row."""
    available, needed = information.memory_offered(host), information.model.memory(1)
    if available >= needed:
        return None
    return Rejection(
        (host.name,),
        f"{host.name} offers {amount(available)}, a strip of one row needs {amount(needed)}",
        (available, needed),
        "memory",
    )


def negative_strip(schedule: Schedule, information: InformationPool) -> Rejection | None:
    """Refuse a schedule that gives a host less than a row, or no point (the paper's first filter)."""
    for allocation in schedule.allocations:
        mine, name = allocation.rectangle, allocation.host.name
        if mine is not None and mine.points < 1:
            return Rejection(
                names(schedule.resources),
                f"{name} would have {mine.rows} x {mine.columns} points, at least 1 is needed",
                (float(mine.points), 1.0),
                "negative_strip",
            )
    rows = np.array(schedule.rows, dtype=float)
    if rows.size == 0 or rows.min() >= 1 or schedule.rectangles:
        return None  # NaN rows do not pass either
    worst = int(rows.argmin())
    host = schedule.resources[worst]
    border = float(information.model.communication(schedule.resources)[worst])
    return Rejection(
        names(schedule.resources),
        f"{host.name} would have to compute {rows[worst]:.4g} rows: its border costs "
        f"{duration(border)}, at least 1 row is needed",
        (float(rows[worst]), 1.0),
        "negative_strip",
    )


def whole_grid(schedule: Schedule, information: InformationPool) -> Rejection | None:
    """Refuse a schedule unless its strips add up to the grid, or its rectangles cover it exactly once."""
    if schedule.rectangles:
        return _covered(schedule, information)
    total, held = information.application.rows, sum(schedule.rows)
    for allocation in schedule.allocations:
        if not float(allocation.rows).is_integer():
            below, name = math.floor(allocation.rows), allocation.host.name
            return Rejection(
                names(schedule.resources),
                f"{schedule.planner or 'the planner'} gives {name} {allocation.rows:.6g} rows; "
                f"rows are whole, such as {below} or {below + 1}",
                (float(allocation.rows), float(below)),
                "rows",
            )
    if held == total:
        return None
    hosts = listed(names(schedule.resources) or names(schedule.dropped))
    if held > total:
        return Rejection(
            names(schedule.resources),
            f"{hosts}: {len(schedule.rows)} hosts need at least a row each, the grid has {total}",
            (float(len(schedule.rows)), float(total)),
            "rows",
        )
    return Rejection(
        names(schedule.resources) or names(schedule.dropped),
        f"memory and limits of {hosts} admit {held:.0f} rows, the grid has {total}",
        (float(held), float(total)),
        "memory",
    )


def _covered(schedule: Schedule, information: InformationPool) -> Rejection | None:
    """Refuse a schedule if a host has no rectangle, or a point of the grid is not in exactly one rectangle."""
    application, count = information.application, len(schedule.allocations)
    found = covered_once(schedule.rectangles, application.rows, application.columns)
    if len(schedule.rectangles) == count and found == application.rows * application.columns:
        return None
    return Rejection(
        names(schedule.resources),
        f"the rectangles of {len(schedule.rectangles)} of {count} hosts have {found} points of the grid "
        f"exactly once, it has {application.rows * application.columns}",
        (float(found), float(application.rows * application.columns)),
        "rows",
    )


def strip_memory(schedule: Schedule, information: InformationPool) -> Rejection | None:
    """Refuse a strip or rectangle larger than its host's free memory (the paper's second filter)."""
    model, pool = information.model_of(schedule), information.pool_of(schedule)
    caps = model.caps(schedule.resources, information.application.rows)
    for allocation, cap in zip(schedule.allocations, caps, strict=True):
        host, mine = allocation.host, allocation.rectangle
        needed, available = model.memory_of(allocation), pool.memory_offered(host)
        if needed > available if mine else allocation.rows > cap:
            what = (
                f"rectangle of {mine.rows} x {mine.columns} points"
                if mine
                else f"strip of {allocation.rows:.0f} rows"
            )
            return Rejection(
                names(schedule.resources),
                f"{host.name} would page: its {what} needs "
                f"{amount(needed)}, {amount(available)} is offered",
                (needed, available),
                "memory",
            )
    return None


def every_host_used(
    schedule: Schedule, resources: ResourceSet, information: InformationPool
) -> Rejection | None:
    """Refuse a schedule if its planner left a host of the set without work."""
    if not schedule.dropped or not schedule.allocations:
        return None
    host = schedule.dropped[0]
    model, place = information.model, resources.index(host)
    row = model.busy_seconds(resources, np.ones(len(resources)))
    rows = np.array(schedule.rows, dtype=float)
    longest = float(information.model_of(schedule).busy_seconds(schedule.resources, rows).max())
    return Rejection(
        names(resources),
        f"{host.name} would get no rows: its border and a single row cost "
        f"{duration(row[place])}, the others need {duration(longest)} for all of it",
        (float(row[place]), longest),
        "negative_strip",
    )


HOST_FILTERS: Sequence[HostFilter] = (access, fitness, implementation, one_row_of_memory)
FILTERS: Sequence[Filter] = (negative_strip, whole_grid, strip_memory)
"""The built-in schedule filters; the user's limits are checked after them (`Limits.refuse`)."""
