"""Choose the hosts that a job gets or keeps: of one site if that has enough, the fastest first.

A job with known messages gets hosts that are near each other instead, if that reduces its communication.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from apples.resources import HostList
from apples.resources.distances import between, host_distances

WEIGHED = 64
"""Candidates for a set of near hosts: those chosen without messages, then the fastest."""
WORTH = 0.02
"""Least relative saving of bytes times distance for which other hosts are chosen."""
LITTLE = 0.01
"""Weight of the slowest host relative to all messages: speed decides between equally near sets."""
# Few starts, because this runs in the scheduler's deciding thread.
STARTS = 4


@dataclass(frozen=True, slots=True)
class HostPreference:
    """Chooses hosts for strip applications by the host list, with the same loads for all jobs.

    The speed of a strip application is the sum of its hosts' speeds, and each iteration waits for the links
    between them. So hosts of one site come first, even if others are faster. Of the sites with enough hosts, the
    site with the fastest set wins; if none has enough, as few sites as possible are used.

    Attributes
    ----------
    places
        Host -> its site, and its speed in points a second.
    own
        Host -> its speed as measured by one job, in that job's units; used if all candidates are measured.
    listed
        The hosts with their links; None: their distances are not known.
    messages
        Square matrix: amount that each host of one job sends each other host; empty: not known.

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
    listed: HostList | None = None
    messages: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def of(cls, hosts: HostList) -> HostPreference:
        """Return the preference among hosts of a list; a host without a speed counts as the slowest."""
        dedicated = {one.name: one.seconds_per_point for one in hosts}
        slowest = max((each for each in dedicated.values() if each), default=1.0)
        places = {
            one.name: (one.site, one.slots * one.cpu / (dedicated[one.name] or slowest)) for one in hosts
        }  # fmt: skip
        return cls(places, listed=hosts)

    def under(self, shares: Mapping[str, float]) -> HostPreference:
        """Return the preference if hosts offer only these parts of their processors.

        Examples
        --------
        >>> one = HostPreference({"a": ("x", 1.0), "b": ("x", 1.5)})
        >>> one.best("ab", 1), one.under({"b": 0.5}).best("ab", 1)
        (('b',), ('a',))
        """
        places = {
            host: (site, speed * shares.get(host, 1.0)) for host, (site, speed) in self.places.items()
        }  # fmt: skip
        return replace(self, places=places, own={})

    def measured(self, speeds: Mapping[str, float]) -> HostPreference:
        """Return the preference with the speeds that a job has measured; they apply only among measured hosts."""
        known = {host: speed for host, speed in speeds.items() if host in self.places}
        return replace(self, own=known)

    def alike(self, hosts: Collection[str]) -> bool:
        """Whether the known properties of these hosts are equal, so that a job has no reason to prefer any.

        Examples
        --------
        >>> one = HostPreference({"a": ("x", 1.0), "b": ("x", 1.0), "c": ("y", 1.0)})
        >>> one.alike("ab"), one.under({"b": 0.5}).alike("ab"), one.alike("abc")
        (True, False, False)
        """
        if self.listed is None:
            return len({self.places.get(host) for host in hosts}) < 2
        if not {*self.listed.network.named()}.isdisjoint(hosts):
            return False
        known = [self.listed[host] for host in hosts if host in self.listed]
        facts = {
            (
                self.places.get(one.name), one.slots, one.seconds_per_point, one.free_memory, one.platform,
                one.cost_per_second, one.start_seconds, one.queue_seconds,
            )
            for one in known
        }  # fmt: skip
        return len(known) == len(hosts) and len(facts) < 2

    def talking(self, messages: tuple[tuple[int, ...], ...]) -> HostPreference:
        """Return the preference of a job with these messages between its hosts."""
        return replace(self, messages=messages)

    def best(
        self, hosts: Iterable[str], count: int, beside: Collection[str] = ()
    ) -> tuple[str, ...]:
        """Return the best `count` of the hosts, the best first.

        Parameters
        ----------
        beside
            Hosts that the job has and keeps: their sites come first.
        """
        hosts = list(hosts)
        if self.own and not all(host in self.own for host in hosts):
            return replace(self, own={}).best(hosts, count, beside)
        chosen = self._fastest(hosts, count, beside)
        if beside or self.listed is None or not 1 < count == len(self.messages):
            return chosen
        return self._nearest(hosts, chosen)

    def _fastest(
        self, hosts: Sequence[str], count: int, beside: Collection[str]
    ) -> tuple[str, ...]:
        """Return `count` hosts of as few sites as possible, the fastest first."""
        sites: dict[str, list[str]] = {}
        for host in sorted(hosts, key=self._speed, reverse=True):
            sites.setdefault(self._site(host), []).append(host)
        own = {self._site(host) for host in beside}
        chosen: list[str] = []
        while sites and (more := count - len(chosen)) > 0:
            site = max(sites, key=lambda one: self._worth(sites[one], more, one in own))
            chosen += sites.pop(site)[:more]
        return tuple(chosen)

    def _nearest(self, hosts: Sequence[str], chosen: tuple[str, ...]) -> tuple[str, ...]:
        """Return the set with the least bytes times distance; `chosen` unless that saves at least `WORTH`."""
        from apples.topology.mapping import PlacementProblem, place  # noqa: PLC0415 - loads numpy

        assert self.listed is not None  # noqa: S101 - for the type checker: `best` looks
        known = [host for host in hosts if host in self.listed]
        others = sorted(set(known) - set(chosen), key=lambda host: (-self._speed(host), host))
        names = [*chosen, *others][:WEIGHED]
        if not (others and set(chosen) <= set(known)):
            return chosen
        apart = host_distances([self.listed[host] for host in names], self.listed.network.link)
        fastest = max(map(self._speed, names))
        speeds = [max(self._speed(host) / fastest, LITTLE) for host in names]
        told = sum(map(sum, self.messages))

        def problem(room: Sequence[int]) -> PlacementProblem:
            loads, weight = (1.0,) * len(chosen), LITTLE * told * min(speeds)
            return PlacementProblem(
                self.messages, between(names, apart), loads, speeds, weight, room
            )

        first = problem([int(number < len(chosen)) for number in range(len(names))])
        present = place(first, starts=STARTS)
        every = problem((1,) * len(names))
        found = place(every, begin=present, starts=STARTS)
        if not every.talk(found) < (1 - WORTH) * every.talk(present):
            return chosen
        return tuple(names[number] for number in sorted(found))

    def said(self, hosts: Collection[str]) -> str:
        """Return the chosen hosts as text, with their sites if the host list has all of them."""
        sites = sorted({self._site(host) for host in hosts})
        if "" in sites:
            return ", ".join(hosts)
        where = f"site {sites[0]}" if len(sites) == 1 else f"sites {', '.join(sites)}"
        return f"{', '.join(hosts)} of {where}"

    def _worth(
        self, hosts: Collection[str], count: int, is_own: bool
    ) -> tuple[bool, bool, int, float]:
        """Return the sort key of a site: the job's own site, enough hosts, most hosts, greatest speed."""
        taken = list(hosts)[:count]
        speed = sum(map(self._speed, taken))
        return is_own, len(taken) == count, len(taken), speed

    def _site(self, host: str) -> str:
        return self.places.get(host, ("", 0.0))[0]

    def _speed(self, host: str) -> float:
        return self.own.get(host, self.places.get(host, ("", 0.0))[1])
