"""Declared data: what a program declares to its job, and how it goes to other ranks on a change of hosts.

1. `State`: values that are the same on every rank; `Replicated`: an array that is.
2. `DistributedArray`: each rank holds a part and its halo: `RowArray` a strip of rows, `TileArray` a tile of rows
   and columns, `EntryArray` (in `csr`) the entries of its rows of a sparse matrix.
3. `redistribute`: parts of all of them from rank to rank, out of and into the arrays themselves: no pickle, and
   no byte is moved twice.
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
                    f"state {name!r} is a method of the state: choose another name",
                    code="declared-name-reserved",
                    name=name,
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
        """Take over all values."""
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
            " arrays are declared by job.array or job.replicated",
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
                f"replicated {name!r} is no contiguous array of plain numbers",
                code="type-unsupported",
                name=name,
                value=str(array.dtype),
            )
        self.name, self.array = name, array

    def share(self, comm: MPI.Intracomm) -> None:
        """Take rank 0's contents. Collective."""
        comm.Bcast([self.array.reshape(-1).view("u1"), MPI.BYTE], 0)


class DeclarationError(ApplicationError):
    """A declaration that cannot be kept through a change of hosts. Permanent."""


class UndeclaredStateError(DeclarationError):
    """State that nobody declared would be lost on a change of hosts. Permanent."""

    code = "state-undeclared"


Fill = Callable[..., None]
"""Called as ``fill(first_row, rows)``, or ``fill(first_row, first_column, tile)``, to write first contents."""
WIDE = RowRange(0, 1)
"""The columns of an array that is distributed over its rows alone: a row is one cell."""
HALO_TAG = 32_767
"""Of the messages of `exchange`, on the communicator that programs use too: the highest tag MPI promises."""


