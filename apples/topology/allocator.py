"""The allocator: it chooses the free CPUs of a machine for a job, or returns one reason why it cannot. Pure.

Best fit minimises, in this order: the radius, the total distance, the number of usable CPUs in the ball (the
smallest ball is used up first), the number of parts broken into, and the CPU numbers.

A refusal has one primary reason, with the two numbers compared. Reasons that hold for the empty machine come
before reasons that hold for the free CPUs. In each group the order is: number of CPUs, list of CPUs, whole cores,
limits of memory nodes, radius.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from weakref import WeakKeyDictionary

from apples.topology.cpus import CpuSet
from apples.topology.machine import Topology
from apples.topology.parts import Branch
from apples.topology.requirement import Fit, Placement, Requirement, Satisfiability, Unsatisfied
from apples.topology.selection import (
    STARTS,
    Ball,
    Rules,
    balls_for,
    best_choice,
    capacity,
    filtered,
    rules_of,
    usable_cpus,
)

REMEMBERED = 256
"""Size of each machine's cache of requirements that even the empty machine refuses."""
_never: WeakKeyDictionary[Topology, dict[Requirement, Unsatisfied | None]] = WeakKeyDictionary()


def refusal(topology: Topology, free: int, requirement: Requirement) -> Unsatisfied | None:
    """Return why the free CPUs of a machine do not satisfy a requirement; None if they do."""
    found = _search(topology, free, requirement)
    return found if isinstance(found, Unsatisfied) else None


def judge(topology: Topology, free: int, requirement: Requirement) -> Unsatisfied | float:
    """Return the smallest radius that the free CPUs offer, or why they do not suffice. No CPUs are chosen."""
    found = _search(topology, free, requirement)
    return found if isinstance(found, Unsatisfied) else found[0].radius


def _search(
    topology: Topology, free: int, requirement: Requirement
) -> Unsatisfied | Sequence[Ball]:
    """Return the balls of the smallest radius that the free CPUs offer, or why they do not suffice."""
    known = _never.setdefault(topology, {})
    if requirement not in known:
        if len(known) >= REMEMBERED:
            known.clear()
        known[requirement] = _ever(topology, requirement)
    never = known[requirement]
    if never is not None:
        return never
    return _check(topology, free, requirement, Satisfiability.NOT_NOW, "free ")


def no_combination(requirement: Requirement) -> Unsatisfied:
    """Return the refusal for limits that can each be kept, but not all together."""
    reason = f"no choice of {requirement.count} free CPUs keeps all limits together"
    return Unsatisfied(Satisfiability.NOT_NOW, reason, 0, requirement.count, "-n")


def _ever(topology: Topology, requirement: Requirement) -> Unsatisfied | None:
    """Return why not even the empty machine satisfies a requirement; None if it does."""
    memory = requirement.memory
    if memory is not None:
        nodes = {node.number for node in topology.nodes}
        missing = [number for number in memory if number not in nodes]
        if missing:
            reason = f"MEM_LIST names node {missing[0]}, the machine has {_list(sorted(nodes))}"
            return Unsatisfied(Satisfiability.NEVER, reason, missing[0], len(nodes), "MEM_LIST")
    for condition in requirement.select:
        if condition.core_kind:  # a condition on CPUs, not on the host: a filter
            continue
        have = topology.amounts()[condition.name]
        if have is None or not condition.holds(have):
            known = f"is {have} here" if have is not None else _unknown(condition.name)
            reason = f"{condition.name} {known}, select asks {condition.written}"
            return Unsatisfied(Satisfiability.NEVER, reason, have or 0, condition.amount, "SELECT")
    if requirement.near and topology.near(requirement.near) is None:
        names = ", ".join(device.name for device in (topology.devices or ())[:8]) or "none"
        if topology.devices is None:
            names = "not known (hwloc's lstopo reports them)"
        reason = f"NEAR names {requirement.near}, the devices of this machine are: {names}"
        return Unsatisfied(Satisfiability.NEVER, reason, 0, 1, "NEAR")
    if requirement.max_cpus_per_node is not None and not _caps_apply(topology):
        reason = "MAX_CPU_PER_NODE cannot be kept where memory nodes overlap in part"
        return Unsatisfied(Satisfiability.NEVER, reason, 0, 1, "MAX_CPU_PER_NODE")
    found = _check(topology, topology.root.cpus, requirement, Satisfiability.NEVER, "")
    return found if isinstance(found, Unsatisfied) else None


def _unknown(amount: str) -> str:
    hint = " (hwloc's lstopo reports them)"
    if amount in {"maxmem", "hbm"}:
        hint = ": its source names no size of memory"
    return f"is not known of this machine{hint}"


