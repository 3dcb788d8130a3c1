"""Jacobi on tiles and products with a sparse matrix until told to stop; then one rank computes both again.

Arguments: rows, seconds between iterations, a file whose existence says stop.
"""

import os
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI
from scipy.sparse import coo_array

from apples import malleable

ROWS, PAUSE, STOP = int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])
COLUMNS = ROWS + 7


def first_tile(index, block):
    rows, columns = map(np.array, index)
    block[...] = np.sin((1 + rows[:, None]) * 3.0 + (1 + columns) * 5.0)


def matrix_rows(numbers):
    """Return rows of a matrix with none to many entries in a row, which is multiplied by 1.25 every 16 steps."""
    first, rows = numbers.start, len(numbers)
    source = np.arange(3 * ROWS) % ROWS
    target = (source * source + np.arange(3 * ROWS) // ROWS) % ROWS
    mine = (target >= first) & (target < first + rows)
    weights = 1 / (1.0 + source)
    entries = (weights[mine], (target[mine] - first, source[mine]))
    return coo_array(entries, shape=(rows, ROWS)).tocsr()


def swept(tile):
    return 0.25 * ((tile[:-2, 1:-1] + tile[2:, 1:-1]) + (tile[1:-1, :-2] + tile[1:-1, 2:]))


def alone(iterations):
    """Return tile and vector as one rank has them after so many iterations."""
    tile, matrix, vector = (
        np.empty((ROWS + 2, COLUMNS + 2)),
        matrix_rows(range(ROWS)),
        np.ones(ROWS),
    )
    first_tile((range(-1, ROWS + 1), range(-1, COLUMNS + 1)), tile)
    for step in range(iterations):
        tile[1:-1, 1:-1] = swept(tile)
        vector = matrix @ vector + 0.5
        if step % 16 == 0:
            matrix.data *= 1.0625 if step % 32 else 0.9375
    return tile[1:-1, 1:-1], vector, matrix.data.sum()


def ones(_, rows):
    rows[...] = 1.0


with malleable.Job() as job:
    tiles = job.tiles("tiles", (ROWS, COLUMNS), halo=1, fill=first_tile)
    sparse = job.csr("sparse", (ROWS, ROWS), fill=matrix_rows)
    vector = job.array("vector", (ROWS,), fill=ones)
    state = job.state(iteration=0, stop=0.0)
    while not state.stop:
        if job.safepoint():
            matrix, whole = sparse.own, np.empty(ROWS)
            counts = [len(strip) for _, strip in job.layout]
        tiles.exchange()
        tiles.own[...] = swept(tiles.local)
        job.comm.Allgatherv(vector.own, [whole, counts])
        vector.own[...] = matrix @ whole + 0.5
        if state.iteration % 16 == 0:
            matrix.data *= 1.0625 if state.iteration % 32 else 0.9375
        time.sleep(PAUSE)
        state.iteration += 1
        state.stop = job.allreduce(float(job.rank == 0 and STOP.exists()), MPI.MAX)
    pieces = job.comm.gather((tiles.tile, tiles.own.copy(), vector.own.copy(), matrix.data.copy()))
    if job.rank == 0:
        grid = np.empty((ROWS, COLUMNS))
        for tile, own, _, _ in pieces:
            grid[tile.slices] = own
        right = alone(state.iteration)
        found = (
            grid,
            np.concatenate([p[2] for p in pieces]),
            np.concatenate([p[3] for p in pieces]).sum(),
        )
        same = all(np.array_equal(one, other) for one, other in zip(found, right, strict=True))
        hosts = ",".join(member.host for member in job.members)
        os.write(1, f"total {'right' if same else 'wrong'} on {hosts}\n".encode())