class DistributedArray(ABC):
    """An array of which each rank holds one part, a tile, and a halo around it.

    What a tile is follows from the strips of the job's map (`parts`). Halos beyond the edges of the whole belong
    to the tiles at the edge and travel with them.

    Parameters
    ----------
    name
        Of the array, unique in its job.
    dtype
        Of an element: a plain one, for nothing executable travels.
    rows, columns, cell
        Rows and columns that are shared out, and the shape of what lies at each place.
    halo
        Rows and columns of its neighbours that a part has beside its own, on each side.

    Attributes
    ----------
    tile
        This rank's, without the halo.
    tiles
        Every rank's, in the order of the communicator.
    constant
        Whether nothing but its first contents is ever written to it.
    exchanges
        How often its halo was exchanged on this rank, and so on every rank that was there.
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
        self._spare: mmap.mmap | None = None
        self._seen: NDArray[Any] | None = None
        self._coming: tuple[list[Tile], int, MappedRows] | None = None
        self._requests: list[MPI.Prequest] | None = None
        self._outgoing: list[tuple[NDArray[Any], NDArray[Any]]] = []
        self._incoming: list[tuple[NDArray[Any], NDArray[Any]]] = []

    # ---------------------------------------------------------------- for the program

    @property
    def local(self) -> NDArray[Any]:
        """The rank's part with its halo. A view that is valid until the next change of hosts."""
        if self._seen is None:
            self._seen = self.contents()
            self._seen.flags.writeable = not self.constant
        return self._seen

    def exchange(self) -> None:
        """Bring the halo up to date, from the ranks that own what it shows. Collective."""
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
        """Return the rank's part with its halo, to be written."""
        part = self.needed(self.tile)
        shape = (len(part.rows), len(part.columns), *self.cell)
        here = self.bytes(part).reshape(-1) if len(part) else np.empty(0, np.uint8)
        return here.view(self.dtype).reshape(shape)

    @abstractmethod
    def summary(self) -> list[Any]:
        """Return what must be the same on every rank of the job."""

    @abstractmethod
    def parts(self, strips: Sequence[RowRange]) -> list[Tile]:
        """Return every rank's tile under these strips."""

    def locate(self, comm: MPI.Intracomm, *layouts: Sequence[RowRange]) -> None:
        """Find out together what `parts` has to know of these strips. Collective."""
        del comm, layouts  # most follow from the strips alone

    def located(self) -> Any:
        """Return what `locate` found out, for a rank that was not there; None where there is no such thing."""
        return None

    def place(self, located: Any) -> None:
        """Take what `located` returned elsewhere."""
        del located

    def whole(self) -> tuple[int, int]:
        """Return rows, and bytes of a row, of the whole with the halos around it."""
        rows, columns = self.halos
        return self.rows + 2 * rows, (self.columns + 2 * columns) * self.cell_bytes

    def size(self, part: Tile) -> int:
        """Return the bytes of a part."""
        return len(part) * self.cell_bytes

    def owned(self, tile: Tile) -> Tile:
        """Return what a tile owns, counted with the halo before the first row and column: outer halos included."""
        if not len(tile):
            return Tile()
        rows, columns = self.halos
        return Tile(
            _owned(tile.rows, self.rows, rows), _owned(tile.columns, self.columns, columns)
        )

    def needed(self, tile: Tile) -> Tile:
        """Return what a tile's rank must have, counted likewise."""
        if not len(tile):
            return Tile()
        (rows, columns), over, across = self.halos, tile.rows, tile.columns
        return Tile(
            RowRange(over.first, over.stop + 2 * rows),
            RowRange(across.first, across.stop + 2 * columns),
        )

    @property
    def expecting(self) -> bool:
        """Whether memory is held for a tile that has not arrived."""
        return self._coming is not None

    def expect(self, every: Sequence[Tile], rank: int) -> MappedRows:
        """Return memory for the contents of another tile, which it holds from `arrive` on.

        Parameters
        ----------
        every
            All ranks' tiles.
        """
        if self._coming is not None and self._coming[:2] == (list(every), rank):
            return self._coming[2]  # some of it may have come already
        part = self.needed(every[rank])
        memory = self._memory
        if memory is None or (len(part) and memory.columns != part.columns):
            size = math.prod(self.whole())
            pages = self._spare if self._spare and len(self._spare) >= size else unused_pages(size)
            memory = MappedRows(self.whole()[0], part.columns, self.cell_bytes, pages)
        self._coming = (list(every), rank, memory)
        return memory

    def make_room(self, every: Sequence[Tile], rank: int, deadline: float) -> None:
        """Expect a tile, and have its memory before any of it comes, or as much as is made by the deadline."""
        self.expect(every, rank).make(self.needed(every[rank]).rows, deadline)

    def keep(self) -> None:
        """Copy what stays on this rank to the memory of the tile that is expected, if that is other memory."""
        assert self._coming is not None  # noqa: S101 - `expect` comes before
        every, rank, memory = self._coming
        stays = self.owned(self.tile) & self.needed(every[rank])
        if memory is not self._memory and len(stays):
            np.copyto(memory.bytes(stays), self.bytes(stays))

    def arrive(self) -> None:
        """Hold the tile that was expected; give back the memory of the one before."""
        assert self._coming is not None  # noqa: S101 - `expect` comes before
        self.release()
        every, rank, memory = self._coming
        if memory is self._memory:
            memory.forget_outside(self.needed(self.tile).rows, self.needed(every[rank]).rows)
        elif self._memory is not None:
            self._memory.forget(self.needed(self.tile).rows)
            self._spare = self._memory.pages
        self.tile, self.tiles, self._memory = every[rank], every, memory
        self._coming = self._seen = None

    def give_up(self) -> None:
        """Give back the memory of a tile that was expected and is not to be held."""
        if self._coming is None:
            return
        every, rank, memory = self._coming
        if memory is self._memory:
            memory.forget_outside(self.needed(every[rank]).rows, self.needed(self.tile).rows)
        self._coming = None

    def hold(self, every: Sequence[Tile], rank: int) -> None:
        """Hold another tile, whose contents are written next."""
        self.expect(every, rank)
        self.arrive()

    def settle(self, comm: MPI.Intracomm, ranks: Mapping[int, int]) -> None:
        """Hold what has come, and work on another communicator: its rank for each old one that goes on."""
        self.release()
        if self._coming is not None:
            self.arrive()
        places = {new: self.tiles[old] for old, new in ranks.items()}
        self.comm, self.tiles = comm, [places[rank] for rank in range(comm.Get_size())]

    def release(self) -> None:
        """Free the requests of `exchange`, before their communicator is."""
        for request in self._requests or ():
            request.Free()
        self._requests, self._outgoing, self._incoming = None, [], []

    def bytes(self, part: Tile) -> Bytes:
        """Return the bytes of a part of what is here, counted as `owned` counts: a view with its rows."""
        assert self._memory is not None  # noqa: S101 - who holds a part has memory
        return self._memory.bytes(part)

    def _plan_exchange(self) -> None:
        """Make the requests; a part that lies in pieces has a buffer of its own."""
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
    """Return what a range owns, counted with the halo before the first."""
    first = one.first + halo if one.first else 0
    return RowRange(first, one.stop + (2 if one.stop == length else 1) * halo)


SWAPPED = ("_memory", "_spare", "_seen", "_requests", "_outgoing", "_incoming")
"""Where an array's contents are on a rank, and what sends them from there."""


