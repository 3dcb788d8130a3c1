"""Figures 7 to 10 of Kale et al. 2002: response and utilisation against load, adaptive and first fit. Simulated.

The paper's text has no numbers of these figures, only the direction: adaptive is better on both. It describes
its speed-up curve (Figure 6) as sub-linear; Amdahl's law with three serial parts stands in for it. Resizes cost
as in the paper's Table 1.
"""

from functools import partial

import numpy as np

from apples.scheduling import Equipartition, FirstFit
from apples.simulation import COSTS, SimulationConfig, amdahl, interval, kale_workload, simulate
from benchmarks.common import Row

LOADS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def run(jobs, load, seed, adaptive, serial):
    """Return the mean response, in seconds, and the mean utilisation of one experiment."""
    speedup = partial(amdahl, serial=serial)
    config = SimulationConfig(64, speedup=speedup, cost=COSTS["kale"], release="at_once")
    workload = kale_workload(jobs, load, seed, adaptive=adaptive, speedup=speedup)
    result = simulate(workload, Equipartition() if adaptive else FirstFit(), config)
    span = result.end.max() - workload.submit[0]
    return float((result.end - workload.submit).mean()), result.node_seconds / (64 * span)


def measure(settings):
    """Compare the two schedulers at nine loads."""
    seeds = settings.pick(20, 2)
    for jobs, figures in settings.pick(((50, (7, 8)), (10_000, (9, 10))), ((50, (7, 8)),)):
        for serial in (0.0, 0.02, 0.1):
            runs = np.array([
                [[run(jobs, load, seed, adaptive, serial) for adaptive in (True, False)] for seed in range(seeds)]
                for load in LOADS
            ])  # fmt: skip
            changes = 100 * (runs[:, :, 0] / runs[:, :, 1] - 1)
            case = f"{jobs:,} jobs, serial part {serial:g}"
            settings.raw[case] = {
                "loads": LOADS,
                "response and utilisation": runs.mean(axis=1).tolist(),
            }
            for k, (what, sign) in enumerate((("response", -1), ("utilisation", 1))):
                means = changes[:, :, k].mean(axis=1)
                better = sum(interval((sign * load).tolist()).low > 0 for load in changes[:, :, k])
                title = f"Figure {figures[k]}, {case}"
                yield Row(
                    f"{what}, {case}", f"{title}: change of {what} by adaptive, mean and range of the loads",
                    means.mean(), "%", means.min(), means.max(),
                )  # fmt: skip
                yield Row(
                    f"better {what}, {case}", f"{title}: loads with better {what}",
                    better, at_least=len(LOADS), paper="all",
                )  # fmt: skip


PARTS = {"": measure}
