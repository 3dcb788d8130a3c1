"""The search for resource sets: prefixes of a chain by cumulative sums, then local search over ordered subsets.

The balanced time of the first k hosts of a chain is T_k = (W + sum C_i / p_i) / sum 1 / p_i, the last host
without its right border; all prefixes of 10,000 hosts take a millisecond. The local search drops, inserts,
replaces, moves and reverses hosts until no move improves the set.

Chains from every locus already come within 0.1-1.2 % of the optimum on average. The worst cases (up to 14 %)
need these moves: a host in the middle must be dropped, or two sites swapped.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain

import numpy as np
import numpy.typing as npt

from apples.agent.estimator import PerformanceEstimator, alone_seconds
from apples.agent.information import InformationPool, queue_seconds, start_seconds
from apples.agent.models.model import CommunicationOf, Orders
from apples.agent.planners.planner import schedule
from apples.agent.selector.limits import Allows, Limits
from apples.resources import Host

Order = tuple[int, ...]
Array = npt.NDArray[np.float64]
Floats = float | np.float64 | Array

MISSING_ROWS = 1e250
"""Value of a set without enough memory for the grid: worse than any time or cost."""
FEW = 64
"""Up to this number of hosts, all borders are computed at once."""
MAX_BEST = 16
"""For longer sets a brisk search takes the first move that helps, not the best of thousands."""
TIE = 1e-9
"""Weight of a second in the cost, as a part of the highest rate: of sets with equal cost, the fastest wins."""


def balanced_seconds(
    p: Sequence[float], border: Sequence[float], cap: Sequence[float], total: float
) -> float:
    """Return `balanced_seconds_of_sets` for a single set.

    Examples
    --------
    >>> balanced_seconds([1.0, 1.0], [0.0, 0.0], [3.0, 100.0], 10.0)
    7.0
    """
    speed, borders, caps = (np.array([values], dtype=float) for values in (p, border, cap))
    return float(balanced_seconds_of_sets(speed, borders, caps, total)[0])


def balanced_seconds_of_sets(p: Array, border: Array, cap: Array | Orders, total: float) -> Array:
    """Return the least T of each set for strips from one row to the cap that fill the grid; inf if impossible.

    Strips need not be whole. The rows that fit into T are piecewise linear in T: between two breakpoints the
    answer is a division.

    Parameters
    ----------
    p, border, cap
        Seconds per row, seconds at the borders and most rows of each host, shape (sets, size).
    """
    speed = 1.0 / p
    seconds = (total + (border * speed).sum(axis=1)) / speed.sum(axis=1)
    strips = (seconds[:, None] - border) * speed
    bound = ((strips < 1.0) | (strips > cap)).any(axis=1)
    if bound.any():
        seconds[bound] = _between_breakpoints(p[bound], border[bound], cap[bound], total)
    seconds[(cap < 1).any(axis=1)] = np.inf
    return np.asarray(seconds)


def _between_breakpoints(q: Array, c: Array, cap: Array | Orders, total: float) -> Array:
    """Return the least T of sets in which a strip is bound by one row or by its cap."""
    sets, size = q.shape
    # Host i holds one row until T = c_i + q_i, then 1 / q_i more per second, up to its cap at c_i + q_i cap_i.
    start, stop = c + q, c + q * cap
    least = start.max(axis=1, initial=0.0)
    if size >= total:
        return np.where(cap.sum(axis=1) < total, np.inf, least)
    points = np.concatenate([start, stop], axis=1)
    order = np.argsort(points, axis=1, kind="stable")
    points = np.take_along_axis(points, order, axis=1)
    slopes = np.take_along_axis(np.concatenate([1.0 / q, -1.0 / q], axis=1), order, axis=1)
    slopes = np.cumsum(slopes, axis=1)
    held = np.full(
        (sets, 2 * size), float(size)
    )  # at each point, the one row of every host included
    held[:, 1:] += np.cumsum(slopes[:, :-1] * np.diff(points, axis=1), axis=1)
    rows = np.arange(sets)
    k = np.maximum(0, (held < total).sum(axis=1) - 1)
    point, slope, held = points[rows, k], slopes[rows, k], held[rows, k]
    there = (slope <= 0) | (held >= total)
    seconds = point + np.where(there, 0.0, total - held) / np.where(there, 1.0, slope)
    return np.where(cap.sum(axis=1) < total, np.inf, np.maximum(least, seconds))


class SubsetSearch:
    """Values of ordered subsets of `hosts` under the user's objective, and a local search for better subsets.

    The value is the balanced time (or time times cost) without the rule of whole rows; the planner applies it
    to the few promising sets. Only sets that `limits` allow are proposed.

    If `brisk`, long sets take the first move that helps and keep the order of their chain.

    Attributes
    ----------
    by_estimate
        Whether the value of a set is the estimate of its strips, as for a user's metric and for partitions. In
        this case, and with shared processors, sets are evaluated singly.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        information: InformationPool,
        budget: int,
        limits: Limits | None = None,
    ) -> None:
        self.hosts = hosts
        self.information = information
        self.budget = budget
        self.limits = limits or Limits(information)
        self.by_estimate = information.metric is not None or self.limits.cuts_unevenly
        self._one_by_one = self.by_estimate or information.model.shares_processors
        self.brisk = False
        self.total = information.application.rows
        self.caps = information.model.caps(hosts, self.total)
        self.cap = [int(c) for c in self.caps]
        self.rates = np.array([host.cost_per_second for host in hosts])
        self.starts = np.array([start_seconds(information, (host,)) for host in hosts])
        self.waits = np.array([queue_seconds((host,)) for host in hosts])
        self.alone_seconds = alone_seconds(information, hosts) if self.by_estimate else None
        self._among: dict[bytes, CommunicationOf] = {}
        self._allows: dict[bytes, Allows | None] = {}
        self._descents: dict[tuple[Order, bytes], Order] = {}
        self._row_seconds: dict[int, Array] = {}
        self._values: dict[bytes, float] = {}
        self._seen: set[bytes] = set()

    @property
    def may_fit_otherwise(self) -> bool:
        """Whether a plan may satisfy limits that the search finds exceeded: by rectangles, or by whole rows."""
        return self.information.takes_rectangles or self.by_estimate

    # ---------------------------------------------------------------- values
    def value(self, order: Order) -> float:
        """Return the objective of a set; far above any real value if the user's limits forbid it."""
        key = _key(order)
        known = self._values.get(key)
        if known is None:
            if key not in self._seen:
                self.budget -= 1 + len(order) // 8 if self.brisk else 1
                self._seen.add(key)
            known = self._values[key] = float(self._evaluate(np.array([order]))[0])
        return known

    def values(self, orders: Iterable[Order]) -> dict[Order, float]:
        """Return the values of sets, in their order; fewer if the budget runs out.

        Sets of one size are evaluated together, unless sets must be evaluated singly.
        """
        if self._one_by_one:
            return {
                order: self.value(order)
                for order in orders
                if self.budget > 0 or _key(order) in self._values
            }
        wanted = list(orders)
        sizes: dict[int, list[Order]] = {}
        for order in wanted:
            if _key(order) not in self._values:
                sizes.setdefault(len(order), []).append(order)
        for size, sets in sizes.items():
            flat = np.fromiter(chain.from_iterable(sets), np.intc, size * len(sets))
            together = flat.reshape(len(sets), size)
            found = self._evaluate(together).tolist()
            self._values.update(zip(self._count(together), found, strict=True))
        return {order: self._values[_key(order)] for order in wanted}

    def _count(self, orders: Orders) -> list[bytes]:
        """Charge the budget for sets that are new; return the key of each set."""
        keys = _keys(orders)
        self.budget -= len(keys) - sum(map(self._seen.__contains__, keys))
        self._seen.update(keys)
        return keys

    def _best_of(self, orders: Orders, below: float) -> tuple[Order, float] | None:
        """Return the best of sets of one size and its value, the first of equals; None if it is not below `below`.

        If a strip of a set is bound by one row or by its cap, a lower bound of its value is quick. The exact
        value is computed only if the bound does not decide.
        """
        self._count(orders)
        values, bound = self._bounds(orders)
        known = np.where(bound, np.inf, values)
        open_ = np.flatnonzero(bound & (values < min(below, float(known.min()))))
        if len(open_):
            known[open_] = self._evaluate(orders[open_])
        best = int(known.argmin())
        if not known[best] < below:
            return None
        order, value = tuple(orders[best].tolist()), float(known[best])
        self._values[_key(order)] = value
        return order, value

    def _bounds(self, orders: Orders) -> tuple[Array, npt.NDArray[np.bool_]]:
        """Return lower bounds of `_evaluate` for sets of one size, and a mask of those that are not exact."""
        p, border, caps = self.terms(orders)
        speed = 1.0 / p
        seconds = (self.total + (border * speed).sum(axis=1)) / speed.sum(axis=1)
        strips = (seconds[:, None] - border) * speed
        bound = ((strips < 1.0) | (strips > caps)).any(axis=1)
        least = np.maximum(seconds, (border + p).max(axis=1)) * (1.0 - 1e-12)
        return self._judged(orders, np.where(bound, least, seconds)), bound

    def terms(self, orders: Orders) -> tuple[Array, Array, Orders]:
        """Return p_i, C_i and the most rows of each host, for sets of one size, shape (sets, size)."""
        model, size = self.information.model, orders.shape[1]
        if model.shares_processors or (len(orders) == 1 and len(self.hosts) > FEW):
            sets = [[self.hosts[i] for i in order] for order in orders.tolist()]
            borders = np.array([model.communication(hosts) for hosts in sets])
            if model.shares_processors:
                p = np.array([model.seconds_per_row(hosts, self.total) for hosts in sets])
                return p, borders, self.caps[orders]
            return self._rows(size, orders[0])[orders], borders, self.caps[orders]
        if len(self.hosts) <= FEW:
            members, places = list(range(len(self.hosts))), orders
        else:
            chosen = np.zeros(len(self.hosts), dtype=bool)
            chosen[orders] = True
            members, places = np.flatnonzero(chosen).tolist(), (np.cumsum(chosen) - 1)[orders]
        key = _key(members)
        among = self._among.get(key)
        if among is None:
            among = self._among[key] = model.communication_among([self.hosts[i] for i in members])
        return self._rows(size, members)[orders], among(places), self.caps[orders]

    def _rows(self, count: int, members: Iterable[int]) -> Array:
        """Return p_i at equal strips on `count` hosts, by index; computed only for `members`."""
        known = self._row_seconds.get(count)
        if known is None:
            known = self._row_seconds[count] = np.full(len(self.hosts), np.nan)
        rows = np.array([self.total / count])
        for i in members:
            if np.isnan(known[i]):
                known[i] = (self.information.model.computation((self.hosts[i],), rows) / rows)[0]
        return known

    def _evaluate(self, orders: Orders) -> Array:
        """Return the values of sets of one size."""
        p, border, caps = self.terms(orders)
        seconds = balanced_seconds_of_sets(p, border, caps, self.total)
        held = np.isfinite(seconds)
        missing = MISSING_ROWS * (1.0 + self.total / (1.0 + caps.sum(axis=1)))
        if not self.by_estimate:
            value = self._judged(orders, np.where(held, seconds, 0.0))
            return np.asarray(np.where(held, value, missing))
        for k in np.flatnonzero(held).tolist():
            rows = np.clip((seconds[k] - border[k]) / p[k], 1.0, caps[k])
            missing[k] = self._by_estimate(orders[k].tolist(), rows)
        return np.asarray(missing)

    def _judged(self, orders: Orders, seconds: Array) -> Array:
        """Return `judge` for sets of one size."""
        rate = self.rates[orders].sum(axis=1) if self.rates.any() else 0.0
        start = self.starts[orders].max(axis=1) if self.starts.any() else 0.0
        wait = self.waits[orders].max(axis=1) if self.waits.any() else 0.0
        return np.asarray(self.judge(seconds, rate, start, wait))

    def judged(self, order: Order, seconds: float) -> float:
        """Return the objective of a set with iterations of `seconds`; its strips are balanced but not whole."""
        orders = np.array([order])
        if not self.by_estimate:
            return float(self._judged(orders, np.array([seconds]))[0])
        p, border, caps = self.terms(orders)
        return self._by_estimate(order, np.clip((seconds - border[0]) / p[0], 1.0, caps[0]))

    def _by_estimate(self, order: Sequence[int], rows: Array) -> float:
        """Return the value of the estimate of strips; far above real values if the user's limits forbid it."""
        information = self.information
        if len(order) > self.total:
            return MISSING_ROWS
        resources = [self.hosts[i] for i in order]
        made = schedule(information, resources, rows.tolist(), "search")
        estimate = PerformanceEstimator().estimate(made, information, self.alone_seconds)
        value = self.limits.measured(estimate)
        return float(self.limits.judge(value, estimate.execution_seconds, estimate.cost))

    def judge(self, seconds: Floats, rate: Floats, start: Floats, wait: Floats) -> Floats:
        """Return the user's objective for iterations of `seconds` on hosts that cost `rate` per second.

        Parameters
        ----------
        start, wait
            Seconds until the slowest host has started, and until the queue grants all hosts.
        """
        execution = seconds * self.information.application.iterations
        cost = rate * (start + execution)
        value = wait + start + execution
        if self.information.specifications.objective.measure == "cost":
            value = cost + TIE * float(self.rates.max() or 1.0) * value
        return value if self.limits.are_none else self.limits.judge(value, execution, cost)

    def borders(self, order: Order) -> list[float]:
        """Return C_i of each host of the set, with links shared by as many borders as the set has."""
        seconds = self.information.model.communication([self.hosts[i] for i in order])
        return [float(c) for c in seconds]

    # ----------------------------------------------------------------- moves
    def allowed(self, orders: Orders, pool: Sequence[int]) -> Orders:
        """Return the sets that the limits allow, of sets of one size from `pool`."""
        if self.limits.are_none:
            return orders
        key = _key(pool)
        if key not in self._allows:
            self._allows[key] = self.limits.allows([self.hosts[i] for i in pool])
        allows = self._allows[key]
        if allows is None:
            return orders
        place = np.zeros(len(self.hosts), dtype=np.intp)
        place[np.asarray(pool)] = np.arange(len(pool))
        kept: Orders = orders[allows(place[orders])]
        return kept

    def descend(self, start: Order, pool: Sequence[int]) -> Order:
        """Return the set reached from `start` by repeating the best move while it improves the set."""
        best, value = start, self.value(start)
        on_the_way = []
        where = _key(pool)
        while self.budget > 0 and (best, where) not in self._descents:
            on_the_way.append(best)
            least = value - 1e-12 * abs(value)
            if self.brisk and len(best) > MAX_BEST:
                helps = (
                    c for c in self._moves(best, pool) if self.budget <= 0 or self.value(c) < least
                )
                candidate = next(helps, best)
            else:
                candidate = self._best_move(best, pool, least)
            if not self.value(candidate) < least:
                break
            best, value = candidate, self.value(candidate)
        best = self._descents.get((best, where), best)
        if self.budget > 0:
            self._descents.update(((order, where), best) for order in on_the_way)
        return best

    def _best_move(self, order: Order, pool: Sequence[int], below: float) -> Order:
        """Return the best set after one move, the first of equals; the set itself if none is below `below`."""
        if self._one_by_one:
            values = self.values(self._moves(order, pool))
            return min(values, key=values.__getitem__, default=order)
        outside = [i for i in pool if i not in order]
        places = np.array([*order, *outside], dtype=np.intc)
        best, least = order, below
        for moves in _places_after_moves(len(order), len(outside), *self._may_change(order)):
            orders = self.allowed(places[moves], pool)
            if len(orders):
                best, least = self._best_of(orders, least) or (best, least)
        return best

    def _may_change(self, order: Order) -> tuple[bool, bool]:
        """Return whether a set may lose a host, and whether it may gain a host."""
        sizes = self.limits.sizes(len(self.hosts))
        return len(order) > max(1, sizes.start), len(order) + 1 < sizes.stop

    def _beside_its_site(self, order: Order, i: int) -> Order:
        """Return the set with host `i` inserted after the last host of its site, else at the end."""
        site = self.hosts[i].site
        same = [k for k, j in enumerate(order) if self.hosts[j].site == site]
        place = (same[-1] if same else len(order) - 1) + 1
        return (*order[:place], i, *order[place:])

    def _moves(self, order: Order, pool: Sequence[int]) -> Iterator[Order]:
        return (
            order
            for order in self._any_moves(order, pool)
            if len(self.allowed(np.array([order]), pool))
        )

    def _any_moves(self, order: Order, pool: Sequence[int]) -> Iterator[Order]:
        shorter, longer = self._may_change(order)
        outside = [i for i in pool if i not in order]
        if shorter:
            yield from _dropped(order)
        if self.brisk and len(order) > MAX_BEST:  # few of thousands of moves can help
            if longer:
                yield from (self._beside_its_site(order, i) for i in outside)
            yield from _replaced(order, outside)
            return
        if longer:
            yield from _inserted(order, outside)
        yield from _replaced(order, outside)
        yield from _moved(order)
        yield from _reversed(order)


