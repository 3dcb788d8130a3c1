"""`CsrMatrix`: a sparse matrix by rows; each rank has the rows of its strip.

It consists of three distributed arrays that move together: the first entry of each row (`RowArray`), and the
column and the value of each entry (`EntryArray`). Entries are numbered through the whole matrix. So an entry has
the same address on every rank, as a row has, and entries that stay on a rank are not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray

from apples.malleable.control.strips import RowRange
from apples.malleable.runtime.collectives import wait
from apples.malleable.runtime.declared import (
    WIDE,
    DeclarationError,
    DistributedArray,
    RowArray,
)
from apples.malleable.runtime.tiles import Tile

MatrixFill = Callable[[range], Any]
"""Called as ``fill(rows)``; returns these rows as a SciPy CSR array or (indptr, indices, data)."""


class EntryArray(DistributedArray):
    """A value for every entry of a sparse matrix; a rank has the values of its rows' entries.

    Parameters
    ----------
    starts
        Number of the first entry of each row, then the number of all entries. It is sent before this array.
    """

    def __init__(self, name: str, starts: RowArray, dtype: DTypeLike) -> None:
        super().__init__(name, dtype, 0)
        self._starts = starts
        self.constant = starts.constant
        self._at: dict[int, int] = {}

    @property
    def own(self) -> NDArray[Any]:
        """The values for the entries of the rank's rows."""
        return self.local.reshape(-1)

    def summary(self) -> list[Any]:
        """Return the declaration, which must be equal on every rank of the job."""
        return [self.name, self._starts.name, self.dtype.str]

    def locate(self, comm: MPI.Intracomm, *layouts: Sequence[RowRange]) -> None:
        """Get the first and last entry of each strip from the ranks that have its rows. Collective."""
        rows = self._starts.rows
        wanted = {
            row for strips in layouts for strip in strips for row in (strip.first, strip.stop)
        }
        asked = sorted({*wanted, rows})
        strip, starts = self._starts.strip, self._starts.local[1:]
        last = strip.stop + (strip.stop == rows)
        given = np.array(
            [starts[row - strip.first] if strip.first <= row < last else -1 for row in asked],
            np.int64,
        )
        entries = np.empty_like(given)
        wait(comm.Iallreduce(given, entries, MPI.MAX).Test)
        self.place(list(zip(asked, map(int, entries), strict=True)))

    def located(self) -> list[tuple[int, int]]:
        """Return the first row and the end of each strip, each with its first entry."""
        return list(self._at.items())

    def place(self, located: Sequence[tuple[int, int]]) -> None:
        """Store the result of `located` on another rank."""
        self._at = dict(located)
        self.rows = self._at[self._starts.rows]

    def parts(self, strips: Sequence[RowRange]) -> list[Tile]:
        """Return the entries of the strips' rows, after `locate` or `place`."""
        ranges = [
            RowRange(self._at[one.first], self._at[one.stop]) if len(one) else RowRange(0, 0)
            for one in strips
        ]
        return [Tile(one, WIDE) if len(one) else Tile() for one in ranges]


