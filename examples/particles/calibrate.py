"""The speed on this machine: processor and wall seconds for one cell and step."""

import time

import numpy as np
from box import Box, Numbers
from cell import Cell
from events import emit, emit_ready
from population import first_cell
from task import Task

FEWEST, MOST = 5, 25
SIZE_SECONDS = 0.3


def calibrate(task: Task) -> None:
    """Say one ``calibration`` event for each size: the mean over the cells of so many rows."""
    parameters = task.parameters
    box = Box(parameters.cells, parameters.cell_side)
    cells = [first_cell(parameters, box, number) for number in range(box.cells**2)]
    emit_ready(1)
    for size in task.sizes:
        rows = min(size, box.cells)
        samples = measure(box, cells, rows * box.cells)
        low, middle, high = np.quantile([used for used, _ in samples], (0.25, 0.5, 0.75))
        emit(
            "calibration",
            rows=size,
            seconds_per_point=float(middle),
            error=float(high - low) / 2,
            repeats=len(samples),
            wall_seconds_per_point=sum(wall for _, wall in samples) / len(samples),
        )
    emit("done")


def measure(box: Box, cells: list[Cell], count: int) -> list[tuple[float, float]]:
    """Return samples of processor and wall seconds a cell, over the first `count` cells."""
    arrived: dict[int, list[Numbers]] = {cell.number: [] for cell in cells}
    for cell in cells:
        for there, rows in cell.mail(box).items():
            arrived[there].append(rows)
    samples: list[tuple[float, float]] = []
    begin = time.process_time()
    while len(samples) < FEWEST or (
        time.process_time() - begin < SIZE_SECONDS and len(samples) < MOST
    ):
        used, wall = time.process_time(), time.perf_counter()
        for cell in cells[:count]:
            cell.mail(box)
            cell.receive(arrived[cell.number], box)
        used, wall = time.process_time() - used, time.perf_counter() - wall
        samples.append((used / count, wall / count))
    return samples
