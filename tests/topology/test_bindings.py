"""The same CPUs in the words of other tools, which read them as they are meant."""

import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apples.topology import CpuSet, hwloc_words, per_rank, synthetic
from apples.topology import cpu_bindings as bindings

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
def test_taskset_runs_where_it_is_told():
    cpu = min(__import__("os").sched_getaffinity(0))
    words = bindings(synthetic("pu:64"), CpuSet.of([cpu])).taskset.split()
    code = "import os; print(*os.sched_getaffinity(0))"
    done = subprocess.run(
        [*words, "python3", "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == [str(cpu)]
