"""The main job in three steps, as a user types them: a plan, a run of two ranks, a resize of a running job."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "examples" / "jacobi2d"
HOSTS = """
[[host]]
name = "ada"
cpus = [0]
seconds_per_point = 1e-8
[[host]]
name = "bob"
cpus = [0]
seconds_per_point = 1e-8
[default_link]
latency = 1e-6
bandwidth = 1e12
"""


@pytest.fixture
def apples(tmp_path, state):  # noqa: ARG001 - jobs and runs are recorded there
    (tmp_path / "hosts.toml").write_text(HOSTS)

    def apples(*words, template=False):
        files = ["--hosts", tmp_path / "hosts.toml", "--template", EXAMPLE / "template.toml"]
        done = subprocess.run(
            [sys.executable, "-m", "apples", *words, *(files if template else ()), "--json"],
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return apples


def test_plan_balances_equal_hosts(apples):
    plan = apples("plan", "--weather", "static", "--set", "grid=1000", template=True)
    assert sorted(plan["chosen"]["hosts"]) == ["ada", "bob"]
    assert plan["chosen"]["rows"] == [500, 500]


@pytest.mark.mpi
def test_run_of_two_ranks_equals_the_sequential_run(apples):
    size = ["--set", "grid=200", "--set", "iterations=20"]
    run = apples("run", "--weather", "static", "--blueprint", "blocked", *size, template=True)
    assert run["verified"] is True
    assert [host["rows"] for host in run["execution"]["hosts"]] == [100, 100]


@pytest.mark.mpi
def test_running_job_shrinks_to_one_host(apples):
    size = ["--set", "grid=200", "--set", "iterations=100000"]
    blueprint = ["--blueprint", "blocked"]
    job = apples("run", "--detach", "--weather", "static", *blueprint, *size, template=True)["id"]
    try:
        resized = apples("resize", job, "--on", "ada")
        assert resized["hosts"] == ["ada"]
        assert resized["rows"] == [200]
    finally:
        apples("cancel", job)
