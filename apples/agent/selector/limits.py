"""`Limits`: the hosts, sets of hosts and schedules that user and hosts allow under one information pool.

Generators, search, filters and explanation all use it. So the search proposes only sets that pass the limits on
sets. Filters later check the limits that depend on the planner's rows. A user's own filters apply in addition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from apples.agent.estimator import PerformanceEstimator
from apples.agent.information import InformationPool
from apples.agent.models.model import Orders
from apples.agent.partitioning import min_ranks
from apples.agent.selector.chains import FEW_HOSTS, Distance, communication, measured
from apples.resources import Host, names
from apples.resources.schedule import Estimate, Rejection, Schedule
from apples.ui.units import duration, listed

Booleans = npt.NDArray[np.bool_]
Allows = Callable[[Orders], Booleans]
Numbers = float | np.float64 | npt.NDArray[np.float64]

MAX_SITE_CHOICES = 24
"""If there are more choices of sites than this, only some are searched: each site with its nearest sites, and
the sites with the most memory, speed, speed for their price, and hosts."""
OVER_LIMIT = 1e150
"""Factor on the value of a set beyond the user's deadline or cost, so that it is worse than any set within."""


@dataclass(frozen=True, slots=True)
class Group:
    """Hosts, by index: any subset with the locus is allowed; without a locus any subset."""

    members: tuple[int, ...]
    locus: int | None = None


