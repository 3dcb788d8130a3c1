"""Checkpoints: commits on disk, and the policy that chooses among those on disk and in memory.

A commit on disk is a data file, raw rows at offsets that no partition changes, and a manifest with its sizes and
checksums. All ranks write their rows into the one file by MPI-IO, and any number of ranks reads them back. The
manifest comes last (`apples.malleable.control.commits`). The two newest are kept, so that a damaged one falls back
to the one before. Constant arrays are written twice in the life of a job, beside its first two commits, and each
commit refers to one of these copies: never to that of the commit before it, so that what is damaged costs one.
"""

from __future__ import annotations

import contextlib
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from apples.malleable.control.command import ChangePlan
from apples.malleable.control.commits import (
    ATTEMPT_COMMITS,
    KEPT_COMMITS,
    Kind,
    Manifest,
    constant_manifest,
    data_path,
    highest_commit,
    prune,
    publish,
    remove,
    whole_manifests,
)
from apples.malleable.control.strips import RowRange
from apples.malleable.runtime import memory_checkpoint
from apples.malleable.runtime.channel import RankChannel
from apples.malleable.runtime.collectives import (
    broadcast_document,
    combine_by_number,
    gather_documents,
)
from apples.malleable.runtime.declared import DistributedArray
from apples.malleable.runtime.membership import Declared
from apples.malleable.runtime.packing import Packed
from apples.malleable.runtime.tiles import Tile

PIECE_BYTES = 1 << 20


def verify(path: Path, parts: Sequence[Sequence[int]]) -> bool:
    """Whether the bytes from `offset`, so many, have their checksum, for each part.

    A part of a tile has so many bytes in each of `rows` rows, which begin `pitch` apart.
    """
    try:
        with path.open("rb", buffering=0) as stream:
            for offset, length, check, *tile in parts:
                rows, pitch = tile or (1, 0)
                found = 0
                for row in range(rows):
                    stream.seek(offset + row * pitch)
                    left = length
                    while left:
                        piece = stream.read(min(PIECE_BYTES, left))
                        if not piece:
                            return False
                        found, left = zlib.crc32(piece, found), left - len(piece)
                if found != check:
                    return False
    except OSError:
        return False
    return True


def write_commit(
    comm: MPI.Intracomm, directory: Path, number: int, declared: Declared, constant: int = 0
) -> str:
    """Commit the state; return what went wrong, empty if nothing did: then it is durable. Collective.

    A commit that fails leaves the one before as it was and nothing of itself, and the job goes on. Each rank
    writes by itself, because one that cannot must not keep the others waiting in a collective call.

    Parameters
    ----------
    constant
        Number of the commit beside which the constant arrays were written; 0, or that of this one: they are now.
    """
    fault, refers = "", {}
    if declared.constant.arrays:
        refers["constant"] = constant or number
        if refers["constant"] == number:
            fault = _write(comm, directory, number, "constant", declared.constant, {})
    if not fault:
        fault = _write(comm, directory, number, "commit", declared.changing, refers)
    if comm.Get_rank() == 0:
        with contextlib.suppress(OSError):
            (remove if fault else prune)(directory, number)
    return fault


