"""The live scheduler on the nodes of Slurm's allocations, which join and end while it runs."""

import contextlib
import hashlib
import json
import os
import re
import signal
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from sites import SHORT, Site, logins
from waiting import until

from apples.jobs import store
from apples.launch.slurm import client

pytestmark = [pytest.mark.mpi, pytest.mark.lab]
POOL = "pool"
MINUTES = 30
ITERATIONS = 3000


@pytest.fixture
def site(slurm, monkeypatch):
    """A scheduler on the allocations that are called so; everything is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="s-", dir="/tmp") as folder:
        monkeypatch.setenv("XDG_STATE_HOME", folder)
        one = Site(Path(folder), "equipartition", "--hosts", str(slurm.hosts), "--slurm", POOL)
        yield one
        if one.process is not None:
            one.close()
        client.run(["scancel", f"--name={POOL}"])
        for pid in logins(folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: logins(folder) == [])


def allocated(*nodes):
    """Return the number of an allocation of these nodes."""
    words = ["salloc", f"--nodes={len(nodes)}", f"--nodelist={','.join(nodes)}", "--no-shell"]
    held = client.run([*words, f"--job-name={POOL}", f"--time={MINUTES}"])
    return re.search(r"Granted job allocation (\d+)", held)[1]


def ends_in(number, seconds):
    """Have an allocation end sooner than it was to."""
    end = datetime.now().astimezone() + timedelta(seconds=seconds)
    client.run(["scontrol", "update", f"jobid={number}", f"EndTime={end:%Y-%m-%dT%H:%M:%S}"])


@pytest.mark.more
def test_a_malleable_job_lives_on_when_its_allocation_ends_and_another_has_joined(site, tmp_path):
    first = allocated("ada", "bob")
    site.start()
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
    assert (found["state"], "stay for the 100000 s" in found["reason"]) == ("held", True)
    assert site.ask("cancel", rigid)["state"] == "cancelled"
    allocated("far")
    until(lambda: "far" in [one["host"] for one in site.queue()["hosts"]], 180)
    until(lambda: site.host("far")["state"] == "free", 180)
    ends_in(first, 50)
    until(lambda: site.job(job)["hosts"] == ["far"], 180)
    assert f"allocation {first} ends in" in site.job(job)["reason"]
    client.run(["scancel", first])
    until(lambda: [one["host"] for one in site.queue()["hosts"]] == ["far"], 180)
    slow.write_text("ada 0\nbob 0\nfar 0\n")  # it hurries
    found = site.until(job, "finished", 180)
    assert (found["attempt"], found["exit_code"]) == (1, 0)
    document = json.loads(store.job(found["record"]).result.read_text())
    right = np.full((60, 4), float(ITERATIONS)).tobytes()
    assert document["result_sha256"] == hashlib.sha256(right).hexdigest()


@pytest.mark.usefixtures("slurm")
def test_what_names_no_allocation_is_refused_in_a_line(site, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    for words, text in (
        (("--slurm", "nobody"), "--slurm nobody: no allocation of yours that runs is called so"),
        (("--slurm", "own"), "--slurm own: this is inside of no allocation"),
        (("--slurm", POOL, "--actuator", "local"), "--slurm: its nodes are reached over ssh"),
        (("--slurm", POOL, "--shared"), "--slurm: an allocation is of one user"),
        (("--slurm", POOL, "--policy", "migrate"), "looks at the load of hosts is not built"),
    ):
        done = site.run("scheduler", *words)
        assert (done.returncode, text in done.stderr) == (2, True), done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr
