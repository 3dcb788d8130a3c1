"""`Network`: the link between any two hosts, from the user's entries for hosts, sites and defaults.

Its size does not grow with the number of pairs: links named by a user are stored as written, the others are
derived from the pair of sites.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from apples.resources.host import Host
from apples.ui.units import counted, in_one_line


@dataclass(frozen=True, slots=True)
class Link:
    """One direction between two hosts: `latency` in seconds, `bandwidth` in bytes per second."""

    latency: float
    bandwidth: float
    assumed: bool = False

    def seconds(self, size: float) -> float:
        """Return the seconds of a message of `size` bytes."""
        return self.latency + size / self.bandwidth


NEVER_MEASURED = Link(latency=1e-3, bandwidth=12.5e6, assumed=True)
"""The link of a host list without any link: 1 ms and 100 Mbit/s, a slow office network."""


def _worst(links: Iterable[Link]) -> Link | None:
    """Return the worst latency and the worst bandwidth of some links, as one assumed link."""
    known = list(links)
    if not known:
        return None
    return Link(max(x.latency for x in known), min(x.bandwidth for x in known), assumed=True)


@dataclass(frozen=True)
class Network:
    """Directed links by name. The first match counts: pair of hosts, host and site, pair of sites.

    A pair without an entry uses `default`. Without a default it uses the worst written link of its site pair,
    else the worst written link of all, marked as assumed.
    """

    links: dict[tuple[str, str], Link] = field(default_factory=dict)
    default: Link | None = None
    sites: dict[str, str] = field(default_factory=dict)
    assumed_links: dict[tuple[str, str], Link] = field(
        default_factory=dict, repr=False, compare=False
    )

    def __repr__(self) -> str:
        """Return the number of links."""
        default = f", else {self.default}" if self.default else ""
        return in_one_line(self, f"{counted(len(self.links), 'directed link')}{default}")

    def link(self, source: Host, target: Host) -> Link:
        """Return the link of a message from `source` to `target`."""
        return self.host_link(source, target) or self.site_link(source.site, target.site)

    def host_link(self, source: Host, target: Host) -> Link | None:
        """Return the written link of these two hosts, or of one of them and the other's site."""
        links = self.links
        return (
            links.get((source.name, target.name))
            or links.get((source.name, target.site))
            or links.get((source.site, target.name))
        )

    def site_link(self, source: str, target: str) -> Link:
        """Return the link between two sites, for hosts without their own entry."""
        known = self.links.get((source, target)) or self.default
        return known or self._assume(source, target)

    def named(self) -> Iterator[str]:
        """Yield the names that written links use."""
        for pair in self.links:
            yield from pair

    def _assume(self, source: str, target: str) -> Link:
        if not self.assumed_links:
            self.assumed_links.update(self._worst_of_site_pairs())
        return (
            self.assumed_links.get((source, target))
            or self.assumed_links.get(("", ""))
            or NEVER_MEASURED
        )

    def _worst_of_site_pairs(self) -> dict[tuple[str, str], Link]:
        by_sites: dict[tuple[str, str], list[Link]] = {}
        for (source, target), link in self.links.items():
            pair = (self.sites.get(source, source), self.sites.get(target, target))
            by_sites.setdefault(pair, []).append(link)
        worst = {pair: _worst(links) or NEVER_MEASURED for pair, links in by_sites.items()}
        worst[("", "")] = _worst(self.links.values()) or NEVER_MEASURED
        return worst
