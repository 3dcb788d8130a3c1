"""Contiguous: each processor a run of neighbouring blocks, the longest run as short as can be."""

from __future__ import annotations

from apples.malleable.balancer import Measured

HALVINGS = 100
"""More than a double has bits: bisection ends where it cannot be told apart."""


def contiguous(measured: Measured) -> tuple[int, ...]:
    """Return owners in runs, in the order of ranks: of all such divisions one with the shortest step.

    For programs whose blocks exchange borders with the next block: a run has two borders, however many
    blocks are in it. Bisection on the step; a step is possible if every processor in turn takes as many
    blocks as it can.

    Examples
    --------
    >>> from apples.malleable.balancer import Processor
    >>> two = (Processor("ada"), Processor("bob", speed=3.0))
    >>> contiguous(Measured((1, 1, 1, 1), (0, 0, 0, 0), two))
    (0, 1, 1, 1)
    """
    low, high = 0.0, sum(measured.work) / measured.processors[measured.enabled[0]].capacity
    best = _runs(measured, high) or (measured.enabled[0],) * len(measured.work)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        found = _runs(measured, middle)
        if found is None:
            low = middle
        else:
            high, best = middle, found
    return best


def _runs(measured: Measured, step: float) -> tuple[int, ...] | None:
    """Return the runs that keep to `step`, or None where blocks are left over."""
    owners: list[int] = []
    for place in measured.enabled:
        room = step * measured.processors[place].capacity
        while len(owners) < len(measured.work) and measured.work[len(owners)] <= room:
            room -= measured.work[len(owners)]
            owners.append(place)
    return tuple(owners) if len(owners) == len(measured.work) else None
