"""The allocator: which free CPUs of a machine a job gets, or the one reason why not. Pure.

Best fit minimises, in this order, the radius, the total distance, the usable CPUs of the ball they come
from (the tightest is used up first), the number of parts broken into, and the CPU numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from apples.topology.choosing import best_choice
from apples.topology.cpus import CpuSet
from apples.topology.machine import Topology
from apples.topology.nearness import balls_for, capacity, rules_of, usable_cpus
from apples.topology.packing import Rules
from apples.topology.parts import Branch
from apples.topology.refusing import refusal, unlucky
from apples.topology.requirement import Fit, Placement, Refusal, Requirement


def fit(topology: Topology, free: CpuSet, requirement: Requirement) -> Fit | Refusal:
    """Return the CPUs of `free` that satisfy a requirement best, or why it cannot be.

    The same arguments give the same answer, always. Nothing is booked: that is the caller's part.

    Parameters
    ----------
    free
        CPUs nobody has; those the machine does not have, or may not use, are left out.

    Examples
    --------
    >>> from apples.topology import synthetic
    >>> machine = synthetic("package:2 l3:2 pu:4")
    >>> found = fit(machine, CpuSet.parse("3-9"), Requirement(4))
    >>> str(found.cpus), found.radius, found.total
    ('4-7', 1.0, 6.0)
    """
    refused = refusal(topology, free.mask, requirement)
    if refused is not None:
        return refused
    rules = rules_of(topology, requirement)
    usable = usable_cpus(topology, free.mask, requirement)
    if requirement.placement is Placement.BEST:
        balls = balls_for(topology, usable, requirement)
        chosen = best_choice(topology.hops, balls, requirement.count, rules)
    elif requirement.max_radius is None:
        chosen = _take(topology, usable, requirement, rules)
    else:
        chosen = _take_around(topology, usable, requirement, rules)
    if not chosen:
        return unlucky(requirement)
    radius, centre = topology.hops.centre(chosen)
    cpus = CpuSet(chosen)
    memory = topology.memory_of(cpus) if requirement.memory is None else requirement.memory
    return Fit(cpus, radius, centre, topology.hops.total(chosen), memory)


def _take(topology: Topology, usable: int, requirement: Requirement, rules: Rules) -> int:
    units = [unit for unit in _units(topology, rules) if not unit & ~usable]
    return _fill(topology, units, requirement, rules, 0)


def _take_around(topology: Topology, usable: int, requirement: Requirement, rules: Rules) -> int:
    """Return a choice within MAX_RADIUS hops of its first possible centre."""
    units = _units(topology, rules)
    limit = requirement.max_radius
    count_in = capacity(topology, rules)
    for unit in units:
        if unit & ~usable:
            continue
        around = _ball(topology, unit, usable, limit)
        if count_in(around) >= requirement.count:
            inside = [each for each in units if not each & ~around and each != unit]
            chosen = _fill(topology, inside, requirement, rules, unit)
            if chosen:
                return chosen
    return 0


def _ball(topology: Topology, unit: int, usable: int, limit: float | None) -> int:
    """Return the usable CPUs within `limit` hops of the lowest CPU of a unit."""
    low, around = unit & -unit, unit
    for balls in topology.hops.balls:
        if limit is not None and balls.radius > limit:
            break
        around |= next((mask for mask, centres in balls.members if low & centres), 0)
    return around & usable


def _units(topology: Topology, rules: Rules) -> Sequence[int]:
    """Return what is given at a time, by lowest CPU: whole cores or single CPUs."""
    return topology.units if rules.whole else [1 << cpu for cpu in topology.cpus]


def _fill(
    topology: Topology, units: Sequence[int], requirement: Requirement, rules: Rules, chosen: int
) -> int:
    """Return a mask with as many of the units added as are asked for; 0 if they do not suffice."""
    ordered: Iterator[int] = iter(units)
    if requirement.placement is Placement.SPREAD:
        ordered = _spread(topology.branch, units)
    for unit in ordered:
        if chosen.bit_count() >= requirement.count:
            break
        taken = chosen | unit
        if all(
            (taken & cpus).bit_count() <= cap for cpus, cap in rules.caps.items() if unit & cpus
        ):
            chosen = taken
    return chosen if chosen.bit_count() >= requirement.count else 0


def _spread(branch: Branch, units: Sequence[int]) -> Iterator[int]:
    """Yield the units so that at every step the parts of a level have given about as many each."""
    if len(units) <= 1:
        yield from units
        return
    inside = [[unit for unit in units if unit & child.cpus] for child in branch.children]
    parts = zip(branch.children, inside, strict=True)
    streams = [_spread(child, some) for child, some in parts if some]
    while streams:
        for stream in tuple(streams):
            unit = next(stream, None)
            if unit is None:
                streams.remove(stream)
            else:
                yield unit
