"""Feedback: comparison of the prediction with the measured run, and corrections learned from the run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from apples.agent.estimator import PerformanceEstimator, without_risk
from apples.agent.information import InformationPool, assumes_speed
from apples.agent.models import RunObservation, learn, learn_starts
from apples.agent.models.conformal import PastRun
from apples.agent.models.corrections import BORDER_WAIT, FIRST_SPREAD, SLOWDOWN
from apples.agent.models.learned import (
    Learned,
    ShareMeasurement,
    WaitMeasurement,
    by_threads,
    taught,
)
from apples.agent.models.links import MeasuredBorder, Pair, pair_of
from apples.agent.models.model import ModelTemplate, Seconds, SpeedFunction, bottleneck_evenness
from apples.agent.models.strip import SLICE_SECONDS, standstill
from apples.launch.events import BorderTimes, HostTimes, Outcome
from apples.resources import Host
from apples.resources.schedule import Estimate, Rectangle, Schedule

MIN_EVENNESS = 0.5
"""The run of a set with a lower `model.bottleneck_evenness` teaches no straggler factor."""
MIN_COMPUTE_SHARE = 0.2
"""Least share of computing in an iteration: below it, the fixed cost of an iteration hides a host's speed."""
MAX_UNMEASURED_BORDERS = 0.2
"""If unmeasured borders take a larger share of an iteration, a straggler factor would only absorb their error."""
CLOCK_SECONDS = 1e-5
"""Resolution of a program's timer around a message; a shorter border would only measure the timer."""


@dataclass(frozen=True, slots=True)
class HostCheck:
    """Predicted and measured seconds of one iteration on one host, with its rows (`Allocation.rows`).

    `processor` is the processor time of one slot's computing (a rank or a thread), `wait` the wait for late
    neighbours. Each is None if the program does not report it.
    """

    host: str
    rows: float
    predicted_compute: float
    measured_compute: float
    processor: float | None
    predicted_communicate: float
    measured_communicate: float
    wait: float | None
    rectangle: Rectangle | None = None
    threads: int = 0


@dataclass(frozen=True, slots=True)
class PredictionCheck:
    """Comparison of a prediction with the measured run.

    Attributes
    ----------
    off
        Measured over predicted iteration time, less 1.
    inside
        Whether the measured time lies in the promised interval; None without an interval, for example if no
        forecast error is known.
    iteration_seconds
        Measured mean of an iteration, in seconds.
    hosts
        Comparison of each host, in strip order.
    borders
        Measurement of each border by the program, in strip order; empty if it reports none.
    schedule
        The schedule of the estimate.
    past
        The prediction and the measured time, for the next interval; None if the estimate was not chosen.
    steady
        The same comparison without timing spikes, from which the model learns; None if the run had no spikes.
    """

    off: float
    inside: bool | None
    iteration_seconds: float
    hosts: tuple[HostCheck, ...]
    schedule: Schedule
    borders: tuple[BorderTimes, ...] = ()
    past: PastRun | None = None
    steady: PredictionCheck | None = None


def check(estimate: Estimate, outcome: Outcome) -> PredictionCheck:
    """Return the comparison of an estimate with its measured run."""
    hosts = _host_checks(estimate, outcome.hosts, outcome.iterations)
    inside, (low, high) = None, estimate.interval or (0.0, 0.0)
    if low < high and estimate.iterations == outcome.iterations:
        inside = low <= outcome.seconds <= high
    off = outcome.iteration_seconds / estimate.iteration_seconds - 1.0
    result = PredictionCheck(
        off,
        inside,
        outcome.iteration_seconds,
        hosts,
        estimate.schedule,
        outcome.borders,
        _past_run(estimate, outcome),
    )
    steady_hosts = _host_checks(
        estimate,
        [
            replace(
                times,
                compute_seconds=times.steady_compute_seconds,
                processor_seconds=times.steady_processor_seconds,
            )
            for times in outcome.hosts
        ],
        outcome.iterations,
    )
    seconds = outcome.seconds if outcome.clipped_seconds is None else outcome.clipped_seconds
    steady = replace(
        result,
        iteration_seconds=seconds / max(1, outcome.iterations),
        hosts=steady_hosts,
    )
    return result if steady == result else replace(result, steady=steady)


