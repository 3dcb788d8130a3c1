"""The kernel's dedicated speed on this machine, for strips of several sizes."""

import time
from collections.abc import Callable

import numpy as np
from events import emit, emit_ready
from kernels import Grid, Kernel, allocate, load_kernel, unknowns
from task import Task

# A sample is long enough for the clock and the caches, a size gets enough samples for a median
# and quartiles, and even a huge strip ends.
SAMPLE_SECONDS = 2e-3
SIZE_SECONDS = 0.15
FEWEST, MOST = 7, 101


def calibrate(task: Task) -> None:
    """Say one ``calibration`` event for each size."""
    columns = task.parameters.grid
    kernel = load_kernel(task.implementation, columns)
    emit_ready(1)
    for rows in task.sizes:
        samples = measure(kernel, rows, task.parameters.source != "")
        low, middle, high = np.quantile(samples, (0.25, 0.5, 0.75))
        emit(
            "calibration",
            rows=rows,
            seconds_per_point=float(middle),
            error=float(high - low) / 2,
            repeats=len(samples),
        )


def measure(
    kernel: Kernel, rows: int, source: bool, clock: Callable[[], float] = time.process_time
) -> list[float]:
    """Return samples of processor seconds per point over a strip of `rows`.

    Processor time, so that other processes' turns on the CPU do not count.
    """
    arrays = _strip(rows, kernel.columns)
    forcing = allocate(rows, kernel.columns) if source else None
    points = rows * kernel.columns
    sweeps = 1
    while (first := _sample(kernel, arrays, forcing, sweeps, clock)) < SAMPLE_SECONDS:
        sweeps = max(sweeps + 1, min(100 * sweeps, int(sweeps * SAMPLE_SECONDS / (first + 1e-9))))
    samples: list[float] = []
    spent = 0.0
    while len(samples) < FEWEST or (spent < SIZE_SECONDS and len(samples) < MOST):
        seconds = _sample(kernel, arrays, forcing, sweeps, clock)
        samples.append(seconds / (sweeps * points))
        spent += seconds
    return samples


def _strip(rows: int, columns: int) -> tuple[Grid, Grid]:
    """Two arrays as the solver has them; ordinary numbers, for tiny ones can be slow to add."""
    arrays = allocate(rows, columns), allocate(rows, columns)
    for array in arrays:
        array[...] = 1.0
        unknowns(array, columns)[...] = np.linspace(0.5, 1.0, columns)
    return arrays


def _sample(
    kernel: Kernel,
    arrays: tuple[Grid, Grid],
    forcing: Grid | None,
    sweeps: int,
    clock: Callable[[], float],
) -> float:
    last = len(arrays[0]) - 1
    start = clock()
    for turn in range(sweeps):
        kernel.sweep(arrays[turn % 2], arrays[1 - turn % 2], forcing, 1, last)
    return clock() - start
