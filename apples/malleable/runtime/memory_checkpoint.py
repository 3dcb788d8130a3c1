"""In-memory checkpoints: what each rank has, at its own node supervisor and at that of the next host.

The memory belongs to the supervisors, so that it outlives the ranks: after the loss of a host those of the
survivors still have every row and every block, and the ranks that are started anew take them from there.

A rank's memory is the length of a header (8 bytes), the header in JSON (the state's values, and of its blocks the
numbers and sizes), its rows of each array, the replicated arrays, and its blocks.
"""

from __future__ import annotations

import json
import mmap
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from apples.launch.this_host import own_machine
from apples.malleable.control.command import ChangePlan
from apples.malleable.control.strips import RowRange, rank_ranges
from apples.malleable.runtime.blocks import exchange, owners_now
from apples.malleable.runtime.channel import RankChannel
from apples.malleable.runtime.collectives import gather_documents, total, wait
from apples.malleable.runtime.membership import Declared
from apples.malleable.runtime.packing import Packed
from apples.malleable.runtime.part_messages import PartMessages
from apples.malleable.runtime.row_memory import Bytes, RowMemory

HEADROOM = 2
"""How many times what a commit takes must be free on a machine: the one before is given up after it."""
LONGEST_SECONDS = 10.0
"""For a commit that nobody asked for: the program is silent meanwhile, and nobody waits for it for ever."""
COPY_RATE = 1e9
"""Bytes a second that a rank copies into new memory, about."""
FIRST_PIECE = 1 << 18
"""Bytes of the first piece that is sent, by which it is seen how fast a link is."""
TOO_LONG = f"copies for it would take more than {LONGEST_SECONDS:g} s"


@dataclass(frozen=True, slots=True)
class CommittedPart:
    """What one rank had in one commit, as memory.

    Attributes
    ----------
    data
        Its rows of each array, and the replicated arrays.
    values
        Of the program's state.
    blocks
        Of each kind of blocks: what a commit knows of all, and the bytes of those that were here, by number.
    """

    number: int
    strip: RowRange
    data: Bytes
    values: dict[str, Any]
    blocks: list[tuple[dict[str, Any], dict[int, Packed]]]

    @classmethod
    def read(cls, number: int, strip: RowRange, memory: Bytes) -> CommittedPart:
        """Return the part that memory holds."""
        begin = 8 + int.from_bytes(memory[:8].tobytes(), "little")
        header = json.loads(memory[8:begin].tobytes())
        place = len(memory) - sum(sum(one["sizes"]) for one in header["blocks"])
        data, blocks = memory[begin:place], []
        for one in header["blocks"]:
            own = {}
            for block, size in zip(one["numbers"], one["sizes"], strict=True):
                own[block], place = memory[place : place + size], place + size
            blocks.append((one["document"], own))
        return cls(number, strip, data, header["values"], blocks)


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
    *,
    sparing: bool = False,
) -> str:
    """Commit the state in memory; return why it is not done, empty if it is. Collective.

    Parameters
    ----------
    sparing
        Whether it is done only where every machine has memory to spare for it (`HEADROOM`), and where it does
        not take long (`LONGEST_SECONDS`).
    """
    to, rank = backup_ranks(plan), comm.Get_rank()
    blocks = [one.packed() for one in declared.blocks]
    header = _header(declared, blocks)
    size = 8 + len(header) + _size(declared, rank)
    size += sum(len(pack) for packs in blocks for pack in packs.values())
    machine = machine_number()
    known = np.empty((comm.Get_size(), 2), np.int64)
    wait(comm.Iallgather(np.array([size, machine], np.int64), known).Test)
    sizes, machines = known.T.tolist()
    if sparing:
        need = memory_taken(sizes, machines, to, machine)
        if total(comm, HEADROOM * need > free_memory()):
            return "a host has no memory to spare for it"
        if max(sizes) > LONGEST_SECONDS * COPY_RATE:
            return TOO_LONG
    strips = [rows for _, rows in rank_ranges(plan.new, plan.slots)]
    kept = {rank: _memory(size)}
    _pack(declared, rank, header, blocks, kept[rank][1])
    copied = (other for other, target in enumerate(to) if target == rank != other)
    kept |= {other: _memory(sizes[other]) for other in copied}
    done = _copy(
        comm,
        number % 1000,
        {of: memory for of, (_, memory) in kept.items()},
        to,
        max(sizes),
        sparing,
    )
    if done:
        comm.Barrier()  # a commit exists when every copy does
        for of, (handle, _) in kept.items():
            channel.keep(handle, epoch=number, first=strips[of].first, stop=strips[of].stop)
        comm.Barrier()  # and it is one that may be told of when every supervisor has its copies
    for handle, _ in kept.values():
        os.close(handle)
    return "" if done else TOO_LONG