class Limits:
    """The limits on sets and schedules under one pool.

    Parameters
    ----------
    distance
        The logical distance that `maximum_distance` bounds.

    Attributes
    ----------
    min_ranks
        The least number of ranks of a schedule, for the user's partitions.
    cuts_unevenly
        Whether the user's partitions make hosts compute more or less than their rows.
    are_none
        Whether the user limits neither sets nor schedules.
    """

    def __init__(self, information: InformationPool, distance: Distance = communication) -> None:
        self.information = information
        self.distance = distance
        self.constraints = information.specifications.constraints
        asked = information.decomposition
        self.min_ranks = 1 if asked is None else min_ranks(asked)
        self.cuts_unevenly = asked is not None and asked.kind != "tight"
        self.are_none = self.min_ranks == 1 and not any(self.given())

    def given(self) -> Iterator[tuple[str, float]]:
        """Yield field and value of each given user limit on sets and schedules."""
        limits = self.constraints
        if limits.minimum_hosts > 1:
            yield "minimum_hosts", limits.minimum_hosts
        for field in (
            "maximum_hosts", "maximum_sites", "maximum_distance", "deadline", "maximum_cost",
        ):  # fmt: skip
            if (value := getattr(limits, field)) is not None:
                yield field, value

    # ----------------------------------------------------------------- sets
    def sizes(self, count: int) -> range:
        """Return the sizes that a set of up to `count` hosts may have; `count` itself if all are too few."""
        least, most = self.constraints.minimum_hosts, self.constraints.maximum_hosts
        return range(min(count, least), min(count, most or count) + 1)

    def refuse_set(self, hosts: Sequence[Host]) -> Rejection | None:
        """Refuse too few or too many hosts, too many sites, and hosts too far from each other."""
        return self.refuse_count(hosts) or self.refuse_distance(hosts)

    def refuse_count(self, hosts: Sequence[Host]) -> Rejection | None:
        """Refuse too few or too many hosts, and too many sites."""
        limits, sites = self.constraints, sorted({host.site for host in hosts})
        for what, found, least, most in (
            ("hosts", names(hosts), limits.minimum_hosts, limits.maximum_hosts),
            ("sites", sites, 1, limits.maximum_sites),
        ):
            count = len(found)
            if count < least or (most is not None and count > most):
                limit = least if count < least or most is None else most
                bound = "least" if count < least else "most"
                return Rejection(
                    names(hosts),
                    f"{listed(found)}: uses {count} {what}, the user asks for at {bound} {limit}",
                    (float(count), float(limit)),
                    "limits",
                )
        return None

    def refuse_distance(self, hosts: Sequence[Host]) -> Rejection | None:
        """Refuse hosts if no locus among them is near enough to all others."""
        most = self.constraints.maximum_distance
        if most is None or len(hosts) < 2:
            return None
        if self.locus_distance(hosts) <= most:
            return None
        apart = self._apart(hosts)
        reach = apart.max(axis=1)
        locus = int(reach.argmin())
        far = hosts[int(apart[locus].argmax())].name
        return Rejection(
            names(hosts),
            f"{far} is at distance {reach[locus]:.4g} from {hosts[locus].name}, the host nearest to all others; "
            f"the user allows {most:.4g}",
            (float(reach[locus]), float(most)),
            "distance",
        )

    def locus_distance(self, hosts: Sequence[Host]) -> float:
        """Return the distance from the locus, the host nearest to all others, to its farthest host."""
        return float(self._apart(hosts).max(axis=1).min()) if hosts else 0.0

    def _apart(self, hosts: Sequence[Host]) -> npt.NDArray[np.float64]:
        """Return the distance between each two hosts, shape (hosts, hosts)."""
        apart = np.zeros((len(hosts), len(hosts)))
        for i, host in enumerate(hosts):
            others = [*hosts[:i], *hosts[i + 1 :]]
            apart[i, np.arange(len(hosts)) != i] = measured(
                self.distance, host, others, self.information
            )
        return apart

    def allows(self, hosts: Sequence[Host]) -> Allows | None:
        """Return a function: ordered subsets, by index, shape (sets, size) -> whether they are allowed.

        The function checks sites, distance and ranks, not sizes. None: every subset is allowed.
        """
        limits = self.constraints
        numbers: dict[str, int] = {}
        sites = np.array([numbers.setdefault(host.site, len(numbers)) for host in hosts])
        few_sites = limits.maximum_sites is None or len(numbers) <= limits.maximum_sites
        slots = np.array([host.slots for host in hosts])
        enough_ranks = bool((slots >= self.min_ranks).all())
        if few_sites and enough_ranks and limits.maximum_distance is None:
            return None
        near = None
        if limits.maximum_distance is not None:
            near = self._apart(hosts) <= limits.maximum_distance

        def allows(orders: Orders) -> Booleans:
            allowed = slots[orders].sum(axis=1) >= self.min_ranks
            if limits.maximum_sites is not None and not few_sites:
                there = np.sort(sites[orders], axis=1)
                allowed &= (np.diff(there, axis=1) > 0).sum(axis=1) < limits.maximum_sites
            if near is not None:
                within = near[orders[:, :, None], orders[:, None, :]]
                allowed &= np.any(np.all(within, axis=2), axis=1)
            return np.asarray(allowed)

        return allows

    def groups(self, hosts: Sequence[Host], speed: npt.NDArray[np.float64]) -> list[Group]:
        """Return groups of hosts, by index; every set from one group is allowed by sites and distance.

        Every allowed set lies in a group, except with very many sites.

        Parameters
        ----------
        speed
            Seconds per row of each host.
        """
        found: dict[Group, None] = {}
        for group in self._by_distance(hosts, speed):
            for members in self._by_sites(hosts, speed, group):
                found[Group(members, group.locus)] = None
        return list(found)

    def _by_distance(
        self, hosts: Sequence[Host], speed: npt.NDArray[np.float64]
    ) -> Iterator[Group]:
        most = self.constraints.maximum_distance
        if most is None:
            yield Group(tuple(range(len(hosts))))
            return
        loci: Iterable[int] = range(len(hosts))
        if len(hosts) > FEW_HOSTS:
            fastest: dict[str, int] = {}
            for i in np.argsort(speed, kind="stable").tolist():
                fastest.setdefault(hosts[i].site, i)
            loci = fastest.values()
        for locus in loci:
            others = [i for i in range(len(hosts)) if i != locus]
            reach = measured(
                self.distance, hosts[locus], [hosts[i] for i in others], self.information
            )
            near = [i for i, far in zip(others, reach, strict=True) if far <= most]
            yield Group(tuple(sorted([locus, *near])), locus)

    def _by_sites(
        self, hosts: Sequence[Host], speed: npt.NDArray[np.float64], group: Group
    ) -> Iterator[tuple[int, ...]]:
        """Yield the hosts of each choice of sites, the fastest together first."""
        by_site: dict[str, list[int]] = {}
        for i in group.members:
            by_site.setdefault(hosts[i].site, []).append(i)
        most = self.constraints.maximum_sites
        if most is None or len(by_site) <= most:
            yield group.members
            return
        own = None if group.locus is None else hosts[group.locus].site
        if math.comb(len(by_site), most) <= MAX_SITE_CHOICES:
            choices: Iterable[tuple[str, ...]] = combinations(sorted(by_site), most)
        else:
            choices = {*self._nearest(hosts, by_site), *self._largest(hosts, speed, by_site, own)}
        choices = [choice for choice in choices if own is None or own in choice]
        members = [tuple(sorted(i for s in choice for i in by_site[s])) for choice in choices]
        yield from sorted(members, key=lambda those: -float((1.0 / speed[list(those)]).sum()))

    def _nearest(
        self, hosts: Sequence[Host], by_site: dict[str, list[int]]
    ) -> Iterator[tuple[str, ...]]:
        """Yield each site with its nearest sites, as many as the user allows."""
        most, sites = self.constraints.maximum_sites, sorted(by_site)
        heads = [hosts[by_site[site][0]] for site in sites]
        for i, head in enumerate(heads):
            row = self.information.model.borders(head, heads)
            near = [k for k in np.argsort(row, kind="stable").tolist() if k != i]
            yield tuple(sorted(sites[k] for k in [i, *near][:most]))

    def _largest(
        self,
        hosts: Sequence[Host],
        speed: npt.NDArray[np.float64],
        by_site: dict[str, list[int]],
        own: str | None,
    ) -> Iterator[tuple[str, ...]]:
        """Yield the sites that together have the most memory, speed, speed for their price, and hosts.

        In a choice, at most as many hosts count as the user allows. A choice grows from the locus's own site,
        or else from the largest site, each time by the site that adds most.
        """
        limits, total = self.constraints, self.information.application.rows
        rates = np.array([host.cost_per_second for host in hosts])
        worths = [self.information.model.caps(hosts, total).astype(float), 1.0 / speed]
        if rates.any():
            worths.append(1.0 / (speed * np.maximum(rates, 1e-9 * rates.max())))
        if limits.minimum_hosts > 1:
            worths.append(np.ones(len(hosts)))
        for worth in worths:
            choice = [] if own is None else [own]
            while len(choice) < (limits.maximum_sites or 0):
                chosen = worth[[i for site in choice for i in by_site[site]]]
                held = {
                    site: float(
                        np.sort([*chosen, *worth[those]])[::-1][: limits.maximum_hosts].sum()
                    )
                    for site, those in by_site.items()
                    if site not in choice
                }
                choice.append(max(held, key=held.__getitem__))
            yield tuple(sorted(choice))

    # ------------------------------------------------------------ schedules
    def refuse(self, schedule: Schedule) -> Rejection | None:
        """Refuse a schedule that breaks any of the user's limits."""
        if self.are_none:
            return None
        hosts = schedule.resources
        return (
            self.refuse_count(hosts)
            or self._refuse_ranks(schedule)
            or self._refuse_time_and_cost(schedule)
            or self.refuse_distance(hosts)
        )

    def _refuse_ranks(self, schedule: Schedule) -> Rejection | None:
        """Refuse a schedule with fewer ranks than the user's partitions need."""
        ranks = sum(allocation.ranks for allocation in schedule.allocations)
        if ranks >= self.min_ranks:
            return None
        asked, hosts = self.information.specifications.preferences.partitions, schedule.resources
        return Rejection(
            names(hosts),
            f'{listed(names(hosts))}: {ranks} ranks, partitions = "{asked}" needs at least {self.min_ranks}',
            (float(ranks), float(self.min_ranks)),
            "partitions",
        )

    def _refuse_time_and_cost(self, schedule: Schedule) -> Rejection | None:
        """Refuse a schedule that takes longer, or costs more, than the user allows."""
        limits, hosts = self.constraints, schedule.resources
        if limits.deadline is None and limits.maximum_cost is None:
            return None
        estimate = PerformanceEstimator().predicted(schedule, self.information)
        seconds, cost = estimate.execution_seconds, estimate.cost
        if limits.deadline is not None and seconds > limits.deadline:
            return Rejection(
                names(hosts),
                f"{listed(names(hosts))}: takes {duration(seconds)}, the deadline is "
                f"{duration(limits.deadline)}",
                (seconds, limits.deadline),
                "deadline",
            )
        if limits.maximum_cost is not None and cost > limits.maximum_cost:
            return Rejection(
                names(hosts),
                f"{listed(names(hosts))}: costs {cost:.4g}, at most {limits.maximum_cost:.4g} is allowed",
                (cost, limits.maximum_cost),
                "cost",
            )
        return None

    def measured(self, estimate: Estimate) -> float:
        """Return an estimate's value in the unit of the search: seconds, cost or the metric."""
        if self.information.metric is not None:
            return estimate.value
        by_cost = self.information.specifications.objective.measure == "cost"
        return estimate.cost if by_cost else estimate.turnaround_seconds

    def judge(self, value: Numbers, execution: Numbers, cost: Numbers) -> Numbers:
        """Return the value of each set; beyond the user's deadline or cost it is far above any real value.

        Parameters
        ----------
        execution, cost
            Seconds and cost of the whole execution, for each set.
        """
        limits = self.constraints
        if limits.deadline is not None:
            value = np.where(execution > limits.deadline, OVER_LIMIT * execution, value)
        if limits.maximum_cost is not None:
            dear = np.maximum(OVER_LIMIT * cost, value)
            value = np.where(cost > limits.maximum_cost, dear, value)
        return value
