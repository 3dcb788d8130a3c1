"""Links measured by runs: a latency and a bandwidth for each pair of hosts, and for each pair of sites.

A program that reports its borders (docs/reference/protocol.md) measures the duration of a transfer once both
ends are ready, and the latency of a small message. A measured link holds for its pair of hosts. A link between
two sites also holds for other pairs of hosts on these two sites, in each host list that has one of the hosts
which measured it. It holds for no other link.

A measured link competes with the forecast of that link, as every correction does (`corrections`). Between runs
only forecasts show a change, so the forecast at the time of the measurement is stored. If the forecast has
since changed by more than its noise, the measured link changes with it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated

from pydantic import Field

from apples.agent.models.corrections import (
    FIRST_SPREAD,
    KINDS,
    LINK,
    UNTESTED,
    Evidence,
    NotNegative,
    stepped,
)
from apples.resources import LEAST, MOST, Host, Link

NOISE = 1.3
"""A change of a forecast by less than this factor is noise."""
LATENCY_SHARE = 0.9
"""Latency is at most this part of a transfer: a small message may have met a host that was not running."""
MAX_LINKS = 1000
"""Stored pairs; the pairs with the oldest last run are dropped first."""

Pair = tuple[str, str]
Positive = Annotated[float, Field(allow_inf_nan=False, ge=LEAST, le=MOST)]


def pair_of(one: str, other: str) -> Pair:
    """Return two names as a key without direction: a border is crossed both ways at once."""
    return (one, other) if one <= other else (other, one)


def crossings(resources: Sequence[Host]) -> Counter[Pair]:
    """Return the number of borders of a set that cross, and share, the link between each two sites.

    Examples
    --------
    >>> a, b, c = Host("a", site="east"), Host("b", site="west"), Host("c", site="east")
    >>> crossings([a, b, c])
    Counter({('east', 'west'): 2})
    """
    return Counter(pair_of(a.site, b.site) for a, b in pairwise(resources) if a.site != b.site)


@dataclass(frozen=True, slots=True)
class MeasuredBorder:
    """The measurements of one run at the border between two hosts.

    Attributes
    ----------
    hosts
        The two hosts. seconds Seconds of one transfer, both ways at once.
    latency
        Seconds of a small message; None if the program does not report it.
    size
        Bytes on the link during the transfer, one way: those of all borders that shared the link.
    forecast
        Forecast of the link at that time.
    modelled
        Seconds of the border by the model without measured links.
    """

    hosts: tuple[Host, Host]
    seconds: float
    latency: float | None
    size: float
    forecast: Link
    modelled: float = 0.0


@dataclass(frozen=True, slots=True)
class LearnedLink:
    """Moving averages of a link measured by runs, and its forecast at the time of the last run.

    Attributes
    ----------
    between
        The two hosts, by `Host.identity`, or the two sites.
    spread
        Standard deviation, from run to run, of the logarithm of the seconds of a border.

    Examples
    --------
    >>> from apples.agent.models.corrections import PROVEN
    >>> link = LearnedLink(("a", "b"), 1e-4, 4e6, 1e-3, 8e6, spread=0.0, evidence=PROVEN)
    >>> near, far = (round(link.under(Link(1e-3, rate)).bandwidth / 1e5) for rate in (9e6, 2e5))
    >>> near, far
    (40, 1)
    """

    between: Pair
    latency: Positive
    bandwidth: Positive
    forecast_latency: NotNegative
    forecast_bandwidth: Positive
    spread: NotNegative = FIRST_SPREAD
    evidence: Evidence = UNTESTED

    @property
    def factor(self) -> float:
        """Forecast over used bandwidth, with the forecast of the last run."""
        forecast = Link(self.forecast_latency, self.forecast_bandwidth)
        return forecast.bandwidth / self.under(forecast).bandwidth

    def under(self, forecast: Link) -> Link:
        """Return the link under a forecast: it follows the forecast's changes, shrunk towards it."""
        return Link(
            self._shrunk(
                forecast.latency, self.latency * _moved(forecast.latency, self.forecast_latency)
            ),
            self._shrunk(
                forecast.bandwidth,
                self.bandwidth * _moved(forecast.bandwidth, self.forecast_bandwidth),
            ),
        )

    def _shrunk(self, forecast: float, measured: float) -> float:
        if forecast <= 0:
            return measured
        kind, value = KINDS[LINK], math.log(measured / forecast)
        part = self.evidence.shrinkage(value, self.spread, kind.half_life)
        return forecast * math.exp(kind.limited(part * value))

    def seconds(self, size: float, messages: float, forecast: Link) -> float:
        """Return the seconds of a border of this size under a forecast."""
        link = self.under(forecast)
        return messages * link.latency + size / link.bandwidth

    def after(
        self, border: MeasuredBorder, messages: float, now: float, hosts: Sequence[str] = ()
    ) -> LearnedLink:
        """Return the link after another run; its prediction is tested on the run before it learns from it."""
        size, forecast = border.size, border.forecast
        errors = None
        if border.modelled > 0:
            known = self.seconds(size, messages, forecast)
            errors = (
                abs(math.log(border.seconds / known)),
                abs(math.log(border.seconds / border.modelled)),
            )
        newer = LearnedLink.measured(border, messages, now, self.between)
        latency = self.latency * _moved(forecast.latency, self.forecast_latency)
        bandwidth = self.bandwidth * _moved(forecast.bandwidth, self.forecast_bandwidth)
        weight = self.evidence.weight
        slower, spread = stepped(0.0, self.spread, math.log(bandwidth / newer.bandwidth), weight)
        later, _ = stepped(0.0, self.spread, math.log(newer.latency / latency), weight)
        return replace(
            newer,
            latency=latency * math.exp(later),
            bandwidth=bandwidth / math.exp(slower),
            spread=spread,
            evidence=self.evidence.after(now, errors, hosts),
        )

    @classmethod
    def measured(
        cls,
        border: MeasuredBorder,
        messages: float,
        now: float,
        between: Pair,
        hosts: Sequence[str] = (),
    ) -> LearnedLink:
        """Return the link that one border measured: latency of the small message, bandwidth of the rest.

        Parameters
        ----------
        hosts
            For a link between sites: identities of the hosts of the border.
        """
        forecast = border.forecast
        latency = forecast.latency if border.latency is None else border.latency
        latency = min(latency, LATENCY_SHARE * border.seconds / messages)
        bandwidth = border.size / (border.seconds - messages * latency)
        return cls(
            between,
            max(latency, LEAST),
            min(max(bandwidth, LEAST), MOST),
            forecast.latency,
            forecast.bandwidth,
            evidence=UNTESTED.after(now, None, hosts),
        )


