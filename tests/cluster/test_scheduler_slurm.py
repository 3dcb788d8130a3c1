"""The live scheduler on the nodes of Slurm's allocations, which join and end while it runs."""

import hashlib
import json
import re
from datetime import datetime, timedelta

import numpy as np
import pytest
from sites import SHORT, Site
from waiting import until

from apples.cluster import AllocationWatch
from apples.jobs import store
from apples.launch import all_processes, client, read
from apples.weather import MODULE

pytestmark = [pytest.mark.mpi, pytest.mark.lab]
POOL = "pool"
MINUTES = 30
ITERATIONS = 3000


@pytest.fixture(params=["ssh", "srun"])
def reach(request):
    """How the nodes are reached."""
    return request.param


@pytest.fixture
def hosts(slurm, reach, tmp_path):
    """The lab's host list; where nodes are reached by steps, with a configuration by which ssh reaches none."""
    if reach == "ssh":
        return slurm.hosts
    closed = tmp_path / "closed"
    closed.write_text("Host *\n  ProxyCommand /bin/false\n")
    listed, text = tmp_path / "hosts.toml", slurm.hosts.read_text()
    listed.write_text(re.sub(r"(?m)^ssh_config = .*", f'ssh_config = "{closed}"', text))
    return listed


@pytest.fixture
def site(hosts, reach, state):
    """A scheduler on the allocations that are called so; everything is gone afterwards."""
    one = Site(state, "equipartition", "--hosts", str(hosts), "--slurm", POOL, "--reach", reach)
    try:
        yield one
        one.close()
    finally:
        client.run(["scancel", f"--name={POOL}"])


def allocated(*nodes):
    """Return the number of an allocation of these nodes."""
    words = ["salloc", f"--nodes={len(nodes)}", f"--nodelist={','.join(nodes)}", "--no-shell"]
    held = client.run([*words, f"--job-name={POOL}", f"--time={MINUTES}"])
    return re.search(r"Granted job allocation (\d+)", held)[1]


@pytest.mark.parametrize(("words", "slots"), [(["--ntasks=1"], 1), (["--exclusive"], 2)])
def test_a_node_has_the_cores_that_its_allocation_has(slurm, tmp_path, words, slots):
    """Slurm gives parts of nodes; ranks on the rest of one would compute where others do."""
    own = slurm.hosts.read_text()
    assert re.search(r'name = "ada"[^[]*slots = 2', own)
    where = ["salloc", "--nodes=1", "--nodelist=ada", "--no-shell", f"--time={MINUTES}"]
    number = re.search(r"Granted job allocation (\d+)", client.run([*where, *words]))[1]
    try:
        for listed in (slurm.hosts, None):
            watch = AllocationWatch([number], listed, tmp_path / f"{listed is None}.toml")
            (term,) = watch.look()
            assert (term.host, watch.hosts["ada"].slots) == ("ada", slots)
    finally:
        client.run(["scancel", number])


def ends_in(number, seconds):
    """Have an allocation end sooner than it was to."""
    end = datetime.now().astimezone() + timedelta(seconds=seconds)
    client.run(["scontrol", "update", f"jobid={number}", f"EndTime={end:%Y-%m-%dT%H:%M:%S}"])


