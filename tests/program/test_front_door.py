"""`Task` is the one class of a program: typed declarations, reductions, first contents, rows before the loop."""

import inspect
import json
import re
import subprocess
import sys

import pytest

from apples.launch import hydra
from apples.malleable import HostShare, MalleableJob, ResizeDone, rehearse
from apples.program import Task

DELEGATED = (
    "array", "tiles", "csr", "replicated", "blocks", "may_lose", "commit", "request",
)  # fmt: skip


@pytest.fixture
def run(tmp_path):
    """Run a program by hand on some ranks; return its exit code, its JSON lines, and all its output."""

    def run(text, *arguments, ranks=1):
        program = tmp_path / "program.py"
        program.write_text(text)
        launcher = [hydra.mpiexec(), *hydra.OPTIONS, "-n", str(ranks)] if ranks > 1 else []
        done = subprocess.run(
            [*launcher, sys.executable, str(program), *arguments],
            env=hydra.environment({**hydra.LOOPBACK, **hydra.ONE_THREAD}),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return done.returncode, lines, done.stdout + done.stderr

    return run


def digest(said):
    return re.search(r"sha256 ([0-9a-f]{16})$", said, re.MULTILINE)[1]


# ------------------------------------------------------------------------ the class


def test_unknown_attribute_of_task_is_an_error():
    with pytest.raises(AttributeError, match="arrays"):
        Task().arrays  # noqa: B018 - the access is what is tested


@pytest.mark.parametrize("name", DELEGATED)
def test_declarations_have_the_parameters_of_the_runtime(name):
    ours, its = (inspect.signature(getattr(one, name)) for one in (Task, MalleableJob))
    assert [(p.name, p.kind) for p in ours.parameters.values()] == [
        (p.name, p.kind) for p in its.parameters.values()
    ]
    assert inspect.getdoc(getattr(Task, name))


TYPED = """
from typing import Any, assert_type
import numpy as np
from numpy.typing import NDArray
from apples.malleable import Blocks, CsrMatrix, RowArray, State, TileArray
from apples.program import Task

def first(rows: range, block: NDArray[Any]) -> None:
    block[...] = rows.start

def tile(index: tuple[range, range], block: NDArray[Any]) -> None:
    block[...] = index[1].start

with Task() as task:
    assert_type(task.strip, range)
    assert_type(task.array("u", (3, 3), halo=1, fill=first), RowArray)
    assert_type(task.tiles("t", (3, 3), fill=tile), TileArray)
    assert_type(task.csr("a", (3, 3), lambda rows: None), CsrMatrix)
    assert_type(task.state(x=1), State)
    blocks = task.blocks("b", lambda n: [n], lambda b: {}, lambda a: [0], count=3)
    assert_type(blocks, Blocks[list[int]])
    assert_type(task.allreduce(1.5), float)
    assert_type(task.allreduce(2, "sum"), int)
    assert_type(task.allreduce(np.zeros(3, np.float32), "min"), NDArray[np.float32])
    task.array("v", (3, 3), fill=tile)
    task.aray
"""


@pytest.mark.more
def test_mypy_knows_the_types_of_a_program(tmp_path):
    program = tmp_path / "typed.py"
    program.write_text(TYPED)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [
        len(TYPED[: TYPED.index(text)].splitlines()) + 1
        for text in ('task.array("v"', "task.aray")
    ]
    found = re.findall(r"typed\.py:(\d+): error: .*\[(.*)\]", done.stdout)
    assert found == [(str(lines[0] - 1), "arg-type"), (str(lines[1] - 1), "attr-defined")], (
        done.stdout
    )


# -------------------------------------------------------------------- the reductions

REDUCES = """
import json
import numpy as np
from apples.program import Task, TaskError

with Task(rows=3, iterations=1) as task:
    DECLARES
    for _ in task.iterations():
        r = task.rank
        counts = np.array([[r, 10 - r]], np.int32)
        found = [
            task.allreduce(r), task.allreduce(float(r), "min"), task.allreduce(np.float32(r), "sum"),
            task.allreduce(2**53 + r, "sum"), task.allreduce(r == 1),
        ]
        arrays = [task.allreduce(counts, name) for name in ("max", "min", "sum")]
        slices = task.allreduce(np.arange(6.0)[::2] * r, "sum")
        whole = task.allreduce(np.array(1j * r), "sum")
        assert counts.tolist() == [[r, 10 - r]], "what is given stays"
        refused = []
        for value, name in ((1.0, "mean"), ("1", "sum"), (np.array([True]), "max"), (counts * 1j, "max")):
            try:
                task.allreduce(value, name)
            except TaskError as error:
                refused.append(error.code)
    if task.rank == 0:
        print(json.dumps({
            "numbers": found, "types": [type(one).__name__ for one in found],
            "arrays": [one.tolist() for one in arrays], "dtype": str(arrays[0].dtype),
            "slices": slices.tolist(), "whole": [whole.shape == (), whole.imag.tolist()], "refused": refused,
        }))
    task.result(np.zeros((len(task.strip), 1)))
"""


@pytest.mark.mpi
@pytest.mark.parametrize("declares", ["pass", "u = task.array('u', (3, 1))"])
def test_reductions_mean_the_same_with_and_without_declared_data(run, declares):
    code, found, said = run(REDUCES.replace("DECLARES", declares), ranks=3)
    assert code == 0, said
    assert found[0]["numbers"] == [2, 0.0, 3.0, 3 * 2**53 + 3, 1]
    assert found[0]["types"] == ["int", "float", "float", "int", "int"]
    assert found[0]["arrays"] == [[[2, 10]], [[0, 8]], [[3, 27]]]
    assert found[0]["dtype"] == "int32"
    assert found[0]["slices"] == [0.0, 6.0, 12.0]
    assert found[0]["whole"] == [True, 3.0]
    assert found[0]["refused"] == ["operation-unknown", *["type-unsupported"] * 3]


@pytest.mark.mpi
def test_reduction_before_the_loop_is_refused_if_data_is_declared(run):
    program = (
        "from apples.program import Task\n"
        "with Task(rows=3, iterations=1) as task:\n"
        "    u = task.array('u', (3, 1))\n"
        "    task.allreduce(1.0)\n"
    )
    code, _, said = run(program)
    assert code == 2
    assert "[safepoint-missing]" in said


# ---------------------------------------------------------------- the first contents

FILLS = """
import numpy as np
from apples.program import Task

N, HALO = 13, 2
calls = []

def numbers(rows):
    return np.arange(rows.start, rows.stop, dtype=float)

def rows_alone(rows, block):
    calls.append(rows)
    assert len(rows) == len(block)
    block[...] = numbers(rows)[:, None]

def both(index, block):
    rows, columns = index
    calls.append(rows)
    assert block.shape == (len(rows), len(columns))
    block[...] = 100 * numbers(rows)[:, None] + numbers(columns)

def entries(rows):
    calls.append(rows)
    return np.arange(len(rows) + 1), np.array(rows), numbers(rows)

with Task(rows=N, iterations=1) as task:
    u = task.array("u", (N, 3), halo=HALO, fill=rows_alone)
    t = task.tiles("t", (N, N), halo=HALO, fill=both)
    a = task.csr("a", (N, N), fill=entries)
    for _ in task.iterations():
        strip, tile, here = task.strip, t.tile, slice(HALO, -HALO)
        around = np.arange(strip.start - HALO, strip.stop + HALO)
        down = np.arange(tile.rows.first - HALO, tile.rows.stop + HALO)
        across = np.arange(tile.columns.first - HALO, tile.columns.stop + HALO)
        assert (u.local == around[:, None]).all(), u.local
        assert (t.local == 100 * down[:, None] + across).all(), t.local
        assert (a.own.data == around[here]).all()
        first, last = strip.start == 0, strip.stop == N
        assert calls[0] == range(strip.start - HALO * first, strip.stop + HALO * last)
        assert calls[2] == strip
    task.result(t)
"""


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 3, 6])
def test_fill_gets_the_numbers_of_the_rows_that_it_writes(run, ranks):
    code, _, said = run(FILLS, ranks=ranks)
    assert code == 0, said


