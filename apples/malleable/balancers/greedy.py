"""Greedy: every block anew, the heaviest first, each to who would be done with it first."""

from __future__ import annotations

from apples.malleable.balancer import Measured


def greedy(measured: Measured) -> tuple[int, ...]:
    """Return owners such that on equal processors no step is longer than 4/3 of the best possible.

    Among processors that would be done at the same time the present owner is preferred. Moves many blocks:
    for the start, and after changes of the processor map that leave nothing in its place.

    Examples
    --------
    >>> from apples.malleable.balancer import Processor
    >>> greedy(Measured((3, 3, 2, 2, 2), (0,) * 5, (Processor("ada"), Processor("bob"))))
    (0, 1, 0, 1, 0)

    References
    ----------
    Graham 1969, "Bounds on multiprocessing timing anomalies": 4/3 - 1/(3m) on m equal processors.
    """
    owners = list(measured.owners)
    work = [0.0] * len(measured.processors)
    for block in sorted(range(len(owners)), key=lambda b: (-measured.work[b], b)):
        seconds = measured.work[block]
        here = owners[block]
        chosen = min(
            measured.enabled,
            key=lambda p: ((work[p] + seconds) / measured.processors[p].capacity, p != here, p),
        )
        owners[block] = chosen
        work[chosen] += seconds
    return tuple(owners)
