"""Connections to the workers of a sweep: whoever waits hears of whatever ends what listens for it."""

import pytest
from waiting import until

from apples.errors import LaunchError
from apples.launch import shipping
from apples.resources import Host, HostList, Link, Network
from apples.sweeps import HELLO, DaskHosts, HostWorker

ADA = Host("ada")


class Cluster:
    """A Dask cluster of one worker, about which nothing can be learned later on."""

    address = "tcp://here:1"

    def __init__(self):
        self.client = self

    def run(self):
        """Stand for what Dask would run on its workers."""

    def sync(self, *_, **__):
        return {"tcp://there:1": {"name": "ada", "slots": 1, "python": "python"}}

    def workers(self):
        raise RuntimeError("planted")


class Waiting:
    name = "ada"

    def __init__(self):
        self.heard = []

    def lose(self, reason):
        self.heard.append(reason)


def test_who_waits_for_a_worker_of_dask_hears_of_whatever_ends_the_looks_at_it():
    waiting = Waiting()
    hosts = DaskHosts(Cluster())
    hosts._open.append(waiting)
    try:
        until(lambda: len(waiting.heard) > 1)  # and it goes on looking
    finally:
        hosts.close()
    assert set(waiting.heard) == {"planted"}


def test_who_waits_for_an_answer_hears_of_one_that_cannot_be_read(monkeypatch):
    """A line of brackets alone is deeper than what reads JSON goes."""
    talks = f"import sys; sys.stdout.buffer.write({HELLO!r} + b'[' * 60000 + b'\\n')"
    said = f"{talks}; sys.stdout.flush(); sys.stdin.buffer.read()"
    monkeypatch.setattr(shipping, "words", lambda **_: ["-c", said])
    worker = HostWorker(ADA, HostList((ADA,), Network({}, Link(1e-6, 1e9))))
    try:
        worker.await_hello()
        with pytest.raises(LaunchError, match="ada: what it says is no worker's"):
            worker.ask("list", within=60.0)
    finally:
        worker.close()
