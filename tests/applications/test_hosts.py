"""`hat import slurm` as a command: the host list of a real cluster, and one line where there is none."""

import shutil

import pytest
from commands import command, refused
from waiting import until

from apples.errors import LaunchError
from apples.launch import client
from apples.resources import read_host_list


def imported(*words):
    return command("hat", "import", "slurm", *words)


def refused_import(*words):
    return refused("hat", "import", "slurm", *words)


@pytest.mark.lab
@pytest.mark.slurm
def test_the_nodes_of_a_cluster_become_a_host_list_that_reads(slurm, tmp_path):
    done = imported("--site", "here", "--site", "there")
    assert (done.code, done.err) == (0, "")
    (tmp_path / "hosts.toml").write_text(done.out)
    hosts = read_host_list(tmp_path / "hosts.toml")
    assert [(h.name, h.site, h.slots) for h in hosts] == [
        ("ada", "here", 2),
        ("bob", "here", 1),
        ("far", "there", 1),
    ]
    assert 0 < hosts["bob"].free_memory <= slurm.machine("bob").memory
    assert imported("--json", "--partition", "lab").document["host"][2]["name"] == "far"


@pytest.mark.lab
@pytest.mark.slurm
@pytest.mark.usefixtures("slurm")
def test_a_node_that_takes_no_jobs_is_left_out_and_named():
    client.run(["scontrol", "update", "NodeName=bob", "State=DRAIN", "Reason=fan"])
    try:
        done = until(lambda: done if (done := imported("--json")).err else None)
        assert done.err.startswith("warning: node bob ")
        assert "fan" in done.err
        assert [host["name"] for host in done.document["host"]] == ["ada", "far"]
    finally:
        client.run(["scontrol", "update", "NodeName=bob", "State=RESUME"])


@pytest.mark.lab
@pytest.mark.slurm
@pytest.mark.usefixtures("slurm")
def test_a_partition_there_is_not_is_refused_with_those_there_are():
    failure = refused_import("--partition", "nosuch")
    assert (failure["exit_code"], failure["code"]) == (2, "partition-unknown")
    assert failure["fields"] == {"value": "nosuch", "known": ["lab"]}
    failure = refused_import("--partition", "a b")
    assert (failure["exit_code"], failure["code"]) == (2, "value-invalid")
    assert failure["fields"] == {"field": "partition", "value": "a b"}


def test_a_machine_without_slurm_says_so_in_one_line(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    failure = refused_import()
    assert (failure["exit_code"], failure["code"]) == (4, "manager-unreachable")
    assert "sinfo" in failure["message"]
    failure = refused("hat", "import", "pbs")
    assert (failure["exit_code"], failure["code"]) == (2, "source-unknown")
    assert failure["fields"] == {"value": "pbs", "known": ["slurm"]}


@pytest.mark.slurm
@pytest.mark.skipif(not shutil.which("sinfo"), reason="no sinfo here")
def test_a_controller_that_is_not_there_is_said_and_ends_no_job(tmp_path, monkeypatch):
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=x\nSlurmctldHost=localhost\nSlurmctldPort=1\nMessageTimeout=2\n")
    monkeypatch.setenv("SLURM_CONF", str(conf))
    failure = refused_import()
    assert (failure["exit_code"], failure["code"]) == (4, "slurm-command-failed")
    assert failure["fields"]["command"] == "sinfo"
    with pytest.raises(LaunchError) as raised:
        client.job_state(7)
    assert raised.value.code == "slurm-command-failed"
    assert raised.value.fields["command"] == "squeue"