def _write(
    comm: MPI.Intracomm,
    directory: Path,
    number: int,
    kind: Kind,
    declared: Declared,
    manifest: Manifest,
) -> str:
    """Write one file of a commit, and its manifest; return what went wrong. Collective."""
    offsets, end = _offsets(declared)
    kept = [_sizes(comm, blocks.packed(), len(blocks)) for blocks in declared.blocks]
    path = data_path(directory, number, kind)
    parts: list[list[int]] = []
    fault = _opened(comm, path, MPI.MODE_CREATE | MPI.MODE_WRONLY, lambda file: parts.extend(
        _write_all(comm, file, declared, offsets)
        + _write_blocks(file, declared, kept, end)
    ))  # fmt: skip
    every = [part for mine in gather_documents(comm, parts) for part in mine]
    fault = _first(comm, fault)
    if not fault and comm.Get_rank() == 0:
        try:
            values = declared.state.dump()
            publish(
                directory, number,
                {**manifest, "bytes": end + sum(map(sum, kept)),
                 "declared": declared.summary(), "values": values,
                 "rows": [array.rows for array in declared.arrays],
                 "parts": every, "blocks": [
                     {"document": one.document(), "sizes": sizes}
                     for one, sizes in zip(declared.blocks, kept, strict=True)]},
                kind,
            )  # fmt: skip
        except OSError as error:
            fault = f"{error.filename or directory}: {error.strerror}"
    return str(broadcast_document(comm, fault))


def restore_commit(
    comm: MPI.Intracomm, plan: ChangePlan, declared: Declared, strips: Sequence[RowRange]
) -> tuple[int, int]:
    """Take the newest whole commit into these strips; return its number, 0 if there is none. Collective.

    Whole is one whose every checksum is right: the ranks read the file through for that, each a part. The number
    of the copy of constant arrays that it refers to is returned too.
    """
    directory, found = Path(plan.commits), []
    if comm.Get_rank() == 0 and plan.commits:
        found = [(one, constant_manifest(directory, one)) for one in whole_manifests(directory)]
    for commit, copy in broadcast_document(comm, found):
        files: list[tuple[Kind, Declared, Manifest]] = [("commit", declared.changing, commit)]
        if declared.constant.arrays:
            files.append(("constant", declared.constant, copy))
        if all(_is_whole(comm, directory, *one) for one in files) and all(
            _read(comm, directory, *one, strips) for one in files
        ):
            declared.state.load(commit["values"])
            return commit["commit"], commit.get("constant", 0)
    return 0, 0


def _is_whole(
    comm: MPI.Intracomm, directory: Path, kind: Kind, declared: Declared, manifest: Manifest
) -> bool:
    """Whether a file is of what the program declares, and every checksum is right. Collective."""
    if manifest.get("declared") != declared.summary():
        return False
    mine = manifest["parts"][comm.Get_rank() :: comm.Get_size()]
    return _all(comm, verify(data_path(directory, manifest["commit"], kind), mine))


def _read(
    comm: MPI.Intracomm,
    directory: Path,
    kind: Kind,
    declared: Declared,
    manifest: Manifest,
    strips: Sequence[RowRange],
) -> bool:
    """Take what is in a file into these strips; return whether every rank could. Collective."""
    for array, rows in zip(declared.arrays, manifest.get("rows", ()), strict=False):
        array.rows = rows  # of a sparse matrix nobody else knows how many entries it has
    offsets, end = _offsets(declared)

    def read(file: MPI.File) -> None:
        _read_all(comm, file, declared, strips, offsets)
        _read_blocks(file, declared, manifest["blocks"], end)

    path = data_path(directory, manifest["commit"], kind)
    return not _first(comm, _opened(comm, path, MPI.MODE_RDONLY, read))


def _offsets(declared: Declared) -> tuple[list[int], int]:
    """Return where each array begins, the replicated ones after the others, and the end."""
    found, offset = [], 0
    for array in declared.arrays:
        found.append(offset)
        offset += math.prod(array.whole())
    for one in declared.replicated:
        found.append(offset)
        offset += one.array.nbytes
    return found, offset


