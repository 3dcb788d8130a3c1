"""`ResourceSelector`: ordered sets of hosts that are worth a plan.

Hosts are filtered one by one. Up to five hosts, every ordered subset is evaluated. More hosts are chained by a
logical distance from every locus; cumulative sums give the best prefixes of the chains, and a local search
improves them. Only the few best sets are yielded, best first, and more while the filters refuse all of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise, permutations

import numpy as np

from apples.agent.information import InformationPool
from apples.agent.models.model import Orders
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
from apples.agent.selector.filters import FILTERS, HOST_FILTERS, Filter, HostFilter, checked
from apples.agent.selector.limits import Group, Limits
from apples.agent.selector.search import (
    MISSING_ROWS,
    Order,
    SubsetSearch,
    balanced_seconds,
    prefix_seconds,
)
from apples.errors import UsageError
from apples.resources import Host, ResourceSet
from apples.resources.schedule import Estimate, Rejection, Schedule

BUDGET, BUDGET_OF_METRIC = 60_000, 10_000
"""Sets that a search of few hosts may evaluate: about a second; a user's metric needs an estimate of each."""
EXHAUSTIVE_HOSTS, EXHAUSTIVE_HOSTS_OF_PARTITIONS = 5, 4
"""Up to this number, every ordered subset is evaluated: 165, in a few milliseconds. If ranks own whole
partitions, each subset must be planned, about a millisecond each, because the order decides which ranks own
more."""
MARGIN, MARGIN_OF_ESTIMATES = 1.02, 1.25
"""Orders of a set are planned up to this factor above the best estimate so far. The value of the search is a
lower bound, except with speeds that depend on the rows. The estimate of fractional strips is not a lower bound."""
STARTS = 24
SETS_OF_FEW = 40
SETS_OF_MANY = 8
MAX_SETS_REFUSED = 400
"""Sets that are yielded at most while the filters refuse all of them."""
HOPELESS = 1e100
"""Sets with a larger value lack memory or exceed the user's deadline or cost."""
MAX_HOPELESS = 4
"""Hopeless sets that are yielded, so that refusals have numbers."""
MAX_PAIRED_HOSTS = 1000
"""Largest number of hosts for a distance other than communication, which is computed for every pair."""
STARTS_BY_COST, CHAINS_OF_METRIC, NEAR = 3, 4, 16
MOMENTS = 6
"""Number of searched groups of hosts that are ready by the same moment."""
MAX_SEARCHED, MAX_BY_COST = 48, 96
"""Longer chains get no local search: a move on them costs more than it can gain."""

Accepted = Callable[[], Sequence[Estimate] | None]
"""Returns the estimates of the sets accepted so far: empty if all were refused, None if that is unknown."""


def unknown() -> None:
    """Return None: the results of yielded sets are unknown."""


