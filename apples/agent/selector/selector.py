"""`ResourceSelector`: which hosts, in which order, are worth planning for.

Hosts are filtered one by one; the rest are chained by a logical distance from every locus; the best
prefixes of the chains are found from cumulative sums, and a local search improves on them. Only the
few sets that come out on top are handed on, best first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise

import numpy as np

from apples.agent.information import InformationPool
from apples.agent.selector.chains import (
    FEW_HOSTS,
    Distance,
    Floats,
    Indices,
    chain,
    communication,
    communication_between,
    site_chains,
)
from apples.agent.selector.cheapest import cheapest_orders, worked_out
from apples.agent.selector.filters import FILTERS, HOST_FILTERS, Filter, HostFilter
from apples.agent.selector.search import (
    MISSING_ROWS,
    Order,
    SubsetSearch,
    balanced_seconds,
    prefix_seconds,
)
from apples.errors import UsageError
from apples.resources import Host, ResourceSet
from apples.resources.schedule import Rejection, Schedule

BUDGET, BUDGET_OF_METRIC = 60_000, 10_000
"""Sets of few hosts that a search may evaluate: about a second; a user's metric takes an estimate of each."""
STARTS = 24
SETS_OF_FEW = 40
SETS_OF_MANY = 8
MOST_PAIRED = 1000
"""Hosts that a distance other than communication may order: it looks at every pair."""
STARTS_BY_COST, CHAINS_OF_METRIC, NEAR = 3, 4, 16
MOMENTS = 6
"""So many groups of hosts that are ready together are looked at."""
LONGEST_SEARCHED, LONGEST_BY_COST = 48, 96
"""Longer chains are not searched: a move on them costs more than it can gain."""


