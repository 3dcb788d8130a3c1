"""Declared data: the data that a program declares to its job, and its redistribution on a change of hosts.

1. `State`: values that are the same on every rank; `Replicated`: an array that is the same on every rank.
2. `DistributedArray`: each rank holds a part and its halo: `RowArray` a strip of rows, `TileArray` a tile of rows
   and columns, `EntryArray` (in `csr`) the entries of its rows of a sparse matrix.
3. `redistribute`: moves parts of all arrays between ranks, directly between the arrays' own memory: without
   pickle, and without an intermediate copy.
"""

from __future__ import annotations

import dis
import json
import math
import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from traceback import walk_tb
from types import TracebackType
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray

from apples.errors import ApplicationError
from apples.malleable.control.strips import RowRange
from apples.malleable.runtime.collectives import wait
from apples.malleable.runtime.part_messages import PartMessages
from apples.malleable.runtime.row_memory import Bytes, MappedRows, unused_pages
from apples.malleable.runtime.tiles import Tile, tiles, transfers

Value = int | float | str | bool | None


class State:
    """Declared values as attributes; other attributes cannot be set.

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
                    f"state {name!r} is a method of the state: choose another name",
                    code="declared-name-reserved",
                    name=name,
                )
            _check(name, value)
        # Plain attributes, without a descriptor: a loop reads and writes them in every iteration.
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        """Raise `AttributeError`: the value was not declared."""
        raise AttributeError(f"no value {name!r} was declared")

    def __setattr__(self, name: str, value: Value) -> None:
        """Set a declared value, the same on every rank."""
        values = self.__dict__
        if name not in values:
            raise DeclarationError(
                f"state {name!r} was not declared and would be lost",
                code="state-undeclared",
                names=[name],
            )
        values[name] = value

    def dump(self) -> dict[str, Value]:
        """Return all values, checked."""
        values: dict[str, Value] = dict(self.__dict__)
        for name, value in values.items():
            _check(name, value)
        return values

    def load(self, values: Mapping[str, Value]) -> None:
        """Replace all values."""
        self.__dict__.update(values)


def _check(name: str, value: Value) -> None:
    if isinstance(value, np.generic):
        raise DeclarationError(
            f"state {name!r} is a {type(value).__name__}: use int() or float()",
            code="type-unsupported",
            name=name,
            value=type(value).__name__,
        )
    if not isinstance(value, int | float | str | bool | None):
        raise DeclarationError(
            f"state {name!r} is a {type(value).__name__}; values are numbers and texts,"
            " arrays are declared by task.array or task.replicated",
            code="type-unsupported",
            name=name,
            value=type(value).__name__,
        )
    if isinstance(value, float) and not math.isfinite(value):
        return  # JSON's NaN and Infinity, as Python writes them, between ranks of one program
    json.dumps(value)


class Replicated:
    """An array that is the same on every rank."""

    def __init__(self, name: str, array: NDArray[np.generic]) -> None:
        if array.dtype.hasobject or not array.flags.c_contiguous:
            raise DeclarationError(
                f"replicated {name!r} is not a contiguous array of plain numbers",
                code="type-unsupported",
                name=name,
                value=str(array.dtype),
            )
        self.name, self.array = name, array

    def share(self, comm: MPI.Intracomm) -> None:
        """Copy rank 0's contents to all ranks. Collective."""
        comm.Bcast([self.array.reshape(-1).view("u1"), MPI.BYTE], 0)


class DeclarationError(ApplicationError):
    """A declaration that cannot be kept through a change of hosts. Permanent."""


class UndeclaredStateError(DeclarationError):
    """Undeclared state would be lost on a change of hosts. Permanent."""

    code = "state-undeclared"


