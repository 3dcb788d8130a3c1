"""Parameter sweeps, pipelines and masters with workers leave records, as every run."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import command, refused
from waiting import until

from apples.ui import duration


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(model, monkeypatch):
    assert command("hat", "new", "one", "--structure", model).code == 0
    monkeypatch.chdir("one")


def only_run():
    (one,) = command("apples", "jobs", "--json").document["runs"]
    return one


@pytest.mark.more
@pytest.mark.parametrize(
    ("model", "kind", "verified"),
    [
        ("sweep", "parameter-sweep", None),
        ("master-worker", "master-worker", True),
        pytest.param("pipeline", "pipeline", True, marks=pytest.mark.mpi),
    ],
)
def test_what_was_run_is_in_the_list_with_its_figures_and_has_a_page(
    model, kind, verified, monkeypatch
):
    made(model, monkeypatch)
    done = command("apples", "run", "--json").document
    one = only_run()
    assert (one["kind"], one["application"], one["state"]) == (kind, "one", "finished")
    assert one["verified"] is verified
    assert one["measured_seconds"] == done["execution"]["measured_seconds"]
    assert one["predicted_seconds"] > 0
    assert set(one["hosts"]) >= {"here", "there"}
    assert "one" in command("apples", "jobs").out
    page = command("apples", "report", one["id"], "--out", "page.html", "--json").document
    assert page["bytes"] == Path("page.html").stat().st_size
    text = Path("page.html").read_text()
    assert "finished" in text
    figures = done["execution"]
    assert duration(figures["measured_seconds"]) in text.replace("\xa0", " ")
    failure = refused("apples", "report", one["id"], "--timeline")
    assert (failure["exit_code"], failure["code"]) == (2, "option-not-applicable")
    assert refused("apples", "report", one["id"], one["id"])["exit_code"] == 2


@pytest.mark.parametrize("model", ["sweep", "master-worker", "pipeline"])
def test_a_plan_leaves_no_record_and_bad_input_neither(model, monkeypatch):
    made(model, monkeypatch)
    planned = command("apples", "plan")
    assert planned.code == 0
    assert command("apples", "run", "--dry-run").out == planned.out
    assert command("apples", "run", "--template", "nothing.toml").code == 2
    assert command("apples", "jobs", "--json").document["runs"] == []


@pytest.mark.more
def test_a_sweep_with_a_task_that_fails_is_recorded_as_failed_with_what_it_came_to(monkeypatch):
    made("sweep", monkeypatch)
    Path("program.py").write_text("raise SystemExit('no licence')")
    assert command("apples", "run").code == 5
    one = only_run()
    assert one["state"] == "failed"
    assert "no licence" in one["reason"]
    command("apples", "report", one["id"], "--out", "page.html")
    assert "no licence" in Path("page.html").read_text()


@pytest.mark.more
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_what_was_ended_is_in_the_list_with_the_plan_that_it_had(number, monkeypatch):
    made("master-worker", monkeypatch)
    Path("program.py").write_text(
        "import time\ndef units(p):\n    yield from range(900)\ndef work(u):\n    time.sleep(3600)\n"
        "def combine(t, r):\n    return 0\n"
    )
    words = [Path(sys.executable).parent / "apples", "run", "--no-verify"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    until(lambda: (found := runs()) and found[0]["state"] == "running")
    process.send_signal(number)
    _, said = process.communicate()
    one = only_run()
    assert one["state"] == ("failed" if number == signal.SIGKILL else "cancelled")
    assert one["predicted_seconds"] > 0
    assert number == signal.SIGKILL or f"apples report {one['id']}" in said
    command("apples", "report", one["id"], "--out", "page.html")
    assert "there" in Path("page.html").read_text()


@pytest.mark.more
def test_a_sweep_that_was_killed_is_in_the_list_with_the_plan_that_it_had(monkeypatch):
    made("sweep", monkeypatch)
    Path("program.py").write_text("import time\ntime.sleep(3600)\n")
    words = [Path(sys.executable).parent / "apples", "run"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: (found := runs()) and found[0]["predicted_seconds"])
    process.kill()
    process.wait()
    one = only_run()
    assert (one["state"], set(one["hosts"]) >= {"here", "there"}) == ("failed", True)
    command("apples", "report", one["id"], "--out", "page.html")
    text = Path("page.html").read_text()
    assert {"here", "there"} <= {*re.findall(r"\w+", text)}


def runs():
    done = subprocess.run(
        [Path(sys.executable).parent / "apples", "jobs", "--json"],
        capture_output=True, env=os.environ, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)["runs"]
