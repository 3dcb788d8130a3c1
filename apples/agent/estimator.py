"""`PerformanceEstimator`: time and cost of a schedule, with an interval (Berman et al. 1996, section 4.6).

The expected maximum of several uncertain times exceeds the maximum of their means, so the nominal T is biased
low. The model's own interval (`interval`) is therefore the range from 10 to 90 % of draws from the forecasts'
errors, with fixed strips. Plans do not print it: the width of the printed interval follows from the errors of
past runs (`apples.agent.models.conformal`).

Estimates are ranked by the user's objective (`by_value`), with the queue wait of their hosts
(`with_queue_wait`) and the user's preferences (`preferred`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from apples.agent.information import (
    InformationPool,
    is_measured,
    queue_seconds,
    refusal,
    start_seconds,
)
from apples.agent.models.conformal import (
    MIN_RUNS,
    SHOWN_RUNS,
    USED_RUNS,
    caution,
    next_interval,
    set_class,
)
from apples.agent.models.model import ModelTemplate, Seconds
from apples.errors import LaunchError, ManagerUnreachableError
from apples.launch.actuator import Actuator
from apples.resources import Host
from apples.resources.schedule import (
    Allocation,
    Estimate,
    HostEstimate,
    IntervalBasis,
    Rejection,
    Schedule,
)
from hat import Preferences

DRAWS = 20_000
MAX_NUMBERS = 400_000
"""Draws times hosts: with very many hosts fewer draws suffice, for the maximum hardly varies."""
LOW, HIGH = 10, 90
SEED = 1996
ENOUGH_WAITING, MAX_ASKED = 8, 64
"""The comparison ends after this many sets with a known wait, or this many queries of the queue (one a set)."""


class PerformanceEstimator:
    """Estimates schedules under one information pool."""

    def estimate(
        self, schedule: Schedule, information: InformationPool, alone_seconds: float | None = None
    ) -> Estimate:
        """Return the estimate of a feasible schedule, with its value by the user's objective.

        Parameters
        ----------
        alone_seconds
            Iteration seconds of the reference host alone, for the speedup; None without a reference.
        """
        estimate = self.predicted(schedule, information, alone_seconds)
        return replace(estimate, value=objective_value(estimate, information))

    def predicted(
        self, schedule: Schedule, information: InformationPool, alone_seconds: float | None = None
    ) -> Estimate:
        """Return the estimate without its value; the user's metric is not called."""
        model, rows = information.model_of(schedule), np.array(schedule.rows, dtype=float)
        careful = caution_for(schedule.resources, information)
        compute = careful * model.computation(schedule.resources, rows)
        communicate = careful * model.communication(schedule.resources)
        hosts = tuple(
            _host_estimate(information.pool_of(schedule), model, allocation, float(a), float(c))
            for allocation, a, c in zip(schedule.allocations, compute, communicate, strict=True)
        )
        busy = compute + communicate
        seconds = float(busy.max()) * model.lateness(schedule.resources, busy)
        iterations = information.application.iterations
        sweeps = 1 if schedule.rectangles else information.active_set.sweeps
        rate = sum(host.cost_per_second for host in schedule.resources)
        start = start_seconds(information, schedule.resources)
        return Estimate(
            schedule,
            hosts,
            iterations,
            seconds,
            cost=rate * (start + seconds * iterations),
            speedup=alone_seconds / seconds if alone_seconds else None,
            start_seconds=start,
            wait_seconds=queue_seconds(schedule.resources),
            borders=tuple((a.name, b.name) for a, b in model.touching(schedule.resources)),
            border_seconds=tuple(
                sweeps * seconds for seconds in model.border_seconds(schedule.resources)
            ),
        )

    def promised(self, estimate: Estimate, information: InformationPool) -> Estimate:
        """Return the estimate with its interval and the past runs behind it.

        The interval is the prediction without the user's risk, divided and multiplied by a factor from past
        runs of this class of sets. It always contains the prediction itself. It has length 0 before `MIN_RUNS`
        such runs, and if a speed was not measured for this application.
        """
        schedule = estimate.schedule
        kind = set_class(schedule.resources)
        past = information.learned.runs_of(kind)
        mean = without_risk(information).model_of(schedule).iteration_seconds(schedule)
        mean *= estimate.iterations
        seconds = estimate.execution_seconds
        low = high = seconds
        pool, following = information.pool_of(schedule), next_interval(past)
        measured = all(is_measured(pool, host) for host in schedule.resources)
        if following is not None and len(past) >= MIN_RUNS and measured:
            stretch = math.exp(following.half_width)
            low, high = mean / stretch, mean * stretch
        held = following.held[-SHOWN_RUNS:] if following else ()
        return replace(
            estimate,
            interval=(min(low, seconds), max(high, seconds)),
            basis=IntervalBasis(kind, mean, min(len(past), USED_RUNS), sum(held), len(held)),
        )

    def interval(self, schedule: Schedule, information: InformationPool) -> tuple[float, float]:
        """Return the model's interval: 10 and 90 % quantiles of execution seconds by the forecasts' errors."""
        count = max(200, min(DRAWS, MAX_NUMBERS // max(1, len(schedule.resources))))
        draws = information.model_of(schedule).draw(
            schedule.resources,
            np.array(schedule.rows, dtype=float),
            np.random.default_rng(SEED),
            count,
        )
        low, high = percentiles(draws.max(axis=1), LOW, HIGH)
        iterations = information.application.iterations
        return low * iterations, high * iterations


def percentiles(values: Seconds, *percents: float) -> list[float]:
    """Return percentiles, bit for bit as `numpy.percentile` interpolates them.

    `numpy.percentile` itself would load masked arrays, which takes as long as the rest of an estimate.
    """
    ordered = np.sort(values)
    found = []
    for percent in percents:
        place = percent / 100.0 * (len(ordered) - 1)
        below = min(int(place), len(ordered) - 2)
        low, high, part = ordered[below], ordered[below + 1], place - below
        step = high - low
        found.append(float(high - step * (1.0 - part) if part >= 0.5 else low + step * part))
    return found


def objective_value(estimate: Estimate, information: InformationPool) -> float:
    """Return the value that `best` minimises: turnaround, cost, inverse of the speedup, or the user's metric.

    The speedup counts the wait and the start, as the turnaround does. Waiting in a queue costs nothing.
    """
    if information.metric is not None:
        return information.metric(estimate)
    measure = information.specifications.objective.measure
    if measure == "cost":
        return estimate.cost
    if measure == "speedup" and estimate.speedup:
        return estimate.turnaround_seconds / (estimate.execution_seconds * estimate.speedup)
    return estimate.turnaround_seconds


def alone_seconds(information: InformationPool, usable: Sequence[Host]) -> float | None:
    """Return the iteration seconds of the user's reference, else of the fastest host that holds the grid."""
    reference = information.specifications.objective.reference
    total, model = information.application.rows, information.model
    if reference:
        hosts: Sequence[Host] = (information.hosts[reference],)
    else:
        caps = model.caps(usable, total)
        hosts = [h for h, cap in zip(usable, caps, strict=True) if cap >= total]
    rows = np.array([float(total)])
    return min(
        (
            float(by.model.computation((h,), rows)[0])
            for h in hosts
            for by in (information, information.by_threads_on(h))
            if by is not None
        ),
        default=None,
    )


def caution_for(resources: Sequence[Host], information: InformationPool) -> float:
    """Return the factor for the user's risk on the seconds of a set, from past runs of its class."""
    risk = information.specifications.preferences.risk
    return caution(information.learned.runs_of(set_class(resources)), risk) if risk else 1.0


def without_risk(information: InformationPool) -> InformationPool:
    """Return the pool with a risk of 0: it plans for the mean."""
    specifications = information.specifications
    if not specifications.preferences.risk:
        return information
    preferences = specifications.preferences.model_copy(update={"risk": 0.0})
    changed = specifications.model_copy(update={"preferences": preferences})
    return replace(information, specifications=changed)


def _host_estimate(
    information: InformationPool,
    model: ModelTemplate,
    allocation: Allocation,
    compute: float,
    communicate: float,
) -> HostEstimate:
    host = allocation.host
    free = information.memory_offered(host)
    return HostEstimate(
        host,
        allocation.rows,
        allocation.implementation or information.implementation(host),
        compute,
        communicate,
        model.memory_of(allocation),
        free if math.isfinite(free) else None,
        allocation.rectangle,
        allocation.threads,
    )


def by_value(estimates: Iterable[Estimate]) -> list[Estimate]:
    """Return estimates, the best first; ties go to the shorter turnaround, then to fewer hosts."""
    return sorted(estimates, key=lambda e: (e.value, e.turnaround_seconds, len(e.hosts)))


def with_queue_wait(
    ranked: Sequence[Estimate], actuator: Actuator, information: InformationPool
) -> tuple[list[Estimate], list[Rejection]]:
    """Return candidates with their expected wait, best first, and refusals of sets that the queue cannot provide.

    Candidates behind the first that starts at once are neither faster nor sooner. So the queue is not asked for
    these, unless the user prefers or avoids hosts. Candidates that start at once are all kept.

    Parameters
    ----------
    ranked
        Candidates by their value without a wait, best first.
    """
    if actuator.only_plans:  # a plan uses the waits of the host list
        return list(ranked), []
    likes = information.specifications.preferences
    found: list[Estimate] = []
    refused: list[Rejection] = []
    answers: dict[frozenset[Host], float | str] = {}
    for estimate in _at_once(ranked, information):
        queued = frozenset(actuator.waited_for(estimate.schedule.resources))
        if not queued:
            found.append(estimate)
            continue
        if queued not in answers:
            waits = [each for each in answers.values() if not isinstance(each, str)]
            sooner = not (likes.prefer or likes.avoid) and any(not e.wait_seconds for e in found)
            if sooner or len(waits) == ENOUGH_WAITING or len(answers) == MAX_ASKED:
                continue
            answers[queued] = _asked(estimate, actuator, information)
        answer = answers[queued]
        if isinstance(answer, str):
            refused.append(Rejection(estimate.names, answer, (0.0, 0.0), "queue"))
        else:
            found.append(waiting(estimate, answer, information))
    return by_value(found), refused


def _asked(estimate: Estimate, actuator: Actuator, information: InformationPool) -> float | str:
    """Return the queue's expected wait for a set in seconds, or its message if it never grants the set."""
    from apples.agent.launching import launch_plan  # noqa: PLC0415 - for a queue only

    try:
        return max(0.0, actuator.wait_seconds(launch_plan(estimate.schedule, information)))
    except ManagerUnreachableError:
        raise
    except LaunchError as error:
        return str(error)


def with_queue(information: InformationPool, actuator: Actuator) -> InformationPool:
    """Return the pool with the queue's expected wait for each host that is behind a queue.

    The queue is asked about each host alone. A set never starts before its slowest host alone, so a search with
    these values misses no set that is worth its wait. `with_queue_wait` then asks for the sets that the search
    found.
    """
    listed = [host for host in information.hosts if host.queue_seconds is not None]
    if not listed or actuator.only_plans:
        return information
    from apples.agent.launching import host_survey, launch_plan  # noqa: PLC0415 - for a queue only

    queued = actuator.waited_for(listed)
    if queued:
        information = information.with_findings(actuator.look(host_survey(information)))
    asked = {host: 0.0 for host in listed if host not in queued}  # already allocated
    for host in [host for host in queued if not refusal(information, host)][:MAX_ASKED]:
        row = Schedule((Allocation(host, 1, information.implementation(host)),))
        try:
            asked[host] = max(0.0, actuator.wait_seconds(launch_plan(row, information)))
        except ManagerUnreachableError:
            raise
        except LaunchError:
            continue  # `with_queue_wait` refuses its sets with the queue's message
    hosts = tuple(
        replace(h, queue_seconds=asked[h]) if h in asked else h for h in information.hosts
    )
    conditions = information.conditions
    return replace(
        information,
        conditions=replace(conditions, hosts=replace(conditions.hosts, hosts=hosts)),
    )


def _at_once(estimates: Sequence[Estimate], information: InformationPool) -> list[Estimate]:
    """Return the estimates without a wait, best first."""
    return by_value(waiting(e, 0.0, information) if e.wait_seconds else e for e in estimates)


def waiting(estimate: Estimate, seconds: float, information: InformationPool) -> Estimate:
    """Return the estimate with this wait in the queue."""
    later = replace(estimate, wait_seconds=seconds)
    return replace(later, value=objective_value(later, information))


def preferred(ranked: Sequence[Estimate], preferences: Preferences) -> Estimate:
    """Return the estimate that the user prefers among those within `prefer_within` of the best value.

    Fewer avoided hosts win, then the larger part of preferred hosts, then the better value.
    """
    if not preferences.prefer and not preferences.avoid:
        return ranked[0]
    best = ranked[0].value  # below 0 if a higher value of the user's metric is better
    within = best + abs(best) * preferences.prefer_within

    def liking(estimate: Estimate) -> tuple[int, float]:
        hosts = estimate.schedule.resources
        avoided = sum(bool({h.name, h.site} & {*preferences.avoid}) for h in hosts)
        liked = sum(bool({h.name, h.site} & {*preferences.prefer}) for h in hosts)
        return avoided, -liked / len(hosts)

    return min((e for e in ranked if e.value <= within), key=liking)
