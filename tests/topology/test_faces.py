"""What is printed of machines and of bindings, and that other tools read it as it is meant."""

import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apples.topology import CpuSet, synthetic
from apples.topology.bindings import bindings, hwloc_words, per_rank
from apples.topology.machine import restricted
from apples.topology.sources.synthetic import origin
from apples.views.topology import draw

MACHINE = synthetic("package:2 [numa] l3:2 core:3 pu:2")
SETS = st.sets(st.integers(0, 23), min_size=1).map(CpuSet.of)


@given(SETS, st.integers(1, 30))
def test_ranks_get_equal_parts_of_the_cpus_and_nothing_is_given_twice_unless_it_must(cpus, ranks):
    shares = per_rank(MACHINE, cpus, ranks)
    sizes = [len(share) for share in shares]
    assert len(shares) == ranks
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1
    assert {c for share in shares for c in share} <= set(cpus)
    if ranks <= len(cpus):
        assert sum(sizes) == len(cpus)
        assert {c for share in shares for c in share} == set(cpus)


@given(SETS, st.integers(1, 6))
def test_every_tool_is_told_the_same_cpus(cpus, ranks):
    said = bindings(MACHINE, cpus, ranks)
    assert CpuSet.parse(said.taskset.split()[-1]) == cpus
    masks = re.search(r"mask_cpu:(\S+)", said.srun)[1].split(",")
    assert len(masks) == ranks
    assert [CpuSet(int(mask, 16)) for mask in masks] == list(per_rank(MACHINE, cpus, ranks))
    places = re.findall(r"\{([\d,]+)\}", said.omp_places)
    assert [CpuSet.parse(place) for place in places] == [
        CpuSet(core.mask & cpus.mask) for core in MACHINE.cores if core.mask & cpus.mask
    ]
    assert CpuSet.parse(said.gomp_cpu_affinity.replace(" ", ",")) == cpus


@pytest.mark.skipif(not shutil.which("hwloc-calc"), reason="hwloc is not installed")
@pytest.mark.parametrize("text", ["0", "0-31", "0-31,64-95", "31-32,127"])
def test_hwloc_reads_our_bitmaps_as_the_same_cpus(text):
    machine = [
        "hwloc-calc",
        "-i",
        "package:2 core:32 pu:2",
        "--physical-output",
        "--intersect",
        "PU",
    ]
    cpus = CpuSet.parse(text)
    done = subprocess.run(
        [*machine, hwloc_words(cpus)], capture_output=True, text=True, check=True, timeout=60
    )
    assert CpuSet.parse(done.stdout.strip()) == cpus


@pytest.mark.skipif(not shutil.which("taskset"), reason="no taskset here")
@pytest.mark.hardware
def test_taskset_runs_where_it_is_told():
    cpu = min(__import__("os").sched_getaffinity(0))
    words = bindings(synthetic("pu:64"), CpuSet.of([cpu])).taskset.split()
    code = "import os; print(*os.sched_getaffinity(0))"
    done = subprocess.run(
        [*words, "python3", "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == [str(cpu)]


def test_a_map_shows_parts_inside_parts_memory_and_who_has_what():
    held = {"job 7": CpuSet.parse("0-2"), "job 8": CpuSet.parse("12-23")}
    assert draw(restricted(MACHINE, CpuSet.parse("0-5,12-23")), held).splitlines() == [
        "18 CPUs, 9 cores, 2 packages, 2 memory nodes",
        "package 0, node 0, L3  [a a] [a 3] [4 5]",
        "package 1, node 1",
        "  L3  [ b  b] [ b  b] [ b  b]",
        "  L3  [ b  b] [ b  b] [ b  b]",
        "not ours: CPUs 6-11",
        "a = job 7 (0-2)",
        "b = job 8 (12-23)",
    ]


def test_a_map_shows_the_latencies_of_a_small_machine():
    assert draw(origin(16)).splitlines() == [
        "16 CPUs, 16 cores, 0 packages, 4 memory nodes; latencies 10 16",
        "node 0  [0] [1] [2] [3]",
        "node 1  [4] [5] [6] [7]",
        "node 2  [ 8] [ 9] [10] [11]",
        "node 3  [12] [13] [14] [15]",
        "latency   0  1  2  3",
        "      0  10 16 16 16",
        "      1  16 10 16 16",
        "      2  16 16 10 16",
        "      3  16 16 16 10",
    ]


@given(st.integers(1, 4), st.integers(1, 9), st.integers(1, 4))
def test_no_line_of_a_map_is_wider_than_a_terminal(packages, cores, threads):
    for line in draw(synthetic(f"package:{packages} core:{cores * 4} pu:{threads}")).splitlines():
        assert len(line) <= 80
