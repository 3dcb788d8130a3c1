"""Downey's workload of moldable jobs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from apples.errors import UsageError
from apples.simulation.speedup import downey
from apples.simulation.workload import Workload, rigid


def downey_workload(
    jobs: int,
    processors: int,
    load: float,
    seed: int,
    *,
    work: tuple[float, float] = (60.0, 1e6),
    sigma: float = 1.0,
) -> Workload:
    """Return jobs whose work and average parallelism are uniform in the logarithm.

    A job asks for its average parallelism A and takes L / S(A), L its work in processor-seconds
    and S Downey's speed-up; it can run on 1 to all processors. Arrivals are Poisson.

    Parameters
    ----------
    load
        Offered: mean work a second over the processors.
    work
        Bounds of L, processor-seconds (own choice).
    sigma
        Variation of parallelism, the same for all (own choice).

    References
    ----------
    Downey 1997, "A parallel workload model and its implications for processor allocation".
    """
    if jobs < 1 or processors < 1 or not load > 0 or not 0 < work[0] < work[1] or sigma < 0:
        raise UsageError(f"{jobs} jobs, {processors} processors, load {load:g}, work {work}")
    rng = np.random.default_rng(seed)
    seconds = np.exp(rng.uniform(np.log(work[0]), np.log(work[1]), jobs))
    width = np.maximum(1, np.rint(np.exp(rng.uniform(0, np.log(processors), jobs))).astype(int))
    run = seconds / np.array([downey(n, float(n), sigma) for n in width.tolist()])
    between = (run * width).mean() / (processors * load)
    submit = np.cumsum(rng.exponential(between, jobs))
    workload = rigid(submit, run, width, run)
    return replace(
        workload,
        minimum=np.ones(jobs, dtype=np.int64),
        maximum=np.full(jobs, processors),
        malleable=np.ones(jobs, dtype=bool),
    )
