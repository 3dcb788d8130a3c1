"""Which nodes, where that matters: contiguous allocations and node filters."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import combinations

from apples.errors import UsageError


def parse_nodes(text: str) -> frozenset[int]:
    """Return the node numbers of a list such as `0-3,8`.

    Raises
    ------
    UsageError
        Anything else. Permanent.

    Examples
    --------
    >>> sorted(parse_nodes("0-2,8"))
    [0, 1, 2, 8]
    """
    nodes: set[int] = set()
    for word in filter(None, text.split(",")):
        first, dash, last = word.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise UsageError(f"nodes {text!r}: not of the form 0-3,8")
        nodes.update(range(int(first), int(last or first) + 1))
    return frozenset(nodes)


def is_contiguous(nodes: Collection[int]) -> bool:
    """Return whether the numbers follow one another without a gap."""
    return not nodes or max(nodes) - min(nodes) + 1 == len(nodes)


def pick_free(free: Iterable[int], count: int, contiguous: bool) -> frozenset[int] | None:
    """Return the lowest free nodes, side by side if that is asked, None if there are not so many.

    Examples
    --------
    >>> sorted(pick_free([0, 2, 3, 7], 2, contiguous=True))
    [2, 3]
    """
    ordered = sorted(free)
    for k in range(len(ordered) - count + 1):
        chosen = ordered[k : k + count]
        if not contiguous or is_contiguous(chosen):
            return frozenset(chosen)
    return None


def contiguous_mates(
    places: Sequence[frozenset[int]], penalties: Sequence[float], wanted: int, most: int
) -> tuple[int, ...]:
    """Return the positions of the mates of least summed penalty that lie side by side.

    Tries every group of at most `most`: meant for few mates.
    """
    best: tuple[int, ...] = ()
    least = float("inf")
    for size in range(1, most + 1):
        for group in combinations(range(len(places)), size):
            if sum(len(places[k]) for k in group) != wanted:
                continue
            total = sum(penalties[k] for k in group)
            if total < least and is_contiguous(frozenset().union(*(places[k] for k in group))):
                best, least = group, total
    return best
