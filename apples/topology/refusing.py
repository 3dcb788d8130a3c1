"""Why a machine cannot satisfy a requirement: the one primary reason, with the two numbers compared.

First what will never do on this machine, then what does not do now; in each, the coarsest reason first:
numbers, the list, whole cores, limits of nodes, the radius.
"""

from __future__ import annotations

from collections.abc import Iterator
from weakref import WeakKeyDictionary

from apples.topology.machine import Topology
from apples.topology.nearness import balls_for, capacity, rules_of, usable_cpus
from apples.topology.requirement import Refusal, Requirement, Verdict

REMEMBERED = 256
"""Requirements whose "never" is remembered of each machine."""
_never: WeakKeyDictionary[Topology, dict[Requirement, Refusal | None]] = WeakKeyDictionary()


def refusal(topology: Topology, free: int, requirement: Requirement) -> Refusal | None:
    """Return why the free CPUs of a machine do not satisfy a requirement; None if they do."""
    found = judge(topology, free, requirement)
    return found if isinstance(found, Refusal) else None


def judge(topology: Topology, free: int, requirement: Requirement) -> Refusal | float:
    """Return the smallest radius the free CPUs offer, or why they do not do; chooses nothing."""
    known = _never.setdefault(topology, {})
    if requirement not in known:
        if len(known) >= REMEMBERED:
            known.clear()
        known[requirement] = _ever(topology, requirement)
    never = known[requirement]
    if never is not None:
        return never
    return _check(topology, free, requirement, Verdict.NOT_NOW, "free ")


def unlucky(requirement: Requirement) -> Refusal:
    """Return the refusal where each limit could be kept, but not all of them together."""
    reason = f"no choice of {requirement.count} free CPUs keeps all limits together"
    return Refusal(Verdict.NOT_NOW, reason, 0, requirement.count, "-n")


def _ever(topology: Topology, requirement: Requirement) -> Refusal | None:
    """Return why not even the empty machine would do."""
    memory = requirement.memory
    if memory is not None:
        nodes = {node.number for node in topology.nodes}
        missing = [number for number in memory if number not in nodes]
        if missing:
            reason = f"MEM_LIST names node {missing[0]}, the machine has {_list(sorted(nodes))}"
            return Refusal(Verdict.NEVER, reason, missing[0], len(nodes), "MEM_LIST")
    if requirement.max_cpus_per_node is not None and not _caps_apply(topology):
        reason = "MAX_CPU_PER_NODE cannot be kept where memory nodes overlap in part"
        return Refusal(Verdict.NEVER, reason, 0, 1, "MAX_CPU_PER_NODE")
    found = _check(topology, topology.root.cpus, requirement, Verdict.NEVER, "")
    return found if isinstance(found, Refusal) else None


def _check(
    topology: Topology, free: int, requirement: Requirement, verdict: Verdict, free_word: str
) -> Refusal | float:
    count = requirement.count
    for have, reason, key in _numbers(topology, free, requirement, free_word):
        if have < count:
            return Refusal(verdict, f"{reason}, -n asks {count}", have, count, key)
    usable = usable_cpus(topology, free, requirement)
    balls = balls_for(topology, usable, requirement)
    if not balls:
        return unlucky(requirement)
    radius, limit = balls[0].radius, requirement.max_radius
    if limit is not None and radius > limit:
        reason = (
            f"the nearest {count} {free_word}CPUs lie within {radius:.4g} hops, "
            f"MAX_RADIUS is {limit:.4g}"
        )
        return Refusal(verdict, reason, radius, limit, "MAX_RADIUS")
    return radius


def _numbers(
    topology: Topology, free: int, requirement: Requirement, free_word: str
) -> Iterator[tuple[int, str, str]]:
    """Yield how many CPUs each key leaves, with the clause that says so."""
    have = (free & topology.root.cpus).bit_count()
    yield have, f"{have} CPUs are {'free' if free_word else 'all the machine has'}", "-n"
    listed = requirement.cpus
    if listed is not None:
        have = (free & listed.mask & topology.root.cpus).bit_count()
        where = "free" if free_word else "on this machine"
        yield have, f"{have} of the {len(listed)} CPUs of CPU_LIST are {where}", "CPU_LIST"
    usable = usable_cpus(topology, free, requirement)
    if requirement.whole_cores:
        have = usable.bit_count()
        yield have, f"{have} {free_word}CPUs are in whole cores", "WHOLE_CORES"
    most = requirement.max_cpus_per_node
    if most is not None:
        have = capacity(topology, rules_of(topology, requirement))(usable)
        yield have, f"MAX_CPU_PER_NODE={most} admits {have} {free_word}CPUs", "MAX_CPU_PER_NODE"


def _caps_apply(topology: Topology) -> bool:
    """Whether the CPUs of every memory node are a part of the tree that choices are made in."""
    parts = {branch.cpus for domain in topology.hops.domains for branch in domain.branch.walk()}
    return parts >= set(topology.node_cpus)


def _list(numbers: list[int]) -> str:
    return f"nodes {', '.join(map(str, numbers[:8]))}{' ...' if len(numbers) > 8 else ''}"