def _host_checks(
    estimate: Estimate, measured: Iterable[HostTimes], iterations: int
) -> tuple[HostCheck, ...]:
    """Return the comparison of each host of an estimate with its times over `iterations` iterations."""
    times, count = {host.host: host for host in measured}, max(1, iterations)
    hosts = []
    for predicted in estimate.hosts:
        host = times.get(predicted.host.name) or HostTimes(predicted.host.name, 0.0, 0.0)
        hosts.append(
            HostCheck(
                predicted.host.name,
                predicted.rows,
                predicted.compute_seconds,
                host.compute_seconds / count,
                None if host.processor_seconds is None else host.processor_seconds / count,
                predicted.communicate_seconds,
                host.communicate_seconds / count,
                None if host.wait_seconds is None else host.wait_seconds / count,
                predicted.rectangle,
                predicted.threads,
            )
        )
    return tuple(hosts)


def _past_run(estimate: Estimate, outcome: Outcome) -> PastRun | None:
    """Return the past run for the next interval; a run that stopped early counts by its iterations."""
    basis, (low, high) = estimate.basis, estimate.interval or (0.0, 0.0)
    measured = outcome.iteration_seconds * estimate.iterations
    if basis is None or min(basis.mean_seconds, measured) <= 0:
        return None
    promised = (low, high) if low < high else None
    return PastRun(basis.set_class, basis.mean_seconds, None, promised, measured)


def _with_own_interval(past: PastRun, schedule: Schedule, information: InformationPool) -> PastRun:
    """Add the half-width of the model's own interval to a past run; this takes thousands of draws."""
    low, high = PerformanceEstimator().interval(schedule, information)
    mean = past.predicted
    own = max(0.0, math.log(high / mean), math.log(mean / low)) if low > 0 else 0.0
    return replace(past, own=own)


def remember(result: PredictionCheck, information: InformationPool) -> None:
    """Update the model's corrections from a run: slowdowns, shares, links, border waits, straggler factor, errors.

    The run is compared with the mean that the model predicts without the corrections to be taught. So the
    user's risk does not enter a host's slowdown, and timing spikes enter no correction.
    """
    result = result.steady or result
    learned = information.learned
    plain = replace(without_risk(information), learned=learned.without_corrections())
    plain = _pool_of_run(result, plain)
    hosts = [information.hosts[check.host] for check in result.hosts]
    model = _model(result, plain)
    keys = [_key(host, check) for host, check in zip(hosts, result.hosts, strict=True)]
    borders = _measured_borders(result, hosts, model, plain)
    compute = _observed_computing(result, hosts, plain, learned)
    past = (
        None if compute.speeds else result.past
    )  # the error of an assumed speed teaches no interval
    run = RunObservation(
        keys,
        [host.identity for host in information.hosts],
        borders=[border for border in borders if border.seconds > resolution(border, plain)],
        messages=information.application.messages,
        waits=_border_waits(borders, plain, learned),
        past=past and _with_own_interval(past, result.schedule, information),
        **vars(compute),
    )
    busy = _busy_seconds(result, hosts, information, taught(learned, run, 0.0))
    straggler_factor = _straggler_factor(result, hosts, model, busy)
    iteration = None
    if not compute.speeds:  # an assumed speed would distort the factor
        before = _busy_seconds(result, hosts, information, learned)
        iteration = _lateness(result.iteration_seconds, before)
    run = replace(run, straggler_factor=straggler_factor, iteration=iteration)
    learn(information.learned_key, run)


def _pool_of_run(result: PredictionCheck, information: InformationPool) -> InformationPool:
    """Return the pool of the rectangles or the threads of a run."""
    if any(check.rectangle for check in result.hosts):
        information = information.for_rectangles
    return information.for_threads if any(check.threads for check in result.hosts) else information


def _model(result: PredictionCheck, information: InformationPool) -> ModelTemplate:
    """Return the model of the strips or rectangles of a run."""
    tiles = tuple(check.rectangle for check in result.hosts if check.rectangle)
    return replace(information.rectangle_model, rectangles=tiles) if tiles else information.model


def remember_start(estimate: Estimate, outcome: Outcome, information: InformationPool) -> None:
    """Record the seconds from the launch until the program was ready on these hosts, for this launcher."""
    hosts = estimate.schedule.resources
    learn_starts(information.learned_key, information.launcher, hosts, outcome.startup_seconds)


@dataclass(frozen=True)
class _ObservedComputing:
    """The fields of a `RunObservation` about the computing of its hosts."""

    slowdown: Mapping[str, float]
    co_run_slowdown: Mapping[str, float]
    speeds: Mapping[str, tuple[str, SpeedFunction]]
    shares: Mapping[str, ShareMeasurement]


