"""Short-range molecular dynamics in a periodic box, its cells migratable blocks of a malleable job.

Started by an agent with a task (docs/reference/protocol.md), or alone:
``mpiexec -n 2 python solver.py cells=8 steps=100``.
"""

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from box import Box, FlightError
from calibrate import calibrate
from cell import Cell
from dynamics import Dynamics
from events import emit, emit_error, emit_ready
from mpi4py import MPI
from population import first_cell
from reports import Reports
from task import Task, TaskError, alone, read_task

from apples import malleable


def main(arguments: Sequence[str]) -> int:
    """Do the task; say what is wrong with it as an event."""
    try:
        task = load_task(arguments)
        if task.mode == "calibrate":
            calibrate(task)
        else:
            run(task)
    except (TaskError, FlightError, OSError) as error:
        full = isinstance(error, OSError) and error.errno in (
            errno.ENOSPC,
            errno.EDQUOT,
            errno.EIO,
        )
        code = "" if isinstance(error, OSError) else error.code
        emit_error(str(error), MPI.COMM_WORLD.Get_rank(), code, resources=full)
        return 1
    return 0


def load_task(arguments: Sequence[str]) -> Task:
    """Return the agent's task, or that of the command line where there is no agent."""
    path = os.environ.get("APPLES_TASK")
    return read_task(Path(path).read_bytes()) if path else alone(arguments)


def run(task: Task) -> None:
    """Advance the particles, through whatever happens to the hosts. Collective."""
    parameters = task.parameters
    box = Box(parameters.cells, parameters.cell_side)
    job = malleable.Job()
    cells = job.blocks(
        "cells",
        lambda number: first_cell(parameters, box, number),
        Cell.pack,
        Cell.unpack,
        count=parameters.cells**2,
        strategy=parameters.strategy,
        partners=lambda number: dict.fromkeys(box.neighbours(number), 1.0),
    )
    state = job.state(
        iteration=0,
        ready=False,
        begin=0.0,
        due=1,
        told=0,
        told_seconds=0.0,
        energy=0.0,
        particles=0,
    )
    job.safepoint()
    dynamics = Dynamics(cells, box)
    reports = Reports(task, job, dynamics, state)
    if not state.ready:
        dynamics.advance(0.0)
        if job.rank == 0:
            emit_ready(job.size)
        cells.balance()
        reports.first()
    while state.iteration < parameters.steps:
        dynamics.advance(parameters.time_step)
        state.iteration += 1
        if parameters.balance_every and state.iteration % parameters.balance_every == 0:
            cells.balance()
        if state.iteration == state.due:
            reports.progress()
        job.safepoint()
    reports.result()
    job.finish()
    if job.rank == 0:
        emit("done")


if __name__ == "__main__":
    code = 1
    try:
        code = main(sys.argv[1:])
    except Exception as error:  # noqa: BLE001 - whatever it is, all ranks must end
        named = getattr(error, "code", "") if hasattr(error, "fields") else ""  # of apples
        emit_error(traceback.format_exc().splitlines()[-1], MPI.COMM_WORLD.Get_rank(), named)
        traceback.print_exc()
    if code:
        MPI.COMM_WORLD.Abort(code)
