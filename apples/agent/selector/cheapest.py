"""Sets of many hosts by cost: for each of many iteration times, the cheapest hosts that keep to it.

A set that takes T seconds an iteration costs T times the sum of its hosts' rates. For a given T host i
computes at most g_i(T) = min(cap_i, (T - b_i) / p_i) rows, b_i its borders inside its site. The least sum of
rates whose rows hold the grid is a knapsack: hosts are taken by rate / g_i(T), and the last one is the
cheapest that holds what is missing. Over all T this draws the frontier between dear and fast, which is where
the optimum lies for the cost, for the time within a cost, for the cost within a deadline, and for what a
user's metric makes of the two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from apples.agent.selector.chains import site_chains
from apples.agent.selector.search import Order, SubsetSearch, balanced_seconds
from apples.resources import Host

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

TIMES = 96
"""Iteration times tried between the least possible and that of the slowest host alone."""
DEARER = (1.0, 1.25, 1.6, 2.2)
"""What a row may be worth, of what it costs where sites are disregarded."""
MOST_EVALUATED = 40
"""Sets that are worked out exactly, and the hosts in all of them together: about half a second."""
MOST_HOSTS_EVALUATED = 60_000
DROPPED = 64
"""After the last host was exchanged so many of the dearest may turn out not to be needed any more."""


def cheapest_within(
    seconds: float, p: Floats, border: Floats, cap: Floats, rates: Floats, total: float
) -> Indices:
    """Return the hosts of a cheap set that computes `total` rows within `seconds`; empty where none does.

    Parameters
    ----------
    p, border, cap, rates
        Of each host: seconds per row, seconds at its borders, most rows, cost per second.

    Examples
    --------
    >>> p, none, cap = np.array([1.0, 1.0, 2.0]), np.zeros(3), np.array([9.0, 9.0, 9.0])
    >>> cheapest_within(5.0, p, none, cap, np.array([9.0, 2.0, 1.0]), 7.0).tolist()
    [1, 2]
    """
    rows = np.floor(np.minimum(cap, (seconds - border) / p * (1 + 1e-12)))
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
    for place in np.argsort(-rates[chosen], kind="stable")[:DROPPED]:
        if rows[chosen[place]] <= excess:
            needed[place] = False
            excess -= float(rows[chosen[place]])
    return chosen[needed]


def cheapest_orders(
    members: Indices, hosts: Sequence[Host], speed: Floats, search: SubsetSearch
) -> list[tuple[float, Order]]:
    """Return sets on the frontier between dear and fast, in chain order, the best by the objective first.

    Parameters
    ----------
    members
        The hosts to choose from, as indices of `hosts`.
    speed
        Seconds per row of each host.
    """
    information = search.information
    chains = site_chains([hosts[i] for i in members], speed[members], information)
    order, after = next(chains)
    place, border, outward = np.zeros((3, len(hosts)))
    place[members[order]] = np.arange(len(order))
    before = np.concatenate([[after[0]], after[:-1]])
    # A host inside its site's part of the chain has two borders of that site's network.
    near = np.minimum(before, np.append(after[:-1], before[-1]))
    border[members[order]] = information.model.at_borders(near, near)
    caps = np.array(search.cap, dtype=float)
    site_of, away = _sites(members[order], after, hosts)
    # At the end of that part one of the two leads to another site.
    outward[members[order]] = information.model.at_borders(near, np.full(len(near), away))
    found: dict[bytes, tuple[float, Indices]] = {}

    def add(one: Indices, seconds: float) -> None:
        one = one[np.argsort(place[one])]
        key = one.tobytes()
        if one.size and (key not in found or seconds < found[key][0]):
            found[key] = seconds, one

    for pool in _pools(members, hosts, speed, caps, search):
        p, c, cap, rates = speed[pool], border[pool], caps[pool], search.rates[pool]
        for seconds in _times(p, c, cap, search.total).tolist():
            one = pool[cheapest_within(seconds, p, c, cap, rates, search.total)]
            add(one, seconds)
            if one.size and pool is members and site_of.max() > 0:
                for some in _sites_worth_it(
                    one, seconds, members, site_of, outward, border, speed, caps, search
                ):
                    add(some, seconds)
    promising = _promising(list(found.values()), search)
    turned = (_slack_outside(one, site_of, outward, border, speed, caps) for one in promising)
    both = [each for pair in zip(promising, turned, strict=True) for each in pair]
    return worked_out(both, speed, caps, search)


def _sites(order: Indices, after: Floats, hosts: Sequence[Host]) -> tuple[Indices, float]:
    """Return the number of each host's site, and how long a border between sites of a chain takes in the mean."""
    numbers: dict[str, int] = {}
    site_of = np.zeros(len(hosts), dtype=np.int64)
    for i in order.tolist():
        site_of[i] = numbers.setdefault(hosts[i].site, len(numbers))
    crosses = site_of[order[1:]] != site_of[order[:-1]]
    return site_of, float(after[:-1][crosses].mean()) if crosses.any() else 0.0


