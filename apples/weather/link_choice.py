"""Which links have to be measured before a decision: those that it can depend on.

A link that was never measured, or longer ago than it has been seen to hold, lies between two bounds. The plan
made at the optimistic bounds is at least as fast as any plan can be. Where that plan, at the pessimistic bounds
of its own links, is slower by no more than `TOLERANCE`, or than `WORTH_SECONDS` in the whole run, no measurement
can lead to a plan that is better by more, and none is made; else its links are measured, and the plan is made
again. This is lazy search: only edges of the path that would be best are evaluated (Dellin and Srinivasa 2016,
LazySP).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from nws import Forecast, Measurement, Weather

TOLERANCE = 0.02
"""Relative: no measurement is made that could change the iteration time of the plan by less."""
WORTH_SECONDS = 0.3
"""No measurement is made that could shorten the run by less: measuring and planning again takes that long."""
STEADY = 0.25
"""A series holds as long as its values lie so close to the last, relative to it."""
MIN_SECONDS, MAX_SECONDS = 60.0, 3600.0
"""Bounds of the time for which a measured link is taken to hold."""
MIN_MEASUREMENTS, MIN_ERROR = 3, 0.05
"""Measurements before the error of a link's forecasts is used, and the smallest relative error that is."""
MAX_SPREAD = 10.0
UNSEEN_SPREAD = 2.0
"""How far a link may be from what was measured between other hosts of its two sites."""
REVERSE_SPREAD = 10.0
"""The same where only the other direction was measured: access lines send slower than they receive."""
MAX_ROUNDS = 4
"""Rounds of measuring for one decision; after them it is made with the links that are known."""

Pair = tuple[str, str]
Propose = Callable[[Weather], "ProposedPlan | None"]


@dataclass(frozen=True, slots=True)
class ProposedPlan:
    """What a blueprint would choose under a weather.

    Attributes
    ----------
    hosts
        The chosen hosts in strip order.
    seconds
        Given a weather: what an iteration of this plan would take.
    iterations
        How many the run makes.
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
    """Between which values a link lies: how many times faster or slower than its forecast it may be.

    Attributes
    ----------
    latency, bandwidth
        Seconds and bytes per second, as expected.
    spread
        At least 1.
    """

    latency: float
    bandwidth: float
    spread: float

    def optimistic(self) -> tuple[float, float]:
        """Return the least latency and the greatest bandwidth it is believed to have."""
        return self.latency / self.spread, self.bandwidth * self.spread

    def pessimistic(self) -> tuple[float, float]:
        """Return the greatest latency and the least bandwidth."""
        return self.latency * self.spread, self.bandwidth / self.spread


UNKNOWN = LinkBounds(1e-3, 3e7, 300.0)
"""A link of which nothing is known: 3 us to .3 s, 100 kB/s to 9 GB/s."""


def holds_for(series: Sequence[Measurement]) -> float:
    """Return for how many seconds after it the last measurement of a link is believed.

    For as long as the series has been seen to hold its value, so that a link that never changes is measured
    after one, two, four minutes and at last once an hour, and one that changed begins anew. (HTTP caches take a
    tenth of the time since the last change, RFC 9111, section 4.2.2; there a stale answer is not found out.)

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
    """Return how many times faster or slower than its forecast a link may be that was measured `age` ago.

    Three mean errors of its forecasts, a quarter before it has met three measurements; it grows with the root of
    the age as a random walk does, counted in the time the link has been seen to hold.
    """
    known = forecast.error is not None and forecast.samples >= MIN_MEASUREMENTS
    error = 3.0 * (forecast.error or 0.0) / forecast.value if forecast.value > 0 else MAX_SPREAD
    least = MIN_ERROR if known else STEADY
    return min(MAX_SPREAD, 1.0 + max(least, error) * math.sqrt(1.0 + age / held))


def under(weather: Weather, bounds: Mapping[Pair, LinkBounds], *, optimistic: bool) -> Weather:
    """Return a weather in which the links of `bounds` have one end of them."""
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
    """Measure links until the plan depends on none that is uncertain, or so often; return the plan then.

    Parameters
    ----------
    weather
        Returns the forecasts, by what is known at the moment of the call.
    bounds
        Returns the bounds of every link that is uncertain at the moment of the call.
    propose
        Returns the plan under a weather, None where there is none.
    measure
        Measures these links; one that cannot be measured is not asked for again.
    first
        Returns those of some links to measure before the others, which may not have to be measured then.
    """
    tried: set[Pair] = set()
    for _ in range(rounds):
        known, uncertain = weather(), bounds()
        open_links = uncertain.keys() - tried
        if not open_links:
            break
        best, worst = (under(known, uncertain, optimistic=end) for end in (True, False))
        links = needed(propose(best), best, worst, open_links)  # of the plan that could be best
        if not links:
            plan = propose(known)
            links = needed(plan, best, worst, open_links)  # of that which would be made
            if not links:
                return plan
        links = first(links)
        tried |= links
        measure(links)
    return propose(weather())


def needed(
    plan: ProposedPlan | None, best: Weather, worst: Weather, uncertain: Iterable[Pair]
) -> set[Pair]:
    """Return the uncertain links of a plan, or none where a measurement of them gains nothing.

    They are not worth it where they cannot make an iteration slower by more than `TOLERANCE`, nor the run by more
    than `WORTH_SECONDS`.
    """
    links = plan.links & set(uncertain) if plan else set()
    if not plan or not links:
        return set()
    fast, slow = plan.seconds(best), plan.seconds(worst)
    matters = slow > (1.0 + TOLERANCE) * fast and plan.iterations * (slow - fast) > WORTH_SECONDS
    return links if matters else set()
