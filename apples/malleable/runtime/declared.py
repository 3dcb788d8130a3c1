"""Declared data: what a program declares to its job, and how it goes to other ranks on a change of hosts.

1. `State`: values that are the same on every rank; `Replicated`: an array that is.
2. `RowArray`: a distributed array in row strips, each rank holding one strip and its halo.
3. `redistribute`: rows from rank to rank, out of and into the arrays themselves: no copy, no pickle.
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray

from apples.errors import ApplicationError
from apples.malleable.control.strips import RowRange, transfers
from apples.malleable.runtime.collectives import wait

Value = int | float | str | bool | None


class State:
    """Declared values as attributes; one that was not declared cannot be set.

    Examples
    --------
    >>> state = State({"iteration": 0})
    >>> state.iteration += 1
    >>> state.iteration
    1
    """

    def __init__(self, values: Mapping[str, Value]) -> None:
        for name, value in values.items():
            if hasattr(State, name):
                raise DeclarationError(
                    f"state {name!r} is a method of the state: choose another name"
                )
            _check(name, value)
        # Its own attributes, and nothing between: a loop reads and writes them in every iteration.
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        """Say that a value was not declared."""
        raise AttributeError(f"no value {name!r} was declared")

    def __setattr__(self, name: str, value: Value) -> None:
        """Set a declared value, the same on every rank."""
        values = self.__dict__
        if name not in values:
            raise DeclarationError(f"state {name!r} was not declared and would be lost")
        values[name] = value

    def dump(self) -> dict[str, Value]:
        """Return all values, checked."""
        values: dict[str, Value] = dict(self.__dict__)
        for name, value in values.items():
            _check(name, value)
        return values

    def load(self, values: Mapping[str, Value]) -> None:
        """Take over all values."""
        self.__dict__.update(values)


def _check(name: str, value: Value) -> None:
    if isinstance(value, np.generic):
        raise DeclarationError(f"state {name!r} is a {type(value).__name__}: use int() or float()")
    if not isinstance(value, int | float | str | bool | None):
        raise DeclarationError(
            f"state {name!r} is a {type(value).__name__}; values are numbers and texts,"
            " arrays are declared by job.array or job.replicated"
        )
    if isinstance(value, float) and not math.isfinite(value):
        return  # JSON's NaN and Infinity, as Python writes them, between ranks of one program
    json.dumps(value)


class Replicated:
    """An array that is the same on every rank."""

    def __init__(self, name: str, array: NDArray[np.generic]) -> None:
        if array.dtype.hasobject or not array.flags.c_contiguous:
            raise DeclarationError(f"replicated {name!r} is no contiguous array of plain numbers")
        self.name, self.array = name, array

    def share(self, comm: MPI.Intracomm) -> None:
        """Take rank 0's contents. Collective."""
        comm.Bcast([self.array.reshape(-1).view("u1"), MPI.BYTE], 0)


class DeclarationError(ApplicationError):
    """A declaration that cannot be kept through a change of hosts. Permanent."""


class UndeclaredStateError(DeclarationError):
    """State that nobody declared would be lost on a change of hosts. Permanent."""


Fill = Callable[[int, NDArray[Any]], None]
"""Called as ``fill(first_row, rows)`` to write a strip's first contents."""