class ResourceSelector:
    """Produces resource sets for one information pool, and refuses what the user or a host forbids.

    Parameters
    ----------
    distance
        The logical distance that orders hosts.
    host_filters, filters
        What refuses a host, and what refuses a schedule; the first that refuses is the reason.
    """

    def __init__(
        self,
        distance: Distance = communication,
        host_filters: Sequence[HostFilter] = HOST_FILTERS,
        filters: Sequence[Filter] = FILTERS,
    ) -> None:
        self.distance = distance
        self.host_filters = host_filters
        self.filters = filters

    def usable_hosts(
        self, information: InformationPool
    ) -> tuple[tuple[Host, ...], tuple[Rejection, ...]]:
        """Return the hosts no filter refuses, in the order of the list, and the refusals."""
        usable, refused = [], []
        for host in information.hosts:
            reasons = (refuse(host, information) for refuse in self.host_filters)
            rejection = next((r for r in reasons if r is not None), None)
            if rejection is None:
                usable.append(host)
            else:
                refused.append(rejection)
        return tuple(usable), tuple(refused)

    def rejection(self, schedule: Schedule, information: InformationPool) -> Rejection | None:
        """Return why a schedule is infeasible, or None when it is feasible."""
        reasons = (refuse(schedule, information) for refuse in self.filters)
        return next((r for r in reasons if r is not None), None)

    def whole_set(self, hosts: Sequence[Host], information: InformationPool) -> ResourceSet:
        """Return all of `hosts` as one chain.

        Of few hosts the one with the cheapest borders among those that pass from site to site as seldom as
        can be: borders between the same two sites share a link, which the paper's model prices as if each had it.
        """
        if len(hosts) < 2:
            return tuple(hosts)
        by_site = site_chains(hosts, _speed(hosts, information), information)
        if len(hosts) > FEW_HOSTS:
            return tuple(hosts[i] for i in next(by_site)[0])
        search = SubsetSearch(hosts, information, BUDGET)
        chains = self._chains(range(len(hosts)), hosts, information)
        whole = [tuple(c) for c in chains if len(c) == len(hosts)]
        whole += [tuple(order.tolist()) for order, _ in by_site]
        best = min(
            whole,
            key=lambda c: (
                sum(hosts[i].site != hosts[j].site for i, j in pairwise(c)),
                sum(search.borders(c)),
            ),
        )
        return tuple(hosts[i] for i in best)

    def resource_sets(
        self, hosts: Sequence[Host], information: InformationPool
    ) -> Iterator[ResourceSet]:
        """Yield the sets worth planning for, the most promising first; none twice, reversed or not."""
        seen: set[tuple[str, ...]] = set()
        for pool in _pools(hosts, information):
            for order in self._orders(pool, information):
                key = tuple(pool[i].name for i in order)
                if key not in seen:
                    seen.update((key, key[::-1]))
                    yield tuple(pool[i] for i in order)
        for host in _by_threads(hosts, information):
            if (host.name,) not in seen:
                yield (host,)

    def _orders(self, hosts: Sequence[Host], information: InformationPool) -> Iterable[Order]:
        own = information.metric is not None
        search = SubsetSearch(hosts, information, BUDGET_OF_METRIC if own else BUDGET)
        if len(hosts) > FEW_HOSTS:
            return self._orders_of_many(hosts, information, search)
        chains = self._chains(range(len(hosts)), hosts, information)
        prefixes = {
            tuple(c[:k])
            for group in _ready_together(search)
            for c in (
                self._chains(group, hosts, information) if len(group) < len(hosts) else chains
            )
            for k in _sizes(len(c), information)
        }
        if self.distance is not communication:
            return sorted(prefixes, key=lambda order: (len(order), order))
        prefixes.update(order for _, order in _by_cost(hosts, information, search))
        search.values(prefixes)
        ranked = sorted(prefixes, key=lambda order: (search.value(order), order))
        found = [search.descend(start, range(len(hosts))) for start in ranked[:STARTS]]
        found += [tuple(c) for c in chains[:1]]  # holds the most memory
        ranked = sorted({*ranked, *found}, key=lambda order: (search.value(order), order))
        return ranked[:SETS_OF_FEW]

    def _chains(
        self, group: Sequence[int], hosts: Sequence[Host], information: InformationPool
    ) -> list[list[int]]:
        """Return the chains of some of the hosts, one from each as locus."""
        members = [hosts[i] for i in group]
        speed = _speed(members, information).tolist()
        distance = self.distance
        if distance is communication:
            distance = communication_between(members, information)
        found = (
            chain(locus, members, speed, distance, information) for locus in range(len(members))
        )
        return [[group[i] for i in order] for order in found]

    def _orders_of_many(
        self, hosts: Sequence[Host], information: InformationPool, search: SubsetSearch
    ) -> Iterable[Order]:
        speed = _speed(hosts, information)
        caps = np.array(search.cap, dtype=float)
        if self.distance is communication:
            chains: Iterable[tuple[Indices, Floats]] = (
                (members[order], border)
                for members in map(np.array, _ready_together(search))
                for order, border in site_chains(
                    [hosts[i] for i in members], speed[members], information
                )
            )
            by_cost = _by_cost(hosts, information, search)
        else:
            if len(hosts) > MOST_PAIRED:
                raise UsageError(
                    f"a distance that looks at every pair takes at most {MOST_PAIRED} hosts, "
                    f"not {len(hosts)}: use --distance communication",
                    code="too-many-hosts",
                    value=len(hosts),
                    bound=MOST_PAIRED,
                )
            locus = int(np.argmin(speed))
            order = chain(locus, hosts, speed.tolist(), self.distance, information)
            steps = [search.border(a, b) for a, b in pairwise(order)]
            chains, by_cost = [(np.array(order), np.array([*steps, 0.0]))], []
        if information.metric is None:
            best = [
                found
                for order, border in chains
                for found in _best_prefixes(order, border, speed, caps, search)
            ]
        else:
            best = _some_prefixes(islice(chains, CHAINS_OF_METRIC), speed, caps, search)
        values = {order: value for value, order in reversed([*best, *by_cost])}
        ranked = sorted(values, key=lambda order: (values[order], len(order)))[:SETS_OF_MANY]
        search.brisk = bool(by_cost)
        longest = LONGEST_BY_COST if by_cost else LONGEST_SEARCHED
        short = [order for order in ranked if len(order) <= longest]
        for start in short[: STARTS_BY_COST if by_cost else 1]:
            if start in ranked[:1] or by_cost:
                better = search.descend(start, _near(start, hosts, speed, search))
                values[better] = search.value(better)
                ranked.insert(0, better)
        return sorted(dict.fromkeys(ranked), key=lambda order: (values[order], len(order)))


