"""Whatever process is killed or stopped, whenever: the job goes on right or fails clearly, and nothing is left."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import begun, until

TRIALS = Path(__file__).parent / "faults" / "trials.py"


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.slow
def test_thirty_random_kills_and_stops_end_right():
    """Thirty jobs of up to four MPI ranks run, three at a time."""
    there = {**os.environ, "APPLES_END_SECONDS": "30"}  # beside other tests
    argv = [sys.executable, str(TRIALS), "30", "--seed", "20261120", "--at-once", "3"]
    # Longer than a trial waits, and less long than pytest does.
    with begun(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=there
    ) as run:
        said, _ = run.communicate(timeout=420)
    assert run.returncode == 0, said


def test_a_series_of_trials_tells_what_all_runs_of_it_met(tmp_path):
    """Several runs keep their trials in one file."""
    log = tmp_path / "trials.jsonl"
    one = {"kind": "rank", "how": "KILL", "phase": "merge", "result": "went on", "seconds": 1.0}
    late = {
        "kind": "manager",
        "how": "STOP",
        "result": "failed clearly",
        "seconds": 7.0,
        "beyond": 0.5,
    }
    late |= {"phase": "wait", "wrong": "late"}
    log.write_text("".join(json.dumps(each) + "\n" for each in (one, one, late)))
    argv = [sys.executable, str(TRIALS), "0", "--log", str(log), "--least", "2"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    rows = {line.split("  ")[0]: line.split() for line in done.stdout.splitlines()}
    assert done.returncode == 1
    assert dict(zip(rows["hit"][1:], rows["all"][1:], strict=True))["merge"] == "2"
    assert rows["rank KILL"].count("2") == 1
    (summary,) = [line for line in done.stdout.splitlines() if re.match(r"\d+ trials", line)]
    assert re.findall(r"[\d.]+", summary)[:6] == ["3", "3", "1", "7.0", "1", "1"]
    assert re.search(r"\b0\.5 s\b", summary)  # the longest stage beyond its limit
    assert re.search(
        r"\b2 \w+: \{'\w+': [01]\b", done.stdout
    )  # phases hit less often than --least


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.slow
def test_a_series_that_is_ended_keeps_and_tells_the_trials_that_were_over(tmp_path):
    log = tmp_path / "trials.jsonl"
    argv = [sys.executable, str(TRIALS), "1000", "--at-once", "1", "--log", str(log)]
    there = {**os.environ, "APPLES_END_SECONDS": "30"}
    with begun(argv, stdout=subprocess.PIPE, text=True, env=there) as run:
        until(lambda: log.exists() and log.read_text().endswith("\n"), seconds=200)
        run.send_signal(signal.SIGTERM)
        said, _ = run.communicate(timeout=200)
    trials = len(log.read_text().splitlines())
    assert 1 <= trials < 1000
    assert f"\n{trials} trials, " in said
