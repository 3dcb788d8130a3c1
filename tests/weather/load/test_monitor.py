"""`nws load`: what hosts have left, here and in a lab, and what is said of those that are silent."""

import json
import os
import subprocess
import sys

import pytest
from commands import command, refused, validator
from waiting import until

from apples.weather import monitor_text
from nws import Listen, Serving

HOST = {
    "host": "ada", "time": 1.0, "cpus": 2, "wanted": 1.5, "others": 0.5, "capacity": 0.625, "load": 0.375,
    "available": {"cpu": 0.625, "memory": 0.5},
    "jobs": [{"job": "0000abcd", "wanted": 1.0, "processes": 2, "cpu_seconds": 7.5, "memory": 3_000_000}],
    "ranks": [{"job": "0000abcd", "rank": 3, "processes": 1, "cpu_seconds": 7.0, "memory": 2_000_000}],
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
    lines = monitor_text(DOCUMENT, ranks=True).splitlines()
    assert lines[7].split() == ["0000abcd", "3", "ada", "1", "7.00", "2.00", "MB"]


def test_hosts_of_this_machine_are_measured_idle_ones_too(tmp_path):
    hosts = tmp_path / "hosts.toml"
    hosts.write_text('[[host]]\nname = "ada"\ncpus = [0]\n[[host]]\nname = "bob"\n')
    words = ("load", "--hosts", hosts, "--snapshots", "2", "--every", "0.2")
    done = command("nws", *words, "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    validator("apples.monitor").validate(document)
    assert [one["host"] for one in document["hosts"]] == ["ada", "bob"]
    assert document["hosts"][0]["cpus"] == 1
    assert {"cpu", "memory", "disk"} <= document["hosts"][0]["available"].keys()
    assert document["problems"] == []
    assert command("nws", *words).out.startswith("host  CPUs")


@pytest.mark.more
def test_what_is_measured_is_also_series_of_a_service_and_forecast_there(tmp_path):
    """The capacity of each host, and what a rank uses."""
    hosts = tmp_path / "hosts.toml"
    hosts.write_text('[[host]]\nname = "ada"\n')
    listen = Listen("127.0.0.1", 0)
    spin = [sys.executable, "-c", "while True: pass"]
    mine = {**os.environ, "APPLES_JOB": "0000beef", "PMI_RANK": "2"}
    with (
        Serving(tmp_path / "nws", listen, database={"engine": "numpy"}) as serving,
        subprocess.Popen(spin, env=mine) as spinning,
    ):
        words = ("load", "--hosts", hosts, "--service", serving.url, "--every", "0.2")
        token = ("--token-file", tmp_path / "nws" / "token")
        try:
            done = command("nws", *words, *token, "--rounds", "5", "--json")
        finally:
            spinning.kill()
        assert (done.code, done.err) == (0, "")
        there = done.document["hosts"][0]["ranks"]  # with those of others on this machine
        assert [one["rank"] for one in there if one["job"] == "0000beef"] == [2]
        names = ["capacityCpu/ada", "capacityMemory/ada", "usedCpus/ada/0000beef.rank2"]
        asked = ("forecast", *names, "--service", serving.url, *token, "--json")
        until(lambda: {one["state"] for one in forecasts(asked)} == {"current"})
        assert all(one["value"] >= 0 for one in forecasts(asked))
        top = command("nws", "top", "wantedCpus/*", "--once", "--service", serving.url, *token)
        assert "wantedCpus/ada/0000beef" in top.out
    done = command("nws", *words, *token, "--rounds", "2", "--json")  # it is away now
    assert done.code == 0
    assert done.err.count("\n") == 1
    assert words[4] in done.err
    assert [one["machine"] for one in done.document["problems"]] == [words[4]]


def forecasts(words):
    return command("nws", *words).document["forecasts"]


def test_options_of_a_service_are_refused_where_there_is_none(tmp_path):
    (tmp_path / "hosts.toml").write_text('[[host]]\nname = "ada"\n')
    words = ("load", "--hosts", tmp_path / "hosts.toml")
    failure = refused("nws", *words, "--rounds", "2")
    assert (failure["exit_code"], failure["code"]) == (2, "option-not-applicable")
    assert failure["fields"] == {"option": "--rounds", "needs": ["--service"]}
    failure = refused("nws", *words, "--service", "nowhere", "--rounds", "2")
    assert (failure["exit_code"], failure["code"]) == (2, "address-invalid")
    assert failure["fields"] == {"value": "nowhere"}


@pytest.mark.lab
@pytest.mark.more
def test_hosts_that_are_other_machines_are_measured_over_ssh(lab):
    done = command("nws", "load", "--hosts", lab.hosts, "--snapshots", "1", "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert [one["host"] for one in document["hosts"]] == ["ada", "bob", "far"]
    assert document["problems"] == []


def test_a_list_of_which_no_host_can_be_heard_is_refused_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr("apples.weather.load.commands.SILENT_SECONDS", 0.5)
    hosts = tmp_path / "hosts.toml"
    hosts.write_text('[[host]]\nname = "far"\naddress = "192.0.2.1"\n')
    failure = refused("nws", "load", "--hosts", hosts, "--every", "0.2", "--snapshots", "1")
    assert (failure["exit_code"], failure["code"]) == (4, "host-unreachable")
    assert {one["machine"] for one in failure["fields"]["problems"]} == {"far"}
