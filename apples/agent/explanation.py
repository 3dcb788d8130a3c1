"""Explain a decision: hosts left out, values at which the answer changes, remedies if no plan is feasible.

`left_out` gives the cost of adding a host at its best place. `bindings` and `memory_bindings` name the limits
that keep the plan from being better. `thresholds` finds the CPU share, speed, latency or memory at which
another set wins. It executes the blueprint again under varied pools, by bisection, so a new plan at the printed
value agrees (tested within 1 % on either side). `remedy` names the nearest relaxation if no plan is feasible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal

import numpy as np

import hat
from apples.agent.coordinator import Blueprint, Coordinator, DecisionLog, StartHooks
from apples.agent.describe_corrections import dear_words, dearest
from apples.agent.estimator import caution_for
from apples.agent.information import InformationPool
from apples.agent.planners.planner import schedule as made_schedule
from apples.agent.planners.time_balancing import balance, rows_by
from apples.agent.selector import Limits
from apples.agent.selector.chains import measured
from apples.errors import ApplesError
from apples.launch.actuators.recording import RecordingActuator
from apples.resources import Host
from apples.resources.schedule import Allocation, Estimate, Schedule
from apples.ui.units import amount, counted, duration
from apples.weather.conditions import error_of

if TYPE_CHECKING:
    from apples.agent.documents import Binding, ChangeInfo, LeftOut

PRECISION = 1.002
"""Ratio at which a bisection stops: well inside the promised 1 %."""
SLOWEST, FASTEST = 64.0, 1 / 64.0
MAX_QUESTIONS = 10
MAX_HOSTS = 256
"""No questions are asked about longer lists: each question takes about a dozen plans."""
CLOSE, WATCH = 1.5, 4.0

Vary = Callable[[float], InformationPool]
Answer = tuple[str, ...]
Quantity = Literal["cpu", "speed", "latency", "memory"]


def _change(
    host: str, quantity: Quantity, now: float, error: float, at: float, answer: Answer
) -> ChangeInfo:
    """Return the value at which the answer changes, its distance in forecast errors, and an advice."""
    away = abs(at - now) / error if error > 0 else None
    ratio = max(at, now) / max(min(at, now), 1e-300)
    close, watch = (away < CLOSE, away < WATCH) if away is not None else (ratio < 1.1, ratio < 1.5)
    return {
        "host": host,
        "quantity": quantity,
        "now": now,
        "error": error,
        "at": at,
        "answer": list(answer),
        "errors_away": away,
        "advice": "close" if close else "watch" if watch else "safe",
    }


def thresholds(
    coordinator: Coordinator, blueprint: Blueprint, asked: Sequence[Question] | None = None
) -> Iterator[ChangeInfo]:
    """Yield the values at which the coordinator's last answer changes, for each question.

    Parameters
    ----------
    asked
        Questions. Default: the first ten; none for a long host list.
    """
    if asked is None:
        asked = first_questions(questions(coordinator.decision_log), coordinator)
    ask = _Asker(coordinator, blueprint)
    for host, quantity, now, error, vary, limit in asked:
        found = ask.change(vary, limit)
        if found is not None:
            factor, answer = found
            at = now / factor if quantity in {"cpu", "speed"} else now * factor
            yield _change(host.name, quantity, now, error, at, answer)


def first_questions(possible: Sequence[Question], coordinator: Coordinator) -> Sequence[Question]:
    """Return the questions that `thresholds` asks by default."""
    return () if _is_long(coordinator) else possible[:MAX_QUESTIONS]


def _is_long(coordinator: Coordinator) -> bool:
    """Return whether the host list is too long for questions, as each question takes several plans."""
    return len(coordinator.decision_log.usable) > MAX_HOSTS


def questions(record: DecisionLog) -> list[Question]:
    """Return all questions: alternately about a chosen host and about a host left out."""
    information, chosen = record.information, record.chosen
    if chosen is None or information is None:
        return []
    used = {host.name for host in chosen.schedule.resources}
    inside = [q for host in chosen.schedule.resources for q in _of_chosen(host, record)]
    outside = [q for h in record.usable if h.name not in used for q in _of_others(h, information)]
    turns = zip_longest(inside, outside)
    return [question for turn in turns for question in turn if question is not None]


Question = tuple[Host, Quantity, float, float, Vary, float]


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
    """Executes the blueprint again under varied information, without contact to hosts or queues."""

    def __init__(self, coordinator: Coordinator, blueprint: Blueprint) -> None:
        self.coordinator = coordinator
        self.blueprint = blueprint
        chosen = coordinator.decision_log.chosen
        self.now = tuple(sorted(chosen.names)) if chosen else ()

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
        """Return the names of the hosts chosen under a pool, sorted; empty without a feasible plan."""
        chosen = self.chosen(information)
        return tuple(sorted(chosen.names)) if chosen else ()

    def chosen(self, information: InformationPool) -> Estimate | None:
        """Return the estimate chosen under a pool; None without a feasible plan."""
        decision = self.decision(information)
        return decision.chosen if decision else None

    def decision(self, information: InformationPool) -> DecisionLog | None:
        """Return the decision under a pool; None without a feasible plan."""
        asked = self.coordinator.under(information, DecisionLog())
        asked.actuator = RecordingActuator(asked.actuator, asks=False)
        try:
            asked.execute(self.blueprint, StartHooks(decides_only=True))
        except ApplesError:
            return None
        return asked.decision_log


EXPLAINED = 12
"""Left-out hosts that are explained one by one."""


def left_out(decision_log: DecisionLog) -> Iterator[LeftOut]:
    """Yield the reason for each usable host that was not chosen, the first twelve."""
    chosen, information = decision_log.chosen, decision_log.information
    if chosen is None or information is None:
        return
    limits = decision_log.limits or Limits(information)
    used = {host.name for host in chosen.schedule.resources}
    others = [host for host in decision_log.usable if host.name not in used]
    for host in others[:EXPLAINED]:
        reason = _reason(host, chosen, limits)
        learned = dearest(information, host, chosen.schedule.resources, chosen.execution_seconds)
        reason["reason"] += dear_words(learned)
        yield reason


def _reason(host: Host, chosen: Estimate, limits: Limits) -> LeftOut:
    now = chosen.iteration_seconds
    best = min(_with(host, chosen.schedule, limits.information), default=None)
    if best is None:
        offered = limits.information.memory_offered(host)
        reason = (
            f"no plan with it holds the grid: it offers {amount(offered)}; "
            f"without it an iteration takes {duration(now)}"
        )
        return {"host": host.name, "reason": reason, "figures": [offered, now]}
    seconds, border = best
    if border >= now:
        reason = f"its border costs {duration(border)}, the whole iteration takes {duration(now)}"
        return {"host": host.name, "reason": reason, "figures": [border, now]}
    reason = f"with it an iteration would take {duration(seconds)}, without it {duration(now)}"
    refusal = limits.refuse_set((*chosen.schedule.resources, host))
    if refusal is not None:
        reason = f"{reason}; with it: {refusal.reason}"
    elif seconds <= now:
        reason = f"{reason}: the user's objective, preferences or blueprint leave it out"
    else:
        reason = f"{reason} (its border costs {duration(border)})"
    return {"host": host.name, "reason": reason, "figures": [seconds, now]}


def _with(
    host: Host, schedule: Schedule, information: InformationPool
) -> Iterator[tuple[float, float]]:
    """Yield the iteration and the added host's border, in seconds, for each place of the host that may be best."""
    hosts = schedule.resources
    caution = caution_for((*hosts, host), information)
    if schedule.rectangles:
        from apples.agent.planners.rectangles import rectangles  # noqa: PLC0415 - few programs take them

        every = _with_limit(information, "minimum_hosts", len(hosts) + 1)  # keeps every host
        made = rectangles((*hosts, host), every)
        if host in made.resources:
            model = information.model_of(made)
            border = model.communication(made.resources)[made.resources.index(host)]
            yield caution * model.iteration_seconds(made), float(border)
        return
    model, total = information.model, information.application.rows
    places = range(len(hosts) + 1) if len(hosts) <= EXPLAINED else (0, len(hosts))
    chains = [(*hosts[:k], host, *hosts[k:]) for k in places]
    borders = [model.communication(chain) for chain in chains]
    best = math.inf
    for i in sorted(range(len(chains)), key=lambda i: float(borders[i].sum())):
        chain, border = chains[i], borders[i]
        if math.isfinite(best) and rows_by(model, chain, border, total, best) < total:
            continue  # slower than the best place so far
        rows = balance(model, chain, total).astype(float)
        if rows.sum() != total:
            continue  # too little memory on all hosts together, or more hosts than rows
        best = min(best, model.set_seconds(chain, rows))
        made = made_schedule(information, chain, rows.tolist(), "explanation")
        seconds = information.model_of(made).iteration_seconds(made)
        yield caution * seconds, float(border[places[i]])


