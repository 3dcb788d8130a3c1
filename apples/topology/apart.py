"""Jobs of one node kept in separate sockets: which CPUs each mate keeps when it shrinks. Pure.

D'Amico et al. 2019, section 3.3: "cores distribution keeps jobs in separate sockets to improve data
locality and reduce interference between jobs".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from math import prod

from apples.topology.allocator import fit
from apples.topology.cpus import CpuSet
from apples.topology.machine import Topology
from apples.topology.requirement import Refusal, Requirement

MOST_TRIED = 512
"""Ways to shrink that are compared; with more, every job keeps what is nearest to each other."""


def sockets_of(topology: Topology) -> Sequence[CpuSet]:
    """Return the packages that have CPUs; the memory nodes' CPUs where there is one package alone."""
    packages = [package for package in topology.packages if package]
    return packages if len(packages) > 1 else [CpuSet(mask) for mask in topology.node_cpus]


def keep_apart(
    topology: Topology,
    holds: Sequence[CpuSet],
    shares: Sequence[int],
    free: CpuSet,
    newcomer: int,
) -> list[CpuSet]:
    """Return what each job keeps so that as few sockets as possible have two jobs, the newcomer among them.

    Parameters
    ----------
    holds, shares
        Of each job that shrinks: the CPUs it has, and how many it keeps of them.
    free, newcomer
        CPUs nobody has, and how many the newcomer takes of those and of what is given up.

    Examples
    --------
    >>> from apples.topology import synthetic
    >>> node = synthetic("package:2 core:4 pu:1")
    >>> mates = [CpuSet.parse("0-1,4,7"), CpuSet.parse("2-3,5-6")]
    >>> [str(kept) for kept in keep_apart(node, mates, [2, 2], CpuSet(), 4)]
    ['0-1', '2-3']
    """
    sockets = sockets_of(topology)
    ways = [
        _ways(topology, held, share, sockets) for held, share in zip(holds, shares, strict=True)
    ]
    if prod(map(len, ways)) > MOST_TRIED:
        return [some[0] for some in ways]
    given = free
    for held in holds:
        given |= held

    def shared(kept: Iterable[CpuSet]) -> int:
        """Return how many sockets each job is in, summed over the jobs."""
        kept, left = tuple(kept), given
        for some in kept:
            left -= some
        return sum(len([s for s in sockets if s & some]) for some in kept) + _needed(
            [len(s & left) for s in sockets], newcomer
        )

    return list(min(product(*ways), key=shared))


def _ways(
    topology: Topology, held: CpuSet, share: int, sockets: Sequence[CpuSet]
) -> Sequence[CpuSet]:
    """Return what a job could keep: the nearest to each other, or as much as possible of one socket."""
    if share >= len(held):
        return [held]
    ways = [nearest(topology, held, share)]
    for socket in sockets:
        inside = held & socket
        kept = nearest(topology, inside, min(share, len(inside)))
        kept |= nearest(topology, held - socket, share - len(kept))
        if kept not in ways:
            ways.append(kept)
    return ways


def nearest(topology: Topology, held: CpuSet, count: int) -> CpuSet:
    """Return those of some CPUs that are nearest to each other."""
    if count <= 0 or count >= len(held):
        return held if count > 0 else CpuSet()
    found = fit(topology, held, Requirement(count))
    if isinstance(found, Refusal):  # CPUs that the topology does not know
        return CpuSet.of(list(held)[:count])
    return found.cpus


def _needed(room: Sequence[int], count: int) -> int:
    """Return how many sockets so many CPUs take at least."""
    used = 0
    for most in sorted(room, reverse=True):
        if count <= 0:
            break
        count -= most
        used += 1
    return used
