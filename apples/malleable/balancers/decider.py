"""Dynamite's migration decider: the most loaded node gives a task to the one with most capacity left."""

from __future__ import annotations

import heapq

from apples.malleable.balancer import Measured
from apples.malleable.balancers.refine import refine

THRESHOLD = 0.55
"""T of the paper; a node that computes as long as the mean has a load index of 0.5."""


def decider(measured: Measured, threshold: float = THRESHOLD) -> tuple[int, ...]:
    """Return owners after one global step of the paper's recursion over two heaps.

    While ``L1 > T and C1 > 1 - T`` a task moves from the first node of the load room to the first of the capacity
    room, and both leave their heap until they are measured again: at most one task a node and step, for
    systems that shall stay calm. The task is the heaviest that leaves the taker no longer than the giver was.
    Tasks on nodes that must be vacated are moved before, as `refine` does.

    Examples
    --------
    >>> from apples.malleable.balancer import Processor
    >>> three = (Processor("ada"), Processor("bob"), Processor("eve"))
    >>> decider(Measured((1, 1, 1, 1, 1, 1), (0, 0, 0, 0, 1, 2), three))
    (1, 0, 0, 0, 1, 2)

    References
    ----------
    van Albada et al. 1999, "Dynamite", section "Migration decider", figures 4 and 5.
    """
    owners = list(refine(measured, tolerance=float("inf")))
    mean = measured.mean()
    if mean <= 0:
        return tuple(owners)
    seconds = measured.seconds(owners)
    index = {place: min(1.0, seconds[place] / (2 * mean)) for place in measured.enabled}
    load_room = [(-load, place) for place, load in index.items()]
    capacity_room = [(load, place) for place, load in index.items()]  # C = 1 - L, largest first
    heapq.heapify(load_room)
    heapq.heapify(capacity_room)
    while load_room and capacity_room:
        most, giver = heapq.heappop(load_room)
        least, taker = heapq.heappop(capacity_room)
        if not (-most > threshold and 1 - least > 1 - threshold):
            break
        block = _task(measured, owners, (giver, taker), seconds)
        if block is not None:
            owners[block] = taker
    return tuple(owners)


def _task(
    measured: Measured, owners: list[int], pair: tuple[int, int], seconds: list[float]
) -> int | None:
    """Return the heaviest task of the giver that the taker can have and be done earlier than it."""
    giver, taker = pair
    room = (seconds[giver] - seconds[taker]) * measured.processors[taker].capacity
    fitting = [
        (measured.work[b], -b)
        for b, p in enumerate(owners)
        if p == giver and measured.work[b] < room
    ]
    return -max(fitting)[1] if fitting else None
