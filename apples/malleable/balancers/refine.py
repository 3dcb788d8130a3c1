"""Refine: keep what is in place, and move only what relieves the overloaded."""

from __future__ import annotations

from apples.malleable.balancer import Measured

TOLERANCE = 1.03
"""Who computes longer than this many times the mean is overloaded."""


def refine(measured: Measured, tolerance: float = TOLERANCE) -> tuple[int, ...]:
    """Return owners that differ in few blocks: no step gets longer by it, and a balanced one stays as it is.

    Blocks on processors without load permission move first, each to who would be done with it first. Then
    the longest processor gives away the heaviest block that somebody can take and still be done before
    the giver would have been, until nobody is overloaded or nothing helps.

    Examples
    --------
    >>> from apples.malleable.balancer import Processor
    >>> two = (Processor("ada"), Processor("bob"))
    >>> refine(Measured((1, 1, 1, 1), (0, 0, 0, 1), two))
    (1, 0, 0, 1)
    """
    owners = list(measured.owners)
    work = [0.0] * len(measured.processors)
    homeless = []
    for block, owner in enumerate(owners):
        if owner >= 0 and measured.processors[owner].enabled:
            work[owner] += measured.work[block]
        else:
            homeless.append(block)
    for block in sorted(homeless, key=lambda b: (-measured.work[b], b)):
        taker = _taker(measured, work, block)
        owners[block] = taker
        work[taker] += measured.work[block]
    while _relieve(measured, owners, work, tolerance * measured.mean()):
        pass
    return tuple(owners)


def _taker(measured: Measured, work: list[float], block: int) -> int:
    """Return who would be done first with `block` added."""
    seconds = measured.work[block]
    return min(
        measured.enabled,
        key=lambda p: ((work[p] + seconds) / measured.processors[p].capacity, p),
    )


def _relieve(measured: Measured, owners: list[int], work: list[float], limit: float) -> bool:
    """Move one block away from the longest processor; whether that was needed and possible."""
    capacity = [one.capacity for one in measured.processors]
    giver = max(measured.enabled, key=lambda p: (work[p] / capacity[p], -p))
    longest = work[giver] / capacity[giver]
    if longest <= limit:
        return False
    own = [b for b, owner in enumerate(owners) if owner == giver and measured.work[b] > 0]
    for block in sorted(own, key=lambda b: (-measured.work[b], b)):
        taker = _taker(measured, work, block)
        after = (work[taker] + measured.work[block]) / capacity[taker]
        if taker != giver and after < longest * (1 - 1e-12):
            owners[block] = taker
            work[giver] -= measured.work[block]
            work[taker] += measured.work[block]
            return True
    return False
