"""Whatever is killed or stopped of a malleable job, nothing of it is left.

agent -- pipe --> supervisor --> manager --> node supervisor --> mpiexec --> proxy --> rank rank
         (eof)    (subreaper)    (its fork)  (the manager's fork, subreaper)
"""

import os
import secrets
import signal
import sys
from pathlib import Path

import pytest
from waiting import until

from apples.launch import (
    MANAGER,
    LaunchCommand,
    Processes,
    RankGroup,
    descendants,
    kill_marked,
    local_spec,
    marked,
    parent_of,
    read,
)
from apples.malleable import SUPERVISOR, HostShare
from apples.malleable import job_start as job_manager

WAIT = 0.05
RANK = "import sys, time\nopen(sys.argv[1], 'x')\ntime.sleep(1000)"


class Tree:
    """A job of one rank on each of two hosts, whose program never comes to a safe point."""

    def __init__(self, folder):
        self.name = secrets.token_hex(8)
        places = [
            local_spec(RankGroup(host, 1, (sys.executable, "-S", "-c", RANK, str(folder / host))))
            for host in ("ada", "bob")
        ]
        members = [HostShare(place.host) for place in places]
        job = job_manager.describe_job(self.name, places, members, {}, minimum=2)
        order = job_manager.command(job, None)
        self.agent = Processes(order, self.name)
        self.heard = []
        self.until(lambda: (folder / "ada").exists() and (folder / "bob").exists())

    def until(self, condition):
        until(lambda: self.hear() or condition())

    def hear(self):
        self.heard += self.agent.read(WAIT)

    def ended(self):
        """Whether the run's supervisor has ended, and with it all there was."""
        self.until(lambda: not self.agent.supervised)
        return not marked(self.name)

    def victim(self, kind):
        if kind == "supervisor":
            return self.agent.supervisor_pid
        names = {"manager": MANAGER, "node": SUPERVISOR}
        return next(p for p in marked(self.name) if comm(p) == names[kind])


def comm(pid):
    return read(f"/proc/{pid}/comm").decode().strip()


@pytest.fixture
def tree(tmp_path):
    started = Tree(tmp_path)
    folder = started.agent.directory
    yield started
    started.agent.stop()
    left = marked(started.name)
    kill_marked(started.name, 60.0)
    assert not left, [comm(pid) for pid in left]
    assert not folder.exists()


def test_manager_and_node_supervisors_are_forks_that_hold_nothing_of_each_others(tree):
    supervisor, manager = tree.victim("supervisor"), tree.victim("manager")
    below = dict(descendants(manager))
    nodes = [pid for pid in below if comm(pid) == SUPERVISOR]
    assert parent_of(manager) == supervisor
    assert [below[pid] for pid in nodes] == [manager] * 2
    words = read(f"/proc/{supervisor}/cmdline")
    assert [read(f"/proc/{pid}/cmdline") for pid in (manager, *nodes)] == [words] * 3
    pipes = {pid: held(pid) for pid in (supervisor, manager, *nodes)}
    report = str(Path(f"/proc/{supervisor}/fd/1").readlink())
    assert [pid for pid, names in pipes.items() if report in names] == [supervisor]
    assert not pipes[nodes[0]] & pipes[nodes[1]] - held(os.getpid()) - held_errors(supervisor)


def held(pid):
    """The pipes that a process has open."""
    names = set()
    for one in Path(f"/proc/{pid}/fd").iterdir():
        try:
            names.add(str(one.readlink()))
        except FileNotFoundError:
            continue
    return {name for name in names if name.startswith("pipe:")}


def held_errors(pid):
    return {str(Path(f"/proc/{pid}/fd/2").readlink())}


@pytest.mark.parametrize(
    ("victim", "how"),
    [
        *(("manager", "KILL"), ("node", "KILL"), ("supervisor", "KILL")),
        *(pytest.param(one, "STOP", marks=pytest.mark.more) for one in ("manager", "node")),
    ],
)
def test_whichever_of_them_is_killed_or_stopped_nothing_is_left(tree, victim, how):
    pid = tree.victim(victim)
    os.kill(pid, getattr(signal, f"SIG{how}"))
    if (victim, how) == ("manager", "STOP"):  # its supervisor wakes it, and it goes on
        tree.until(lambda: read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[0] != b"T")
        os.kill(pid, signal.SIGTERM)
    if victim == "supervisor":  # nobody is left who clears up but the agent
        tree.until(lambda: not tree.agent.supervised)
        return
    assert tree.ended()
    assert tree.agent.cleared


def test_an_agent_that_hangs_up_leaves_nothing(tree):
    tree.agent.hang_up()
    assert tree.ended()


def test_a_manager_without_its_job_says_so_and_how_it_ended(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = (sys.executable, "-m", job_manager.MANAGER, "nowhere.json")
    order = LaunchCommand(words, forks=True)
    heard = []
    with Processes(order, secrets.token_hex(8)) as agent:
        until(lambda: heard.extend(agent.read(WAIT)) or not agent.supervised)
    assert ("report", b"exit 2") in heard
    assert any(s == "error" and b"nowhere.json" in line for s, line in heard)
