"""A program moved between hosts of a lab, over real ssh: into the other's network and quota."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from commands import command
from waiting import until

from apples.io import state
from apples.jobs import store
from apples.launch import marked

labs = pytest.importorskip("labs", reason="this tree has no lab")

PROGRAMS = Path(__file__).parent / "ranks_mpi"
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
[[host]]
name = "eve"
site = "here"
cpu = 0.8
"""
WHERE = """
import os, time
while not os.path.exists("enough"):
    print(os.readlink("/proc/self/ns/net"), open("/proc/self/cgroup").read().split(), flush=True)
    time.sleep(0.02)
"""


@pytest.fixture
def hosts(tmp_path, monkeypatch):
    """The options that name the hosts of a lab."""
    if lacking := labs.lacking(ssh=True):
        pytest.skip(lacking)
    monkeypatch.setenv(
        "APPLES_CRIU", os.environ.get("APPLES_CRIU", str(state.directory() / "criu"))
    )
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lab.toml").write_text(LAB)
    up = command("apples", "lab", "up", "lab.toml", "--json")
    assert up.code == 0, up.err
    yield ["--hosts", up.document["hosts"]]
    for job in store.jobs():
        command("apples", "cancel", job.id)
    command("apples", "lab", "down", "moving")


@pytest.mark.criu
@pytest.mark.usefixtures("criu")
def test_a_program_arrives_in_the_network_and_the_quota_of_another_host(hosts, tmp_path):
    (tmp_path / "where.py").write_text(WHERE)
    words = ["run-program", *hosts, "--on", "ada", "--detach", "--json", "--"]
    name = command("apples", *words, "python3", "where.py").document["id"]
    output = store.job(name).commits / "output"
    moved = command("apples", "resize", name, "--from", "ada", "--to", "bob")
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


@pytest.mark.criu
@pytest.mark.usefixtures("criu")
def test_a_rank_goes_to_another_network_and_is_found_there_by_the_others(hosts, tmp_path):
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    words = ["run-program", *hosts, "--on", "ada,bob"]
    program = [sys.executable, str(PROGRAMS / "exchange.py")]
    started = command("apples", *words, "--detach", "--json", "--", *program, "enough")
    assert started.code == 0, started.err
    name = started.document["id"]
    output = store.job(name).commits / "output"
    until(lambda: output.exists() and "running" in output.read_text())
    for source, target in (("ada", "eve"), ("bob", "ada")):
        moved = command("apples", "resize", name, "--from", source, "--to", target)
        assert moved.code == 0, moved.err
    (tmp_path / "enough").touch()
    assert command("apples", "wait", name, "--timeout", "300").code == 0
    _, rounds, *numbers = output.read_text().split()
    plain = ["--output", str(tmp_path / "plain"), "--", *program, rounds]
    assert command("apples", *words, *plain).code == 0
    assert (tmp_path / "plain/output").read_text().split()[2:] == numbers
