"""`apples monitor`: what hosts have left, here and in a lab, and what is said of those that are silent."""

import json

import pytest
from commands import command, validator

from apples.views.monitor import monitor_text

HOST = {
    "host": "ada", "time": 1.0, "cpus": 2, "wanted": 1.5, "others": 0.5, "capacity": 0.625, "load": 0.375,
    "available": {"cpu": 0.625, "memory": 0.5},
    "jobs": [{"job": "0000abcd", "wanted": 1.0, "processes": 2, "cpu_seconds": 7.5, "memory": 3_000_000}],
}  # fmt: skip
DOCUMENT = {
    "schema": "apples.monitor/1", "time": 2.0, "window": 5, "every": 1.0, "hosts": [HOST],
    "problems": [{"machine": "bob", "text": "it has not been heard"}],
}  # fmt: skip


def test_the_text_has_a_line_for_each_host_job_and_problem():
    validator("apples.monitor").validate(DOCUMENT)
    lines = monitor_text(DOCUMENT).splitlines()
    assert lines[1].split() == ["ada", "2", "1.50", "0.62", "0.50", "-", "-", "-", "0.62", "0.38"]
    assert lines[4].split() == ["0000abcd", "ada", "2", "1.00", "7.50", "3.00", "MB"]
    assert lines[5] == "bob: it has not been heard"


def test_hosts_of_this_machine_are_measured_idle_ones_too(tmp_path):
    hosts = tmp_path / "hosts.toml"
    hosts.write_text('[[host]]\nname = "ada"\ncpus = [0]\n[[host]]\nname = "bob"\n')
    words = ("monitor", "--hosts", hosts, "--snapshots", "2", "--every", "0.2")
    done = command("apples", *words, "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    validator("apples.monitor").validate(document)
    assert [one["host"] for one in document["hosts"]] == ["ada", "bob"]
    assert document["hosts"][0]["cpus"] == 1
    assert {"cpu", "memory", "disk"} <= document["hosts"][0]["available"].keys()
    assert document["problems"] == []
    assert command("apples", *words).out.startswith("host  CPUs")


@pytest.mark.lab
@pytest.mark.more
def test_hosts_that_are_other_machines_are_measured_over_ssh(lab):
    done = command("apples", "monitor", "--hosts", lab.hosts, "--snapshots", "1", "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert [one["host"] for one in document["hosts"]] == ["ada", "bob", "far"]
    assert document["problems"] == []


def test_a_list_of_which_no_host_can_be_heard_is_refused_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr("apples.cli.monitor.SILENT_SECONDS", 0.5)
    hosts = tmp_path / "hosts.toml"
    hosts.write_text('[[host]]\nname = "far"\naddress = "192.0.2.1"\n')
    done = command("apples", "monitor", "--hosts", hosts, "--every", "0.2", "--snapshots", "1")
    assert done.code == 4
    assert done.err.startswith("apples: no host was heard: far: ")
    assert done.err.count("\n") == 1
