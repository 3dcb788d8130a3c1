"""The pool of a job that runs: its own measured times where it is, its own processes subtracted elsewhere.

A sensor sees the job's processes as everybody's, so planning a running job by the weather alone would make
it flee from itself. Where it is, its pace is what it was measured to take; elsewhere on the same CPUs the
weather is what it would be without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

import numpy as np

from apples.agent.conditions import Conditions
from apples.agent.information.pool import InformationPool
from apples.launch.remote.addresses import remote_hosts as elsewhere
from apples.resources import Host
from nws import Forecast, Weather, available_share


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
        The paces (`InformationPool.slowdown`) of hosts that the job was on earlier.
    bias
        The pace of hosts the job was never on: what the model leaves out everywhere.
    """
    hosts = [information.hosts[name] for name in rows]
    apart = {*information.findings, *(host.name for host in elsewhere(information.hosts))}
    sky = without_own(information.conditions, hosts, apart)
    sky = replace(sky, free_memory=_with_own_memory(information, sky, rows))
    alone = replace(information, conditions=replace(information.conditions, weather=sky))
    predicted = alone.model.computation(hosts, np.array(list(rows.values()), dtype=float))
    pace = {
        host.name: seconds[host.name] / expected
        for host, expected in zip(hosts, predicted.tolist(), strict=True)
        if seconds.get(host.name, 0.0) > 0 and expected > 0
    }
    others = {
        host.name: bias * information.slowdown.get(host.name, 1.0) for host in information.hosts
    }
    return replace(alone, slowdown={**others, **(before or {}), **pace})


def _with_own_memory(
    information: InformationPool, sky: Weather, rows: Mapping[str, int]
) -> dict[str, Forecast]:
    """Return the free memory as it would be without what the job holds."""
    free = dict(sky.free_memory)
    for name, count in rows.items():
        if name in free:
            held = information.model.memory(float(count))
            free[name] = _with_value(free[name], free[name].value + held)
    return free


def without_own(conditions: Conditions, occupied: list[Host], apart: Set[str]) -> Weather:
    """Return the weather as it would be without the processes of a job on `occupied`.

    Parameters
    ----------
    apart
        Names of hosts that are machines of their own: they share CPUs with no other.
    """
    sky = conditions.weather
    cpu, competitors = dict(sky.cpu), dict(sky.competitors)
    for host in conditions.hosts:
        own = sum(one.slots for one in occupied if _share_processors(one, host, apart))
        if own and host.name in cpu:
            others = max(0.0, conditions.competitors(host) - own)
            share = available_share(others, conditions.width(host), 1)
            cpu[host.name] = _with_value(cpu[host.name], share)
            if host.name in competitors:
                competitors[host.name] = _with_value(competitors[host.name], others)
    return replace(sky, cpu=cpu, competitors=competitors)


def _with_value(forecast: Forecast, value: float) -> Forecast:
    return replace(forecast, value=value, method=f"{forecast.method} without the job itself")


def _share_processors(one: Host, other: Host, apart: Set[str]) -> bool:
    """Whether two measured hosts stand for some of the same CPUs; parts of this machine without CPUs, for all."""
    if one.name == other.name or {one.name, other.name} & apart:
        return one.name == other.name
    return not one.cpus or not other.cpus or bool(set(one.cpus) & set(other.cpus))
