"""Experiments with jobs on the CPUs of one machine: replay and prediction of Mix A, and fragmentation.

Mix A is the throughput benchmark of Smith et al. 2001 (Tables 1 and 2). The paper prints the run times of 49 jobs
(50 by its text) alone, without and with cpusets, but not their CPU counts. This module draws them at random, equal
for identical jobs, so that CPU time divided by 128 is the paper's ideal of 2:21:22 within a hundredth.
`mean_distance` returns the mean distance between the CPUs of a job after many jobs have come and gone, which
measures an allocator after hours.

`MemorySlowdown` makes run times depend on the hops of the placement, so that throughput is a result and not an
input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice, zip_longest
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
from apples.topology.allocator import judge, refusal

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
    """Return CPU counts of the 49 jobs that give the paper's ideal time.

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
    """Return the mix, submitted at one time, with the run times of a column of Table 2."""
    seconds = np.array([float(row[column]) for row in TABLE_2])
    return rigid(np.zeros(len(seconds)), seconds, np.array(widths, dtype=np.int64), seconds)


def replay(machine: Topology, seed: int) -> tuple[float, float]:
    """Return the makespans of the mix in seconds: with the run times without cpusets, and with those with cpusets.

    The broker and the allocator place every job. Every job that fits starts, in order of submission (strict FCFS
    gives figures outside the paper's). The counts are drawn for 128 CPUs: a larger machine has spare CPUs.
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
    """Return the result of jobs on the CPUs that an allocator chooses."""
    config = SimulationConfig(len(machine.cpus), slowdown=slowdown)
    return simulate(workload, TopologyAwarePolicy(machine, FirstFit(), choose=choose), config)


WIDEST = 32
UTILISATION = 0.85


def passing_jobs(cpus: int, jobs: int, seed: int) -> Workload:
    """Return rigid jobs of 1 to 32 CPUs at random times, with an offered load of 85 %."""
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


LOCAL_NS, FAR_NS = 310.0, 945.0
"""Latencies of an Origin 2000 (Laudon and Lenoski 1997): the own node's memory, and the average among 128 CPUs."""
MEMORY_BOUND, COMPUTE_BOUND = 0.8, 0.1
"""Fractions of the time alone for which two kinds of jobs wait for memory: our choice, not published."""


class MemorySlowdown:
    """Factor of a job's run time against a run alone: the time for memory accesses grows with the latency.

    The latency grows linearly with the mean hops between the job's CPUs, from `LOCAL_NS` to `FAR_NS` at the mean
    hops of all CPUs of the machine. A job alone runs on the best CPUs of the empty machine. The times of Table 2
    without and with cpusets are not used.

    Parameters
    ----------
    shares
        For each job the fraction of its time that it would wait for memory if all its memory were local.
    widths
        For each job its number of CPUs.

    Examples
    --------
    >>> from apples.topology import origin
    >>> slowdown = MemorySlowdown(origin(128), [0.8], [8])
    >>> slowdown.of(0, CpuSet.parse("0-7"))
    1.0
    >>> round(slowdown.of(0, CpuSet.parse("0,12,33,47,64,77,90,127")), 1)
    1.9
    """

    def __init__(self, machine: Topology, shares: Sequence[float], widths: Sequence[int]) -> None:
        self._machine, self._shares, self._cpus = machine, shares, list(machine.cpus)
        self._a_hop = (FAR_NS / LOCAL_NS - 1.0) / mean_hops(machine, machine.cpus)
        alone = {
            width: mean_hops(machine, found.cpus)
            for width in {*widths}
            if isinstance(found := fit(machine, machine.cpus, Requirement(int(width))), Fit)
        }
        self._alone = [self._time(job, alone[width]) for job, width in enumerate(widths)]

    def _time(self, job: int, hops: float) -> float:
        return 1.0 + self._shares[job] * self._a_hop * hops

    def of(self, job: int, cpus: CpuSet) -> float:
        """Return the factor for a job, numbered from 0, on some CPUs."""
        return self._time(job, mean_hops(self._machine, cpus)) / self._alone[job]

    def __call__(self, running: RunningJob) -> float:
        """Return the factor for the CPUs of a running job."""
        held = CpuSet.of(self._cpus[place] for place in running.node_ids)
        return self.of(running.job.id - 1, held)


