"""The topology daemons of hosts that jobs share, as whoever runs the jobs asks them."""

import contextlib
import socket
import threading
from pathlib import Path

import pytest
from daemons import Daemon

from apples.cluster import SilentDaemonError, TopologyDaemons
from apples.errors import ApplesError, InfeasibleError, LaunchError, UsageError
from apples.resources import Host, HostList, Link, Network
from apples.topology import DaemonOptions, TopologyClient


def test_an_attempt_that_comes_back_to_a_host_has_cpus_there_again_and_gives_them_back_again():
    with Daemon("pu:4") as daemon:
        daemons = TopologyDaemons({"ada": str(daemon.socket)}, 4, 0.5)
        for _ in range(3):
            for _ in range(2):  # an order may come twice
                daemons.allocate("0000abcd", ["ada"])
            assert [one["cpus"] for one in daemon.ask("jobs")["jobs"]] == ["0-3"]
            for _ in range(2):
                daemons.release("0000abcd", "ada")
            assert daemon.ask("jobs")["jobs"] == []


@pytest.fixture
def answering(tmp_path):
    """Return a function that makes a socket at which each line gets the next answer, then the last again."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "d.sock"))
    server.listen()
    says = []

    def serve():
        while True:
            try:
                one, _ = server.accept()
            except OSError:
                return
            one.settimeout(120)
            with one, one.makefile("rb") as lines, contextlib.suppress(TimeoutError):
                for _ in lines:
                    one.sendall(says[0] + b"\n")
                    says[:] = says[1:] or says

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()

    def made(*answers):
        says[:] = answers
        return str(tmp_path / "d.sock")

    yield made
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(30)


@pytest.mark.parametrize(
    "line",
    [
        b'{"ok": true}',
        b'{"ok": true, "jobs": 3, "sharing_factor": "half", "universe": 7}',
        b'{"ok": true, "sharing_factor": 0.5}',
        b'{"ok": true, "jobs": [3], "sharing_factor": 0.5, "universe": "x"}',
        b'{"ok": false, "code": "x"}',
        b'{"x": 1}',
        b'{"ok": false, "code": [], "error": "a"}',
        b'{"ok": false, "error": "two\\nlines\\u001b[31m"}',
        b"[]",
    ],
)
def test_what_no_daemon_of_ours_would_say_is_refused_in_a_printable_line(answering, line):
    place = answering(line)
    ada = Host("ada", seconds_per_point=1e-6, topologyd=place)
    hosts = HostList((ada,), Network({}, Link(1e-6, 1e9)), source="h.toml")
    with pytest.raises(ApplesError) as refused:
        TopologyDaemons.of(hosts, 0.5)
    assert str(refused.value).isprintable()
    assert str(refused.value) != "None"
    if b"[3]" not in line:  # a number that it does not know is refused by a daemon
        with pytest.raises(LaunchError):
            TopologyDaemons({"ada": place}, 4, 0.5).release("0000abcd", "ada")


def listed(**places):
    """Return a host list whose hosts have daemons at these places."""
    found = tuple(
        Host(name, seconds_per_point=1e-6, topologyd=str(place)) for name, place in places.items()
    )
    return HostList(found, Network({}, Link(1e-6, 1e9)), source="h.toml")


def test_one_that_does_not_answer_is_its_hosts_and_the_others_are_used(tmp_path):
    none = tmp_path / "none"
    with Daemon("pu:4") as daemon:
        daemons = TopologyDaemons.of(listed(ada=daemon.socket, bob=none), 0.5)
        assert (daemons.cpus, list(daemons.silent)) == (4, ["bob"])
        assert str(none) in daemons.silent["bob"]
        with pytest.raises(SilentDaemonError) as silence:
            daemons.allocate("0000abcd", ["ada", "bob"])
        assert (silence.value.host, str(silence.value)) == ("bob", daemons.silent["bob"])
        assert silence.value.code == "daemon-unreachable"
        assert silence.value.fields == {"host": "bob", "socket": str(none)}
        ada = Host("ada")
        assert daemons.look(ada, {"0000abcd": True, "0000cdef": True}) == {
            "0000abcd": 0, "0000cdef": 0,
        }  # fmt: skip
        assert daemon.jobs == {}
    with pytest.raises(LaunchError) as silence:
        daemons.look(ada, {})
    assert (silence.value.code, silence.value.fields["host"]) == ("daemon-unreachable", "ada")


@pytest.mark.parametrize("other", ["link.sock", "there/../d.sock"])
def test_a_daemon_that_is_named_in_two_ways_is_one_and_two_hosts_need_two(tmp_path, other):
    (tmp_path / "there").mkdir()
    (tmp_path / "link.sock").symlink_to(tmp_path / "d.sock")
    with pytest.raises(UsageError) as refused:
        TopologyDaemons.of(listed(ada=tmp_path / "d.sock", bob=f"{tmp_path}/{other}"), 0.5)
    assert refused.value.code == "daemon-shared"
    assert refused.value.fields["value"] == f"{tmp_path}/d.sock"


def test_a_host_without_a_daemon_is_refused():
    with pytest.raises(UsageError) as refused:
        TopologyDaemons.of(listed(ada=""), 0.5)
    assert refused.value.code == "field-missing"
    assert refused.value.fields == {"file": "h.toml", "field": "topologyd", "host": "ada"}


@pytest.mark.parametrize(
    ("machine", "factor", "value", "bound"), [("pu:2", 0.5, 2, 4), ("pu:4", 0.25, 0.25, 0.5)]
)
def test_one_that_came_back_as_another_is_not_asked_for_cpus(machine, factor, value, bound):
    with Daemon(machine, options=DaemonOptions(sharing_factor=factor)) as daemon:
        daemons = TopologyDaemons({"ada": str(daemon.socket)}, 4, 0.5)
        with pytest.raises(LaunchError) as changed:
            daemons.look(Host("ada"), {})
    assert changed.value.code == "daemon-changed"
    fields = changed.value.fields
    assert (fields["host"], fields["value"], fields["bound"]) == ("ada", value, bound)


def test_where_no_job_shares_a_host_a_daemon_may_take_any_part_of_a_mate():
    with Daemon("pu:4", options=DaemonOptions(sharing_factor=0.5)) as daemon:
        assert TopologyDaemons({"ada": str(daemon.socket)}, 0, 0.0).check("ada") == 4


def test_requirement_is_met_by_as_many_cpus_as_the_host_has_slots():
    with Daemon("package:2 core:4 pu:1") as daemon:
        host = Host("ada", seconds_per_point=1e-6, slots=2, topologyd=str(daemon.socket))
        hosts = HostList((host,), Network({}, Link(1e-6, 1e9)), source="h.toml")
        daemons = TopologyDaemons({"ada": str(daemon.socket)}, 0, 0.0, {}, lambda: hosts)
        daemons.allocate("0000abcd", ["ada"], "CPU_LIST=5-7")
        assert [one["cpus"] for one in daemon.jobs.values()] == ["5-6"]
        with pytest.raises(LaunchError) as busy:
            daemons.allocate("0000cdef", ["ada"], "CPU_LIST=6-7")
        assert busy.value.code == "cpus-busy"
        assert str(busy.value).startswith("ada: ")
        with pytest.raises(InfeasibleError) as never:
            daemons.allocate("0000cdef", ["ada"], "CPU_LIST=62-63")
        assert never.value.exit_code == 3
        assert daemons.look(host, {"0000abcd": True}) == {"0000abcd": 0}
        assert daemon.jobs == {}


def test_host_without_daemon_is_named_when_a_requirement_needs_one(tmp_path):
    daemons = TopologyDaemons({"ada": "", "bob": str(tmp_path / "none")}, 0, 0.0)
    assert daemons.without() == ["ada"]
    assert daemons.places() == [str(tmp_path / "none")]
    with pytest.raises(UsageError) as missing:
        daemons.allocate("0000abcd", ["ada"], "MAX_RADIUS=1")
    assert (missing.value.code, missing.value.fields["host"]) == ("field-missing", "ada")


def test_silent_daemon_holds_only_jobs_that_may_have_its_cpus(tmp_path):
    none = str(tmp_path / "none")
    daemons = TopologyDaemons(
        {"ada": none}, 0, 0.0, has_cpus=lambda job: job == "0000abcd"
    )  # fmt: skip
    assert daemons.look(Host("ada"), {"0000abcd": True, "0000cdef": True}) == {
        "0000abcd": 1, "0000cdef": 0,
    }  # fmt: skip


OLD_STATUS = b'{"ok": true, "sharing_factor": 0.5, "universe": "0-3"}'
"""Of a daemon that was started before its protocol had a number."""


def test_daemon_of_an_earlier_version_takes_its_host_out_until_it_is_restarted(answering):
    place = answering(OLD_STATUS)
    daemons = TopologyDaemons({"ada": place}, 4, 0.5)
    with pytest.raises(SilentDaemonError) as outdated:
        daemons.check("ada")
    assert outdated.value.code == "daemon-outdated"
    assert outdated.value.fields["host"] == "ada"
    assert "restart apples topologyd on ada" in str(outdated.value)
    with pytest.raises(LaunchError) as outdated:
        daemons.look(Host("ada"), {})
    assert outdated.value.code == "daemon-outdated"


def test_refusal_of_an_outdated_daemon_fails_no_job(answering):
    refusal = b'{"ok": false, "error": "until: not known", "code": 2}'
    place = answering(refusal, OLD_STATUS)
    with pytest.raises(SilentDaemonError) as outdated:
        TopologyDaemons({"ada": place}, 0, 0.0).allocate("0000abcd", ["ada"], "MAX_RADIUS=1")
    assert outdated.value.code == "daemon-outdated"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (OLD_STATUS, "daemon-outdated"),
        (b'{"ok": true, "protocol": 3}', "field-missing"),
        (None, "field-missing"),
    ],
)
def test_client_reports_a_daemon_of_another_version(answering, status, code):
    refusal = b'{"ok": false, "error": "no request", "code": 2, "error_code": "field-missing"}'
    with TopologyClient(Path(answering(refusal, status or refusal))) as client:
        with pytest.raises(ApplesError) as outdated:
            client.ask("allocate", job="a")
        assert outdated.value.code == code


def test_socket_that_may_not_be_used_gets_another_remedy_than_an_absent_daemon(tmp_path):
    (tmp_path / "file").touch()
    for place, absent in (
        (tmp_path / "none.sock", True),
        (tmp_path / "file", True),  # nothing listens there
        (tmp_path / "file" / "d.sock", False),
    ):
        with pytest.raises(SilentDaemonError) as silence:
            TopologyDaemons({"ada": str(place)}, 4, 0.5).check("ada")
        assert silence.value.code == "daemon-unreachable"
        assert str(place) in str(silence.value)
        assert ("start one with: apples topologyd" in str(silence.value)) == absent
