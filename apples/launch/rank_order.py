"""Which rank gets which CPUs of a host: those that send each other most, the nearest to each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from apples.monitoring.placement import Array, PlacementProblem, place
from apples.topology import CpuSet, Topology
from apples.topology.bindings import RankOrder

Matrix = Sequence[Sequence[float]]


def rank_order(topology: Topology, shares: Sequence[CpuSet], messages: Matrix) -> RankOrder:
    """Return the shares in another order, in which what talks most is nearest; the same where none costs less.

    Parameters
    ----------
    shares
        CPUs for as many ranks as there are, in the topology's order (`apples.topology.bindings.per_rank`).
    messages
        Square: bytes that the rank of the row sends to that of the column.

    Raises
    ------
    UsageError
        Messages of another number of ranks, or a number that is none. Permanent.

    Examples
    --------
    >>> from apples.topology import synthetic
    >>> machine = synthetic("package:2 core:2 pu:1")
    >>> talk = [[0, 0, 9, 0], [0, 0, 0, 9], [9, 0, 0, 1], [0, 9, 1, 0]]
    >>> found = rank_order(machine, [CpuSet.of([cpu]) for cpu in range(4)], talk)
    >>> [str(share) for share in found.shares], found.before, found.cost
    (['3', '1', '2', '0'], 112.0, 78.0)
    """
    ranks = len(shares)
    problem = PlacementProblem(
        messages, distances(topology, shares), (1.0,) * ranks, (1.0,) * ranks, 0.0, (1,) * ranks
    )
    before = problem.talk(range(ranks))
    order = place(problem, begin=range(ranks))
    cost = problem.talk(order)
    if not cost < before:
        order, cost = tuple(range(ranks)), before
    return RankOrder(tuple(shares[place] for place in order), cost, before)


def distances(topology: Topology, shares: Sequence[CpuSet]) -> Array:
    """Return the mean hops between the CPUs of each two shares; a share is no distance from itself."""
    found = np.zeros((len(shares), len(shares)))
    for i, one in enumerate(shares):
        for j, other in enumerate(shares[:i]):
            hops = [topology.hops(a, b) for a in one for b in other]
            found[i, j] = found[j, i] = sum(hops) / len(hops)
    return found
