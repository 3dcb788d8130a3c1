"""Sets of many hosts by cost: for each of many iteration times, the cheapest hosts within that time.

A set with T seconds per iteration costs T times the sum of its hosts' rates. For a given T, host i computes at
most g_i(T) = min(cap_i, (T - b_i) / p_i) rows; b_i are its borders inside its site. The least sum of rates with
enough rows for the grid is a knapsack: hosts are taken by rate / g_i(T), and the last host is the cheapest that
holds the missing rows. A site that the chain enters has two hosts with a longer border. So the sites form a
second knapsack, which dynamic programming solves nearly exactly.

Over all T this gives the frontier between cost and time. It contains the optimum for the cost, for the time
within a cost, for the cost within a deadline, and for a user's metric of the two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from apples.agent.selector.chains import site_chains
from apples.agent.selector.search import Order, SubsetSearch, balanced_seconds
from apples.resources import Host

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

TIMES, FINER_TIMES = 96, 8
"""Iteration times tried, from the least possible to the slowest host's; and twice more around the best."""
MAX_DEARER = 4.0
"""Largest price of a row at a considered host, over the largest price in the set without regard to sites."""
MAX_SITES, MAX_PREFIXES, ROW_STEPS = 256, 24, 2000
"""Size of the knapsack of sites: sites, sets of hosts per site, and steps into which the rows are divided."""
MAX_EVALUATED = 40
"""Sets that are evaluated exactly, and the hosts in all of these sets together: about half a second."""
MAX_HOSTS_EVALUATED = 60_000
MAX_DROPPED = 64
"""Most expensive hosts that are dropped at most, if the others hold the grid, after the last host was replaced."""


def rows_within(seconds: float, p: Floats, border: Floats, cap: Floats) -> Floats:
    """Return the largest number of whole rows of each host within `seconds`."""
    return np.asarray(np.floor(np.clip((seconds - border) / p * (1 + 1e-12), 0.0, cap)))


def cheapest_within(
    seconds: float, p: Floats, border: Floats, cap: Floats, rates: Floats, total: float
) -> Indices:
    """Return the hosts of a cheap set that computes `total` rows within `seconds`; empty if no set does.

    Parameters
    ----------
    p, border, cap, rates
        For each host: seconds per row, seconds at its borders, most rows, cost per second.

    Examples
    --------
    >>> p, none, cap = np.array([1.0, 1.0, 2.0]), np.zeros(3), np.array([9.0, 9.0, 9.0])
    >>> cheapest_within(5.0, p, none, cap, np.array([9.0, 2.0, 1.0]), 7.0).tolist()
    [1, 2]
    """
    rows = rows_within(seconds, p, border, cap)
    able = np.flatnonzero(rows >= 1)
    able = able[np.lexsort((p[able], rates[able] / rows[able]))]
    held = np.cumsum(rows[able])
    k = int(np.searchsorted(held, total))
    if k == len(able):
        return able[:0]
    missing = total - (held[k - 1] if k else 0.0)
    enough = able[k:][rows[able[k:]] >= missing]
    chosen = np.append(able[:k], enough[np.argmin(rates[enough])])
    excess = float(rows[chosen].sum() - total)
    needed = np.ones(len(chosen), dtype=bool)
    for place in np.argsort(-rates[chosen], kind="stable")[:MAX_DROPPED]:
        if rows[chosen[place]] <= excess:
            needed[place] = False
            excess -= float(rows[chosen[place]])
    return chosen[needed]


