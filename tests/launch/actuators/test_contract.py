"""The contract's checks, on every launcher there is and on users' own of one file."""

import os
from pathlib import Path

import pytest
from commands import command

from apples.errors import LaunchError, UsageError
from apples.launch import ACTUATORS, actuator_class
from apples.testing import TEMPLATE, check_actuator, checked_program, main

OWN = Path(__file__).parents[1] / "programs" / "fork_launcher.py"
CLAIMS = 9


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.more
def test_this_machines_launcher_keeps_the_contract():
    assert len(check_actuator("local")) == CLAIMS


def test_a_recording_keeps_what_of_the_contract_is_not_about_processes():
    assert check_actuator("recording")[-1] == "starts nothing, and says so by no outcome"


@pytest.mark.more
def test_a_users_launcher_of_one_file_keeps_the_contract():
    assert len(check_actuator(f"{OWN}:ForkActuator")) == CLAIMS


@pytest.mark.more
@pytest.mark.ssh
def test_hosts_reached_over_ssh_keep_the_contract(sshd, tmp_path):
    (tmp_path / "hosts.toml").write_text(sshd.host_list(2))
    assert len(check_actuator("ssh", tmp_path / "hosts.toml")) == CLAIMS


@pytest.mark.lab
@pytest.mark.slurm
def test_a_cluster_of_slurms_keeps_the_contract(slurm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert len(check_actuator("slurm", slurm.hosts, tmp_path)) == CLAIMS


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "ForgetfulActuator",
            "is ready when every rank runs with the plan's task: ranks that run",
        ),
        ("ReversedActuator", "is ready when every rank runs with the plan's task: the partition"),
    ],
)
def test_a_launcher_that_breaks_the_contract_is_told_which_claim(name, said):
    with pytest.raises(LaunchError, match=f"{name}: {said}"):
        check_actuator(f"{OWN}:{name}")


def test_the_command_prints_each_claim(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["checks", "recording"])
    assert main() == 0
    assert capsys.readouterr().out.startswith("ok: builds a command and starts nothing\n")
    monkeypatch.setattr("sys.argv", ["checks", "cloud"])
    assert main() == 2


def test_what_is_no_actuator_is_refused():
    with pytest.raises(UsageError, match="is no class made of apples"):
        actuator_class(f"{OWN}:main")


def test_every_launcher_by_name_is_loaded_and_bears_it():
    assert {name: ACTUATORS[name].name for name in ACTUATORS} == {name: name for name in ACTUATORS}
    assert (
        os.environ.get("SLURM_JOB_ID") or actuator_class("slurm").create(None, save=False).queues
    )


def test_only_a_queue_takes_options_and_only_slurm_plans_without_live_weather():
    assert [name for name in ACTUATORS if ACTUATORS[name].takes_options] == [
        "ssh",
        "slurm",
    ]
    weathers = {name: ACTUATORS[name].weather("live") for name in ACTUATORS}
    assert weathers == {"local": "live", "ssh": "live", "slurm": "static", "recording": "live"}


@pytest.mark.parametrize("name", ["recording", f"{OWN}:ForkActuator"])
def test_a_launcher_that_cannot_move_a_job_says_so(name):
    with pytest.raises(UsageError, match="cannot move a job while it runs"):
        actuator_class(name).create(None, save=False).check_movable()


def test_the_command_line_runs_through_a_users_launcher(tmp_path):
    (tmp_path / "records").mkdir()
    (tmp_path / "user.toml").write_text("")
    (tmp_path / "hosts.toml").write_text('[[host]]\nname = "ada"\nslots = 2\n')
    (tmp_path / "template.toml").write_text(
        TEMPLATE.format(
            program=checked_program.__file__,
            rows=10,
            record=tmp_path / "records",
            how="finishes",
        )
    )
    files = [f"--{name}={tmp_path / name}.toml" for name in ("hosts", "template", "user")]
    done = command(
        *("apples", "run", *files, "--weather", "static", "--no-verify", "--json"),
        *("--actuator", f"{OWN}:ForkActuator"),
    )
    assert done.code == 0, done.err
    assert done.document["execution"]["measured_seconds"] == 0.2
    assert len(list((tmp_path / "records").glob("rank-*"))) == 2
