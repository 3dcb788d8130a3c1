"""The final grid, row by row through rank 0 in blocks: nobody ever holds it whole."""

import hashlib
import zlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import IO

import numpy as np
from events import emit
from kernels import Grid
from mpi4py import MPI
from patience import Patience
from task import RankStrip

# At most this many bytes (or one row) are on their way at a time.
BLOCK_BYTES = 4 << 20
STREAM = 3
# Rows in one event: eight letters each, well below the 64 KiB that a line may have.
SAID_AT_ONCE = 4096


class Sink(ABC):
    """Takes the rows of the grid in order."""

    @abstractmethod
    def take(self, rows: Grid) -> None:
        """Take the next rows, a contiguous block that is overwritten afterwards."""

    @abstractmethod
    def close(self) -> None:
        """Finish: all rows have been taken."""


class Digest(Sink):
    """SHA-256 of the grid as row-major little-endian float64."""

    def __init__(self) -> None:
        self.sha = hashlib.sha256()

    def take(self, rows: Grid) -> None:
        """Add the rows' bytes."""
        self.sha.update(np.ascontiguousarray(rows, dtype="<f8").data)

    def close(self) -> None:
        """Nothing to do."""

    @property
    def hexadecimal(self) -> str:
        """The digest."""
        return self.sha.hexdigest()


class RowChecksums(Sink):
    """A CRC-32 of each row, said rank by rank: where two results differ, it can be told in which row.

    Parameters
    ----------
    strips, hosts
        Who has which rows.
    """

    def __init__(self, strips: tuple[RankStrip, ...], hosts: tuple[str, ...]) -> None:
        self.strips, self.hosts = strips, hosts
        self.rank = self.row = 0
        self.digests: list[str] = []

    def take(self, rows: Grid) -> None:
        """Digest the rows; they are all of one rank."""
        while not self.strips[self.rank].rows:  # of a malleable run that had more ranks than work
            self.rank += 1
        for row in np.ascontiguousarray(rows, dtype="<f8"):
            self.digests.append(f"{zlib.crc32(row.data):08x}")
            strip = self.strips[self.rank]
            done = self.row + len(self.digests) == strip.first_row + strip.rows
            if done or len(self.digests) == SAID_AT_ONCE:
                self._say()
                self.rank += done

    def _say(self) -> None:
        host = self.hosts[self.strips[self.rank].host]
        digests = "".join(self.digests)
        emit("rows", first_row=self.row, host=host, rank=self.rank, digests=digests)
        self.row, self.digests = self.row + len(self.digests), []

    def close(self) -> None:
        """Nothing to do."""


class NpyFile(Sink):
    """A ``.npy`` file, at its place only when complete."""

    def __init__(self, path: Path, grid: int) -> None:
        self.path = path
        self.part = path.with_name(path.name + ".part")
        self.file: IO[bytes] = self.part.open("wb")
        header = {"descr": "<f8", "fortran_order": False, "shape": (grid, grid)}
        np.lib.format.write_array_header_1_0(self.file, header)

    def take(self, rows: Grid) -> None:
        """Append the rows' bytes."""
        try:
            self.file.write(np.ascontiguousarray(rows, dtype="<f8").data)
            self.file.flush()
        except OSError as error:  # of writing, which bears no name
            raise OSError(error.errno, error.strerror, str(self.part)) from None

    def close(self) -> None:
        """Give the file its name."""
        self.file.close()
        self.part.replace(self.path)


def stream_rows(
    inside: Grid,
    strips: tuple[RankStrip, ...],
    sinks: list[Sink],
    comm: MPI.Intracomm,
    patience: Patience,
) -> None:
    """Send every rank's unknowns through rank 0 into the sinks, in row order.

    Collective. `inside` is the caller's unknowns, `sinks` matters on rank 0 only; it closes them.
    """
    columns = inside.shape[1]
    step = max(1, BLOCK_BYTES // (8 * columns))
    buffer = np.empty((min(step, max(strip.rows for strip in strips)), columns))
    rank = comm.Get_rank()
    for owner, strip in enumerate(strips):
        if rank not in (0, owner):
            continue
        for start in range(0, strip.rows, step):
            block = buffer[: min(step, strip.rows - start)]
            if rank == owner:
                block[...] = inside[start : start + len(block)]
            if owner != 0:
                request = (
                    comm.Irecv(block, owner, STREAM) if rank == 0 else comm.Isend(block, 0, STREAM)
                )
                patience.wait(request.Test)
            if rank == 0:
                for sink in sinks:
                    sink.take(block)
    if rank == 0:
        for sink in sinks:
            sink.close()


def stream_rectangles(
    inside: Grid,
    strips: tuple[RankStrip, ...],
    sinks: list[Sink],
    comm: MPI.Intracomm,
    patience: Patience,
) -> None:
    """Send every rank's rectangle through rank 0 into the sinks, in row order, some whole rows at a time.

    Collective, as `stream_rows`.
    """
    rank = comm.Get_rank()
    grid = max(strip.first_row + strip.rows for strip in strips)
    step = max(1, BLOCK_BYTES // (8 * grid))
    for start in range(0, grid, step):
        whole = np.empty((min(step, grid - start) if rank == 0 else 0, grid))
        for owner, strip in enumerate(strips):
            rows = range(max(start, strip.first_row), min(start + step, strip.down.stop))
            if not rows or rank not in (0, owner):
                continue
            part = np.empty((len(rows), strip.columns))
            if rank == owner:
                first = rows.start - strip.first_row
                part[...] = inside[first : first + len(rows)]
            if owner != 0:
                send = comm.Irecv if rank == 0 else comm.Isend
                patience.wait(send(part, owner if rank == 0 else 0, STREAM).Test)
            if rank == 0:
                columns = slice(strip.first_column, strip.first_column + strip.columns)
                whole[rows.start - start : rows.stop - start, columns] = part
        for sink in sinks if rank == 0 else ():
            sink.take(whole)
    for sink in sinks if rank == 0 else ():
        sink.close()