class CsrMatrix:
    """A sparse matrix in compressed rows; the positions of its entries do not change while the job runs.

    Parameters
    ----------
    name
        Name of the matrix, unique in its job.
    shape
        Numbers of rows, which are distributed, and of columns.
    fill
        Returns the first contents of rows, called as ``fill(rows)`` with a range: a SciPy CSR array, or its three
        arrays (indptr, indices, data).
    dtype
        Type of a value.
    constant
        Whether only `fill` writes it, as for other arrays.

    Attributes
    ----------
    arrays
        Its arrays, in the order in which they must move.
    """

    def __init__(
        self,
        name: str,
        shape: tuple[int, int],
        fill: MatrixFill,
        dtype: DTypeLike = np.float64,
        *,
        constant: bool = False,
    ) -> None:
        self.name, self.shape, self._fill = name, tuple(shape), fill
        if len(self.shape) != 2 or min(self.shape) < 1:
            raise DeclarationError(
                f"matrix {name!r}: shape {shape} is not rows and columns",
                code="declared-shape-invalid",
                name=name,
                value=list(self.shape),
            )
        if not callable(fill):
            raise DeclarationError(
                f"matrix {name!r}: fill is a {type(fill).__name__}, not a function of a range of rows",
                code="fill-invalid",
                name=name,
                value=type(fill).__name__,
            )
        rows, columns = self.shape
        index = np.int32 if columns <= np.iinfo(np.int32).max else np.int64
        # The halo below a strip's last row is the start of the next row: the end of the strip's entries.
        self.starts = RowArray(f"{name}.indptr", (rows,), np.int64, halo=1, constant=constant)
        self.indices = EntryArray(f"{name}.indices", self.starts, index)
        self.data = EntryArray(f"{name}.data", self.starts, dtype)
        self.arrays: tuple[DistributedArray, ...] = (self.starts, self.indices, self.data)

    @property
    def own(self) -> Any:
        """The rank's own rows as a SciPy CSR array over its memory: writes to its data are kept.

        Valid until the next change of hosts.
        """
        from scipy.sparse import csr_array  # noqa: PLC0415 - other programs start without it

        starts = self.starts.local[1:]
        index = self.indices.dtype if self.data.own.size <= np.iinfo(np.int32).max else np.int64
        within = (starts - starts[:1]).astype(index, copy=False)
        matrix = csr_array((len(self.starts.strip), self.shape[1]), dtype=self.data.dtype)
        # Assigned: the constructor would copy arrays that are a small part of their memory.
        matrix.indptr, matrix.indices, matrix.data = within, self.indices.own, self.data.own
        return matrix

    def begin(self, comm: MPI.Intracomm, strips: Sequence[RowRange]) -> None:
        """Allocate the rows of this rank's strip and fill them with their first contents. Collective.

        Parameters
        ----------
        strips
            Strips of all ranks.
        """
        rank = comm.Get_rank()
        strip = strips[rank]
        indptr, indices, data = self._first(strip)
        counts = np.empty(len(strips), np.int64)
        wait(comm.Iallgather(np.array([len(data)], np.int64), counts).Test)
        first = sum(
            int(count)
            for count, other in zip(counts, strips, strict=True)
            if other.first < strip.first
        )
        self.starts.allocate(self.starts.parts(strips), rank)
        if len(strip):
            self.starts.contents()[1:] = indptr + first
        for array, values in ((self.indices, indices), (self.data, data)):
            array.locate(comm, strips)
            array.allocate(array.parts(strips), rank)
            array.contents().reshape(-1)[...] = values

    def _first(self, strip: RowRange) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return a strip's first entries, checked."""
        count, columns = len(strip), self.shape[1]
        if not count:
            return np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0)
        rows = self._fill(range(strip.first, strip.stop))
        three = rows if isinstance(rows, tuple) else _three(rows)
        if three is None or len(three) != 3:
            raise self._error(
                strip,
                f"a {type(rows).__name__}, not a CSR array or (indptr, indices, data)",
                "type",
            )
        indptr, indices, data = map(np.asarray, three)
        if indptr.shape != (count + 1,):
            raise self._error(
                strip, f"an indptr of {len(indptr)}, not of {count} rows and one", "indptr"
            )
        if indptr.dtype.kind not in "iu" or indptr[0] or (np.diff(indptr) < 0).any():
            raise self._error(strip, "an indptr that does not begin at 0 and ascend", "indptr")
        if not len(indices) == len(data) == indptr[-1]:
            raise self._error(
                strip,
                f"{len(indices)} indices and {len(data)} values for {indptr[-1]} entries",
                "entries",
            )
        if len(indices) and indices.dtype.kind not in "iu":
            raise self._error(strip, "columns that are no whole numbers", "indices")
        if len(indices) and not 0 <= indices.min() <= indices.max() < columns:
            raise self._error(
                strip, f"columns {indices.min()} to {indices.max()} of {columns}", "columns"
            )
        if not np.can_cast(data.dtype, self.data.dtype, "same_kind"):
            raise self._error(strip, f"values of {data.dtype}, not {self.data.dtype}", "data")
        return indptr, indices, data

    def _error(self, strip: RowRange, what: str, field: str) -> DeclarationError:
        rows = f"rows {strip.first} to {strip.stop - 1}"
        return DeclarationError(
            f"matrix {self.name!r}, {rows}: fill gave {what}",
            code="fill-invalid",
            name=self.name,
            field=field,
            rows=[strip.first, strip.stop - 1],
            value=what,
        )


def _three(matrix: Any) -> tuple[Any, Any, Any] | None:
    """Return the three arrays of a CSR array, None for any other object."""
    if getattr(matrix, "format", "") != "csr":
        return None
    return matrix.indptr, matrix.indices, matrix.data