Fill = Callable[[range, NDArray[Any]], object]
"""Writes first contents, as ``fill(rows, block)``: ``block[k]`` is row ``rows[k]`` of the whole."""
TileFill = Callable[[tuple[range, range], NDArray[Any]], object]
"""Like `Fill`, for an array with distributed columns: ``fill((rows, columns), block)``."""
WIDE = RowRange(0, 1)
"""The columns of an array that is distributed over its rows alone: a row is one cell."""
HALO_TAG = 32_767
"""Tag of the messages of `exchange`, on the program's own communicator: the highest tag that MPI guarantees."""


class DistributedArray(ABC):
    """An array in tiles: each rank holds one tile and a halo around it.

    The tiles follow from the strips of the job's map (`parts`). Halos beyond the edges of the whole belong
    to the tiles at the edge and travel with them.

    Parameters
    ----------
    name
        Name of the array, unique in its job.
    dtype
        Type of an element: a plain number type, because nothing executable may be sent.
    rows, columns, cell
        Numbers of distributed rows and columns, and the shape of the value in each cell.
    halo
        Rows and columns of neighbours that each part has on each side.

    Attributes
    ----------
    tile
        Tile of this rank, without the halo.
    tiles
        Tiles of all ranks, in the order of the communicator.
    constant
        Whether only its first contents are ever written to it.
    exchanges
        Number of halo exchanges on this rank, equal on all ranks that took part in them.
    """

    constant = False

    def __init__(
        self,
        name: str,
        dtype: DTypeLike,
        rows: int,
        columns: int = 1,
        cell: tuple[int, ...] = (),
        halo: tuple[int, int] = (0, 0),
    ) -> None:
        self.name, self.rows, self.columns, self.cell = name, rows, columns, cell
        self.dtype = np.dtype(dtype)
        if self.dtype.hasobject:
            raise DeclarationError(
                f"array {name!r}: elements that are Python objects cannot move",
                code="type-unsupported",
                name=name,
                value=str(self.dtype),
            )
        self.halos = halo
        self.cell_bytes = self.dtype.itemsize * math.prod(cell)
        self.tile = Tile()
        self.tiles: list[Tile] = [self.tile]
        self.comm: MPI.Intracomm = MPI.COMM_SELF
        self.exchanges = 0
        self._memory: MappedRows | None = None
        self._free_pages: mmap.mmap | None = None
        self._seen: NDArray[Any] | None = None
        self._coming: tuple[list[Tile], int, MappedRows] | None = None
        self._requests: list[MPI.Prequest] | None = None
        self._outgoing: list[tuple[NDArray[Any], NDArray[Any]]] = []
        self._incoming: list[tuple[NDArray[Any], NDArray[Any]]] = []

    # ---------------------------------------------------------------- for the program

    @property
    def local(self) -> NDArray[Any]:
        """The rank's part with its halo, a view that is valid until the next change of hosts."""
        if self._seen is None:
            self._seen = self.contents()
            self._seen.flags.writeable = not self.constant
        return self._seen

    def exchange(self) -> None:
        """Bring the halo up to date, from the ranks that own its cells. Collective."""
        self.exchanges += 1
        if self._requests is None:
            self._plan_exchange()
        requests = self._requests
        if not requests:
            return
        for view, buffer in self._outgoing:
            buffer[...] = view
        MPI.Prequest.Startall(requests)
        wait(lambda: MPI.Request.Testall(requests))
        for view, buffer in self._incoming:
            view[...] = buffer

    # -------------------------------------------------------------------- for the job

    def contents(self) -> NDArray[Any]:
        """Return the rank's part with its halo, writable."""
        part = self.needed(self.tile)
        shape = (len(part.rows), len(part.columns), *self.cell)
        here = self.bytes(part).reshape(-1) if len(part) else np.empty(0, np.uint8)
        return here.view(self.dtype).reshape(shape)

    @abstractmethod
    def summary(self) -> list[Any]:
        """Return the declaration, which must be equal on every rank of the job."""

    @abstractmethod
    def parts(self, strips: Sequence[RowRange]) -> list[Tile]:
        """Return every rank's tile under these strips."""

    def locate(self, comm: MPI.Intracomm, *layouts: Sequence[RowRange]) -> None:
        """Locate these strips, if `parts` depends on the data. Collective."""
        del comm, layouts  # the tiles of most arrays follow from the strips alone

    def located(self) -> Any:
        """Return the result of `locate`, for a rank that did not take part; None if `parts` needs no result."""
        return None

    def place(self, located: Any) -> None:
        """Store the result of `located` on another rank."""
        del located

    def whole(self) -> tuple[int, int]:
        """Return the rows of the whole array, and the bytes of a row, with the halos around it."""
        rows, columns = self.halos
        return self.rows + 2 * rows, (self.columns + 2 * columns) * self.cell_bytes

    def size(self, part: Tile) -> int:
        """Return the bytes of a part."""
        return len(part) * self.cell_bytes

    def owned(self, tile: Tile) -> Tile:
        """Return the cells that a tile owns, with outer halos; indices start at the halo before the first row."""
        if not len(tile):
            return Tile()
        rows, columns = self.halos
        return Tile(
            _owned(tile.rows, self.rows, rows), _owned(tile.columns, self.columns, columns)
        )

    def needed(self, tile: Tile) -> Tile:
        """Return the cells that a tile's rank must have, with the same indices as `owned`."""
        if not len(tile):
            return Tile()
        (rows, columns), over, across = self.halos, tile.rows, tile.columns
        return Tile(
            RowRange(over.first, over.stop + 2 * rows),
            RowRange(across.first, across.stop + 2 * columns),
        )

    @property
    def expecting(self) -> bool:
        """Whether memory is allocated for a tile that has not arrived."""
        return self._coming is not None

    def expect(self, every: Sequence[Tile], rank: int) -> MappedRows:
        """Allocate and return memory for a new tile, which replaces the present tile in `arrive`.

        Parameters
        ----------
        every
            Tiles of all ranks.
        """
        if self._coming is not None and self._coming[:2] == (list(every), rank):
            return self._coming[2]  # a part of it may have arrived already
        part = self.needed(every[rank])
        memory = self._memory
        if memory is None or (len(part) and memory.columns != part.columns):
            size = math.prod(self.whole())
            pages = (
                self._free_pages
                if self._free_pages and len(self._free_pages) >= size
                else unused_pages(size)
            )
            memory = MappedRows(self.whole()[0], part.columns, self.cell_bytes, pages)
        self._coming = (list(every), rank, memory)
        return memory

    def make_room(self, every: Sequence[Tile], rank: int, deadline: float) -> None:
        """Expect a tile and let the kernel allocate its pages now, as many as it can until the deadline."""
        self.expect(every, rank).make(self.needed(every[rank]).rows, deadline)

    def keep(self) -> None:
        """Copy the cells that stay on this rank to the memory of the expected tile, if that is other memory."""
        assert self._coming is not None  # noqa: S101 - `expect` comes before
        every, rank, memory = self._coming
        stays = self.owned(self.tile) & self.needed(every[rank])
        if memory is not self._memory and len(stays):
            np.copyto(memory.bytes(stays), self.bytes(stays))

    def arrive(self) -> None:
        """Replace the present tile by the expected tile; release the old memory."""
        assert self._coming is not None  # noqa: S101 - `expect` comes before
        self.release()
        every, rank, memory = self._coming
        if memory is self._memory:
            memory.forget_outside(self.needed(self.tile).rows, self.needed(every[rank]).rows)
        elif self._memory is not None:
            self._memory.forget(self.needed(self.tile).rows)
            self._free_pages = self._memory.pages
        self.tile, self.tiles, self._memory = every[rank], every, memory
        self._coming = self._seen = None

    def give_up(self) -> None:
        """Release the memory of an expected tile that is not needed any more."""
        if self._coming is None:
            return
        every, rank, memory = self._coming
        if memory is self._memory:
            memory.forget_outside(self.needed(every[rank]).rows, self.needed(self.tile).rows)
        self._coming = None

    def allocate(self, every: Sequence[Tile], rank: int) -> None:
        """Replace the present tile by a new tile; the caller then writes its contents."""
        self.expect(every, rank)
        self.arrive()

    def adopt_layout(self, comm: MPI.Intracomm, ranks: Mapping[int, int]) -> None:
        """Switch to the new tile and to another communicator; `ranks` is old rank -> new rank of staying ranks."""
        self.release()
        if self._coming is not None:
            self.arrive()
        places = {new: self.tiles[old] for old, new in ranks.items()}
        self.comm, self.tiles = comm, [places[rank] for rank in range(comm.Get_size())]

    def release(self) -> None:
        """Free the requests of `exchange`, before their communicator is freed."""
        for request in self._requests or ():
            request.Free()
        self._requests, self._outgoing, self._incoming = None, [], []

    def bytes(self, part: Tile) -> Bytes:
        """Return the bytes of a part on this rank, with the indices of `owned`: a view, row by row."""
        assert self._memory is not None  # noqa: S101 - a rank with a part has memory
        return self._memory.bytes(part)

    def _plan_exchange(self) -> None:
        """Create the requests; a non-contiguous part has a buffer of its own."""
        owned, needed = map(self.owned, self.tiles), map(self.needed, self.tiles)
        plan = transfers(self.comm.Get_rank(), list(owned), list(needed))
        self._requests = []
        ways = (
            (plan.receives, self.comm.Recv_init, self._incoming),
            (plan.sends, self.comm.Send_init, self._outgoing),
        )
        for parts, request, copies in ways:
            for other, part in parts:
                view = self.bytes(part)
                buffer = view if view.flags.c_contiguous else np.empty_like(view, order="C")
                self._requests.append(request([buffer.reshape(-1), MPI.BYTE], other, HALO_TAG))
                if buffer is not view:
                    copies.append((view.view(self.dtype), buffer.view(self.dtype)))


