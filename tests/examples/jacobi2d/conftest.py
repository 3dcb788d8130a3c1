import json
import subprocess
import sys
from pathlib import Path

import pytest

# The program's modules know each other by plain name; so do these tests.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[3] / "examples/jacobi2d")]

from jacobi2d_support import SECONDS, SOLVER, Run, command, environment, validator  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Keep what the kernels compile out of the user's cache; one for all tests, it takes time."""
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture(scope="session", autouse=True)
def gpu_of_some_kind():
    """Let numba play a GPU where there is none, here and in the programs that are started."""
    patch = pytest.MonkeyPatch()
    if not Path("/proc/driver/nvidia").exists():
        patch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    yield
    patch.undo()


@pytest.fixture
def solve(tmp_path):
    """Run the solver for real and check every event it says against the schema."""

    def solve(task, ranks=None, program=(str(SOLVER),), valid=True, **more):
        if valid:
            validator("task").validate(task)
        if ranks is None:
            ranks = sum(piece["ranks"] for piece in task.get("partition", [{"ranks": 1}]))
        done = subprocess.run(
            command(ranks, program),
            env=environment(tmp_path, task, **more),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        lines = done.stdout.splitlines()
        events = [json.loads(line) for line in lines if line.startswith("{")]
        for event in events:
            validator("event").validate(event)
        return Run(done.returncode, events, done.stdout + done.stderr)

    return solve