# ---------------------------------------------------------------- binding limits


def memory_bindings(chosen: Estimate, information: InformationPool) -> Iterator[Binding]:
    """Yield each host of a plan that idles because its memory holds no more of the grid."""
    schedule = chosen.schedule
    if len(schedule.allocations) < 2:
        return
    model, hosts = information.model_of(schedule), schedule.resources
    pool = information.pool_of(schedule)
    rows = np.array(schedule.rows, dtype=float)
    busy = np.array([host.seconds for host in chosen.hosts])
    per_row = model.computation(hosts, np.maximum(rows, 1.0)) / np.maximum(rows, 1.0)
    border = model.communication(hosts)
    working = per_row > 0
    speed = 1 / per_row[working]
    even = float((rows.sum() + (border[working] * speed).sum()) / speed.sum())
    for place, allocation in enumerate(schedule.allocations):
        host, offered = allocation.host, pool.memory_offered(allocation.host)
        idle = busy[place] + per_row[place] <= busy.max()
        if not per_row[place] or not idle or _one_more(allocation, information) <= offered:
            continue
        more = max(1.0, (even - border[place]) / per_row[place] / rows[place])
        own = information.specifications.constraints.memory
        what: Literal["allocation", "memory"] = (
            "allocation" if own is not None and own <= offered else "memory"
        )
        words = (
            f"the user's limit of {amount(offered)} a host admits no more"
            if what == "allocation"
            else f"its {amount(offered)} of memory admit no more"
        )
        took = f"{allocation.rows:,.0f} rows"
        if allocation.rectangle:
            took = f"{allocation.rectangle.rows:,} x {allocation.rectangle.columns:,} points"
        yield {
            "host": host.name,
            "what": what,
            "limit": offered,
            "needed": float(model.memory_of(allocation) * more),
            "reason": f"{host.name} takes {took} in {duration(busy[place])} of "
            f"{duration(float(busy.max()))}: {words}",
        }


