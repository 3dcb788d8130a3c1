"""A workload in the manner of Cirne and Berman 2001, with coefficients of our own.

Their coefficients were not to be had. The structure is theirs: arrivals that follow the hour of
the day, sizes uniform in the logarithm with a part of powers of two, requested times uniform in
the logarithm, run times a random part of the request. Every coefficient is a field, and its value
is our choice, so results on it compare with theirs in kind, not in number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apples.errors import UsageError
from apples.simulation.workload import Workload, rigid

DAY = 86400.0


@dataclass(frozen=True)
class CirneLike:
    """The coefficients, all of them own choices.

    Attributes
    ----------
    day_amplitude, busiest_hour
        The arrival rate over the day is 1 + amplitude * cos(2 pi (hour - busiest) / 24).
    power_of_two
        Part of the sizes that are one.
    shortest, longest
        Bounds of the requested time, seconds.
    accuracy
        Run time over request is Beta(*accuracy).
    load
        Offered, over the nodes.
    """

    day_amplitude: float = 0.8
    busiest_hour: float = 14.0
    power_of_two: float = 0.75
    shortest: float = 60.0
    longest: float = 36 * 3600.0
    accuracy: tuple[float, float] = (0.7, 1.3)
    load: float = 1.0


def cirne_like_workload(
    jobs: int,
    nodes: int,
    cores_per_node: int,
    widest: int,
    seed: int,
    *,
    coefficients: CirneLike | None = None,
    exact_requests: bool = False,
) -> Workload:
    """Return jobs on whole nodes, `widest` of them at most.

    Parameters
    ----------
    exact_requests
        Whether a job runs as long as it asked for (SD-Policy's Workload 2).
    """
    c = coefficients or CirneLike()
    if jobs < 1 or not 1 <= widest <= nodes or not c.load > 0:
        raise UsageError(f"{jobs} jobs of at most {widest} of {nodes} nodes at load {c.load:g}")
    rng = np.random.default_rng(seed)
    exponent = rng.uniform(0, np.log2(widest + 0.5), jobs)
    exponent = np.where(rng.random(jobs) < c.power_of_two, np.floor(exponent), exponent)
    width = np.clip((2.0**exponent).astype(np.int64), 1, widest)
    request = np.exp(rng.uniform(np.log(c.shortest), np.log(c.longest), jobs))
    request = np.ceil(request / 60) * 60
    run = np.maximum(1.0, np.round(request * rng.beta(*c.accuracy, jobs)))
    between = (run * width).mean() / (nodes * c.load)
    # Arrivals at rate 1 on a clock that runs faster in the busy hours.
    clock = np.cumsum(rng.exponential(between, jobs))
    fine = np.linspace(0, DAY, 1441)
    phase = 2 * np.pi * (fine / 3600 - c.busiest_hour) / 24
    rate = 1 + c.day_amplitude * np.cos(phase)
    passed = np.concatenate(([0.0], np.cumsum((rate[1:] + rate[:-1]) / 2 * (DAY / 1440))))
    day, rest = np.divmod(clock, passed[-1])
    submit = np.round(day * DAY + np.interp(rest, passed, fine))
    return rigid(submit, run, width * cores_per_node, run if exact_requests else request)