def _key(order: Iterable[int]) -> bytes:
    """Return the cache key of a set, equal to its key from `_keys`."""
    return array("i", order).tobytes()


def _keys(orders: Orders) -> list[bytes]:
    rows = np.ascontiguousarray(orders, dtype=np.intc)
    found: list[bytes] = rows.view(f"V{rows.itemsize * rows.shape[1]}").ravel().tolist()
    return found


@lru_cache(maxsize=32)
def _places_after_moves(size: int, outside: int, shorter: bool, longer: bool) -> list[Orders]:
    """Return the results of every move on a set, grouped by size, as indices of shape (moves, size).

    Indices below `size` are the hosts of the set, the others are outside it; so all sets of a size share the
    result.
    """
    order, others = tuple(range(size)), range(size, size + outside)
    found = []
    if shorter:
        found.append([*_dropped(order)])
    if longer:
        found.append([*_inserted(order, others)])
    found.append([*_replaced(order, others), *_moved(order), *_reversed(order)])
    return [np.array(moves, dtype=np.intp) for moves in found if moves]


def _dropped(order: Order) -> Iterator[Order]:
    return (order[:k] + order[k + 1 :] for k in range(len(order)))


def _inserted(order: Order, outside: Iterable[int]) -> Iterator[Order]:
    return ((*order[:k], i, *order[k:]) for i in outside for k in range(len(order) + 1))


