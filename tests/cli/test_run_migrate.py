"""A job without a scheduler that moves itself: an owner comes back to its host of a lab."""

import time

import pytest
from cli.test_scheduler_migrate import hog, slaves
from cli.test_scheduler_ssh import state  # noqa: F401 - a fixture
from commands import command
from sites import SAMPLE
from waiting import until

pytestmark = [pytest.mark.mpi, pytest.mark.lab, pytest.mark.more, pytest.mark.usefixtures("state")]


def job_of(name):
    return command("apples", "jobs", name, "--json").document


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
        until(lambda: len(slaves()) == 3, 180)
        with hog(lab, "ada"):
            began = time.monotonic()
            until(lambda: job_of(name)["hosts"] == ["bob"], 180)
            print(f"left after {time.monotonic() - began:.1f} s")
        until(lambda: job_of(name)["redistributions"], 60)
        (moved,) = job_of(name)["redistributions"]
        assert moved["moved"]
        assert moved["hosts"] == ["bob"]
        assert moved["explanation"].startswith("moves: the owner of ada is back: load ")
        page = tmp_path / "page.html"
        assert command("apples", "report", name, "--out", page).code == 0
        assert "the owner of ada is back" in page.read_text()
    finally:
        command("apples", "cancel", name)
    until(lambda: slaves() == [], 60)
