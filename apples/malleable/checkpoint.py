"""Commits by MPI-IO: all ranks write their rows into one file, any number of ranks reads them back."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from apples.malleable import commits
from apples.malleable.assembly import collect, share
from apples.malleable.block_moves import everywhere
from apples.malleable.membership import Declared, Plan
from apples.malleable.packing import Packed
from apples.malleable.strips import Range


def write(
    comm: MPI.Intracomm, directory: Path, number: int, declared: Declared, strip: Range
) -> str:
    """Commit the state; return what went wrong, empty if nothing did: then it is durable. Collective.

    A commit that fails leaves the one before as it was, and the job goes on.
    """
    offsets, end = _offsets(declared)
    kept = [_sizes(comm, blocks.packed(), len(blocks)) for blocks in declared.blocks]
    path = commits.data_path(directory, number)
    parts: list[list[int]] = []
    fault = _opened(comm, path, MPI.MODE_CREATE | MPI.MODE_WRONLY, lambda file: parts.extend(
        _write_all(comm, file, declared, strip, offsets)
        + _write_blocks(file, declared, kept, end)
    ))  # fmt: skip
    every = [part for mine in collect(comm, parts) for part in mine]
    fault = _first(comm, fault)
    if not fault and comm.Get_rank() == 0:
        try:
            values = declared.state.dump()
            commits.publish(
                directory, number,
                {"bytes": end + sum(map(sum, kept)), "declared": declared.summary(), "values": values,
                 "parts": every, "blocks": [
                     {"document": one.document(), "sizes": sizes}
                     for one, sizes in zip(declared.blocks, kept, strict=True)]},
            )  # fmt: skip
            commits.prune(directory, number)
        except OSError as error:
            fault = str(error)
    return str(share(comm, fault))


def restore(comm: MPI.Intracomm, plan: Plan, declared: Declared, strip: Range) -> int:
    """Take the newest whole commit; return its number, 0 if there is none. Collective.

    Whole is one whose every checksum is right: the ranks read the file through for that, each a part.
    """
    directory = Path(plan.commits)
    found = list(commits.manifests(directory)) if comm.Get_rank() == 0 and plan.commits else []
    for manifest in share(comm, found):
        if manifest["declared"] != declared.summary():
            continue
        path = commits.data_path(directory, manifest["commit"])
        mine = manifest["parts"][comm.Get_rank() :: comm.Get_size()]
        if not _all(comm, commits.verify(path, mine)):
            continue
        offsets, end = _offsets(declared)

        def read(
            file: MPI.File,
            offsets: list[int] = offsets,
            end: int = end,
            kept: list[Any] = manifest["blocks"],
        ) -> None:
            _read_all(file, declared, strip, offsets)
            _read_blocks(file, declared, kept, end)

        fault = _opened(comm, path, MPI.MODE_RDONLY, read)
        if not _first(comm, fault):
            declared.state.load(manifest["values"])
            return int(manifest["commit"])
    return 0


def _offsets(declared: Declared) -> tuple[list[int], int]:
    """Return where each array begins, the replicated ones after the others, and the end."""
    found, offset = [], 0
    for array in declared.arrays:
        found.append(offset)
        offset += (array.rows + 2 * array.halo) * array.row_bytes
    for one in declared.replicated:
        found.append(offset)
        offset += one.array.nbytes
    return found, offset


def _write_all(
    comm: MPI.Intracomm, file: MPI.File, declared: Declared, strip: Range, offsets: list[int]
) -> list[list[int]]:
    parts = []
    for array, offset in zip(declared.arrays, offsets, strict=False):
        rows = array.owned(strip)
        data = array.padded(rows).reshape(-1).view("u1")
        begin = offset + rows.first * array.row_bytes
        file.Write_at_all(begin, [data, MPI.BYTE])
        parts.append([begin, data.nbytes, zlib.crc32(data.data)])
    rest = offsets[len(declared.arrays) :]
    for one, offset in zip(declared.replicated, rest, strict=True):
        data = one.array.reshape(-1).view("u1")
        if comm.Get_rank() == 0:
            file.Write_at(offset, [data, MPI.BYTE])
            parts.append([offset, data.nbytes, zlib.crc32(data.data)])
    file.Sync()
    return parts


def _read_all(file: MPI.File, declared: Declared, strip: Range, offsets: list[int]) -> None:
    for array, offset in zip(declared.arrays, offsets, strict=False):
        array.strip = strip
        rows = array.needed(strip)
        data = array.padded(rows).reshape(-1).view("u1")
        file.Read_at_all(offset + rows.first * array.row_bytes, [data, MPI.BYTE])
    for one, offset in zip(declared.replicated, offsets[len(declared.arrays) :], strict=True):
        file.Read_at_all(offset, [one.array.reshape(-1).view("u1"), MPI.BYTE])


def _sizes(comm: MPI.Intracomm, own: Mapping[int, Packed], count: int) -> list[int]:
    """Return the bytes of every block. Collective."""
    sizes = everywhere(comm, {number: len(block) for number, block in own.items()}, count, 0.0)
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

        def read(number: int, places: list[int] = places, sizes: list[int] = sizes) -> Packed:
            data = np.empty(sizes[number], np.uint8)
            file.Read_at(places[number], [data, MPI.BYTE])
            return data

        blocks.restore(entry["document"], read)
        begin = places[-1]


def _opened(comm: MPI.Intracomm, path: Path, mode: int, use: Callable[[MPI.File], object]) -> str:
    """Use a file; return what went wrong. Collective."""
    try:
        file = MPI.File.Open(comm, str(path), mode)
    except MPI.Exception as error:
        return f"{path}: {error.Get_error_string()}"
    fault = ""
    try:
        use(file)
    except MPI.Exception as error:
        fault = f"{path}: {error.Get_error_string()}"
    try:
        file.Close()
    except MPI.Exception as error:
        fault = fault or f"{path}: {error.Get_error_string()}"
    return fault


def _first(comm: MPI.Intracomm, fault: str) -> str:
    """Return what went wrong on rank 0, or that something did elsewhere. Collective."""
    good = _all(comm, not fault)
    return "" if good else fault or "another rank could not"


def _all(comm: MPI.Intracomm, good: bool) -> bool:
    given, taken = np.array([good], np.int64), np.empty(1, np.int64)
    comm.Allreduce(given, taken, MPI.MIN)
    return bool(taken[0])
