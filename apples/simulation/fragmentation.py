"""How far apart the CPUs of jobs lie when jobs come and go: what an allocator is worth after hours."""

from __future__ import annotations

import numpy as np

from apples.scheduling.placed import Chooser
from apples.simulation.mix_a import run
from apples.simulation.placing import mean_hops
from apples.simulation.workload import Workload, rigid
from apples.topology import CpuSet, Fit, Refusal, Requirement, Topology

WIDEST = 32
LOAD = 0.85


def passing_jobs(cpus: int, jobs: int, seed: int) -> Workload:
    """Return rigid jobs of 1 to 32 CPUs that keep a machine busy to 85 %, at random times."""
    random = np.random.default_rng(seed)
    width = random.integers(1, min(WIDEST, cpus) + 1, jobs)
    seconds = random.exponential(100.0, jobs) + 1.0
    apart = float((width * seconds).mean()) / (cpus * LOAD)
    return rigid(np.cumsum(random.exponential(apart, jobs)), seconds, width, seconds)


def mean_distance(machine: Topology, choose: Chooser, workload: Workload) -> float:
    """Return the mean hops between the CPUs of a job, over all jobs of two CPUs and more."""
    found: list[float] = []

    def watched(topology: Topology, free: CpuSet, requirement: Requirement) -> Fit | Refusal:
        fit = choose(topology, free, requirement)
        if isinstance(fit, Fit) and len(fit.cpus) > 1:
            found.append(mean_hops(topology, fit.cpus))
        return fit

    run(workload, machine, watched)
    return float(np.mean(found))
