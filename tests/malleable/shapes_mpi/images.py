"""Four ranks; images of everything a job can declare, of random strips, are restored into other random strips.

Argument: a seed. Each rank compares all it holds, halos included, with what it ought to be. Prints the turns.
"""

import json
import random
import sys
from itertools import pairwise

import numpy as np
from mpi4py import MPI

from apples.malleable import (
    Blocks,
    CsrMatrix,
    Declared,
    Image,
    Processor,
    Replicated,
    RowArray,
    RowRange,
    State,
    TileArray,
    membership,
    rank_image,
)
from apples.resources import apportion

WORLD = MPI.COMM_WORLD
RANK, RANKS, TURNS = WORLD.Get_rank(), WORLD.Get_size(), 10
dice = random.Random(int(sys.argv[1]))
ROWS, COLUMNS, HALO = dice.randint(RANKS, 40), dice.randint(1, 40), dice.randint(0, 3)
BLOCKS = dice.randint(1, 9)


def fill_rows(rows, block):
    block[...] = np.array(rows)[:, None]


def fill_tile(index, block):
    rows, columns = index
    block[...] = 1000.0 * np.array(rows)[:, None] + np.array(columns)


def entries(rows):
    counts = np.array(rows) % 4
    columns = np.concatenate([np.arange(count) % COLUMNS for count in counts])
    return np.concatenate(([0], np.cumsum(counts))), columns, columns + 0.5


def declare(value, iteration):
    sparse = CsrMatrix("sparse", (ROWS, COLUMNS), entries)
    blocks = Blocks(
        "blocks",
        lambda number: np.full(number * 5, number + value),
        lambda block: {"block": block},
        lambda arrays: arrays["block"],
        count=BLOCKS,
    )
    return Declared(
        arrays=[
            RowArray("rows", (ROWS, 3), np.int32, HALO, fill_rows),
            TileArray("tiles", (ROWS, COLUMNS), halo=HALO, fill=fill_tile),
            *sparse.arrays,
        ],
        matrices=[sparse],
        replicated=[Replicated("table", np.full(5, value))],
        blocks=[blocks],
        state=State({"iteration": iteration}),
    )


def layout(ranks):
    counts = apportion(ROWS, [dice.choice([0.2, 1, 3]) for _ in range(ranks)], [1] * ranks)
    ends = np.cumsum([0, *counts])
    return [RowRange(int(first), int(stop)) for first, stop in pairwise(ends)]


def check(declared, strip, value):
    rows, tiles, *_ = declared.arrays
    assert (rows.local == np.arange(strip.first - HALO, strip.stop + HALO)[:, None]).all()
    tile = tiles.tile
    down = np.arange(tile.rows.first - HALO, tile.rows.stop + HALO)
    across = np.arange(tile.columns.first - HALO, tile.columns.stop + HALO)
    assert np.array_equal(tiles.local, 1000.0 * down[:, None] + across)
    three = entries(range(strip.first, strip.stop))
    mine = declared.matrices[0].own
    for found, right in zip((mine.indptr, mine.indices, mine.data), three, strict=True):
        assert np.array_equal(found, right)
    assert (declared.replicated[0].array == value).all()
    assert declared.state.iteration == 7
    blocks = declared.blocks[0]
    assert [number for number, _ in blocks.items()] == list(blocks.table.of(blocks.comm.rank))
    for number, block in blocks.items():
        assert np.array_equal(block, np.full(number * 5, number + value))


def turn():
    before, after = (layout(dice.randint(1, RANKS)) for _ in range(2))
    shared, stay = dice.random() < 0.4, dice.random() < 0.4
    senders = [dice.randrange(len(after)) for _ in before]
    old = WORLD.Split(0 if len(before) > RANK else MPI.UNDEFINED, RANK)
    mine = b""
    if old != MPI.COMM_NULL:
        declared = declare(2.0, 7)
        membership.begin_all(old, declared, before, [Processor("h")] * len(before))
        mine = rank_image.snapshot(declared, before, RANK)().join().tobytes()
        for array in declared.arrays:
            array.release()
    images = [np.frombuffer(image, np.uint8) for image in WORLD.allgather(mine)]
    new = WORLD.Split(0 if len(after) > RANK else MPI.UNDEFINED, RANK)
    if new != MPI.COMM_NULL:

        def image(number):
            assert shared or senders[number] == RANK
            return Image.read(images[number])

        declared = declare(-1.0, -1)
        declared.blocks[0].expect(new, [Processor("h")] * len(after))
        rank_image.restore(new, declared, after, image, before, senders, shared=shared, stay=stay)
        check(declared, after[RANK], 2.0)
        if stay:
            read = [
                Image.read(one) for one, to in zip(images, senders, strict=False) if to == RANK
            ]
            numbers = [n for one in read for n in one.header["blocks"][0]["numbers"]]
            assert sorted(numbers) == [number for number, _ in declared.blocks[0].items()]


for _ in range(TURNS):
    turn()
WORLD.Barrier()
if RANK == 0:
    print(json.dumps({"turns": TURNS}))
