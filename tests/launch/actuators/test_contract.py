"""The contract's checks, on every launcher there is and on users' own of one file."""

import os
from pathlib import Path

import pytest
from commands import command

from apples.errors import LaunchError, UsageError
from apples.launch import ACTUATORS, actuator_class, check_actuator, checked_program, main

OWN = Path(__file__).parents[1] / "programs" / "fork_launcher.py"
CLAIMS = 9
TEMPLATE = """
name = "checked"
program = ["{{python}}", "{program}"]
[parameters]
grid = {{default = {rows}}}
iterations = {{default = 2}}
record = {{default = "{record}"}}
how = {{default = "{how}"}}
"""


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.more
def test_this_machines_launcher_keeps_the_contract():
    assert len(check_actuator("local")) == CLAIMS


def test_a_recording_keeps_what_of_the_contract_is_not_about_processes():
    assert 0 < len(check_actuator("recording")) < CLAIMS


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


def broken_claim(name):
    """Check a launcher of the file that breaks the contract; return the values it gave and should have."""
    with pytest.raises(LaunchError) as raised:
        check_actuator(f"{OWN}:{name}")
    fields = raised.value.fields
    assert raised.value.code == fields["cause"] == "actuator-check-failed"
    assert fields["actuator"] == name
    return fields["value"], fields["bound"]


def test_a_launcher_that_is_ready_before_its_ranks_run_is_named():
    ranks, wanted = broken_claim("ForgetfulActuator")
    assert wanted == [0, 1, 2]
    assert len(ranks) < 3


def test_a_launcher_that_reverses_the_partition_is_named():
    partition, wanted = broken_claim("ReversedActuator")
    assert {entry["host"] for entry in wanted} == {"first", "second"}
    assert partition == wanted[::-1]


def test_the_command_prints_each_claim(capsys):
    claims = check_actuator("recording")
    assert main(["recording"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"ok: {claim}" for claim in claims]
    assert main(["cloud"]) == 2


def test_what_is_no_actuator_is_refused():
    with pytest.raises(UsageError) as raised:
        actuator_class(f"{OWN}:main")
    assert raised.value.code == "launcher-invalid"
    assert raised.value.fields["value"] == f"{OWN}:main"


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
    with pytest.raises(UsageError) as raised:
        actuator_class(name).create(None, save=False).check_movable()
    assert raised.value.code == "launcher-not-malleable"


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
