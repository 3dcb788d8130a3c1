"""The change of a job's hosts, as its ranks make it together.

1. The MPI worlds of the hosts meet: `admit` on the side of the job, `connect` on that of a group that joins.
2. All ranks, old and new, carry out the plan (`carry_out`): every array's rows, every block and all state go to
   their new ranks; then those that stay get a communicator of their own.
3. The safe point returns a `HostChange`, or a `Rollback` where the data came from a commit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from mpi4py import MPI

from apples.malleable.balancers.contract import Processor
from apples.malleable.control.command import ChangePlan, HostRows
from apples.malleable.control.strips import RowRange, rank_ranges
from apples.malleable.runtime.blocks import Blocks
from apples.malleable.runtime.collectives import broadcast_document, total, wait
from apples.malleable.runtime.csr import CsrMatrix
from apples.malleable.runtime.declared import (
    DistributedArray,
    Replicated,
    RowArray,
    State,
    TileArray,
    redistribute,
)


@dataclass(frozen=True, slots=True)
class HostChange:
    """What a safe point returns after a change of hosts: all data is as it was, nothing is computed again.

    Attributes
    ----------
    kind
        ``started`` at a program's first safe point, else ``resized``.
    epoch
        Number of the map.
    old, new
        The hosts and their rows before and after, in strip order.
    is_new
        Whether this rank joined with this change.
    """

    kind: Literal["started", "resized"]
    epoch: int
    old: tuple[HostRows, ...]
    new: tuple[HostRows, ...]
    is_new: bool
    phases: dict[str, float] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Rollback:
    """What a safe point returns after a loss of hosts: all data is that of the last commit.

    The program computes again what came after it.

    Attributes
    ----------
    commit
        Number of the commit; 0: the beginning.
    lost
        Hosts that are gone.
    """

    epoch: int
    commit: int
    lost: tuple[str, ...]
    new: tuple[HostRows, ...]
    is_new: bool = True


class Released(SystemExit):
    """This rank's host leaves the job: unwinds the program, which ends with code 0."""

    def __init__(self) -> None:
        super().__init__(0)


# ------------------------------------------------------------- worlds meet and part


@dataclass(frozen=True, slots=True)
class RankId:
    """A rank of a merged communicator: the index of its host, its rank there, its rank before the change or -1."""

    host: int
    rank: int
    before: int


def admit(comm: MPI.Intracomm, groups: int, invite: Callable[[str], object]) -> MPI.Intracomm:
    """Return `comm` merged with `groups` groups, one after another. Collective.

    Each group that joined takes part in admitting the next. Ranks of `comm` keep their numbers. `comm`
    itself stays as it is.

    Parameters
    ----------
    invite
        Called by rank 0 with the port the next group is to connect to. One at a time: two groups at one
        port crash MPICH 5.0.2.
    """
    merged = comm
    for left in range(groups, 0, -1):
        merged = _accept(merged, comm, invite)
        broadcast_document(merged, left - 1)
    return merged


def _accept(
    merged: MPI.Intracomm, kept: MPI.Intracomm, invite: Callable[[str], object] | None
) -> MPI.Intracomm:
    port = ""
    if merged.Get_rank() == 0 and invite is not None:
        port = MPI.Open_port()
        invite(port)
    found = _merge(merged.Accept(port, MPI.INFO_NULL, 0), merged, kept)
    if port:
        MPI.Close_port(port)
    return found


def connect(world: MPI.Intracomm, port: str) -> MPI.Intracomm:
    """Return the communicator of all, from the side of a group that joins. Collective over the group."""
    merged = _merge(world.Connect(port, MPI.INFO_NULL, 0), world, world, new=True)
    for _ in range(broadcast_document(merged, None)):
        merged = _accept(merged, world, None)
        broadcast_document(merged, None)
    return merged


def _merge(
    inter: MPI.Intercomm, used: MPI.Intracomm, kept: MPI.Intracomm, new: bool = False
) -> MPI.Intracomm:
    merged = inter.Merge(new)
    inter.Disconnect()
    if used != kept:
        used.Disconnect()
    return merged


def gather_rank_ids(comm: MPI.Intracomm, rank_id: RankId) -> list[RankId]:
    """Return the identity of every rank. Collective."""
    mine = np.array([rank_id.host, rank_id.rank, rank_id.before], np.int64)
    every = np.empty((comm.Get_size(), 3), np.int64)
    wait(comm.Iallgather(mine, every).Test)
    return [RankId(*map(int, row)) for row in every]


NOMINAL_ROWS = 1000
"""Rows of a job that shares out nothing but blocks whose number depends on the hosts: thousandths."""