class ResourceSelector:
    """Produces resource sets for one information pool, and refuses hosts and schedules by filters.

    Parameters
    ----------
    distance
        The logical distance that orders hosts.
    host_filters, filters
        Functions that refuse a host, and functions that refuse a schedule. The first refusal is the reason.
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
        self._limits: Limits | None = None

    def usable_hosts(
        self, information: InformationPool
    ) -> tuple[tuple[Host, ...], tuple[Rejection, ...]]:
        """Return the hosts that all filters accept, in the order of the list, and the refusals."""
        usable, refused = [], []
        for host in information.hosts:
            for refuse in self.host_filters:
                if (answer := refuse(host, information)) is not None:
                    refused.append(checked(refuse, answer))
                    break
            else:
                usable.append(host)
        return tuple(usable), tuple(refused)

    def rejection(self, schedule: Schedule, information: InformationPool) -> Rejection | None:
        """Return why a schedule is infeasible; None if it is feasible.

        Raises
        ------
        UsageError
            A user's own filter returned neither a `Rejection` nor None. Permanent.
        """
        for refuse in self.filters:
            if (answer := refuse(schedule, information)) is not None:
                return checked(refuse, answer)
        return self.limits(information).refuse(schedule)

    def limits(self, information: InformationPool) -> Limits:
        """Return the limits of a pool; the limits of the last pool are cached."""
        if self._limits is None or self._limits.information is not information:
            self._limits = Limits(information, self.distance)
        return self._limits

    def whole_set(self, hosts: Sequence[Host], information: InformationPool) -> ResourceSet:
        """Return all of `hosts` as one chain.

        For few hosts, it is the chain with the cheapest borders among those with the fewest changes of site.
        The paper's model prices borders between the same two sites as if each had the link alone, although they
        share it.
        """
        if len(hosts) < 2:
            return tuple(hosts)
        by_site = site_chains(hosts, _speed(hosts, information), information)
        if len(hosts) > FEW_HOSTS:
            return tuple(hosts[i] for i in next(by_site)[0])
        search = SubsetSearch(hosts, information, BUDGET)
        chains = self._chains(Group(tuple(range(len(hosts)))), hosts, information)
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
        self,
        hosts: Sequence[Host],
        information: InformationPool,
        accepted: Accepted = unknown,
    ) -> Iterator[ResourceSet]:
        """Yield the sets worth planning, the most promising first; a set and its reverse count as equal.

        Parameters
        ----------
        accepted
            While it reports that all sets were refused, more sets are yielded. Orders of a set that cannot be
            as good as the best estimate are left out.
        """
        seen: set[tuple[str, ...]] = set()
        uneven = self.limits(information).cuts_unevenly  # then a reversed set is a different set
        for pool in _pools(hosts, information):
            for order in self._orders(pool, information, accepted):
                key = tuple(pool[i].name for i in order)
                if key not in seen and (len(seen) < MAX_SETS_REFUSED or accepted()):
                    seen.update((key,) if uneven else (key, key[::-1]))
                    yield tuple(pool[i] for i in order)
        for host in _by_threads(hosts, information):
            if (host.name,) not in seen:
                yield (host,)

    def _orders(
        self, hosts: Sequence[Host], information: InformationPool, accepted: Accepted
    ) -> Iterator[Order]:
        if not hosts:
            return
        budget = BUDGET if information.metric is None else BUDGET_OF_METRIC
        search = SubsetSearch(hosts, information, budget, self.limits(information))
        if len(hosts) > FEW_HOSTS:
            yield from self._orders_of_many(hosts, information, search)
        elif self.distance is not communication:  # only Figure 3 with that distance
            prefixes = self._prefixes(hosts, information, search)
            yield from sorted(prefixes, key=lambda order: (len(order), order))
        elif len(hosts) <= EXHAUSTIVE_HOSTS:
            yield from _all_orders(hosts, search, accepted)
        else:
            yield from self._orders_of_few(hosts, information, search, accepted)

    def _prefixes(
        self, hosts: Sequence[Host], information: InformationPool, search: SubsetSearch
    ) -> dict[Order, None]:
        """Return the prefixes of all chains that the limits allow."""
        found: dict[Order, None] = {}
        for group in _groups(hosts, search):
            for chain_ in self._chains(group, hosts, information):
                sizes = search.limits.sizes(len(chain_))
                found.update(dict.fromkeys(tuple(chain_[:k]) for k in sizes))
        return found

    def _orders_of_few(
        self,
        hosts: Sequence[Host],
        information: InformationPool,
        search: SubsetSearch,
        accepted: Accepted,
    ) -> Iterator[Order]:
        prefixes = self._prefixes(hosts, information, search)
        longest = max(prefixes, key=len, default=())  # has the most memory
        prefixes.update(dict.fromkeys(order for _, order in _by_cost(hosts, information, search)))
        search.values(prefixes)
        ranked = sorted(prefixes, key=lambda order: (search.value(order), order))
        reached = [search.descend(start, range(len(hosts))) for start in ranked[:STARTS]]
        reached += [longest] if longest else []
        ranked = sorted({*ranked, *reached}, key=lambda order: (search.value(order), order))
        yield from _worth_planning(ranked, SETS_OF_FEW, search, accepted)

    def _chains(
        self, group: Group, hosts: Sequence[Host], information: InformationPool
    ) -> list[list[int]]:
        """Return the chains of a group of hosts: from its locus, or else from each host as locus."""
        members = [hosts[i] for i in group.members]
        speed = _speed(members, information).tolist()
        distance = self.distance
        if distance is communication:
            distance = communication_between(members, information)
        loci = range(len(members)) if group.locus is None else [group.members.index(group.locus)]
        chains = (chain(locus, members, speed, distance, information) for locus in loci)
        return [[group.members[i] for i in order] for order in chains]

    def _orders_of_many(
        self, hosts: Sequence[Host], information: InformationPool, search: SubsetSearch
    ) -> Iterable[Order]:
        speed = _speed(hosts, information)
        caps = np.array(search.cap, dtype=float)
        groups = _groups(hosts, search)
        if self.distance is communication:
            chains: Iterable[tuple[Indices, Floats]] = (
                pair for group in groups for pair in _chains_of_sites(group, hosts, speed, search)
            )
            by_cost = _by_cost(hosts, information, search)
        else:
            if len(hosts) > MAX_PAIRED_HOSTS:
                raise UsageError(
                    f"a distance that looks at every pair takes at most {MAX_PAIRED_HOSTS} hosts, "
                    f"not {len(hosts)}: use --distance communication",
                    code="too-many-hosts",
                    value=len(hosts),
                    bound=MAX_PAIRED_HOSTS,
                )
            chains, by_cost = self._paired_chains(groups, hosts, speed, information), []
        if search.by_estimate:
            best = _some_prefixes(islice(chains, CHAINS_OF_METRIC), speed, caps, search)
        else:
            best = [
                prefix
                for order, border in chains
                for prefix in _best_prefixes(order, border, speed, caps, search)
            ]
        values = {order: value for value, order in reversed([*best, *by_cost])}
        ranked = sorted(values, key=lambda order: (values[order], len(order)))[:SETS_OF_MANY]
        search.brisk = bool(by_cost)
        longest = MAX_BY_COST if by_cost else MAX_SEARCHED
        short = [order for order in ranked if len(order) <= longest]
        for start in short[: STARTS_BY_COST if by_cost else 1]:
            if start in ranked[:1] or by_cost:
                better = search.descend(start, _near(start, hosts, speed, search))
                values[better] = search.value(better)
                ranked.insert(0, better)
        return sorted(dict.fromkeys(ranked), key=lambda order: (values[order], len(order)))

    def _paired_chains(
        self,
        groups: Iterable[Group],
        hosts: Sequence[Host],
        speed: Floats,
        information: InformationPool,
    ) -> Iterator[tuple[Indices, Floats]]:
        """Yield the chain of each group from its locus, or else from its fastest host, by the user's distance."""
        for group in groups:
            fastest = min(group.members, key=lambda i: (speed[i], i))
            locus = fastest if group.locus is None else group.locus
            (order,) = self._chains(Group(group.members, locus), hosts, information)
            steps = information.model.border_seconds([hosts[i] for i in order])
            yield np.array(order), np.array([*steps, 0.0])


