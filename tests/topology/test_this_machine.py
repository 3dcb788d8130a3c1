"""This machine, and machines whose /sys is written into a folder."""

import os
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apples.errors import LaunchError, UsageError
from apples.topology import (
    CpuSet,
    live_topology,
    own_cpus,
    own_memory,
    read_sysfs,
    restricted,
    synthetic,
)

hwloc = pytest.mark.skipif(not shutil.which("lstopo-no-graphics"), reason="hwloc is not installed")


@pytest.fixture
def allowed():
    """Put back the CPUs this process may use."""
    before = os.sched_getaffinity(0)
    yield before
    os.sched_setaffinity(0, before)


@pytest.mark.parametrize("source", ["", "sys", pytest.param("lstopo", marks=hwloc)])
def test_this_machine_has_the_cpus_this_process_may_use(source, allowed):
    assert set(live_topology(source).cpus) == allowed
    os.sched_setaffinity(0, {max(allowed)})
    limited = live_topology(source)
    assert list(limited.cpus) == [max(allowed)]
    assert set(limited.disallowed) >= allowed - {max(allowed)}


@hwloc
def test_the_kernel_and_hwloc_describe_the_same_machine():
    ours, theirs = live_topology("sys"), live_topology("lstopo")
    assert ours.cpus == theirs.cpus
    assert set(ours.cores) == set(theirs.cores)
    assert set(ours.packages) == set(theirs.packages)
    assert [(n.number, n.cpus) for n in ours.nodes] == [(n.number, n.cpus) for n in theirs.nodes]
    assert ours.latencies == theirs.latencies


def test_a_source_that_is_not_there_is_said():
    with pytest.raises(UsageError) as raised:
        live_topology("magic")
    assert raised.value.code == "source-unknown"
    assert raised.value.fields == {"value": "magic", "known": ["lstopo", "pyhwloc", "sys"]}


def test_what_is_ours_is_asked_of_the_kernel():
    assert set(own_cpus()) == os.sched_getaffinity(0)
    memory = own_memory()
    assert memory is None or len(memory) >= 1


def write(folder, **files):
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


def sys_of(folder, *, old=False):
    """A machine of 2 packages x 2 cores x 2 threads, node 1 without CPUs' siblings, one CPU offline."""
    write(folder / "cpu", online="0-6", present="0-7")
    for cpu in range(7):
        package, core = cpu // 2 % 2, cpu % 2
        mates = [c for c in range(8) if c // 2 % 2 == package]
        threads = [c for c in mates if c % 2 == core]
        place = folder / f"cpu/cpu{cpu}/topology"
        names = ("core_siblings", "thread_siblings") if old else ("package_cpus", "core_cpus")
        for name, some in zip(names, (mates, threads), strict=True):
            if old:
                write(place, **{name: f"{sum(1 << c for c in some):08x}"})
            else:
                write(place, **{f"{name}_list": CpuSet.of(some)})
        write(place, physical_package_id=package, core_id=core)
        cache = folder / f"cpu/cpu{cpu}/cache/index0"
        write(cache, level=3, type="Unified", shared_cpu_list=CpuSet.of(mates))
    write(folder / "node", online="0-2")
    for node, cpus in enumerate(["0-1,4-5", "2-3,6-7", ""]):
        place = folder / f"node/node{node}"
        write(
            place, cpulist=cpus, distance=" ".join("10" if n == node else "21" for n in range(3))
        )
        write(place, meminfo=f"Node {node} MemTotal:       1024 kB")
    return folder


@pytest.mark.parametrize("old", [False, True])
def test_a_machine_is_read_from_what_the_kernel_says_old_or_new(tmp_path, old):
    topology = read_sysfs(sys_of(tmp_path, old=old))
    assert (str(topology.cpus), str(topology.offline)) == ("0-6", "7")
    assert [str(p) for p in topology.packages] == ["0-1,4-5", "2-3,6"]
    assert [str(c) for c in topology.cores] == ["0,4", "1,5", "2,6", "3"]
    assert [(n.number, n.memory, len(CpuSet(n.cpus))) for n in topology.nodes] == [
        (0, 2**20, 4), (1, 2**20, 3), (2, 2**20, 0),
    ]  # fmt: skip
    assert topology.latencies.distinct == (10, 21)
    assert topology.hops(0, 2) == 1
    assert 0 < topology.hops(0, 4) < topology.hops(0, 1) < 1


def test_a_kernel_that_contradicts_itself_still_gives_a_tree(tmp_path):
    folder = sys_of(tmp_path)
    write(folder / "cpu/cpu0/cache/index1", level=2, type="Unified", shared_cpu_list="1-2")
    topology = read_sysfs(folder)
    assert len(topology.packages) == 2
    assert sorted(cpu for core in topology.cores for cpu in core) == list(range(7))


def test_no_sys_is_said(tmp_path):
    with pytest.raises(LaunchError) as raised:
        read_sysfs(tmp_path)
    assert raised.value.code == "kernel-files-missing"
    assert raised.value.fields["file"].startswith(str(tmp_path))


@given(st.sets(st.integers(0, 23), min_size=1))
def test_what_an_outer_allocation_leaves_is_the_same_machine_with_less_in_it(cpus):
    whole = synthetic("package:2 [numa] l3:2 core:3 pu:2")
    rest = restricted(whole, CpuSet.of(cpus))
    assert set(rest.cpus) == cpus
    assert set(rest.disallowed) == set(whole.cpus) - cpus
    assert {c for p in rest.packages for c in p} == cpus
    for a in list(cpus)[:4]:
        for b in list(cpus)[:4]:
            assert (rest.hops(a, b) == 0) == (a == b)
    assert len(rest.nodes) == 2


def test_none_of_ours_on_the_machine_is_an_error():
    with pytest.raises(LaunchError) as raised:
        restricted(synthetic("pu:4"), CpuSet.parse("99"))
    assert raised.value.code == "cpus-not-ours"
    assert raised.value.fields == {"cpus": "99", "known": "0-3"}