def _one_more(allocation: Allocation, information: InformationPool) -> float:
    """Return the bytes of a strip with one more row, or of a rectangle with one more row or column."""
    mine, application = allocation.rectangle, information.application
    if mine is None:
        return information.model.memory(allocation.rows + 1)
    larger = []
    if mine.rows < application.rows:
        larger.append(application.rectangle_memory(mine.rows + 1, mine.columns))
    if mine.columns < application.columns:
        larger.append(application.rectangle_memory(mine.rows, mine.columns + 1))
    return min(larger, default=0.0)


def bindings(coordinator: Coordinator, blueprint: Blueprint) -> Iterator[Binding]:
    """Yield each limit of the user without which the blueprint chooses a better plan, with that plan's figures.

    For a long host list it yields nothing, as each limit takes another plan.
    """
    chosen = coordinator.decision_log.chosen
    if chosen is None or _is_long(coordinator):
        return
    ask = _Asker(coordinator, blueprint)
    for free in _without_each_limit(ask):
        better = free.chosen
        if better.value < chosen.value - 1e-6 * abs(chosen.value):
            yield _binding(free.field, free.given, better, free.figure(better), chosen)


@dataclass(frozen=True, slots=True)
class _WithoutLimit:
    """A limit of the user, its value, and the decision without it, which found a plan."""

    field: str
    given: float
    decision: DecisionLog
    chosen: Estimate
    limits: Limits

    def figure(self, estimate: Estimate) -> float:
        """Return the quantity of an estimate that the limit bounds."""
        hosts, what = estimate.schedule.resources, WHAT_BINDS[self.field]
        if what == "hosts":
            return float(len(hosts))
        if what == "sites":
            return float(len({host.site for host in hosts}))
        if what == "distance":
            return self.limits.locus_distance(hosts)
        return estimate.execution_seconds if what == "deadline" else estimate.cost


def _without_each_limit(ask: _Asker) -> Iterator[_WithoutLimit]:
    """Yield each limit of the user without which a plan is feasible."""
    coordinator = ask.coordinator
    information = coordinator.decision_log.information or coordinator.information
    for field, given in coordinator.selector.limits(information).given():
        free = _with_limit(information, field, 1 if field == "minimum_hosts" else None)
        decision = ask.decision(free)
        if decision is not None and decision.chosen is not None:
            limits = coordinator.selector.limits(free)
            yield _WithoutLimit(field, given, decision, decision.chosen, limits)


WHAT_BINDS: Mapping[str, Literal["hosts", "sites", "distance", "deadline", "cost"]] = {
    "minimum_hosts": "hosts",
    "maximum_hosts": "hosts",
    "maximum_sites": "sites",
    "maximum_distance": "distance",
    "deadline": "deadline",
    "maximum_cost": "cost",
}
"""Value of `Binding.what`, by field of the user's limits."""