@dataclass
class Declared:
    """Everything a program declared.

    Attributes
    ----------
    arrays
        All distributed ones, those of which a matrix consists among them.
    """

    arrays: list[DistributedArray] = field(default_factory=list)
    matrices: list[CsrMatrix] = field(default_factory=list)
    replicated: list[Replicated] = field(default_factory=list)
    blocks: list[Blocks[Any]] = field(default_factory=list)
    state: State = field(default_factory=lambda: State({}))

    @property
    def rows(self) -> int:
        """Rows that are shared out: those of the arrays, which all have as many; else blocks."""
        if self.arrays or not self.blocks:
            return self.arrays[0].rows if self.arrays else 0
        return self.blocks[0].count or NOMINAL_ROWS

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of all that is distributed by rows; a sparse matrix counts when it has its entries."""
        return sum(math.prod(one.whole()) for one in self.arrays) // max(1, self.rows)

    def settle(self, comm: MPI.Intracomm, ranks: Mapping[int, int]) -> None:
        """Hold what has come, and work on another communicator: its rank for each old one that goes on."""
        for array in self.arrays:
            array.settle(comm, ranks)
        for blocks in self.blocks:
            blocks.settle(comm, ranks)

    def release(self) -> None:
        """Free the requests on the communicator there is, before it is left."""
        for array in self.arrays:
            array.release()

    def summary(self) -> list[Any]:
        """Return what must be the same on every rank of the job."""
        arrays = [a.summary() for a in self.arrays]
        replicated = [[r.name, list(r.array.shape), r.array.dtype.str] for r in self.replicated]
        blocks = [b.summary() for b in self.blocks]
        return [arrays, replicated, blocks, sorted(self.state.dump())]


@dataclass
class ChangeResult:
    """The result of a change, for one rank: what to settle with; `comm` is None where the rank leaves."""

    comm: MPI.Intracomm | None
    ranks: Mapping[int, int]
    strip: RowRange
    phases: dict[str, float]
    moved_bytes: int


def carry_out(
    merged: MPI.Intracomm,
    plan: ChangePlan,
    declared: Declared,
    rank_id: RankId,
    take_commit: Callable[[MPI.Intracomm, Sequence[RowRange]], bool],
    resume: Callable[[MPI.Intracomm, Sequence[RowRange]], None],
) -> ChangeResult:
    """Carry out a plan among all old and new ranks; the data is in its new places then, too. Collective.

    What an old rank had it still has: `Declared.settle` lets go of it once the manager says that the change holds.

    Parameters
    ----------
    merged
        All ranks, the old ones first in their old order; freed here.
    rank_id
        This rank's.
    take_commit
        Called to take the last commit into these strips, collectively; false where there is none.
    resume
        Called to take what the ranks saved, collectively.
    """
    begin = time.perf_counter()
    ids = gather_rank_ids(merged, rank_id)
    old, new, order = layout(ids, plan)
    # State and replicated arrays first: new ranks have none of it, and blocks may be made from it.
    if plan.origin == "live":
        declared.state.load(plan.values)
        for one in declared.replicated:
            one.share(merged)
    balanced = processors(ids, plan, order)
    for blocks in declared.blocks:
        blocks.expect(merged, balanced)
    moved = 0
    if plan.origin == "live":
        moved = redistribute(merged, declared.arrays, old, new)
        moved += sum(blocks.redistribute(merged, balanced) for blocks in declared.blocks)
    elif plan.origin == "saved":
        resume(merged, new)
    elif plan.origin == "start" or not take_commit(merged, new):
        begin_all(merged, declared, new, balanced)
    moved = total(merged, moved)
    shared = time.perf_counter()
    # Ranks that leave get no communicator; the others are numbered in the order of the new strips.
    mine = order[merged.Get_rank()]
    comm = merged.Split(MPI.UNDEFINED if mine is None else 0, mine or 0)
    assert isinstance(comm, MPI.Intracomm)  # noqa: S101 - for the type checker: COMM_NULL is one too
    ranks = {before: after for before, after in enumerate(order) if after is not None}
    strip = new[merged.Get_rank()]
    phases = {"redistribute": shared - begin, "rebuild": time.perf_counter() - shared}
    return ChangeResult(comm if mine is not None else None, ranks, strip, phases, moved)


def begin_all(
    merged: MPI.Intracomm,
    declared: Declared,
    strips: Sequence[RowRange],
    balanced: Sequence[Processor],
) -> None:
    """Give everything that is shared out its first contents. Collective."""
    rank = merged.Get_rank()
    for array in declared.arrays:
        if isinstance(array, RowArray | TileArray):
            array.begin(array.parts(strips), rank)
    for matrix in declared.matrices:
        matrix.begin(merged, strips)
    for blocks in declared.blocks:
        blocks.begin(merged, balanced)


def processors(
    ids: Sequence[RankId], plan: ChangePlan, order: Sequence[int | None]
) -> tuple[Processor, ...]:
    """Return every rank as the load balancer sees it: a host's weight is shared by its ranks."""
    weights = {member.host: member.weight for member in (*plan.old, *plan.new)}
    found = []
    for one, place in zip(ids, order, strict=True):
        host = plan.hosts[one.host]
        speed = weights.get(host, 1.0) / plan.slots.get(host, 1)
        found.append(Processor(host, speed, enabled=place is not None))
    return tuple(found)


def layout(
    ids: Sequence[RankId], plan: ChangePlan
) -> tuple[list[RowRange], list[RowRange], list[int | None]]:
    """Return every rank's old strip, its new strip, and its new number (None: it leaves)."""
    old_ranges = [rows for _, rows in rank_ranges(plan.old, plan.slots)]
    first: dict[str, int] = {}
    number = 0
    for member in plan.new:
        first[member.host] = number
        number += plan.slots[member.host]
    new_ranges = [rows for _, rows in rank_ranges(plan.new, plan.slots)]
    old, new, order = [], [], []
    for one in ids:
        name = plan.hosts[one.host]
        mine = first[name] + one.rank if name in first else None
        old.append(old_ranges[one.before] if one.before >= 0 else RowRange(0, 0))
        new.append(RowRange(0, 0) if mine is None else new_ranges[mine])
        order.append(mine)
    return old, new, order
