"""`Move` and `evaluate_move`: gain and cost of moving a running application.

They use `as_measured`, the pool of a running application. A sensor counts the application's own processes as
competitors, so a new plan by the weather alone would move the application away from itself. On its hosts the
application therefore has its measured speed, and on the same CPUs the weather is corrected for its processes.
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
"""Assumed standstill of a move in addition to the transfer of its data."""
REMEMBERED_MOVES = 3
"""The largest standstill of this many latest moves is a lower bound on the cost of the next move."""


@dataclass(frozen=True, slots=True)
class Move:
    """An evaluated proposal to continue on other hosts or rows.

    Attributes
    ----------
    estimate
        The candidate.
    information
        The pool that the candidate was estimated under.
    iteration_seconds, next_seconds
        Seconds of one iteration, measured now and predicted after the move.
    remaining
        Iterations left.
    cost
        Seconds of the application's standstill during the move.
    error
        Relative standard error of the measurement: an improvement must exceed it.
    violation
        Violation of the contract in words, with the host; empty for a periodic evaluation.
    probed
        Measured over modelled time of the application's kernel, by host of the candidate with such a
        measurement before the move.
    note
        Text added to the explanation, such as the bytes to transfer.
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
        """The relative reduction of the iteration time."""
        return 1.0 - self.next_seconds / self.iteration_seconds

    @property
    def gain(self) -> float:
        """Seconds saved in the remaining iterations, before the cost is subtracted."""
        return self.remaining * (self.iteration_seconds - self.next_seconds)

    @property
    def payback(self) -> float:
        """Seconds after which the gain exceeds the cost; infinite if it never does."""
        saved = self.iteration_seconds - self.next_seconds
        return self.cost / saved * self.next_seconds if saved > 0 else float("inf")

    def pays(
        self, least_improvement: float, standard_errors: float, times_the_cost: float
    ) -> bool:
        """Return whether the improvement exceeds a part and some errors, and the gain a multiple of the cost."""
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
    """Return gain and cost of moving a running application to a candidate; None if hosts and rows are the same.

    Parameters
    ----------
    rows
        Present rows of each host, in strip order.
    rate
        Iteration rate measured with these rows.
    remaining
        Iterations left.
    information
        Pool with the measured times of the hosts in use (`as_measured`).
    costs
        Measured seconds of the moves made so far.
    violation
        Reason for the evaluation.
    next_seconds
        Seconds of one iteration after the move, if the caller knows them; default: from the model.
    probed
        Measured slowdown of the application's own kernel, by host.
    """
    if {a.host.name: int(a.rows) for a in candidate.schedule.allocations} == dict(rows):
        return None
    if next_seconds is None:
        staying = estimate_of(rows, information, estimator)
        # Effects that the model leaves out lengthen an iteration by the same factor before and after the move.
        overhead = max(1.0, rate.iteration_seconds / staying.iteration_seconds)
        next_seconds = candidate.iteration_seconds * overhead
    return Move(
        candidate,
        information,
        rate.iteration_seconds,
        next_seconds,
        remaining,
        # The estimate is only bytes and a constant; the longest recent move is a lower bound.
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
    """Return the estimate of the application's present hosts and rows."""
    hosts = information.hosts
    allocations = tuple(
        Allocation(hosts[name], float(count), information.implementation(hosts[name]))
        for name, count in rows.items()
    )
    return estimator.estimate(Schedule(allocations), information)


def move_seconds(
    rows: Mapping[str, int], schedule: Schedule, information: InformationPool
) -> float:
    """Return the expected seconds of a move: the stall plus each host's gained rows over its slowest link."""
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
    """Return the pool of a running job, with its measured times on its hosts.

    Parameters
    ----------
    rows
        Rows of each host of the job, in strip order.
    seconds
        Seconds of computing in one iteration, by host; a missing host was not measured yet.
    before
        The slowdowns (`InformationPool.slowdown`) of hosts that the job used earlier.
    bias
        The slowdown of hosts that the job never used: effects that the model leaves out everywhere.
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
    """Return the hosts that share no CPU with the job's hosts: a probe there does not disturb the job."""
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
    """Return the free memory plus the memory that the job itself holds."""
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
    """Return the weather corrected for the processes of a job on the hosts `occupied`.

    Competitors are counted in processes like the job's (`nws.sensors.cpu`), so each process of the job on the
    same CPUs is one competitor, independent of the groups of the others. Processes on the same machine contend
    as new processes do: they share the weight of a group, or the CPUs to which others may move. If CPUs are
    idle even beside the job, the job has displaced no process.

    Parameters
    ----------
    apart
        Names of hosts that are separate machines, which share CPUs with no other host.
    duty
        The part of an iteration in which the job computes, by host; 1 for others.
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
    """Return whether two measured hosts share a CPU; a part of this machine without a CPU list has all CPUs."""
    if one.name == other.name or {one.name, other.name} & apart:
        return one.name == other.name
    return not one.cpus or not other.cpus or bool(set(one.cpus) & set(other.cpus))
