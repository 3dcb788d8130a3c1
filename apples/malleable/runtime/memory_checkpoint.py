"""In-memory checkpoints: the image of each rank, at its own node supervisor and at that of the next host.

The supervisors hold the memory, so it outlives the ranks. After the loss of one host the supervisors of the other
hosts still have every image, and the restarted ranks load their data from there.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate

import numpy as np
from mpi4py import MPI

from apples.launch.this_host import own_machine
from apples.malleable.control.command import ChangePlan
from apples.malleable.control.strips import RowRange
from apples.malleable.runtime import rank_image
from apples.malleable.runtime.channel import RankChannel
from apples.malleable.runtime.collectives import gather_documents, total, wait
from apples.malleable.runtime.membership import Declared
from apples.malleable.runtime.packing import Image

HEADROOM = 2
"""Required free memory of an opportunistic commit, as a multiple of its size: the commit before still exists."""
MAX_SECONDS = 10.0
"""Time limit of an opportunistic commit: the program reports nothing meanwhile."""
COPY_RATE = 1e9
"""Approximate bytes a second at which a rank copies into new memory."""
FIRST_PIECE = 1 << 18
"""Bytes of the first piece that an opportunistic commit sends, to measure the rate of the link."""
TOO_LONG = f"copies for it would take more than {MAX_SECONDS:g} s"
NO_ROOM = "a host has no memory to spare for it"


def backup_ranks(plan: ChangePlan) -> list[int]:
    """Return for every rank the rank on the next host that keeps its copy; the rank itself on a single host.

    Examples
    --------
    >>> from apples.malleable.control.command import HostRows
    >>> new = (HostRows("a", 0, 5), HostRows("b", 5, 5))
    >>> backup_ranks(ChangePlan(1, (), new, {"a": 2, "b": 1}, "live"))
    [2, 2, 0]
    """
    slots = [plan.slots[member.host] for member in plan.new]
    first = list(accumulate(slots, initial=0))
    if len(slots) == 1:
        return list(range(slots[0]))
    following = [(index + 1) % len(slots) for index in range(len(slots))]
    return [
        first[host] + rank % slots[host]
        for own, host in zip(slots, following, strict=True)
        for rank in range(own)
    ]


def commit_in_memory(
    comm: MPI.Intracomm,
    channel: RankChannel,
    number: int,
    plan: ChangePlan,
    image: Image,
    *,
    opportunistic: bool = False,
) -> str:
    """Commit the state in memory; return the reason of a failure, or an empty text. Collective.

    Parameters
    ----------
    image
        Image of this rank.
    opportunistic
        Commit only if every machine has enough free memory (`HEADROOM`) and it takes at most `MAX_SECONDS`.
    """
    to, rank = backup_ranks(plan), comm.Get_rank()
    machine = machine_number()
    known = np.empty((comm.Get_size(), 2), np.int64)
    wait(comm.Iallgather(np.array([image.size, machine], np.int64), known).Test)
    sizes, machines = known.T.tolist()
    if opportunistic:
        need = memory_taken(sizes, machines, to, machine)
        if total(comm, HEADROOM * need > free_memory()):
            return NO_ROOM
        if max(sizes) > MAX_SECONDS * COPY_RATE:
            return TOO_LONG
    handles: dict[int, int] = {}
    fault = ""
    try:
        handles = _memories(image, rank, to, sizes)
    except OSError as error:
        fault = f"no memory for a commit: {error.strerror}"
    try:
        if total(comm, bool(fault)):
            return fault or NO_ROOM
        if not _copy(comm, number % 1000, handles, to, max(sizes), opportunistic):
            return TOO_LONG
        comm.Barrier()  # a commit exists when every copy does
        for handle in handles.values():
            channel.keep(handle, epoch=number)
        comm.Barrier()  # every supervisor has its copies now
        channel.send("whole", epoch=number)
    finally:
        _close(handles)
    return ""


def _memories(image: Image, rank: int, to: Sequence[int], sizes: Sequence[int]) -> dict[int, int]:
    """Return memory by rank, as file descriptors: with this rank's image, and for the copies that it keeps."""
    handles = {rank: image.in_memory()}
    try:
        for other, target in enumerate(to):
            if target == rank != other:
                handles[other] = os.memfd_create("apples-image")
                os.truncate(handles[other], sizes[other])
    except OSError:
        _close(handles)
        raise
    return handles