@dataclass(frozen=True)
class _Market:
    """The hosts to choose from, in chain order.

    Attributes
    ----------
    speed
        Seconds per row of all hosts of the search.
    index, site, p, cap, rates
        For each host to choose from: its index in the search, the number of its site, seconds per row, most
        rows, cost per second.
    inside, outward, between
        Seconds at the two borders of each host, if both are inside its site, one is, or neither is.
    total
        Rows of the grid.
    """

    speed: Floats
    index: Indices
    site: Indices
    p: Floats
    cap: Floats
    rates: Floats
    inside: Floats
    outward: Floats
    between: Floats
    total: float

    @classmethod
    def of(
        cls, members: Indices, hosts: Sequence[Host], speed: Floats, search: SubsetSearch
    ) -> _Market:
        """Return the market of the hosts `members`; `speed` has the seconds per row of each of `hosts`."""
        model = search.information.model
        order, after = next(
            site_chains([hosts[i] for i in members], speed[members], search.information)
        )
        index = members[order]
        numbers: dict[str, int] = {}
        site = np.array([numbers.setdefault(hosts[i].site, len(numbers)) for i in index.tolist()])
        crosses = np.append(site[1:] != site[:-1], False)
        away = np.full(len(index), after[crosses].mean() if crosses.any() else 0.0)
        # A host between hosts of its site has two borders in that site's network.
        before = np.append(after[:1], after[:-1])
        near = np.minimum(before, np.append(after[:-1], before[-1]))
        return cls(
            speed, index, site, speed[index], np.array(search.cap, dtype=float)[index], search.rates[index],
            model.at_borders(near, near), model.at_borders(near, away), model.at_borders(away, away),
            search.total,
        )  # fmt: skip

    def times(self) -> Floats:
        """Return iteration times, from the least of all hosts together to the time of the slowest host alone."""
        able = self.cap >= 1
        if not able.any():
            return np.zeros(0)
        p = self.p[able]
        alone = self.inside[able] + p * np.minimum(self.cap[able], self.total)
        least = self.total / float((1.0 / p).sum())
        return np.geomspace(least, max(float(alone.max()), least) * 1.001, TIMES)

    def _rows(self, seconds: float, border: Floats) -> Floats:
        return rows_within(seconds, self.p, border, self.cap)

    def without_sites(self, seconds: float) -> Indices:
        """Return a cheap set, as indices in the market, as if borders between sites cost no more than others."""
        return cheapest_within(seconds, self.p, self.inside, self.cap, self.rates, self.total)

    def by_sites(self, seconds: float) -> Iterator[tuple[float, Indices]]:
        """Yield cheap sets, as indices in the market, each with its approximate time.

        From a site come the hosts with its cheapest rows. The first set is the cheapest single site that holds
        the grid. The second is a knapsack that chooses the number of hosts of each site; each site has two
        hosts with a border to other sites.
        """
        plain = self.without_sites(seconds)
        if not plain.size:
            return
        rows = self._rows(seconds, self.inside)
        price = self.rates / np.maximum(rows, 1.0)
        dearest = MAX_DEARER * float(price[plain].max())
        able = np.flatnonzero((rows >= 1) & (price <= dearest))
        able = able[np.lexsort((price[able], self.site[able]))]
        site, rows = self.site[able], rows[able]
        first = np.flatnonzero(np.append(True, site[1:] != site[:-1]))
        size = np.diff(np.append(first, len(site)))
        begin = np.repeat(first, size)
        held, rate = (np.cumsum(x) - (np.cumsum(x) - x)[begin] for x in (rows, self.rates[able]))
        alone = np.flatnonzero(held >= self.total)
        if len(alone):
            last = alone[np.argmin(rate[alone])]
            yield self._balanced(seconds, float(held[last]), able[begin[last] : last + 1])
        # The ends of a site are the two hosts that lose the fewest rows by a border to another site.
        lost = rows - self._rows(seconds, self.outward)[able]
        place = np.arange(len(able)) - begin
        passed = self._rows(seconds, self.between)[able]
        net = np.where(place == 0, passed, held - _two_least(lost, first, size))
        steps = np.rint(net * (ROW_STEPS / self.total)).clip(0, ROW_STEPS).astype(np.int64)
        usable = (steps >= 1) & np.isin(place, _some_of(int(size.max())))
        worth = np.where(usable, dearest * net - rate, -np.inf)
        sites = np.argsort(-np.maximum.reduceat(worth, first), kind="stable")[:MAX_SITES]
        choices = [first[k] + np.flatnonzero(usable[first[k] : first[k] + size[k]]) for k in sites]
        if chosen := _knapsack(steps, rate, [ends for ends in choices if ends.size]):
            hosts = [able[begin[end] : end + 1] for end in chosen]
            yield self._balanced(seconds, float(net[chosen].sum()), np.concatenate(hosts))

    def _balanced(self, seconds: float, held: float, places: Indices) -> tuple[float, Indices]:
        """Return a set, which holds `held` rows in `seconds`, with its approximate time for the grid."""
        free = self._rows(seconds, self.inside)[places] < self.cap[places]
        slope = float((free / self.p[places]).sum())
        return seconds + (self.total - held) / slope if slope else seconds, places

    def orders(self, seconds: float, places: Indices) -> Iterator[Indices]:
        """Yield a set in chain order; then with the two hosts that lose fewest rows at the ends of each site."""
        yield self.index[places]
        lost = self._rows(seconds, self.inside) - self._rows(seconds, self.outward)
        turned: list[int] = []
        for part in np.split(places, np.flatnonzero(np.diff(self.site[places])) + 1):
            first, *last = part[np.argsort(lost[part], kind="stable")[:2]].tolist()
            turned += [first, *(k for k in part.tolist() if k not in (first, *last)), *last]
        yield self.index[turned]


