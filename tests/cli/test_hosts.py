"""`apples hosts import slurm` as a command: the host list of a real cluster, and one line where there is none."""

import shutil

import pytest
from commands import command
from waiting import until

from apples.errors import LaunchError
from apples.launch import client
from apples.resources import read_host_list


def imported(*words):
    return command("apples", "hosts", "import", "slurm", *words)


def refused(done, code, *words):
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("apples: ")
    assert done.err.count("\n") == 1
    for word in words:
        assert word in done.err


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
        assert "warning: node bob left out: Slurm says it is drain (fan" in done.err
        assert [host["name"] for host in done.document["host"]] == ["ada", "far"]
    finally:
        client.run(["scontrol", "update", "NodeName=bob", "State=RESUME"])


@pytest.mark.lab
@pytest.mark.slurm
@pytest.mark.usefixtures("slurm")
def test_a_partition_there_is_not_is_refused_with_those_there_are():
    refused(imported("--partition", "nosuch"), 2, "partition 'nosuch' (Slurm has lab)")
    refused(imported("--partition", "a b"), 2, "partition cannot be 'a b'")


def test_a_machine_without_slurm_says_so_in_one_line(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    refused(imported(), 4, "no sinfo here: is this a machine of a Slurm cluster?")
    refused(command("apples", "hosts", "import", "pbs"), 2, "'pbs': known is slurm")


@pytest.mark.slurm
@pytest.mark.skipif(not shutil.which("sinfo"), reason="no sinfo here")
def test_a_controller_that_is_not_there_is_said_and_ends_no_job(tmp_path, monkeypatch):
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=x\nSlurmctldHost=localhost\nSlurmctldPort=1\nMessageTimeout=2\n")
    monkeypatch.setenv("SLURM_CONF", str(conf))
    refused(imported(), 4, "sinfo: Slurm did not answer")
    with pytest.raises(LaunchError, match="squeue: Slurm did not answer"):
        client.job_state(7)
