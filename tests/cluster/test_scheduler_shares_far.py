"""The live scheduler with sd on other machines: malleable jobs share the hosts of a lab by the daemons there."""

import contextlib
import os
import re
import signal
import subprocess
import sys

import labs
import pytest
from daemons import needs_cpusets
from sites import LONG, SHORT, Site, allowed
from waiting import until

from apples import lab as emulation
from apples.lab import entering, environment
from apples.launch import all_processes, client, marked, read
from apples.topology import TopologyClient

pytestmark = [pytest.mark.mpi, pytest.mark.lab, pytest.mark.cgroup, pytest.mark.more]
NAMES = ("ada", "bob", "eve")
LAB = 'name = "shares"\n[[site]]\nname = "here"\n' + "".join(
    f'[[host]]\nname = "{name}"\nsite = "here"\n' for name in NAMES
)
GUEST = ("--min", "1", "--max", "3", "--seconds", "9", *LONG)
MATE = ("--min", "1", "--max", "3", "--seconds", "1000", *LONG)


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A lab of three hosts, each of which may use all CPUs of this machine."""
    needs_cpusets()
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs")
    folder = tmp_path_factory.mktemp("wide")
    slurm = "false" if labs.lacking(slurm=True) else "true"
    (folder / "lab.toml").write_text(f"slurm = {slurm}\n{LAB}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        made = emulation.up(folder / "lab.toml")
        place = emulation.labs() / made.name
    yield made
    emulation.down(place)
    assert labs.belongings(place) == set()


class FarDaemons:
    """The topology daemons of the hosts of a lab, each a process there."""

    def __init__(self, lab, folder):
        self.lab, self.folder, self.processes = lab, folder, {}

    def socket(self, name):
        return self.folder / name / "topologyd.sock"

    def start(self, name):
        home = self.folder / name
        home.mkdir(exist_ok=True)
        words = [sys.executable, "-m", "apples", "topologyd", "--directory", str(home / "state")]
        words += ["--run", str(home), "--fence", "cpuset-v1", "--ignore", "*"]
        self.processes[name] = one = subprocess.Popen(
            entering(self.lab.machine(name), words), env=environment(self.lab),
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        line = one.stderr.readline()
        assert str(self.socket(name)) in line, line

    def kill(self, name):
        """Kill the daemon itself, which is a child of what entered the host, or that process."""
        one = self.processes.pop(name)
        for pid in all_processes():
            if str(self.folder / name / "state").encode() in read(f"/proc/{pid}/cmdline"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        one.wait(30)
        one.stderr.close()

    def cpus(self, name):
        """Return which attempt has which CPUs of a host."""
        with TopologyClient(self.socket(name), seconds=60.0) as client:
            return {one["job"]: one["cpus"] for one in client.ask("jobs")["jobs"]}

    def listed(self, hosts):
        """Return the text of the lab's host list, each host with its daemon."""
        return re.sub(
            r'(?m)^name = "(\w+)"$',
            lambda found: (
                f'{found[0]}\nseconds_per_point = 1e-6\ntopologyd = "{self.socket(found[1])}"'
            ),
            re.sub(r"(?m)^seconds_per_point = .*\n", "", hosts.read_text()),
        )


@pytest.fixture
def daemons(wide, tmp_path):
    made = FarDaemons(wide, tmp_path)
    for name in NAMES:
        made.start(name)
    yield made
    for name in [*made.processes]:
        made.kill(name)


@pytest.fixture
def site(state, wide, daemons, tmp_path):
    hosts = tmp_path / "hosts.toml"
    hosts.write_text(daemons.listed(wide.hosts))
    one = Site(state, "sd", "--hosts", str(hosts), "--actuator", "ssh")
    one.start()
    yield one
    one.close()
    until(lambda: all(daemons.cpus(name) == {} for name in daemons.processes), 90)


def everywhere(daemons, expected):
    """Wait until an attempt has these CPUs on each host, and no other has any."""
    until(lambda: all(daemons.cpus(name) == expected for name in NAMES), 120)


def test_guest_halves_its_mate_on_far_hosts_and_the_mate_has_all_again(site, daemons):
    mate = site.submit(*MATE)
    owner = site.until(mate, "running", 180)["record"]
    until(lambda: len(site.job(mate)["hosts"]) == 3, 180)
    mine = daemons.cpus("ada")[owner]
    everywhere(daemons, {owner: mine})
    assert allowed(owner) == {mine}
    guest = site.submit(*GUEST)
    second = site.until(guest, "running", 180)["record"]
    shared = daemons.cpus("ada")
    assert shared.keys() == {owner, second}
    assert not set(shared[owner].split(",")) & set(shared[second].split(","))
    everywhere(daemons, shared)
    until(lambda: (allowed(owner), allowed(second)) == ({shared[owner]}, {shared[second]}))
    before = site.job(mate)["iteration"]
    until(lambda: site.job(mate)["iteration"] > before, 120)
    assert site.ask("cancel", guest)["state"] == "cancelled"
    everywhere(daemons, {owner: mine})
    until(lambda: allowed(owner) == {mine})
    assert [site.job(job)["attempt"] for job in (mate, guest)] == [1, 1]
    assert site.ask("cancel", mate)["state"] == "cancelled"
    everywhere(daemons, {})
    assert [marked(record) for record in (owner, second)] == [[], []]


