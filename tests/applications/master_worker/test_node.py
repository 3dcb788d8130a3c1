"""The master by itself: workers are connections of the test's, which say what they like, when they like."""

import json
import socket
from contextlib import ExitStack
from multiprocessing import connection
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest
from waiting import until

from apples.applications import PORT_FILE, PROGRESS_FILE, UnitMaster

SECRET = "0badcafe"  # noqa: S105 - of this test
PROGRAM = SimpleNamespace(
    units=lambda parameters: iter(range(parameters["count"])),
    combine=lambda total, result: (total or 0) + result,
)


class Worker:
    """A worker process, as far as its master can tell."""

    def __init__(self, lane, rate):
        said = json.loads(until(lambda: Path(PORT_FILE).exists() and Path(PORT_FILE).read_text()))
        key = bytes.fromhex(SECRET)
        self.link = connection.Client(("127.0.0.1", said["port"]), authkey=key)
        self.say({"hello": lane, "rate": rate})
        until(lambda: lane in progress().get("lanes", {}))

    def say(self, message):
        self.link.send_bytes(json.dumps(message).encode())

    def hear(self):
        return json.loads(self.link.recv_bytes())

    def do(self, *units):
        """Be handed these units, and say that they are done."""
        assert [number for number, _ in self.hear()["units"]] == [*units]
        self.say({"done": [[unit, unit] for unit in units], "seconds": 0.01})


def progress():
    try:
        return json.loads(Path(PROGRESS_FILE).read_text())
    except FileNotFoundError:
        return {}


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """Give what begins a master of so many units, and has what came of it once it has ended.

    It waits for all of its workers: on a busy machine each of them may come late.
    """
    monkeypatch.chdir(tmp_path)
    threads = []

    def begin(count, bind="127.0.0.1", **limits):
        told = {
            "count": count, "most": 1000, "samples": [], "parameters": {"count": count}, "rate": 3.0,
            "bind": bind, "secret": SECRET, "attempts": 2, "workers": ["a", "b", "c"],
        }  # fmt: skip
        ended = []
        master = UnitMaster(told, PROGRAM, join_seconds=600.0, **limits)
        threads.append(Thread(target=lambda: ended.append(master.run()), daemon=True))
        threads[-1].start()
        return ended

    yield begin
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_a_unit_that_may_have_ended_a_worker_is_tried_by_one_at_a_time(begun):
    ended = begun(3)
    first = Worker("a#0", 1.0)
    assert first.hear()["units"] == [[0, 0]]
    first.link.close()
    until(lambda: "a#0" in progress()["lost"])
    second = Worker("b#0", 1.0)
    second.do(1)
    second.do(2)
    assert second.hear()["units"] == [[0, 0]]
    third = Worker("c#0", 1e6)  # it would do the unit sooner, or end as well
    second.say({"done": [[0, 0]], "seconds": 0.01})
    assert third.hear() == {"end": True}
    assert until(lambda: ended)[0]["lanes"] == {"b#0": 3}


def silent():
    """Open a connection that never answers the master's challenge."""
    port = json.loads(until(lambda: Path(PORT_FILE).exists() and Path(PORT_FILE).read_text()))[
        "port"
    ]
    return socket.create_connection(("127.0.0.1", port), 60)


def test_silent_connections_lock_no_worker_out(begun):
    ended = begun(1)
    with ExitStack() as opened:
        for _ in range(100):
            opened.enter_context(silent())
        Worker("a#0", 1.0).do(0)
        assert until(lambda: ended)[0]["total"] == 0


def test_connection_that_proves_nothing_is_ended_at_the_deadline(begun):
    ended = begun(1, handshake_seconds=2.0)
    with silent() as peer:
        while peer.recv(1024):
            pass
    Worker("a#0", 1.0).do(0)
    assert until(lambda: ended)


def test_master_listens_where_its_address_is_of_another_host(begun):
    ended = begun(1, bind="192.0.2.1")  # reserved for documentation: of no host
    Worker("a#0", 1.0).do(0)
    assert until(lambda: ended)
