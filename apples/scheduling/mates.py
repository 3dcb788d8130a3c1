"""SD-Policy's search for mates (D'Amico et al. 2019, equations 1-3) and for contiguous nodes.

The search for mates is exact. It minimises the sum of penalties over at most m mates that together have as many
nodes as the newcomer needs. For two mates one scan of the candidates suffices: for every number of nodes it keeps
the two candidates with the least penalties. For more mates the search fills a table over (mates, nodes), as for a
knapsack that must be full. `best_pair` and `best_group` use only indexed sequences, since SD-Policy's kernel
compiles them. Contiguous allocations and node filters need node ids, which the kernel lacks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, MutableSequence, Sequence
from itertools import combinations
from typing import Any

from apples.errors import UsageError

Numbers = MutableSequence[Any]
NO_PENALTY = 1e300


def best_pair(
    nodes: Sequence[int],
    penalties: Sequence[float],
    count: int,
    wanted: int,
    first: Numbers,
    second: Numbers,
    stamp: Numbers,
    turn: int,
    chosen: Numbers,
) -> int:
    """Write the positions of the best one or two candidates into `chosen`; return their number.

    Parameters
    ----------
    nodes, penalties, count
        Nodes and penalties of the candidates, and their number; a penalty of NO_PENALTY or more excludes a
        candidate.
    first, second, stamp, turn
        Work space by number of nodes (`wanted` + 1 entries); `turn` must differ in each call.
    """
    for i in range(count):
        size = nodes[i]
        if size > wanted or penalties[i] >= NO_PENALTY:
            continue
        if stamp[size] != turn:
            stamp[size] = turn
            first[size] = i
            second[size] = -1
        elif penalties[i] < penalties[first[size]]:
            second[size] = first[size]
            first[size] = i
        elif second[size] < 0 or penalties[i] < penalties[second[size]]:
            second[size] = i
    least = NO_PENALTY
    found = 0
    if stamp[wanted] == turn:
        found = 1
        chosen[0] = first[wanted]
        least = penalties[chosen[0]]
    for i in range(count):
        rest = wanted - nodes[i]
        if rest < nodes[i] or penalties[i] >= NO_PENALTY or stamp[rest] != turn:
            continue
        other = first[rest]
        if other == i:
            other = second[rest]
        if other >= 0 and penalties[i] + penalties[other] < least:
            least = penalties[i] + penalties[other]
            chosen[0] = i
            chosen[1] = other
            found = 2
    return found


def best_group(
    nodes: Sequence[int],
    penalties: Sequence[float],
    count: int,
    wanted: int,
    most: int,
    cost: Numbers,
    last: Numbers,
    chosen: Numbers,
) -> int:
    """Write the positions of the best at most `most` candidates into `chosen`; return their number.

    Parameters
    ----------
    cost, last
        Work space: (most + 1) * (wanted + 1) entries, and `count` times as many.
    """
    width = wanted + 1
    cells = (most + 1) * width
    for cell in range(cells):
        cost[cell] = NO_PENALTY
    cost[0] = 0.0
    for i in range(count):
        size = nodes[i]
        for cell in range(cells):
            last[i * cells + cell] = 0
        if size > wanted or penalties[i] >= NO_PENALTY:
            continue
        for mates in range(most, 0, -1):
            for total in range(size, width):
                before = cost[(mates - 1) * width + total - size]
                if before + penalties[i] < cost[mates * width + total]:
                    cost[mates * width + total] = before + penalties[i]
                    last[i * cells + mates * width + total] = 1
    found = 0
    for mates in range(1, most + 1):
        if cost[mates * width + wanted] < cost[found * width + wanted]:
            found = mates
    mates, total = found, wanted
    for i in range(count - 1, -1, -1):
        if mates > 0 and last[i * cells + mates * width + total] == 1:
            mates -= 1
            chosen[mates] = i
            total -= nodes[i]
    return found


def find_mates(
    nodes: Sequence[int], penalties: Sequence[float], wanted: int, most: int = 2
) -> tuple[int, ...]:
    """Return the positions of the mates with the least sum of penalties, () if no group fits exactly.

    Examples
    --------
    >>> find_mates([2, 3, 3, 5], [1.5, 1.2, 1.1, 3.0], wanted=5)
    (0, 2)
    """
    count = len(nodes)
    chosen: Numbers = [0] * max(most, 2)
    if most == 1:
        exact = [p if n == wanted else NO_PENALTY for n, p in zip(nodes, penalties, strict=True)]
        penalties = exact
    if most <= 2:
        first, second, stamp = ([0] * (wanted + 1) for _ in range(3))
        found = best_pair(nodes, penalties, count, wanted, first, second, stamp, 1, chosen)
    else:
        cells = (most + 1) * (wanted + 1)
        found = best_group(
            nodes, penalties, count, wanted, most, [0.0] * cells, [0] * (cells * count), chosen
        )
    return tuple(sorted(chosen[:found]))


def parse_node_ids(text: str) -> frozenset[int]:
    """Return the node ids of a list such as `0-3,8`.

    Raises
    ------
    UsageError
        The text is not such a list. Permanent.

    Examples
    --------
    >>> sorted(parse_node_ids("0-2,8"))
    [0, 1, 2, 8]
    """
    nodes: set[int] = set()
    for word in filter(None, text.split(",")):
        first, dash, last = word.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise UsageError(
                f"nodes {text!r}: not of the form 0-3,8",
                code="value-invalid",
                field="nodes",
                value=text,
            )
        nodes.update(range(int(first), int(last or first) + 1))
    return frozenset(nodes)


def is_contiguous(nodes: Collection[int]) -> bool:
    """Return whether the numbers follow one another without a gap."""
    return not nodes or max(nodes) - min(nodes) + 1 == len(nodes)


def pick_free(free: Iterable[int], count: int, contiguous: bool) -> frozenset[int] | None:
    """Return the lowest free nodes, with consecutive numbers if `contiguous`; None if too few are free.

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
    node_ids: Sequence[frozenset[int]], penalties: Sequence[float], wanted: int, most: int
) -> tuple[int, ...]:
    """Return the positions of the mates with the least sum of penalties and consecutive node numbers.

    It tries every group of at most `most` mates, so it is meant for few mates.
    """
    best: tuple[int, ...] = ()
    least = float("inf")
    for size in range(1, most + 1):
        for group in combinations(range(len(node_ids)), size):
            if sum(len(node_ids[k]) for k in group) != wanted:
                continue
            total = sum(penalties[k] for k in group)
            if total < least and is_contiguous(frozenset().union(*(node_ids[k] for k in group))):
                best, least = group, total
    return best
