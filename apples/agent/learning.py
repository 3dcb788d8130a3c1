"""Feedback: the prediction against what happened, and what the next prediction learns from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from apples.agent.estimator import without_risk
from apples.agent.information import InformationPool, assumes_speed
from apples.agent.models import Learned, RunObservation, learn, learn_starts
from apples.agent.models.calibration import ShareMeasurement, by_threads
from apples.agent.models.conformal import PastRun
from apples.agent.models.corrections import EWMA_WEIGHT, FIRST_SPREAD, SHARE_WEIGHT
from apples.agent.models.links import NO_LINKS, MeasuredBorder, Pair, pair_of
from apples.agent.models.model import ModelTemplate, Seconds, SpeedFunction, rivals
from apples.launch.events import BorderTimes, HostTimes, Outcome
from apples.resources import Host
from apples.resources.schedule import Estimate, Rectangle

LEAST_RIVALS = 0.5
"""Where the others of a set rival the longest less (`model.rivals`), a run teaches no straggler factor."""
WEIGHTY = 0.2
"""Borders that take at least this share of an iteration are known from its time; lighter ones, by what the
program says of them."""
LEAST_COMPUTE = 0.2
"""A host that is to compute for a smaller share of an iteration shows what an iteration costs beside its rows,
and not its slowdown."""
LEAST_BORDER = 0.02
"""Borders that are to take a smaller share of an iteration tell nothing of links: what is measured there is
the program waiting for its CPU."""


@dataclass(frozen=True, slots=True)
class HostCheck:
    """One host: predicted and measured seconds of one iteration, on its rows (`Allocation.rows`).

    `processor` is the processor time of one slot's computing (a rank's, or a thread's), `wait` the waiting for
    late neighbours; None where the program does not say.
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
    """How far the prediction was off.

    Attributes
    ----------
    off
        Measured over predicted iteration time, less 1.
    inside
        Whether the measured time lies in the promised interval; None without one, as where no
        forecast error is known.
    iteration_seconds
        Measured mean of an iteration.
    hosts
        Per host, in strip order.
    borders
        What the program measured of each border, in strip order; empty where it reports none.
    past
        What was promised and what came, for the next interval; None where nothing was promised of the whole.
    """

    off: float
    inside: bool | None
    iteration_seconds: float
    hosts: tuple[HostCheck, ...]
    borders: tuple[BorderTimes, ...] = ()
    past: PastRun | None = None


def check(estimate: Estimate, outcome: Outcome) -> PredictionCheck:
    """Return the comparison of an estimate with what was measured."""
    times = {one.host: one for one in outcome.hosts}
    count = max(1, outcome.iterations)
    hosts = []
    for predicted in estimate.hosts:
        measured = times.get(predicted.host.name) or HostTimes(predicted.host.name, 0.0, 0.0)
        hosts.append(
            HostCheck(
                predicted.host.name,
                predicted.rows,
                predicted.compute_seconds,
                measured.compute_seconds / count,
                None if measured.processor_seconds is None else measured.processor_seconds / count,
                predicted.communicate_seconds,
                measured.communicate_seconds / count,
                None if measured.wait_seconds is None else measured.wait_seconds / count,
                predicted.rectangle,
                predicted.threads,
            )
        )
    inside, (low, high) = None, estimate.interval or (0.0, 0.0)
    if low < high and estimate.iterations == outcome.iterations:
        inside = low <= outcome.seconds <= high
    off = outcome.iteration_seconds / estimate.iteration_seconds - 1.0
    return PredictionCheck(
        off,
        inside,
        outcome.iteration_seconds,
        tuple(hosts),
        outcome.borders,
        _past_run(estimate, outcome),
    )


def _past_run(estimate: Estimate, outcome: Outcome) -> PastRun | None:
    """Return what the next interval is to learn; a run that stopped early counts by its iterations."""
    basis, (low, high) = estimate.basis, estimate.interval or (0.0, 0.0)
    measured = outcome.iteration_seconds * estimate.iterations
    if basis is None or min(basis.mean_seconds, measured) <= 0:
        return None
    promised = (low, high) if low < high else None
    return PastRun(basis.set_class, basis.mean_seconds, basis.own, promised, measured)


