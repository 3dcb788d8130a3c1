"""The blocks of a program on real ranks: found where the table says, whole after every move."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from mpi4py import MPI

from apples.errors import ApplicationError, UsageError
from apples.malleable import Blocks, Processor, packed

HERE = Path(__file__).parent
DEADLINE = 120


def run(*program, ranks):
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [str(mpiexec), "-n", str(ranks), sys.executable, "-m", "mpi4py", *map(str, program)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE, check=False, cwd=HERE.parents[1]
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.mpi
def test_blocks_stay_whole_through_random_processor_maps_and_all_strategies():
    seen = json.loads(run(HERE / "blocks_mpi/wander.py", ranks=3))
    assert seen["moves"] > 0
    assert sum(seen["held"]) == 23


def blocks(**options):
    given = {"count": 4, **options}
    return Blocks("cells", float, lambda b: {"v": b}, lambda a: float(a["v"]), **given)


def test_one_rank_has_them_all_and_balances_nothing():
    cells = blocks()
    cells.begin(MPI.COMM_SELF, [Processor("here")])
    with cells.timed(2):
        cells[2] += 1
    assert (cells.items(), cells.balance()) == ([(0, 0.0), (1, 1.0), (2, 3.0), (3, 3.0)], 0)


def test_a_decomposition_decides_how_many_there_are():
    cells = blocks(count=0, decomposition="redundant:3")
    cells.begin(MPI.COMM_SELF, [Processor("here")])
    assert (len(cells), cells.shares) == (3, (1 / 3, 1 / 3, 1 / 3))


@pytest.mark.parametrize(
    ("options", "code", "fields"),
    [
        ({"count": 0}, "option-conflict", {"options": ["count", "decomposition"]}),
        ({"decomposition": "tight"}, "option-conflict", {"name": "cells"}),
        ({"count": 0, "decomposition": "loose"}, "value-invalid", {"value": "loose"}),
        ({"strategy": "gready"}, "strategy-unknown", {"value": "gready"}),
        ({"count": -1}, "value-range", {"field": "blocks", "value": -1}),
    ],
)
def test_what_cannot_be_meant_is_refused_where_it_is_declared(options, code, fields):
    with pytest.raises(UsageError) as refused:
        blocks(**options)
    assert refused.value.code == code
    assert refused.value.fields.items() >= fields.items()


def wild(measured):
    return [7] * len(measured.work)


def broken(measured):
    return len(measured.work) / 0


@pytest.mark.parametrize(
    ("strategy", "code", "fields"),
    [
        (wild, "owners-invalid", {"block": 0, "value": 7}),
        (broken, "user-code-failed", {"kind": "ZeroDivisionError", "strategy": "broken"}),
    ],
)
def test_a_strategy_of_ones_own_that_fails_says_so(strategy, code, fields):
    cells = blocks(strategy=strategy)
    cells.begin(MPI.COMM_SELF, [Processor("here")])
    with pytest.raises(UsageError) as failed:
        cells.balance()
    assert failed.value.code == code
    assert failed.value.fields.items() >= fields.items()


def test_a_strategy_of_ones_own_is_named_like_any_other_code():
    assert (
        blocks(strategy="apples.malleable.balancers.strategies:refine")
        .summary()[2]
        .endswith("strategies:refine")
    )


def test_a_damaged_block_of_a_commit_is_refused_with_its_number():
    cells = blocks()
    cells.begin(MPI.COMM_SELF, [Processor("here")])
    whole = packed({"v": 1.0})
    with pytest.raises(ApplicationError) as damaged:
        cells.restore(cells.document(), dict.fromkeys(range(4), whole[:20]))
    assert (damaged.value.code, damaged.value.fields["block"]) == ("block-damaged", "cells 0")
