"""Balls: the smallest radius at which enough usable CPUs lie around one of them. Exact and cheap.

For every centre the nearest CPUs are those of its ball, so the least radius of any choice of k CPUs is
that of the first ball, by ascending radius, that holds k usable ones and a usable centre.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from apples.topology.machine import Topology
from apples.topology.packing import Rules, pack
from apples.topology.requirement import Requirement


@dataclass(frozen=True, slots=True)
class Ball:
    """Where a choice may come from: usable CPUs around usable centres."""

    radius: float
    usable: int
    centres: int


def rules_of(topology: Topology, requirement: Requirement) -> Rules:
    """Return what a requirement asks of the choice on this machine, beside number and radius."""
    whole = frozenset(topology.units) if requirement.whole_cores else frozenset()
    most = requirement.max_cpus_per_node
    caps = {} if most is None else dict.fromkeys(topology.node_cpus, most)
    return Rules(whole, caps)


def usable_cpus(topology: Topology, free: int, requirement: Requirement) -> int:
    """Return the free CPUs a requirement admits, whatever their number and place."""
    usable = free & topology.root.cpus
    if requirement.cpus is not None:
        usable &= requirement.cpus.mask
    if requirement.whole_cores:
        usable = sum(unit for unit in topology.units if not unit & ~usable)
    return usable


def capacity(topology: Topology, rules: Rules) -> Callable[[int], int]:
    """Return what says how many of a mask of usable CPUs could be had together."""
    if not rules.caps:
        return int.bit_count

    def capped(mask: int) -> int:
        total = 0
        for cpus, cap in rules.caps.items():
            inside = mask & cpus
            if inside:
                count = inside.bit_count()
                total += min(count, cap) if not rules.whole else _whole(topology, inside, rules)
        return total

    return capped


def _whole(topology: Topology, mask: int, rules: Rules) -> int:
    domain = next(d for d in topology.hops.domains if d.cpus & mask)
    return pack(domain.branch, mask, rules, mask.bit_count()).most


def balls_for(topology: Topology, usable: int, requirement: Requirement) -> Sequence[Ball]:
    """Return the balls of the smallest radius that hold what is asked of the usable CPUs; none if none does."""
    rules = rules_of(topology, requirement)
    count, count_in = requirement.count, capacity(topology, rules)
    below, alone = 0.0, -1  # a ball smaller than a core holds whole cores of one CPU only
    if rules.whole:
        below, alone = topology.core_radius, topology.lone_cpus
    for balls in topology.hops.balls:
        if balls.largest < count:
            continue
        here = usable if balls.radius >= below else usable & alone
        found = [
            Ball(balls.radius, here & mask, here & centres)
            for mask, centres in balls.members
            if (here & mask).bit_count() >= count and here & centres
        ]
        if rules.caps:
            found = [ball for ball in found if count_in(ball.usable) >= count]
        if found:
            return found
    return ()