def _owned(one: RowRange, length: int, halo: int) -> RowRange:
    """Return the cells that a range owns, with indices from the halo before the first cell."""
    first = one.first + halo if one.first else 0
    return RowRange(first, one.stop + (2 if one.stop == length else 1) * halo)


SWAPPED = ("_memory", "_free_pages", "_seen", "_requests", "_outgoing", "_incoming")
"""Attributes with the contents of an array on a rank, and with the requests that send the contents."""


class DeclaredArray(DistributedArray):
    """A distributed array that a program declares by the NumPy shape of the whole array.

    Parameters
    ----------
    name
        Name of the array, unique in its job.
    shape
        Shape of the whole array; the first axis, or the first two axes, are distributed.
    dtype
        Type of an element.
    halo
        Number of the neighbours' rows (and columns, if they are distributed) that each part has on each side. The
        whole array has the same halo around it, which belongs to the parts at the edges and moves with them.
    fill
        Writes the first contents of a part, called as ``fill(index, block)``; without it they are zero. `block`
        has the part's own rows (and columns, if they are distributed), and `index` their numbers in the whole
        array. A part at an edge also owns the halo outside the array, with the numbers from ``-halo`` to -1 or
        from the length on. The other halos are exchanged after every part is filled.
    constant
        Whether only `fill` writes it. Another write raises an error; commits store it once.
    """

    axes = 1
    """Number of distributed axes."""

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: DTypeLike = np.float64,
        halo: int = 0,
        fill: Fill | TileFill | None = None,
        *,
        constant: bool = False,
    ) -> None:
        self.shape, self.halo, self.fill = tuple(shape), halo, fill
        if len(self.shape) < self.axes or min(self.shape) < 1 or halo < 0:
            what = "rows and columns" if self.axes > 1 else "rows"
            raise DeclarationError(
                f"array {name!r}: shape {shape} with halo {halo} has no {what}",
                code="declared-shape-invalid",
                name=name,
                value=list(self.shape),
                halo=halo,
            )
        rows, columns = (*self.shape[: self.axes], 1)[:2]
        halos = (halo, halo if self.axes > 1 else 0)
        super().__init__(name, dtype, rows, columns, self.shape[self.axes :], halos)
        self.constant = constant

    def swap(self, other: DeclaredArray) -> None:
        """Exchange contents with an array of the same declaration, like ``u, v = v, u`` for undeclared arrays.

        Nothing is copied. Every rank must call it; afterwards `local` and `own` of both arrays are new views.

        Raises
        ------
        DeclarationError
            The arrays differ in kind, shape, type or halo, or one of them is constant. Permanent.
        """
        mine, its = self.summary()[1:], other.summary()[1:]
        if mine != its or self.constant:
            pairs = zip(("shapes", "types", "halos"), mine, its, strict=False)
            differ = [f"{name} {a} and {b} differ" for name, a, b in pairs if a != b]
            raise DeclarationError(
                f"cannot swap {self.name!r} and {other.name!r}: "
                f"{', '.join(differ) or 'at least one is constant or of another kind'}",
                code="arrays-not-swappable",
                names=[self.name, other.name],
            )
        for name in SWAPPED:
            first, second = getattr(self, name), getattr(other, name)
            setattr(self, name, second)
            setattr(other, name, first)

    def summary(self) -> list[Any]:
        """Return the declaration, which must be equal on every rank of the job."""
        more = ["tiles"] * (self.axes > 1) + ["constant"] * self.constant
        return [self.name, list(self.shape), self.dtype.str, self.halo, *more]

    def begin(self, every: Sequence[Tile], rank: int) -> None:
        """Allocate a part and fill it. Halo cells of other parts are zero until `exchange`."""
        self._memory = self._free_pages = None  # new memory is zero, reused memory is not
        self.allocate(every, rank)
        if self.fill is None or not len(self.tile):
            return
        owned, needed = self.owned(self.tile), self.needed(self.tile)
        place = (
            slice(owned.rows.first - needed.rows.first, owned.rows.stop - needed.rows.first),
            slice(
                owned.columns.first - needed.columns.first,
                owned.columns.stop - needed.columns.first,
            ),
        )
        index = tuple(
            range(one.first - halo, one.stop - halo)
            for one, halo in zip((owned.rows, owned.columns), self.halos, strict=True)
        )
        fill: Callable[..., object] = self.fill
        block = self.contents()[place[: self.axes]]
        fill(index if self.axes > 1 else index[0], block)

    def fill_halo(self, comm: MPI.Intracomm) -> None:
        """Get the first contents of the halo from its owners. Collective.

        Parameters
        ----------
        comm
            The communicator of the ranks that have filled their parts, in the order of `tiles`.
        """
        if self.fill is None or not self.halo:
            return
        before, exchanges = self.comm, self.exchanges
        self.comm = comm
        self.exchange()
        self.release()
        self.comm, self.exchanges = before, exchanges


