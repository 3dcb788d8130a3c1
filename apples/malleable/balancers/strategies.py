"""The built-in strategies: `contiguous`, `greedy`, `refine`, `placement` and Dynamite's `decider`."""

from __future__ import annotations

from apples.malleable.balancers.contract import Measured
from apples.scheduling.decider import NodeCapacity, check_for_migration

HALVINGS = 100
"""Steps of a bisection: more than the bits of a double, so that it ends at adjacent numbers."""


def contiguous(measured: Measured) -> tuple[int, ...]:
    """Return owners in runs, in the order of ranks, with the shortest step of all such divisions.

    For programs in which a block exchanges borders with the next block: a run of any length has two borders.
    Bisection on the step: a step is feasible if all blocks are assigned when each processor in turn takes as many
    blocks as it can compute in that step.

    Examples
    --------
    >>> from apples.malleable.balancers.contract import Processor
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
    """Return the runs that each take at most `step` seconds; None if blocks remain."""
    owners: list[int] = []
    for place in measured.enabled:
        room = step * measured.processors[place].capacity
        while len(owners) < len(measured.work) and measured.work[len(owners)] <= room:
            room -= measured.work[len(owners)]
            owners.append(place)
    return tuple(owners) if len(owners) == len(measured.work) else None


def greedy(measured: Measured) -> tuple[int, ...]:
    """Return owners with a step of at most 4/3 of the optimum on equal processors.

    If several processors would finish at the same time, the present owner is preferred. This moves many blocks:
    use it at the start, and after changes of most of the processor map.

    Examples
    --------
    >>> from apples.malleable.balancers.contract import Processor
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


TOLERANCE = 1.03
"""A processor that computes longer than this many times the mean is overloaded."""


def refine(measured: Measured, tolerance: float = TOLERANCE) -> tuple[int, ...]:
    """Return owners that differ in few blocks: the step never gets longer, and balanced owners do not change.

    Blocks on processors that may not have load move first, each to the processor that would finish it first. Then
    the busiest processor gives away its heaviest block that another processor can take and still finish earlier
    than the giver did. This repeats until no processor is overloaded or no such block exists.

    Examples
    --------
    >>> from apples.malleable.balancers.contract import Processor
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
    # A taker may exceed the mean. Charm++'s rule stops at the mean and leaves two blocks of 0.9 beside
    # an idle processor.
    while _relieve(measured, owners, work, tolerance * measured.mean()):
        pass
    return tuple(owners)


def _taker(measured: Measured, work: list[float], block: int) -> int:
    """Return the processor that would finish first with `block` added."""
    seconds = measured.work[block]
    return min(
        measured.enabled,
        key=lambda p: ((work[p] + seconds) / measured.processors[p].capacity, p),
    )


def _relieve(measured: Measured, owners: list[int], work: list[float], limit: float) -> bool:
    """Move a block away from the busiest processor; return whether that was needed and possible."""
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


THRESHOLD = 0.55
"""T of the paper; a node that computes as long as the mean has a load index of 0.5."""


def decider(measured: Measured, threshold: float = THRESHOLD) -> tuple[int, ...]:
    """Return owners after one global step of the paper's recursion over two heaps.

    The rule is `apples.scheduling.decider.check_for_migration`: at most one task of a node moves in a step, so
    that the system stays stable. It is the heaviest task that leaves the taker no busier than the giver was. Tasks
    on nodes that must be vacated move first, as in `refine`.

    Examples
    --------
    >>> from apples.malleable.balancers.contract import Processor
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
    nodes = []
    for place in measured.enabled:
        tasks = tuple(block for block, owner in enumerate(owners) if owner == place)
        load = min(1.0, seconds[place] / (2 * mean))
        nodes.append(NodeCapacity(measured.processors[place].host, {"cpu": 1 - load}, tasks))

    def heaviest(giver: int, taker: int) -> int | None:
        pair = measured.enabled[giver], measured.enabled[taker]
        return _task(measured, owners, pair, seconds)

    for move in check_for_migration(nodes, threshold, choose=heaviest):
        owners[move.task] = measured.enabled[move.target]
    return tuple(owners)


def _task(
    measured: Measured, owners: list[int], pair: tuple[int, int], seconds: list[float]
) -> int | None:
    """Return the heaviest task of the giver with which the taker still finishes earlier than the giver did."""
    giver, taker = pair
    room = (seconds[giver] - seconds[taker]) * measured.processors[taker].capacity
    fitting = [
        (measured.work[b], -b)
        for b, p in enumerate(owners)
        if p == giver and measured.work[b] < room
    ]
    return -max(fitting)[1] if fitting else None


MAX_PLACED = 512
"""Largest number of blocks for `placement`: more would take rank 0 longer than about a second."""
WORTH = 0.1
"""Share by which a new placement must beat the improved present one, because it moves most blocks."""


def placement(measured: Measured) -> tuple[int, ...]:
    """Return owners that keep blocks with much communication on one host, and the step as short as `refine`'s.

    This minimises bytes times distance among the divisions that `refine` accepts as balanced; a longer step costs
    more than all messages. Without messages (`Blocks(partners=..)`), or with more blocks than `MAX_PLACED`, the
    owners are those of `refine`.

    Examples
    --------
    >>> from apples.malleable.balancers.contract import Processor
    >>> pairs = ((0, 1, 8.0), (1, 2, 1.0), (2, 3, 8.0))
    >>> placement(Measured((1, 1, 1, 1), (0, 1, 1, 1), (Processor("ada"), Processor("bob")), messages=pairs))
    (0, 0, 1, 1)

    References
    ----------
    van Albada et al. 1999, "Dynamite", section "Resource monitoring", figure 1.
    """
    refined = refine(measured)
    mean = measured.mean()
    if not measured.messages or len(refined) > MAX_PLACED or mean <= 0:
        return refined
    import numpy as np  # noqa: PLC0415 - a rank that is only parked loads none

    from apples.topology.mapping import PlacementProblem, place  # noqa: PLC0415 - likewise

    blocks = len(refined)
    messages = np.zeros((blocks, blocks))
    for one, other, size in measured.messages:
        messages[one, other] += size
    if not messages.any():
        return refined
    distances = np.array(measured.distances)
    problem = PlacementProblem(
        messages,
        distances,
        [work / mean for work in measured.work],
        [one.capacity for one in measured.processors],
        weight=messages.sum() * distances.max() / (TOLERANCE - 1),
        tolerated=TOLERANCE,
        room=[blocks * one.enabled for one in measured.processors],
    )
    return place(problem, begin=refined, worth=WORTH)
