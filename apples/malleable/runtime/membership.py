"""The change of a job's hosts, carried out by all its ranks together.

1. The MPI worlds of the hosts that join merge while the job computes (`merge_worlds`).
2. At the safe point the job connects to all of them at once (`connect`, `accept`).
3. All ranks, old and new, carry out the plan (`carry_out`): the rows of all arrays, all blocks and all state move
   to their new ranks; then the staying ranks get a communicator of their own.
4. The safe point returns a `HostChange`, or a `Rollback` if the data came from a commit.
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
    """The result of a safe point after a change of hosts: all data is unchanged, no iteration is repeated.

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
    """The result of a safe point after a loss of hosts: all data is from the last commit.

    The program repeats the iterations after the commit.

    Attributes
    ----------
    commit
        Number of the commit; 0: the beginning.
    lost
        Hosts that were lost.
    """

    epoch: int
    commit: int
    lost: tuple[str, ...]
    new: tuple[HostRows, ...]
    is_new: bool = True


class Released(SystemExit):
    """This rank's host leaves the job; the exception unwinds the program, which ends with code 0."""

    def __init__(self) -> None:
        super().__init__(0)


def end_at_once() -> None:
    """Shorten the end of this process, because the release of its host waits for it.

    All exit handlers run, open files are flushed and MPI is finalized. Only the destruction of Python's modules is
    skipped, which would be five sixths of the CPU time of an end.
    """
    atexit.register(_end)


def _end() -> None:
    atexit.unregister(_end)
    atexit._run_exitfuncs()  # the handlers that the program registered before
    objects, kinds = gc.get_objects(), _kinds_of_files()
    # By type, because `isinstance` would dereference weak proxies, and in one pass without Python code for each.
    # By the type's id, because a program's metaclass may define its own comparison and have no hash.
    for one in compress(objects, map(kinds.__contains__, map(id, map(type, objects)))):
        with contextlib.suppress(
            OSError, ValueError
        ):  # the file's other end is gone, or the file is closed
            one.flush()
    # The destruction of the modules would occupy the host for longer than all of the above.
    if not MPI.Is_finalized():
        MPI.Finalize()
    os._exit(0)


def _kinds_of_files() -> dict[int, type]:
    """Return all subclasses of files, by `id`; a check of every class against `io.IOBase` would take longer."""
    classes: dict[int, type] = {}
    waiting: list[type] = [_IOBase]
    while waiting:
        kind = waiting.pop()
        classes[id(kind)] = kind
        waiting += type.__subclasses__(kind)
    return classes


# ----------------------------------------------------------- worlds merge and part


READY = "ready"


def merge_worlds(
    world: MPI.Intracomm, place: int, groups: int, channel: RankChannel
) -> MPI.Intracomm:
    """Return the communicator of all ranks of the groups, in the order of their places. Collective over them.

    They merge by a binary tree. Before the round of distance `step`, each run of `step` groups is one
    communicator, and pairs of neighbouring communicators merge. All pairs merge at the same time, each at a port
    of its own, because two groups at one port crash MPICH 5.0.2. A group enters an MPI call only when its partner
    is ready, so that a waiting group uses no CPU.

    Parameters
    ----------
    place
        Index of this group among the groups.
    channel
        Channel of this rank.
    """
    merged = world
    for comes, partner in pairs(place, groups):
        merged = (_connect_side if comes else _accept_side)(merged, world, channel, partner)
    return merged


def pairs(place: int, groups: int) -> Iterator[tuple[bool, int]]:
    """Yield for each round whether the communicator of a group connects (or accepts), and its partner.

    Examples
    --------
    >>> list(pairs(2, 4)), list(pairs(0, 4))
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


def _accept_side(
    merged: MPI.Intracomm, world: MPI.Intracomm, channel: RankChannel, guest: int
) -> MPI.Intracomm:
    name = ""
    if merged.Get_rank() == 0:
        channel.receive_from(guest)
        name = MPI.Open_port()
        channel.send_to(guest, name)
    broadcast_document(merged, None)  # the other ranks enter the MPI call when the guest is ready
    return accept(merged, name, world, first=True)


def _connect_side(
    merged: MPI.Intracomm, world: MPI.Intracomm, channel: RankChannel, host: int
) -> MPI.Intracomm:
    name = ""
    if merged.Get_rank() == 0:
        channel.send_to(host, READY)
        name = channel.receive_from(host)
    broadcast_document(merged, None)
    return connect(merged, name, world)


def accept(
    comm: MPI.Intracomm, port: str, kept: MPI.Intracomm, *, first: bool = False
) -> MPI.Intracomm:
    """Return the communicator of these ranks and of the ranks that `connect`; close the port. Collective.

    Parameters
    ----------
    port
        The MPI port; only rank 0 needs it.
    kept
        A communicator that is not freed even if it is `comm`.
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
    """Return the communicator of these ranks and of the ranks that `accept` at the port. Collective.

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
    """Return the host and old rank of every rank of the merged communicator: old members first, then newcomers.

    Examples
    --------
    >>> old, new = (HostRows("a", 0, 2),), (HostRows("b", 0, 1), HostRows("a", 1, 1))
    >>> [one.host for one in rank_ids(ChangePlan(1, old, new, {"a": 2, "b": 1}, "live"))]
    ['a', 'a', 'b']
    """
    staying = plan.old if plan.origin == "live" else ()
    before = [one.host for one in staying]
    ids: list[RankId] = []
    for host in before:
        ids += [RankId(host, rank, len(ids) + rank) for rank in range(plan.slots[host])]
    for one in plan.new:
        if one.host not in before:
            ids += [RankId(one.host, rank, -1) for rank in range(plan.slots[one.host])]
    return ids


NOMINAL_ROWS = 1000
"""Rows of a job that distributes only blocks, if the number of blocks depends on the hosts."""


@dataclass
class Declared:
    """All declarations of a program.

    Attributes
    ----------
    arrays
        All distributed arrays, including those of sparse matrices.
    """

    arrays: list[DistributedArray] = field(default_factory=list)
    matrices: list[CsrMatrix] = field(default_factory=list)
    replicated: list[Replicated] = field(default_factory=list)
    blocks: list[Blocks[Any]] = field(default_factory=list)
    state: State = field(default_factory=lambda: State({}))

    @property
    def constant(self) -> Declared:
        """The constant arrays only."""
        return Declared([one for one in self.arrays if one.constant])

    @property
    def changing(self) -> Declared:
        """All declarations except the constant arrays."""
        return replace(self, arrays=[one for one in self.arrays if not one.constant])

    @property
    def rows(self) -> int:
        """Number of distributed rows: of the arrays, which all have the same number; else the number of blocks."""
        if self.arrays or not self.blocks:
            return self.arrays[0].rows if self.arrays else 0
        return self.blocks[0].count or NOMINAL_ROWS

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of all distributed arrays; a sparse matrix counts once it has its entries."""
        return sum(math.prod(one.whole()) for one in self.arrays) // max(1, self.rows)

    def adopt_layout(self, comm: MPI.Intracomm, ranks: Mapping[int, int]) -> None:
        """Switch to the new parts and another communicator; `ranks` is old rank -> new rank of staying ranks."""
        for array in self.arrays:
            array.adopt_layout(comm, ranks)
        for blocks in self.blocks:
            blocks.adopt_layout(comm, ranks)

    def release(self) -> None:
        """Free the requests on the present communicator, before it is freed."""
        for array in self.arrays:
            array.release()

    def summary(self) -> list[Any]:
        """Return the declarations, which must be equal on every rank of the job."""
        arrays = [a.summary() for a in self.arrays]
        replicated = [[r.name, list(r.array.shape), r.array.dtype.str] for r in self.replicated]
        blocks = [b.summary() for b in self.blocks]
        return [arrays, replicated, blocks, sorted(self.state.dump())]


