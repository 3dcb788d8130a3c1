"""Why a decision is what it is: hosts left out, when the answer changes, what would help where there is no plan.

`left_out` gives the price of adding a host where it hurts least. `thresholds` finds the CPU share, speed,
latency or memory at which another set wins: the blueprint itself is asked again under a varied pool, by
bisection, so that what is printed is what a new plan would say there (tested within 1 % either side).
`remedy` names the nearest relaxation where no plan is feasible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import hat
from apples.agent.coordinator import Blueprint, Coordinator, DecisionLog, Start
from apples.agent.information import InformationPool
from apples.agent.learned import dear_words, dearest
from apples.agent.planners.time_balancing import balance, rows_by
from apples.errors import ApplesError
from apples.resources import Host, ResourceSet
from apples.resources.schedule import Estimate
from apples.ui.units import amount, duration
from apples.weather.conditions import error_of

PRECISION = 1.002
"""Ratio at which a bisection stops: well inside the 1 % that is promised."""
SLOWEST, FASTEST = 64.0, 1 / 64.0
MOST_QUESTIONS = 10
MOST_HOSTS = 256
"""Of longer lists no host is asked about: each answer is a plan of its own, a dozen to a question."""
CLOSE, WATCH = 1.5, 4.0

Vary = Callable[[float], InformationPool]
Answer = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Threshold:
    """One quantity of one host, its value now, and the value at which the answer changes.

    Attributes
    ----------
    quantity
        ``cpu`` (share), ``speed`` (times its present speed), ``latency`` (times the present
        one to everybody), ``memory`` (bytes).
    now, error, at
        In the quantity's unit; `error` is the forecast's mean absolute error, 0 if it has none.
    answer
        The set that wins beyond it, sorted by name; empty when nothing is feasible there.
    """

    host: str
    quantity: str
    now: float
    error: float
    at: float
    answer: Answer

    @property
    def errors_away(self) -> float | None:
        """How many forecast errors lie between now and the change; None without an error."""
        return abs(self.at - self.now) / self.error if self.error > 0 else None

    @property
    def advice(self) -> str:
        """``close``, ``watch`` or ``safe``: by the forecast's errors, without any by the ratio."""
        if self.errors_away is not None:
            away = self.errors_away
            return "close" if away < CLOSE else "watch" if away < WATCH else "safe"
        ratio = max(self.at, self.now) / max(min(self.at, self.now), 1e-300)
        return "close" if ratio < 1.1 else "watch" if ratio < 1.5 else "safe"


def thresholds(coordinator: Coordinator, blueprint: Blueprint) -> Iterator[Threshold]:
    """Yield where the coordinator's last answer changes, for the chosen hosts and those left out."""
    record = coordinator.decision_log
    information = record.information
    if record.chosen is None or information is None or len(record.usable) > MOST_HOSTS:
        return
    used = {host.name for host in record.chosen.schedule.resources}
    questions = [
        *(q for h in record.chosen.schedule.resources for q in _of_chosen(h, record)),
        *(q for h in record.usable if h.name not in used for q in _of_others(h, information)),
    ]
    ask = _Asker(coordinator, blueprint)
    for host, quantity, now, error, vary, limit in questions[:MOST_QUESTIONS]:
        found = ask.change(vary, limit)
        if found is not None:
            factor, answer = found
            at = now / factor if quantity in {"cpu", "speed"} else now * factor
            yield Threshold(host.name, quantity, now, error, at, answer)


Question = tuple[Host, str, float, float, Vary, float]


