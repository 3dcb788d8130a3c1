"""Three ranks; blocks wander through random processor maps and balances. Prints what rank 0 saw."""

import json
import random

import numpy as np
from mpi4py import MPI

from apples.malleable import STRATEGIES, Blocks, Processor

WORLD = MPI.COMM_WORLD
RANK = WORLD.Get_rank()
COUNT = 23
RANKS = 3
TURNS = 8


class Thing:
    """A block: its number, how often it was touched, and as many numbers as it likes."""

    def __init__(self, number, touched=0):
        self.number, self.touched = number, touched
        self.values = np.arange(number * 7.0)


def pack(thing):
    return {"head": np.array([thing.number, thing.touched]), "values": thing.values}


def unpack(arrays):
    number, touched = map(int, arrays["head"])
    thing = Thing(number, touched)
    assert np.array_equal(thing.values, arrays["values"])
    return thing


def any_of_ours(measured):
    """Each time another strategy; only rank 0 is asked."""
    any_of_ours.turn = getattr(any_of_ours, "turn", 0) + 1
    return list(STRATEGIES.values())[any_of_ours.turn % len(STRATEGIES)](measured)


def main():
    dice = random.Random(5)
    things = Blocks("things", Thing, pack, unpack, count=COUNT, strategy=any_of_ours)
    members = [0, 1]
    comm = WORLD.Split(0 if RANK in members else 1, RANK)
    if RANK in members:
        things.begin(comm, [Processor(f"h{r}") for r in members])
    moves = 0
    for turn in range(1, TURNS + 1):
        if RANK in members:
            for number, thing in things.items():
                with things.timed(number):
                    thing.touched += 1
            moves += things.balance() if turn % 3 == 0 else 0
        wanted = dice.sample(range(RANKS), dice.randint(1, RANKS))
        order = members + [r for r in range(RANKS) if r not in members]
        merged = WORLD.Split(0, order.index(RANK))
        speeds = [dice.choice([0.5, 1.0, 3.0]) for _ in order]
        processors = [
            Processor(f"h{r}", s, enabled=r in wanted) for r, s in zip(order, speeds, strict=True)
        ]
        things.redistribute(merged, processors)
        moves += things.moved
        ranks = {order.index(r): place for place, r in enumerate(wanted)}
        comm = WORLD.Split(0 if RANK in wanted else 1, wanted.index(RANK) if RANK in wanted else 0)
        if RANK in wanted:
            things.adopt_layout(comm, ranks)
            assert [n for n, _ in things.items()] == list(things.table.of(comm.Get_rank()))
            assert all(t.number == n and t.touched == turn for n, t in things.items())
            assert [p.host for p in things.processors] == [f"h{r}" for r in wanted]
        else:
            assert things.items() == []
        members = wanted
        everybody = WORLD.allgather([n for n, _ in things.items()])
        assert sorted(n for some in everybody for n in some) == list(range(COUNT))
    stored = WORLD.allgather({n: pack().tobytes() for n, pack in things.packers().items()})
    stored = {n: np.frombuffer(b, np.uint8) for held in stored for n, b in held.items()}
    document = WORLD.bcast(things.document(), members[0])
    back = Blocks("things", Thing, pack, unpack, count=COUNT, strategy=any_of_ours)
    back.expect(WORLD, [Processor("h")] * RANKS)
    back.restore(document, {n: block for n, block in stored.items() if n % RANKS == RANK})
    assert all(t.number == n and t.touched == TURNS for n, t in back.items())
    held = WORLD.allgather(len(back.items()))
    if RANK == 0:
        print(json.dumps({"moves": moves, "held": held}))


main()