def _write_all(
    comm: MPI.Intracomm, file: MPI.File, declared: Declared, offsets: list[int]
) -> list[list[int]]:
    parts = []
    for array, offset in zip(declared.arrays, offsets, strict=False):
        pieces, check = list(_pieces(array, offset, array.owned(array.tile))), 0
        for begin, data in pieces:
            file.Write_at(begin, [data, MPI.BYTE])
            check = zlib.crc32(data.data, check)
        if pieces:
            begin, data = pieces[0]
            in_rows = [len(pieces), array.whole()[1]] if len(pieces) > 1 else []
            parts.append([begin, data.nbytes, check, *in_rows])
    rest = offsets[len(declared.arrays) :]
    for one, offset in zip(declared.replicated, rest, strict=True):
        data = one.array.reshape(-1).view("u1")
        if comm.Get_rank() == 0:
            file.Write_at(offset, [data, MPI.BYTE])
            parts.append([offset, data.nbytes, zlib.crc32(data.data)])
    file.Sync()
    return parts


def _read_all(
    comm: MPI.Intracomm,
    file: MPI.File,
    declared: Declared,
    strips: Sequence[RowRange],
    offsets: list[int],
) -> None:
    for array, offset in zip(declared.arrays, offsets, strict=False):
        array.locate(comm, strips)
        array.hold(array.parts(strips), comm.Get_rank())
        fault = None
        try:
            for begin, data in _pieces(array, offset, array.needed(array.tile)):
                file.Read_at(begin, [data, MPI.BYTE])
        except MPI.Exception as error:
            fault = error
        # Nobody goes on to the next array alone: to locate it is collective, and uses what was read.
        if not _all(comm, fault is None):
            raise fault or MPI.Exception(MPI.ERR_IO)
    for one, offset in zip(declared.replicated, offsets[len(declared.arrays) :], strict=True):
        file.Read_at_all(offset, [one.array.reshape(-1).view("u1"), MPI.BYTE])


def _pieces(array: DistributedArray, offset: int, part: Tile) -> Iterator[tuple[int, Packed]]:
    """Yield the bytes of a part and where in the file they are: at once if as wide as the whole, else by rows.

    The whole array lies in the file from `offset` on, row by row.
    """
    pitch, data = array.whole()[1], array.bytes(part)
    begin = offset + part.rows.first * pitch + part.columns.first * array.cell_bytes
    if data.shape[1] == pitch:
        yield begin, data.reshape(-1)
        return
    for number, row in enumerate(data):
        yield begin + number * pitch, row


def _sizes(comm: MPI.Intracomm, own: Mapping[int, Packed], count: int) -> list[int]:
    """Return the bytes of every block. Collective."""
    sizes = combine_by_number(
        comm, {number: len(block) for number, block in own.items()}, count, 0.0
    )
    return [int(size) for size in sizes]


def _write_blocks(
    file: MPI.File, declared: Declared, kept: list[list[int]], begin: int
) -> list[list[int]]:
    """Write each own block at its place, in the order of numbers."""
    parts = []
    for blocks, sizes in zip(declared.blocks, kept, strict=True):
        places = list(accumulate(sizes, initial=begin))
        for number, data in blocks.packed().items():
            file.Write_at(places[number], [data, MPI.BYTE])
            parts.append([places[number], data.nbytes, zlib.crc32(data.data)])
        begin = places[-1]
    file.Sync()
    return parts


def _read_blocks(file: MPI.File, declared: Declared, kept: list[Any], begin: int) -> None:
    for blocks, entry in zip(declared.blocks, kept, strict=True):
        sizes = list(map(int, entry["sizes"]))
        places = list(accumulate(sizes, initial=begin))

        def read(
            owners: Sequence[int],
            places: list[int] = places,
            sizes: list[int] = sizes,
            rank: int = blocks.comm.Get_rank(),
        ) -> dict[int, Packed]:
            own = {}
            for number in (n for n, owner in enumerate(owners) if owner == rank):
                own[number] = np.empty(sizes[number], np.uint8)
                file.Read_at(places[number], [own[number], MPI.BYTE])
            return own

        blocks.restore(entry["document"], read)
        begin = places[-1]


def _said(error: MPI.Exception) -> str:
    """Return what the system said, of the stack of calls that MPI says."""
    return error.Get_error_string().strip().splitlines()[-1].rpartition(": ")[2].strip()


