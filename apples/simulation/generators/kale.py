"""The workload of Kale, Kumar and DeSouza 2002, section 5."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from apples.errors import UsageError
from apples.simulation.speedup import Speedup, linear
from apples.simulation.workload import Workload, rigid

SERVICE_SECONDS = 64.5  # 100 iterations on 64 processors
PROCESSORS = 64


def kale_workload(
    jobs: int,
    load: float,
    seed: int,
    *,
    adaptive: bool,
    speedup: Speedup = linear,
    minimum: int | None = None,
) -> Workload:
    """Return Poisson arrivals of a program that runs an exponential number of iterations.

    Adaptive jobs can use all 64 processors and need at least as many as a uniform draw from 1..64;
    traditional jobs run on just that draw. Both come at the same times and bring the same work.

    Parameters
    ----------
    load
        Arrival rate times the mean service time on all processors.
    speedup
        By which the traditional jobs, on fewer processors, take longer.
    minimum
        Instead of the uniform draw.
    """
    if not load > 0 or jobs < 1:
        raise UsageError(f"{jobs} jobs at load {load:g}")
    rng = np.random.default_rng(seed)
    submit = np.cumsum(rng.exponential(SERVICE_SECONDS / load, jobs))
    service = rng.exponential(SERVICE_SECONDS, jobs)
    drawn = rng.integers(1, PROCESSORS + 1, jobs)
    if minimum is not None:
        drawn = np.full(jobs, minimum)
    if adaptive:
        width = np.full(jobs, PROCESSORS)
        workload = rigid(submit, service, width, service)
        return replace(workload, minimum=drawn, malleable=np.ones(jobs, dtype=bool))
    slower = speedup(PROCESSORS) / np.array([1.0] + [speedup(n) for n in range(1, PROCESSORS + 1)])
    run = service * slower[drawn]
    return rigid(submit, run, drawn, run)
