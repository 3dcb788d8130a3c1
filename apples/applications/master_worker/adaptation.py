"""Decisions of a run from measured rates: the workers that leave or join, and the number of hosts to request.

Nothing here starts a process or reads a clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from statistics import median
from typing import Any

from apples.applications.master_worker.messages import host_of
from apples.applications.master_worker.rates import MasterChoice, WorkerRates
from apples.resources import Host

# Two sets can have the same rate. If all workers outside the newest best set left, all would leave
# in turn.
JOIN_GAIN = 0.1
"""Workers join if the rate rises by this fraction."""
LEAVE_TOLERANCE = 0.02
"""A worker leaves if the rate falls by no more than this fraction."""


def measured_rates(rates: WorkerRates, progress: Mapping[str, Any]) -> WorkerRates:
    """Return the rates with the measured slowdown of each host, and the median slowdown of the others."""
    hosts = rates.conditions.hosts
    by_host: dict[str, list[float]] = {}
    for lane, report in progress["lanes"].items():
        if float(report["rate"]) > 0:
            by_host.setdefault(host_of(lane), []).append(float(report["rate"]))
    measured = {
        name: 1.0 / rates.unit_seconds(hosts[name]) / (sum(lanes) / len(lanes))
        for name, lanes in by_host.items()
    }
    usual = median(measured.values()) if measured else 1.0
    slowdown = {host.name: measured.get(host.name, usual) for host in hosts}
    service = float(progress["service_seconds"]) if progress["done"] else None
    return replace(rates, slowdown=slowdown, service_seconds=service)


def joining(
    now: MasterChoice, best: MasterChoice, working: Collection[str]
) -> Mapping[str, float]:
    """Return the hosts that should join with their expected units a second; empty if the gain is too small."""
    if best.rate <= (1 + JOIN_GAIN) * now.rate:
        return {}
    return {name: rate for name, rate in best.workers.items() if name not in working}


def leaving(rates: WorkerRates, master: Host, now: MasterChoice) -> Iterator[str]:
    """Yield the workers, slowest first, whose loss lowers the rate by at most `LEAVE_TOLERANCE`."""
    working = set(now.workers)
    hosts = rates.conditions.hosts
    for name in sorted(working, key=lambda name: now.workers[name]):
        others = [hosts[other] for other in working if other != name]
        if rates.together(master, others).rate >= (1 - LEAVE_TOLERANCE) * now.rate:
            working.discard(name)
            yield name


def hosts_to_ask_for(
    rates: WorkerRates, master: Host, working: Collection[str], free: Collection[Host], best: MasterChoice,
    *, may_ask: bool,
) -> tuple[int, int]:  # fmt: skip
    """Return the fewest and the most hosts to request: as many as raise the rate by `JOIN_GAIN`.

    Parameters
    ----------
    free
        The hosts that may work, including current workers.
    may_ask
        Whether the run may request more hosts than it has.
    """
    held = {master.name, *working}
    workers = [host for host in free if host.name in working]
    others = [host for host in free if host.name not in held]
    more = rates.fewest_more(master, workers, others, JOIN_GAIN) if may_ask else 0
    if not more:
        return 1, len(held)
    return len(held) + more, max(len(held) + more, len(held | best.workers.keys()))