def _close(handles: Mapping[int, int]) -> None:
    for handle in handles.values():
        os.close(handle)


def _copy(
    comm: MPI.Intracomm,
    tag: int,
    handles: Mapping[int, int],
    to: Sequence[int],
    longest: int,
    opportunistic: bool,
) -> bool:
    """Send every rank's image to the rank that keeps its copy; return whether all were sent. Collective.

    Parameters
    ----------
    handles
        As `_memories` returned them.
    longest
        Bytes of the largest image of all.
    opportunistic
        Send pieces, each twice as long as the piece before, and stop as soon as the rate so far shows that all
        pieces would take too long.
    """
    rank = comm.Get_rank()
    memories = {of: np.frombuffer(mmap.mmap(h, 0), np.uint8) for of, h in handles.items()}
    # The rate of a link is unknown before the first piece, and a program that is silent for a
    # minute counts as dead.
    done, piece = 0, FIRST_PIECE if opportunistic else longest
    begin = time.perf_counter()
    while done < longest:
        parts = {of: memory[done : done + piece] for of, memory in memories.items()}
        moving = sum(map(len, parts.values()))
        requests = [comm.Irecv([it, MPI.BYTE], of, tag) for of, it in parts.items() if of != rank]
        if to[rank] != rank:
            requests.append(comm.Isend([parts[rank], MPI.BYTE], to[rank], tag))
        wait(partial(MPI.Request.Testall, requests), moving)
        done, piece = done + piece, 2 * piece
        late = (time.perf_counter() - begin) * longest / done > MAX_SECONDS
        if opportunistic and done < longest and total(comm, late):
            return False
    return True


def machine_number() -> int:
    """Return a number that is equal for the hosts of one machine, which share its memory."""
    return int(own_machine().replace("-", "")[:15] or "0", 16)


def memory_taken(
    sizes: Sequence[int], machines: Sequence[int], to: Sequence[int], machine: int
) -> int:
    """Return the bytes of a commit on a machine: the images of its ranks, and copies of other images.

    Parameters
    ----------
    sizes, machines, to
        For every rank: the bytes of its image, its machine, and the rank that has its copy.

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
    """Return the bytes that are free on this machine and in the control groups of this process."""
    from nws import FreeMemorySensor  # noqa: PLC0415 - a rank starts sooner without

    return FreeMemorySensor("here").measure()[0].value


def kept_images(channel: RankChannel) -> dict[int, dict[int, Image]]:
    """Return the images that the node supervisor of this host keeps, by commit and rank."""
    images: dict[int, dict[int, Image]] = {}
    for label, handle in channel.memories():
        try:
            image = Image.mapped(handle)
        finally:
            os.close(handle)
        images.setdefault(label["epoch"], {})[image.header["rank"]] = image
    return images


def restore_from_memory(
    comm: MPI.Intracomm,
    kept: Mapping[int, Mapping[int, Image]],
    oldest: int,
    declared: Declared,
    strips: Sequence[RowRange],
) -> int:
    """Load the newest commit with all images in memory; return its number, 0 without a commit. Collective.

    Parameters
    ----------
    kept
        The images that this rank can read, by commit and rank.
    oldest
        Commits with smaller numbers are ignored.
    strips
        Every rank's rows.
    """
    mine = [
        [number, image.header["rank"], image.header["ranks"], image.header["strip"]]
        for number, images in kept.items()
        for image in images.values()
    ]
    by_commit: dict[int, dict[int, tuple[int, RowRange]]] = {}
    counts: dict[int, int] = {}
    for owner, entries in enumerate(gather_documents(comm, mine)):
        for number, of, ranks, ends in entries:
            counts[number] = ranks
            by_commit.setdefault(number, {}).setdefault(of, (owner, RowRange(*ends)))
    for number in sorted(counts, reverse=True):
        holders = by_commit[number]
        if number >= oldest and len(holders) == counts[number]:
            senders, before = zip(*(holders[of] for of in range(len(holders))), strict=True)
            images = kept.get(number, {})
            rank_image.restore(comm, declared, strips, images.__getitem__, before, senders)
            return number
    return 0