def _groups(hosts: Sequence[Host], search: SubsetSearch) -> list[Group]:
    """Return the groups to search within the limits: of all hosts, then of hosts ready by the same moment."""
    speed = _speed(hosts, search.information)
    found: dict[Group, None] = {}
    for ready in _ready_together(search):
        for group in search.limits.groups([hosts[i] for i in ready], speed[list(ready)]):
            locus = None if group.locus is None else ready[group.locus]
            found[Group(tuple(ready[i] for i in group.members), locus)] = None
    return list(found)


def _chains_of_sites(
    group: Group, hosts: Sequence[Host], speed: Floats, search: SubsetSearch
) -> Iterator[tuple[Indices, Floats]]:
    """Yield chains of a group of many hosts, site by site, with their borders; with a locus only from it."""
    members = np.array(group.members)
    chains = site_chains([hosts[i] for i in members], speed[members], search.information)
    for order, border in chains:
        if group.locus is None or members[order[0]] == group.locus:
            yield members[order], border


def _all_orders(
    hosts: Sequence[Host], search: SubsetSearch, accepted: Accepted
) -> Iterator[Order]:
    """Yield every ordered subset of very few hosts that the limits allow and that may be best.

    First comes the best order of each subset, then its other orders, with other borders. Orders that cannot be
    better than the best estimate so far are left out, unless the user prefers some hosts.
    """
    sizes = search.limits.sizes(len(hosts))
    of_partitions = search.limits.cuts_unevenly and len(hosts) <= EXHAUSTIVE_HOSTS_OF_PARTITIONS
    ranked: list[tuple[float, Order]] = []
    for size in sizes:
        chains = permutations(range(len(hosts)), size)
        orders = np.array([c for c in chains if c[0] <= c[-1] or of_partitions])
        orders = search.allowed(orders.reshape(-1, size), range(len(hosts)))
        if len(orders):
            kept = orders if of_partitions or size < 3 else _distinct(orders, search)
            values = search.values(map(tuple, kept.tolist()))
            ranked += [(value, order) for order, value in values.items()]
    if not ranked:  # no set is large enough: yield the largest, which filters refuse
        groups = _groups(hosts, search)
        ranked = [(search.value(g.members), g.members) for g in groups if g.members]
    ranked.sort()
    best: dict[frozenset[int], Order] = {}
    for _, order in ranked:
        best.setdefault(frozenset(order), order)
    first = [*best.values()]
    yield from _worth_planning(first, len(first), search, accepted)
    margin = MARGIN_OF_ESTIMATES if search.by_estimate else MARGIN
    preferences = search.information.specifications.preferences
    if preferences.prefer or preferences.avoid:
        margin = max(margin, 1.0 + preferences.prefer_within)
    chosen = set(first)
    for value, order in ranked:
        if order in chosen:
            continue
        estimates = accepted()
        bound = ranked[0][0]
        if estimates is not None:
            bound = min((search.limits.measured(e) for e in estimates), default=HOPELESS)
        if value > bound + (margin - 1.0) * abs(bound) and not of_partitions:
            return
        yield order