@pytest.mark.parametrize("reach", ["ssh", "srun"])
def test_guest_halves_its_mate_on_the_nodes_of_an_allocation(
    state, wide, daemons, tmp_path, monkeypatch, reach
):
    if not wide.slurm_conf:
        pytest.skip(labs.lacking(slurm=True))
    monkeypatch.setenv("SLURM_CONF", wide.slurm_conf)
    text = daemons.listed(wide.hosts)
    if reach == "srun":  # ssh reaches none of them
        closed = tmp_path / "closed"
        closed.write_text("Host *\n  ProxyCommand /bin/false\n")
        text = re.sub(r"(?m)^ssh_config = .*", f'ssh_config = "{closed}"', text)
    hosts = tmp_path / "hosts.toml"
    hosts.write_text(text)
    pool = f"shares-{reach}"
    words = ["salloc", "--nodes=3", "--no-shell", f"--job-name={pool}", "--time=30"]
    client.run([*words, "--exclusive"])
    site = Site(state, "sd", "--hosts", str(hosts), "--slurm", pool, "--reach", reach)
    try:
        site.start()
        mate = site.submit(*MATE)
        owner = site.until(mate, "running", 180)["record"]
        until(lambda: len(site.job(mate)["hosts"]) == 3, 180)
        guest = site.submit(*GUEST)
        second = site.until(guest, "running", 180)["record"]
        shared = daemons.cpus("ada")
        assert shared.keys() == {owner, second}
        everywhere(daemons, shared)
        until(lambda: (allowed(owner), allowed(second)) == ({shared[owner]}, {shared[second]}))
        assert site.ask("cancel", guest)["state"] == "cancelled"
        everywhere(daemons, {owner: f"{shared[owner]}-{shared[second]}"})
        if reach == "srun":  # its steps end with the allocation, and the job with them
            assert site.ask("cancel", mate)["state"] == "cancelled"
            everywhere(daemons, {})
        else:
            client.run(["scancel", f"--name={pool}"])
            everywhere(daemons, {})
            until(lambda: site.job(mate)["state"] == "held", 60)
    finally:
        site.close()
        client.run(["scancel", f"--name={pool}"])
    assert [marked(record) for record in (owner, second)] == [[], []]


def test_jobs_that_share_outlive_the_kill_of_scheduler_and_of_connections(site, daemons):
    mate = site.submit(*MATE)
    owner = site.until(mate, "running", 180)["record"]
    until(lambda: len(site.job(mate)["hosts"]) == 3, 180)
    guest = site.submit(*GUEST)
    second = site.until(guest, "running", 180)["record"]
    shared = daemons.cpus("bob")
    site.stop(signal.SIGKILL)
    until(lambda: agents(site) == [])
    site.start()
    until(lambda: site.job(guest)["state"] == site.job(mate)["state"] == "running", 180)
    killed = agents(site)
    assert killed
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    until(lambda: agents(site) and not {*agents(site)} & {*killed}, 60)
    everywhere(daemons, shared)
    kill_job(second)
    until(lambda: site.job(guest)["state"] == "failed", 180)
    until(lambda: all(daemons.cpus(name).keys() == {owner} for name in NAMES), 120)
    assert marked(second) == []
    assert site.ask("cancel", mate)["state"] == "cancelled"


def test_host_whose_daemon_is_killed_is_lost_with_a_remedy_until_it_is_back(site, daemons):
    daemons.kill("bob")
    until(lambda: site.host("bob")["state"] == "lost", 60)
    # A connection that the kill interrupts is the first reason; the next question names the remedy.
    missing = f"no topology daemon at {daemons.socket('bob')}"
    until(lambda: missing in site.host("bob")["reason"], 60)
    assert site.host("bob")["reason"].endswith("start one there with: apples topologyd")
    job = site.submit("--min", "2", "--max", "2", "--kind", "malleable", "--seconds", "9", *SHORT)
    assert site.ask("wait", job)["schema"] == "apples.run/1"
    daemons.start("bob")
    until(lambda: site.host("bob")["state"] == "free", 60)


def agents(site):
    """Return the processes here that lead to the host agents of a scheduler."""
    return [
        pid
        for pid in all_processes()
        if (line := read(f"/proc/{pid}/cmdline")).startswith(b"ssh\0")
        and b"-S -c" in line
        and str(site.folder).encode() in read(f"/proc/{pid}/environ")
    ]


def kill_job(record):
    """Kill the processes of a job on this machine that are no processes of the lab's hosts."""
    for pid in marked(record):
        if b"PMI_RANK=" not in read(f"/proc/{pid}/environ"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_job_has_cpus_that_meet_its_requirement_under_another_policy(
    state, wide, daemons, tmp_path
):
    hosts = tmp_path / "hosts.toml"
    hosts.write_text(daemons.listed(wide.hosts))
    site = Site(state, "easy", "--hosts", str(hosts), "--actuator", "ssh")
    site.start()
    try:
        first, last = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
        job = site.submit("--min", "2", "--require", f"CPU_LIST={last}", *LONG)
        record = site.until(job, "running", 180)["record"]
        other = site.submit("--min", "1", "--seconds", "9", *LONG)
        free = site.until(other, "running", 180)["record"]
        until(lambda: allowed(record) == {str(last)}, 60)
        assert str(first) in allowed(free).pop()
        assert sum(daemons.cpus(name) == {record: str(last)} for name in NAMES) == 2
        never = site.submit("--min", "1", "--require", "CPU_LIST=4095", *LONG)
        assert site.ask("cancel", other)["state"] == "cancelled"
        failed = site.until(never, "failed", 180)
        assert (failed["exit_code"], failed["attempt"]) == (3, 1)
        assert "CPU_LIST" in failed["reason"]
        site.stop(signal.SIGKILL)
        site.start()
        assert site.ask("cancel", job)["state"] == "cancelled"
        until(lambda: all(daemons.cpus(name) == {} for name in NAMES), 60)
        until(lambda: all(site.host(name)["state"] == "free" for name in NAMES), 60)
    finally:
        site.close()
