"""Whatever process is killed or stopped, whenever: the job goes on right or fails clearly, and nothing is left."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TRIALS = Path(__file__).parent / "faults" / "trials.py"


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.slow
def test_thirty_random_kills_and_stops_end_right():
    """Thirty jobs of up to four MPI ranks run, three at a time."""
    there = {**os.environ, "APPLES_END_SECONDS": "30"}  # beside other tests
    argv = [sys.executable, str(TRIALS), "30", "--seed", "20261120", "--at-once", "3"]
    run = subprocess.run(argv, capture_output=True, text=True, timeout=900, check=False, env=there)
    assert run.returncode == 0, run.stdout + run.stderr
