"""Feedback: the prediction against what happened, and what the next prediction learns from it."""

from __future__ import annotations

from dataclasses import dataclass

from apples.actuator import HostTimes, Outcome
from apples.information import InformationPool
from apples.models import learn
from apples.schedule import Estimate


@dataclass(frozen=True, slots=True)
class HostCheck:
    """One host: predicted and measured seconds of one iteration."""

    host: str
    rows: int
    predicted_compute: float
    measured_compute: float
    predicted_communicate: float
    measured_communicate: float


@dataclass(frozen=True, slots=True)
class PredictionCheck:
    """How far the prediction was off.

    Attributes
    ----------
    off
        Measured over predicted iteration time, less 1.
    inside
        Whether the measured time lies in the promised interval; None without one.
    hosts
        Per host, in strip order.
    """

    off: float
    inside: bool | None
    hosts: tuple[HostCheck, ...]


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
                int(predicted.rows),
                predicted.compute_seconds,
                measured.compute_seconds / count,
                predicted.communicate_seconds,
                measured.communicate_seconds / count,
            )
        )
    inside = None
    if estimate.interval is not None and estimate.iterations == outcome.iterations:
        low, high = estimate.interval
        inside = low <= outcome.seconds <= high
    off = outcome.iteration_seconds / estimate.iteration_seconds - 1.0
    return PredictionCheck(off, inside, tuple(hosts))


def remember(result: PredictionCheck, information: InformationPool) -> None:
    """Let the models learn from a run: each host's pace, the cost of borders, the score of the interval.

    Communication as a program reports it holds waiting for slower neighbours too; the host that
    spent least on it waited least, so it alone speaks for the borders.
    """
    pace = {
        one.host: one.measured_compute / one.predicted_compute
        for one in result.hosts
        if one.predicted_compute > 0 and one.measured_compute > 0
    }
    at_borders = [
        one
        for one in result.hosts
        if one.predicted_communicate > 0 and one.measured_communicate > 0
    ]
    overlap = None
    if at_borders:
        honest = min(at_borders, key=lambda one: one.measured_communicate)
        overlap = honest.measured_communicate / honest.predicted_communicate
    template = information.template
    learn(template.name, template.version, pace, overlap, result.inside)