def _speed(hosts: Sequence[Host], information: InformationPool) -> Floats:
    return information.model.seconds_per_row(hosts, information.application.rows)


def _sizes(length: int, information: InformationPool) -> range:
    limits = information.specifications.constraints
    return range(
        min(length, limits.minimum_hosts or 1), min(length, limits.maximum_hosts or length) + 1
    )


def _ready_together(search: SubsetSearch) -> list[Sequence[int]]:
    """Return all hosts; then those that are had and started by one moment, for a few moments, the latest first.

    A set begins when its slowest host does. So one that is started late, or waited for in a queue, is worth
    nothing to a short run, and dropping one host of several such from a set is no step downhill.
    """
    ready = search.starts + search.waits
    moments = _from_latest(ready)
    if len(moments) > MOMENTS:
        moments = _from_latest(np.geomspace(max(moments[0] / 64, 1e-9), moments[0], MOMENTS))
        moments[-1] = max(moments[-1], ready.min())
    groups = [np.flatnonzero(ready <= moment).tolist() for moment in moments[1:]]
    sizes = {len(group): group for group in groups if 0 < len(group) < len(ready)}
    return [range(len(ready)), *sizes.values()]


def _from_latest(moments: Floats) -> Floats:
    """Return each moment once, the latest first (`np.unique` would load the masked arrays)."""
    return np.array(sorted(set(moments.tolist()), reverse=True))


def _by_cost(
    hosts: Sequence[Host], information: InformationPool, search: SubsetSearch
) -> list[tuple[float, Order]]:
    """Return sets on the frontier between dear and fast, where the objective or a limit looks at the cost."""
    specifications = information.specifications
    looks = specifications.objective.measure == "cost" or information.metric is not None
    if not looks and specifications.constraints.maximum_cost is None:
        return []
    if not hosts:  # the filters left none
        return []
    speed, sizes = _speed(hosts, information), _sizes(len(hosts), information)
    found = [
        pair
        for members in map(np.array, _ready_together(search))
        for pair in cheapest_orders(members, hosts, speed, search)
    ]
    return [(value, order) for value, order in found if len(order) in sizes]


def _pools(hosts: Sequence[Host], information: InformationPool) -> Iterator[Sequence[Host]]:
    """Yield all hosts; then time-shared ones and those behind a queue alone, and those the user would rather have.

    How long the queue holds a set back is known only when it is asked about the set: so the best sets without
    any of its hosts, and of its hosts alone, are found whatever the list says of the wait.
    """
    yield hosts
    preferences = information.specifications.preferences
    for wanted in (
        [h for h in hosts if h.queue_seconds is None],
        [h for h in hosts if h.queue_seconds is not None],
        [h for h in hosts if {h.name, h.site} & {*preferences.prefer}],
        [h for h in hosts if not {h.name, h.site} & {*preferences.avoid}],
    ):
        if 0 < len(wanted) < len(hosts):
            yield wanted


def _by_threads(hosts: Sequence[Host], information: InformationPool) -> list[Host]:
    """Return the hosts that take least by threads, alone: what is searched for goes by ranks."""
    if _sizes(len(hosts), information).start > 1:
        return []
    total = information.application.rows
    seconds = {
        host: float(threads.model.computation((host,), np.array([float(total)]))[0])
        for host in hosts
        if (threads := information.by_threads_on(host))
    }
    return sorted(seconds, key=lambda host: seconds[host])[:SETS_OF_MANY]


