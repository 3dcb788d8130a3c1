"""Sets that span time-shared hosts and a batch queue: real ssh and a real Slurm, in the lab."""

import json
import os
import re
import subprocess
import sys

import pytest
from commands import command
from waiting import until

from apples.agent import host_survey, launch_plan, load_information
from apples.errors import ApplicationError, DeadlineError
from apples.launch import SlurmOptions, SshActuator, client, example_folder
from apples.resources import Allocation, Schedule

pytestmark = [pytest.mark.lab, pytest.mark.slurm, pytest.mark.mpi]


@pytest.fixture
def mixed(slurm, tmp_path, monkeypatch):
    """Return how the files are made: far is time-shared, ada and bob are behind the queue."""
    monkeypatch.chdir(tmp_path)
    for name in ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NODELIST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    files = [
        tmp_path / "hosts.toml",
        *(example_folder() / f"{n}.toml" for n in ("template", "user")),
    ]

    def make(seconds_per_point=1e-7):
        text = slurm.hosts.read_text().partition("[[link]]")[0]
        text = re.sub("seconds_per_point = .*", f"seconds_per_point = {seconds_per_point}", text)
        for name in ("ada", "bob"):
            text = text.replace(f'name = "{name}"\n', f'name = "{name}"\nqueue_seconds = 5.0\n')
        files[0].write_text(f"{text}\n[default_link]\nlatency = 1e-6\nbandwidth = 1e9\n")
        return files

    yield make
    until(lambda: not queue())
    assert not list(tmp_path.glob(".apples-*"))


def queue():
    return client.run(["squeue", "--noheader", "--format=%i"]).split()


def words_of(files, command="run", iterations=50):
    options = [
        f"--{n}={file}" for n, file in zip(("hosts", "template", "user"), files, strict=True)
    ]
    options += ["--set", "grid=200", "--set", f"iterations={iterations}", "--json"]
    if command == "run":
        options += ["--weather", "static", "--actuator", "ssh"]
    return [command, *options]


@pytest.fixture
def blocker(mixed):
    """A job that has both nodes for as long as it is left."""
    mixed()[0].with_name("blocker").write_text("#!/bin/sh\nexec sleep 600\n")
    hold = ["sbatch", "--parsable", "--nodes=2", "--nodelist=ada,bob", "--exclusive", "--time=5"]
    number = client.run([*hold, "--output=/dev/null", "blocker"]).strip()
    until(lambda: client.job_state(int(number)).running)
    yield number
    client.run(["scancel", number])


def test_a_set_of_both_kinds_runs_on_all_its_hosts_and_gives_its_nodes_back(mixed):
    done = command("apples", *words_of(mixed()), "--verify", "sample")
    assert done.code == 0, done.err
    document = done.document
    assert set(document["plan"]["chosen"]["hosts"]) == {"ada", "bob", "far"}
    assert document["verified"] is True
    assert document["verification"]["sampled_on"] == "this machine"
    assert {one["host"] for one in document["execution"]["hosts"]} == {"ada", "bob", "far"}
    assert 0.0 <= document["execution"]["queue_seconds"] < 60.0


def test_a_short_run_does_not_wait_for_the_queue(mixed, blocker):
    done = command("apples", *words_of(mixed()))
    assert done.code == 0, done.err
    document = done.document
    assert document["plan"]["chosen"]["hosts"] == ["far"]
    assert document["plan"]["chosen"]["wait_seconds"] == 0.0
    assert document["execution"]["queue_seconds"] is None
    assert queue() == [blocker]


def test_a_long_run_waits_and_its_record_says_how_long_it_was_to_wait_and_did(
    mixed, blocker, tmp_path
):
    files = mixed(seconds_per_point=1e-3)  # an hour of work, by the list
    talk = tmp_path / "talk"
    with talk.open("w") as stderr:
        run = subprocess.Popen(
            [sys.executable, "-m", "apples", *words_of(files)],
            stdout=subprocess.PIPE, stderr=stderr, text=True,
        )  # fmt: skip
    until(lambda: "waits in the queue" in talk.read_text() or run.poll() is not None)
    client.run(["scancel", blocker])
    out, _ = run.communicate(timeout=120)
    assert run.returncode == 0, talk.read_text()
    document = json.loads(out)
    assert set(document["plan"]["chosen"]["hosts"]) == {"ada", "bob", "far"}
    assert 200.0 < document["plan"]["chosen"]["wait_seconds"] < 330.0
    assert (
        0.0 <= document["execution"]["queue_seconds"] < document["plan"]["chosen"]["wait_seconds"]
    )
    assert "waits in the queue" in talk.read_text()


def test_an_agent_that_is_killed_while_it_waits_leaves_no_job(mixed, blocker):
    run = subprocess.Popen(
        [sys.executable, "-m", "apples", *words_of(mixed(seconds_per_point=1e-3))],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    until(lambda: len(queue()) == 2 or run.poll() is not None)
    run.kill()
    assert run.wait() == -9
    until(lambda: queue() == [blocker])


def held(mixed, talk):
    """A run over all three hosts that goes on until it is ended."""
    information = load_information(
        *mixed(), settings={"grid": 200, "iterations": 10**6}, weather="static"
    )
    hosts = information.hosts
    schedule = Schedule(
        tuple(
            Allocation(hosts[name], rows, information.implementation(hosts[name]))
            for name, rows in {"far": 50, "ada": 100, "bob": 50}.items()
        )
    )
    actuator = SshActuator(talk=talk.append, options=SlurmOptions(minutes=1))
    information = information.with_findings(actuator.look(host_survey(information)))
    return actuator.actuate(launch_plan(schedule, information))


def test_a_run_ends_with_the_job_that_holds_its_nodes(mixed):
    execution = held(mixed, [])
    client.run(["scancel", *queue()])
    with pytest.raises(ApplicationError) as raised:
        execution.outcome()
    assert raised.value.code == "program-failed"
    assert "CANCELLED" in raised.value.fields["last_words"]


def test_cancelling_a_run_gives_its_nodes_back(mixed):
    execution = held(mixed, [])
    assert len(queue()) == 1
    execution.cancel()
    assert queue() == []


@pytest.mark.skipif(
    "APPLES_TIME_LIMIT" not in os.environ,
    reason="waits up to half a minute for Slurm to look at limits: APPLES_TIME_LIMIT=1 asks for it",
)
def test_the_time_limit_of_the_nodes_is_a_deadline(mixed):
    execution = held(mixed, [])
    client.run(["scontrol", "update", f"JobId={queue()[0]}", "EndTime=now"])
    with pytest.raises(DeadlineError) as raised:
        execution.outcome()
    assert raised.value.code == "time-limit"


@pytest.mark.usefixtures("blocker")
def test_a_plan_asks_the_queue_too(mixed):
    chosen = command("apples", *words_of(mixed(seconds_per_point=1e-3), "plan")).document["chosen"]
    assert set(chosen["hosts"]) == {"ada", "bob", "far"}
    assert 200.0 < chosen["wait_seconds"] < 330.0