class RowArray(DeclaredArray):
    """A distributed array with its rows divided into strips, one for each rank.

    ``local[halo : -halo or None]`` are a rank's own rows.
    """

    @property
    def strip(self) -> RowRange:
        """Range of the rank's rows."""
        return self.tile.rows

    @property
    def own(self) -> NDArray[Any]:
        """The rank's own rows."""
        return self.local[self.halo : self.halo + len(self.tile.rows)]

    def contents(self) -> NDArray[Any]:
        """Return the rank's strip with its halo, writable."""
        part = super().contents()
        return part[:, 0] if len(self.tile) else part.reshape(0, *self.cell)

    def parts(self, strips: Sequence[RowRange]) -> list[Tile]:
        """Return the strips, as tiles."""
        return [Tile(strip, WIDE) if len(strip) else Tile() for strip in strips]


class TileArray(DeclaredArray):
    """A distributed array with its rows and columns divided into tiles, one for each rank.

    A tile has the area of its rank's strip (`apples.malleable.runtime.tiles`) and shorter borders, so that less
    is exchanged. If a rank's columns stay the same its rows do not move, as with strips. Otherwise the cells that
    stay on the rank are copied once within its memory. Halos have corners.
    """

    axes = 2

    @property
    def own(self) -> NDArray[Any]:
        """The rank's own rows and columns."""
        first, tile = self.halo, self.tile
        return self.local[first : first + len(tile.rows), first : first + len(tile.columns)]

    def parts(self, strips: Sequence[RowRange]) -> list[Tile]:
        """Return the strips laid side by side."""
        return tiles(strips, self.columns)


