"""`time_balancing`: whole rows, memory caps, any increasing T_i(rows); exact for a given chain.

Bisection finds the least T within which the hosts compute and communicate all rows of the grid: the rows that
fit into T never decrease as T grows. Bisection is exact, while largest remainder is no better than naive
rounding (mean 6.6 % against 6.5 % above the integer optimum at 64 rows on 8 hosts).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from apples.agent.information import InformationPool
from apples.agent.models.model import ModelTemplate, Rows, Seconds
from apples.agent.planners.planner import schedule
from apples.errors import ModelError
from apples.resources import Host, ResourceSet
from apples.resources.schedule import Schedule

RELATIVE_PRECISION = 1e-14
MAX_STAYED = 4
"""Consecutive steps of false position that keep the same end, before one step of bisection."""
Counts = npt.NDArray[np.int64]


def time_balancing(resources: ResourceSet, information: InformationPool) -> Schedule:
    """Return the schedule with the least maximal T_i; hosts without work are dropped.

    A host gets no work if its border and one row take longer than the others need for the whole grid. It is
    dropped, and the rest of the chain is solved again. It stays if the time would be longer without it (the
    host stands between two distant hosts), if the others lack the memory, or if fewer than `minimum_hosts`
    would remain.
    """
    model, total = information.model, information.application.rows
    hosts, dropped = list(resources), []
    rows = balance(model, hosts, total)
    fewest = information.specifications.constraints.minimum_hosts
    while (
        len(hosts) > fewest
        and (shorter := _without_an_idle_host(model, hosts, rows, total)) is not None
    ):
        idle, rows = shorter
        dropped.append(hosts.pop(idle))
    return schedule(information, hosts, (int(r) for r in rows), "time_balancing", dropped)


def balanced(resources: ResourceSet, information: InformationPool) -> Schedule:
    """Return the schedule with the least maximal T_i in which each of these hosts has work."""
    rows = balance(information.model, resources, information.application.rows)
    return schedule(information, resources, (int(r) for r in rows), "time_balancing")


def _without_an_idle_host(
    model: ModelTemplate, hosts: Sequence[Host], rows: Counts, total: int
) -> tuple[int, Counts] | None:
    """Return the index of a host to drop and the rows of the others; None if all should stay."""
    caps = model.caps(hosts, total)
    for idle in _idle_hosts(model, hosts, total):
        others = [*hosts[:idle], *hosts[idle + 1 :]]
        without = balance(model, others, total)
        fits = rows.sum() == total and caps[idle] >= 1
        if not fits or _longest(model, others, without) <= _longest(model, hosts, rows):
            return idle, without
    return None


def _longest(model: ModelTemplate, hosts: Sequence[Host], rows: Counts) -> float:
    return model.set_seconds(hosts, rows.astype(float))


def balance(model: ModelTemplate, hosts: Sequence[Host], total: int) -> Counts:
    """Return whole rows with the least maximal T_i, each from the model's least rows to the host's memory cap.

    If the caps add up to less than the grid, the caps are returned; with more hosts than rows, one row each.
    Neither adds up to the grid, and a filter refuses it.

    Raises
    ------
    ModelError
        The model returned a time that is not finite, or that fell as rows grew.
    """
    caps = np.maximum(model.caps(hosts, total), 1)
    if caps.sum() <= total:
        return caps
    least = np.minimum(model.least_rows(hosts, total), caps)
    if least.sum() >= total:
        return least
    border = model.communication(hosts)
    soonest = _checked(model.computation(hosts, least.astype(float)) + border)
    fit = model.rows_within(hosts, total)

    def rows(seconds: float) -> Counts:
        return np.clip(fit(seconds - border), least, caps).astype(np.int64)

    return _fill(model, hosts, *_bracket(rows, float(soonest.max()), total), total)


def rows_by(
    model: ModelTemplate, hosts: Sequence[Host], border: Seconds, total: int, seconds: float
) -> int:
    """Return an upper bound of the rows that all hosts of a set compute within `seconds`.

    If it is less than the rows of the grid, `balance` takes longer than `seconds`.
    """
    caps = np.maximum(model.caps(hosts, total), 1)
    least = np.minimum(model.least_rows(hosts, total), caps)
    fit = model.rows_within(hosts, total)
    return int(np.clip(fit(seconds * (1 + 1e-9) - border), least, caps).sum())


def _bracket(rows: Callable[[float], Counts], start: float, total: int) -> tuple[Counts, Counts]:
    """Return the rows that fit into a time that is too short, and into a longer time that suffices.

    The two numbers differ by at most one row on each host, or the times are as close as floats allow.
    """
    low, high = 0.0, max(start, 1e-300)
    few, many = rows(low), rows(high)
    # Doubling first: 1100 steps lead from the smallest float to the largest.
    for _ in range(1100):
        if many.sum() >= total:
            break
        low, high, few, many = high, high * 2, many, rows(high * 2)
    else:
        raise ModelError(
            f"the model computes fewer than {total} rows in any finite time",
            code="prediction-invalid",
            field="rows",
        )
    # Then false position, with few.sum() < total <= many.sum() at every step. The error of an end that stays is
    # halved (Illinois method). Rows are nearly linear in time, so this takes a third of the steps of bisection,
    # which remains for other cases.
    below, above, stayed = few.sum() - total + 0.5, many.sum() - total + 0.5, 0
    while (many - few).max() > 1 and high - low > RELATIVE_PRECISION * high:
        middle = high - above * (high - low) / (above - below)
        if abs(stayed) > MAX_STAYED or not low < middle < high:
            middle, stayed = (low + high) / 2, 0
        if not low < middle < high:
            break
        found = rows(middle)
        off = found.sum() - total + 0.5
        if off > 0:
            high, many, above = middle, found, off
            below, stayed = (below / 2, stayed + 1) if stayed > 0 else (below, 1)
        else:
            low, few, below = middle, found, off
            above, stayed = (above / 2, stayed - 1) if stayed < 0 else (above, -1)
    return few, many


def _fill(
    model: ModelTemplate, hosts: Sequence[Host], few: Counts, many: Counts, total: int
) -> Counts:
    """Return `few` plus the missing rows, taken from `many` with the fastest hosts first."""
    rows = few.copy()
    border = model.communication(hosts)
    while (missing := int(total - rows.sum())) > 0:
        open_ = np.flatnonzero(rows < many)
        times = model.computation(hosts, (rows + 1).astype(float)) + border
        chosen = open_[np.argsort(times[open_], kind="stable")][: _step(missing, rows, many)]
        rows[chosen] += 1
    return rows


def _step(missing: int, rows: Counts, many: Counts) -> int:
    """Return the number of rows to add at once: all missing rows if each host may add at most one."""
    return missing if int((many - rows).max()) <= 1 else 1


def _idle_hosts(model: ModelTemplate, hosts: Sequence[Host], total: int) -> Iterator[int]:
    """Yield the indices of hosts without which the others could compute the grid, the slowest first."""
    if len(hosts) == 1:
        return
    caps = model.caps(hosts, total)
    border = model.communication(hosts)
    least = model.least_rows(hosts, total).astype(float)
    soonest = _checked(model.computation(hosts, least) + border)
    fit = model.rows_within(hosts, total)
    without_memory = np.flatnonzero(caps < 1)
    if without_memory.size or len(hosts) > total:
        yield int(without_memory[0] if without_memory.size else np.argmax(soonest))
        return
    for i in np.argsort(-soonest, kind="stable"):
        within = np.clip(fit(soonest[i] - border), 0, caps)
        if within.sum() - within[i] < total:
            return  # the others have not computed the grid when this host has computed its least rows
        if caps.sum() - caps[i] >= total:
            yield int(i)


def _checked(seconds: Seconds) -> Seconds:
    if not np.all(np.isfinite(seconds)) or np.any(seconds < 0):
        raise ModelError(
            f"the model must return finite seconds of at least 0 (got {seconds})",
            code="prediction-invalid",
            field="seconds",
        )
    return seconds


__all__ = ["Rows", "balance", "balanced", "time_balancing"]