def _distinct(orders: Orders, search: SubsetSearch) -> Orders:
    """Return orders of one size without orders that give each host the same borders as another order."""
    border = search.terms(orders)[1]
    places = np.full((len(orders), len(search.hosts)), -1.0)
    np.put_along_axis(places, orders, border, axis=1)
    kinds = {
        tuple(float(f"{c:.12g}") for c in row): k
        for k, row in reversed([*enumerate(places.tolist())])
    }
    kept: Orders = orders[sorted(kinds.values())]
    return kept


def _worth_planning(
    ranked: Sequence[Order], count: int, search: SubsetSearch, accepted: Accepted
) -> Iterator[Order]:
    """Yield the first sets, more while all were refused, but only a few hopeless sets.

    A set that lacks memory is left out if a larger set with the same hosts was yielded, which lacks memory too.
    """
    hopeless, without_memory = 0, list[frozenset[int]]()
    for k, order in enumerate(ranked):
        value = search.value(order)
        without_hope = value >= HOPELESS
        if value >= MISSING_ROWS:
            if any(set(order) < larger for larger in without_memory):
                continue
            without_memory.append(frozenset(order))
        hopeless += without_hope
        estimates = accepted() if k >= count or without_hope else None
        if estimates or (k >= count and estimates is None):
            return
        if hopeless > MAX_HOPELESS and not search.may_fit_otherwise:
            return
        yield order