READ_ONLY = ("destination is read-only", "array is read-only", "readonly array")
"""Messages of NumPy, Cython and numba for a write to a read-only array."""
MAYBE = ("read-only", "writable")
"""Words of NumPy, MPI and Python for such a write, which also occur in other errors."""


def written_constants(
    arrays: Sequence[DistributedArray], error: BaseException, trace: TracebackType | None
) -> list[str]:
    """Return the names of the constant arrays that an error is about: the program tried to write to one of them.

    NumPy's message does not name the array, so the function searches the failing line for constant arrays and
    their views. If the line names none and the message is certain, the function returns all constant arrays. For
    other errors it returns an empty list.
    """
    constant = [one for one in arrays if one.constant]
    sure = any(words in str(error) for words in READ_ONLY)
    maybe = isinstance(error, ValueError | TypeError | BufferError)
    if not sure and not (maybe and any(words in str(error) for words in MAYBE)):
        return []
    names_of_line: list[str] = []
    for frame, line in walk_tb(trace):
        code = dis.get_instructions(frame.f_code)
        names = {one.argval for one in code if one.positions and one.positions.lineno == line}
        values = [frame.f_locals.get(name, frame.f_globals.get(name)) for name in names]
        values += [getattr(v, "__dict__", {}).get(name) for v in values for name in names]
        names_of_line = [
            one.name for one in constant if any(_shows(v, one) for v in values)
        ] or names_of_line
    return names_of_line or [one.name for one in constant if sure]


