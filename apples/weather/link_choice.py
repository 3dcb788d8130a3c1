"""Choice of the links to measure before a decision: the links that can change it.

A link is uncertain if it was never measured, or if its last measurement is older than the series has been stable.
Its values lie between two bounds. The plan at the optimistic bounds is at least as fast as any plan. If the
pessimistic bounds of its own links slow that plan by at most `TOLERANCE`, or by at most `WORTH_SECONDS` in the
whole run, no measurement can lead to a plan that is better by more, and none is made. Otherwise its links are
measured, and the plan is made again. This is lazy search: it evaluates only the edges of the best candidate path
(Dellin and Srinivasa 2016, LazySP).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from nws import Forecast, Measurement, Weather

TOLERANCE = 0.02
"""Relative change of the plan's iteration time; a measurement that could change less is not made."""
WORTH_SECONDS = 0.3
"""Time to measure and plan again; a measurement that could save less of the run is not made."""
STEADY = 0.25
"""A series is stable while its values differ from the last by at most this part of it."""
MIN_SECONDS, MAX_SECONDS = 60.0, 3600.0
"""Bounds of the time for which the last measurement of a link is valid."""
MIN_MEASUREMENTS, MIN_ERROR = 3, 0.05
"""Measurements before the error of a link's forecasts is used, and the smallest relative error used."""
MAX_SPREAD = 10.0
UNSEEN_SPREAD = 2.0
"""Assumed spread of a link around the measurement between other hosts of its two sites."""
REVERSE_SPREAD = 10.0
"""The same if only the other direction was measured: access lines send slower than they receive."""
MAX_ROUNDS = 4
"""Rounds of measuring for one decision; after them, the known links decide."""

Pair = tuple[str, str]
Propose = Callable[[Weather], "ProposedPlan | None"]


@dataclass(frozen=True, slots=True)
class ProposedPlan:
    """The plan that a blueprint would choose under a weather.

    Attributes
    ----------
    hosts
        The chosen hosts in strip order.
    seconds
        Returns the iteration time of this plan under a weather, in seconds.
    iterations
        Number of iterations of the run.
    """

    hosts: Sequence[str]
    seconds: Callable[[Weather], float]
    iterations: float = math.inf

    @property
    def links(self) -> set[Pair]:
        """The ordered pairs of strip neighbours."""
        neighbours = list(zip(self.hosts, self.hosts[1:], strict=False))
        return {*neighbours, *((b, a) for a, b in neighbours)}


@dataclass(frozen=True, slots=True)
class LinkBounds:
    """The bounds of a link: its forecast, and the factor by which it may be faster or slower.

    Attributes
    ----------
    latency, bandwidth
        Forecast in seconds and in bytes per second.
    spread
        The factor, at least 1.
    """

    latency: float
    bandwidth: float
    spread: float

    def optimistic(self) -> tuple[float, float]:
        """Return the lower bound of the latency and the upper bound of the bandwidth."""
        return self.latency / self.spread, self.bandwidth * self.spread

    def pessimistic(self) -> tuple[float, float]:
        """Return the upper bound of the latency and the lower bound of the bandwidth."""
        return self.latency * self.spread, self.bandwidth / self.spread


UNKNOWN = LinkBounds(1e-3, 3e7, 300.0)
"""A link without any measurement: 3 us to 0.3 s, 100 kB/s to 9 GB/s."""


def holds_for(series: Sequence[Measurement]) -> float:
    """Return the number of seconds for which the last measurement of a link is valid.

    This is the time for which the series has kept its value. A constant link is measured after one, two and four
    minutes, and in the end once an hour; a link that changed starts again at one minute. (HTTP caches use a tenth
    of the time since the last change, RFC 9111, section 4.2.2; they do not detect a stale answer.)

    Examples
    --------
    >>> from nws import SeriesName
    >>> name = SeriesName("bandwidthTcp", "ada", "bob")
    >>> holds_for([Measurement(name, t, v) for t, v in [(0.0, 9e6), (50.0, 6e6), (170.0, 6.1e6)]])
    120.0
    """
    last = series[-1]
    begin = last.time
    for one in reversed(series):
        if abs(one.value - last.value) > STEADY * last.value:
            break
        begin = one.time
    return min(MAX_SECONDS, max(MIN_SECONDS, last.time - begin))