@dataclass
class ChangeResult:
    """The result of a change, for one rank; `comm` is None if the rank leaves.

    Attributes
    ----------
    moved_bytes, fetched_bytes
        Bytes between ranks, summed over all ranks: in the change, and by prefetch before it.
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
    """Carry out a plan among all old and new ranks; return with the data in its new places. Collective.

    An old rank keeps its data until `Declared.adopt_layout`, after the manager has confirmed the change.

    Parameters
    ----------
    merged
        All ranks, as `rank_ids` has them.
    take_commit
        Loads the last commit into these strips, collectively; returns False without a commit.
    resume
        Loads the states that the ranks saved, collectively.
    fetched
        Bytes of constant arrays that this rank has prefetched.
    """
    begin = time.perf_counter()
    ids = rank_ids(plan)
    old, new, order = layout(ids, plan)
    # State and replicated arrays first: new ranks lack them, and blocks may be created from them.
    if plan.origin == "live":
        declared.state.load(plan.values)
        for one in declared.replicated:
            one.share(merged)
    balanced = processors(ids, plan, order)
    for blocks in declared.blocks:
        blocks.expect(merged, balanced)
    moved = 0
    if plan.origin == "live":
        served = {rank for rank, one in enumerate(ids) if (one.host, one.rank) in plan.prefetched}
        moved = redistribute(merged, declared.arrays, old, new, served)
        moved += sum(blocks.redistribute(merged, balanced) for blocks in declared.blocks)
    elif plan.origin == "saved":
        resume(merged, new)
    elif plan.origin == "start" or not take_commit(merged, new):
        begin_all(merged, declared, new, balanced)
    fetched, moved = total(merged, fetched) if plan.prefetched else 0, total(merged, moved)
    shared = time.perf_counter()
    mine = order[merged.Get_rank()]
    comm = _renumbered(merged, order)
    ranks = {before: after for before, after in enumerate(order) if after is not None}
    strip = new[merged.Get_rank()]
    phases = {"redistribute": shared - begin, "rebuild": time.perf_counter() - shared}
    comm_or_none = comm if mine is not None else None
    return ChangeResult(comm_or_none, ranks, strip, phases, moved, fetched)


def _renumbered(merged: MPI.Intracomm, order: Sequence[int | None]) -> MPI.Intracomm:
    """Return the communicator of the staying ranks, in the order of the new strips. Collective.

    Every rank has the new order already; `Split` would gather it again.
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
    """Fill all distributed data with its first contents. Collective."""
    rank = merged.Get_rank()
    for array in declared.arrays:
        if isinstance(array, DeclaredArray):
            array.begin(array.parts(strips), rank)
            array.fill_halo(merged)
    for matrix in declared.matrices:
        matrix.begin(merged, strips)
    for blocks in declared.blocks:
        blocks.begin(merged, balanced)


def processors(
    ids: Sequence[RankId], plan: ChangePlan, order: Sequence[int | None]
) -> tuple[Processor, ...]:
    """Return every rank as a processor of the load balancer; a host's ranks share its weight equally."""
    weights = {member.host: member.weight for member in (*plan.old, *plan.new)}
    balanced = []
    for one, place in zip(ids, order, strict=True):
        speed = weights.get(one.host, 1.0) / plan.slots.get(one.host, 1)
        known = plan.distances.get(one.host, {})
        balanced.append(Processor(one.host, speed, enabled=place is not None, distances=known))
    return tuple(balanced)


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
