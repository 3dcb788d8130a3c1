"""Topology daemons of other hosts, asked by a host agent at the end of a connection."""

import contextlib
import os
import signal
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from daemons import Daemon
from waiting import until

from apples.cluster import DaemonConnection, DaemonSilence, SilentDaemonError, TopologyDaemons
from apples.errors import ApplesError, UsageError
from apples.launch import all_processes, bootstrap, parent_of
from apples.resources import Host, read_host_list
from apples.topology import DaemonOptions

BARE = [sys.executable, *bootstrap.words(site=False)]
"""The end of a connection that leads to this machine."""


@pytest.fixture
def connection():
    made = DaemonConnection("ada", lambda: BARE)
    yield made
    made.close()
    until(lambda: agents() == [])


def agents():
    """Return the child processes of this one that are host agents."""
    return [
        pid
        for pid in all_processes()
        if parent_of(pid) == os.getpid() and b"os.read(0,10-len(b))" in command_line(pid)
    ]


def command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_many_threads_ask_over_one_connection(connection):
    with Daemon("pu:8") as daemon, ThreadPoolExecutor(8) as pool:

        def allocated(number):
            request = {
                "verb": "allocate",
                "job": f"j{number}",
                "until": "told",
            }
            return connection.ask(str(daemon.socket), request, 60.0)

        answers = list(pool.map(allocated, range(8)))
        assert sorted(one["cpus"] for one in answers) == [str(cpu) for cpu in range(8)]
        assert [one["job"] for one in answers] == [f"j{number}" for number in range(8)]
        assert len(agents()) == 1


def test_slow_answer_keeps_no_other_waiting(connection, tmp_path):
    with Daemon("pu:2") as daemon, socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "deaf.sock"))
        deaf.listen()

        def ask():
            with contextlib.suppress(DaemonSilence):
                connection.ask(str(tmp_path / "deaf.sock"), {"verb": "status"}, 30.0)

        slow = threading.Thread(target=ask)
        slow.start()
        for _ in range(3):
            answer = connection.ask(str(daemon.socket), {"verb": "status"}, 30.0)
            assert answer["universe"] == "0-1"
        assert slow.is_alive()
        deaf.close()
        slow.join(60)
        assert not slow.is_alive()


def test_daemon_that_does_not_answer_in_time_is_no_lost_connection(connection, tmp_path):
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "deaf.sock"))
        deaf.listen()
        assert connection.ask(str(tmp_path / "deaf.sock"), {"verb": "status"}, 0.1) is None
    first = agents()
    with pytest.raises(DaemonSilence):
        connection.ask(str(tmp_path / "none.sock"), {"verb": "status"}, 30.0)
    assert agents() == first


def test_connection_that_is_killed_is_made_again(connection):
    with Daemon("pu:2") as daemon:
        assert connection.ask(str(daemon.socket), {"verb": "status"}, 30.0)["ok"]
        (agent,) = agents()
        os.kill(agent, signal.SIGKILL)
        until(lambda: agents() == [])
        assert connection.ask(str(daemon.socket), {"verb": "status"}, 30.0)["ok"]
        assert agents() != [agent]


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (
            ["/bin/sh", "-c", "echo 'ssh: connect: No route to host' >&2; exit 255"],
            "No route to host",
        ),
        (["/bin/sh", "-c", "exec head -c 100000 /dev/zero"], "invalid host agent report"),
        (
            ["/bin/sh", "-c", "printf 'apples.host/1\\n[3]\\n'; sleep 9"],
            "invalid host agent report",
        ),
        (["/nowhere/ssh"], "No such file"),
    ],
)
def test_connection_that_leads_to_no_host_agent_is_an_error_with_its_reason(program, reason):
    made = DaemonConnection("ada", lambda: program)
    with pytest.raises(ConnectionError) as silence:
        made.ask("/run/d.sock", {"verb": "status"}, 30.0)
    assert reason in str(silence.value)
    assert str(silence.value).isprintable()
    made.close()


def test_reason_tells_whether_a_daemon_is_absent_or_may_not_be_asked(connection, tmp_path):
    (tmp_path / "file").touch()
    for place, absent in (
        (tmp_path / "none.sock", True),
        (tmp_path / "file", True),
        (tmp_path / "file" / "d.sock", False),
    ):
        with pytest.raises(DaemonSilence) as silence:
            connection.ask(str(place), {"verb": "status"}, 30.0)
        assert silence.value.absent == absent