class DeclaredArray(DistributedArray):
    """A distributed array that a program declares by the shape of the whole, as numpy has it.

    Parameters
    ----------
    name
        Of the array, unique in its job.
    shape
        Of the whole; its first axes, one or two, are shared out.
    dtype
        Of an element.
    halo
        Rows of its neighbours, and columns where they are shared out too, that a part has beside its own. Around
        the whole there are as many, which belong to the parts at the edges and travel with them.
    fill
        Writes the first contents of a part, called with its first row, its first column where columns are shared
        out, and the part; without it they are zero.
    constant
        Whether nothing else ever writes it. Who tries gets an error; commits write it once.
    """

    axes = 1
    """How many axes are shared out."""

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: DTypeLike = np.float64,
        halo: int = 0,
        fill: Fill | None = None,
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
        """Exchange contents with an array declared alike: what ``u, v = v, u`` is for arrays of a program's own.

        Nothing is copied. Every rank calls it; `local` and `own` of both are other views afterwards.

        Raises
        ------
        DeclarationError
            The other is of another kind, shape, type or halo, or one of them is constant. Permanent.
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
        """Return what must be the same on every rank of the job."""
        more = ["tiles"] * (self.axes > 1) + ["constant"] * self.constant
        return [self.name, list(self.shape), self.dtype.str, self.halo, *more]

    def begin(self, every: Sequence[Tile], rank: int) -> None:
        """Hold a part with its first contents."""
        self._memory = self._spare = None  # what nobody has written to is zero
        self.hold(every, rank)
        if self.fill is not None and len(self.tile):
            first = (self.tile.rows.first, self.tile.columns.first)
            self.fill(*first[: self.axes], self.contents())


class RowArray(DeclaredArray):
    """A distributed array whose rows are divided into strips, one for each rank.

    ``local[halo : -halo or None]`` are a rank's own rows.
    """

    @property
    def strip(self) -> RowRange:
        """The rank's rows."""
        return self.tile.rows

    @property
    def own(self) -> NDArray[Any]:
        """The rank's own rows."""
        return self.local[self.halo : self.halo + len(self.tile.rows)]

    def contents(self) -> NDArray[Any]:
        """Return the rank's strip with its halo, to be written."""
        found = super().contents()
        return found[:, 0] if len(self.tile) else found.reshape(0, *self.cell)

    def parts(self, strips: Sequence[RowRange]) -> list[Tile]:
        """Return the strips, as tiles."""
        return [Tile(strip, WIDE) if len(strip) else Tile() for strip in strips]


class TileArray(DeclaredArray):
    """A distributed array whose rows and columns are divided into tiles, one for each rank.

    A tile has the area of its rank's strip (`apples.malleable.runtime.tiles`) and shorter borders, so that less
    is exchanged. Where a rank's columns stay the same its rows do not move, as with strips; where they do not,
    what stays on the rank is copied once within its memory. Halos have corners.
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
"""What NumPy, Cython and numba say of an array that is not to be written to."""
MAYBE = ("read-only", "writable")
"""What NumPy, MPI and Python say of one as well, and may say of something else."""


def written_constants(
    arrays: Sequence[DistributedArray], error: BaseException, trace: TracebackType | None
) -> list[str]:
    """Return the names of the constant arrays that an error is about: the program tried to write to one of them.

    NumPy does not say which array it may not write to. It is one that the line names where this happened, or is a
    view of one; where the line names neither and the error can be of nothing else all constant ones are returned.
    Of other errors none is.
    """
    constant = [one for one in arrays if one.constant]
    sure = any(words in str(error) for words in READ_ONLY)
    maybe = isinstance(error, ValueError | TypeError | BufferError)
    if not sure and not (maybe and any(words in str(error) for words in MAYBE)):
        return []
    found: list[str] = []
    for frame, line in walk_tb(trace):
        code = dis.get_instructions(frame.f_code)
        names = {one.argval for one in code if one.positions and one.positions.lineno == line}
        values = [frame.f_locals.get(name, frame.f_globals.get(name)) for name in names]
        values += [getattr(v, "__dict__", {}).get(name) for v in values for name in names]
        found = [one.name for one in constant if any(_shows(v, one) for v in values)] or found
    return found or [one.name for one in constant if sure]


def _shows(value: object, array: DistributedArray) -> bool:
    """Whether a value is an array, what was declared of it, or numbers in its memory."""
    if value is array or array in getattr(value, "arrays", ()):
        return True
    views = [one for one in (value, getattr(value, "data", None)) if isinstance(one, np.ndarray)]
    return any(np.may_share_memory(one, array.local) for one in views)


def redistribute(
    comm: MPI.Intracomm,
    arrays: Sequence[DistributedArray],
    old: Sequence[RowRange],
    new: Sequence[RowRange],
    ahead: Collection[int] = (),
) -> int:
    """Send every rank of `comm` its new parts; return the bytes this rank received. Collective.

    What a rank had it still has, until `DistributedArray.settle` lets go of it. Every rank works out its own
    messages from all strips, so that nothing is negotiated. Halos are sent by their owner too: the first sweep
    after a change needs them.

    Parameters
    ----------
    old, new
        Each rank's strip before and after; empty for one that joins or leaves.
    ahead
        Ranks that have got their constant parts before.
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
        served = ahead if array.constant else ()
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