def _shows(value: object, array: DistributedArray) -> bool:
    """Whether a value is an array, its declaration, or a view of its memory."""
    if value is array or array in getattr(value, "arrays", ()):
        return True
    views = [one for one in (value, getattr(value, "data", None)) if isinstance(one, np.ndarray)]
    return any(np.may_share_memory(one, array.local) for one in views)


def redistribute(
    comm: MPI.Intracomm,
    arrays: Sequence[DistributedArray],
    old: Sequence[RowRange],
    new: Sequence[RowRange],
    prefetched: Collection[int] = (),
) -> int:
    """Send every rank of `comm` its new parts; return the bytes that this rank received. Collective.

    A rank keeps its old parts until `DistributedArray.adopt_layout`. Every rank computes its own messages from all
    strips, without negotiation. The owners send halos too, because the first sweep after a change needs them.

    Parameters
    ----------
    old, new
        Each rank's strip before and after; empty for a rank that joins or leaves.
    prefetched
        Ranks that have their constant parts already.
    """
    rank = comm.Get_rank()
    messages, received = PartMessages(comm), 0
    for tag, array in enumerate(arrays):
        array.locate(comm, old, new)
        before, after = array.parts(old), array.parts(new)
        owned, needed = [array.owned(t) for t in before], [array.needed(t) for t in after]
        plan = transfers(rank, owned, needed)
        there = array.expect(after, rank)
        _, pitch = array.whole()
        served = prefetched if array.constant else ()
        for other, part in plan.sends:
            if other not in served:
                messages.send(array.bytes(part), other, tag, pitch)
        if rank in served:
            continue
        for other, part in plan.receives:
            received += array.size(part)
            messages.receive(there.bytes(part), other, tag, pitch)
        array.keep()
    messages.finish()
    return received