@dataclass(frozen=True)
class LearnedLinks:
    """The links measured by runs: by the hosts' identities, and by their sites for other pairs of hosts.

    False while no link is in use: borders are then the paper's sums.
    """

    hosts: Mapping[Pair, LearnedLink] = field(default_factory=dict)
    sites: Mapping[Pair, LearnedLink] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(link.evidence.helps for link in (*self.hosts.values(), *self.sites.values()))

    def known(self, a: Host, b: Host) -> LearnedLink | None:
        """Return the measured link of these hosts, used or not; else that of their two sites, else None."""
        own = self.hosts.get(pair_of(a.identity, b.identity))
        if own is not None and own.evidence.decided:
            return own
        return (self.sites.get(pair_of(a.site, b.site)) if a.site != b.site else None) or own

    def of(self, a: Host, b: Host) -> LearnedLink | None:
        """Return the measured link between these hosts; None while the forecast predicts better."""
        link = self.known(a, b)
        return link if link is not None and link.evidence.helps else None

    @property
    def supposed(self) -> LearnedLinks:
        """These links, with undecided links also in use."""
        return LearnedLinks(_supposed(self.hosts), _supposed(self.sites))

    def among(self, listed: Collection[str]) -> LearnedLinks:
        """Return these links, without links between sites that no host of the list measured."""
        known = {
            pair: link for pair, link in self.sites.items() if link.evidence.shares_a_host(listed)
        }
        return LearnedLinks(self.hosts, known)

    def taught(
        self,
        borders: Iterable[MeasuredBorder],
        messages: float,
        now: float,
        listed: Collection[str] = (),
    ) -> LearnedLinks:
        """Return the links after a run.

        Of several borders between two sites, the median counts. If no host of the list measured a stored link
        between two sites, it belongs to other sites with these names, and the link begins anew.

        Parameters
        ----------
        listed
            Identities of the hosts of the list; the hosts of the borders are added.
        """
        borders = list(borders)
        listed = {*listed, *(host.identity for border in borders for host in border.hosts)}
        hosts, sites = dict(self.hosts), dict(self.sites)
        crossed: dict[Pair, list[MeasuredBorder]] = {}
        for border in borders:
            a, b = border.hosts
            _learn(hosts, pair_of(a.identity, b.identity), border, messages, now)
            if a.site != b.site:
                crossed.setdefault(pair_of(a.site, b.site), []).append(border)
        for pair, same in crossed.items():
            middle = sorted(same, key=lambda border: border.seconds)[len(same) // 2]
            if pair in sites and not sites[pair].evidence.shares_a_host(listed):
                del sites[pair]
            taught_by = [host.identity for host in middle.hosts]
            _learn(sites, pair, middle, messages, now, taught_by)
        return LearnedLinks(_newest(hosts), _newest(sites))


def _learn(
    known: dict[Pair, LearnedLink],
    pair: Pair,
    border: MeasuredBorder,
    messages: float,
    now: float,
    hosts: Sequence[str] = (),
) -> None:
    """Update the link of a pair from one border and make the pair the newest."""
    before = known.pop(pair, None)
    known[pair] = (
        before.after(border, messages, now, hosts)
        if before
        else LearnedLink.measured(border, messages, now, pair, hosts)
    )


def _supposed(known: Mapping[Pair, LearnedLink]) -> dict[Pair, LearnedLink]:
    return {pair: replace(link, evidence=link.evidence.supposed) for pair, link in known.items()}


def _newest(known: dict[Pair, LearnedLink]) -> dict[Pair, LearnedLink]:
    return dict(list(known.items())[-MAX_LINKS:])


def _moved(now: float, then: float) -> float:
    """Return the factor by which a forecast changed; 1 within its noise, or if it was 0."""
    if now <= 0 or then <= 0:
        return 1.0
    return now / then if not 1 / NOISE < now / then < NOISE else 1.0


NO_LINKS = LearnedLinks()
"""The links before the first run that measured its borders."""
