"""What runs measured of links: seconds of a border between two hosts, apart from what anybody waited for.

A program that reports its borders (docs/reference/protocol.md) tells how long a transfer takes from the moment
both ends are there, and the latency of a small message. That makes a latency and a bandwidth as the application
itself meets them, remembered for the pair of hosts, and for the pair of their sites: sets that never ran are
planned with what others taught of their links.

A link changes, and only forecasts know by how much meanwhile: what the forecast was while the runs measured is
remembered too, and where it has moved by more than its noise, what was measured moves with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from apples.agent.models.corrections import EWMA_WEIGHT, ewma_spread, is_positive, limited
from apples.resources import LEAST, Host, Link

NOISE = 1.3
"""A forecast that moved by less than this factor is the forecast it was."""
LATENCY_SHARE = 0.9
"""Latency is at most this part of a transfer: a small message may have met a host that was not running."""
MOST_LINKS = 1000
"""So many pairs are remembered; those that ran longest ago are forgotten first."""

Pair = tuple[str, str]


def pair_of(one: str, other: str) -> Pair:
    """Return two names as a key that knows no direction: a border is crossed both ways at once."""
    return (one, other) if one <= other else (other, one)


def crossings(resources: Sequence[Host]) -> Counter[Pair]:
    """Return how many borders of a set cross the link between each two sites: they share it.

    Examples
    --------
    >>> a, b, c = Host("a", site="east"), Host("b", site="west"), Host("c", site="east")
    >>> crossings([a, b, c])
    Counter({('east', 'west'): 2})
    """
    return Counter(pair_of(a.site, b.site) for a, b in pairwise(resources) if a.site != b.site)


@dataclass(frozen=True, slots=True)
class MeasuredBorder:
    """What one run measured of the border between two hosts.

    Attributes
    ----------
    hosts
        The two.
    seconds
        Of one transfer, both ways at once.
    latency
        Seconds of a small message; None where the program does not say.
    size
        Bytes, one way, that the link carried for it: those of all borders that shared it.
    forecast
        The link as it was forecast then.
    """

    hosts: tuple[Host, Host]
    seconds: float
    latency: float | None
    size: float
    forecast: Link


@dataclass(frozen=True, slots=True)
class LearnedLink:
    """A link as runs measured it, moving averages; and what was forecast of it meanwhile.

    Examples
    --------
    >>> link = LearnedLink(1e-4, 4e6, Link(1e-3, 8e6))
    >>> link.under(Link(1e-3, 9e6)).bandwidth, link.under(Link(1e-3, 2e5)).bandwidth
    (4000000.0, 100000.0)
    """

    latency: float
    bandwidth: float
    forecast: Link
    spread: float = 0.0
    runs: int = 1

    def under(self, forecast: Link) -> Link:
        """Return the link under a forecast: moved with it where that has moved."""
        return Link(
            self.latency * _moved(forecast.latency, self.forecast.latency),
            self.bandwidth * _moved(forecast.bandwidth, self.forecast.bandwidth),
        )

    def taught(self, newer: LearnedLink) -> LearnedLink:
        """Return it after another run: the first few count alike, from then on what went before counts less.

        An average that its first run sets, and later ones only move, keeps a first run that was disturbed.
        """
        known = self.under(newer.forecast)
        seconds = newer.bandwidth / known.bandwidth
        # The first three runs count alike: in a plain moving average the first one, often slow,
        # keeps half of the weight.
        weight = max(EWMA_WEIGHT, 1 / (self.runs + 1))
        return LearnedLink(
            _step(known.latency, newer.latency, weight),
            _step(known.bandwidth, newer.bandwidth, weight),
            newer.forecast,
            ewma_spread(self.spread, seconds, first=False),
            self.runs + 1,
        )

    @classmethod
    def measured(cls, border: MeasuredBorder, messages: float) -> LearnedLink:
        """Return what one border taught: latency from the small message, bandwidth from the rest."""
        latency = border.forecast.latency if border.latency is None else border.latency
        latency = min(latency, LATENCY_SHARE * border.seconds / messages)
        bandwidth = border.size / (border.seconds - messages * latency)
        return cls(
            max(latency, LEAST), bandwidth, border.forecast, ewma_spread(None, 1.0, first=True)
        )

    @classmethod
    def recalled(cls, entry: Any) -> LearnedLink | None:
        """Return what a document holds, None where that makes no sense."""
        known: dict[str, Any] = entry if isinstance(entry, dict) else {}
        if not all(
            is_positive(known.get(x)) for x in ("latency", "bandwidth", "forecast_bandwidth")
        ):
            return None
        forecast = Link(
            _or_zero(known.get("forecast_latency")), float(known["forecast_bandwidth"])
        )
        return cls(
            float(known["latency"]),
            float(known["bandwidth"]),
            forecast,
            _or_zero(known.get("spread")),
            max(1, int(_or_zero(known.get("runs")))),
        )

    def stored(self) -> dict[str, float]:
        """Return it for a document."""
        return {
            "latency": self.latency,
            "bandwidth": self.bandwidth,
            "forecast_latency": self.forecast.latency,
            "forecast_bandwidth": self.forecast.bandwidth,
            "spread": self.spread,
            "runs": self.runs,
        }


@dataclass(frozen=True)
class LearnedLinks:
    """The links that runs measured: by the hosts' identities, and by their sites for all others.

    Empty: no run has measured any, and borders are what the paper says they are.
    """

    hosts: Mapping[Pair, LearnedLink] = field(default_factory=dict)
    sites: Mapping[Pair, LearnedLink] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.hosts or self.sites)

    def of(self, a: Host, b: Host) -> LearnedLink | None:
        """Return what runs measured between these hosts, else between their sites, else None."""
        own = self.hosts.get(pair_of(a.identity, b.identity))
        return own or self.sites.get(pair_of(a.site, b.site))

    def taught(self, borders: Iterable[MeasuredBorder], messages: float) -> LearnedLinks:
        """Return them after a run."""
        hosts, sites = dict(self.hosts), dict(self.sites)
        for border in borders:
            a, b = border.hosts
            newer = LearnedLink.measured(border, messages)
            for known, key in (
                (hosts, pair_of(a.identity, b.identity)),
                (sites, pair_of(a.site, b.site)),
            ):
                before = known.pop(key, None)
                known[key] = before.taught(newer) if before else newer
        return LearnedLinks(_newest(hosts), _newest(sites))

    @classmethod
    def recalled(cls, stored: Any) -> LearnedLinks:
        """Return what a document holds; entries that make no sense are left out."""
        document = stored if isinstance(stored, dict) else {}
        return cls(_recalled(document.get("hosts")), _recalled(document.get("sites")))

    def stored(self) -> dict[str, list[dict[str, Any]]]:
        """Return them for a document."""
        return {
            name: [{"between": list(pair), **link.stored()} for pair, link in known.items()]
            for name, known in (("hosts", self.hosts), ("sites", self.sites))
        }


def _recalled(entries: Any) -> dict[Pair, LearnedLink]:
    found: dict[Pair, LearnedLink] = {}
    for entry in entries[-MOST_LINKS:] if isinstance(entries, list) else ():
        between = entry.get("between") if isinstance(entry, dict) else None
        link = LearnedLink.recalled(entry)
        if link and isinstance(between, list) and [type(x) for x in between] == [str, str]:
            found[pair_of(*between)] = link
    return found


def _or_zero(value: Any) -> float:
    return float(value) if is_positive(value) else 0.0


def _newest(known: dict[Pair, LearnedLink]) -> dict[Pair, LearnedLink]:
    return dict(list(known.items())[-MOST_LINKS:])


def _moved(now: float, then: float) -> float:
    """Return by what factor a forecast moved; 1 where that is its noise, or there was nothing to move."""
    if now <= 0 or then <= 0:
        return 1.0
    return now / then if not 1 / NOISE < now / then < NOISE else 1.0


def _step(known: float, newer: float, weight: float) -> float:
    """Return a geometric moving average."""
    return float(known * limited(newer / known) ** weight)


NO_LINKS = LearnedLinks()
"""Before the first run that measured its borders."""
