"""Experiments with jobs on the CPUs of one machine: Mix A replayed, and fragmentation.

Mix A is the throughput benchmark of Smith et al. 2001 (Tables 1 and 2). The paper prints the run times of
49 jobs (its text says 50) alone, without and with cpusets, but not their CPU counts. These are drawn at
random, the same for identical jobs, so that CPU time divided by 128 is the paper's ideal of 2:21:22 within
a hundredth. `mean_distance` says how far apart the CPUs of jobs lie after many have come and gone: what an
allocator is worth after hours.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np

from apples.scheduling.policies import FirstFit
from apples.scheduling.policies.topology_aware import CpuAllocator, TopologyAwarePolicy
from apples.scheduling.policy import RunningJob
from apples.simulation.config import PlacementSlowdown, SimulationConfig, SimulationResult
from apples.simulation.placement import mean_hops
from apples.simulation.run import simulate
from apples.simulation.workload import Workload, rigid
from apples.topology import CpuSet, Fit, Requirement, Topology, Unsatisfied, fit

CPUS = 128
IDEAL_SECONDS = 2 * 3600 + 21 * 60 + 22
TOLERANCE = 0.01
WIDTHS = (4, 8, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128)

#: Program, seconds alone, without cpusets, with cpusets: Table 2, in order of submission.
TABLE_2: Sequence[tuple[int, int, int, int]] = (
    (3, 1760, 1885, 1804), (3, 989, 1217, 992), (11, 1062, 1153, 1094), (12, 299, 412, 304),
    (6, 281, 295, 296), (8, 832, 949, 773), (6, 281, 300, 294), (12, 299, 446, 307),
    (2, 3809, 8580, 3809), (10, 1644, 1660, 1712), (9, 691, 1311, 678), (2, 3809, 12164, 3753),
    (11, 1062, 1126, 1068), (1, 2400, 2261, 2176), (6, 178, 181, 178), (8, 1575, 4726, 1589),
    (1, 1200, 2055, 1103), (6, 178, 179, 178), (6, 73, 85, 75), (8, 3067, 3016, 2932),
    (6, 452, 459, 453), (6, 73, 76, 75), (7, 157, 202, 189), (6, 73, 76, 75),
    (3, 1074, 1113, 1105), (4, 2411, 3358, 2108), (6, 73, 79, 74), (5, 703, 801, 723),
    (7, 157, 456, 165), (8, 3067, 3915, 2931), (7, 157, 164, 165), (12, 299, 777, 302),
    (11, 663, 667, 667), (6, 178, 182, 178), (8, 1575, 6132, 1597), (6, 452, 461, 453),
    (1, 2400, 2253, 2192), (2, 455, 2374, 488), (2, 455, 497, 484), (3, 3185, 3318, 3218),
    (12, 299, 443, 299), (12, 299, 516, 301), (6, 73, 82, 79), (8, 832, 3500, 776),
    (12, 299, 385, 301), (11, 1062, 1099, 1061), (6, 452, 456, 452), (1, 1200, 1297, 1101),
    (1, 134, 146, 143),
)  # fmt: skip


def draw_widths(random: Random) -> list[int]:
    """Return CPU counts of the 49 jobs that add up to the paper's ideal time.

    Identical jobs (program and time alone) have the same count.
    """
    kinds = sorted({row[:2] for row in TABLE_2})
    work = {kind: sum(row[1] for row in TABLE_2 if row[:2] == kind) for kind in kinds}
    wanted = IDEAL_SECONDS * CPUS
    while True:
        width = {kind: random.choice(WIDTHS) for kind in kinds}
        for _ in range(200):
            total = sum(width[kind] * work[kind] for kind in kinds)
            if abs(total - wanted) <= TOLERANCE * wanted:
                return [width[row[:2]] for row in TABLE_2]
            kind = random.choice(kinds)
            step = WIDTHS.index(width[kind]) + (1 if total < wanted else -1)
            width[kind] = WIDTHS[min(max(step, 0), len(WIDTHS) - 1)]


ALONE, WITHOUT, WITH = 1, 2, 3
"""Columns of `TABLE_2`."""


def mix_a(widths: Sequence[int], column: int) -> Workload:
    """Return the mix, all submitted at once, with the run times of a column of Table 2."""
    seconds = np.array([float(row[column]) for row in TABLE_2])
    return rigid(np.zeros(len(seconds)), seconds, np.array(widths, dtype=np.int64), seconds)


def replay(machine: Topology, seed: int) -> tuple[float, float]:
    """Return the makespans of the mix, seconds: with the run times without cpusets, and with them.

    The broker and the allocator place every job; each that fits starts, in order of submission (strict
    FCFS gives figures outside the paper's). The counts are drawn for 128 CPUs: a larger machine has
    CPUs left over.
    """
    widths = draw_widths(Random(seed))  # noqa: S311 - a replay, no secret
    without = run_placed(mix_a(widths, WITHOUT), machine)
    with_cpusets = run_placed(mix_a(widths, WITH), machine)
    return float(without.end.max()), float(with_cpusets.end.max())


def run_placed(
    workload: Workload,
    machine: Topology,
    choose: CpuAllocator = fit,
    slowdown: PlacementSlowdown | None = None,
) -> SimulationResult:
    """Return what becomes of jobs whose CPUs a chooser gives them."""
    config = SimulationConfig(len(machine.cpus), slowdown=slowdown)
    return simulate(workload, TopologyAwarePolicy(machine, FirstFit(), choose=choose), config)


def program_slowdown(machine: Topology) -> PlacementSlowdown:
    """Return how much longer a job of the mix takes where its CPUs lie apart.

    A model, fitted to nothing but Table 2: a program suffers, at the mean distance of all CPUs of the
    machine, what it lost on average without cpusets, and in proportion to the distance below that.
    """
    everywhere = mean_hops(machine, machine.cpus)
    lost: dict[int, list[float]] = {}
    for program, _, without, with_cpusets in TABLE_2:
        lost.setdefault(program, []).append(without / with_cpusets - 1.0)
    suffers = {program: max(0.0, sum(some) / len(some)) for program, some in lost.items()}
    cpus = list(machine.cpus)

    def slowdown(running: RunningJob) -> float:
        program = TABLE_2[(running.job.id - 1) % len(TABLE_2)][0]
        held = CpuSet.of(cpus[place] for place in running.node_ids)
        return 1.0 + suffers[program] * mean_hops(machine, held) / everywhere

    return slowdown


WIDEST = 32
UTILISATION = 0.85


def passing_jobs(cpus: int, jobs: int, seed: int) -> Workload:
    """Return rigid jobs of 1 to 32 CPUs that keep a machine busy to 85 %, at random times."""
    random = np.random.default_rng(seed)
    width = random.integers(1, min(WIDEST, cpus) + 1, jobs)
    seconds = random.exponential(100.0, jobs) + 1.0
    apart = float((width * seconds).mean()) / (cpus * UTILISATION)
    return rigid(np.cumsum(random.exponential(apart, jobs)), seconds, width, seconds)


def mean_distance(machine: Topology, choose: CpuAllocator, workload: Workload) -> float:
    """Return the mean hops between the CPUs of a job, over all jobs of two CPUs and more."""
    found: list[float] = []

    def watched(topology: Topology, free: CpuSet, requirement: Requirement) -> Fit | Unsatisfied:
        fit = choose(topology, free, requirement)
        if isinstance(fit, Fit) and len(fit.cpus) > 1:
            found.append(mean_hops(topology, fit.cpus))
        return fit

    run_placed(workload, machine, watched)
    return float(np.mean(found))
