"""What would help where there is no plan: a smaller grid, or more memory."""

from __future__ import annotations

import hat
from apples.agent.coordinator import DecisionLog
from apples.agent.information import InformationPool
from apples.resources import Host
from apples.units import amount


def remedy(information: InformationPool, decision_log: DecisionLog) -> str:
    """Return the nearest relaxation in one sentence, empty when memory is not what is missing."""
    allowed = _allowed(information, decision_log)
    total = information.application.rows
    held = int(information.model.caps(allowed, total).sum()) if allowed else 0
    if held >= total or not any(r.filter == "memory" for r in decision_log.rejections):
        return ""
    more = information.model.memory(total - held)
    parts = [f"fits with one more host of {amount(more)} free"]
    largest = _largest_grid(information, allowed)
    if largest:
        parts.insert(0, f"fits if {largest}")
    return ", or ".join(parts)


def _allowed(information: InformationPool, decision_log: DecisionLog) -> tuple[Host, ...]:
    """Return the hosts that nothing but memory speaks against."""
    refused = {
        r.hosts[0] for r in decision_log.rejections if len(r.hosts) == 1 and r.filter != "memory"
    }
    return tuple(host for host in information.hosts if host.name not in refused)


def _largest_grid(information: InformationPool, allowed: tuple[Host, ...]) -> str:
    """Return ``grid is at most N``, where one parameter alone sets the rows."""
    names = information.template.rows.names
    if len(names) != 1 or not allowed:
        return ""
    (name,) = names
    now = information.application.parameters.get(name)
    if not isinstance(now, int):
        return ""
    low, high = 0, now
    while high - low > 1:
        middle = (low + high) // 2
        if _holds(information, allowed, {name: middle}):
            low = middle
        else:
            high = middle
    return f"{name} is at most {low}" if low else ""


def _holds(
    information: InformationPool, allowed: tuple[Host, ...], change: dict[str, int]
) -> bool:
    try:
        application = information.template.bind({**information.application.parameters, **change})
    except hat.DocumentError:
        return False
    smaller = information.with_application(application)
    total = application.rows
    return int(smaller.model.caps(allowed, total).sum()) >= total