def _copy(
    comm: MPI.Intracomm,
    tag: int,
    memories: Mapping[int, Bytes],
    to: Sequence[int],
    longest: int,
    sparing: bool,
) -> bool:
    """Send every rank's memory to the one that keeps its copy; return whether that is done. Collective.

    Parameters
    ----------
    memories
        This rank's own, and room for those that it keeps, by rank.
    longest
        Bytes of the largest of all.
    sparing
        Whether to go by pieces, each twice as long as the one before, and to give up as soon as those that went
        say that all will take too long: nobody knows beforehand how fast the links are.
    """
    rank = comm.Get_rank()
    # The rate of a link is unknown before the first piece, and a program that is silent for a
    # minute counts as dead.
    done, piece = 0, FIRST_PIECE if sparing else longest
    wait(comm.Ibarrier().Test)
    begin = time.perf_counter()
    while done < longest:
        parts = {of: memory[done : done + piece] for of, memory in memories.items()}
        moving = sum(map(len, parts.values()))
        requests = (
            [comm.Isend([parts.pop(rank), MPI.BYTE], to[rank], tag)] if to[rank] != rank else []
        )
        requests += [comm.Irecv([parts[of], MPI.BYTE], of, tag) for of in parts if of != rank]
        wait(partial(MPI.Request.Testall, requests), moving)
        done, piece = done + piece, 2 * piece
        late = (time.perf_counter() - begin) * longest / done > LONGEST_SECONDS
        if sparing and done < longest and total(comm, late):
            return False
    return True


def machine_number() -> int:
    """Return a number that the hosts of one machine share: they have its memory together."""
    return int(own_machine().replace("-", "")[:15] or "0", 16)


def memory_taken(
    sizes: Sequence[int], machines: Sequence[int], to: Sequence[int], machine: int
) -> int:
    """Return the bytes that a commit takes on a machine: what its ranks have, and their copies of others.

    Parameters
    ----------
    sizes, machines, to
        Of every rank: its bytes, its machine, and the rank that has its copy.

    Examples
    --------
    >>> memory_taken([1, 20, 300], [7, 7, 8], [1, 2, 0], 7), memory_taken([5], [7], [0], 7)
    (322, 5)
    """
    own = sum(size for size, there in zip(sizes, machines, strict=True) if there == machine)
    copied = [
        rank for rank, other in enumerate(to) if other != rank and machines[other] == machine
    ]
    return own + sum(sizes[rank] for rank in copied)


def free_memory() -> float:
    """Return the bytes that this machine and the groups of this process leave."""
    from nws import FreeMemorySensor  # noqa: PLC0415 - a rank starts sooner without

    return FreeMemorySensor("here").measure()[0].value


def committed_parts(channel: RankChannel) -> list[CommittedPart]:
    """Return the commits that the node supervisor of this host keeps."""
    found = []
    for label, handle in channel.memories():
        length = os.fstat(handle).st_size
        memory = np.frombuffer(mmap.mmap(handle, length, prot=mmap.PROT_READ), np.uint8)
        os.close(handle)
        strip = RowRange(label["first"], label["stop"])
        found.append(CommittedPart.read(label["epoch"], strip, memory))
    return found


