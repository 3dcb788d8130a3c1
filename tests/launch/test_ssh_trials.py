"""Whatever process of a run over ssh is killed, whenever: it ends clearly and nothing is left on any host."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TRIALS = Path(__file__).parent / "ssh_trials.py"


@pytest.mark.more
@pytest.mark.ssh
@pytest.mark.mpi
@pytest.mark.slow
def test_twelve_random_kills_end_right():
    """Twelve runs of three MPI ranks on three hosts, two at a time."""
    patient = {"APPLES_END_SECONDS": "30", "APPLES_GONE_SECONDS": "30"}  # beside other tests
    there = {**os.environ, **patient}
    argv = [sys.executable, str(TRIALS), "12", "--seed", "20261122", "--at-once", "2"]
    run = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False, env=there)
    assert run.returncode == 0, run.stdout + run.stderr