def remember(result: PredictionCheck, information: InformationPool) -> None:
    """Let the models learn from a run: slowdowns, shares, links, overlap, straggler factor, error.

    The measurement is compared with the predicted mean: neither the user's risk nor the straggler factor is part
    of a host's slowdown, nor is the co-run slowdown of a calibrated host.
    """
    template, learned = information.template, information.learned
    unhindered = replace(learned, straggler_factor=1.0, straggler_of={})
    plain = replace(without_risk(information), learned=unhindered)
    if any(one.rectangle for one in result.hosts):
        plain = plain.for_rectangles
    if any(one.threads for one in result.hosts):
        plain = plain.for_threads
    hosts = [information.hosts[one.host] for one in result.hosts]
    computing = _observed_computing(result, hosts, plain)
    overlap, borders, at_borders = _taught_of_borders(result, hosts, plain)
    straggler_factor = None
    if len(hosts) > 1 or hosts[0].slots > 1:  # a rank alone never waits
        slowed = computing.corrected_seconds(learned)
        known = learned.straggler_factor_of(hosts, threads=plain.threads)
        straggler_factor = _straggler_factor(result, slowed, at_borders, known)
    observation = RunObservation(
        computing.hosts,
        {h: ratio for h, ratio in computing.slowdown.items() if h not in computing.speeds},
        computing.co_run_slowdown,
        computing.speeds,
        computing.shares,
        overlap,
        _model(result, plain).longest_border(hosts),
        borders,
        information.application.messages,
        straggler_factor,
        None if computing.speeds else result.past,  # an assumption's error is that of no later run
    )
    learn(template.name, template.version, observation)


def _model(result: PredictionCheck, information: InformationPool) -> ModelTemplate:
    """Return the model of what the hosts of a run had."""
    tiles = tuple(one.rectangle for one in result.hosts if one.rectangle)
    return replace(information.rectangle_model, rectangles=tiles) if tiles else information.model


def remember_start(estimate: Estimate, outcome: Outcome, information: InformationPool) -> None:
    """Let the next decision learn how long this launcher took until the program was ready on these hosts."""
    template, hosts = information.template, estimate.schedule.resources
    learn_starts(
        template.name, template.version, information.launcher, hosts, outcome.startup_seconds
    )


@dataclass(frozen=True, slots=True)
class _ObservedComputing:
    """What a run showed of its hosts' computing, by `Host.identity`; by threads as `by_threads` names it.

    Attributes
    ----------
    hosts
        Their identities, in strip order.
    seconds
        Predicted of each, without stragglers.
    slowdown, co_run_slowdown, speeds, shares
        As `RunObservation` has them, but for hosts whose speed had been assumed in both `slowdown` and `speeds`.
    """

    hosts: Sequence[str]
    seconds: Seconds
    slowdown: Mapping[str, float]
    co_run_slowdown: Mapping[str, float]
    speeds: Mapping[str, tuple[str, SpeedFunction]]
    shares: Mapping[str, ShareMeasurement]

    def corrected_seconds(self, learned: Learned) -> Seconds:
        """Return what the model will say of each host once this run is learned from."""
        return self.seconds * [self._correction(host, learned) for host in self.hosts]

    def _correction(self, host: str, learned: Learned) -> float:
        """Return the factor on the predicted seconds of one host: the first slowdown is taken as it is."""
        correction = 1.0
        for taught, known in (
            (self.slowdown, learned.slowdown),
            (self.co_run_slowdown, learned.co_run_slowdown),
        ):
            if host in taught:
                correction = taught[host] ** (EWMA_WEIGHT if host in known else 1.0)
        share = self.shares.get(host)
        return correction / share.ratio**SHARE_WEIGHT if share else correction


