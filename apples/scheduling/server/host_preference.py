"""Which of some hosts a job gets and gives up: those of one site where it suffices, the fastest first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from apples.resources import HostList


@dataclass(frozen=True, slots=True)
class HostPreference:
    """Chooses hosts as the strips of an application want them, by what a host list says: one weather for all jobs.

    A strip application is as fast as the sum of its hosts' speeds, and waits for the links between them at each
    iteration. So a set within one site comes first, however fast others are; among sites that suffice the one
    whose hosts are fastest together; and where none suffices, as few sites as possible.

    Attributes
    ----------
    places
        Host -> its site, and its speed in points a second.
    own
        Host -> its speed as one job has measured it, by which that job chooses among these hosts; in other units.

    Examples
    --------
    >>> one = HostPreference({"a": ("x", 1.0), "b": ("y", 3.0), "c": ("x", 2.0), "d": ("y", 3.0)})
    >>> one.best("abcd", 1), one.best("abcd", 2), one.best("abcd", 3), one.best("acd", 2)
    (('b',), ('b', 'd'), ('b', 'd', 'c'), ('c', 'a'))
    >>> one.best("bcd", 1, beside="a")
    ('c',)
    """

    places: dict[str, tuple[str, float]]
    own: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, hosts: HostList) -> HostPreference:
        """Return the preference among hosts of a list; one that says no speed counts as the slowest."""
        dedicated = {one.name: one.seconds_per_point for one in hosts}
        slowest = max((each for each in dedicated.values() if each), default=1.0)
        return cls({
            one.name: (one.site, one.slots * one.cpu / (dedicated[one.name] or slowest)) for one in hosts
        })  # fmt: skip

    def under(self, shares: Mapping[str, float]) -> HostPreference:
        """Return the preference while others leave these parts of some hosts' processors.

        Examples
        --------
        >>> one = HostPreference({"a": ("x", 1.0), "b": ("x", 1.5)})
        >>> one.best("ab", 1), one.under({"b": 0.5}).best("ab", 1)
        (('b',), ('a',))
        """
        return HostPreference({
            host: (site, speed * shares.get(host, 1.0)) for host, (site, speed) in self.places.items()
        })  # fmt: skip

    def measured(self, speeds: Mapping[str, float]) -> HostPreference:
        """Return the preference among those hosts whose speeds a job has measured; among others as it is."""
        known = {host: speed for host, speed in speeds.items() if host in self.places}
        return replace(self, own=known)

    def best(
        self, hosts: Iterable[str], count: int, beside: Collection[str] = ()
    ) -> tuple[str, ...]:
        """Return so many of some hosts, the best first.

        Parameters
        ----------
        beside
            Hosts that the job has and keeps: its sites come first.
        """
        hosts = list(hosts)
        if self.own and not all(host in self.own for host in hosts):
            return HostPreference(self.places).best(hosts, count, beside)
        sites: dict[str, list[str]] = {}
        for host in sorted(hosts, key=self._speed, reverse=True):
            sites.setdefault(self._site(host), []).append(host)
        own = {self._site(host) for host in beside}
        chosen: list[str] = []
        while sites and (more := count - len(chosen)) > 0:
            site = max(sites, key=lambda one: self._worth(sites[one], more, one in own))
            chosen += sites.pop(site)[:more]
        return tuple(chosen)

    def said(self, hosts: Collection[str]) -> str:
        """Return in words what was chosen."""
        sites = sorted({self._site(host) for host in hosts})
        where = f"site {sites[0]}" if len(sites) == 1 else f"sites {', '.join(sites)}"
        return f"{', '.join(hosts)} of {where}"

    def _worth(
        self, hosts: Collection[str], count: int, is_own: bool
    ) -> tuple[bool, bool, int, float]:
        """Return by what a site is preferred: the job's own, one that suffices, or has most, and the fastest."""
        taken = list(hosts)[:count]
        speed = sum(map(self._speed, taken))
        return is_own, len(taken) == count, len(taken), speed

    def _site(self, host: str) -> str:
        return self.places.get(host, ("", 0.0))[0]

    def _speed(self, host: str) -> float:
        return self.own.get(host, self.places.get(host, ("", 0.0))[1])