def _check(
    topology: Topology,
    free: int,
    requirement: Requirement,
    verdict: Satisfiability,
    free_word: str,
) -> Unsatisfied | Sequence[Ball]:
    count = requirement.count
    for have, reason, key in _numbers(topology, free, requirement, free_word):
        if have < count:
            return Unsatisfied(verdict, f"{reason}, -n asks {count}", have, count, key)
    usable = usable_cpus(topology, free, requirement)
    balls = balls_for(topology, usable, requirement)
    if not balls:
        return no_combination(requirement)
    radius, limit = balls[0].radius, requirement.max_radius
    if limit is not None and radius > limit:
        reason = (
            f"the nearest {count} {free_word}CPUs lie within {radius:.4g} hops, "
            f"MAX_RADIUS is {limit:.4g}"
        )
        return Unsatisfied(verdict, reason, radius, limit, "MAX_RADIUS")
    return balls


def _numbers(
    topology: Topology, free: int, requirement: Requirement, free_word: str
) -> Iterator[tuple[int, str, str]]:
    """Yield the number of CPUs that remain after each key, with the clause of a refusal."""
    have = (free & topology.root.cpus).bit_count()
    yield have, f"{have} CPUs are {'free' if free_word else 'all the machine has'}", "-n"
    usable = free & topology.root.cpus
    for cpu_filter, usable in filtered(topology, free, requirement):
        have = usable.bit_count()
        yield have, cpu_filter.clause(requirement, have, bool(free_word)), cpu_filter.key
    most = requirement.max_cpus_per_node
    if most is not None:
        have = capacity(topology, rules_of(topology, requirement))(usable)
        yield have, f"MAX_CPU_PER_NODE={most} admits {have} {free_word}CPUs", "MAX_CPU_PER_NODE"


def _caps_apply(topology: Topology) -> bool:
    """Whether the CPUs of each memory node are one part of the tree that the search uses."""
    parts = {branch.cpus for domain in topology.hops.domains for branch in domain.branch.walk()}
    return parts >= set(topology.node_cpus)


def _list(numbers: list[int]) -> str:
    return f"nodes {', '.join(map(str, numbers[:8]))}{' ...' if len(numbers) > 8 else ''}"


def fit(topology: Topology, free: CpuSet, requirement: Requirement) -> Fit | Unsatisfied:
    """Return the CPUs of `free` that satisfy a requirement best, or the reason of the refusal.

    The same arguments always give the same result. The caller books the CPUs.

    Parameters
    ----------
    free
        Free CPUs. The function ignores CPUs that the machine lacks or this process may not use.

    Examples
    --------
    >>> from apples.topology import synthetic
    >>> machine = synthetic("package:2 l3:2 pu:4")
    >>> found = fit(machine, CpuSet.parse("3-9"), Requirement(4))
    >>> str(found.cpus), found.radius, found.total
    ('4-7', 1.0, 6.0)
    """
    chosen = choice(topology, free.mask, requirement)
    if isinstance(chosen, Unsatisfied):
        return chosen
    radius, centre = topology.hops.centre(chosen)
    cpus = CpuSet(chosen)
    memory = topology.memory_of(cpus) if requirement.memory is None else requirement.memory
    near = tuple(device.name for device in topology.devices or () if device.cpus & chosen)
    return Fit(cpus, radius, centre, topology.hops.total(chosen), memory, near)


def choice(
    topology: Topology, free: int, requirement: Requirement, starts: int = STARTS
) -> int | Unsatisfied:
    """Return the mask of the CPUs that `fit` chooses; without the figures of a `Fit` it takes half the time.

    Parameters
    ----------
    starts
        Centres to try for a choice over several memory nodes. Two take a third of the time and cost up to 10 %
        more.
    """
    balls = _search(topology, free, requirement)
    if isinstance(balls, Unsatisfied):
        return balls
    rules = rules_of(topology, requirement)
    usable = usable_cpus(topology, free, requirement)
    if requirement.placement is Placement.BEST:
        chosen = best_choice(topology.hops, balls, requirement.count, rules, starts)
    elif requirement.max_radius is None:
        chosen = _take(topology, usable, requirement, rules)
    else:
        chosen = _take_around(topology, usable, requirement, rules)
    return chosen or no_combination(requirement)


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
    """Return the masks of the units of allocation, by lowest CPU: whole cores or single CPUs."""
    return topology.units if rules.whole else [1 << cpu for cpu in topology.cpus]


def _fill(
    topology: Topology, units: Sequence[int], requirement: Requirement, rules: Rules, chosen: int
) -> int:
    """Return `chosen` and as many units as the requirement asks for; 0 if the units do not suffice."""
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
    """Yield the units in an order in which the parts of each level contribute about equally at every step."""
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