def _observed_computing(
    result: PredictionCheck, hosts: Sequence[Host], information: InformationPool
) -> _ObservedComputing:
    """Return slowdowns and shares; `information` is of the mean, without stragglers.

    Where the program reports processor time, the slowdown is that over the dedicated speed, and processor over
    wall time is the share of a CPU that the host got; else the slowdown is wall time over prediction. What a
    calibrated host is slower beside others it owes to them.
    """
    model, learned = information.model, information.learned
    with_others = len(hosts) > 1 and model.knows_co_run_slowdown
    seconds = model.computation(hosts, np.array([float(one.rows) for one in result.hosts]))
    slowdown: dict[str, float] = {}
    co_run_slowdown: dict[str, float] = {}
    speeds: dict[str, tuple[str, SpeedFunction]] = {}
    shares: dict[str, ShareMeasurement] = {}
    for host, one, predicted in zip(hosts, result.hosts, seconds.tolist(), strict=True):
        beside = learned.co_run_slowdown.get(host.identity, 1.0) if with_others else 1.0
        dedicated = _dedicated(one, beside, information)
        ratio = _slowdown(one, predicted, dedicated)
        assumed = assumes_speed(information, host)
        weight = one.measured_compute if assumed else predicted
        if ratio is None or weight < LEAST_COMPUTE * result.iteration_seconds:
            continue
        if assumed:
            speeds[host.identity] = (
                information.implementation(host),
                _measured_speed(host, one.rows, ratio, information),
            )
        calibrated = learned.speed(host.identity, information.implementation(host)) is not None
        place = _place(host, one)
        (co_run_slowdown if calibrated and with_others else slowdown)[place] = ratio
        if one.processor and one.measured_compute > 0 and dedicated > 0:
            # Beside waits a quota gives back more than itself (`StripModel.communication`): no share of a CPU.
            quota, _ = information.conditions.quota(host, host.slots) or (1.0, 0.0)
            shares[place] = ShareMeasurement(
                min(quota, one.processor / one.measured_compute) * predicted / dedicated,
                information.conditions.cpu(host).value,
            )
    places = [_place(host, one) for host, one in zip(hosts, result.hosts, strict=True)]
    return _ObservedComputing(places, seconds, slowdown, co_run_slowdown, speeds, shares)


def _place(host: Host, one: HostCheck) -> str:
    """Return under what is remembered how fast a host was: its identity, by threads another."""
    return by_threads(host.identity) if one.threads else host.identity


def _measured_speed(
    host: Host, rows: float, ratio: float, information: InformationPool
) -> SpeedFunction:
    """Return the speed that a run measured on a host of which none was known: of strips like the one it had."""
    strip = rows / host.slots
    seconds = information.speeds[host.name].at(strip) * ratio
    application = information.application
    points = application.rows * application.columns
    return SpeedFunction(
        (strip,), (seconds,), FIRST_SPREAD, application.columns, points=float(points)
    )


def _straggler_factor(
    result: PredictionCheck, compute: Seconds, at_borders: Sequence[float], known: float
) -> float | None:
    """Return the straggler factor that explains what is left between the model and the iteration.

    None where nobody is busy, or where all waited for one host and no other could be late: such a run neither
    teaches nor denies the factor that is known.

    `compute` is what the model says of each host with what this run taught of its slowdown, `at_borders` what it
    says of its borders times what this run found of them. Taking the measured times instead would count
    twice what a wrong share of the CPU has done to both.
    """
    busy = compute + np.array(at_borders)
    if not busy.any():
        return None
    factor = max(1.0, result.iteration_seconds / float(busy.max()))
    weight = rivals(busy) if len(busy) > 1 else 1.0
    if weight < LEAST_RIVALS and max(factor, known) > 1.0:
        return None
    return 1.0 + (factor - 1.0) / weight if factor > 1.0 else 1.0


