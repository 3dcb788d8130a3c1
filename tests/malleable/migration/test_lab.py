"""A program moved between hosts of a lab, over real ssh: into the other's network and quota."""

import os

import pytest
from commands import command
from waiting import until

from apples.jobs import store
from apples.storage import state
from apples.supervision.job_processes import marked

labs = pytest.importorskip("labs", reason="this tree has no lab")

LAB = """
name = "moving"
ssh = true
[[site]]
name = "here"
bandwidth = 4e7
[[host]]
name = "ada"
site = "here"
cpu = 1.0
[[host]]
name = "bob"
site = "here"
cpu = 0.5
"""
WHERE = """
import os, time
while not os.path.exists("enough"):
    print(os.readlink("/proc/self/ns/net"), open("/proc/self/cgroup").read().split(), flush=True)
    time.sleep(0.02)
"""


@pytest.mark.criu
@pytest.mark.usefixtures("criu")
def test_a_program_arrives_in_the_network_and_the_quota_of_another_host(tmp_path, monkeypatch):
    if lacking := labs.lacking(ssh=True):
        pytest.skip(lacking)
    monkeypatch.setenv(
        "APPLES_CRIU", os.environ.get("APPLES_CRIU", str(state.directory() / "criu"))
    )
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lab.toml").write_text(LAB)
    (tmp_path / "where.py").write_text(WHERE)
    up = command("apples", "lab", "up", "lab.toml", "--json")
    assert up.code == 0, up.err
    try:
        hosts = ["--hosts", up.document["hosts"], "--weather", "static", "--on", "ada"]
        words = ["run", *hosts, "--program", "--detach", "--json", "--", "python3", "where.py"]
        name = command("apples", *words).document["id"]
        output = store.job(name).commits / "output"
        moved = command("apples", "migrate", name, "--from", "ada", "--to", "bob")
        assert moved.code == 0, moved.err
        lines = len(output.read_text().splitlines())
        until(lambda: len(output.read_text().splitlines()) > lines)
        (tmp_path / "enough").touch()
        assert command("apples", "wait", name, "--timeout", "300").code == 0
        first, *_, last = output.read_text().splitlines()
        assert first.split()[0] != last.split()[0]
        assert "/ada'" in first
        assert "/bob'" in last
        assert marked(name) == []
    finally:
        command("apples", "lab", "down", "moving")