class RowArray:
    """A distributed array whose rows are divided into strips, one for each rank.

    A rank maps the whole array into its memory and touches only its strip. So a row lies at the same place in
    every rank whatever the strips are: rows that stay are never copied when strips change, rows that come are
    received where they belong, and the pages of rows that went are given back.

    Parameters
    ----------
    name
        Of the array, unique in its job.
    shape
        Of the whole; the first axis is shared out.
    dtype
        Of an element: a plain one, for nothing executable travels.
    halo
        Rows of each neighbour that a strip has beside its own. Beyond the first and the last row of the
        whole there are as many, which belong to the first and the last strip and travel with them.
    fill
        Writes the first contents of a strip; without it they are zero.
    """

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: DTypeLike = np.float64,
        halo: int = 0,
        fill: Fill | None = None,
    ) -> None:
        self.name, self.shape, self.halo, self.fill = name, tuple(shape), halo, fill
        self.dtype = np.dtype(dtype)
        if self.dtype.hasobject:
            raise DeclarationError(f"array {name!r}: elements that are Python objects cannot move")
        if not self.shape or min(self.shape) < 1 or halo < 0:
            raise DeclarationError(f"array {name!r}: shape {shape} with halo {halo} has no rows")
        self.row_bytes = self.dtype.itemsize * math.prod(self.shape[1:])
        self.strip = RowRange(0, 0)
        self._whole: NDArray[np.generic] | None = None
        self._map: mmap.mmap | None = None

    @property
    def rows(self) -> int:
        """Rows of the whole."""
        return self.shape[0]

    @property
    def local(self) -> NDArray[Any]:
        """The rank's strip with its halo: ``local[halo : -halo or None]`` are its own rows.

        A view that is valid until the next change of hosts.
        """
        return self.padded(self.needed(self.strip))

    @property
    def own(self) -> NDArray[Any]:
        """The rank's own rows."""
        return self.padded(RowRange(self.strip.first + self.halo, self.strip.stop + self.halo))

    def owned(self, strip: RowRange) -> RowRange:
        """Return what a strip owns, counted with the halo above the first row: outer halos included."""
        if not len(strip):
            return RowRange(0, 0)
        last = strip.stop == self.rows
        return RowRange(
            strip.first + self.halo if strip.first else 0,
            strip.stop + (2 if last else 1) * self.halo,
        )

    def needed(self, strip: RowRange) -> RowRange:
        """Return what a strip's rank must have, counted likewise."""
        return RowRange(strip.first, strip.stop + 2 * self.halo) if len(strip) else RowRange(0, 0)

    def padded(self, rows: RowRange) -> NDArray[Any]:
        """Return a view of rows, counted likewise."""
        return self._memory()[rows.first : rows.stop]

    def begin(self, strip: RowRange) -> None:
        """Hold a strip with its first contents."""
        self.strip = strip
        if self.fill is not None and len(strip):
            self.fill(strip.first, self.local)

    def settle(self, strip: RowRange) -> None:
        """Hold another strip, whose rows were received; give back the memory of the others."""
        before, after = self.needed(self.strip), self.needed(strip)
        self.strip = strip
        self._forget(
            RowRange(before.first, min(before.stop, after.first) if len(after) else before.stop)
        )
        if len(after):
            self._forget(RowRange(max(before.first, after.stop), before.stop))

    def _memory(self) -> NDArray[Any]:
        if self._whole is None:
            rows = self.rows + 2 * self.halo
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
            self._map = mmap.mmap(-1, max(1, rows * self.row_bytes), flags=flags)
            self._map.madvise(mmap.MADV_HUGEPAGE)
            whole = np.frombuffer(self._map, self.dtype, rows * math.prod(self.shape[1:]))
            self._whole = whole.reshape((rows, *self.shape[1:]))
        return self._whole

    def _forget(self, rows: RowRange) -> None:
        """Give back the pages that hold nothing but these rows: to whoever needs them, when he does.

        Until then they need no clearing should the rows come back, which is half of the time of a move.
        """
        if self._map is None or not len(rows):
            return
        first = -(-rows.first * self.row_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        pages = (rows.stop * self.row_bytes - first) // mmap.PAGESIZE
        if pages > 0:
            self._map.madvise(mmap.MADV_FREE, first, pages * mmap.PAGESIZE)


def redistribute(
    comm: MPI.Intracomm,
    arrays: Sequence[RowArray],
    old: Sequence[RowRange],
    new: Sequence[RowRange],
) -> int:
    """Give every rank of `comm` its new strip; return the bytes this rank received. Collective.

    Every rank works out its own messages from all strips, so that nothing is negotiated. Halo rows are sent by
    their owner too: the first sweep after a change needs them.

    Parameters
    ----------
    old, new
        Each rank's strip before and after; empty for one that joins or leaves.
    """
    rank = comm.Get_rank()
    requests: list[MPI.Request] = []
    received = sent = 0
    for tag, array in enumerate(arrays):
        plan = transfers(rank, [array.owned(s) for s in old], [array.needed(s) for s in new])
        for other, rows in plan.receives:
            part = array.padded(rows)
            received += part.nbytes
            requests.append(comm.Irecv(_plain(part), other, tag))
        for other, rows in plan.sends:
            part = array.padded(rows)
            sent += part.nbytes
            requests.append(comm.Isend(_plain(part), other, tag))
    wait(lambda: MPI.Request.Testall(requests), received + sent)
    for array in arrays:
        array.settle(new[rank])
    return received


def _plain(part: object) -> object:
    """Return rows as bytes MPI can name, whatever their element type."""
    return [part.reshape(-1).view("u1"), MPI.BYTE]  # type: ignore[attr-defined]  # a contiguous NumPy array