def spread_of(forecast: Forecast, age: float, held: float) -> float:
    """Return the factor by which a link measured `age` seconds ago may be faster or slower than its forecast.

    The base is three mean errors of its forecasts, or a quarter before three measurements have scored them. It
    grows with the root of the age, like a random walk; the unit of the age is `held`, the seconds for which the
    link has kept its value.
    """
    known = forecast.error is not None and forecast.samples >= MIN_MEASUREMENTS
    error = 3.0 * (forecast.error or 0.0) / forecast.value if forecast.value > 0 else MAX_SPREAD
    least = MIN_ERROR if known else STEADY
    return min(MAX_SPREAD, 1.0 + max(least, error) * math.sqrt(1.0 + age / held))


def under(weather: Weather, bounds: Mapping[Pair, LinkBounds], *, optimistic: bool) -> Weather:
    """Return a weather with the links of `bounds` at their optimistic or at their pessimistic end."""
    latency, bandwidth = dict(weather.latency), dict(weather.bandwidth)
    for pair, one in bounds.items():
        ends = one.optimistic() if optimistic else one.pessimistic()
        for table, value in ((latency, ends[0]), (bandwidth, ends[1])):
            old = table.get(pair)
            table[pair] = (
                replace(old, value=value, error=0.0)
                if old
                else Forecast(value, error=0.0, method="bound", samples=0, time=weather.time)
            )
    return replace(weather, latency=latency, bandwidth=bandwidth)


def measured_as_needed(
    weather: Callable[[], Weather],
    bounds: Callable[[], Mapping[Pair, LinkBounds]],
    propose: Propose,
    measure: Callable[[Set[Pair]], None],
    rounds: int = MAX_ROUNDS,
    first: Callable[[set[Pair]], set[Pair]] = set,
) -> ProposedPlan | None:
    """Measure links until the plan depends on no uncertain link, at most `rounds` times; return the plan.

    Parameters
    ----------
    weather
        Returns the forecasts from the measurements at the moment of the call.
    bounds
        Returns the bounds of every link that is uncertain at the moment of the call.
    propose
        Returns the plan under a weather, or None if no plan is feasible.
    measure
        Measures these links; a link that cannot be measured is not requested again.
    first
        Returns the subset of some links to measure first; their results may make the others unnecessary.
    """
    tried: set[Pair] = set()
    for _ in range(rounds):
        known, uncertain = weather(), bounds()
        open_links = uncertain.keys() - tried
        if not open_links:
            break
        best, worst = (under(known, uncertain, optimistic=end) for end in (True, False))
        links = needed(
            propose(best), best, worst, open_links
        )  # links of the plan that could be best
        if not links:
            plan = propose(known)
            links = needed(
                plan, best, worst, open_links
            )  # links of the plan that would be made now
            if not links:
                return plan
        links = first(links)
        tried |= links
        measure(links)
    return propose(weather())


def needed(
    plan: ProposedPlan | None, best: Weather, worst: Weather, uncertain: Iterable[Pair]
) -> set[Pair]:
    """Return the uncertain links of a plan; an empty set if their measurement gains nothing.

    It gains nothing if the links cannot slow an iteration by more than `TOLERANCE`, or the run by more than
    `WORTH_SECONDS`.
    """
    links = plan.links & set(uncertain) if plan else set()
    if not plan or not links:
        return set()
    fast, slow = plan.seconds(best), plan.seconds(worst)
    matters = slow > (1.0 + TOLERANCE) * fast and plan.iterations * (slow - fast) > WORTH_SECONDS
    return links if matters else set()
