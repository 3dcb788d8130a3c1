"""Tiles: the strips of a map laid side by side, and the messages of each rank when tiles change.

An array that is distributed over rows and columns has one tile for each rank. Consecutive strips form a *band*;
the band has the rows of all its strips, and its columns are divided in proportion to the rows of each strip. So
each tile has the area of its strip, up to a part of a column, for any number of ranks and any shares. The bands
are chosen so that the borders between tiles are shortest. This is the column-based partition of Beaumont et al.
2001 turned by a right angle, with the order of the ranks kept.

Strips themselves are tiles of the full width. Tiles follow from the strips and the shape only, so that all ranks
compute the same tiles without communication.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from apples.malleable.control.strips import RowRange
from apples.resources.apportionment import apportion

NOTHING = RowRange(0, 0)


@dataclass(frozen=True, slots=True)
class Tile:
    """A rectangle of rows and columns, each a half-open range.

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
        """Slices of the tile in the whole array: ``whole[tile.slices]``."""
        rows, columns = self.rows, self.columns
        return slice(rows.first, rows.stop), slice(columns.first, columns.stop)

    def __len__(self) -> int:
        """Return the number of cells."""
        return len(self.rows) * len(self.columns)

    def __and__(self, other: Tile) -> Tile:
        """Return the cells in both tiles."""
        return Tile(self.rows & other.rows, self.columns & other.columns)


def bands(heights: Sequence[int], columns: int) -> list[int]:
    """Return the number of strips in each band, such that the borders between all tiles are shortest.

    Of equally good divisions, the division with more bands is returned. It is more similar to the strips, and
    their order was chosen so that few rows move.

    Parameters
    ----------
    heights
        Rows of each strip, in order.
    columns
        Number of columns of the whole array; no band has more tiles.

    Examples
    --------
    >>> bands([25, 25, 25, 25], 100), bands([60, 20, 10, 10], 100), bands([25] * 4, 10)
    ([2, 2], [1, 3], [1, 1, 1, 1])
    """
    # shortest[i]: the borders of the first i strips, with the border below their last band.
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
        Strips of all ranks, in any order; together they have every row once.

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
    """Return the tiles that `rank` sends and receives; cells that it has and needs stay on it.

    Parameters
    ----------
    owned
        Present tile of each rank; together they have each cell once.
    needed
        New tile of each rank, with its halo; empty for a rank that leaves.
    """

    def others(mine: Tile, theirs: Sequence[Tile]) -> tuple[tuple[int, Tile], ...]:
        parts = ((other, mine & tile) for other, tile in enumerate(theirs) if other != rank)
        return tuple((other, part) for other, part in parts if len(part))

    return TileTransfers(others(owned[rank], needed), others(needed[rank], owned))
