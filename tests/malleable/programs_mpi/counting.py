"""Adds one to every point in every iteration until told to stop; each rank checks its rows at every change.

Arguments: rows, seconds between iterations, a file whose existence says stop; ``constant`` where what is added is
an array of the job that nothing writes, of another number for each row, ``prefetch`` where it is so wide that it
travels before changes.
"""

import os
import sys
import threading
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

from apples import malleable

ROWS, COLUMNS, PAUSE, STOP = int(sys.argv[1]), 50, float(sys.argv[2]), Path(sys.argv[3])
CONSTANT = bool(sys.argv[4:])
WIDE = 20_000 if "prefetch" in sys.argv else COLUMNS


def fill(rows, block):
    block[...] = np.array(rows)[:, None]


def added(rows):
    """Return what is added to these rows."""
    return 1.0 + np.asarray(rows) % 7 * CONSTANT


def fill_added(rows, block):
    block[...] = added(rows)[:, None]


with malleable.Job() as job:
    u = job.array("u", (ROWS, COLUMNS), halo=1, fill=fill)
    if CONSTANT:
        step = job.array("step", (ROWS, WIDE), halo=1, fill=fill_added, constant=True)
    state = job.state(iteration=0, stop=0.0)
    while not state.stop:
        if job.safepoint():
            expected = np.arange(job.strip.first - 1, job.strip.stop + 1)[:, None]
            if not (u.local == expected + state.iteration * added(expected)).all():
                raise SystemExit(f"{job.strip} is wrong at {state.iteration}")
            if CONSTANT and not (step.local == added(expected)).all():
                raise SystemExit(f"what is constant is wrong on {job.strip} at {state.iteration}")
        u.local[...] += step.local[:, :COLUMNS] if CONSTANT else 1.0
        time.sleep(PAUSE)
        state.iteration += 1
        state.stop = job.allreduce(float(job.rank == 0 and STOP.exists()), MPI.MAX)
    total, every = np.array([u.own.sum()]), np.empty(1)
    job.comm.Allreduce(total, every)
    if job.rank == 0:
        every_row = np.arange(ROWS)
        right = every[0] == COLUMNS * (every_row + state.iteration * added(every_row)).sum()
        hosts = ",".join(member.host for member in job.members)
        if threading.active_count() > 1 and not job.prefetching:
            raise SystemExit(f"threads are left: {threading.enumerate()}")
        os.write(1, f"total {'right' if right else 'wrong'} on {hosts}\n".encode())
