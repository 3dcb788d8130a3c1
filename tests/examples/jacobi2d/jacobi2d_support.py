"""What the tests of the Jacobi2D program share."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]
PROGRAM = ROOT / "examples" / "jacobi2d"
SOLVER = PROGRAM / "solver.py"
SCHEMA = json.loads((ROOT / "apples" / "launch" / "protocol.schema.json").read_text())
SECONDS = 300.0


def validator(kind):
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is in the test extra")
    return jsonschema.Draft202012Validator({**SCHEMA, "$ref": f"#/$defs/{kind}"})


@dataclass
class Run:
    code: int
    events: list
    talk: str

    def only(self, kind):
        (event,) = [event for event in self.events if event["event"] == kind]
        return event

    def kinds(self):
        return [event["event"] for event in self.events]


def run_task(parameters, pieces, implementations="numpy", **more):
    """Return a run task; a piece is (rows, ranks), an implementation one name or one a piece."""
    if isinstance(implementations, str):
        implementations = [implementations] * len(pieces)
    partition, row = [], 0
    for index, (rows, ranks) in enumerate(pieces):
        place = {"host": f"h{index}", "address": "127.0.0.1"}
        partition.append({**place, "ranks": ranks, "first_row": row, "rows": rows})
        row += rows
    return {
        "schema": "apples.task/1",
        "mode": "run",
        "parameters": {"iterations": 100, **parameters},
        "implementations": {f"h{index}": name for index, name in enumerate(implementations)},
        "partition": partition,
        "output": None,
        "progress_seconds": 0.25,
        "save": False,
    } | more


def rectangles_task(parameters, tiles, implementations="numpy", **more):
    """Return a run task of rectangles; a tile is (first_row, rows, first_column, columns, ranks)."""
    task = run_task(parameters, [(1, 1)] * len(tiles), implementations, **more)
    for piece, tile in zip(task["partition"], tiles, strict=True):
        keys = ("first_row", "rows", "first_column", "columns", "ranks")
        piece.update(zip(keys, tile, strict=True))
    return task


def command(ranks, program=(str(SOLVER),)):
    mpiexec = Path(sys.executable).with_name("mpiexec")
    return [str(mpiexec), "-disable-auto-cleanup", "-n", str(ranks), sys.executable, *program]


def environment(path, task, **more):
    file = path / "task.json"
    file.write_text(json.dumps(task))
    return {**os.environ, "APPLES_TASK": str(file), **more}


def reference(
    n, iterations, tolerance=0.0, every=50, *, sides=(1, 0, 0, 0), source=0.0, initial=0.0
):
    """The whole grid on one process, as the formula stands: unknowns, iterations, residual."""
    u = np.zeros((n + 2, n + 2))
    u[1:-1, 1:-1] = initial
    u[0, 1:-1], u[-1, 1:-1], u[1:-1, 0], u[1:-1, -1] = sides
    forcing = source * (0.25 * (1 / (n + 1)) ** 2)
    for iteration in range(1, iterations + 1):
        new = u.copy()
        across = u[1:-1, :-2] + u[1:-1, 2:]
        new[1:-1, 1:-1] = 0.25 * ((u[:-2, 1:-1] + u[2:, 1:-1]) + across) + forcing
        change, u = np.abs(new - u).max(), new
        checked = iteration == iterations or (every and iteration % every == 0)
        if checked and change <= tolerance > 0:
            break
    return np.ascontiguousarray(u[1:-1, 1:-1]), iteration, change
