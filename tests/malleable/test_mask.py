"""A rank's threads follow the CPUs it may use."""

import os
import subprocess
import sys

import pytest

from apples.malleable import CpuMask

PROGRAM = """
import os

from apples import malleable

cpus = os.sched_getaffinity(0)
with malleable.Job() as job:
    rows = job.array("u", (8, 8))
    state = job.state(iteration=0)
    while state.iteration < 3:
        job.safepoint()
        if state.iteration == 0:
            os.sched_setaffinity(0, {min(cpus)})
        state.iteration += 1
print(os.environ["OMP_NUM_THREADS"])
"""


@pytest.fixture
def mine():
    cpus = os.sched_getaffinity(0)
    yield cpus
    os.sched_setaffinity(0, cpus)


@pytest.mark.parametrize("ranks", [1, 2])
def test_threads_are_set_after_a_change_of_the_mask_and_only_then(mine, ranks, monkeypatch):
    if len(mine) < 2:
        pytest.skip("needs two CPUs")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    mask = CpuMask(ranks)
    assert not mask.follow()
    assert os.environ["OMP_NUM_THREADS"] == "7"
    os.sched_setaffinity(0, {min(mine)})
    assert mask.follow()
    assert os.environ["OMP_NUM_THREADS"] == "1"
    assert not mask.follow()
    os.sched_setaffinity(0, mine)
    assert mask.follow()
    assert os.environ["OMP_NUM_THREADS"] == str(len(mine) // ranks)


@pytest.mark.mpi
def test_a_safe_point_minds_the_mask(mine, tmp_path):
    if len(mine) < 2:
        pytest.skip("needs two CPUs")
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "OMP_NUM_THREADS": "7"}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr
