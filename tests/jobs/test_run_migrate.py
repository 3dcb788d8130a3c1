"""A job without a scheduler that moves itself: an owner comes back to its host of a lab."""

import time

import psutil
import pytest
from cluster.test_scheduler_migrate import hog, slaves
from commands import command
from sites import SAMPLE
from waiting import until

pytestmark = [pytest.mark.mpi, pytest.mark.lab, pytest.mark.more, pytest.mark.usefixtures("state")]


FIRST_MEAN = 15.0
"""Seconds until a monitor has spoken of its hosts: a mean of five snapshots. What happens before is seen late."""


def youngest(pids):
    """Return for how many seconds the youngest of some processes has been there."""
    return min(time.time() - psutil.Process(pid).create_time() for pid in pids)


def job_of(name):
    return command("apples", "jobs", name, "--json").document


def moves_of(name):
    """Return the moves of a job, once it is where the last of them brought it."""
    found = job_of(name)
    moves = [one for one in found["redistributions"] if one["moved"]]
    return moves if moves and found["hosts"] == moves[-1]["hosts"] else []


def test_a_job_leaves_the_host_whose_owner_is_back_by_itself_and_its_record_says_why(
    lab, tmp_path
):
    text = lab.hosts.read_text().replace('name = "ada"\n', 'name = "ada"\nowner_first = true\n', 1)
    hosts = lab.hosts.with_name("owned.toml")
    hosts.write_text(text)
    user = tmp_path / "user.toml"
    user.write_text("[constraints]\nmaximum_hosts = 1\n")
    words = [
        "run", "--detach", "--hosts", hosts, "--template", SAMPLE / "template.toml", "--user", user,
        "--actuator", "ssh", "--blueprint", "migrate", "--weather", "static", "--no-verify",
        "--set", "iterations=1000000", "--set", "pause=0.01", "--json",
    ]  # fmt: skip
    name = command("apples", *words).document["id"]
    try:
        until(lambda: job_of(name)["iteration"], 180)
        assert job_of(name)["hosts"] == ["ada"]
        until(lambda: len(slaves(lab)) == 3 and youngest(slaves(lab)) > FIRST_MEAN, 180)
        with hog(lab, "ada"):
            began = time.monotonic()
            moves = until(lambda: moves_of(name), 180)
            print(f"left after {time.monotonic() - began:.1f} s")
        # Where it goes, and whether it goes on from there, is by the loads that are measured of slow hosts.
        assert [one["hosts"] for one in moves if one["hosts"] not in (["bob"], ["far"])] == []
        assert "ada" in moves[0]["explanation"].split()
        page = tmp_path / "page.html"
        assert command("apples", "report", name, "--out", page).code == 0
        assert moves[0]["explanation"].partition(": ")[2].partition(":")[0] in page.read_text()
    finally:
        command("apples", "cancel", name)
    until(lambda: slaves(lab) == [])
