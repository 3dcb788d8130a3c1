"""A small sample of `make soak`, part by part: see tests/soak_nws.py."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parents[1] / "soak_nws.py"
SAMPLE = ["kills=10", "power=10", "archive=10", "full=1", "syscalls=1", "damage=100", "fuzz=1"]
PLANTED = ["kills=2+early", "power=2+no-sync"]

pytestmark = [pytest.mark.more, pytest.mark.xdist_group("soak")]


@pytest.fixture(scope="module")
def outcomes():
    """Run all of it once; return what was found by part and plant."""
    command = [sys.executable, str(SOAK), *SAMPLE, *PLANTED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    found = {(line["part"], line["plant"]): line for line in lines}
    assert len(found) == len(SAMPLE) + len(PLANTED), done.stderr
    return found


def found_by(outcomes, part, plant=""):
    found = outcomes[part, plant]
    if "skipped" in found:
        pytest.skip(found["skipped"])
    return found


@pytest.mark.more
@pytest.mark.parametrize(
    "part", ["kills", "power", "archive", "full", "syscalls", "damage", "fuzz"]
)
def test_a_sample_of_the_soak_finds_nothing(outcomes, part):
    """Slow: it kills processes, cuts the power of a disk, fills one, fails system calls."""
    found = found_by(outcomes, part)
    assert found["failures"] == []
    assert found.get("acknowledged", 10**6) > found["trials"], "the run was void"


@pytest.mark.parametrize(("part", "plant"), [("power", "no-sync"), ("kills", "early")])
def test_the_soak_finds_a_planted_bug(outcomes, part, plant):
    assert found_by(outcomes, part, plant)["failures"]
