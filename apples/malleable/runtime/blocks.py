"""`Blocks`: a program's migratable objects, by number; a table has the rank of each.

It depends on a communicator and its processors, not on a job. A rigid program uses it alone:

    cells = Blocks("cells", make, pack, unpack, count=64, strategy="refine")
    cells.begin(MPI.COMM_WORLD, [Processor("here")] * MPI.COMM_WORLD.Get_size())
    while ...:
        for number, cell in cells.items():
            with cells.timed(number):
                cell.compute()
        cells.balance()

A malleable program gets it from `Task.blocks`; the job calls `begin`, `redistribute` and `adopt_layout`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
from mpi4py import MPI

from apples.errors import ApplicationError, UsageError, coded
from apples.io.plugins import resolve
from apples.malleable.balancers import STRATEGIES
from apples.malleable.balancers.block_table import BlockTable, Decomposition, demand_blocks, runs
from apples.malleable.balancers.contract import LoadBalancer, Measured, Processor, accepted
from apples.malleable.runtime.collectives import broadcast_document, combine_by_number, wait
from apples.malleable.runtime.packing import Arrays, Packed, bytes_of, packed, unpacked

NO_RANK = -1


def owners_now(comm: MPI.Intracomm, own: Collection[int], count: int) -> tuple[int, ...]:
    """Return the rank of each block; `NO_RANK` if no rank has it. Collective."""
    rank = comm.Get_rank()
    # One maximum over all blocks: exact, and one collective call for any number of ranks.
    every = combine_by_number(comm, dict.fromkeys(own, float(rank)), count, float(NO_RANK))
    return tuple(int(owner) for owner in every)


def exchange(
    comm: MPI.Intracomm, leaving: Mapping[int, Packed], old: Sequence[int], new: Sequence[int]
) -> dict[int, Packed]:
    """Send blocks that leave this rank and return the blocks that arrive. Collective.

    Parameters
    ----------
    leaving
        The bytes of each block that `old` places here and `new` elsewhere.
    """
    rank, count = comm.Get_rank(), len(new)
    sizes = combine_by_number(comm, {n: len(b) for n, b in leaving.items()}, count, 0.0)
    coming = {
        number: np.empty(int(sizes[number]), dtype=np.uint8)
        for number in range(count)
        if new[number] == rank != old[number]
    }
    requests = [comm.Irecv([b, MPI.BYTE], old[n], 0) for n, b in coming.items()]
    requests += [comm.Isend([leaving[n], MPI.BYTE], new[n], 0) for n in sorted(leaving)]
    moving = sum(map(len, coming.values())) + sum(len(leaving[n]) for n in leaving)
    wait(lambda: MPI.Request.Testall(requests), moving)
    return coming


T = TypeVar("T")


class Blocks(Generic[T]):
    """Numbered objects of a program, each on one rank.

    Parameters
    ----------
    name
        Name of the blocks, unique in its program.
    make
        Returns the block of a number; called once, on the first rank of the block.
    pack, unpack
        From a block to named arrays of numbers, and back; nothing is pickled.
    count
        Number of blocks; an alternative to `decomposition`.
    decomposition
        ``tight``, ``redundant[:FACTOR]`` or ``sparse[:SPARE]``: the number of blocks follows from the processors
        at the start. `shares` has the intended size of each block.
    strategy
        The load balancer: a built-in name, ``module:name``, or a function.
    background
        Whether to measure the share of each CPU that other processes take. False if the processors' speeds
        include it.
    partners
        Returns for the number of a block: block -> bytes that it sends there in a step; for `placement`.

    Raises
    ------
    UsageError
        Neither or both of count and decomposition, or an unknown strategy or decomposition. Permanent.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[int], T],
        pack: Callable[[T], Arrays],
        unpack: Callable[[dict[str, np.ndarray[Any, Any]]], T],
        *,
        count: int = 0,
        decomposition: str = "",
        strategy: str | LoadBalancer = "greedy",
        background: bool = False,
        partners: Callable[[int], Mapping[int, float]] | None = None,
    ) -> None:
        if bool(count) == bool(decomposition):
            raise UsageError(
                f"blocks {name!r}: give either a count or a decomposition",
                code="option-conflict",
                options=["count", "decomposition"],
                name=name,
            )
        self.name, self._make, self._pack, self._unpack = name, make, pack, unpack
        self._asked = Decomposition.read(decomposition) if decomposition else demand_blocks(count)
        self._strategy_name = strategy if isinstance(strategy, str) else strategy.__name__
        self._strategy: LoadBalancer = (
            resolve(strategy, STRATEGIES, "strategy") if isinstance(strategy, str) else strategy
        )
        self._background, self._partners = background, partners
        self._own: dict[int, T] = {}
        self._seconds: dict[int, float] = {}
        self._wall = self._processor = 0.0
        self._work: tuple[float, ...] = ()
        self.shares: tuple[float, ...] = ()
        self.table = BlockTable(())
        self.processors: tuple[Processor, ...] = ()
        self.comm: MPI.Intracomm = MPI.COMM_SELF
        self.version = 0
        self.moved = 0
        self.moved_bytes = 0

    # ------------------------------------------------------- for the program

    def __len__(self) -> int:
        """Return the number of blocks on all ranks."""
        return len(self.table)

    def __getitem__(self, number: int) -> T:
        """Return a block of this rank; `KeyError` for any other block."""
        return self._own[number]

    def __setitem__(self, number: int, block: T) -> None:
        """Replace a block of this rank by another object."""
        if number not in self._own:
            raise KeyError(number)
        self._own[number] = block

    def __contains__(self, number: object) -> bool:
        """Whether a block is on this rank."""
        return number in self._own

    def items(self) -> list[tuple[int, T]]:
        """Return the blocks of this rank with their numbers, ascending."""
        return sorted(self._own.items(), key=lambda pair: pair[0])

    def owner(self, number: int) -> int:
        """Return the rank that has a block."""
        return self.table.owners[number]

    def content(self, number: int) -> list[bytes]:
        """Return the arrays of a block on this rank as bytes, in the order of their names."""
        arrays = self._pack(self._own[number])
        return [np.ascontiguousarray(arrays[name]).tobytes() for name in sorted(arrays)]

    @property
    def count(self) -> int:
        """The declared number of blocks; 0 if it depends on the processors."""
        return 0 if isinstance(self._asked, Decomposition) else self._asked

    @contextmanager
    def timed(self, number: int) -> Iterator[None]:
        """Measure the time inside the context as work of a block."""
        wall, processor = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            spent, used = time.perf_counter() - wall, time.thread_time() - processor
            self._wall += spent
            self._processor += used
            seconds = used if self._background else spent
            self._seconds[number] = self._seconds.get(number, 0.0) + seconds

    def balance(self) -> int:
        """Let the strategy move blocks by the measurements since the last call; return the number. Collective."""
        self.redistribute(self.comm, self.processors)
        return self.moved

    # ----------------------------------------------------------- for the job

    def begin(self, comm: MPI.Intracomm, processors: Sequence[Processor]) -> None:
        """Create every block on its first rank. Every rank passes the same processors."""
        self.expect(comm, processors)
        asked = self._asked
        if isinstance(asked, Decomposition):
            self.shares, self.table = asked.shares(processors), asked.begin(processors)
        else:
            self.shares, self.table = (1 / asked,) * asked, runs(asked, processors)
        self._work = tuple(share * len(self.table) for share in self.shares)
        self._own = {number: self._make(number) for number in self.table.of(comm.Get_rank())}
        self._changed()

    def redistribute(self, comm: MPI.Intracomm, processors: Sequence[Processor]) -> int:
        """Move blocks to the strategy's owners; return the bytes that this rank received. Collective over `comm`.

        All ranks with blocks before or after take part; ranks with blocks before come first. A rank that is not
        enabled has no blocks afterwards. Rank numbers are those of `comm` from here on.
        """
        self.expect(comm, processors)
        self._learn()
        owners = self._owners(self._own)
        new = self._decide(Measured(self._work, owners, self._measured_processors()))
        rank = comm.Get_rank()
        leaving = {n: self._packed(n, block) for n, block in self._own.items() if new[n] != rank}
        coming = exchange(comm, leaving, owners, new)
        for number in leaving:
            del self._own[number]
        for number, block in coming.items():
            self._own[number] = self._read(number, block)
        self.moved = sum(a != b for a, b in zip(owners, new, strict=True))
        self.moved_bytes = sum(map(len, coming.values()))
        self.table = BlockTable(new)
        self._changed()
        return self.moved_bytes

    def adopt_layout(self, comm: MPI.Intracomm, ranks: Mapping[int, int]) -> None:
        """Switch to another communicator; `ranks` is old rank -> new rank of staying ranks."""
        self.table = BlockTable(tuple(ranks[owner] for owner in self.table.owners))
        places = {new: self.processors[old] for old, new in ranks.items()}
        self.comm = comm
        self.processors = tuple(places[rank] for rank in range(comm.Get_size()))

    @property
    def nbytes(self) -> int:
        """Bytes of the numbers in the blocks of this rank."""
        own = self._own.items()
        return sum(bytes_of(self._pack(block), f"{self.name} {n}") for n, block in own)

    def document(self) -> dict[str, Any]:
        """Return the data of a commit in addition to the blocks' bytes; the same on every rank."""
        return {"shares": list(self.shares), "work": list(self._work)}

    def expect(self, comm: MPI.Intracomm, processors: Sequence[Processor]) -> None:
        """Set the ranks that will have blocks. Every rank passes the same processors."""
        self.comm, self.processors = comm, self._demand(comm, processors)

    def restore(
        self, document: Mapping[str, Any], held: Mapping[int, Packed], *, stay: bool = False
    ) -> None:
        """Move the blocks of a commit to the ranks set by `expect`. Collective.

        Parameters
        ----------
        document
            As `document` returned it for the commit.
        held
            The bytes of the blocks that this rank has read. Each block is on one rank.
        stay
            Whether the blocks stay on these ranks. Otherwise the strategy places them.
        """
        self.shares = tuple(map(float, document["shares"]))
        self._work = tuple(map(float, document["work"]))
        new = now = self._owners(held)
        if not stay:
            first = next(rank for rank, it in enumerate(self.processors) if it.enabled)
            on_first = Measured(self._work, (first,) * len(self._work), self.processors)
            new = self._decide(on_first)
        rank = self.comm.Get_rank()
        leaving = {number: block for number, block in held.items() if new[number] != rank}
        own = {number: block for number, block in held.items() if new[number] == rank}
        own |= exchange(self.comm, leaving, now, new)
        self._own = {number: self._read(number, block) for number, block in own.items()}
        self.table = BlockTable(new)
        self._changed()

    def packers(self) -> dict[int, Callable[[], Packed]]:
        """Return for each block of this rank the function that packs it, even after the block has left."""
        return {number: partial(self._packed, number, block) for number, block in self.items()}

    def summary(self) -> list[Any]:
        """Return the declaration, which must be equal on every rank of a job."""
        return [self.name, str(self._asked), self._strategy_name]

    # --------------------------------------------------------------- internals

    def _demand(
        self, comm: MPI.Intracomm, processors: Sequence[Processor]
    ) -> tuple[Processor, ...]:
        if len(processors) != comm.Get_size():
            raise UsageError(
                f"blocks {self.name!r}: {len(processors)} processors for {comm.Get_size()} ranks",
                code="processors-differ",
                name=self.name,
                value=len(processors),
                bound=comm.Get_size(),
            )
        return tuple(processors)

    def _owners(self, own: Collection[int]) -> tuple[int, ...]:
        """Return the rank of every block. Collective; every rank raises an error if a block is on no rank."""
        owners = owners_now(self.comm, own, len(self.shares))
        lost = [number for number, owner in enumerate(owners) if owner == NO_RANK]
        if lost:
            raise ApplicationError(
                f"blocks {self.name!r}: {len(lost)} are on no rank: {lost[:5]}",
                code="blocks-lost",
                name=self.name,
                value=lost[:5],
            )
        return owners

    def _changed(self) -> None:
        self.version += 1
        self._seconds = {}
        self._wall = self._processor = 0.0

    def _learn(self) -> None:
        """Share the measurements with all ranks, and the number of blocks with joining ranks. Collective."""
        known = broadcast_document(self.comm, self.document())
        self.shares = tuple(known["shares"])
        speed = self.processors[self.comm.Get_rank()].speed
        mine = {
            number: seconds * speed for number, seconds in self._seconds.items() if seconds > 0
        }
        work = combine_by_number(self.comm, mine, len(self.shares), -1.0)
        if (work >= 0).any():
            work[work < 0] = work[work >= 0].mean()  # blocks without a measurement
            self._work = tuple(map(float, work))
        else:
            self._work = tuple(known["work"])

    def _measured_processors(self) -> tuple[Processor, ...]:
        if not self._background:
            return self.processors
        rank = self.comm.Get_rank()
        taken = 1 - min(1.0, self._processor / self._wall) if self._wall > 0 else 0.0
        every = combine_by_number(self.comm, {rank: taken}, len(self.processors), 0.0)
        pairs = zip(self.processors, every, strict=True)
        return tuple(replace(it, background=float(share)) for it, share in pairs)

    def _decide(self, measured: Measured) -> tuple[int, ...]:
        """Return the strategy's owners, which rank 0 computes for all. Collective."""
        answer: dict[str, Any] = {}
        if self.comm.Get_rank() == 0:
            try:
                measured_here = replace(measured, messages=self._messages())
                # One rank calls it: a user's strategy may be random, and ranks that disagree about an
                # owner lose blocks.
                answer["owners"] = accepted(
                    self._strategy(measured_here), measured, self._strategy_name
                )
            except Exception as error:  # noqa: BLE001 - a user's own code; all ranks must raise it
                answer["error"] = (
                    f"strategy {self._strategy_name}: {type(error).__name__}: {error}"
                )
                answer["coded"] = {
                    "strategy": self._strategy_name,
                    "kind": type(error).__name__,
                    **coded(error, code="user-code-failed"),
                }
        answer = broadcast_document(self.comm, answer)
        if "error" in answer:
            raise UsageError(str(answer["error"]), **answer["coded"])
        return tuple(answer["owners"])

    def _messages(self) -> tuple[tuple[int, int, float], ...]:
        """Return the bytes that each block sends each other in a step, by the program's `partners`."""
        if self._partners is None:
            return ()
        numbers = range(len(self.shares))
        return tuple(
            (number, int(other), float(size))
            for number in numbers
            for other, size in self._partners(number).items()
        )

    def _packed(self, number: int, block: T) -> Packed:
        return packed(self._pack(block), f"{self.name} {number}")

    def _read(self, number: int, block: Packed) -> T:
        return self._unpack(unpacked(block, f"{self.name} {number}"))
