"""Four ranks; rows, tiles and a sparse matrix wander through random strips. Prints what moved, and how often.

Argument: a seed. After every change each rank compares all it holds, halos included, with what it ought to be.
"""

import json
import random
import sys

import numpy as np
from mpi4py import MPI
from scipy.sparse import csr_array

from apples.malleable import (
    CsrMatrix,
    RowArray,
    RowRange,
    TileArray,
    part_messages,
    redistribute,
    total,
)
from apples.resources import apportion

WORLD = MPI.COMM_WORLD
RANK, RANKS = WORLD.Get_rank(), WORLD.Get_size()
TURNS = 12
dice = random.Random(int(sys.argv[1]))
ROWS, COLUMNS, HALO = dice.randint(RANKS, 60), dice.randint(1, 60), dice.randint(0, 3)
part_messages.PIECE_BYTES = dice.choice([1, 200, 1 << 20])  # the same on every rank
PAIR = np.dtype([("count", "i2"), ("weight", "f4")])


def matrix():
    """Return the whole matrix: rows of 0 to 9 entries."""
    numbers = np.random.default_rng(int(sys.argv[1]))
    counts = numbers.integers(0, min(10, COLUMNS + 1), ROWS)
    columns = [np.sort(numbers.choice(COLUMNS, n, replace=False)) for n in counts]
    indptr = np.concatenate(([0], np.cumsum(counts)))
    values = numbers.integers(-99, 99, indptr[-1]).astype(float)
    return csr_array((values, np.concatenate(columns), indptr), shape=(ROWS, COLUMNS))


WHOLE = matrix()


def cells(rows, columns, turn):
    """Return what is at these places of the tiles, halos around the whole included."""
    across = np.arange(columns.start - HALO, columns.stop + HALO)
    return 1000.0 * np.arange(rows.start - HALO, rows.stop + HALO)[:, None] + across + turn / 64


def fill_rows(rows, block):
    block["count"] = np.array(rows)[:, None]


def fill_tile(index, block):
    rows, columns = index
    block[...] = 1000.0 * np.array(rows)[:, None] + np.array(columns)


def layout(members, order):
    """Return a random strip for each rank of the merged communicator, and which member has which."""
    counts = iter(
        apportion(ROWS, [dice.choice([0.2, 1, 1, 3]) for _ in members], [1] * len(members))
    )
    strips, first = {}, 0
    for rank in members:
        count = next(counts)
        strips[rank] = RowRange(first, first + count)
        first += count
    return [strips.get(rank, RowRange(0, 0)) for rank in order]


def check(turn, rows, tiles, sparse, strip):
    expected = np.arange(strip.first - HALO, strip.stop + HALO)[:, None]
    assert rows.strip == strip
    assert (rows.local["count"] == expected).all()
    one = tiles.tile
    assert np.array_equal(
        tiles.local,
        cells(
            range(one.rows.first, one.rows.stop), range(one.columns.first, one.columns.stop), turn
        ),
    )
    mine, right = sparse.own, WHOLE[strip.first : strip.stop]
    assert mine.shape == right.shape
    for name in ("indptr", "indices"):
        assert np.array_equal(getattr(mine, name), getattr(right, name)), name
    assert np.array_equal(mine.data, right.data + turn)
    assert np.array_equal(
        mine @ np.ones(COLUMNS),
        csr_array((right.data + turn, right.indices, right.indptr), right.shape)
        @ np.ones(COLUMNS),
    )


def forget_others(tiles):
    """Lose what other ranks own of the halo."""
    owned = tiles.bytes(tiles.owned(tiles.tile))
    kept = owned.copy()
    tiles.local[...] = np.nan
    owned[...] = kept


def main():
    rows = RowArray("rows", (ROWS, 3), PAIR, HALO, fill_rows)
    tiles = TileArray("tiles", (ROWS, COLUMNS), halo=HALO, fill=fill_tile)
    sparse = CsrMatrix("sparse", (ROWS, COLUMNS), lambda rows: WHOLE[rows.start : rows.stop])
    arrays = [rows, tiles, *sparse.arrays]
    members = dice.sample(range(RANKS), dice.randint(1, RANKS))
    comm = WORLD.Split(0, members.index(RANK) if RANK in members else RANKS)
    order = members + [r for r in range(RANKS) if r not in members]
    old = layout(members, order)
    begun = WORLD.Split(0, order.index(RANK))
    for array in (rows, tiles):
        array.begin(array.parts(old), order.index(RANK))
        array.fill_halo(begun)
    sparse.begin(comm, old)
    moved = 0
    for turn in range(1, TURNS + 1):
        wanted = dice.sample(range(RANKS), dice.randint(1, RANKS))
        merged = WORLD.Split(0, order.index(RANK))
        new = layout(wanted, order)
        mine = order.index(RANK)
        moved += total(merged, redistribute(merged, arrays, old, new))
        comm = WORLD.Split(0 if RANK in wanted else 1, wanted.index(RANK) if RANK in wanted else 0)
        if RANK not in wanted:
            for array in arrays:
                array.arrive()
        if RANK in wanted:
            for array in arrays:
                array.adopt_layout(comm, {order.index(r): place for place, r in enumerate(wanted)})
            check(turn - 1, rows, tiles, sparse, new[mine])
            sparse.own.data[...] += 1.0
            tiles.local[...] += 1 / 64
            forget_others(tiles)
            tiles.exchange()
            tiles.exchange()
            check(turn, rows, tiles, sparse, new[mine])
        members = wanted
        order = wanted + [r for r in range(RANKS) if r not in wanted]
        old = in_order(order, wanted, new[mine])
    for array in arrays:
        array.release()
    if RANK == 0:
        print(json.dumps({"moved": moved, "shape": [ROWS, COLUMNS, HALO]}))


def in_order(order, wanted, strip):
    """Return the strips in the order of the next merged communicator."""
    every = dict(WORLD.allgather((RANK, (strip.first, strip.stop))))
    return [RowRange(*every[r]) if r in wanted else RowRange(0, 0) for r in order]


main()
