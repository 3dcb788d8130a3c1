"""Why a host is not in the chosen set: what it would cost to add it where it hurts least."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from apples.agent.coordinator import DecisionLog
from apples.agent.information import InformationPool
from apples.agent.planners.time_balancing import balance
from apples.resources import Host, ResourceSet
from apples.schedule import Estimate
from apples.units import duration

EXPLAINED = 12
"""Left-out hosts that are explained one by one."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A usable host that was not chosen: a sentence, and the two times in it (seconds)."""

    host: str
    reason: str
    figures: tuple[float, float]


def left_out(decision_log: DecisionLog) -> Iterator[LeftOut]:
    """Yield the reason for each usable host that was not chosen, the first twelve."""
    chosen, information = decision_log.chosen, decision_log.information
    if chosen is None or information is None:
        return
    used = {host.name for host in chosen.schedule.resources}
    others = [host for host in decision_log.usable if host.name not in used]
    for host in others[:EXPLAINED]:
        yield _reason(host, chosen, information)


def _reason(host: Host, chosen: Estimate, information: InformationPool) -> LeftOut:
    now = chosen.iteration_seconds
    seconds, border = min(_with(host, chosen.schedule.resources, information))
    if border >= now:
        reason = f"its border costs {duration(border)}, the whole iteration takes {duration(now)}"
        return LeftOut(host.name, reason, (border, now))
    if seconds <= now:
        reason = (
            f"with it an iteration would take {duration(seconds)}, without it {duration(now)}: "
            "the user's objective, limits or blueprint leave it out"
        )
    else:
        reason = (
            f"with it an iteration would take {duration(seconds)}, without it {duration(now)} "
            f"(its border costs {duration(border)})"
        )
    return LeftOut(host.name, reason, (seconds, now))


def _with(
    host: Host, chain: ResourceSet, information: InformationPool
) -> Iterator[tuple[float, float]]:
    """Yield the iteration and the host's border in seconds for each place it could take."""
    model, total = information.model, information.application.rows
    places = range(len(chain) + 1) if len(chain) <= EXPLAINED else (0, len(chain))
    for k in places:
        hosts = (*chain[:k], host, *chain[k:])
        rows = balance(model, hosts, total).astype(float)
        border = model.communication(hosts)
        longest = float(np.max(model.computation(hosts, rows) + border))
        yield longest, float(border[k])