def restore_from_memory(
    comm: MPI.Intracomm,
    have: Sequence[CommittedPart],
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
    have: Sequence[CommittedPart],
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
    first = held[min(chosen)] if source == rank else None
    told = {"values": first.values, "documents": [d for d, _ in first.blocks]} if first else {}
    told = gather_documents(comm, told)[source]
    declared.state.load(told["values"])
    end = ends.get(min(chosen), 0)
    for one in declared.replicated:
        flat = one.array.reshape(-1).view("u1")
        if source == rank:
            flat[...] = held[min(chosen)].data[end : end + flat.nbytes]
            end += flat.nbytes
        comm.Bcast([flat, MPI.BYTE], source)
    _spread_blocks(comm, declared, held, chosen, told["documents"])


def _spread_blocks(
    comm: MPI.Intracomm,
    declared: Declared,
    held: Mapping[tuple[int, int], CommittedPart],
    chosen: Mapping[tuple[int, int], int],
    documents: Sequence[Mapping[str, Any]],
) -> None:
    """Send every rank its blocks."""
    rank = comm.Get_rank()
    mine = [held[ends] for ends, owner in chosen.items() if owner == rank]
    for kind, blocks in enumerate(declared.blocks):
        own = {number: pack for part in mine for number, pack in part.blocks[kind][1].items()}
        blocks.restore(documents[kind], partial(_fetch, comm, own))


def _fetch(
    comm: MPI.Intracomm, held: Mapping[int, Packed], new: Sequence[int]
) -> Mapping[int, Packed]:
    """Return the blocks that this rank is to have, from whoever holds them. Collective.

    Parameters
    ----------
    new
        The rank that each block goes to.
    """
    rank = comm.Get_rank()
    leaving = {number: pack for number, pack in held.items() if new[number] != rank}
    stays = {number: pack for number, pack in held.items() if new[number] == rank}
    return stays | exchange(comm, leaving, owners_now(comm, list(held), len(new)), new)


def _header(declared: Declared, blocks: Sequence[Mapping[int, Packed]]) -> bytes:
    """Return what a commit has to know of a rank's memory; `blocks` are the bytes of each kind of blocks here."""
    kinds = [
        {
            "numbers": list(packs),
            "sizes": list(map(len, packs.values())),
            "document": one.document(),
        }
        for one, packs in zip(declared.blocks, blocks, strict=True)
    ]
    return json.dumps({"values": declared.state.dump(), "blocks": kinds}).encode()


def _size(declared: Declared, rank: int) -> int:
    """Return the bytes of what a rank has."""
    arrays = sum(array.size(array.owned(array.tiles[rank])) for array in declared.arrays)
    return arrays + sum(one.array.nbytes for one in declared.replicated)


def _memory(size: int) -> tuple[int, Bytes]:
    handle = os.memfd_create("apples-commit")
    os.ftruncate(handle, max(1, size))
    return handle, np.frombuffer(mmap.mmap(handle, max(1, size)), np.uint8)[:size]


def _pack(
    declared: Declared,
    rank: int,
    header: bytes,
    blocks: Sequence[Mapping[int, Packed]],
    into: Bytes,
) -> None:
    """Write what a rank has into its memory."""
    arrays = (array.bytes(array.owned(array.tiles[rank])) for array in declared.arrays)
    replicated = (one.array.reshape(-1).view("u1") for one in declared.replicated)
    packs = (pack for one in blocks for pack in one.values())
    length = np.frombuffer(len(header).to_bytes(8, "little"), np.uint8)
    begin = 0
    for data in (length, np.frombuffer(header, np.uint8), *arrays, *replicated, *packs):
        into[begin : begin + data.size].reshape(data.shape)[...] = data
        begin += data.size
