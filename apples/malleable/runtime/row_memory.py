"""The memory of an array's rows: parts of it are views, and unused pages go back to the kernel."""

from __future__ import annotations

import contextlib
import mmap
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from apples.malleable.control.strips import RowRange
from apples.malleable.runtime.tiles import Tile

Bytes = NDArray[np.uint8]
PIECE_BYTES = 1 << 20
"""Size of the pieces in which parts are copied or sent: small enough for a cache."""
MADV_POPULATE_WRITE = 23
"""Advice for `madvise` that has no name in Python."""
MADE_BYTES, MAKING_SECONDS = 1 << 26, 5.0
"""Bytes of pages that one call allocates, and the time limit for the pages of all arrays together."""


class RowMemory:
    """Bytes of a tile, row by row.

    Parameters
    ----------
    tile
        The tile of the bytes.
    cell_bytes
        Bytes of a cell.
    data
        At least as many bytes as the tile has.

    Attributes
    ----------
    rows
        The bytes as a matrix, with a row for each row of the tile.
    """

    def __init__(self, tile: Tile, cell_bytes: int, data: Bytes) -> None:
        self._tile, self._cell_bytes = tile, cell_bytes
        self._pitch = len(tile.columns) * cell_bytes
        self.rows = data[: len(tile.rows) * self._pitch].reshape(len(tile.rows), self._pitch)

    def bytes(self, part: Tile) -> Bytes:
        """Return the bytes of a part: a view as a matrix, with a row for each row of the part."""
        row = max(0, part.rows.first - self._tile.rows.first)
        first = max(0, part.columns.first - self._tile.columns.first) * self._cell_bytes
        width = len(part.columns) * self._cell_bytes
        return self.rows[row : row + len(part.rows), first : first + width]


class MappedRows(RowMemory):
    """Address space for all rows of an array, as wide as a rank's part. Only written rows use pages.

    So a row has the same address in every layout: staying rows are never copied, arriving rows are received at
    their final address, and the pages of leaving rows are released.

    Parameters
    ----------
    pages
        At least as many bytes of memory, from `unused_pages` or from an earlier layout.
    """

    def __init__(self, rows: int, columns: RowRange, cell_bytes: int, pages: mmap.mmap) -> None:
        self.columns, self.pages = columns, pages
        tile = Tile(RowRange(0, rows), columns)
        super().__init__(tile, cell_bytes, np.frombuffer(pages, np.uint8))

    def make(self, rows: RowRange, deadline: float) -> None:
        """Let the kernel allocate and clear the pages of these rows now, until the deadline.

        Parameters
        ----------
        deadline
            Time by `time.monotonic`: `MAKING_SECONDS` after the begin of the first array.
        """
        first = rows.first * self._pitch // mmap.PAGESIZE * mmap.PAGESIZE
        stop = rows.stop * self._pitch
        with contextlib.suppress(
            OSError
        ):  # a kernel before Linux 5.14: it allocates pages at the first write
            for start in range(first, stop, MADE_BYTES):
                if time.monotonic() > deadline:
                    break
                # Receiving into untouched memory makes the kernel clear huge pages (2 MB each)
                # while the job stands still. Newcomers know the plan early, so the pages are
                # cleared while the job computes.
                self.pages.madvise(MADV_POPULATE_WRITE, start, min(MADE_BYTES, stop - start))

    def forget_outside(self, rows: RowRange, kept: RowRange) -> None:
        """Release the pages of these rows, except the kept rows."""
        self.forget(RowRange(rows.first, min(rows.stop, kept.first) if len(kept) else rows.stop))
        if len(kept):
            self.forget(RowRange(max(rows.first, kept.stop), rows.stop))

    def forget(self, rows: RowRange) -> None:
        """Release the pages that hold only these rows; the kernel takes them when it needs memory.

        If the rows come back before that, the pages need no clearing, which is half of the time of a move.
        """
        if not len(rows):
            return
        first = -(-rows.first * self._pitch // mmap.PAGESIZE) * mmap.PAGESIZE
        pages = (rows.stop * self._pitch - first) // mmap.PAGESIZE
        if pages > 0:
            self.pages.madvise(mmap.MADV_FREE, first, pages * mmap.PAGESIZE)


def unused_pages(size: int) -> mmap.mmap:
    """Return `size` bytes of memory, which the kernel allocates when they are written to."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    pages = mmap.mmap(-1, max(1, size), flags=flags)
    # A receiver copies with process_vm_readv. Into new pages of 4 kB that takes 1.5 times the CPU
    # time of huge pages.
    pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


def pieces(part: Bytes, size: int) -> Iterator[Bytes]:
    """Yield views of a part of about `size` bytes each: of some rows, or of its bytes if it is contiguous."""
    whole = part.reshape(-1) if part.flags.c_contiguous else part
    width = 1 if whole.ndim == 1 else whole.shape[1]
    step = max(1, size // max(1, width))
    for first in range(0, len(whole), step):
        yield whole[first : first + step]