def _best_prefixes(
    order: Indices,
    border: Floats,
    speed: Floats,
    caps: Floats,
    search: SubsetSearch,
    count: int = 2,
) -> list[tuple[float, Order]]:
    """Return the best prefixes of one long chain: bounds from cumulative sums, caps where they bind."""
    p, cap = speed[order], caps[order]
    model = search.information.model
    seconds, feasible = prefix_seconds(p, border, search.total, model.borders_at_once)
    enough = np.cumsum(cap) >= search.total
    sizes = np.arange(1, len(order) + 1)
    limit = _sizes(len(order), search.information)
    usable = feasible & enough & (sizes >= limit.start) & (sizes < limit.stop)
    usable &= sizes <= search.total
    rate = np.cumsum(search.rates[order])
    start, wait = (
        np.maximum.accumulate(search.starts[order]),
        np.maximum.accumulate(search.waits[order]),
    )
    # Without caps T is a lower bound: prefixes are worked out exactly in its order, until none can be better.
    bound = np.where(usable, search.judge(seconds, rate, start, wait), np.inf)
    best: list[tuple[float, int]] = []
    for k in np.argsort(bound, kind="stable"):
        if not usable[k] or (len(best) == count and bound[k] >= best[-1][0]):
            break
        c = border[: k + 1].copy()
        c[-1] = 0.0
        both = model.at_borders(np.concatenate([[0.0], c[:-1]]), c)
        exact = np.float64(
            balanced_seconds(
                p[: k + 1].tolist(), both.tolist(), cap[: k + 1].tolist(), search.total
            )
        )
        best = sorted([*best, (float(search.judge(exact, rate[k], start[k], wait[k])), int(k))])[
            :count
        ]
    if not best and enough.any():  # memory asks for hosts whose strips would be negative
        k = int(np.argmax(enough))
        best = [(MISSING_ROWS, k)]
    return [(value, tuple(order[: k + 1].tolist())) for value, k in best]


def _some_prefixes(
    chains: Iterable[tuple[Indices, Floats]], speed: Floats, caps: Floats, search: SubsetSearch
) -> list[tuple[float, Order]]:
    """Return every host alone, and prefixes of ever doubled length, as the user's metric values them.

    Nothing is known of the metric but its answers: no prefix is left out because another one is better.
    """
    orders: list[Order] = [(i,) for i in range(len(speed)) if caps[i] >= search.total]
    for order, _ in chains:
        limit = _sizes(len(order), search.information)
        sizes = {limit.start, limit.stop - 1, *(2**k for k in range(len(order).bit_length()))}
        orders += [tuple(order[:k].tolist()) for k in sorted(sizes) if k in limit]
    sets = [np.array(order) for order in dict.fromkeys(orders)]
    return worked_out(sets, speed, caps, search)


def _near(order: Order, hosts: Sequence[Host], speed: Floats, search: SubsetSearch) -> list[int]:
    """Return the hosts of a set, of each site it touches the fastest few left out, and the cheapest of all."""
    sites = {hosts[i].site for i in order}
    others = [i for i in range(len(hosts)) if i not in order]
    near = sorted((i for i in others if hosts[i].site in sites), key=lambda i: (speed[i], i))
    cheap: list[int] = []
    if search.rates.any():
        chosen = list(order)
        rows = np.minimum(search.cap, search.total * (1 / speed) / (1 / speed[chosen]).sum())
        price = search.rates / np.maximum(rows, 1e-9)
        cheap = sorted(others, key=lambda i: (price[i], i))
    beside = [i for i in cheap if hosts[i].site in sites]
    return list(dict.fromkeys([*order, *near[:NEAR], *cheap[:NEAR], *beside[:NEAR]]))
