"""Commits on three ranks, restores on two, with the newest commit whole, damaged, cut and missing."""

import json
import os
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from apples.malleable import (
    ChangePlan,
    CsrMatrix,
    Declared,
    HostRows,
    Replicated,
    RowArray,
    State,
    TileArray,
    checkpoint,
    commits,
    membership,
    rank_ranges,
)

FOLDER, ROWS = Path(sys.argv[1]), 31
world = MPI.COMM_WORLD


def declare(value, iteration):
    array = RowArray(
        "u",
        (ROWS, 7),
        halo=1,
        fill=lambda rows, block: np.copyto(block, expected(rows.start + 1, len(rows), value)),
    )
    tiles = TileArray(
        "t",
        (ROWS, 9),
        halo=2,
        fill=lambda index, block: np.copyto(
            block, expected_tile(*(numbers.start + 2 for numbers in index), block, value)
        ),
    )
    sparse = CsrMatrix("a", (ROWS, 9), lambda rows: entries(rows.start, len(rows), value))
    # What is constant is the same in all commits; a program that restores it has filled it with something else.
    fixed = CsrMatrix(
        "c", (ROWS, 9), lambda rows: entries(rows.start, len(rows), min(value, 0)), constant=True
    )
    table = [Replicated("table", np.full(5, value))]
    return Declared(
        arrays=[array, tiles, *sparse.arrays, *fixed.arrays],
        matrices=[sparse, fixed],
        replicated=table,
        state=State({"iteration": iteration}),
    )


def expected_tile(row, column, tile, value):
    rows, columns = tile.shape
    return (
        value * 1e4
        + 100.0 * np.arange(row, row + rows)[:, None]
        + np.arange(column, column + columns)
    )


def entries(first, rows, value):
    """Return rows with as many entries as their number leaves by five."""
    counts = np.arange(first, first + rows) % 5
    indices = np.concatenate([np.arange(count) * 2 for count in counts])
    return np.concatenate(([0], np.cumsum(counts))), indices, indices + value


def expected(first, count, value):
    return value * 100 + np.arange(first - 1, first - 1 + count, dtype=float)[:, None] * np.ones(7)


def same(matrix, three):
    found = matrix.indptr, matrix.indices, matrix.data
    return all(np.array_equal(one, other) for one, other in zip(found, three, strict=True))


def strips(ranks):
    return [rows for _, rows in rank_ranges([HostRows("h", 0, ROWS)], {"h": ranks})]


def restored():
    """Restore on the first two ranks; return what was found, None on the third."""
    comm = world.Split(0 if world.rank < 2 else MPI.UNDEFINED, world.rank)
    found = None
    if comm != MPI.COMM_NULL:
        declared = declare(-1.0, -1)
        strip = strips(2)[comm.rank]
        array, tiles, *_ = declared.arrays
        plan = ChangePlan(1, (), (), {}, "commit", commits=str(FOLDER))
        number, _ = checkpoint.restore_commit(comm, plan, declared, strips(2))
        right = number == 0 or (
            np.array_equal(array.local, expected(strip.first, len(strip) + 2, float(number)))
            and np.array_equal(
                tiles.local,
                expected_tile(
                    tiles.tile.rows.first, tiles.tile.columns.first, tiles.local, float(number)
                ),
            )
            and same(declared.matrices[0].own, entries(strip.first, len(strip), float(number)))
            and same(declared.matrices[1].own, entries(strip.first, len(strip), 0.0))
            and bool((declared.replicated[0].array == number).all())
        )
        found = [number, bool(comm.allreduce(right, MPI.LAND)), declared.state.iteration]
        comm.Free()
    world.Barrier()
    return found


def step(name, damage=lambda: None):
    if world.rank == 0:
        damage()
    world.Barrier()
    found = restored()
    if world.rank == 0:
        os.write(1, json.dumps({"step": name, "found": found}).encode() + b"\n")


policy = checkpoint.CheckpointPolicy(None)
for number in (1, 2, 3, 4):
    declared = declare(float(number), 10 * number)
    membership.begin_all(world, declared, strips(3), ())
    policy.number = number
    if fault := policy.commit_on_disk(world, FOLDER, declared, strips(3)):
        raise SystemExit(fault)
    world.Barrier()
    if number == 3:
        step("whole")


def files():
    return {path.name for path in FOLDER.iterdir()}


if world.rank == 0:
    kept = [("constant", 1), ("constant", 2), ("commit", 3), ("commit", 4)]
    ends = ("0.data", "1.data", "2.data", "json")
    wanted = {f"{kind}-{n:08d}.{end}" for kind, n in kept for end in ends}
    os.write(1, json.dumps({"step": "two copies", "found": files() == wanted}).encode() + b"\n")


def flip(number, kind="commit"):
    path = commits.data_path(FOLDER, number, 1, kind)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut():
    commits.manifest_path(FOLDER, 4).write_text(commits.manifest_path(FOLDER, 4).read_text()[:-9])


step("newest")
step("the constants it refers to are damaged", lambda: flip(2, "constant"))
step("and mended", lambda: flip(2, "constant"))
step("a bit of the newest is wrong", lambda: flip(4))
step("and mended too", lambda: flip(4))
step("an image is cut", lambda: os.truncate(commits.data_path(FOLDER, 4, 0), 100))
step("its manifest is cut", cut)
step("its data is missing", lambda: commits.data_path(FOLDER, 4, 2).unlink())
step("all constants are missing", lambda: [path.unlink() for path in FOLDER.glob("constant-*")])
step("both are missing", lambda: [path.unlink() for path in FOLDER.glob("commit-*")])
fault = checkpoint.write_commit(world, FOLDER / "nowhere", 5, declared, strips(3))
if world.rank == 0:
    os.write(1, json.dumps({"step": "nowhere to write", "found": bool(fault)}).encode() + b"\n")
