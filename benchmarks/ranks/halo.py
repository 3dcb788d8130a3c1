"""Ranks of the kernel benchmark: they share a grid, and rank 0 prints one JSON object.

python halo.py exchange|loop GRID REPEATS
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "jacobi2d"))

from kernels import NAMES, Kernel, KernelUnavailableError, load_kernel
from parameters import Parameters
from relaxation import Relaxation, strip_of

from apples.program import Task

EXCHANGES = 100
SWEEPS = 16


def exchange(grid: int, repeats: int) -> None:
    """Print the median times of an exchange and of a sweep of a rank's part by the fastest kernel. Collective."""
    with Task(rows=grid, iterations=1, rectangles=True, arguments=()) as task:
        relaxation = Relaxation(task, Parameters(grid))
        kernel = next(kernel for _, kernel in available(NAMES[::-1], grid))
        relaxation.take_arrays()
        arrays = [strip_of(array) for array in relaxation.arrays]
        kernel.take(*arrays)
        exchanges, sweeps = [], []
        for _ in range(repeats):
            task.comm.Barrier()
            start = time.perf_counter()
            for _ in range(EXCHANGES):
                relaxation.exchange()
            middle = time.perf_counter()
            kernel.sweep(arrays[0], arrays[1], None, 1, len(arrays[0]) - 1)
            exchanges.append((middle - start) / EXCHANGES)
            sweeps.append(time.perf_counter() - middle)
        seconds = statistics.median(exchanges), statistics.median(sweeps)
        if task.rank == 0:
            print(json.dumps({"exchange": seconds[0], "sweep": seconds[1]}))
        finish(task)


def loop(grid: int, repeats: int) -> None:
    """Print the median times of an iteration of the loop by C kernel, and of memcpy. Collective."""
    parameters = Parameters(grid, iterations=1 << 60, residual_every=0)
    with Task(rows=grid, iterations=1, rectangles=True, arguments=()) as task:
        points = len(task.strip) * grid
        source, target = np.ones(points), np.empty(points)

        def copy() -> None:
            for _ in range(SWEEPS):
                np.copyto(target, source)

        def iterate(relaxation: Relaxation) -> None:
            end = task.iteration + SWEEPS
            while task.iteration < end:
                relaxation.advance(task.iteration)
                task.advance(1)

        works: dict[str, Callable[[], None]] = {"memcpy": copy}
        for name, kernel in available(("compiled", "wavefront"), grid):
            relaxation = Relaxation(task, parameters)
            relaxation.kernel = kernel
            relaxation.take_arrays()
            works[name] = partial(iterate, relaxation)
        seconds: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(repeats + 1):
            for name, work in works.items():
                task.comm.Barrier()
                start = time.perf_counter()
                work()
                task.comm.Barrier()
                seconds[name].append((time.perf_counter() - start) / SWEEPS)
        if task.rank == 0:
            print(
                json.dumps(
                    {name: statistics.median(values[1:]) for name, values in seconds.items()}
                )
            )
        finish(task)


def finish(task: Task) -> None:
    """End a task that has no result."""
    for _ in task.iterations():
        pass
    task.result(None)


def available(names: Sequence[str], grid: int) -> Iterator[tuple[str, Kernel]]:
    """Yield the kernels that this host has."""
    for name in names:
        with suppress(KernelUnavailableError):
            yield name, load_kernel(name, grid)


if __name__ == "__main__":
    role, points, count = sys.argv[1:]
    {"exchange": exchange, "loop": loop}[role](int(points), int(count))
