"""Rows, tiles and sparse matrices on real ranks: whole after every change, and the bits of a run on one rank."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from apples.launch import hydra
from apples.malleable import HostShare, ResizeDone, rehearse

HERE = Path(__file__).parent
SHAPES = (sys.executable, str(HERE / "programs_mpi" / "shapes.py"))
SLOTS = {"ada": 1, "bob": 2, "eve": 1, "far": 1}

pytestmark = pytest.mark.mpi


def on_four_ranks(name, seed):
    """Run a program of `shapes_mpi`; return the document that it prints."""
    program = [sys.executable, "-m", "mpi4py", str(HERE / "shapes_mpi" / name), str(seed)]
    argv = [hydra.mpiexec(), *hydra.OPTIONS, "-n", "4", *program]
    environment = hydra.environment({**hydra.LOOPBACK, **hydra.ONE_THREAD})
    run = subprocess.run(
        argv, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout.splitlines()[0])  # the lines after it are the launcher's


SEEDS = [2, *(pytest.param(seed, marks=pytest.mark.more) for seed in range(3, 9))]


@pytest.mark.parametrize("seed", SEEDS)
def test_all_shapes_stay_whole_through_random_strips(seed):
    assert on_four_ranks("wander.py", seed)["moved"] > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_images_of_all_declared_data_restore_it_into_other_strips(seed):
    assert on_four_ranks("images.py", seed)["turns"] == 10


def maps(draw, count, stop):
    """Yield random maps, then stop the program."""
    for _ in range(count):
        hosts = draw.sample(list(SLOTS), draw.randint(1, len(SLOTS)))
        yield [HostShare(host, draw.choice([0.25, 1.0, 2.0, 3.5])) for host in hosts]
    stop.touch()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "count"), [(1, 3), pytest.param(2, 25, marks=pytest.mark.more)], ids=["some", "many"]
)
def test_tiles_and_a_sparse_matrix_keep_their_bits_through_resizes(tmp_path, seed, count):
    program = (*SHAPES, "60", "0.001", str(tmp_path / "stop"))
    wanted = maps(random.Random(seed), count, tmp_path / "stop")
    run = rehearse(program, SLOTS, [HostShare("ada"), HostShare("bob")], wanted)
    assert run.ended.state == "finished", run.ended
    others = [notice for notice in run.notices[:-1] if not isinstance(notice, ResizeDone)]
    assert (len(run.notices), others) == (count + 1, [])
    assert [line.split(" on ")[0] for line in run.lines] == ["total right"]


def test_arrays_of_one_job_have_as_many_rows_whatever_their_shape(tmp_path):
    path = tmp_path / "uneven.py"
    path.write_text(
        "from apples import malleable\n"
        "job = malleable.Job()\n"
        "job.array('x', (5, 3))\n"
        "try:\n"
        "    job.tiles('t', (6, 5))\n"
        "except malleable.DeclarationError as error:\n"
        "    print(error.code, *(error.fields[name] for name in ('name', 'value', 'bound')))\n"
    )
    run = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert run.stdout.splitlines() == ["rows-differ t 6 5"], run.stderr
