"""`Blocks`: a program's migratable objects, found by number, on whichever rank the table says.

Knows a communicator and its processors, and nothing of jobs: a rigid program uses it alone,

    cells = Blocks("cells", make, pack, unpack, count=64, strategy="refine")
    cells.begin(MPI.COMM_WORLD, [Processor("here")] * MPI.COMM_WORLD.Get_size())
    while ...:
        for number, cell in cells.items():
            with cells.timed(number):
                cell.compute()
        cells.balance()

and a malleable one gets it from `Job.blocks`, which begins, redistributes and settles it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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

NOBODY = -1


def owners_now(comm: MPI.Intracomm, own: Sequence[int], count: int) -> tuple[int, ...]:
    """Return which rank says that it has each block; `NOBODY` where none does. Collective."""
    rank = comm.Get_rank()
    # One maximum over all blocks: exact, and one collective call for any number of ranks.
    every = combine_by_number(comm, dict.fromkeys(own, float(rank)), count, float(NOBODY))
    return tuple(int(owner) for owner in every)


def exchange(
    comm: MPI.Intracomm, leaving: Mapping[int, Packed], old: Sequence[int], new: Sequence[int]
) -> dict[int, Packed]:
    """Send blocks that leave this rank and return those that come. Collective.

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
        if new[number] == rank != old[number] != NOBODY
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
        Of the blocks, unique in its program.
    make
        Returns the block of a number; called on the rank that has it first, and nowhere again.
    pack, unpack
        From a block to named arrays of numbers, and back; nothing is pickled.
    count
        How many blocks; or else
    decomposition
        ``tight``, ``redundant[:FACTOR]`` or ``sparse[:SPARE]``: as many as suits the processors at the start.
        `shares` then says how large each is meant to be.
    strategy
        Of the load balancer: a name of ours, ``module:name``, or a function.
    background
        Whether what others take of each CPU is measured here; False where the processors' speeds say it.
    partners
        Returns for a block's number to which blocks it sends in a step, and how many bytes; for `placement`.

    Raises
    ------
    UsageError
        Neither or both of count and decomposition, or a strategy or decomposition nobody knows. Permanent.
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
        """Return how many blocks there are, on all ranks."""
        return len(self.table)

    def __getitem__(self, number: int) -> T:
        """Return a block that is here; `KeyError` for one that is elsewhere."""
        return self._own[number]

    def __setitem__(self, number: int, block: T) -> None:
        """Put another object in the place of a block that is here."""
        if number not in self._own:
            raise KeyError(number)
        self._own[number] = block

    def __contains__(self, number: object) -> bool:
        """Whether a block is here."""
        return number in self._own

    def items(self) -> list[tuple[int, T]]:
        """Return the blocks that are here with their numbers, ascending."""
        return sorted(self._own.items(), key=lambda pair: pair[0])

    def owner(self, number: int) -> int:
        """Return the rank that has a block."""
        return self.table.owners[number]

    def content(self, number: int) -> list[bytes]:
        """Return the arrays that a block which is here consists of, in the order of their names, as bytes."""
        arrays = self._pack(self._own[number])
        return [np.ascontiguousarray(arrays[name]).tobytes() for name in sorted(arrays)]

    @property
    def count(self) -> int:
        """How many were asked for; 0 where that depends on the processors."""
        return 0 if isinstance(self._asked, Decomposition) else self._asked

    @contextmanager
    def timed(self, number: int) -> Iterator[None]:
        """Measure what is done inside as work of a block."""
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
        """Let the strategy move blocks by what was measured since the last time; return how many. Collective."""
        self.redistribute(self.comm, self.processors)
        return self.moved

    # ----------------------------------------------------------- for the job

    def begin(self, comm: MPI.Intracomm, processors: Sequence[Processor]) -> None:
        """Make every block on the rank it begins on. Every rank gives the same processors."""
        self.expect(comm, processors)
        asked = self._asked
        if isinstance(asked, Decomposition):
            self.shares, self.table = asked.shares(processors), asked.begin(processors)
        else:
            self.shares, self.table = (1 / asked,) * asked, runs(asked, processors)
        self._work = tuple(
            broadcast_document * len(self.table) for broadcast_document in self.shares
        )
        self._own = {number: self._make(number) for number in self.table.of(comm.Get_rank())}
        self._changed()

    def redistribute(self, comm: MPI.Intracomm, processors: Sequence[Processor]) -> int:
        """Move blocks to where the strategy wants them; return the bytes that came here. Collective over `comm`.

        All ranks that have blocks or shall have some take part, those that had some first; one that is not
        enabled has none afterwards. Rank numbers are those of `comm` from here on.
        """
        self.expect(comm, processors)
        self._learn()
        owners = owners_now(comm, list(self._own), len(self.shares))
        lost = [number for number, owner in enumerate(owners) if owner < 0]
        if lost:
            raise ApplicationError(
                f"blocks {self.name!r}: {len(lost)} are on no rank: {lost[:5]}",
                code="blocks-lost",
                name=self.name,
                value=lost[:5],
            )
        new = self._decide(Measured(self._work, owners, self._measured_processors()))
        rank = comm.Get_rank()
        leaving = {n: self._bytes(n) for n in self._own if new[n] != rank}
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

    def settle(self, comm: MPI.Intracomm, ranks: Mapping[int, int]) -> None:
        """Work on another communicator from now on: its rank for each old one that goes on."""
        self.table = BlockTable(tuple(ranks[owner] for owner in self.table.owners))
        places = {new: self.processors[old] for old, new in ranks.items()}
        self.comm = comm
        self.processors = tuple(places[rank] for rank in range(comm.Get_size()))

    @property
    def nbytes(self) -> int:
        """Bytes of the numbers in the blocks that are here."""
        own = self._own.items()
        return sum(bytes_of(self._pack(block), f"{self.name} {n}") for n, block in own)

    def packed(self) -> dict[int, Packed]:
        """Return the bytes of each block that is here."""
        return {number: self._bytes(number) for number in sorted(self._own)}

    def document(self) -> dict[str, Any]:
        """Return what a commit must know beside the blocks' bytes; the same on every rank."""
        return {"shares": list(self.shares), "work": list(self._work)}

    def expect(self, comm: MPI.Intracomm, processors: Sequence[Processor]) -> None:
        """Know on which ranks blocks will be. Every rank gives the same processors."""
        self.comm, self.processors = comm, self._demand(comm, processors)

    def restore(
        self, document: Mapping[str, Any], fetch: Callable[[Sequence[int]], Mapping[int, Packed]]
    ) -> None:
        """Hold the blocks of a commit, on the ranks that are expected. Collective.

        Parameters
        ----------
        fetch
            Called with the rank that each block goes to; returns those of this rank. Collective.
        """
        self.shares = tuple(map(float, document["shares"]))
        self._work = tuple(map(float, document["work"]))
        first = next(place for place, one in enumerate(self.processors) if one.enabled)
        nobodys = Measured(self._work, (first,) * len(self._work), self.processors)
        self.table = BlockTable(self._decide(nobodys))
        own = fetch(self.table.owners)
        self._own = {number: self._read(number, block) for number, block in own.items()}
        self._changed()

    def held(self) -> dict[int, Callable[[], Packed]]:
        """Return for each block that is here now what packs it, whether or not it is here then."""
        return {number: partial(self._packed, number, block) for number, block in self.items()}

    def resume(self, document: Mapping[str, Any], own: Mapping[int, Packed]) -> None:
        """Hold the blocks that were here in a process before this one; `locate` comes next."""
        self.shares = tuple(map(float, document["shares"]))
        self._work = tuple(map(float, document["work"]))
        self._own = {number: self._read(number, block) for number, block in own.items()}

    def locate(self) -> None:
        """Find out on which rank each block is. Collective."""
        self.table = BlockTable(owners_now(self.comm, list(self._own), len(self.shares)))
        self._changed()

    def summary(self) -> list[Any]:
        """Return what must be the same on every rank of a job."""
        return [self.name, str(self._asked), self._strategy_name]

    # --------------------------------------------------------------- innards

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

    def _changed(self) -> None:
        self.version += 1
        self._seconds = {}
        self._wall = self._processor = 0.0

    def _learn(self) -> None:
        """Tell all ranks what was measured, and those that join what blocks there are. Collective."""
        known = broadcast_document(self.comm, self.document())
        self.shares = tuple(known["shares"])
        speed = self.processors[self.comm.Get_rank()].speed
        mine = {
            number: seconds * speed for number, seconds in self._seconds.items() if seconds > 0
        }
        work = combine_by_number(self.comm, mine, len(self.shares), -1.0)
        if (work >= 0).any():
            guess = float(
                work[work >= 0].mean()
            )  # who was not timed is taken for one of the others
            work[work < 0] = guess
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
        return tuple(replace(one, background=float(share_)) for one, share_ in pairs)

    def _decide(self, measured: Measured) -> tuple[int, ...]:
        """Return the strategy's owners, as rank 0 asked it. Collective."""
        answer: dict[str, Any] = {}
        if self.comm.Get_rank() == 0:
            try:
                told = replace(measured, messages=self._messages())
                # One rank asks: a user's strategy may be random, and ranks that disagree about an
                # owner lose blocks.
                answer["owners"] = accepted(self._strategy(told), measured, self._strategy_name)
            except Exception as error:  # noqa: BLE001 - a user's own code; all ranks must hear of it
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
        """Return what each block sends each other in a step, as the program says."""
        if self._partners is None:
            return ()
        numbers = range(len(self.shares))
        return tuple(
            (one, int(other), float(size))
            for one in numbers
            for other, size in self._partners(one).items()
        )

    def _bytes(self, number: int) -> Packed:
        return self._packed(number, self._own[number])

    def _packed(self, number: int, block: T) -> Packed:
        return packed(self._pack(block), f"{self.name} {number}")

    def _read(self, number: int, block: Packed) -> T:
        return self._unpack(unpacked(block, f"{self.name} {number}"))