def _taught_of_borders(
    result: PredictionCheck, hosts: Sequence[Host], information: InformationPool
) -> tuple[float | None, list[MeasuredBorder], list[float]]:
    """Return what a run taught of the overlap and of links, and each host's borders by that.

    Where the program measured its borders, nothing is inferred: the links are what they were measured to be,
    and the overlap, for links that no run measured, is what the program says of the same borders.
    """
    model, learned = _model(result, information), information.learned
    measured = _measured_borders(result, hosts, information)
    if not measured:
        predicted = model.communication(hosts).tolist()
        overlap = _overlap(result, predicted)
        return overlap, [], [seconds * (overlap or 1.0) for seconds in predicted]
    unmeasured = _model(result, replace(information, learned=replace(learned, links=NO_LINKS)))
    overlap = _told_of_borders(result, unmeasured.communication(hosts).tolist())
    links = learned.links.taught(measured, information.application.messages)
    taught = _model(result, replace(information, learned=replace(learned, links=links)))
    return overlap, measured, taught.communication(hosts).tolist()


def _measured_borders(
    result: PredictionCheck, hosts: Sequence[Host], information: InformationPool
) -> list[MeasuredBorder]:
    """Return what the program measured of the plan's borders."""
    told = {one.hosts: one for one in result.borders if one.seconds > 0}
    pairs = _model(result, information).touching(hosts)
    carried: Counter[Pair] = Counter()
    for a, b in pairs:
        if a.site != b.site and (a.name, b.name) in told:
            carried[pair_of(a.site, b.site)] += told[a.name, b.name].bytes
    return [
        MeasuredBorder(
            (a, b),
            one.seconds,
            one.latency_seconds,
            carried[pair_of(a.site, b.site)] if a.site != b.site else one.bytes,
            information.conditions.slower_link(a, b),
        )
        for a, b in pairs
        if (one := told.get((a.name, b.name))) is not None
    ]


def _overlap(result: PredictionCheck, predicted: Sequence[float]) -> float | None:
    """Return measured over predicted time at the borders; None where there were none worth the name.

    There are two bounds, and the lower one counts. The first: no host has more time for its borders than its
    computing leaves of the iteration, and the host with the least time for what its borders are to take waits
    least; it holds where borders weigh. (A plan that predicted them too long confirms itself there: the hosts
    with long borders wait for the others.) The second is what the program reports of its borders.
    """
    told = _told_of_borders(result, predicted)
    whole = result.iteration_seconds
    left = [
        ((whole - one.measured_compute) / seconds, seconds)
        for one, seconds in zip(result.hosts, predicted, strict=True)
        if seconds > 0 and 0 < one.measured_compute < whole
    ]
    if len(left) == len(predicted) and min(left)[1] > WEIGHTY * whole:
        return min(left)[0] if told is None else min(min(left)[0], told)
    return told


def _told_of_borders(result: PredictionCheck, predicted: Sequence[float]) -> float | None:
    """Return what the program says of its borders, over what is predicted; None where it says nothing.

    One that cannot tell waiting from communicating reports both as one: then the host that spent least
    waited least, and it alone speaks for the borders.
    """
    at_borders = [
        (one.measured_communicate, seconds, one.wait)
        for one, seconds in zip(result.hosts, predicted, strict=True)
        if seconds > LEAST_BORDER * result.iteration_seconds and one.measured_communicate > 0
    ]
    if not at_borders:
        return None
    if any(wait is None for _, _, wait in at_borders):
        at_borders = [min(at_borders, key=lambda border: border[0])]
    return sum(measured for measured, _, _ in at_borders) / sum(s for _, s, _ in at_borders)


def _slowdown(one: HostCheck, predicted: float, dedicated: float) -> float | None:
    """Return how many times longer the host computed than its speed function says; None if unknown."""
    if one.processor is not None:
        return one.processor / dedicated if one.processor > 0 else None
    if predicted > 0 and one.measured_compute > 0:
        return one.measured_compute / predicted
    return None


def _dedicated(one: HostCheck, beside: float, information: InformationPool) -> float:
    """Return the processor seconds of one slot that its speed function says, `beside` the slowdown by others."""
    host = information.hosts[one.host]
    rows = one.rows / host.slots
    return information.application.columns * rows * information.speeds[one.host].at(rows) * beside