def draw_shares(kinds: Sequence[object], random: Random) -> list[float]:
    """Return a memory share for each job: memory-bound or compute-bound with equal chance, equal for one kind."""
    bound = {kind: random.choice((MEMORY_BOUND, COMPUTE_BOUND)) for kind in dict.fromkeys(kinds)}
    return [bound[kind] for kind in kinds]


def _slurm(arrange: Callable[[list[list[int]], int], Iterable[int]]) -> CpuAllocator:
    def choose(topology: Topology, free: CpuSet, requirement: Requirement) -> Fit | Unsatisfied:
        refused = refusal(topology, free.mask, requirement)
        if refused is not None:
            return refused
        count, nodes = (
            requirement.count,
            (list(CpuSet(node) & free) for node in topology.node_cpus),
        )
        sockets = sorted(node for node in nodes if node)
        cpus = CpuSet.of(islice(arrange(sockets, count), count))
        radius, centre = topology.hops.centre(cpus.mask)
        return Fit(cpus, radius, centre, topology.hops.total(cpus.mask), topology.memory_of(cpus))

    return choose


def _in_turn(sockets: list[list[int]], count: int) -> Iterable[int]:
    del count
    turns = chain.from_iterable(zip_longest(*sockets))
    return (cpu for cpu in turns if cpu is not None)


def _in_blocks(sockets: list[list[int]], count: int) -> Iterable[int]:
    large = [socket for socket in sockets if len(socket) >= count]
    if large:
        return min(large, key=len)
    most_first: list[list[int]] = sorted(sockets, key=len, reverse=True)
    return chain.from_iterable(most_first)


slurm_cyclic: CpuAllocator = _slurm(_in_turn)
"""Slurm's ``block:cyclic``, its default inside a node: one core of each socket in turn, in the order of
sockets."""
slurm_block: CpuAllocator = _slurm(_in_blocks)
"""Slurm's ``block:block``: the socket with the fewest sufficient free cores, otherwise sockets with most."""


@dataclass(frozen=True, slots=True)
class PlacementFigures:
    """Figures of the jobs of one run.

    Attributes
    ----------
    hours
        Hours until the end of the last job.
    hops
        Mean hops between the CPUs of a job, over jobs of two CPUs and more.
    slowdown
        Mean of a job's time over its time alone.
    refused
        Fraction of the jobs that would have waited at their start under a MAX_RADIUS equal to the best radius of
        the empty machine.
    throughput
        CPU time of the jobs alone over the CPU time of the machine until the end of the last job.
    """

    hours: float
    hops: float
    slowdown: float
    refused: float
    throughput: float


def placed(
    workload: Workload, machine: Topology, choose: CpuAllocator, shares: Sequence[float]
) -> PlacementFigures:
    """Return the figures of jobs that an allocator places and that slow down with their hops."""
    hops: list[float] = []
    scattered: list[bool] = []

    @cache
    def nearest(requirement: Requirement) -> Fit | Unsatisfied:
        return fit(machine, machine.cpus, requirement)

    def watched(topology: Topology, free: CpuSet, requirement: Requirement) -> Fit | Unsatisfied:
        found = choose(topology, free, requirement)
        if isinstance(found, Fit):
            now, best = judge(topology, free.mask, requirement), nearest(requirement)
            scattered.append(
                isinstance(best, Fit) and isinstance(now, float) and now > best.radius
            )
            if len(found.cpus) > 1:
                hops.append(mean_hops(topology, found.cpus))
        return found

    slowdown = MemorySlowdown(machine, shares, workload.processors.tolist())
    result = run_placed(workload, machine, watched, slowdown)
    took, width = result.end - result.start, workload.processors
    whole = float(result.end.max() - workload.submit.min())
    return PlacementFigures(
        whole / 3600,
        float(np.mean(hops)),
        float((took / workload.run).mean()),
        float(np.mean(scattered)),
        float((width * workload.run).sum()) / (len(machine.cpus) * whole),
    )


def predicted_mix_a(machine: Topology, seed: int, choose: CpuAllocator) -> PlacementFigures:
    """Return the predicted figures of Mix A: its times alone, slowed down by the hops between each job's CPUs.

    The seed determines the values that the paper does not give: CPU counts and the memory-bound programs.
    """
    random = Random(seed)  # noqa: S311 - a simulation, no secret
    widths = draw_widths(random)
    shares = draw_shares([row[0] for row in TABLE_2], random)
    return placed(mix_a(widths, ALONE), machine, choose, shares)
