"""Rows and which ranks hold them: the pure arithmetic from a processor map to the rows of each rank.

A map becomes strips (`strips`): its planned rows, or rows apportioned by weight. The order of the strips is the
map's own, or the order that moves the fewest rows. A strip is divided over the ranks of its host (`rank_ranges`).
The ranks interpret their rows: as rows, tiles, or entries of a sparse matrix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from apples.malleable.control.command import HostRows, HostShare
from apples.resources.apportionment import apportion, equal_parts

# Six hosts have 720 orders; beyond that, exchanges of pairs replace the full search.
EXHAUSTIVE_HOSTS = 6
"""Largest number of hosts for which every order of the strips is tried."""


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows ``first`` to ``stop`` - 1; empty if they are equal.

    Examples
    --------
    >>> RowRange(0, 10) & RowRange(6, 20)
    RowRange(first=6, stop=10)
    """

    first: int
    stop: int

    def __len__(self) -> int:
        """Return the number of rows."""
        return max(0, self.stop - self.first)

    def __and__(self, other: RowRange) -> RowRange:
        """Return the rows in both ranges."""
        first = max(self.first, other.first)
        return RowRange(first, max(first, min(self.stop, other.stop)))


def strips(
    shares: Sequence[HostShare], rows: int, slots: Mapping[str, int]
) -> tuple[HostRows, ...]:
    """Return the strips of a map in its own order.

    Planned rows are used if every host has some, they add up to `rows`, and each rank gets a row. Otherwise rows
    are apportioned by weight, at least one for each rank.

    Examples
    --------
    >>> two = (HostShare("a", rows=7), HostShare("b", rows=3))
    >>> [one.rows for one in strips(two, 10, {"a": 1, "b": 1})]
    [7, 3]
    >>> [one.rows for one in strips(two, 12, {"a": 1, "b": 1})]
    [6, 6]
    """
    least = [slots[one.host] if rows else 0 for one in shares]
    counts = [one.rows for one in shares]
    enough = all(count >= low for count, low in zip(counts, least, strict=True))
    if not (all(counts) and sum(counts) == rows and enough):
        counts = apportion(rows, [one.weight for one in shares], least)
    found, first = [], 0
    for one, count in zip(shares, counts, strict=True):
        found.append(HostRows(one.host, first, count, one.weight))
        first += count
    return tuple(found)


def strips_moving_fewest_rows(
    old: Sequence[HostRows], shares: Sequence[HostShare], rows: int, slots: Mapping[str, int]
) -> tuple[HostRows, ...]:
    """Return the strips of a map in the order that moves the fewest rows.

    Exact up to `EXHAUSTIVE_HOSTS` hosts; beyond, the best order that exchanges of two hosts reach from the old
    order. Of equally good orders, the order most similar to the old is returned.

    Examples
    --------
    >>> old = strips([HostShare("a"), HostShare("b"), HostShare("c")], 9, {"a": 1, "b": 1, "c": 1})
    >>> new = [HostShare("a"), HostShare("c"), HostShare("d")]
    >>> [m.host for m in strips_moving_fewest_rows(old, new, 9, dict.fromkeys("acd", 1))]
    ['a', 'd', 'c']
    """
    # The search begins near the old order: hosts that stay keep their positions, new hosts take vacant positions.
    before = {one.host: index for index, one in enumerate(old)}
    staying = {share.host for share in shares}
    vacant = iter([index for host, index in before.items() if host not in staying])
    position = {
        s.host: before[s.host] if s.host in before else next(vacant, len(before)) for s in shares
    }
    begin = tuple(sorted(shares, key=lambda share: position[share.host]))

    def cost(order: Sequence[HostShare]) -> int:
        return rows_moved(old, strips(order, rows, slots))

    if len(begin) <= EXHAUSTIVE_HOSTS:
        return strips(min(permutations(begin), key=cost), rows, slots)
    best, least = begin, cost(begin)
    while True:
        swaps = [
            (*best[:i], best[j], *best[i + 1 : j], best[i], *best[j + 1 :])
            for i in range(len(best))
            for j in range(i + 1, len(best))
        ]
        candidate = min(swaps, key=cost)
        if cost(candidate) >= least:
            return strips(best, rows, slots)
        best, least = candidate, cost(candidate)


def rows_moved(old: Sequence[HostRows], new: Sequence[HostRows]) -> int:
    """Return the number of rows that change their host.

    Examples
    --------
    >>> rows_moved([HostRows("a", 0, 6), HostRows("b", 6, 4)], [HostRows("a", 0, 10)])
    4
    """
    before = {member.host: _range(member) for member in old}
    kept = sum(len(_range(m) & before[m.host]) for m in new if m.host in before)
    return sum(member.rows for member in new) - kept


def _range(member: HostRows) -> RowRange:
    return RowRange(member.first_row, member.first_row + member.rows)


def rank_ranges(
    strips: Sequence[HostRows], slots: Mapping[str, int]
) -> list[tuple[str, RowRange]]:
    """Return the host and the rows of each rank; a host's ranks share its strip, the first ranks get larger parts.

    Examples
    --------
    >>> rank_ranges([HostRows("a", 0, 5), HostRows("b", 5, 2)], {"a": 2, "b": 1})[1]
    ('a', RowRange(first=3, stop=5))
    """
    found, first = [], 0
    for member in strips:
        for rows in equal_parts(member.rows, slots[member.host]):
            found.append((member.host, RowRange(first, first + rows)))
            first += rows
    return found