def _observed_computing(
    result: PredictionCheck, hosts: Sequence[Host], plain: InformationPool, learned: Learned
) -> _ObservedComputing:
    """Return speeds, slowdowns and shares of a run; `plain` predicts the mean without corrections.

    If the program reports processor time, the slowdown is processor time over the time at dedicated speed, and
    processor over wall time is the host's share of a CPU. Otherwise the slowdown is wall time over prediction.

    A run measures the speed of a host without a measured speed for this application. A measured host teaches
    its slowdown if it ran alone, else its co-run slowdown.
    """
    model = plain.model
    with_others = len(hosts) > 1 and model.knows_co_run_slowdown
    seconds = model.computation(hosts, np.array([float(check.rows) for check in result.hosts]))
    slowdown: dict[str, float] = {}
    co_run_slowdown: dict[str, float] = {}
    speeds: dict[str, tuple[str, SpeedFunction]] = {}
    shares: dict[str, ShareMeasurement] = {}
    for host, check, predicted in zip(hosts, result.hosts, seconds.tolist(), strict=True):
        dedicated = _dedicated(check, plain)
        ratio = _slowdown(check, predicted, dedicated)
        weight = check.measured_compute
        if not assumes_speed(plain, host):
            weight = min(weight, predicted)
        if ratio is None or weight < MIN_COMPUTE_SHARE * result.iteration_seconds:
            continue
        key, implementation = _key(host, check), plain.implementation(host)
        if learned.speed(host.identity, implementation) is None:
            speeds[host.identity] = (
                implementation,
                _measured_speed(host, check.rows, ratio, plain),
            )
        elif with_others:
            co_run_slowdown[key] = ratio / learned.factor(SLOWDOWN, key)
        else:
            slowdown[key] = ratio
        if check.processor and check.measured_compute > 0 and dedicated > 0:
            # After waits a host may exceed its quota for a while (`StripModel.communication`), so the share is
            # capped at the quota.
            quota, _ = plain.conditions.quota(host, host.slots) or (1.0, 0.0)
            shares[key] = ShareMeasurement(
                min(quota, check.processor / check.measured_compute) * predicted / dedicated,
                plain.conditions.cpu(host).value,
            )
    return _ObservedComputing(slowdown, co_run_slowdown, speeds, shares)


def _key(host: Host, check: HostCheck) -> str:
    """Return the key of a host's corrections: its identity, with another key for threads."""
    return by_threads(host.identity) if check.threads else host.identity


def _measured_speed(
    host: Host, rows: float, ratio: float, information: InformationPool
) -> SpeedFunction:
    """Return the speed that a run measured on a host, for strips of the size in the run."""
    strip = rows / host.slots
    seconds = information.speeds[host.name].at(strip) * ratio
    application = information.application
    points = application.rows * application.columns
    return SpeedFunction(
        (strip,), (seconds,), FIRST_SPREAD, application.columns, points=float(points)
    )


def _straggler_factor(
    result: PredictionCheck, hosts: Sequence[Host], model: ModelTemplate, modelled: Seconds
) -> float | None:
    """Return the straggler factor: measured iteration over the longest busy time of any host.

    The factor exceeds 1 if hosts are late in turn. It refers to the modelled busy time, to which it will
    be applied: under a quota a host catches up while it waits, so its measured busy time is shorter. The factor
    is at most the lateness by the measured busy times. If the program does not separate waits from borders,
    borders are modelled, not measured.

    The result is None for a single rank, for a large share of unmeasured borders, and if all hosts waited for
    one host, so that no other could be late. Such a run neither teaches a factor nor disproves it.

    Parameters
    ----------
    model
        Model of the run, without corrections.
    modelled
        Busy seconds of each host, in strip order.
    """
    if len(hosts) == 1 and hosts[0].slots == 1:
        return None
    compute = np.array([check.measured_compute for check in result.hosts])
    if not compute.all():
        return None
    if all(check.wait is not None for check in result.hosts):
        borders = np.array([check.measured_communicate for check in result.hosts])
    else:
        borders = np.asarray(model.communication(hosts))
        if borders.max() > MAX_UNMEASURED_BORDERS * result.iteration_seconds:
            return None
    factors = [_lateness(result.iteration_seconds, busy) for busy in (modelled, compute + borders)]
    known = [factor for factor in factors if factor is not None]
    return max(1.0, min(known)) if len(known) == len(factors) else None


def _lateness(iteration_seconds: float, busy: Seconds) -> float | None:
    """Return the straggler factor of an iteration with these busy times; None if one host dominates.

    It is below 1 if the iteration is shorter than the longest busy time.
    """
    ratio = iteration_seconds / float(busy.max())
    weight = bottleneck_evenness(busy) if len(busy) > 1 else 1.0
    if weight < MIN_EVENNESS:
        return None
    return ratio if ratio < 1.0 else 1.0 + (ratio - 1.0) / weight


