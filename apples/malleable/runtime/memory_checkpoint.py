"""In-memory checkpoints: each rank's rows at its own node supervisor and at that of the next host.

The memory belongs to the supervisors, so that it outlives the ranks: after the loss of a host those of the
survivors still have every row, and the ranks that are started anew take them from there.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from apples.malleable.control.command import ChangePlan
from apples.malleable.control.strips import RowRange, rank_ranges
from apples.malleable.runtime.channel import RankChannel
from apples.malleable.runtime.collectives import gather_documents, wait
from apples.malleable.runtime.membership import Declared
from apples.malleable.runtime.part_messages import PartMessages
from apples.malleable.runtime.row_memory import Bytes, RowMemory


@dataclass(frozen=True, slots=True)
class CommittedRows:
    """One rank's rows in one commit, as memory."""

    number: int
    strip: RowRange
    data: Bytes
    values: dict[str, Any]


def backup_ranks(plan: ChangePlan) -> list[int]:
    """Return for every rank the rank on the next host that keeps its copy; itself where there is one host.

    Examples
    --------
    >>> from apples.malleable.control.command import HostRows
    >>> new = (HostRows("a", 0, 5), HostRows("b", 5, 5))
    >>> backup_ranks(ChangePlan(1, (), new, {"a": 2, "b": 1}, "live"))
    [2, 2, 0]
    """
    first, number = [], 0
    for member in plan.new:
        first.append(number)
        number += plan.slots[member.host]
    found = []
    for index, member in enumerate(plan.new):
        following = (index + 1) % len(plan.new)
        slots = plan.slots[plan.new[following].host]
        found += [first[following] + rank % slots for rank in range(plan.slots[member.host])]
    return found if len(plan.new) > 1 else list(range(number))


def commit_in_memory(
    comm: MPI.Intracomm,
    channel: RankChannel,
    number: int,
    plan: ChangePlan,
    declared: Declared,
) -> None:
    """Commit the state in memory. Collective."""
    strips = [rows for _, rows in rank_ranges(plan.new, plan.slots)]
    to, rank = backup_ranks(plan), comm.Get_rank()
    values = declared.state.dump()
    handle, mine = _memory(_size(declared, rank))
    _pack(declared, rank, mine)
    kept = [(handle, strips[rank])]
    requests, moving = [], len(mine)
    if to[rank] != rank:
        requests.append(comm.Isend([mine, MPI.BYTE], to[rank], number % 1000))
    for other, target in enumerate(to):
        if target == rank and other != rank:
            handle, copy = _memory(_size(declared, other))
            moving += len(copy)
            requests.append(comm.Irecv([copy, MPI.BYTE], other, number % 1000))
            kept.append((handle, strips[other]))
    wait(lambda: MPI.Request.Testall(requests), moving)
    comm.Barrier()  # a commit exists when every copy does
    for handle, strip in kept:
        channel.keep(handle, epoch=number, first=strip.first, stop=strip.stop, values=values)
        os.close(handle)


def committed_rows(channel: RankChannel) -> list[CommittedRows]:
    """Return the commits that the node supervisor of this host keeps."""
    found = []
    for label, handle in channel.memories():
        length = os.fstat(handle).st_size
        data = np.frombuffer(mmap.mmap(handle, length, prot=mmap.PROT_READ), np.uint8)
        os.close(handle)
        found.append(
            CommittedRows(
                label["epoch"], RowRange(label["first"], label["stop"]), data, label["values"]
            )
        )
    return found


def restore_from_memory(
    comm: MPI.Intracomm,
    have: Sequence[CommittedRows],
    least: int,
    declared: Declared,
    new: Sequence[RowRange],
) -> int:
    """Take the newest commit that is whole in memory and not older than `least`; 0 if there is none. Collective.

    Parameters
    ----------
    have
        This rank's pieces.
    new
        Every rank's strip.
    """
    mine = [[piece.number, piece.strip.first, piece.strip.stop] for piece in have]
    every = gather_documents(comm, mine)
    for number in sorted({n for labels in every for n, _, _ in labels}, reverse=True):
        chosen: dict[tuple[int, int], int] = {}
        for owner, labels in enumerate(every):
            for n, first, stop in labels:
                if n == number:
                    chosen.setdefault((first, stop), owner)
        if number >= least and sum(stop - first for first, stop in chosen) == declared.rows:
            _spread(comm, [p for p in have if p.number == number], chosen, declared, new)
            return int(number)
    return 0


def _spread(
    comm: MPI.Intracomm,
    have: Sequence[CommittedRows],
    chosen: dict[tuple[int, int], int],
    declared: Declared,
    new: Sequence[RowRange],
) -> None:
    """Send every rank its rows, and every value."""
    rank = comm.Get_rank()
    held = {(piece.strip.first, piece.strip.stop): piece for piece in have}
    strips = [RowRange(*ends) for ends in sorted(chosen)]
    owners = [chosen[ends] for ends in sorted(chosen)]
    ends = dict.fromkeys(held, 0)  # how far each piece has been read
    for tag, array in enumerate(declared.arrays):
        # One array after another: where the entries of rows are is known when the rows are there.
        messages, (_, pitch) = PartMessages(comm), array.whole()
        array.locate(comm, strips, new)
        parts = array.parts(new)
        array.hold(parts, rank)
        for strip, owner, tile in zip(strips, owners, array.parts(strips), strict=True):
            owned = array.owned(tile)
            if part := owned & array.needed(array.tile):
                messages.receive(array.bytes(part), owner, tag, pitch)
            if owner != rank:
                continue
            begin = ends[strip.first, strip.stop]
            ends[strip.first, strip.stop] += array.size(owned)
            piece = RowMemory(owned, array.cell_bytes, held[strip.first, strip.stop].data[begin:])
            for other, theirs in enumerate(parts):
                if part := owned & array.needed(theirs):
                    messages.send(piece.bytes(part), other, tag, pitch)
        messages.finish()
    source = chosen[min(chosen)]
    values = gather_documents(comm, held[min(chosen)].values if source == rank else {})[source]
    declared.state.load(values)
    end = ends.get(min(chosen), 0)
    for one in declared.replicated:
        flat = one.array.reshape(-1).view("u1")
        if source == rank:
            flat[...] = held[min(chosen)].data[end : end + flat.nbytes]
            end += flat.nbytes
        comm.Bcast([flat, MPI.BYTE], source)


def _size(declared: Declared, rank: int) -> int:
    """Return the bytes of what a rank has."""
    arrays = sum(array.size(array.owned(array.tiles[rank])) for array in declared.arrays)
    return arrays + sum(one.array.nbytes for one in declared.replicated)


def _memory(size: int) -> tuple[int, Bytes]:
    handle = os.memfd_create("apples-commit")
    os.ftruncate(handle, max(1, size))
    return handle, np.frombuffer(mmap.mmap(handle, max(1, size)), np.uint8)[:size]


def _pack(declared: Declared, rank: int, into: Bytes) -> None:
    begin = 0
    for array in declared.arrays:
        data = array.bytes(array.owned(array.tiles[rank]))
        into[begin : begin + data.size].reshape(data.shape)[...] = data
        begin += data.size
    for one in declared.replicated:
        flat = one.array.reshape(-1).view("u1")
        into[begin : begin + flat.nbytes] = flat
        begin += flat.nbytes
