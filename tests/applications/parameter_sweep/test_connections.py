"""Connections to the workers of a sweep: whoever waits hears of whatever ends what listens for it."""

import os
import sys

import pytest
from waiting import until

from apples.applications import HELLO, DaskHosts, HostWorker
from apples.errors import LaunchError
from apples.resources import Host, HostList, Link, Network


class Cluster:
    """A Dask cluster of one worker, about which nothing can be learned later on."""

    address = "tcp://here:1"

    def __init__(self):
        self.client = self

    def run(self):
        """Stand for what Dask would run on its workers."""

    def sync(self, *_, **__):
        return {"tcp://there:1": {"name": "ada", "slots": 1, "python": "python"}}

    def submit(self, *_, **__):
        """Return a future that has no result yet."""
        return self

    def workers(self):
        self.looks = getattr(self, "looks", 0) + 1
        raise RuntimeError("planted")


@pytest.mark.more
def test_who_waits_for_a_worker_of_dask_hears_of_whatever_ends_the_looks_at_it():
    cluster = Cluster()
    hosts = DaskHosts(cluster)
    waiting = hosts.connect("ada")
    try:
        until(lambda: waiting.reason and cluster.looks > 1)  # and it goes on looking
    finally:
        hosts.close()
    assert waiting.reason == "planted"
    with pytest.raises(LaunchError) as raised:
        waiting.ask("list")
    assert raised.value.code == "host-lost"
    assert raised.value.fields == {"host": "ada", "reason": "planted"}


def test_who_waits_for_an_answer_hears_of_one_that_cannot_be_read(tmp_path, monkeypatch):
    """A line of brackets alone is deeper than what reads JSON goes."""
    ssh = tmp_path / "ssh"
    ssh.write_text(
        f"#!{sys.executable}\nimport sys; sys.stdout.buffer.write({HELLO!r} + b'[' * 60000 + b'\\n')\n"
        "sys.stdout.flush(); sys.stdin.buffer.read()\n"
    )
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    ada = Host("ada", address="192.0.2.1")
    worker = HostWorker(ada, HostList((ada,), Network({}, Link(1e-6, 1e9))))
    try:
        worker.await_hello()
        with pytest.raises(LaunchError) as raised:
            worker.ask("list", within=60.0)
    finally:
        worker.close()
    assert raised.value.code == "host-lost"
    assert raised.value.fields["host"] == "ada"
    assert "recursion" in raised.value.fields["reason"]
