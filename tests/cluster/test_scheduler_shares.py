"""The live scheduler with sd: real jobs on hosts of this machine that share them by topology daemons."""

import contextlib
import os
import signal
import subprocess
import sys
from collections import namedtuple

import pytest
from daemons import QUICK, Daemon, needs_cpusets
from sites import LONG, SHORT, Site, allowed, assert_no_job_is_left
from waiting import until

from apples.jobs import store
from apples.topology import CpuSet, DaemonOptions, find_backend, synthetic

Socket = namedtuple("Socket", "socket")
"""Of a daemon that is no part of this process."""


@pytest.fixture
def shared(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with contextlib.ExitStack() as stack:

        def started(daemons, *options):
            hosts = tmp_path / "hosts.toml"
            hosts.write_text(listed({f"h{k + 1}": one.socket for k, one in enumerate(daemons)}))
            one = Site(tmp_path, "sd", "--hosts", str(hosts), *options)
            stack.callback(one.close)
            one.start()
            return one

        yield started
    assert_no_job_is_left()


def listed(sockets):
    """Return a host list whose hosts have daemons at these sockets."""
    hosts = [
        f'[[host]]\nname = "{name}"\nseconds_per_point = 1e-6\ntopologyd = "{socket}"\n'
        for name, socket in sockets.items()
    ]
    return "".join(hosts) + "[default_link]\nlatency = 1e-6\nbandwidth = 1e9\n"


@pytest.fixture
def daemons():
    with contextlib.ExitStack() as stack:

        def made(*machines, options=QUICK):
            return [stack.enter_context(Daemon(machine, options=options)) for machine in machines]

        yield made


def cpus_of(daemon):
    """Return who has which CPUs of a host, by the attempt's folder."""
    return {one["job"]: one["cpus"] for one in daemon.ask("jobs")["jobs"]}


@pytest.mark.more
@pytest.mark.mpi
def test_a_guest_has_half_of_its_mates_cpus_and_each_has_all_where_it_is_alone(shared, daemons):
    first, second = daemons("pu:4", "pu:4")
    one = shared([first, second])
    mate = one.submit("--min", "1", "--max", "2", "--seconds", "1000", *LONG)
    owner = one.until(mate, "running")["record"]
    assert cpus_of(first) == cpus_of(second) == {owner: "0-3"}
    guest = one.submit("--min", "1", "--max", "2", "--seconds", "9", *LONG)
    shown = one.until(guest, "running")
    half = {owner: "0-1", shown["record"]: "2-3"}
    assert cpus_of(first) == cpus_of(second) == half
    assert (shown["hosts"], mate in shown["reason"]) == (["h1", "h2"], True)
    assert guest in one.job(mate)["reason"]
    assert [host["job"] for host in one.queue()["hosts"]] == [mate, mate]
    third = one.submit("--min", "1", *SHORT)
    assert "host" in one.job(third)["reason"]
    why = one.ask("queue", third)
    assert why["start"] is None
    assert why["start_unknown"]
    assert sorted(held["job"] for held in why["holding"]) == sorted([mate, guest])
    one.stop(signal.SIGKILL)
    one.start()
    until(lambda: one.job(guest)["state"] == "running")
    assert cpus_of(first) == half
    one.ask("cancel", mate)
    until(lambda: cpus_of(first) == cpus_of(second) == {shown["record"]: "0-3"})
    assert one.job(guest)["reason"] == ""
    one.ask("cancel", guest)
    assert one.ask("wait", third)["schema"] == "apples.run/1"
    until(lambda: cpus_of(first) == cpus_of(second) == {})
    assert [one.job(job)["attempt"] for job in (mate, guest, third)] == [1, 1, 1]


@pytest.mark.more
@pytest.mark.mpi
def test_a_job_whose_cpus_are_anothers_is_failed_with_the_word_of_the_daemon(shared, daemons):
    (daemon,) = daemons("pu:4")
    one = shared([daemon])
    daemon.ask("allocate", job="foreign", count=4, until="told")
    job = one.submit("--min", "1", "--max", "1", "--kind", "malleable", *SHORT)
    failed = one.until(job, "failed")
    assert (failed["exit_code"], failed["attempt"]) == (4, 3)
    assert "not now" in failed["reason"]
    assert cpus_of(daemon) == {"foreign": "0-3"}


@contextlib.contextmanager
def process(home):
    """Run a topology daemon of two CPUs, for it has no more than the machine, as a process."""
    words = ("--fence", "dry-run", "--topology", "pu:2", "--ignore", "*")
    with subprocess.Popen(
        [sys.executable, "-m", "apples", "topologyd", "--directory", home / "state", "--run", home, *words],
        stderr=subprocess.PIPE, text=True,
    ) as one:  # fmt: skip
        try:
            line = one.stderr.readline()
            assert str(home / "topologyd.sock") in line, line
            yield one
        finally:
            one.kill()


@pytest.mark.more
@pytest.mark.mpi
def test_a_daemon_that_is_killed_loses_its_host_and_no_job_until_it_is_back(
    shared, daemons, tmp_path
):
    home = tmp_path / "first"
    home.mkdir()
    (second,) = daemons("pu:2")
    with process(home) as first:
        one = shared([Socket(home / "topologyd.sock"), second])
        job = one.submit("--max", "1", "--kind", "malleable", "--seconds", "1000", *LONG)
        assert one.until(job, "running")["hosts"] == ["h1"]
        first.kill()
        silent = f"no topology daemon at {home / 'topologyd.sock'}"
        until(lambda: one.host("h1")["state"] == "lost")
        assert one.host("h1")["reason"].startswith(silent)
        wide = one.submit(
            "--min", "2", "--max", "2", "--kind", "malleable", "--seconds", "9", *SHORT
        )
        narrow = one.submit("--max", "1", "--kind", "malleable", "--seconds", "9", *SHORT)
        assert one.ask("wait", narrow)["schema"] == "apples.run/1"
        assert store.job(one.job(narrow)["record"]).record()["hosts"] == ["h2"]
        assert f"; h1 is lost: {silent}" in one.ask("queue", wide)["reason"]
        assert one.job(job)["state"] == "running"
        one.stop(signal.SIGKILL)
        one.start()
        until(lambda: one.job(job)["state"] == "running")
        assert one.host("h1")["reason"].startswith(silent)
        one.run("cancel", job)
        until(lambda: one.host("h1")["reason"].startswith("it has not confirmed that"))
    with process(home) as first:
        assert one.ask("wait", wide)["schema"] == "apples.run/1"
        assert one.job(wide)["attempt"] == 1
        until(lambda: one.host("h1")["state"] == one.host("h2")["state"] == "free")


@pytest.mark.more
def test_a_daemon_has_one_scheduler_whatever_the_hosts_are_called(shared, daemons, tmp_path):
    (daemon,) = daemons("pu:4")
    one = shared([daemon])
    (tmp_path / "again").symlink_to(daemon.socket)
    other = tmp_path / "other.toml"
    other.write_text(listed({"other": tmp_path / "again"}))
    done = one.run("scheduler", "--policy", "sd", "--name", "second", "--hosts", str(other))
    assert (done.returncode, len(done.stderr.splitlines())) == (4, 1), done.stderr
    assert done.stderr.endswith(" [host-busy]\n")
    assert str(daemon.socket) in done.stderr


@pytest.mark.more
def test_hosts_that_cannot_be_shared_are_refused_in_a_line(tmp_path, daemons):
    four, two, other = daemons("pu:4", "pu:2", "pu:4")
    (third,) = daemons("pu:4", options=DaemonOptions(sharing_factor=0.25))
    (single,) = daemons("pu:1")
    hosts = tmp_path / "hosts.toml"
    none = tmp_path / "none"
    for sockets, words, exit_code, code, values in (
        ({"a": ""}, (), 2, "field-missing", ("a: topologyd",)),
        ({"a": "d.sock"}, (), 2, "value-invalid", ("host[0].topologyd", "'d.sock'")),
        ({"a": none}, (), 4, "daemon-unreachable", (str(none),)),
        ({"a": four.socket, "b": four.socket}, (), 2, "daemon-shared", ("2", str(four.socket))),
        ({"a": four.socket, "b": two.socket}, (), 2, "cpus-differ", ("a has 4", "b has 2")),
        ({"a": third.socket}, (), 2, "sharing-factors-differ", ("0.25", "0.5")),
        ({"a": single.socket}, (), 2, "value-range", ("sharing_factor",)),
        ({"a": other.socket}, ("--slurm", "own"), 2, "outside-allocation", ("--slurm own",)),
    ):
        hosts.write_text(listed(sockets))
        run = ("scheduler", "--policy", "sd", "--hosts", str(hosts), *words)
        *found, line = Site(tmp_path, "sd").refused(*run)
        assert found == [exit_code, code], line
        assert all(value in line for value in values), line


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.cgroup
def test_the_ranks_of_jobs_that_share_are_kept_to_their_cpus_by_the_kernel(shared):
    needs_cpusets()
    mine = CpuSet.of(os.sched_getaffinity(0))
    machine = synthetic(f"core:{max(mine) + 1} pu:1")
    with Daemon(machine, find_backend("cpuset-v1")[0], QUICK) as daemon:
        one = shared([daemon])
        mate = one.submit("--max", "1", "--kind", "malleable", "--seconds", "1000", *LONG)
        owner = one.until(mate, "running")["record"]
        assert allowed(owner) == {str(mine)}
        guest = one.submit("--max", "1", "--kind", "malleable", "--seconds", "9", *LONG)
        second = one.until(guest, "running")["record"]
        cpus = cpus_of(daemon)
        assert CpuSet.parse(cpus[owner]) | CpuSet.parse(cpus[second]) == mine
        assert (allowed(owner), allowed(second)) == ({cpus[owner]}, {cpus[second]})
        one.ask("cancel", guest)
        until(lambda: allowed(owner) == {str(mine)})
        one.ask("cancel", mate)
        until(lambda: cpus_of(daemon) == {})
