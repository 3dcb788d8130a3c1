"""Tiles: the strips of a map laid side by side, and the messages of each rank when tiles change.

An array that is distributed over rows and columns has one tile a rank. Consecutive strips form a *band*; the
band's rows are those of its strips together, and its columns are cut in proportion to their rows. So each tile
has the area of its strip, up to a part of a column, for any number of ranks and any shares. Which strips
form a band is chosen so that the borders between tiles are shortest. This is the column-based partition of
Beaumont et al. 2001 turned by a right angle, with the order of the ranks kept.

Strips themselves are tiles of the full width. Everything follows from the strips and the shape alone: ranks that
have never met come to the same tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from apples.malleable.control.strips import RowRange
from apples.resources.apportionment import apportion

NOTHING = RowRange(0, 0)


@dataclass(frozen=True, slots=True)
class Tile:
    """A rectangle of rows and columns; columns are counted as rows are.

    Examples
    --------
    >>> one = Tile(RowRange(0, 4), RowRange(0, 10)) & Tile(RowRange(2, 9), RowRange(5, 20))
    >>> one, len(one)
    (Tile(rows=RowRange(first=2, stop=4), columns=RowRange(first=5, stop=10)), 10)
    """

    rows: RowRange = NOTHING
    columns: RowRange = NOTHING

    @property
    def slices(self) -> tuple[slice, slice]:
        """Where it is in the whole: ``whole[tile.slices]``."""
        rows, columns = self.rows, self.columns
        return slice(rows.first, rows.stop), slice(columns.first, columns.stop)

    def __len__(self) -> int:
        """Return the number of cells."""
        return len(self.rows) * len(self.columns)

    def __and__(self, other: Tile) -> Tile:
        """Return the cells both have."""
        return Tile(self.rows & other.rows, self.columns & other.columns)


def bands(heights: Sequence[int], columns: int) -> list[int]:
    """Return how many strips each band has, such that the borders between all tiles are shortest.

    Of equal divisions the one with more bands, which is nearer to the strips: the order of the strips was chosen
    such that few of their rows move.

    Parameters
    ----------
    heights
        Rows of each strip, in order.
    columns
        Of the whole; no band has more tiles.

    Examples
    --------
    >>> bands([25, 25, 25, 25], 100), bands([60, 20, 10, 10], 100), bands([25] * 4, 10)
    ([2, 2], [1, 3], [1, 1, 1, 1])
    """
    # shortest[i]: the borders of the first i strips, the one below their last band included.
    shortest, last = [0], [0]
    for stop in range(1, len(heights) + 1):
        rows, strips_of_best, best = 0, 0, -1
        for count in range(1, min(stop, columns) + 1):
            rows += heights[stop - count]
            length = shortest[stop - count] + (count - 1) * rows + columns
            if best < 0 or length < best:
                strips_of_best, best = count, length
        shortest.append(best)
        last.append(strips_of_best)
    counts, stop = [], len(heights)
    while stop:
        counts.append(last[stop])
        stop -= last[stop]
    return counts[::-1]


def tiles(strips: Sequence[RowRange], columns: int) -> list[Tile]:
    """Return every rank's tile of an array with `columns` columns; empty if its strip is empty.

    Parameters
    ----------
    strips
        Of the ranks, in any order; together every row once.

    Examples
    --------
    >>> for one in tiles([RowRange(0, 6), RowRange(6, 8), RowRange(8, 16), RowRange(0, 0)], 16):
    ...     print(one.rows, one.columns)
    RowRange(first=0, stop=8) RowRange(first=0, stop=12)
    RowRange(first=0, stop=8) RowRange(first=12, stop=16)
    RowRange(first=8, stop=16) RowRange(first=0, stop=16)
    RowRange(first=0, stop=0) RowRange(first=0, stop=0)
    """
    order = sorted(
        (r for r, strip in enumerate(strips) if len(strip)), key=lambda r: strips[r].first
    )
    every = [Tile()] * len(strips)
    for count in bands([len(strips[rank]) for rank in order], columns):
        band, order = order[:count], order[count:]
        rows = RowRange(strips[band[0]].first, strips[band[-1]].stop)
        first = 0
        for rank, width in zip(
            band,
            apportion(columns, [len(strips[rank]) for rank in band], [1] * count),
            strict=True,
        ):
            every[rank] = Tile(rows, RowRange(first, first + width))
            first += width
    return every


@dataclass(frozen=True, slots=True)
class TileTransfers:
    """The messages of one rank in a redistribution: (other rank, tile) to send, to receive."""

    sends: tuple[tuple[int, Tile], ...]
    receives: tuple[tuple[int, Tile], ...]


def transfers(rank: int, owned: Sequence[Tile], needed: Sequence[Tile]) -> TileTransfers:
    """Return the tiles that `rank` sends and receives; cells that it has and needs stay with it.

    Parameters
    ----------
    owned
        For every rank the tile it holds now; together each cell once.
    needed
        For every rank the tile it is to have, halo included; empty for a rank that leaves.
    """

    def others(mine: Tile, theirs: Sequence[Tile]) -> tuple[tuple[int, Tile], ...]:
        parts = ((other, mine & tile) for other, tile in enumerate(theirs) if other != rank)
        return tuple((other, part) for other, part in parts if len(part))

    return TileTransfers(others(owned[rank], needed), others(needed[rank], owned))
