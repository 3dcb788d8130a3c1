"""The kernel's dedicated speed on this machine, for strips of several sizes."""

import sys
import time
from collections.abc import Callable

import numpy as np
from events import emit, emit_ready
from kernels import GhostRows, Grid, Kernel, allocate, load_kernel, pitch_of, unknowns
from task import Task

# A sample is long enough for the clock and the caches, a size gets enough samples for a median
# and quartiles, and even a huge strip ends.
SAMPLE_SECONDS = 2e-3
SIZE_SECONDS = 0.15
FEWEST, MOST = 7, 101


def calibrate(task: Task) -> None:
    """Say one ``calibration`` event for each size."""
    columns, source = task.parameters.grid, task.parameters.source != ""
    kernel = load_kernel(task.implementation, columns, task.threads)
    free = kernel.free_memory()
    memory = {} if free is None else {"free_memory": int(free)}
    emit_ready(1)
    for rows in task.sizes:
        # What is no room for is not planned either: the largest strip that there is room for stands for it.
        samples = measure(kernel, min(rows, most_rows(free, columns, source)), source)
        low, middle, high = np.quantile([used for used, _ in samples], (0.25, 0.5, 0.75))
        emit(
            "calibration",
            rows=rows,
            seconds_per_point=float(middle),
            error=float(high - low) / 2,
            repeats=len(samples),
            wall_seconds_per_point=sum(wall for _, wall in samples) / len(samples),
            **memory,
        )


def most_rows(free: float | None, columns: int, source: bool) -> int:
    """Return the rows of the largest strip that so many bytes hold; no less than 1.

    >>> most_rows(1e6, 1000, source=False)
    59
    """
    if free is None:
        return sys.maxsize
    return max(1, int(free / (8 * pitch_of(columns) * (2 + source))) - 2)


def measure(kernel: Kernel, rows: int, source: bool) -> list[tuple[float, float]]:
    """Return samples of processor and wall seconds per point over a strip of `rows`, all threads' together.

    Other processes' turns on the CPU count in the wall time alone.
    """
    forcing = allocate(rows, kernel.columns) if source else None
    arrays = _strip(rows, kernel.columns)
    kernel.take(*arrays, *([] if forcing is None else [forcing]))
    sweep, sweeps = _work(kernel, rows, forcing)
    points = sweeps * rows * kernel.columns / kernel.threads
    clock, calls = kernel.processor_seconds, 1
    while (first := _sample(sweep, arrays, calls, clock)[0]) < SAMPLE_SECONDS:
        calls = max(calls + 1, min(100 * calls, int(calls * SAMPLE_SECONDS / (first + 1e-9))))
    samples: list[tuple[float, float]] = []
    spent = 0.0
    while len(samples) < FEWEST or (spent < SIZE_SECONDS and len(samples) < MOST):
        used, wall = _sample(sweep, arrays, calls, clock)
        samples.append((used / (calls * points), wall / (calls * points)))
        spent += used
    return samples


def _work(
    kernel: Kernel, rows: int, forcing: Grid | None
) -> tuple[Callable[[Grid, Grid], object], int]:
    """Return what sweeps a strip of `rows` from one array to another, and how many times it does.

    Where that is several times, the strip lies between two others: the rows of theirs that are made again
    are part of the price.
    """
    columns, sweeps = kernel.columns, min(kernel.most_sweeps, rows)
    if sweeps == 1:
        return lambda now, new: kernel.sweep(now, new, forcing, 1, rows + 1), 1
    beside = _strip(sweeps, columns)
    forced = [None if forcing is None else allocate(sweeps, columns) for _ in beside]
    ghosts = GhostRows(*beside, *forced)
    return lambda now, new: kernel.several_sweeps(now, new, forcing, ghosts, sweeps, False), sweeps


def _strip(rows: int, columns: int) -> tuple[Grid, Grid]:
    """Two arrays as the solver has them; ordinary numbers, for tiny ones can be slow to add."""
    arrays = allocate(rows, columns), allocate(rows, columns)
    for array in arrays:
        array[...] = 1.0
        unknowns(array, columns)[...] = np.linspace(0.5, 1.0, columns)
    return arrays


def _sample(
    sweep: Callable[[Grid, Grid], object],
    arrays: tuple[Grid, Grid],
    calls: int,
    clock: Callable[[], float],
) -> tuple[float, float]:
    """Return processor and wall seconds of so many sweeps."""
    used, wall = clock(), time.perf_counter()
    for turn in range(calls):
        sweep(arrays[turn % 2], arrays[1 - turn % 2])
    return clock() - used, time.perf_counter() - wall
