"""Starting and ending jobs over and over, real ones, that do all they can to stay."""

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from bad_jobs import BAD_JOBS, Started
from daemons import QUICK, Daemon, needs_cpusets
from waiting import until

from apples.topology import CpuContainer, CpuSet, DaemonOptions, find_backend, starter, synthetic

pytestmark = pytest.mark.cgroup
TREES = [Path("/sys/fs/cgroup") / tree for tree in ("cpuset", "unified", "freezer")]


def groups_of(mark):
    found = []
    for tree in TREES:
        found += list(tree.glob(f"topologyd-{mark}-*")) if tree.is_dir() else []
    return found


def on_cpusets(options):
    """Return a daemon on cpusets of this machine's kernel."""
    isolation, _ = find_backend("cpuset-v1")
    cpus, _ = isolation.universe()
    return Daemon(synthetic(f"core:{max(cpus) + 1} pu:1"), isolation, options)


@pytest.fixture
def daemon():
    needs_cpusets()
    with on_cpusets(QUICK) as running:
        yield running


@pytest.fixture
def punctual():
    """Return a daemon that puts what is not gone within the promised 2 s into quarantine, which is a problem."""
    needs_cpusets()
    with on_cpusets(replace(QUICK, kill_seconds=DaemonOptions().kill_seconds)) as running:
        yield running


@pytest.mark.more
def test_a_hundred_jobs_start_and_end_and_nothing_is_left(punctual):
    daemon = punctual
    kinds = list(BAD_JOBS.values())
    whole = daemon.ask("status")["free"]
    bystander = subprocess.Popen(["/bin/sleep", "1000"])
    started = []
    with daemon.client() as asking:
        for cycle in range(100):
            job = f"cycle{cycle}"
            asking.ask("allocate", job=job, count=1, until="told")
            process = Started(daemon.socket, job, "sh", "-c", kinds[cycle % len(kinds)])
            started.append(process)
            container = asking.ask("jobs", job=job)["jobs"][0]["pen"]
            until(lambda container=container, p=process: entered(daemon, container, p))
            asking.ask("deallocate", job=job)
            assert not daemon.isolation.processes(container)
    for process in started:
        process.wait()
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
    assert daemon.ask("status")["free"] == whole
    assert not groups_of(daemon.node.mark)
    assert not daemon.node.problems


def entered(daemon, container, process):
    """Whether the command is in its container, or was and is gone already."""
    return bool(daemon.isolation.processes(container)) or process.over()


def test_a_pen_that_nobody_knows_is_removed_if_empty_and_adopted_if_not(daemon):
    mark, isolation = daemon.node.mark, daemon.isolation
    empty, full = f"topologyd-{mark}-gone-70", f"topologyd-{mark}-lost-71"
    cpus, mems = isolation.universe()
    process = subprocess.Popen(["/bin/sleep", "1000"])

    async def lose():  # between two looks of the daemon, which would find the one empty too
        isolation.fit(CpuContainer(full, CpuSet.of([max(cpus)]), mems))
        isolation.admit(full, process.pid)
        isolation.fit(CpuContainer(empty, CpuSet.of([max(cpus)]), mems))

    asyncio.run_coroutine_threadsafe(lose(), daemon.loop).result(120)
    until(lambda: "lost" in daemon.jobs)
    until(lambda: empty not in isolation.names())
    assert process.poll() is None
    assert daemon.jobs["lost"]["cpus"] == str(max(cpus))
    process.kill()
    process.wait()
    until(lambda: not daemon.jobs)
    assert not groups_of(mark)


def test_what_runs_is_contained_from_its_first_instruction_on(daemon, tmp_path):
    said = tmp_path / "said"
    daemon.ask("allocate", job="inside", count=1, until="told")
    cpus = daemon.jobs["inside"]["cpus"]
    program = f"taskset -cp $$ >{said}; (setsid taskset -cp 0-1 $$; taskset -cp $$) >>{said}"
    command = [sys.executable, "-I", "-S", starter.__file__, str(daemon.socket), "inside"]
    before = os.sched_getaffinity(0)
    subprocess.run([*command, "sh", "-c", program], check=True, capture_output=True, timeout=120)
    lists = {line.rpartition(":")[2].strip() for line in said.read_text().splitlines() if line}
    assert lists == {cpus}
    assert os.sched_getaffinity(0) == before
    daemon.ask("deallocate", job="inside")