@pytest.mark.more
def test_a_malleable_job_lives_on_when_its_allocation_ends_and_another_has_joined(site, tmp_path):
    site.start("no allocation of yours that runs is called so: no hosts until nodes join")
    early = site.submit("--min", "3", *SHORT)
    found = site.job(early)
    assert (found["state"], re.findall(r"\d+", found["reason"])) == ("held", ["3"])
    assert site.ask("cancel", early)["state"] == "cancelled"
    first = allocated("ada", "bob")
    until(lambda: {one["host"] for one in site.queue()["hosts"]} == {"ada", "bob"}, 180)
    until(lambda: {site.host(name)["state"] for name in ("ada", "bob")} == {"free"}, 180)
    assert [one["host"] for one in site.queue()["hosts"]] == ["ada", "bob"]
    slow = tmp_path / "slow"
    words = ("--set", f"iterations={ITERATIONS}", "--set", "pause=0.5", "--set", f"slow={slow}")
    words += ("--weather", "static", "--no-verify", "--seconds", "100000")
    job = site.submit("--min", "1", "--max", "2", *words)
    until(lambda: len(site.job(job)["hosts"]) == 2, 180)
    until(lambda: site.job(job)["iteration"], 180)
    rigid = site.submit("--min", "1", "--seconds", "100000", *SHORT)
    found = site.job(rigid)
    assert (found["state"], "100000 s" in found["reason"]) == ("held", True)
    assert site.ask("cancel", rigid)["state"] == "cancelled"
    allocated("far")
    until(lambda: "far" in [one["host"] for one in site.queue()["hosts"]], 180)
    until(lambda: site.host("far")["state"] == "free", 180)
    ends_in(first, 50)
    until(lambda: site.job(job)["hosts"] == ["far"], 180)
    assert first in re.findall(r"\d+", site.job(job)["reason"])
    client.run(["scancel", first])
    until(lambda: [one["host"] for one in site.queue()["hosts"]] == ["far"], 180)
    slow.write_text("ada 0\nbob 0\nfar 0\n")  # it hurries
    found = site.until(job, "finished", 180)
    assert (found["attempt"], found["exit_code"]) == (1, 0)
    document = json.loads(store.job(found["record"]).result.read_text())
    right = np.full((60, 4), float(ITERATIONS)).tobytes()
    assert document["result_sha256"] == hashlib.sha256(right).hexdigest()


def monitored(lab):
    """Return the names of the hosts of a lab that have slaves of the load monitor, whatever other labs have."""
    found, ours = set(), f"apples-lab-{lab.identity}".encode()
    for pid in all_processes():
        words = read(f"/proc/{pid}/cmdline").split(b"\0")
        if MODULE.encode() in words and ours in read(f"/proc/{pid}/cgroup"):
            found |= json.loads(words[words.index(MODULE.encode()) + 1]).keys()
    return found


@pytest.mark.more
def test_nodes_are_monitored_from_when_their_allocation_joins_until_it_is_over(
    lab, hosts, reach, state
):
    words = ("--hosts", str(hosts), "--slurm", POOL, "--reach", reach)
    site = Site(state, "migrate", *words)
    first = allocated("ada", "bob")
    try:
        site.start()
        until(lambda: monitored(lab) == {"ada", "bob"}, 180)
        second = allocated("far")
        until(lambda: monitored(lab) == {"ada", "bob", "far"}, 180)
        client.run(["scancel", first])
        until(lambda: monitored(lab) == {"far"}, 180)
        until(lambda: [one["host"] for one in site.queue()["hosts"]] == ["far"], 180)
        until(lambda: site.host("far")["state"] == "free", 180)
        client.run(["scancel", second])
        until(lambda: not monitored(lab), 180)
        allocated("ada")
        until(lambda: monitored(lab) == {"ada"}, 180)
        job = site.submit("--min", "1", *SHORT)
        assert site.until(job, "finished", 180)["hosts"] == []
    finally:
        try:
            site.close()
        finally:
            client.run(["scancel", f"--name={POOL}"])
    until(lambda: not monitored(lab))


@pytest.mark.parametrize("reach", ["ssh"], indirect=True)
@pytest.mark.usefixtures("slurm")
def test_what_names_no_allocation_is_refused_in_a_line(site, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    for words, code, value in (
        (("--slurm", "own"), "outside-allocation", "own"),
        (("--slurm", POOL, "--actuator", "local"), "option-conflict", "--actuator local"),
        (("--reach", "srun"), "option-not-applicable", "--reach"),
        (("--slurm", POOL, "--shared"), "option-conflict", "--shared"),
        (("--slurm", POOL, "--reach", "rsh"), "value-unknown", "--reach rsh"),
    ):
        exit_code, found, line = site.refused("scheduler", *words)
        assert (exit_code, found) == (2, code), line
        assert value in line
