"""The memory of an array's rows: MPI moves parts of it from rank to rank, the kernel gets back what is left."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from apples.malleable.control.strips import RowRange
from apples.malleable.runtime.tiles import Tile

Bytes = NDArray[np.uint8]


class RowMemory:
    """Bytes of a tile, row by row, from which and into which MPI moves parts of it.

    Parameters
    ----------
    tile
        What the bytes are of.
    cell_bytes
        Bytes of a place of it.
    data
        At least as many bytes as the tile has.
    """

    def __init__(self, tile: Tile, cell_bytes: int, data: Bytes) -> None:
        self._tile, self._cell_bytes = tile, cell_bytes
        self._pitch = len(tile.columns) * cell_bytes
        self._flat = data[: len(tile.rows) * self._pitch]
        self._rows = self._flat.reshape(len(tile.rows), self._pitch)

    def bytes(self, part: Tile) -> Bytes:
        """Return the bytes of a part: a view, a row of it for each row."""
        row, first = self._place(part)
        return self._rows[
            row : row + len(part.rows), first : first + len(part.columns) * self._cell_bytes
        ]

    def packed(self, part: Tile) -> Bytes:
        """Return the bytes of a part one after another: a view where they lie so, else a copy.

        What lies in pieces MPI would send at a fifth of the rate.
        """
        return self.bytes(part).reshape(-1)

    def target(self, part: Tile) -> list[Any]:
        """Return a part as MPI receives into it, in place; its type is to be freed (`free_type`)."""
        view = self.bytes(part)
        count, width = view.shape
        if width == self._pitch or not count:
            return [view.reshape(-1), MPI.BYTE]
        row, first = self._place(part)
        begin = row * self._pitch + first
        kind = MPI.BYTE.Create_vector(count, width, self._pitch).Commit()
        return [self._flat[begin : begin + (count - 1) * self._pitch + width], 1, kind]

    def _place(self, part: Tile) -> tuple[int, int]:
        columns = part.columns.first - self._tile.columns.first
        return max(0, part.rows.first - self._tile.rows.first), max(0, columns * self._cell_bytes)


class MappedRows(RowMemory):
    """Memory of all rows of an array, as wide as a rank's part, of which only rows that are written to exist.

    So a row has one address whichever rows a rank has: those that stay are never copied, those that come are
    received where they belong, and the pages of those that went are given back.

    Parameters
    ----------
    pages
        At least as many bytes of memory, from `unused_pages` or from what was not needed any more.
    """

    def __init__(self, rows: int, columns: RowRange, cell_bytes: int, pages: mmap.mmap) -> None:
        self.columns, self.pages = columns, pages
        tile = Tile(RowRange(0, rows), columns)
        super().__init__(tile, cell_bytes, np.frombuffer(pages, np.uint8))

    def forget(self, rows: RowRange) -> None:
        """Give back the pages that hold nothing but these rows: to whoever needs them, when he does.

        Until then they need no clearing should the rows come back, which is half of the time of a move.
        """
        if not len(rows):
            return
        first = -(-rows.first * self._pitch // mmap.PAGESIZE) * mmap.PAGESIZE
        pages = (rows.stop * self._pitch - first) // mmap.PAGESIZE
        if pages > 0:
            self.pages.madvise(mmap.MADV_FREE, first, pages * mmap.PAGESIZE)


def unused_pages(size: int) -> mmap.mmap:
    """Return so many bytes of memory that exist when they are written to."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    found = mmap.mmap(-1, max(1, size), flags=flags)
    found.madvise(mmap.MADV_HUGEPAGE)
    return found


def free_type(target: Sequence[Any]) -> None:
    """Free the type that was made to receive."""
    if target[-1] != MPI.BYTE:
        target[-1].Free()
