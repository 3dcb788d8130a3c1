"""Malleable jobs over ssh, on the hosts of a real lab: moved over its network, gone from hosts they left."""

import contextlib
import hashlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from commands import command, refused
from labs import cut_off
from waiting import until

from apples.jobs import store
from apples.lab import entering
from apples.launch import client, marked, read
from apples.malleable import CONNECTION_ENDED, whole_manifests

HERE = Path(__file__).parents[1] / "jobs" / "sample"
FILES = [
    *("--template", str(HERE / "template.toml"), "--user", str(HERE / "user.toml")),
    *("--weather", "static", "--no-verify"),
]
ITERATIONS = 300
CUT_SECONDS = 8.0
"""Less than ssh waits for an answer before it ends the connection."""

pytestmark = [pytest.mark.mpi, pytest.mark.lab]


@pytest.fixture
def job(lab, tmp_path, state, monkeypatch):
    """Starts a job on all hosts of the lab that works until it is told to hurry."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(state))  # its path has room for sockets
    started = []

    def start(*options, through="ssh"):
        words = ["--hosts", lab.hosts, *FILES, "--blueprint", "blocked", *options]
        words += ["--set", f"iterations={ITERATIONS}", "--set", "pause=1.5"]
        words += ["--set", f"slow={tmp_path / 'slow'}"]
        done = command("apples", "run", "--detach", "--actuator", through, "--json", *words)
        started.append(done.document["id"])
        assert done.document["hosts"] == ["ada", "bob", "far"]
        return started[0]

    yield start
    for name in started:
        command("apples", "cancel", name)
        assert marked(name) == []
    assert {host: processes(lab, host) for host in ("ada", "bob", "far")} == {
        "ada": 0,
        "bob": 0,
        "far": 0,
    }


def processes(lab, host):
    """How many processes of a job are on a host: ranks, launchers, guards."""
    return len(residents(lab, host, "program.py", "hydra", "mpiexec", "node.supervisor"))


def residents(lab, host, *kinds):
    """Return the processes on a host that have one of these words in their command line."""
    inside = Path(f"/proc/{lab.machine(host).pid}/ns/pid").readlink()
    found = []
    for process in psutil.process_iter(["cmdline"]):
        try:
            there = Path(f"/proc/{process.pid}/ns/pid").readlink() == inside
        except OSError:
            continue
        words = " ".join(process.info["cmdline"] or ())
        if there and any(word in words for word in kinds):
            found.append(process.pid)
    return found


def hurried(name, tmp_path):
    """Let the job finish; return its document."""
    (tmp_path / "slow").write_text("".join(f"{host} 0\n" for host in ("ada", "bob", "far")))
    assert command("apples", "wait", name, "--timeout", "300").code == 0
    return json.loads(store.job(name).result.read_text())


def sequential(rows=60):
    return hashlib.sha256(np.full((rows, 4), float(ITERATIONS)).tobytes()).hexdigest()


def received(machine):
    """Bytes that a host of the lab has received over its link."""
    words = entering(machine, ["/usr/bin/env", "cat", "/proc/net/dev"])
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in said.splitlines()[2:]]
    return sum(int(words[1]) for words in lines if words[0] != "lo:")


def test_a_job_moves_over_the_network_and_leaves_nothing_on_the_hosts_it_left(lab, job, tmp_path):
    name = job()
    assert all(processes(lab, host) for host in ("ada", "bob", "far"))
    shrunk = command("apples", "resize", name, "--on", "bob,far", "--json")
    assert shrunk.document["hosts"] == ["bob", "far"]
    assert processes(lab, "ada") == 0
    swapped = command("apples", "resize", name, "--from", "bob", "--to", "ada", "--json")
    assert sorted(swapped.document["hosts"]) == ["ada", "far"]
    assert (processes(lab, "bob"), processes(lab, "ada") > 0) == (0, True)
    document = hurried(name, tmp_path)
    assert document["result_sha256"] == sequential()


def connection(lab, host):
    """Return the ssh by which a job is on a host; None while there is none."""
    address = lab.machine(host).address
    found = [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if address in (words := process.info["cmdline"] or ()) and words[0] == "ssh"
    ]
    return found[0] if found else None


def status(name):
    return command("apples", "jobs", name, "--json").document


def test_a_killed_connection_costs_its_host_alone_and_nothing_stays_there(lab, job, tmp_path):
    name = job("--commit", "0.2")
    until(lambda: status(name)["iteration"] >= 5)
    os.kill(connection(lab, "bob"), signal.SIGKILL)
    until(lambda: status(name)["hosts"] == ["ada", "far"])
    until(lambda: processes(lab, "bob") == 0)
    until(lambda: CONNECTION_ENDED in (status(name)["last_change"] or {"reason": ""})["reason"])
    assert hurried(name, tmp_path)["result_sha256"] == sequential()


def test_a_cut_that_ssh_survives_costs_a_job_nothing(lab, job, tmp_path):
    name = job()
    until(lambda: status(name)["iteration"] >= 5)
    before, begun = connection(lab, "bob"), time.monotonic()
    with cut_off(lab, "bob"):
        until(lambda: time.monotonic() - begun >= CUT_SECONDS)
    shrunk = command("apples", "resize", name, "--on", "bob,far", "--json")
    assert shrunk.document["hosts"] == ["bob", "far"]
    assert connection(lab, "bob") == before
    assert hurried(name, tmp_path)["result_sha256"] == sequential()
    assert status(name)["last_change"]["answer"] == "done"


def test_a_host_that_is_cut_off_for_longer_ends_its_part_and_the_job_goes_on_without(
    lab, job, tmp_path
):
    name = job("--commit", "0.2")
    until(lambda: status(name)["iteration"] >= 5)
    with cut_off(lab, "far"):
        until(lambda: status(name)["hosts"] == ["ada", "bob"])
        until(lambda: processes(lab, "far") == 0)
    assert hurried(name, tmp_path)["result_sha256"] == sequential()


def test_hosts_whose_head_is_killed_for_good_end_all_they_have_of_the_job(lab, job):
    name = job("--commit", "0.2")
    until(lambda: status(name)["iteration"] >= 5)
    hosts = ("ada", "bob", "far")
    folders = {host: folders_of(residents(lab, host, "program.py")) for host in hosts}
    assert all(folders.values())
    lost_here(name)
    until(lambda: not any(processes(lab, host) for host in hosts))
    assert not any(folder.exists() for host in hosts for folder in folders[host])


def folders_of(ranks):
    """Return the folders of the supervisors of some ranks, by what their environment says."""
    said = [word for pid in ranks for word in read(f"/proc/{pid}/environ").decode().split("\0")]
    name = "APPLES_MALLEABLE="
    return {Path(word.removeprefix(name)).parent for word in said if word.startswith(name)}


def test_a_lost_supervisor_costs_one_host_and_states_in_memory_are_enough(lab, job, tmp_path):
    (tmp_path / "state").mkdir()
    hide = ["/usr/bin/env", "mount", "-t", "tmpfs", "none", str(tmp_path / "state")]
    subprocess.run(entering(lab.machine("far"), hide), check=True)
    try:
        name = job("--commit", "0.2")
        log = store.job(name).log
        assert re.search(rf"\bfar\b.*{re.escape(str(tmp_path / 'state'))}", log.read_text())
        until(lambda: status(name)["iteration"] >= 10)
        (supervisor,) = residents(lab, "bob", "node.supervisor")
        os.kill(supervisor, signal.SIGKILL)
        until(lambda: status(name)["hosts"] == ["ada", "far"])
        until(lambda: processes(lab, "bob") == 0)
        assert hurried(name, tmp_path)["result_sha256"] == sequential()
    finally:
        unhide = ["/usr/bin/env", "umount", str(tmp_path / "state")]
        subprocess.run(entering(lab.machine("far"), unhide), check=True)


def lost_here(name):
    """Kill all of a job that runs on the machine it was started on, once it has a commit."""
    until(lambda: list(whole_manifests(store.job(name).commits)))
    supervisor = store.job(name).supervisor()
    # It would end what it finds of the job in all namespaces below its own.
    signal.pidfd_send_signal(supervisor, signal.SIGSTOP)
    here = Path("/proc/self/ns/pid").readlink()
    for pid in marked(name):  # connections among them
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/ns/pid").readlink() == here:
                os.kill(pid, signal.SIGKILL)
    signal.pidfd_send_signal(supervisor, signal.SIGKILL)
    assert select.select([supervisor], [], [], 120)[0]
    os.close(supervisor)


def test_a_job_goes_on_after_all_of_it_on_the_machine_it_was_started_on_was_killed(job, tmp_path):
    name = job("--commit", "0.2")
    lost_here(name)
    again = command("apples", "restart", name, "--json")
    assert again.code == 0, again.err
    assert (again.document["hosts"], again.document["attempt"]) == (["ada", "bob", "far"], 2)
    assert again.document["iteration"] > 0
    assert hurried(name, tmp_path)["result_sha256"] == sequential()


def test_a_job_goes_on_upon_the_hosts_that_are_left_when_one_was_lost_with_its_head(
    lab, job, tmp_path
):
    name = job("--commit", "0.2")
    with cut_off(lab, "far"):
        lost_here(name)
        again = command("apples", "restart", name, "--json")
        assert again.code == 0, again.err
        assert (again.document["hosts"], again.document["attempt"]) == (["ada", "bob"], 2)
        assert again.document["iteration"] > 0
        assert hurried(name, tmp_path)["result_sha256"] == sequential()
        until(lambda: processes(lab, "far") == 0)


def test_a_link_that_is_cut_while_data_moves_leaves_the_job_as_it_was(lab, job, tmp_path):
    rows = 2_000_000  # its part of them takes some four seconds over the link of the site
    name = job("--set", f"grid={rows}")
    command("apples", "resize", name, "--on", "ada,bob", "--json")
    far = lab.machine("far")
    words = [sys.executable, "-m", "apples", "resize", name, "--on", "ada,bob,far", "--json"]
    before = received(far)
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as growth:
        until(lambda: received(far) >= before + 3_000_000 or growth.poll() is not None)
        assert growth.poll() is None
        with cut_off(lab, "far"):
            _, said = growth.communicate(timeout=300)
    failure = json.loads(said.splitlines()[-1])
    assert failure["fields"]["reason"].startswith("far: ")
    assert (growth.returncode, failure["exit_code"]) == (4, 4)
    found = status(name)
    assert (found["hosts"], found["last_change"]["answer"]) == (["ada", "bob"], "refused")
    assert hurried(name, tmp_path)["result_sha256"] == sequential(rows)


def test_a_host_without_our_apples_is_named_before_the_launch(lab, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("apples.launch.targets.own_version", lambda _: "7.0")
    words = ["--hosts", lab.hosts, *FILES, "--actuator", "ssh"]
    done = command("apples", "run", *words, "--blueprint", "redistribute")
    assert done.code == 3
    assert "far" in done.err
    assert "7.0" in done.err


def test_a_job_moves_from_node_to_node_of_an_allocation(slurm, job, tmp_path, monkeypatch):
    held = client.run(["salloc", "--nodes=3", "--ntasks=4", "--no-shell"])
    number = held.partition("Granted job allocation ")[2].split()[0]
    try:
        monkeypatch.setenv("SLURM_JOB_ID", number)
        monkeypatch.setenv("SLURM_JOB_NODELIST", "ada,bob,far")
        name = job(through="slurm")
        assert all(processes(slurm, host) for host in ("ada", "bob", "far"))
        shrunk = command("apples", "resize", name, "--on", "bob,far", "--json")
        assert shrunk.document["hosts"] == ["bob", "far"]
        assert processes(slurm, "ada") == 0
        document = hurried(name, tmp_path)
        assert document["result_sha256"] == sequential()
    finally:
        client.run(["scancel", number])


@pytest.mark.usefixtures("slurm")
def test_what_cannot_be_moved_is_refused(lab):
    words = ["--hosts", lab.hosts, *FILES, "--blueprint", "redistribute"]
    failure = refused("apples", "run", *words, "--actuator", "slurm")
    assert (failure["exit_code"], failure["code"]) == (2, "allocation-required")
