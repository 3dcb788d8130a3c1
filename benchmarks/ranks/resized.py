"""Ranks of the resize benchmark: hold data, pass safe points, and print the times of changes and commits.

python resized.py KIND ROWS COLUMNS COMMITS STOP_FILE
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from apples import malleable

ENTRIES = 10  # a row of the sparse matrix has 128 bytes
PAUSE_SECONDS = 0.001


def shape_main(kind: str, rows: int, columns: int, stop: Path) -> None:
    """Hold rows, tiles or a sparse matrix; print the standstill of each change and the time of a copy."""

    def fill(*where: object) -> None:
        where[-1][...] = 1.0  # type: ignore[index]

    def entries(numbers: range) -> tuple[NDArray[np.int64], ...]:
        count = len(numbers)
        indices = np.arange(ENTRIES * count) % rows
        return ENTRIES * np.arange(count + 1), indices, indices

    with malleable.Job() as job:
        if kind == "tiles":
            own = job.tiles("array", (rows, rows), fill=fill)
        elif kind == "csr":
            own = job.csr("array", (rows, rows), fill=entries).data
        else:
            own = job.array("array", (rows, columns), fill=fill)
        state = job.state(iteration=0, stop=0.0)
        while not state.stop:
            begin = time.perf_counter()
            if change := job.safepoint():
                report(job, "standstill", 0.0 if change.is_new else time.perf_counter() - begin)
                job.comm.Barrier()
                slowest = job.allreduce(copy_seconds(own.own), MPI.MAX)
                if job.rank == 0:
                    os.write(1, f"copy {slowest} {own.own.nbytes}\n".encode())
            time.sleep(PAUSE_SECONDS)
            state.iteration += 1
            state.stop = job.allreduce(float(job.rank == 0 and stop.exists()), MPI.MAX)


def constant_main(declared: bool, rows: int, columns: int, commits: int, stop: Path) -> None:
    """Hold changing data and ten times as much constant data, declared constant or not; commit, then compute."""

    def fill(_: range, part: NDArray[np.float64]) -> None:
        part[...] = 1.0

    with malleable.Job() as job:
        changes = job.array("changes", (rows, columns // 10), fill=fill)
        stays = job.array("stays", (rows, columns), fill=fill, constant=declared)
        state, standstill = job.state(iteration=0, stop=0.0), 0.0
        job.may_lose("standstill")
        while not state.stop:
            begin = time.perf_counter()
            change = job.safepoint()
            standstill += time.perf_counter() - begin  # of all safe points since the last change
            if change:
                report(job, "standstill", 0.0 if change.is_new else standstill)
                standstill = 0.0
            if change is not None and change.kind == "started":
                for _ in range(commits):
                    job.comm.Barrier()
                    begin = time.perf_counter()
                    if fault := job.commit():
                        sys.exit(fault)
                    report(job, "commit", time.perf_counter() - begin)
            changes.own[...] += stays.own[:, : columns // 10]
            time.sleep(PAUSE_SECONDS)
            state.iteration += 1
            state.stop = job.allreduce(float(job.rank == 0 and stop.exists()), MPI.MAX)


def report(job: Any, name: str, seconds: float) -> None:
    """Print the longest time of the ranks, on rank 0. Collective."""
    longest = job.allreduce(seconds, MPI.MAX)
    if job.rank == 0:
        os.write(1, f"{name} {longest}\n".encode())


def copy_seconds(rows: NDArray[np.float64]) -> float:
    """Return the seconds of a copy of the rows into allocated memory, median of 5."""
    target = np.empty_like(rows)
    target[...] = 0.0
    samples = []
    for _ in range(5):
        begin = time.perf_counter()
        np.copyto(target, rows)
        samples.append(time.perf_counter() - begin)
    return statistics.median(samples)


if __name__ == "__main__":
    name, stop_file, sizes = (
        sys.argv[1],
        Path(sys.argv[-1]),
        [int(word) for word in sys.argv[2:-1]],
    )
    if name in {"constant", "undeclared"}:
        constant_main(name == "constant", *sizes, stop_file)
    else:
        shape_main(name, *sizes[:2], stop_file)
