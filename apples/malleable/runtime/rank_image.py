"""The image of a rank's data: `snapshot` packs all declared data of a rank, `restore` loads it on any ranks.

An image has the rank's own part of each distributed array with the outer halos, its blocks, and, on rank 0, the
replicated arrays. Its header has the state's values. So the images of all ranks are the whole state of a job. Any
number of ranks can restore it: each copies or receives the parts that it needs, with halos.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np
from mpi4py import MPI

from apples.malleable.control.strips import RowRange
from apples.malleable.runtime.collectives import gather_documents
from apples.malleable.runtime.membership import Declared
from apples.malleable.runtime.packing import Image, Packed
from apples.malleable.runtime.part_messages import PartMessages
from apples.malleable.runtime.row_memory import RowMemory


def snapshot(
    declared: Declared, strips: Sequence[RowRange], rank: int, **more: object
) -> Callable[[], Image]:
    """Return a function that packs the data that a rank has now. Nothing is copied before the call.

    The function calls no MPI. It stays valid while a change of hosts moves the data, because the old parts of
    arrays stay in place until the change is complete.

    Parameters
    ----------
    strips
        Rows of every rank.
    more
        Further entries of the header.
    """
    kinds = [blocks.packers() for blocks in declared.blocks]
    header = {
        "rank": rank,
        "ranks": len(strips),
        "strip": [strips[rank].first, strips[rank].stop],
        "declared": declared.summary(),
        "values": declared.state.dump(),
        "blocks": [
            {"numbers": list(packers), **blocks.document()}
            for blocks, packers in zip(declared.blocks, kinds, strict=True)
        ],
        **more,
    }

    def image() -> Image:
        parts = [array.bytes(array.owned(array.tile)) for array in declared.arrays]
        if rank == 0:
            parts += [one.array.reshape(-1).view("u1") for one in declared.replicated]
        parts += [pack() for packers in kinds for pack in packers.values()]
        return Image(header, parts)

    return image


def restore(
    comm: MPI.Intracomm,
    declared: Declared,
    strips: Sequence[RowRange],
    images: Callable[[int], Image],
    before: Sequence[RowRange],
    senders: Sequence[int],
    *,
    shared: bool = False,
    stay: bool = False,
) -> None:
    """Load the data in the images of all ranks into these strips. Collective.

    Parameters
    ----------
    images
        Returns the image of an earlier rank. Called only for images that this rank can read.
    before
        The strip of each image.
    senders
        Rank of `comm` that sends the parts of each image.
    shared
        Whether every rank can read every image; otherwise only its sender can.
    stay
        Whether each block stays with the sender of its image. Otherwise the load balancer places all blocks.
    """
    rank = comm.Get_rank()
    for index, array in enumerate(declared.arrays):
        # One array after another, because the entries of a matrix are located by the starts of its rows.
        messages, (_, pitch) = PartMessages(comm), array.whole()
        array.locate(comm, before, strips)
        parts = array.parts(strips)
        array.allocate(parts, rank)
        for number, tile in enumerate(array.parts(before)):
            owned = array.owned(tile)
            wanted = owned & array.needed(array.tile)
            own = senders[number] == rank
            if own or (shared and len(wanted)):
                data = RowMemory(owned, array.cell_bytes, images(number).parts[index])
                np.copyto(array.bytes(wanted), data.bytes(wanted))
                for other, theirs in enumerate(() if shared else parts):
                    part = owned & array.needed(theirs)
                    if other != rank and len(part):
                        messages.send(data.bytes(part), other, index, pitch)
            elif len(wanted) and not shared:
                messages.receive(array.bytes(wanted), senders[number], index, pitch)
        messages.finish()
    mine = [number for number, sender in enumerate(senders) if sender == rank]
    first = images(0) if 0 in mine else None
    header: dict[str, Any] = gather_documents(comm, first and first.header)[senders[0]]
    declared.state.load(header["values"])
    for index, one in enumerate(declared.replicated, len(declared.arrays)):
        flat = one.array.reshape(-1).view("u1")
        if first:
            flat[...] = first.parts[index]
        comm.Bcast([flat, MPI.BYTE], senders[0])
    held = [_blocks(images(number)) for number in mine if declared.blocks]
    for kind, blocks in enumerate(declared.blocks):
        own_blocks = {n: block for kinds in held for n, block in kinds[kind].items()}
        blocks.restore(header["blocks"][kind], own_blocks, stay=stay)


def _blocks(image: Image) -> list[dict[int, Packed]]:
    """Return the blocks in an image, by number, for each kind."""
    numbers = [kind["numbers"] for kind in image.header["blocks"]]
    parts = islice(image.parts, len(image.parts) - sum(map(len, numbers)), None)
    return [{number: next(parts) for number in kind} for kind in numbers]
