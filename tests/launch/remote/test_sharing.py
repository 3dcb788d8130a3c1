"""Logins that jobs share to look at hosts, on a real sshd: one a host, of no job, and nobody depends on them."""

import contextlib
import os
import signal
from pathlib import Path

import pytest
import sshd as server
from sites import masters
from waiting import until

from apples.launch import MARK, HostConnections, Needs, marked, preflight, sharing
from apples.resources import read_host_list

pytestmark = pytest.mark.ssh
JOB = "sharing-is-tested"


@pytest.fixture
def listed(sshd, tmp_path):
    (tmp_path / "hosts.toml").write_text(sshd.host_list(2))
    return read_host_list(tmp_path / "hosts.toml")


def logins(sshd):
    return (sshd.folder / "log").read_text().count("Accepted publickey")


def looked(listed):
    """Look at all hosts as a job does; return those that are fit, and what the job could take over."""
    with HostConnections(JOB, shares=True) as connections:
        found = preflight(tuple(listed), listed, Needs(), connections=connections, seconds=60.0)
        taken = [connections.take(host.name) for host in listed]
    until(lambda: marked(JOB) == [])
    return [name for name, one in found.items() if one.refusal == ""], taken


def test_looks_one_after_another_are_one_login_a_host_and_no_run_lives_on_it(state, sshd, listed):
    before = logins(sshd)
    for _ in range(3):
        assert looked(listed) == (["h1", "h2"], [None, None])
    assert logins(sshd) - before == 2
    assert len(masters(state)) == 2
    for pid in masters(state):
        assert f"{MARK}=".encode() not in Path(f"/proc/{pid}/environ").read_bytes()
    assert {one.stat().st_mode & 0o777 for one in (state / "apples/ssh").iterdir()} == {0o600}
    assert (state / "apples/ssh").stat().st_mode & 0o777 == 0o700


def test_a_run_has_a_login_of_its_own(state, sshd, listed):
    looked(listed)
    before = logins(sshd)
    with contextlib.closing(HostConnections(JOB, shares=True).login(listed["h1"], listed)) as own:
        for pid in masters(state):
            os.kill(pid, signal.SIGKILL)
        until(lambda: logins(sshd) == before + 1)
        assert own.alive
        assert marked(JOB)  # by which it is found; what it starts bears the mark, too
    until(lambda: marked(JOB) == [])


def test_a_login_that_was_killed_costs_nobody_a_host(state, listed):
    looked(listed)
    for pid in masters(state):
        os.kill(pid, signal.SIGKILL)
    assert looked(listed)[0] == ["h1", "h2"]


def test_a_changed_configuration_is_another_login(state, sshd, listed):
    looked(listed)
    os.utime(sshd.config, ns=(1, 1))
    looked(listed)
    assert len(masters(state)) == 4


@pytest.mark.parametrize("why", ["no folder", "a long path", "a socket that cannot be made"])
def test_where_nothing_can_be_shared_each_look_logs_in_for_itself(
    state, sshd, listed, monkeypatch, why
):
    if why == "no folder":
        (state / "apples").mkdir()
        (state / "apples/ssh").write_text("")
    elif why == "a long path":
        monkeypatch.setenv("XDG_STATE_HOME", str(state / ("long" * 20)))
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    else:
        monkeypatch.setattr(sharing, "socket_name", lambda _: f"{state}/nowhere/%C")
    before = logins(sshd)
    for _ in range(2):
        assert looked(listed)[0] == ["h1", "h2"]
    assert logins(sshd) - before >= 4
    assert masters(state) == []


def test_where_the_state_directory_has_a_long_path_sockets_are_in_that_of_this_session(
    state, listed, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(state / ("long" * 20)))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(state))
    assert looked(listed)[0] == ["h1", "h2"]
    assert len(masters(state)) == 2
    assert (state / "apples-ssh").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("whose", ["open to others", "a link"])
def test_a_folder_that_is_not_this_users_alone_holds_no_socket(state, listed, whose):
    (state / "apples").mkdir()
    if whose == "a link":
        (state / "elsewhere").mkdir(mode=0o700)
        (state / "apples/ssh").symlink_to(state / "elsewhere")
    else:
        (state / "apples/ssh").mkdir()
        (state / "apples/ssh").chmod(0o770)
    assert looked(listed)[0] == ["h1", "h2"]
    assert masters(state) == []


def test_where_a_login_has_one_session_whoever_comes_second_logs_in(
    state, tmp_path, tmp_path_factory, monkeypatch
):
    if lacks := server.missing():
        pytest.skip(f"no ssh here: {lacks} missing")
    monkeypatch.setattr(server, "SERVER", server.SERVER + "MaxSessions 1\n")
    running = server.Sshd(tmp_path_factory.mktemp("strict"))
    (tmp_path / "hosts.toml").write_text(running.host_list(1))
    listed = read_host_list(tmp_path / "hosts.toml")
    try:
        with HostConnections(JOB, shares=True) as one:
            assert preflight(tuple(listed), listed, Needs(), 60.0, one)["h1"].refusal == ""
            assert len(masters(state)) == 1
            assert looked(listed)[0] == ["h1"]
        assert logins(running) == 2
    finally:
        running.close()