def _replaced(order: Order, outside: Iterable[int]) -> Iterator[Order]:
    return ((*order[:k], i, *order[k + 1 :]) for i in outside for k in range(len(order)))


def _moved(order: Order) -> Iterator[Order]:
    for k in range(len(order)):
        rest = order[:k] + order[k + 1 :]
        for j in range(len(rest) + 1):
            if j != k:
                yield (*rest[:j], order[k], *rest[j:])


def _reversed(order: Order) -> Iterator[Order]:
    for k in range(len(order) - 1):
        for j in range(k + 2, len(order) + 1):
            yield order[:k] + order[k:j][::-1] + order[j:]


def prefix_seconds(
    p: Array, border: Array, total: float, at_once: bool = False
) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Return T of every prefix, and whether all its strips have at least 0 rows.

    Parameters
    ----------
    p
        Seconds per row of each host, in chain order, shape (hosts,).
    border
        Seconds at the border between each host and the next, the last one 0, shape (hosts,).
    total
        Rows of the grid.
    at_once
        Whether a host's two borders overlap, so that the longer counts instead of their sum.

    Examples
    --------
    >>> seconds, feasible = prefix_seconds(np.array([1.0, 1.0]), np.array([2.0, 0.0]), 10.0)
    >>> seconds, feasible
    (array([10.,  7.]), array([ True,  True]))
    """
    before = np.concatenate([[0.0], border[:-1]])
    both = np.maximum(before, border) if at_once else before + border
    beyond = (
        both - before if at_once else border
    )  # seconds of the border to the right of the prefix, which its last host lacks
    speed = np.cumsum(1.0 / p)
    seconds = (total + np.cumsum(both / p) - beyond / p) / speed
    # A strip is negative if T is below its host's C_i: both borders inside the prefix, the left border at its
    # end.
    dearest = np.maximum(before, np.concatenate([[0.0], np.maximum.accumulate(both)[:-1]]))
    return seconds, dearest <= seconds
