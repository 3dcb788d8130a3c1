"""Adds one to every point in every iteration until told to stop; each rank checks its rows at every change.

Arguments: rows, seconds between iterations, a file whose existence says stop.
"""

import os
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

from apples import malleable

ROWS, COLUMNS, PAUSE, STOP = int(sys.argv[1]), 50, float(sys.argv[2]), Path(sys.argv[3])


def fill(first, rows):
    rows[...] = np.arange(first - 1, first - 1 + len(rows))[:, None]


with malleable.Job() as job:
    u = job.array("u", (ROWS, COLUMNS), halo=1, fill=fill)
    state = job.state(iteration=0, stop=0.0)
    while not state.stop:
        if job.safepoint():
            expected = np.arange(job.strip.first - 1, job.strip.stop + 1)[:, None]
            if not (u.local == expected + state.iteration).all():
                raise SystemExit(f"{job.strip} is wrong at {state.iteration}")
        u.local[...] += 1.0
        time.sleep(PAUSE)
        state.iteration += 1
        state.stop = job.allreduce(float(job.rank == 0 and STOP.exists()), MPI.MAX)
    total, every = np.array([u.own.sum()]), np.empty(1)
    job.comm.Allreduce(total, every)
    if job.rank == 0:
        right = every[0] == COLUMNS * (ROWS * (ROWS - 1) / 2 + ROWS * state.iteration)
        hosts = ",".join(member.host for member in job.members)
        os.write(1, f"total {'right' if right else 'wrong'} on {hosts}\n".encode())
