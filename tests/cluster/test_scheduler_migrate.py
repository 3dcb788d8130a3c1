"""The live scheduler moves jobs by measured load: an owner comes back to a host of a lab."""

import contextlib
import signal
import subprocess
import time

import pytest
from cluster.test_scheduler_ssh import answered, site  # noqa: F401 - fixtures
from sites import LONG
from waiting import until

from apples.lab import entering, environment
from apples.launch import all_processes, read
from apples.weather import MODULE

pytestmark = [pytest.mark.mpi, pytest.mark.lab, pytest.mark.more]


@contextlib.contextmanager
def hog(lab, host):
    """Have an owner compute on a host."""
    words = ["/usr/bin/env", "python3", "-c", "while True: pass"]
    process = subprocess.Popen(entering(lab.machine(host), words), env=environment(lab))
    try:
        yield
    finally:
        process.kill()
        process.wait()


def slaves(lab):
    """Return the slaves on a lab's hosts: not its ssh clients, nor what other labs of this machine have."""
    words = {pid: read(f"/proc/{pid}/cmdline").split(b"\0") for pid in all_processes()}
    ours = f"apples-lab-{lab.identity}".encode()
    there = [pid for pid, line in words.items() if MODULE.encode() in line]
    return [pid for pid in there if ours in read(f"/proc/{pid}/cgroup")]


def test_a_job_leaves_the_host_whose_owner_is_back_and_says_why(site, lab):  # noqa: F811
    text = lab.hosts.read_text().replace('name = "ada"\n', 'name = "ada"\nowner_first = true\n', 1)
    hosts = lab.hosts.with_name("owners.toml")
    hosts.write_text(text)
    # Only owners move jobs: what else wants a host of this machine's labs for a moment is not the test's.
    one = site(hosts, "migrate", "--option", "shorter=0.9")
    answered(one, "ada", "bob", "far")
    words = ("--min", "1", "--max", "1", "--kind", "malleable", *LONG)
    first = one.submit(*words)
    assert one.until(first, "running", 180)["hosts"] == ["ada"]
    until(lambda: one.job(first)["iteration"], 180)
    with hog(lab, "ada"):
        began = time.monotonic()
        until(lambda: one.job(first)["hosts"] != ["ada"], 180)
        print(f"ordered to leave, and left, after {time.monotonic() - began:.1f} s")
        until(lambda: one.host("ada")["state"] == "free", 180)
        assert "ada" in one.job(first)["reason"].split()
        gone = one.job(first)["hosts"]  # which of the others is by the loads measured there
        assert gone in (["bob"], ["far"])
        second, third = one.submit(*words), one.submit(*words)
        assert sorted([*gone, *one.until(second, "running", 180)["hosts"]]) == ["bob", "far"]
        assert one.job(third)["state"] == "queued"
    assert one.until(third, "running", 180)["hosts"] == ["ada"]
    assert one.job(first)["resizes"] == 1
    one.stop(signal.SIGKILL)
    until(lambda: slaves(lab) == [])
    one.start()
