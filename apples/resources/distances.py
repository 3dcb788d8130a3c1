"""Relative cost of a byte between two hosts, for the placement of tasks by communication.

`host_distances` makes the table from hosts and their links. A machine, a site and the links between sites are
three levels; a link from a user or a measurement takes precedence over its level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Protocol, TypeVar


class Located(Protocol):
    """A host. Ranks load this file, so it does not import `apples.resources.Host`, which loads pydantic."""

    @property
    def name(self) -> str:
        """Its name in the host list."""

    @property
    def site(self) -> str:
        """Name of the host's site."""

    @property
    def reached_at(self) -> str:
        """Address of the host; hosts that are parts of one machine have equal addresses."""


class TimedLink(Protocol):
    """A link between two hosts, such as `apples.resources.Link`."""

    @property
    def assumed(self) -> bool:
        """Whether it is neither written by a user nor measured."""

    def seconds(self, size: float, /) -> float:
        """Return the seconds of a message of `size` bytes."""


H = TypeVar("H", bound=Located)

HostDistances = Mapping[str, Mapping[str, float]]
"""Host -> other host -> cost of a byte between them, relative to the nearest two hosts (1)."""

NEAR = 0.05
"""Cost of a byte inside a machine, relative to the nearest two machines (1)."""

MESSAGE = 1 << 16
"""Bytes of the message that is compared: large enough that latency counts without dominating."""
SITE = 10.0
"""Distance of hosts of two sites, relative to hosts of one site, if no link is written or measured."""
DIGITS = 4


def tells(distances: HostDistances) -> bool:
    """Whether the distances differ, so that a placement can use them."""
    return len({far for row in distances.values() for far in row.values()}) > 1


def between(places: Sequence[str], distances: HostDistances) -> list[list[float]]:
    """Return the distances between places, each on the host of that name, as `PlacementProblem` needs them.

    The diagonal is 0. Hosts without a known distance are as far apart as the nearest two hosts.

    Examples
    --------
    >>> between(["a", "a", "b", "c"], {"a": {"b": 4.0}, "b": {"a": 4.0}})[0]
    [0.0, 0.05, 4.0, 1.0]
    """
    return [
        [
            0.0 if i == j else NEAR if one == other else distances.get(one, {}).get(other, 1.0)
            for j, other in enumerate(places)
        ]
        for i, one in enumerate(places)
    ]


def host_distances(
    hosts: Sequence[H], link: Callable[[H, H], TimedLink]
) -> dict[str, dict[str, float]]:
    """Return the distance of each pair of hosts, as far as their links are known.

    Parameters
    ----------
    link
        Returns the link from one host to another: written, measured or forecast. An assumed link is ignored:
        hosts of one site then have the largest known distance inside a site, hosts of two sites at least `SITE`
        times it.

    Examples
    --------
    >>> from apples.resources import Host, Link
    >>> a, b, c = Host("a", site="east"), Host("b", site="east"), Host("c", site="west")
    >>> host_distances([a, b, c], lambda one, other: Link(1e-3, 1e7, assumed=True))["a"]
    {'b': 1.0, 'c': 10.0}
    """
    known: dict[tuple[str, str], float] = {}
    pairs = list(combinations(hosts, 2))
    for one, other in pairs:
        there, back = link(one, other), link(other, one)
        if _apart(one, other) and not (there.assumed and back.assumed):
            known[one.name, other.name] = there.seconds(MESSAGE) + back.seconds(MESSAGE)
    sites = {host.name: host.site for host in hosts}
    inside = [far for (one, other), far in known.items() if sites[one] == sites[other]]
    outside = [far for (one, other), far in known.items() if sites[one] != sites[other]]
    same_site = max(inside, default=min(outside, default=SITE) / SITE)
    two_sites = max([*outside, SITE * same_site])
    found: dict[str, dict[str, float]] = {host.name: {} for host in hosts}
    for one, other in pairs:
        assumed = same_site if one.site == other.site else two_sites
        found[one.name][other.name] = found[other.name][one.name] = (
            known.get((one.name, other.name), assumed) if _apart(one, other) else 0.0
        )
    return _relative(found)


def _apart(one: Located, other: Located) -> bool:
    """Whether two hosts of a list are on different machines: parts of one machine have the same address."""
    return one.reached_at != other.reached_at


def _relative(seconds: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return distances relative to the least; hosts inside a machine, so far 0, get `NEAR`."""
    nearest = min((far for row in seconds.values() for far in row.values() if far), default=1.0)
    return {
        one: {
            other: float(f"{far / nearest:.{DIGITS}g}") if far else NEAR
            for other, far in row.items()
        }
        for one, row in seconds.items()
    }