def _of_chosen(host: Host, record: DecisionLog) -> Iterator[Question]:
    information, chosen = record.information, record.chosen
    if information is None or chosen is None:
        return
    cpu = information.conditions.cpu(host)
    yield (
        host,
        "cpu",
        cpu.value,
        error_of(cpu),
        lambda factor: information.with_what_if(slowdown={host.name: factor}),
        SLOWEST,
    )
    free = information.conditions.free_memory(host)
    needed = next(e.memory for e in chosen.hosts if e.host.name == host.name)
    if free is not None and 0 < free.value < 4 * needed:
        yield (
            host,
            "memory",
            free.value,
            error_of(free),
            lambda factor: information.with_what_if(memory={host.name: factor}),
            FASTEST,
        )


def _of_others(host: Host, information: InformationPool) -> Iterator[Question]:
    yield (
        host,
        "speed",
        1.0,
        0.0,
        lambda factor: information.with_what_if(slowdown={host.name: factor}),
        FASTEST,
    )
    yield (
        host,
        "latency",
        1.0,
        0.0,
        lambda factor: information.with_what_if(latency={host.name: factor}),
        FASTEST,
    )


class _Asker:
    """Asks the blueprint again under varied information."""

    def __init__(self, coordinator: Coordinator, blueprint: Blueprint) -> None:
        self.coordinator = coordinator
        self.blueprint = blueprint
        chosen = coordinator.decision_log.chosen
        self.now = _answer(coordinator.decision_log) if chosen else ()

    def change(self, vary: Vary, limit: float) -> tuple[float, Answer] | None:
        """Return the factor between 1 and `limit` at which the answer changes, and the new answer."""
        new = self.answer(vary(limit))
        if new == self.now:
            return None
        same, other = 1.0, limit
        while max(other / same, same / other) > PRECISION:
            middle = (same * other) ** 0.5
            there = self.answer(vary(middle))
            if there == self.now:
                same = middle
            else:
                other, new = middle, there
        return (same * other) ** 0.5, new

    def answer(self, information: InformationPool) -> Answer:
        asked = Coordinator(
            information,
            selector=self.coordinator.selector,
            planner=self.coordinator.planner,
            estimator=self.coordinator.estimator,
        )
        try:
            asked.execute(self.blueprint, Start(decides_only=True))
        except ApplesError:
            return ()
        return _answer(asked.decision_log)


def _answer(record: DecisionLog) -> Answer:
    chosen = record.chosen
    return tuple(sorted(host.name for host in chosen.schedule.resources)) if chosen else ()


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
        if chosen.schedule.rectangles:
            found = _by_sets(host, chosen, decision_log.estimates)
        else:
            found = _reason(host, chosen, information)
        learned = dear_words(dearest(information, host, chosen.schedule.resources))
        yield replace(found, reason=found.reason + learned)


def _by_sets(host: Host, chosen: Estimate, estimates: Sequence[Estimate]) -> LeftOut:
    """Return the reason by the sets that were estimated: of rectangles there is no chain to try a host in."""
    now = chosen.iteration_seconds
    seconds = min(
        (one.iteration_seconds for one in estimates if host in one.schedule.resources),
        default=None,
    )
    if seconds is None:
        return LeftOut(host.name, "no set with it was estimated", (0.0, now))
    reason = f"the best set with it would take {duration(seconds)} an iteration, this one {duration(now)}"
    return LeftOut(host.name, reason, (seconds, now))


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
    """Yield the iteration and the host's border in seconds for each place it could take that may be the best."""
    model, total = information.model, information.application.rows
    places = range(len(chain) + 1) if len(chain) <= EXPLAINED else (0, len(chain))
    chains = [(*chain[:k], host, *chain[k:]) for k in places]
    borders = [model.communication(hosts) for hosts in chains]
    best = math.inf
    for i in sorted(range(len(chains)), key=lambda i: float(borders[i].sum())):
        hosts, border = chains[i], borders[i]
        if math.isfinite(best) and rows_by(model, hosts, border, total, best) < total:
            continue  # there it would take longer
        rows = balance(model, hosts, total).astype(float)
        seconds = model.set_seconds(hosts, rows)
        best = min(best, seconds)
        yield seconds, float(border[places[i]])


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