def _two_least(values: Floats, first: Indices, size: Indices) -> Floats:
    """Return the running sum of the two least values within each group; for the first of a group it is high."""
    high = float(values.max()) + 1.0
    # A group is lifted above the next, so that minima accumulate within it only.
    lift = np.repeat(np.arange(len(first))[::-1] * (2.0 * high), size)
    least = np.minimum.accumulate(values + lift) - lift
    larger = np.maximum(values, np.append(high, least[:-1]))
    larger[first] = high
    return np.asarray(least + np.minimum.accumulate(larger + lift) - lift)


def _some_of(count: int) -> Indices:
    """Return at most `MAX_PREFIXES` of `count` indices: dense at the beginning, then sparser, with the last."""
    tried = np.geomspace(1, max(count, MAX_PREFIXES), MAX_PREFIXES).round()
    return np.maximum(tried, np.arange(1, MAX_PREFIXES + 1)).astype(np.int64) - 1


def _knapsack(steps: Indices, rate: Floats, groups: Sequence[Indices]) -> list[int]:
    """Return at most one item of each group, by index, with the least sum of rates that reaches `ROW_STEPS`.

    Exact dynamic programming over the sum of steps. Empty if no items reach `ROW_STEPS`.

    Parameters
    ----------
    steps, rate
        Steps and rate of each item.

    Examples
    --------
    >>> items = np.array([1500, 500, 500]), np.array([3.0, 1.0, 2.0])
    >>> _knapsack(*items, [np.array([0, 1]), np.array([2])])
    [2, 0]
    """
    reached = np.arange(ROW_STEPS + 1)
    least = np.where(reached > 0, np.inf, 0.0)  # least sum of rates for each number of steps
    taken = []
    for items in groups:
        rates = least[np.maximum(reached - steps[items][:, None], 0)] + rate[items][:, None]
        best = rates.argmin(axis=0)
        taken.append(np.where(rates[best, reached] < least, items[best], -1))
        least = np.minimum(least, rates[best, reached])
    at, chosen = ROW_STEPS, []
    if math.isfinite(least[at]):
        for item in reversed(taken):
            if item[at] >= 0:
                chosen.append(int(item[at]))
                at = max(0, at - int(steps[item[at]]))
    return chosen


