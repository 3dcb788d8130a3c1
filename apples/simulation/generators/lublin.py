"""The workload model of Lublin and Feitelson 2003, with its published parameters."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

import numpy as np
from numpy.random import Generator
from scipy.special import gammainc

from apples.errors import UsageError
from apples.simulation.workload import Workload, rigid

BUCKETS = 48  # half hours of a day
FIRST_BUCKET = 11  # the daily cycle runs from half past five to half past five
BUCKET_SECONDS = 1800.0
LONGEST = 12.0  # of ln(run time)
RAREST = 13.0  # of ln(time between arrivals)


@dataclass(frozen=True)
class Stream:
    """The parameters of one kind of jobs.

    Attributes
    ----------
    serial, power
        Probability of one processor; of a power of two otherwise.
    low, high_less_medium, first
        Two-stage uniform distribution of log2 of the size: from `low` to log2(machine) less
        `high_less_medium` with probability `first`, else from there to log2(machine).
    short, long, slope, offset
        ln of the run time is Gamma(*short) with probability slope * size + offset, else
        Gamma(*long).
    arrival, cycle
        ln of the seconds between arrivals is Gamma(*arrival); the weight of a half hour of the day
        is the mass of Gamma(*cycle) in it.
    """

    serial: float
    power: float
    low: float
    high_less_medium: float
    first: float
    short: tuple[float, float]
    long: tuple[float, float]
    slope: float
    offset: float
    arrival: tuple[float, float]
    cycle: tuple[float, float]


BATCH = Stream(
    0.2927, 0.6686, 1.2, 2.5, 0.875, (6.57, 0.823), (639.1, 0.0156), -0.003, 0.6986,
    (6.0415 * 1.0519, 0.8531), (6.1271, 5.2740),
)  # fmt: skip
INTERACTIVE = Stream(
    0.1541, 0.625, 1.0, 2.5, 0.705, (3.8351, 0.6605), (7.073, 0.6856), -0.0118, 0.9156,
    (6.5510 * 0.9797, 0.6621), (8.9186, 3.6680),
)  # fmt: skip
TYPELESS = Stream(
    0.244, 0.576, 0.8, 2.5, 0.86, (4.2, 0.94), (312.0, 0.03), -0.0054, 0.78,
    (10.2303 * 1.0225, 0.4871), (8.1737, 3.9631),
)  # fmt: skip


def lublin_workload(jobs: int, processors: int, seed: int, *, typeless: bool = True) -> Workload:
    """Return a Lublin-Feitelson workload; requested times are exact, the model has none.

    Parameters
    ----------
    processors
        Of the machine.
    typeless
        One stream of jobs; else a batch and an interactive one, merged.

    References
    ----------
    Lublin and Feitelson 2003, "The workload on parallel supercomputers: modeling the
    characteristics of rigid jobs", Tables 4-8.
    """
    if jobs < 1 or processors < 8:
        raise UsageError(f"{jobs} jobs on {processors} processors: at least 1 on 8")
    rng = np.random.default_rng(seed)
    streams = (TYPELESS,) if typeless else (BATCH, INTERACTIVE)
    parts = [_arrivals(stream, jobs, rng) for stream in streams]
    submit = np.concatenate(parts)
    kind = np.repeat(np.arange(len(streams)), jobs)
    order = np.argsort(submit, kind="stable")[:jobs]
    submit, kind = submit[order], kind[order]
    size = np.empty(jobs, dtype=np.int64)
    run = np.empty(jobs)
    for number, stream in enumerate(streams):
        mine = kind == number
        size[mine] = _sizes(stream, int(mine.sum()), processors, rng)
        run[mine] = _run_times(stream, size[mine], rng)
    return rigid(submit, run, size, run)


def _sizes(
    stream: Stream, count: int, processors: int, rng: Generator
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    high = log2(processors)
    medium = high - stream.high_less_medium
    lower = rng.uniform(stream.low, medium, count)
    upper = rng.uniform(medium, high, count)
    exponent = np.where(rng.random(count) < stream.first, lower, upper)
    exponent = np.where(rng.random(count) < stream.power, np.round(exponent), exponent)
    size = np.rint(2.0**exponent).astype(np.int64)
    size[rng.random(count) < stream.serial] = 1
    return np.clip(size, 1, processors)


def _run_times(
    stream: Stream, size: np.ndarray[tuple[int], np.dtype[np.int64]], rng: Generator
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return seconds, whole and at least one; draws beyond e^12 s are repeated."""
    run = np.full(len(size), np.inf)
    while (redo := run > np.exp(LONGEST)).any():
        count = int(redo.sum())
        chance = np.clip(stream.slope * size[redo] + stream.offset, 0, 1)
        short = rng.gamma(*stream.short, count)
        long = rng.gamma(*stream.long, count)
        run[redo] = np.exp(np.where(rng.random(count) < chance, short, long))
    return np.maximum(1.0, np.round(run))


def _arrivals(
    stream: Stream, count: int, rng: Generator
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return seconds of the clock at which jobs come, more of them in the busy hours."""
    logs = np.full(count, np.inf)
    while (redo := logs > RAREST).any():
        logs[redo] = rng.gamma(*stream.arrival, int(redo.sum()))
    points = np.cumsum(np.exp(logs) / BUCKET_SECONDS)
    shape, scale = stream.cycle
    edges = np.arange(FIRST_BUCKET, FIRST_BUCKET + BUCKETS + 1)
    weight = np.roll(np.diff(gammainc(shape, edges / scale)), FIRST_BUCKET)
    weight *= BUCKETS / weight.sum()
    spent = np.concatenate(([0.0], np.cumsum(weight)))  # points a day spends, by bucket
    day, rest = np.divmod(points, spent[-1])
    bucket = np.interp(rest, spent, np.arange(BUCKETS + 1))
    return np.round((day * BUCKETS + bucket) * BUCKET_SECONDS)