def _sites_worth_it(
    one: Indices,
    seconds: float,
    members: Indices,
    site_of: Indices,
    outward: Floats,
    border: Floats,
    speed: Floats,
    caps: Floats,
    search: SubsetSearch,
) -> Iterator[Indices]:
    """Yield cheap sets of fewer sites: of those whose hosts are worth more than the two ways out of the site cost.

    What a row is worth is the price of the dearest host of `one`, the set that disregards sites, and more.
    """
    rows = np.floor(np.minimum(caps, np.maximum((seconds - border) / speed, 0.0)))
    outside = np.floor(np.minimum(caps, np.maximum((seconds - outward) / speed, 0.0)))
    price = float((search.rates[one] / np.maximum(rows[one], 1.0)).max())
    count = int(site_of.max()) + 1
    lost = np.full(count, np.inf)
    able = members[rows[members] >= 1]
    np.minimum.at(lost, site_of[able], (rows - outside)[able])
    for dearer in DEARER:
        worth = np.maximum(dearer * price * rows[able] - search.rates[able], 0.0)
        gain = np.bincount(site_of[able], worth, count) - 2.0 * dearer * price * np.where(
            np.isinf(lost), 0.0, lost
        )
        sites = gain > 0
        pool = able[sites[site_of[able]]]
        total = search.total + 2.0 * max(0, int(sites.sum()) - 1) * float(
            lost[sites].mean() if sites.any() else 0.0
        )
        p, c, cap, rates = speed[pool], border[pool], caps[pool], search.rates[pool]
        yield pool[cheapest_within(seconds, p, c, cap, rates, total)]


def _slack_outside(
    one: Indices, site_of: Indices, outward: Floats, border: Floats, speed: Floats, caps: Floats
) -> Indices:
    """Return a set with those hosts of each site at its ends that lose the fewest rows to a border outside."""
    lost = np.minimum((outward[one] - border[one]) / speed[one], caps[one])
    parts = np.split(np.arange(len(one)), np.flatnonzero(np.diff(site_of[one])) + 1)
    turned = []
    for part in parts:
        by_loss = part[np.argsort(lost[part], kind="stable")]
        ends = by_loss[:2].tolist()
        inside = [k for k in part.tolist() if k not in ends]
        turned += [ends[0], *inside, *ends[1:]]
    return one[turned]


def _promising(found: Sequence[tuple[float, Indices]], search: SubsetSearch) -> list[Indices]:
    """Return the sets worth working out: the best by the objective; of a user's metric, all of the frontier."""
    seconds = np.array([one for one, _ in found])
    rate = np.array([search.rates[one].sum() for _, one in found])
    start = np.array([search.starts[one].max() for _, one in found])
    wait = np.array([search.waits[one].max() for _, one in found])
    if search.information.metric is None:
        order = np.argsort(search.judge(seconds, rate, start, wait), kind="stable")
        return [found[i][1] for i in order[:MOST_EVALUATED]]
    whole = start + seconds * search.information.application.iterations
    by_time, by_cost = np.lexsort((rate * whole, wait + whole)), np.argsort(rate * whole)
    cost = (rate * whole)[by_time]
    frontier = by_time[cost <= np.minimum.accumulate(cost)]
    step = max(1, math.ceil(2 * len(frontier) / MOST_EVALUATED))
    ends = MOST_EVALUATED // 4
    order = np.concatenate([by_cost[:ends], by_time[:ends], frontier[::step]])
    return [found[i][1] for i in dict.fromkeys(order.tolist())]


def worked_out(
    sets: Iterable[Indices], speed: Floats, caps: Floats, search: SubsetSearch
) -> list[tuple[float, Order]]:
    """Return sets in chain order with their values, the best first; of very long ones only the first few."""
    found: list[tuple[float, Order]] = []
    left = MOST_HOSTS_EVALUATED
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


def _pools(
    members: Indices, hosts: Sequence[Host], speed: Floats, caps: Floats, search: SubsetSearch
) -> Iterator[Indices]:
    """Yield all of the hosts, each site alone that holds the grid, and ever more sites, the cheapest first."""
    yield members
    by_site: dict[str, list[int]] = {}
    for i in members.tolist():
        by_site.setdefault(hosts[i].site, []).append(i)
    if len(by_site) < 2:
        return
    sites = [np.array(site) for site in by_site.values()]
    yield from (site for site in sites if caps[site].sum() >= search.total)
    sites.sort(key=lambda site: float((search.rates[site] * speed[site]).min()))
    count = 2
    while count < len(sites):
        yield np.concatenate(sites[:count])
        count *= 2


def _times(p: Floats, border: Floats, cap: Floats, total: float) -> Floats:
    """Return iteration times, from the least that all hosts could reach to that of the slowest alone."""
    able = cap >= 1
    if not able.any():
        return np.zeros(0)
    least = total / float((1.0 / p[able]).sum())
    longest = float((border[able] + p[able] * np.minimum(cap[able], total)).max())
    return np.geomspace(least, max(longest, least) * 1.001, TIMES)
