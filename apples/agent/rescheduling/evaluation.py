"""`Move` and `evaluate_move`: what moving a running application would bring, and what it would cost.

They rest on `as_measured`, the pool of an application that runs. A sensor takes the application's own
processes for competitors, so planning it anew by the weather alone would make it flee from itself. Where it
runs, its speed is therefore what it was measured to be, and on the same CPUs the weather is what it would be
without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np

from apples.agent.estimator import PerformanceEstimator
from apples.agent.information import InformationPool
from apples.agent.rescheduling.contract import IterationRate
from apples.launch.remote.addresses import remote_hosts
from apples.resources import Host, names
from apples.resources.schedule import Allocation, Estimate, Schedule
from apples.ui.units import duration
from apples.weather.conditions import Conditions
from nws import Forecast, Weather, available_share

STALL_SECONDS = 0.5
"""Assumed standstill of a move beside the transfer of its data, until a move of the run was measured."""
REMEMBERED_MOVES = 3
"""The largest of so many measured standstills is a lower bound on the cost of the next move."""


@dataclass(frozen=True, slots=True)
class Move:
    """A proposal to continue on other hosts or rows, evaluated.

    Attributes
    ----------
    estimate
        The candidate.
    information
        The pool that the candidate was estimated under.
    iteration_seconds, next_seconds
        One iteration as measured now, and as predicted after the move.
    remaining
        Iterations left.
    cost
        Seconds the application would stand still for the move.
    error
        Relative standard error of the measurement: an improvement must exceed it.
    violation
        Which host violates the contract, in words; empty where the evaluation was periodic.
    probed
        By host of the candidate on which the application's kernel was measured before the move: how many times
        longer it takes there than the model says.
    note
        Added to the explanation, such as the bytes that travel.
    """

    estimate: Estimate
    information: InformationPool
    iteration_seconds: float
    next_seconds: float
    remaining: int
    cost: float
    error: float
    violation: str
    probed: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    @property
    def improvement(self) -> float:
        """The part by which an iteration would become shorter."""
        return 1.0 - self.next_seconds / self.iteration_seconds

    @property
    def gain(self) -> float:
        """Seconds that the iterations left would take less, before the cost is subtracted."""
        return self.remaining * (self.iteration_seconds - self.next_seconds)

    @property
    def payback(self) -> float:
        """Seconds after which the move has paid for itself; infinite where it never does."""
        saved = self.iteration_seconds - self.next_seconds
        return self.cost / saved * self.next_seconds if saved > 0 else float("inf")

    def pays(
        self, least_improvement: float, standard_errors: float, times_the_cost: float
    ) -> bool:
        """Whether the improvement exceeds both a part and so many errors, and the gain a multiple of the cost."""
        enough = max(least_improvement, standard_errors * self.error)
        return self.improvement > enough and self.gain > times_the_cost * self.cost

    def explanation(self) -> str:
        """Return the reason, the gain and the cost in words."""
        schedule = self.estimate.schedule
        where = ", ".join(f"{a.host.name} {a.rows:.0f}" for a in schedule.allocations)
        payback = f", paid back after {duration(self.payback)}" if self.payback < 1e9 else ""
        probed = ", ".join(f"{host} {factor:.2f}" for host, factor in self.probed.items())
        measured = f" (measured there, times the model: {probed})" if probed else ""
        note = f"; {self.note}" if self.note else ""
        return (
            f"{self.violation or 'a periodic evaluation'}: on {where} an iteration would take "
            f"{duration(self.next_seconds)} in place of {duration(self.iteration_seconds)}{measured}; "
            f"{self.remaining} are left, {'loses' if self.gain < 0 else 'gain'} {duration(abs(self.gain))}, "
            f"cost {duration(self.cost)}{payback}{note}"
        )


def evaluate_move(
    candidate: Estimate,
    rows: Mapping[str, int],
    rate: IterationRate,
    remaining: int,
    information: InformationPool,
    estimator: PerformanceEstimator,
    *,
    costs: Sequence[float] = (),
    violation: str = "",
    next_seconds: float | None = None,
    probed: Mapping[str, float] | None = None,
) -> Move | None:
    """Return what moving a running application to a candidate would bring and cost; None where it would not move.

    Parameters
    ----------
    rows
        The rows of each host now, in strip order.
    rate
        The measured iteration rate on them.
    remaining
        Iterations left.
    information
        The pool in which the hosts in use take what they were measured to take (`as_measured`).
    costs
        Measured seconds of the moves made so far.
    violation
        Why the evaluation was made.
    next_seconds
        One iteration after the move, where the caller has it from elsewhere than the model.
    probed
        By host: the slowdown that the application's own kernel was measured to have there.
    """
    if {a.host.name: int(a.rows) for a in candidate.schedule.allocations} == dict(rows):
        return None
    if next_seconds is None:
        staying = estimate_of(rows, information, estimator)
        # An iteration here takes longer than the model says by what the model leaves out; so it does there.
        overhead = max(1.0, rate.iteration_seconds / staying.iteration_seconds)
        next_seconds = candidate.iteration_seconds * overhead
    return Move(
        candidate,
        information,
        rate.iteration_seconds,
        next_seconds,
        remaining,
        # The estimate knows the bytes and a constant only; the dearest recent move is a lower
        # bound.
        max([move_seconds(rows, candidate.schedule, information), *costs[-REMEMBERED_MOVES:]]),
        rate.error,
        violation,
        {
            name: factor
            for name, factor in (probed or {}).items()
            if name in names(candidate.schedule.resources)
        },
    )


def estimate_of(
    rows: Mapping[str, int], information: InformationPool, estimator: PerformanceEstimator
) -> Estimate:
    """Return the estimate of the hosts and rows the application has now."""
    hosts = information.hosts
    allocations = tuple(
        Allocation(hosts[name], float(count), information.implementation(hosts[name]))
        for name, count in rows.items()
    )
    return estimator.estimate(Schedule(allocations), information)


def move_seconds(
    rows: Mapping[str, int], schedule: Schedule, information: InformationPool
) -> float:
    """Return the expected seconds of a move: the rows each host gains over its slowest link, and the stall."""
    application, conditions = information.application, information.conditions
    row_bytes = application.strip_memory(1) - application.strip_memory(0)
    current = [information.hosts[name] for name in rows]
    seconds = STALL_SECONDS
    for one in schedule.allocations:
        gained = int(one.rows) - rows.get(one.host.name, 0)
        links = [
            conditions.link(other, one.host).link for other in current if other is not one.host
        ]
        if gained > 0 and links:
            seconds += gained * row_bytes / min(link.bandwidth for link in links)
    return seconds


def as_measured(
    information: InformationPool,
    rows: Mapping[str, int],
    seconds: Mapping[str, float],
    before: Mapping[str, float] | None = None,
    bias: float = 1.0,
) -> InformationPool:
    """Return the pool in which a running job takes on its hosts what it was measured to take.

    Parameters
    ----------
    rows
        What each host of the job has, in strip order.
    seconds
        Seconds each spends computing in one iteration; a host without has not been seen yet.
    before
        The slowdowns (`InformationPool.slowdown`) of hosts that the job was on earlier.
    bias
        The slowdown of hosts the job was never on: what the model leaves out everywhere.
    """
    hosts = [information.hosts[name] for name in rows]
    apart = {*information.findings, *(host.name for host in remote_hosts(information.hosts))}
    longest = max(seconds.values(), default=0.0)
    duty = {name: each / longest for name, each in seconds.items() if each > 0}
    weather = without_own(information.conditions, hosts, apart, duty)
    weather = replace(weather, free_memory=_with_own_memory(information, weather, rows))
    alone = replace(information, conditions=replace(information.conditions, weather=weather))
    predicted = alone.model.computation(hosts, np.array(list(rows.values()), dtype=float))
    slowdown = {
        host.name: seconds[host.name] / expected
        for host, expected in zip(hosts, predicted.tolist(), strict=True)
        if seconds.get(host.name, 0.0) > 0 and expected > 0
    }
    others = {
        host.name: bias * information.slowdown.get(host.name, 1.0) for host in information.hosts
    }
    return replace(alone, slowdown={**others, **(before or {}), **slowdown})


def apart_from(information: InformationPool, rows: Mapping[str, int]) -> set[str]:
    """Return the hosts that share no CPU with those that have rows: a probe there does not disturb the job."""
    apart = {*information.findings, *(host.name for host in remote_hosts(information.hosts))}
    used = [information.hosts[name] for name in rows]
    return {
        host.name
        for host in information.hosts
        if not any(_share_processors(one, host, apart) for one in used)
    }


def _with_own_memory(
    information: InformationPool, weather: Weather, rows: Mapping[str, int]
) -> dict[str, Forecast]:
    """Return the free memory as it would be without what the job holds."""
    free = dict(weather.free_memory)
    for name, count in rows.items():
        if name in free:
            held = information.model.memory(float(count))
            free[name] = _with_value(free[name], free[name].value + held)
    return free


def without_own(
    conditions: Conditions,
    occupied: list[Host],
    apart: Set[str],
    duty: Mapping[str, float] | None = None,
) -> Weather:
    """Return the weather as it would be without the processes of a job on `occupied`.

    Competitors are counted in processes like ours (`nws.sensors.cpu`), so each of ours on the same CPUs
    is one of them, whatever groups the others are in; and those on the same machine crowd, as new ones do:
    the weight of a group, or the CPUs that others may move to, is shared with them. Where CPUs are idle even
    beside the job, it has displaced no process.

    Parameters
    ----------
    apart
        Names of hosts that are machines of their own: they share CPUs with no other.
    duty
        By host: the part of an iteration in which the job computes there; 1 for others.
    """
    weather, busy = conditions.weather, duty or {}
    cpu, competitors = dict(weather.cpu), dict(weather.competitors)
    for host in conditions.hosts:
        own = sum(
            one.slots * busy.get(one.name, 1.0)
            for one in occupied
            if _share_processors(one, host, apart)
        )
        machine = conditions.machine(host)
        known = weather.crowding.get(host.name)
        spare = weather.spare_cpus.get(host.name)
        beside = sum(
            one.slots * busy.get(one.name, 1.0)
            for one in occupied
            if conditions.machine(one) == machine
        )
        crowd = (known.value if known else 0.0) * max(
            0.0, beside - (spare.value if spare else 0.0)
        )
        if (own or crowd) and host.name in cpu:
            others = max(0.0, conditions.competitors(host) - own - crowd)
            share = available_share(others, conditions.width(host), 1)
            cpu[host.name] = _with_value(cpu[host.name], share)
            if host.name in competitors:
                competitors[host.name] = _with_value(competitors[host.name], others)
    return replace(weather, cpu=cpu, competitors=competitors)


def _with_value(forecast: Forecast, value: float) -> Forecast:
    return replace(forecast, value=value, method=f"{forecast.method} without the job itself")


def _share_processors(one: Host, other: Host, apart: Set[str]) -> bool:
    """Whether two measured hosts stand for some of the same CPUs; parts of this machine without CPUs, for all."""
    if one.name == other.name or {one.name, other.name} & apart:
        return one.name == other.name
    return not one.cpus or not other.cpus or bool(set(one.cpus) & set(other.cpus))