def _opened(comm: MPI.Intracomm, path: Path, mode: int, use: Callable[[MPI.File], object]) -> str:
    """Use a file; return what went wrong. Collective."""
    try:
        file = MPI.File.Open(comm, str(path), mode)
    except MPI.Exception as error:
        return f"{path.parent}: {_said(error)}"
    fault = ""
    try:
        use(file)
    except MPI.Exception as error:
        fault = f"{path.parent}: {_said(error)}"
    try:
        file.Close()
    except MPI.Exception as error:
        fault = fault or f"{path.parent}: {_said(error)}"
    return fault


def _first(comm: MPI.Intracomm, fault: str) -> str:
    """Return what went wrong on rank 0, or that something did elsewhere. Collective."""
    good = _all(comm, not fault)
    return "" if good else fault or "another rank could not"


def _all(comm: MPI.Intracomm, good: bool) -> bool:
    given, taken = np.array([good], np.int64), np.empty(1, np.int64)
    comm.Allreduce(given, taken, MPI.MIN)
    return bool(taken[0])


class CheckpointPolicy:
    """Makes the commits of a job, and chooses the one it goes on from; every rank takes part.

    Attributes
    ----------
    number
        Of the last commit that was made or tried, by whomever: no number is used twice.
    constants
        Numbers of the copies on disk of the constant arrays that the ranks have; the last is that of the last
        commit.
    """

    def __init__(self, channel: RankChannel) -> None:
        self._channel = channel
        self.number = 0
        self.constants: tuple[int, ...] = ()

    def make(
        self, comm: MPI.Intracomm, plan: ChangePlan, declared: Declared, *, sparing: bool = False
    ) -> str:
        """Commit the state on disk, if there is a directory, and in memory; return what went wrong. Collective.

        Parameters
        ----------
        sparing
            Whether nobody asked for it: then it is made in memory alone, and where that is to spare.
        """
        self.number += 1
        fault = ""
        if plan.commits and not sparing:
            fault = self.commit_on_disk(comm, Path(plan.commits), declared)
        short = memory_checkpoint.commit_in_memory(
            comm, self._channel, self.number, plan, declared, sparing=sparing
        )
        return fault or short

    def commit_on_disk(self, comm: MPI.Intracomm, directory: Path, declared: Declared) -> str:
        """Commit on disk, with a copy of the constant arrays while there are too few. Collective."""
        constant = self.number if len(self.constants) < KEPT_COMMITS else self.constants[0]
        fault = write_commit(comm, directory, self.number, declared, constant)
        if not fault and declared.constant.arrays:
            self.constants = (*(one for one in self.constants if one != constant), constant)
        return fault

    def restore(
        self,
        comm: MPI.Intracomm,
        plan: ChangePlan,
        declared: Declared,
        strips: Sequence[RowRange],
        first: bool,
    ) -> int:
        """Take the newest whole commit into these strips; return its number, 0 if there is none. Collective.

        Parameters
        ----------
        first
            Whether this rank asks the node supervisor for what it keeps; one rank a host does.
        """
        directory = Path(plan.commits)
        here = comm.Get_rank() == 0 and bool(plan.commits)
        newest = next((m["commit"] for m in whole_manifests(directory)), 0) if here else 0
        highest = highest_commit(directory) if here else 0
        least = int(broadcast_document(comm, newest))
        asks = first and plan.origin == "commit"
        have = memory_checkpoint.committed_parts(self._channel) if asks else []
        seen = gather_documents(comm, max([highest, *(piece.number for piece in have)]))
        self.number = max(plan.commit, (plan.attempt - 1) * ATTEMPT_COMMITS, *seen)
        found = memory_checkpoint.restore_from_memory(comm, have, least, declared, strips)
        if not found:
            found, constant = restore_commit(comm, plan, declared, strips)
            self.constants = (constant,) if constant else ()
        return found
