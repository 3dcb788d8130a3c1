"""Where CPUs sit inside a host, which of them a job gets, and how a host's CPUs are divided.

Read in this order: `cpus` (`CpuSet`, a frozen set of CPU numbers), `parts` and `machine` (`Topology`:
parts, memory nodes, latencies), `hops` (how far CPUs are from each other), `loading` (where a topology
comes from: hwloc XML, synthetic strings; `live` for this machine), `requirement` (what a job asks and
what the allocator answers), `allocator` (``fit(topology, free, requirement) -> Fit | Refusal``, pure),
`language` and `keywords` (``CPUSET[KEY=value;...]``), `broker` (which hosts can, which is best), `bindings`
and `drawing` (what people and other tools are shown). Then how the jobs of one node share it: `distribute`
(how many), `apart` (in separate sockets), `daemon` (who owns and who holds), `fences` (what keeps them there).
"""

from apples.topology.allocator import fit
from apples.topology.cpus import CpuSet
from apples.topology.loading import load_topology
from apples.topology.machine import Topology
from apples.topology.requirement import Fit, Option, Placement, Refusal, Requirement, Verdict
from apples.topology.synthetic import synthetic

__all__ = [
    "CpuSet",
    "Fit",
    "Option",
    "Placement",
    "Refusal",
    "Requirement",
    "Topology",
    "Verdict",
    "fit",
    "load_topology",
    "synthetic",
]