@pytest.mark.mpi
def test_result_of_tiles_does_not_depend_on_the_ranks(run):
    said = [run(FILLS, ranks=ranks)[2] for ranks in (1, 2, 5)]
    assert len({digest(one) for one in said}) == 1, said


# ------------------------------------------------------------- the rows before the loop

EARLY = """
import sys
import numpy as np
from apples.program import Task

with Task(defaults={"grid": 30, "iterations": 200}) as task:
    n = task.parameters["grid"]
    u = task.array("u", (n, 2))
    numbers = np.arange(task.strip.start, task.strip.stop)[:, None]
    for step in task.iterations():
        if task.changed:
            assert step or task.layout[task.rank][1] == task.strip
            numbers = np.arange(task.strip.start, task.strip.stop)[:, None]
        u.own[...] += numbers * (step % 3)
    task.result(u)
"""


@pytest.mark.mpi
def test_rows_are_known_before_the_loop_by_hand(run):
    said = [run(EARLY, ranks=ranks)[2] for ranks in (1, 3)]
    assert digest(said[0]) == digest(said[1])


@pytest.mark.more
@pytest.mark.mpi
def test_rows_are_known_before_the_loop_on_hosts_that_change(run, tmp_path):
    """A run that ends before its first resize is repeated with more iterations."""
    maps = [[HostShare("ada"), HostShare("bob")], [HostShare("bob", weight=3), HostShare("eve")]]
    for iterations in (20_000, 80_000, 320_000, 1_280_000):
        setting = ["--set", f"iterations={iterations}"]
        alone = digest(run(EARLY, *setting)[2])
        argv = [sys.executable, str(tmp_path / "program.py"), *setting]
        told = rehearse(argv, {"ada": 1, "bob": 2, "eve": 1}, [HostShare("ada")], maps)
        assert told.ended.state == "finished", told.ended
        assert digest(told.lines[-1]) == alone
        if any(isinstance(notice, ResizeDone) for notice in told.notices):
            return
    pytest.fail("no run was resized")


@pytest.mark.mpi
@pytest.mark.parametrize("before", ["pass", "task.array('first', (30, 2))"])
def test_declaration_after_the_rows_are_read_is_refused_in_every_mode(run, before):
    late = EARLY.replace("    u = task", f"    {before}\n    task.strip\n    u = task")
    code, _, said = run(late)
    assert code != 0
    assert "declare before" in said
