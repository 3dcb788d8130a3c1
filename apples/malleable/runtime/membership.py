"""The change of a job's hosts, as its ranks make it together.

1. The MPI worlds of the hosts that join meet while the job computes (`meet`), however many they are.
2. At the safe point the job connects to all of them at once (`connect`, `accept`).
3. All ranks, old and new, carry out the plan (`carry_out`): every array's rows, every block and all state go to
   their new ranks; then those that stay get a communicator of their own.
4. The safe point returns a `HostChange`, or a `Rollback` where the data came from a commit.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import math
import os
import time
from _io import _IOBase
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any, Literal

from mpi4py import MPI

from apples.malleable.balancers.contract import Processor
from apples.malleable.control.command import ChangePlan, HostRows
from apples.malleable.control.strips import RowRange, rank_ranges
from apples.malleable.runtime.blocks import Blocks
from apples.malleable.runtime.channel import RankChannel
from apples.malleable.runtime.collectives import broadcast_document, total
from apples.malleable.runtime.csr import CsrMatrix
from apples.malleable.runtime.declared import (
    DeclaredArray,
    DistributedArray,
    Replicated,
    State,
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


def end_at_once() -> None:
    """Let this process end as soon as the program has unwound: a host that waits to be empty waits for this.

    All exit handlers run, open files are flushed and MPI is finalized. What is left out is how the interpreter
    takes its modules down one by one, which is five sixths of the processor time of an end.
    """
    atexit.register(_end)


def _end() -> None:
    atexit.unregister(_end)
    atexit._run_exitfuncs()  # what the program registered before
    objects, kinds = gc.get_objects(), _kinds_of_files()
    # By their types, for `isinstance` would ask weak proxies, and in one pass without a line of Python for each.
    # And by which type it is: a program's class of classes may compare as it likes, and have no hash.
    for one in compress(objects, map(kinds.__contains__, map(id, map(type, objects)))):
        with contextlib.suppress(OSError, ValueError):  # its other end is gone, or it is closed
            one.flush()
    # Exit handlers and buffers are done; taking down the modules would keep the host occupied for
    # longer than all of this.
    if not MPI.Is_finalized():
        MPI.Finalize()
    os._exit(0)


def _kinds_of_files() -> dict[int, type]:
    """Return every class of files there is, by its `id`: to ask `io.IOBase` of every class takes longer."""
    found: dict[int, type] = {}
    waiting: list[type] = [_IOBase]
    while waiting:
        kind = waiting.pop()
        found[id(kind)] = kind
        waiting += type.__subclasses__(kind)
    return found


# ------------------------------------------------------------- worlds meet and part


READY = "ready"


def meet(world: MPI.Intracomm, place: int, groups: int, channel: RankChannel) -> MPI.Intracomm:
    """Return the communicator of all ranks of the groups, in the order of their places. Collective over them.

    They merge by a binary tree: before the round of distance `step` the groups from a multiple of `step` on,
    so many, are one communicator, which merges with the next of its kind. Pairs merge at the same time, each at
    a port of its own, for two groups at one port crash MPICH 5.0.2. Nobody enters a call of MPI before its
    partner has come as far: a group that waits for another leaves its CPUs alone.

    Parameters
    ----------
    place
        Of this group among them.
    channel
        Of this rank.
    """
    merged = world
    for comes, partner in encounters(place, groups):
        merged = (_come if comes else _receive)(merged, world, channel, partner)
    return merged


def encounters(place: int, groups: int) -> Iterator[tuple[bool, int]]:
    """Yield with whom the communicator of a group merges, round by round, and whether it is the one that comes.

    Examples
    --------
    >>> list(encounters(2, 4)), list(encounters(0, 4))
    ([(False, 3), (True, 0)], [(False, 1), (False, 2)])
    """
    step = 1
    while step < groups:
        first = place // step * step
        if first % (2 * step):
            yield True, first - step
        elif first + step < groups:
            yield False, first + step
        step *= 2


def _receive(
    merged: MPI.Intracomm, world: MPI.Intracomm, channel: RankChannel, guest: int
) -> MPI.Intracomm:
    name = ""
    if merged.Get_rank() == 0:
        channel.hear(guest)
        name = MPI.Open_port()
        channel.tell(guest, name)
    broadcast_document(merged, None)  # the others come when the guest is there
    return accept(merged, name, world, first=True)


def _come(
    merged: MPI.Intracomm, world: MPI.Intracomm, channel: RankChannel, host: int
) -> MPI.Intracomm:
    name = ""
    if merged.Get_rank() == 0:
        channel.tell(host, READY)
        name = channel.hear(host)
    broadcast_document(merged, None)
    return connect(merged, name, world)


def accept(
    comm: MPI.Intracomm, port: str, kept: MPI.Intracomm, *, first: bool = False
) -> MPI.Intracomm:
    """Return the communicator of these ranks and of those that `connect` to the port, and close it. Collective.

    Parameters
    ----------
    port
        On rank 0.
    kept
        A communicator that is not left even if it is `comm`.
    first
        Whether these ranks come before the others.
    """
    merged = _merge(comm.Accept(port, MPI.INFO_NULL, 0), comm, kept, first=first)
    if port:
        MPI.Close_port(port)
    return merged


def connect(
    comm: MPI.Intracomm, port: str, kept: MPI.Intracomm, *, first: bool = False
) -> MPI.Intracomm:
    """Return the communicator of these ranks and of those that `accept` at the port. Collective.

    Parameters
    ----------
    port, kept, first
        As for `accept`.
    """
    return _merge(comm.Connect(port, MPI.INFO_NULL, 0), comm, kept, first=first)


def _merge(
    inter: MPI.Intercomm, used: MPI.Intracomm, kept: MPI.Intracomm, *, first: bool
) -> MPI.Intracomm:
    merged = inter.Merge(not first)
    inter.Disconnect()
    if used != kept:
        used.Disconnect()
    return merged


@dataclass(frozen=True, slots=True)
class RankId:
    """A rank of a merged communicator: its host, its rank there, its rank before the change or -1."""

    host: str
    rank: int
    before: int


def rank_ids(plan: ChangePlan) -> list[RankId]:
    """Return who every rank of the merged communicator is: the old members' ranks, then those that joined.

    Examples
    --------
    >>> old, new = (HostRows("a", 0, 2),), (HostRows("b", 0, 1), HostRows("a", 1, 1))
    >>> [one.host for one in rank_ids(ChangePlan(1, old, new, {"a": 2, "b": 1}, "live"))]
    ['a', 'a', 'b']
    """
    staying = plan.old if plan.origin == "live" else ()
    before = [one.host for one in staying]
    found: list[RankId] = []
    for host in before:
        found += [RankId(host, rank, len(found) + rank) for rank in range(plan.slots[host])]
    for one in plan.new:
        if one.host not in before:
            found += [RankId(one.host, rank, -1) for rank in range(plan.slots[one.host])]
    return found


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
    def constant(self) -> Declared:
        """The constant arrays alone."""
        return Declared([one for one in self.arrays if one.constant])

    @property
    def changing(self) -> Declared:
        """All else."""
        return replace(self, arrays=[one for one in self.arrays if not one.constant])

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
    """The result of a change, for one rank: what to settle with; `comm` is None where the rank leaves.

    Attributes
    ----------
    moved_bytes, fetched_bytes
        What went from one rank to another, of all ranks: in the change, and ahead of it.
    """

    comm: MPI.Intracomm | None
    ranks: Mapping[int, int]
    strip: RowRange
    phases: dict[str, float]
    moved_bytes: int
    fetched_bytes: int


def carry_out(
    merged: MPI.Intracomm,
    plan: ChangePlan,
    declared: Declared,
    take_commit: Callable[[MPI.Intracomm, Sequence[RowRange]], bool],
    resume: Callable[[MPI.Intracomm, Sequence[RowRange]], None],
    fetched: int = 0,
) -> ChangeResult:
    """Carry out a plan among all old and new ranks; the data is in its new places then, too. Collective.

    What an old rank had it still has: `Declared.settle` lets go of it once the manager says that the change holds.

    Parameters
    ----------
    merged
        All ranks, as `rank_ids` has them.
    take_commit
        Called to take the last commit into these strips, collectively; false where there is none.
    resume
        Called to take what the ranks saved, collectively.
    fetched
        Bytes of constant arrays that this rank has got before.
    """
    begin = time.perf_counter()
    ids = rank_ids(plan)
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
        served = {rank for rank, one in enumerate(ids) if (one.host, one.rank) in plan.ahead}
        moved = redistribute(merged, declared.arrays, old, new, served)
        moved += sum(blocks.redistribute(merged, balanced) for blocks in declared.blocks)
    elif plan.origin == "saved":
        resume(merged, new)
    elif plan.origin == "start" or not take_commit(merged, new):
        begin_all(merged, declared, new, balanced)
    fetched, moved = total(merged, fetched) if plan.ahead else 0, total(merged, moved)
    shared = time.perf_counter()
    mine = order[merged.Get_rank()]
    comm = _renumbered(merged, order)
    ranks = {before: after for before, after in enumerate(order) if after is not None}
    strip = new[merged.Get_rank()]
    phases = {"redistribute": shared - begin, "rebuild": time.perf_counter() - shared}
    comm_or_none = comm if mine is not None else None
    return ChangeResult(comm_or_none, ranks, strip, phases, moved, fetched)


def _renumbered(merged: MPI.Intracomm, order: Sequence[int | None]) -> MPI.Intracomm:
    """Return the communicator of the ranks that stay, in the order of the new strips. Collective.

    Everybody knows who that is: so nothing is gathered, as `Split` would.
    """
    places = {after: before for before, after in enumerate(order) if after is not None}
    every = merged.Get_group()
    staying = every.Incl([places[number] for number in range(len(places))])
    comm = merged.Create(staying)
    staying.Free()
    every.Free()
    assert isinstance(comm, MPI.Intracomm)  # noqa: S101 - for the type checker: COMM_NULL is one too
    return comm


def begin_all(
    merged: MPI.Intracomm,
    declared: Declared,
    strips: Sequence[RowRange],
    balanced: Sequence[Processor],
) -> None:
    """Give everything that is shared out its first contents. Collective."""
    rank = merged.Get_rank()
    for array in declared.arrays:
        if isinstance(array, DeclaredArray):
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
        speed = weights.get(one.host, 1.0) / plan.slots.get(one.host, 1)
        known = plan.distances.get(one.host, {})
        found.append(Processor(one.host, speed, enabled=place is not None, distances=known))
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
        mine = first[one.host] + one.rank if one.host in first else None
        old.append(old_ranges[one.before] if one.before >= 0 else RowRange(0, 0))
        new.append(RowRange(0, 0) if mine is None else new_ranges[mine])
        order.append(mine)
    return old, new, order