def _speed(hosts: Sequence[Host], information: InformationPool) -> Floats:
    return information.model.seconds_per_row(hosts, information.application.rows)


def _ready_together(search: SubsetSearch) -> list[Sequence[int]]:
    """Return all hosts; then the hosts granted and started by a moment, for a few moments, the latest first.

    A set begins when its slowest host is ready, so a host with a late start or a queue is useless to a short
    run. The local search cannot find this: to drop one of several such hosts does not improve a set.
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
    """Return each moment once, the latest first (`np.unique` would load masked arrays)."""
    return np.array(sorted(set(moments.tolist()), reverse=True))


def _by_cost(
    hosts: Sequence[Host], information: InformationPool, search: SubsetSearch
) -> list[tuple[float, Order]]:
    """Return sets on the frontier between cost and time, if the objective or a limit depends on the cost."""
    specifications = information.specifications
    looks = specifications.objective.measure == "cost" or information.metric is not None
    if not looks and specifications.constraints.maximum_cost is None:
        return []
    speed, sizes = _speed(hosts, information), search.limits.sizes(len(hosts))
    pairs = (
        pair
        for group in _groups(hosts, search)
        for pair in cheapest_orders(np.array(group.members), hosts, speed, search)
        if group.locus is None or group.locus in pair[1]
    )
    return [(value, order) for value, order in pairs if len(order) in sizes]


def _pools(hosts: Sequence[Host], information: InformationPool) -> Iterator[Sequence[Host]]:
    """Yield all hosts; then only time-shared, only queued, only preferred, and only not avoided hosts.

    The wait for a set is known only once the queue is asked about that set. So the best sets without queued
    hosts, and of queued hosts alone, are searched for independently of the waits in the host list.
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
    """Return the hosts that are fastest alone by threads: the search itself assumes ranks."""
    if information.specifications.constraints.minimum_hosts > 1:
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
    """Return the best prefixes of one long chain, with bounds from cumulative sums and exact caps."""
    p, cap = speed[order], caps[order]
    model = search.information.model
    seconds, feasible = prefix_seconds(p, border, search.total, model.borders_at_once)
    enough = np.cumsum(cap) >= search.total
    sizes = np.arange(1, len(order) + 1)
    limit = search.limits.sizes(len(order))
    usable = feasible & enough & (sizes >= limit.start) & (sizes < limit.stop)
    usable &= sizes <= search.total
    rate = np.cumsum(search.rates[order])
    start, wait = (
        np.maximum.accumulate(search.starts[order]),
        np.maximum.accumulate(search.waits[order]),
    )
    # Without caps T is a lower bound: prefixes are evaluated exactly in its order, until no other can be
    # better.
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
    if not best and enough.any():  # the memory of hosts with negative strips is needed
        k = int(np.argmax(enough))
        best = [(MISSING_ROWS, k)]
    return [(value, tuple(order[: k + 1].tolist())) for value, k in best]


def _some_prefixes(
    chains: Iterable[tuple[Indices, Floats]], speed: Floats, caps: Floats, search: SubsetSearch
) -> list[tuple[float, Order]]:
    """Return every host alone, and prefixes of doubling lengths, with values by the user's metric.

    The metric is a black box: no prefix is left out because another prefix is better.
    """
    orders: list[Order] = [(i,) for i in range(len(speed)) if caps[i] >= search.total]
    for order, _ in chains:
        limit = search.limits.sizes(len(order))
        sizes = {limit.start, limit.stop - 1, *(2**k for k in range(len(order).bit_length()))}
        orders += [tuple(order[:k].tolist()) for k in sorted(sizes) if k in limit]
    sets = [np.array(order) for order in dict.fromkeys(orders)]
    return worked_out(sets, speed, caps, search)


def _near(order: Order, hosts: Sequence[Host], speed: Floats, search: SubsetSearch) -> list[int]:
    """Return the hosts of a set, the fastest few others of each of its sites, and the cheapest of all others."""
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
