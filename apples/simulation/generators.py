"""Model workloads of Lublin and Feitelson, Downey and Kale, and a model like Cirne and Berman's.

Lublin and Feitelson 2003 with its published parameters; Downey 1997's moldable jobs; the Poisson arrivals of Kale,
Kumar and DeSouza 2002, section 5. The coefficients of Cirne and Berman 2001 were not available. The structure is
theirs: arrivals follow the hour of the day, sizes are uniform in the logarithm with a fraction of powers of two,
requested times are uniform in the logarithm, and run times are a random fraction of the request. Every coefficient
is a field of `CirneLike` and our choice, so results agree with theirs only qualitatively.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, log2

import numpy as np
from numpy.random import Generator
from scipy.special import gammainc

from apples.errors import UsageError
from apples.simulation.speedup import Speedup, downey, linear
from apples.simulation.workload import Workload, rigid

BUCKETS = 48  # half hours of a day
FIRST_BUCKET = 11  # the daily cycle runs from half past five to half past five
BUCKET_SECONDS = 1800.0
LONGEST = 12.0  # maximum of ln(run time)
RAREST = 13.0  # maximum of ln(time between arrivals)


@dataclass(frozen=True)
class LublinStream:
    """The parameters of one kind of jobs.

    Attributes
    ----------
    serial, power
        Probability of one processor; of a power of two otherwise.
    low, high_less_medium, first
        Two-stage uniform distribution of log2 of the size: from `low` to log2(machine) - `high_less_medium` with
        probability `first`, otherwise from there to log2(machine).
    short, long, slope, offset
        ln of the run time is Gamma(*short) with probability slope * size + offset, otherwise Gamma(*long).
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


BATCH = LublinStream(
    0.2927, 0.6686, 1.2, 2.5, 0.875, (6.57, 0.823), (639.1, 0.0156), -0.003, 0.6986,
    (6.0415 * 1.0519, 0.8531), (6.1271, 5.2740),
)  # fmt: skip
INTERACTIVE = LublinStream(
    0.1541, 0.625, 1.0, 2.5, 0.705, (3.8351, 0.6605), (7.073, 0.6856), -0.0118, 0.9156,
    (6.5510 * 0.9797, 0.6621), (8.9186, 3.6680),
)  # fmt: skip
TYPELESS = LublinStream(
    0.244, 0.576, 0.8, 2.5, 0.86, (4.2, 0.94), (312.0, 0.03), -0.0054, 0.78,
    (10.2303 * 1.0225, 0.4871), (8.1737, 3.9631),
)  # fmt: skip


def lublin_workload(jobs: int, processors: int, seed: int, *, typeless: bool = True) -> Workload:
    """Return a Lublin-Feitelson workload; requested times are the run times, since the model has none.

    Parameters
    ----------
    processors
        Of the machine.
    typeless
        Whether to draw one stream of jobs; otherwise a batch and an interactive stream, merged.

    References
    ----------
    Lublin and Feitelson 2003, "The workload on parallel supercomputers: modeling the
    characteristics of rigid jobs", Tables 4-8.
    """
    streams = (TYPELESS,) if typeless else (BATCH, INTERACTIVE)
    least = ceil(2.0 ** max(one.low + one.high_less_medium for one in streams))
    if jobs < 1 or processors < least:
        raise UsageError(
            f"{jobs} jobs on {processors} processors: at least 1 on {least}",
            code="value-range",
            field="jobs" if jobs < 1 else "processors",
            value=jobs if jobs < 1 else processors,
            bound=1 if jobs < 1 else least,
        )
    rng = np.random.default_rng(seed)
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
    stream: LublinStream, count: int, processors: int, rng: Generator
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
    stream: LublinStream, size: np.ndarray[tuple[int], np.dtype[np.int64]], rng: Generator
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return run times in whole seconds, at least 1; draws beyond e^12 s are repeated."""
    run = np.full(len(size), np.inf)
    while (redo := run > np.exp(LONGEST)).any():
        count = int(redo.sum())
        chance = np.clip(stream.slope * size[redo] + stream.offset, 0, 1)
        short = rng.gamma(*stream.short, count)
        long = rng.gamma(*stream.long, count)
        run[redo] = np.exp(np.where(rng.random(count) < chance, short, long))
    return np.maximum(1.0, np.round(run))


def _arrivals(
    stream: LublinStream, count: int, rng: Generator
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the arrival times of jobs in seconds, with more jobs in the busy hours."""
    logs = np.full(count, np.inf)
    while (redo := logs > RAREST).any():
        logs[redo] = rng.gamma(*stream.arrival, int(redo.sum()))
    points = np.cumsum(np.exp(logs) / BUCKET_SECONDS)
    shape, scale = stream.cycle
    edges = np.arange(FIRST_BUCKET, FIRST_BUCKET + BUCKETS + 1)
    weight = np.roll(np.diff(gammainc(shape, edges / scale)), FIRST_BUCKET)
    weight *= BUCKETS / weight.sum()
    spent = np.concatenate(([0.0], np.cumsum(weight)))  # points of a day, cumulated by bucket
    day, rest = np.divmod(points, spent[-1])
    bucket = np.interp(rest, spent, np.arange(BUCKETS + 1))
    return np.round((day * BUCKETS + bucket) * BUCKET_SECONDS)