def _binding(
    field: str, given: float, better: Estimate, needed: float, chosen: Estimate
) -> Binding:
    what = WHAT_BINDS[field]
    hosts, sites = better.schedule.resources, {h.site for h in chosen.schedule.resources}
    new = [host for host in hosts if host.name not in chosen.names]
    beyond = [host for host in new if host.site not in sites] if what == "sites" else new
    host = (beyond or new or [*hosts])[0].name
    return {
        "host": host,
        "what": what,
        "limit": given,
        "needed": needed,
        "reason": f"with {host} a plan of {counted(len(hosts), 'host')} takes "
        f"{duration(better.iteration_seconds)} an iteration ({what} {needed:.4g}): "
        f"{field} = {given:.4g} forbids it",
    }


def _with_limit(information: InformationPool, field: str, limit: float | None) -> InformationPool:
    """Return the pool under another limit of the user."""
    specifications = information.specifications
    constraints = specifications.constraints.model_copy(update={field: limit})
    changed = specifications.model_copy(update={"constraints": constraints})
    return replace(information, specifications=changed)


# ---------------------------------------------------------------- no plan
def remedy(information: InformationPool, decision_log: DecisionLog) -> str:
    """Return the nearest relaxation in one sentence if memory is missing, else an empty text."""
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


def advice(coordinator: Coordinator, blueprint: Blueprint) -> str:
    """Return the nearest relaxation that gives a plan, in one sentence; empty if no single relaxation does.

    If memory is short, it is a smaller grid or more memory (`remedy`). Otherwise it is each limit of the user
    that alone prevents a plan, with the nearest value that gives a plan. For a long host list, the figure of
    the best plan without the limit replaces that value, as each tried value takes another plan.
    """
    if short := remedy(coordinator.information, coordinator.decision_log):
        return short
    ask, needs = _Asker(coordinator, blueprint), []
    for free in _without_each_limit(ask):
        least = None if _is_long(coordinator) else _nearest_limit(ask, free)
        needed = (
            f"the best plan without it has {free.figure(free.chosen):.4g}"
            if least is None
            else f"a plan needs {least:.4g}"
        )
        needs.append(f"{free.field} = {free.given:.4g} alone forbids it: {needed}")
    return ", or ".join(needs)


def _nearest_limit(ask: _Asker, free: _WithoutLimit) -> float | None:
    """Return the value nearest to a limit that gives a plan, by bisection; None if no value does.

    For counts it tries whole numbers. Seconds, costs and distances are tried at the values of all candidates,
    refused and accepted, rounded up to four digits as they are printed.
    """
    values = _possible_limits(ask.coordinator, free)
    information = ask.coordinator.decision_log.information or ask.coordinator.information
    low, high = -1, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        if ask.chosen(_with_limit(information, free.field, values[middle])) is None:
            low = middle
        else:
            high = middle
    return values[high] if high < len(values) else None


def _possible_limits(coordinator: Coordinator, free: _WithoutLimit) -> Sequence[float]:
    """Return the values that a limit could have, the nearest to its present one first."""
    what, best = WHAT_BINDS[free.field], free.figure(free.chosen)
    if free.field == "minimum_hosts":
        return range(int(free.given) - 1, int(best) - 1, -1)
    if what in {"hosts", "sites"}:
        return range(int(free.given) + 1, int(best) + 1)
    figures = {free.figure(estimate) for estimate in free.decision.estimates}
    if what == "distance":
        hosts, information = free.decision.usable, free.limits.information
        for host in hosts:
            others = [other for other in hosts if other is not host]
            figures.update(measured(free.limits.distance, host, others, information))
    else:
        refused = coordinator.decision_log.rejections
        figures.update(one.figures[0] for one in refused if one.filter == what)
    return sorted({_rounded_up(figure) for figure in figures if free.given < figure < math.inf})


def _rounded_up(value: float) -> float:
    """Return a positive number rounded up to the four printed digits."""
    near = float(f"{value:.4g}")
    step = 10.0 ** (math.floor(math.log10(value)) - 3)
    return near if near >= value else float(f"{near + step:.4g}")


def _allowed(information: InformationPool, decision_log: DecisionLog) -> tuple[Host, ...]:
    """Return the hosts that are usable except for their memory."""
    refused = {
        r.hosts[0] for r in decision_log.rejections if len(r.hosts) == 1 and r.filter != "memory"
    }
    return tuple(host for host in information.hosts if host.name not in refused)


def _largest_grid(information: InformationPool, allowed: tuple[Host, ...]) -> str:
    """Return ``grid is at most N`` if a single parameter sets the rows."""
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
