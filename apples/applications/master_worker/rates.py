"""The rate of a set of workers under a master, in units a second, and the choice of master and workers.

Shao, Berman and Wolski 2000 ("Master/slave computing on the Grid"): the rate is the least of three rates: the
workers compute, the links transfer, and the master serves units.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

from apples.applications.documents import Bound
from apples.applications.host_inputs import Speeds, speeds_of
from apples.resources import Host
from apples.weather.conditions import Conditions

HANDOUT_SECONDS = 2e-4
"""The master's own seconds for a unit, beside the program's: to hand it out, and to take its result."""
MIN_GAIN = 1e-9
"""Fraction of the rate that a worker must add to be chosen."""


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """The costs of one unit.

    Attributes
    ----------
    work, service
        Work of a worker and of the master for it, in units of the hosts' `seconds_per_point`.
    size, result_size
        Bytes to the worker and back.
    """

    work: float = 1.0
    service: float = 0.0
    size: float = 0.0
    result_size: float = 0.0


@dataclass(frozen=True, slots=True)
class MasterChoice:
    """A master, its workers, and their rates.

    Attributes
    ----------
    workers
        By name: expected units a second.
    rate
        Units a second of all workers.
    bound
        Limit of the rate.
    """

    master: str
    workers: Mapping[str, float]
    rate: float
    bound: Bound


@dataclass(frozen=True)
class WorkerRates:
    """The rates of single hosts and of sets of hosts, under one weather.

    Attributes
    ----------
    slowdown
        By host: measured seconds of a unit divided by the forecast; 1 for other hosts.
    service_seconds
        Measured seconds of the master for a unit; None: the forecast.
    """

    costs: UnitCosts
    conditions: Conditions
    slowdown: Mapping[str, float] = field(default_factory=dict)
    service_seconds: float | None = None

    @cached_property
    def _speeds(self) -> Speeds:
        return speeds_of(tuple(self.conditions.hosts))

    @property
    def assumed(self) -> tuple[str, ...]:
        """The values that were neither given nor measured, one line each."""
        links = self.conditions.unknown_links(tuple(self.conditions.hosts))
        return (*self._speeds.assumed, *links)

    def unit_seconds(self, host: Host) -> float:
        """Return the seconds that each slot of a worker takes for a unit."""
        return self._unit_seconds[host.name]

    @cached_property
    def _unit_seconds(self) -> dict[str, float]:
        return {
            host.name: self.costs.work * self._speeds.seconds[host.name]
            * self.slowdown.get(host.name, 1.0) / self.conditions.share(host, host.slots)
            for host in self.conditions.hosts
        }  # fmt: skip

    def service(self, master: Host) -> float:
        """Return the seconds that the master takes for a unit."""
        if self.service_seconds is not None:
            return self.service_seconds
        seconds = HANDOUT_SECONDS + self.costs.service * self._speeds.seconds[master.name]
        return seconds / self.conditions.share(master, 1)

    def link_rate(self, master: Host, worker: Host) -> float:
        """Return the units a second that the link between two hosts transfers; the directions are independent."""
        if master.name == worker.name:
            return inf
        there = self.conditions.link(master, worker).link.bandwidth
        back = self.conditions.link(worker, master).link.bandwidth
        return min(_over(there, self.costs.size), _over(back, self.costs.result_size))

    def together(self, master: Host, workers: Iterable[Host]) -> MasterChoice:
        """Return the rate of some workers under a master.

        Workers of one site share the link to it, and all share the master's own link, which has the speed of the
        fastest of them. A worker on the master's host gets the CPU time that the master leaves.
        """
        set_ = _WorkerSet(self, master)
        for worker in workers:
            set_.add(worker)
        return set_.choice()

    def best_workers(
        self, master: Host, hosts: Iterable[Host], extra: float = MIN_GAIN
    ) -> MasterChoice:
        """Return the rate of the best workers under a master: add the quickest first, while the rate rises.

        Parameters
        ----------
        extra
            Least fraction by which a worker must raise the rate.
        """
        alone = {host.name: self.alone(master, host) for host in hosts}
        order = sorted(hosts, key=lambda host: (-alone[host.name], host.name == master.name))
        set_ = _WorkerSet(self, master)
        for host in order:
            set_.offer(host, extra)
        return set_.choice()

    def fewest_more(
        self, master: Host, workers: Sequence[Host], others: Iterable[Host], gain: float
    ) -> int:
        """Return the number of other hosts, quickest first, that raise the workers' rate by a fraction `gain`.

        0: all of them together do not.
        """
        order = sorted(others, key=lambda host: -self.alone(master, host))
        enough = (1 + gain) * self.together(master, workers).rate

        def lacks(count: int) -> bool:
            return self.together(master, [*workers, *order[:count]]).rate < enough

        # An additional worker never lowers the rate.
        count = bisect_left(range(len(order) + 1), 1, key=lambda n: not lacks(n))
        return count if count <= len(order) else 0

    def alone(self, master: Host, host: Host) -> float:
        """Return the units a second of a single worker; its processors or its link to the master limit it."""
        return min(host.slots / self.unit_seconds(host), self.link_rate(master, host))


def choose(
    rates: WorkerRates, hosts: Sequence[Host], masters: Sequence[Host] = ()
) -> tuple[MasterChoice, ...]:
    """Return the best workers of `hosts` under each master, of `masters` or of all, the best master first.

    Of masters with the same rate, the master with the fewest workers is first.

    Examples
    --------
    >>> from apples.resources import Host, HostList, Link, Network
    >>> from nws import Weather
    >>> hosts = HostList(
    ...     (Host("ada", seconds_per_point=0.01), Host("bob", seconds_per_point=0.02)),
    ...     Network(default=Link(1e-4, 1e6)),
    ... )
    >>> best, other = choose(WorkerRates(UnitCosts(size=5e4), Conditions(hosts, Weather())), tuple(hosts))
    >>> best.master, sorted(best.workers), best.bound, round(best.rate)
    ('ada', ['ada', 'bob'], 'links', 118)
    >>> other.master, other.bound, round(other.rate)
    ('bob', 'links', 69)
    """
    found = [rates.best_workers(master, hosts) for master in masters or hosts]
    return tuple(sorted(found, key=lambda each: (-round(each.rate, 9), len(each.workers))))


class _WorkerSet:
    """Workers under a master during the choice. The time to try a worker grows with the number of sites."""

    def __init__(self, rates: WorkerRates, master: Host) -> None:
        self._rates, self._master = rates, master
        self._service = rates.service(master)
        self._alone: dict[str, float] = {}
        self._sites: dict[str, tuple[float, float]] = {}
        self._own = 0.0
        """Units a second of the worker on the master's host, without the master."""

    def add(self, host: Host) -> None:
        """Add a host to the workers."""
        rates = self._rates
        alone = host.slots / rates.unit_seconds(host)
        if host.name == self._master.name:
            self._own = alone
        else:
            link = rates.link_rate(self._master, host)
            rate, most = self._sites.get(host.site, (0.0, 0.0))
            alone = min(alone, link)
            self._sites[host.site] = rate + alone, max(most, link)
        self._alone[host.name] = alone

    def offer(self, host: Host, extra: float) -> None:
        """Add a host to the workers if it raises the rate by more than a fraction `extra`."""
        rate, site, own = self.rate, self._sites.get(host.site, (0.0, 0.0)), self._own
        self.add(host)
        if self.rate <= rate * (1 + extra):
            self._sites[host.site], self._own = site, own
            del self._alone[host.name]

    @property
    def _carried(self) -> float:
        """Units a second of the other workers, within the limits of the links."""
        far = sum(min(rate, most) for rate, most in self._sites.values())
        return min(far, max((most for _, most in self._sites.values()), default=0.0))

    @property
    def rate(self) -> float:
        """Units a second of all workers."""
        far, service = self._carried, self._service
        # The worker on the master's host has `own` less the part that the master's service takes of the host.
        slots = self._master.slots
        both = (far + self._own) / (1.0 + service * self._own / slots) if self._own else far
        return min(max(far, both), 1.0 / service if service else inf)

    def choice(self) -> MasterChoice:
        """Return the workers chosen so far, with their rates."""
        rate = self.rate
        if self._service and rate >= (1 - MIN_GAIN) / self._service:
            bound: Bound = "master"
        else:
            bound = "links" if self._saturated else "workers"
        come = {name: alone * self._carried_part(name) for name, alone in self._alone.items()}
        all_ = sum(come.values()) or 1.0
        shares = {name: rate * each / all_ for name, each in come.items()}
        return MasterChoice(self._master.name, shares, rate, bound)

    def _carried_part(self, name: str) -> float:
        """Return the fraction of a worker's own rate that the link to its site transfers."""
        if name == self._master.name:
            return 1.0
        rate, most = self._sites[self._rates.conditions.hosts[name].site]
        return min(1.0, most / rate)

    @property
    def _saturated(self) -> bool:
        """Whether any link is at its limit."""
        full = any(
            most < inf and rate >= (1 - MIN_GAIN) * most for rate, most in self._sites.values()
        )
        return full or self._carried < (1 - MIN_GAIN) * sum(
            rate for rate, _ in self._sites.values()
        )


def _over(bandwidth: float, size: float) -> float:
    return bandwidth / size if size else inf