def _busy_seconds(
    result: PredictionCheck, hosts: Sequence[Host], information: InformationPool, learned: Learned
) -> Seconds:
    """Return the modelled busy seconds of each host of a run, under a learned state (`Learned.supposed`)."""
    pool = replace(without_risk(information), learned=learned.supposed)
    rows = np.array([float(check.rows) for check in result.hosts])
    return _model(result, _pool_of_run(result, pool)).busy_seconds(hosts, rows)


def _measured_borders(
    result: PredictionCheck,
    hosts: Sequence[Host],
    model: ModelTemplate,
    information: InformationPool,
) -> list[MeasuredBorder]:
    """Return the program's measurements of the plan's borders."""
    reported = {border.hosts: border for border in result.borders if border.seconds > 0}
    pairs, modelled = model.touching(hosts), model.border_seconds(hosts)
    tiles = any(check.rectangle for check in result.hosts)
    sweeps = 1 if tiles else information.active_set.sweeps
    carried: Counter[Pair] = Counter()
    for a, b in pairs:
        if a.site != b.site and (a.name, b.name) in reported:
            carried[pair_of(a.site, b.site)] += reported[a.name, b.name].bytes
    return [
        MeasuredBorder(
            (a, b),
            border.seconds,
            border.latency_seconds,
            carried[pair_of(a.site, b.site)] if a.site != b.site else border.bytes,
            information.conditions.slower_link(a, b),
            seconds * sweeps,
        )
        for (a, b), seconds in zip(pairs, modelled, strict=True)
        if (border := reported.get((a.name, b.name))) is not None
    ]


def resolution(border: MeasuredBorder, information: InformationPool) -> float:
    """Return the seconds below which a measured border shows a timer, a time slice or a quota, not a link."""
    conditions = information.conditions
    times = [CLOCK_SECONDS]
    for host in border.hosts:
        quota = conditions.quota(host, host.slots)
        if quota is not None:
            times.append(quota[1])
        elif standstill(conditions, host) or information.model.shares_processors:
            times.append(SLICE_SECONDS)
    return max(times)


def _border_waits(
    borders: Sequence[MeasuredBorder], information: InformationPool, learned: Learned
) -> dict[str, WaitMeasurement]:
    """Return the wait at the borders of each throttled host, by identity: the mean of its borders.

    The wait is the measured time in excess of the link's time; it does not scale with the message. If both ends
    of a border are throttled, each end gets a half.
    """
    measured: dict[str, list[WaitMeasurement]] = {}
    messages = information.application.messages
    for border in borders:
        link = learned.links.of(*border.hosts)
        transfer = (
            link.seconds(border.size, messages, border.forecast) if link else border.modelled
        )
        most = {host: standstill(information.conditions, host) for host in border.hosts}
        throttled = [host for host in border.hosts if most[host] > 0]
        if not throttled or transfer <= 0:
            continue
        known = sum(_candidate_wait(host, learned, most[host]) for host in throttled)
        error_with = abs(math.log(border.seconds / (transfer + known)))
        error_without = abs(math.log(border.seconds / transfer))
        extra = max(0.0, border.seconds - transfer) / len(throttled)
        for host in throttled:
            wait = WaitMeasurement(min(extra, most[host]), error_with, error_without)
            measured.setdefault(host.identity, []).append(wait)
    return {
        identity: WaitMeasurement(
            *(
                sum(getattr(wait, name) for wait in waits) / len(waits)
                for name in ("seconds", "error_with", "error_without")
            )
        )
        for identity, waits in measured.items()
    }


def _candidate_wait(host: Host, learned: Learned, most: float) -> float:
    """Return the learned border wait of a host, in use or not."""
    known = learned.corrections.get((BORDER_WAIT, (host.identity,)))
    return min(known.candidate, most) if known else 0.0


def _slowdown(check: HostCheck, predicted: float, dedicated: float) -> float | None:
    """Return the slowdown factor on a host's compute seconds by its speed function; None if unknown."""
    if check.processor is not None:
        return check.processor / dedicated if check.processor > 0 else None
    if predicted > 0 and check.measured_compute > 0:
        return check.measured_compute / predicted
    return None


def _dedicated(check: HostCheck, information: InformationPool) -> float:
    """Return the processor seconds of one slot by the host's speed function."""
    host = information.hosts[check.host]
    rows = check.rows / host.slots
    return information.application.columns * rows * information.speeds[check.host].at(rows)
