"""hwloc's own collection of machines, where it is at hand: APPLES_TOPOLOGY_DATA names the folder.

No clone has it. Its INDEX.md says of each file what pyhwloc counted.
"""

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from apples.topology import CpuSet, Requirement, draw, fit, load_topology

FOLDER = Path(
    os.environ.get("APPLES_TOPOLOGY_DATA") or Path(__file__).parents[3] / "shared/data/topology"
)
FILES = sorted(FOLDER.glob("*.xml"))
INDEX = FOLDER / "INDEX.md"
CALC = shutil.which("hwloc-calc")

pytestmark = pytest.mark.skipif(not FILES, reason="hwloc's test machines are not at hand")


def called(path):
    return path.name


def counted():
    """File -> the counts of the index."""
    rows = [line.split("|") for line in INDEX.read_text().splitlines() if ".xml |" in line]
    return {row[1].strip(): [cell.strip() for cell in row[3:8]] for row in rows}


@pytest.mark.parametrize("path", FILES, ids=called)
def test_counts_and_latencies_are_hwlocs(path):
    topology = load_topology(path)
    pus, cores, packages, nodes, latencies = counted()[path.name]
    assert [len(topology.cpus), len(topology.cores), len(topology.packages)] == [
        int(pus), int(cores), int(packages),
    ]  # fmt: skip
    assert len(topology.nodes) == int(nodes)
    assert " ".join(map(str, topology.latencies.distinct)) == latencies.replace("none", "")


@pytest.mark.skipif(not CALC, reason="hwloc-calc is not installed")
@pytest.mark.parametrize("path", FILES, ids=called)
def test_which_cpus_are_in_which_core_package_and_node_is_what_hwloc_says(path):
    if b'<topology version="3' in path.read_bytes()[:300]:
        pytest.skip("hwloc 2 reads no format 3")

    def calc(*words):
        command = [CALC, "-i", str(path), "--physical-output", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        return {CpuSet.parse(line) for line in done.stdout.split()}

    topology = load_topology(path)
    every = {"core": topology.cores, "package": topology.packages}
    for kind, ours in every.items():
        for i in random.Random(0).sample(range(len(ours)), min(4, len(ours))):
            (theirs,) = calc("--intersect", "PU", f"{kind}:{i}") or {CpuSet()}
            assert theirs in set(ours)
    assert calc("--intersect", "PU", "all") == {topology.cpus}


@pytest.mark.parametrize("path", FILES, ids=called)
def test_every_machine_is_drawn_with_all_its_cpus_and_allocates(path):
    topology = load_topology(path)
    text = draw(topology)
    cores = text.replace("|", " ").replace("[", " ").replace("]", " ").split()
    assert {str(cpu) for cpu in topology.cpus} <= set(cores)
    rng = random.Random(path.name)
    for _ in range(5):
        free = CpuSet.of(cpu for cpu in topology.cpus if rng.random() < 0.7) or topology.cpus
        count = rng.randint(1, len(free))
        found = fit(topology, free, Requirement(count))
        assert len(found.cpus) == count
        assert found.radius == max(topology.hops(found.centre, cpu) for cpu in found.cpus)
