"""The kernel's dedicated speed on this machine, for strips of several sizes."""

import sys
import time
from collections.abc import Callable

import numpy as np
from kernels import HALO, Grid, Kernel, allocate, load_kernel, pitch_of, unknowns
from parameters import Parameters
from relaxation import strip_of

from apples.program import Task

# A sample is long enough for the clock and the caches, a size gets enough samples for a median
# and quartiles, and even a huge strip ends.
SAMPLE_SECONDS = 2e-3
SIZE_SECONDS = 0.15
MIN_SAMPLES, MAX_SAMPLES = 7, 101


def calibrate(task: Task, parameters: Parameters) -> None:
    """Report the speed over a strip of each size."""
    source = parameters.source != ""
    kernel = load_kernel(task.implementation or "numpy", parameters.grid, task.threads)
    free = kernel.free_memory()
    for rows in task.sizes:
        # Plans have no strip that exceeds the memory, so the largest strip that fits is measured instead.
        samples = measure(kernel, min(rows, most_rows(free, parameters.grid, source)), source)
        task.calibrated(rows, samples, free_memory=free)


def most_rows(free: float | None, columns: int, source: bool) -> int:
    """Return the rows of the largest strip that fits into `free` bytes; at least 1.

    >>> most_rows(1e6, 1000, source=False)
    59
    """
    if free is None:
        return sys.maxsize
    return max(1, int(free / (8 * pitch_of(columns) * (2 + source))) - 2)


def measure(kernel: Kernel, rows: int, source: bool) -> list[tuple[float, float]]:
    """Return samples of processor and wall seconds per point over a strip of `rows`, summed over all threads.

    Only the wall time includes other processes' time on the CPU. If a kernel makes several sweeps at once, the
    strip lies between two others, so that the time includes the rows of theirs that it computes as well.
    """
    sweeps = min(kernel.most_sweeps, rows)
    beyond = HALO - 1 if sweeps > 1 else 0
    arrays = [ordinary(rows + 2 * beyond, kernel.columns) for _ in range(2 + source)]
    now, new, *more = (strip_of(array) if beyond else array for array in arrays)
    forcing = more[0] if more else None
    kernel.take(now, new, *more)

    def sweep(now: Grid, new: Grid) -> None:
        if sweeps > 1:
            kernel.several_sweeps(now, new, forcing, (True, True), sweeps, checked=False)
        else:
            kernel.sweep(now, new, forcing, 1, rows + 1)

    points = sweeps * rows * kernel.columns / kernel.threads
    clock, calls = kernel.processor_seconds, 1
    while (first := _sample(sweep, (now, new), calls, clock)[0]) < SAMPLE_SECONDS:
        calls = max(calls + 1, min(100 * calls, int(calls * SAMPLE_SECONDS / (first + 1e-9))))
    samples: list[tuple[float, float]] = []
    spent = 0.0
    while len(samples) < MIN_SAMPLES or (spent < SIZE_SECONDS and len(samples) < MAX_SAMPLES):
        used, wall = _sample(sweep, (now, new), calls, clock)
        samples.append((used / (calls * points), wall / (calls * points)))
        spent += used
    return samples


def ordinary(rows: int, columns: int) -> Grid:
    """Return an array of ordinary numbers, because additions of tiny numbers can be slow."""
    array = allocate(rows, columns)
    array[...] = 1.0
    unknowns(array, columns)[...] = np.linspace(0.5, 1.0, columns)
    return array


def _sample(
    sweep: Callable[[Grid, Grid], object],
    arrays: tuple[Grid, Grid],
    calls: int,
    clock: Callable[[], float],
) -> tuple[float, float]:
    """Return processor and wall seconds of `calls` sweeps."""
    used, wall = clock(), time.perf_counter()
    for turn in range(calls):
        sweep(arrays[turn % 2], arrays[1 - turn % 2])
    return clock() - used, time.perf_counter() - wall