def test_connections_that_are_closed_together_end_together(tmp_path):
    """The second ends by itself at once, while the first, which ignores the end of its input, is alive."""
    deaf = "echo $$ > deaf.pid; while :; do sleep 1; done"
    ready = (
        f"read pid < {tmp_path}/deaf.pid; : > ready; cat > /dev/null; kill -0 $pid && : > together"
    )
    made = []
    for program, begun in ((deaf, "deaf.pid"), (ready, "ready")):
        argv = ["/bin/sh", "-c", f"cd {tmp_path}; {program}"]
        made.append(DaemonConnection("ada", lambda argv=argv: argv))
        threading.Thread(target=_ask_in_vain, args=(made[-1],)).start()
        until(lambda begun=begun: (tmp_path / begun).exists() and begun_whole(tmp_path))
    DaemonConnection.close_all(made)
    assert (tmp_path / "together").exists()


def begun_whole(folder):
    """Return whether the number of the first process is in its file."""
    return (folder / "deaf.pid").read_text().endswith("\n")


def _ask_in_vain(connection):
    with contextlib.suppress(ConnectionError):
        connection.ask("/run/d.sock", {"verb": "status"}, 30.0)


@pytest.fixture
def far(sshd, tmp_path):
    """Return what makes the daemons of a host list whose hosts are reached over ssh."""
    made = []

    def asked(**sockets):
        text = sshd.host_list(len(sockets))
        for number, place in enumerate(sockets.values()):
            name = f'name = "h{number + 1}"\n'
            text = text.replace(name, f'{name}topologyd = "{place}"\n' if place else name)
        (tmp_path / "hosts.toml").write_text(text)
        listed = read_host_list(tmp_path / "hosts.toml")
        made.append(TopologyDaemons.of(listed, 0.5, sockets))
        return made[-1]

    yield asked
    for one in made:
        one.close()


@pytest.mark.more
def test_cpus_of_other_machines_are_given_over_ssh_and_taken_back(far, tmp_path):
    none = tmp_path / "none.sock"
    with Daemon("pu:4") as first, Daemon("pu:4") as second:
        daemons = far(h1=first.socket, h2=second.socket, h3=none)
        assert (daemons.cpus, list(daemons.silent)) == (4, ["h3"])
        assert "start one there with: apples topologyd" in daemons.silent["h3"]
        assert daemons.silent["h3"].startswith("h3: ")
        daemons.allocate("0000abcd", ["h1", "h2"])
        daemons.allocate("0000cdef", ["h2"])
        assert {job: one["cpus"] for job, one in second.jobs.items()} == {
            "0000abcd": "0-1", "0000cdef": "2-3",
        }  # fmt: skip
        assert daemons.look(Host("h2"), {"0000abcd": True}) == {"0000abcd": 0}
        assert {job: one["cpus"] for job, one in second.jobs.items()} == {"0000cdef": "0-3"}
        assert list(first.jobs) == ["0000abcd"]
        with pytest.raises(SilentDaemonError) as silence:
            daemons.allocate("0000abcd", ["h3"])
        assert (silence.value.host, silence.value.code) == ("h3", "daemon-unreachable")


@pytest.mark.more
def test_daemon_of_another_machine_that_does_not_fit_is_refused_with_its_host(far):
    with Daemon("pu:4") as four, Daemon("pu:2") as two:
        for sockets, code, values in (
            ({"h1": four.socket, "h2": ""}, "field-missing", ("h2: topologyd",)),
            ({"h1": four.socket, "h2": two.socket}, "cpus-differ", ("h1 has 4", "h2 has 2")),
        ):
            with pytest.raises(UsageError) as refused:
                far(**sockets)
            assert refused.value.code == code
            assert all(value in str(refused.value) for value in values)
    with Daemon("pu:4", options=DaemonOptions(sharing_factor=0.25)) as third:
        with pytest.raises(ApplesError) as refused:
            far(h1=third.socket)
        assert refused.value.code == "sharing-factors-differ"
        assert "on h1" in str(refused.value)
