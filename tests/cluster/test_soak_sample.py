"""A small sample of the kills and power cuts of a live scheduler's log: see tests/soak_scheduler_log.py."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import begun, until

SOAK = Path(__file__).parents[1] / "soak_scheduler_log.py"
PLANTED = "orders leave before their records"

pytestmark = [pytest.mark.more, pytest.mark.xdist_group("soak")]


def outcome(*words):
    command = [sys.executable, str(SOAK), *words]
    with begun(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        said, errors = run.communicate(timeout=300)
    return run.returncode, json.loads(said), errors


@pytest.mark.parametrize("part", ["kills", "power"])
def test_what_a_scheduler_acknowledged_outlives_it_and_nothing_begins_twice(part):
    """It is ended with kill -9, or the power of its disk is cut, while it works."""
    code, found, errors = outcome(f"{part}=8")
    if "skipped" in found:
        pytest.skip(found["skipped"])
    assert code == 0, (found, errors)
    assert found["acknowledged"] > 0


@pytest.mark.parametrize("part", ["kills", "power"])
def test_a_scheduler_that_acknowledges_before_it_records_is_found_out(part):
    code, found, errors = outcome(f"{part}=40", "--planted", PLANTED)
    if "skipped" in found:
        pytest.skip(found["skipped"])
    assert code == 1, (found, errors)
    assert "acknowledged and are not there" in found["broken"] or ", in the log" in found["broken"]


def test_a_series_that_is_ended_tells_what_it_has_done(tmp_path):
    argv = [sys.executable, str(SOAK), "kills=1000000"]
    there = {**os.environ, "TMPDIR": str(tmp_path)}
    with begun(argv, stdout=subprocess.PIPE, text=True, env=there) as run:
        until(lambda: [*tmp_path.glob("soak-kills-*/kills/0/*")], 200)
        run.send_signal(signal.SIGTERM)
        said, _ = run.communicate(timeout=200)
    found = json.loads(said)
    assert run.returncode == 0
    assert found["failures"] == 0
    assert 0 < found["done"] < 1000000