def downey_workload(
    jobs: int,
    processors: int,
    load: float,
    seed: int,
    *,
    work: tuple[float, float] = (60.0, 1e6),
    sigma: float = 1.0,
) -> Workload:
    """Return jobs with work and average parallelism uniform in the logarithm.

    A job asks for its average parallelism A and runs for L / S(A), where L is its work in processor-seconds and S
    Downey's speed-up. It can run on 1 to all processors. Arrivals are Poisson.

    Parameters
    ----------
    load
        Offered load: mean work per second over the processors.
    work
        Bounds of L, processor-seconds (own choice).
    sigma
        Variation of parallelism, the same for all jobs (own choice).

    References
    ----------
    Downey 1997, "A parallel workload model and its implications for processor allocation".
    """
    if jobs < 1 or processors < 1 or not load > 0 or not 0 < work[0] < work[1] or sigma < 0:
        raise UsageError(
            f"{jobs} jobs, {processors} processors, load {load:g}, work {work}, sigma {sigma:g}: jobs, "
            "processors, load and work must be positive, work rising, sigma 0 or more",
            code="value-range",
            jobs=jobs,
            processors=processors,
            load=load,
            work=list(work),
            sigma=sigma,
        )
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


DAY = 86400.0


@dataclass(frozen=True)
class CirneLike:
    """The coefficients of `cirne_like_workload`, all own choices.

    Attributes
    ----------
    day_amplitude, busiest_hour
        The arrival rate over the day is 1 + amplitude * cos(2 pi (hour - busiest) / 24).
    power_of_two
        Fraction of the sizes that are powers of two.
    shortest, longest
        Bounds of the requested time, seconds.
    accuracy
        Run time over request is Beta(*accuracy).
    load
        Offered load over the nodes.
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
    """Return jobs on at most `widest` whole nodes.

    Parameters
    ----------
    exact_requests
        Whether run times equal the requested times (SD-Policy's Workload 2).
    """
    c = coefficients or CirneLike()
    if jobs < 1 or not 1 <= widest <= nodes or not c.load > 0:
        raise UsageError(
            f"{jobs} jobs of at most {widest} of {nodes} nodes at load {c.load:g}: jobs and load must "
            f"be positive, widest from 1 to {nodes}",
            code="value-range",
            jobs=jobs,
            widest=widest,
            nodes=nodes,
            load=c.load,
        )
    rng = np.random.default_rng(seed)
    exponent = rng.uniform(0, np.log2(widest + 0.5), jobs)
    exponent = np.where(rng.random(jobs) < c.power_of_two, np.floor(exponent), exponent)
    width = np.clip((2.0**exponent).astype(np.int64), 1, widest)
    request = np.exp(rng.uniform(np.log(c.shortest), np.log(c.longest), jobs))
    request = np.ceil(request / 60) * 60
    run = np.maximum(1.0, np.round(request * rng.beta(*c.accuracy, jobs)))
    between = (run * width).mean() / (nodes * c.load)
    # Arrivals at rate 1 on a clock that is faster in the busy hours.
    clock = np.cumsum(rng.exponential(between, jobs))
    fine = np.linspace(0, DAY, 1441)
    phase = 2 * np.pi * (fine / 3600 - c.busiest_hour) / 24
    rate = 1 + c.day_amplitude * np.cos(phase)
    passed = np.concatenate(([0.0], np.cumsum((rate[1:] + rate[:-1]) / 2 * (DAY / 1440))))
    day, rest = np.divmod(clock, passed[-1])
    submit = np.round(day * DAY + np.interp(rest, passed, fine))
    return rigid(submit, run, width * cores_per_node, run if exact_requests else request)


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

    An adaptive job can use all 64 processors; its minimum is a uniform draw from 1..64. A traditional job runs on
    exactly that draw. Both kinds have the same arrival times and the same work.

    Parameters
    ----------
    load
        Arrival rate times the mean service time on all processors.
    speedup
        Speed-up that gives the run times of traditional jobs on fewer processors.
    minimum
        Minimum processors of all jobs, instead of the uniform draw.
    """
    if not load > 0 or jobs < 1:
        raise UsageError(
            f"{jobs} jobs at load {load:g}: both must be positive",
            code="value-range",
            jobs=jobs,
            load=load,
        )
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