class _Frontier:
    """The sets found in a market, each with the least time for which it was found."""

    def __init__(self, market: _Market, search: SubsetSearch) -> None:
        self.market, self.search = market, search
        self.sets: dict[bytes, tuple[float, Indices]] = {}

    def add(self, seconds: float, places: Indices) -> float:
        """Add a set of about `seconds` per iteration; return its objective (with a user's metric, its time)."""
        places = np.sort(places)
        known = self.sets.get(places.tobytes(), (math.inf, places))
        self.sets[places.tobytes()] = min(seconds, known[0]), places
        chosen = self.market.index[places]
        return float(np.squeeze(self.search.judge(*_terms([(seconds, chosen)], self.search))))

    def add_by_sites(self, seconds: float) -> tuple[float, float]:
        """Add sets chosen with the borders between sites; return their best objective, and its time."""
        sets = ((self.add(*found), found[0]) for found in self.market.by_sites(seconds))
        return min(sets, default=(math.inf, seconds))

    def enter_sites(self, plain: Mapping[float, float], ratio: float) -> None:
        """Add sets chosen with the borders between sites, with finer steps around the best of them.

        Parameters
        ----------
        plain
            Objective by time, for sets chosen as if these borders cost no more than others.
        ratio
            Ratio of each time to the time before it.
        """
        own = (
            self.search.information.metric is not None
        )  # any set of the frontier may be best for a metric
        best = math.inf, 0.0
        for seconds in sorted(plain, key=plain.__getitem__):
            if plain[seconds] > best[0] and not own:
                break  # borders between sites cannot improve a set
            best = min(best, self.add_by_sites(seconds))
        for _ in range(2 if best[1] and not own else 0):
            finer = np.geomspace(best[1] / ratio, best[1] * ratio, FINER_TIMES).tolist()
            best = min(best, *map(self.add_by_sites, finer))
            ratio **= 2 / (FINER_TIMES - 1)

    def evaluated(self) -> list[tuple[float, Order]]:
        """Return the promising sets, evaluated exactly, the best first."""
        found = list(self.sets.values())
        sets = [(seconds, self.market.index[places]) for seconds, places in found]
        orders = (
            order for k in _promising(sets, self.search) for order in self.market.orders(*found[k])
        )
        search = self.search
        return worked_out(orders, self.market.speed, np.array(search.cap, dtype=float), search)


def cheapest_orders(
    members: Indices, hosts: Sequence[Host], speed: Floats, search: SubsetSearch
) -> list[tuple[float, Order]]:
    """Return sets on the frontier between cost and time, in chain order, the best by the objective first.

    Parameters
    ----------
    members
        The hosts to choose from, as indices of `hosts`.
    speed
        Seconds per row of each host.
    """
    market = _Market.of(members, hosts, speed, search)
    frontier = _Frontier(market, search)
    times = market.times().tolist()
    plain = {
        seconds: frontier.add(seconds, places)
        for seconds in times
        if (places := market.without_sites(seconds)).size
    }
    if plain and market.site.any():
        frontier.enter_sites(plain, times[1] / times[0])
    return frontier.evaluated()


def _terms(sets: Sequence[tuple[float, Indices]], search: SubsetSearch) -> Floats:
    """Return seconds per iteration, rate, start and wait of each set, shape (4, sets)."""
    return (
        np.array(
            [
                (seconds, search.rates[c].sum(), search.starts[c].max(), search.waits[c].max())
                for seconds, c in sets
            ]
        )
        .reshape(-1, 4)
        .T
    )


def _promising(sets: Sequence[tuple[float, Indices]], search: SubsetSearch) -> list[int]:
    """Return the indices of sets to evaluate: the best by the objective; for a metric, across the frontier."""
    seconds, rate, start, wait = _terms(sets, search)
    if search.information.metric is None:
        order = np.argsort(search.judge(seconds, rate, start, wait), kind="stable")
        return [int(i) for i in order[:MAX_EVALUATED]]
    whole = start + seconds * search.information.application.iterations
    by_time, by_cost = np.lexsort((rate * whole, wait + whole)), np.argsort(rate * whole)
    cost = (rate * whole)[by_time]
    frontier = by_time[cost <= np.minimum.accumulate(cost)]
    step = max(1, math.ceil(2 * len(frontier) / MAX_EVALUATED))
    ends = MAX_EVALUATED // 4
    return list(
        dict.fromkeys(np.concatenate([by_cost[:ends], by_time[:ends], frontier[::step]]).tolist())
    )


def worked_out(
    sets: Iterable[Indices], speed: Floats, caps: Floats, search: SubsetSearch
) -> list[tuple[float, Order]]:
    """Return sets in chain order with exact values, best first; of very long sets only the first few."""
    found: list[tuple[float, Order]] = []
    left = MAX_HOSTS_EVALUATED
    for one in sets:
        left -= len(one)
        if left < 0 and found:
            break
        chosen: Order = tuple(one.tolist())
        seconds = balanced_seconds(
            speed[one].tolist(), search.borders(chosen), caps[one].tolist(), search.total
        )
        if seconds < float("inf"):
            found.append((search.judged(chosen, seconds), chosen))
    return sorted(found, key=lambda pair: (pair[0], len(pair[1])))
