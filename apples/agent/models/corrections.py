"""Corrections of the model, learned from runs: exponential moving averages, and the overlap of borders."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from apples.resources import LEAST, MOST

EWMA_WEIGHT = 0.3
"""Weight of the newest run in an exponential moving average; the tenth last one still counts 4 %."""
LARGEST_CORRECTION = 100.0
"""A single run cannot move a factor further than this either way."""
LARGEST_FACTOR = 1e6
"""No factor lies further from 1 than this, whatever a document says."""
FIRST_SPREAD = 0.1
"""Relative spread taken after a single run, before anything is known of the next."""


def is_positive(value: Any) -> bool:
    """Whether a value of a document or a run is a number above 0 that makes sense."""
    return (
        isinstance(value, (int, float)) and not isinstance(value, bool) and LEAST <= value <= MOST
    )


def bounded(value: float) -> float:
    """Return the factor, no further from 1 than `LARGEST_FACTOR`."""
    return float(min(max(value, 1 / LARGEST_FACTOR), LARGEST_FACTOR))


def limited(ratio: float) -> float:
    """Return measured over expected, no further from 1 than one run may move a factor."""
    return min(max(ratio, 1 / LARGEST_CORRECTION), LARGEST_CORRECTION)


def ewma(known: Any, ratio: float) -> float:
    """Return the factor after a run, a geometric moving average; the first run sets it."""
    step = limited(ratio)
    return bounded(known * step**EWMA_WEIGHT if is_positive(known) else step)


def ewma_spread(known: Any, ratio: float, first: bool) -> float:
    """Return the relative spread after a run, likewise; after the first run it is taken as a tenth."""
    deviation = FIRST_SPREAD if first else min(abs(math.log(ratio)), math.log(LARGEST_CORRECTION))
    before = bounded(known) if is_positive(known) else deviation
    return float(math.sqrt((1 - EWMA_WEIGHT) * before**2 + EWMA_WEIGHT * deviation**2))


# Of 0.2, 0.3, 0.5 and 1, weights from 0.2 to 0.5 had equal errors; the mean error of 1 was larger.
SHARE_WEIGHT = 0.3
"""Weight of the newest run in a share bias, the first too: after two others an old one counts half."""
SHARE_HALF_LIFE = 1800.0
"""Seconds after which half of a share bias is forgotten: competing programs come and go."""
SAME_LOAD = 1.25
"""A forecast share that has moved further than this factor is that of another load."""
LARGEST_BIAS = 4.0


@dataclass(frozen=True, slots=True)
class ShareBias:
    """Measured over forecast share of a CPU on one host: what the sensors do not see of its competitors.

    It belongs to the load it was measured beside. So it is forgotten from run to run (`SHARE_WEIGHT`), with time
    (`SHARE_HALF_LIFE`), and where the forecast share has moved by more than `SAME_LOAD` it says nothing.

    Attributes
    ----------
    factor
        On the forecast share.
    forecast
        The forecast share it was measured under.

    Examples
    --------
    >>> round(ShareBias().taught(1.44, forecast=0.5).factor, 3)
    1.116
    >>> ShareBias(1.2, 0.5).at(0.52), ShareBias(1.2, 0.5).at(0.9)
    (1.2, 1.0)
    """

    factor: float = 1.0
    forecast: float = 0.0

    def at(self, forecast: float) -> float:
        """Return the factor on a forecast share; 1 where that is of another load."""
        if not max(forecast, self.forecast) <= SAME_LOAD * min(forecast, self.forecast):
            return 1.0
        return self.factor

    def taught(self, ratio: float, forecast: float) -> ShareBias:
        """Return it after a run: `ratio` is measured over predicted share, the prediction with what was known."""
        if not is_positive(ratio):
            return self
        truth = self.at(forecast) * ratio
        factor = self.at(forecast) ** (1 - SHARE_WEIGHT) * truth**SHARE_WEIGHT
        return ShareBias(min(max(factor, 1 / LARGEST_BIAS), LARGEST_BIAS), forecast)

    def stored(self, now: float) -> dict[str, float]:
        """Return it for a document."""
        return {"factor": self.factor, "forecast": self.forecast, "time": now}

    @classmethod
    def recalled(cls, entry: Any, now: float) -> ShareBias | None:
        """Return what is left at `now` of what a document holds; None where that makes no sense."""
        entry = entry if isinstance(entry, dict) else {}
        factor, forecast, then = (entry.get(key) for key in ("factor", "forecast", "time"))
        if not (is_positive(factor) and is_positive(forecast) and is_positive(then)):
            return None
        factor = min(max(factor, 1 / LARGEST_BIAS), LARGEST_BIAS)
        return cls(factor**0.5 ** (abs(now - then) / SHARE_HALF_LIFE), float(forecast))


# Beyond the longest known border a factor of a short one does not hold: a border that was hidden
# behind a quota at 20 MB/s is not hidden at 0.5 MB/s.
BOTH_WAYS = 0.5
"""Of the sum of sends and receives, where both go at once."""
ALIKE = 2.0
"""Borders whose lengths differ by less than this factor teach one another."""
MOST_POINTS = 64
"""No document is believed to know more lengths: 64 doublings are more than a century over a nanosecond."""


@dataclass(frozen=True)
class Overlap:
    """The factor on the seconds of a border, by their number: a short one hides otherwise than a long one.

    Between two lengths that runs taught the cost is a straight line; below the shortest the factor is that
    one's. What is longer than twice the longest is hidden behind nothing: its rest costs half, for links send
    and receive at once, or as much as the longest, if that is more. No border costs less than a shorter one.

    Attributes
    ----------
    points
        Seconds of a border, as modelled, and the factor there; ascending. Infinite seconds: any border, of
        a model that does not say how long they are. None: 1 everywhere.

    Examples
    --------
    >>> hidden = Overlap(((0.005, 0.1),))
    >>> hidden.cost(0.004), round(hidden.cost(0.2), 4)
    (0.0004, 0.096)
    >>> round(Overlap(((0.001, 0.2), (0.003, 0.4))).cost(0.002), 6)
    0.0007
    """

    points: tuple[tuple[float, float], ...] = ()

    @classmethod
    def recalled(cls, stored: Any) -> Overlap:
        """Return what a document holds; entries that make no sense are left out."""
        found: dict[float, float] = {}
        for entry in stored[:MOST_POINTS] if isinstance(stored, list) else ():
            seconds, factor = entry if isinstance(entry, list) and len(entry) == 2 else (0, 0)
            if is_positive(factor) and (seconds is None or is_positive(seconds)):
                found[math.inf if seconds is None else float(seconds)] = bounded(factor)
        points: list[tuple[float, float]] = []
        for seconds, factor in sorted(found.items()):
            least = cls(tuple(points)).cost(points[-1][0]) / seconds if points else 0.0
            points.append((seconds, max(factor, least)))
        return cls(tuple(points))

    @property
    def up_to(self) -> float | None:
        """Seconds of the longest border that is known; None where none is, or any."""
        longest = self.points[-1][0] if self.points else math.inf
        return longest if math.isfinite(longest) else None

    def stored(self) -> list[tuple[float | None, float]]:
        """Return it for a document."""
        return [(s if math.isfinite(s) else None, factor) for s, factor in self.points]

    def factor(self, seconds: float) -> float:
        """Return what a border of so many modelled seconds costs of them."""
        k = bisect_left(self.points, (seconds,))
        if k == len(self.points):
            if not self.points:
                return 1.0
            longest, factor = self.points[-1]
            part = min(1.0, ALIKE * longest / seconds)
            return part * factor + (1 - part) * max(factor, BOTH_WAYS)
        longer, high = self.points[k]
        if k == 0 or longer in {seconds, math.inf}:
            return high
        shorter, low = self.points[k - 1]
        weight = (seconds - shorter) / (longer - shorter)
        return ((1 - weight) * shorter * low + weight * longer * high) / seconds

    def cost(self, seconds: float) -> float:
        """Return what a border of so many modelled seconds costs."""
        return seconds * self.factor(seconds)

    def taught(self, ratio: float, longest: float) -> Overlap:
        """Return it after a run: the factors of all lengths like that one move by the run's weight.

        A length that has none like it on one side is remembered for itself. Lengths that would contradict it,
        shorter and dearer or longer and cheaper, cost as much as it does from then on.

        Parameters
        ----------
        ratio
            Measured over predicted seconds at the borders, the prediction with what was known.
        longest
            Seconds of the longest border of the run, modelled without overlap; 0 where the model does not
            say.
        """
        length = longest if longest > 0 else math.inf
        alike = {seconds for seconds, _ in self.points if _alike(seconds, length)}
        before = self.factor(length)
        points = {s: ewma(f, ratio) if s in alike else f for s, f in self.points}
        k = bisect_left(self.points, (length,))
        nearest = {seconds for seconds, _ in self.points[max(0, k - 1) : k + 1]}
        if not alike:
            points[length] = bounded(before * limited(ratio))
        elif not nearest <= alike:  # it was not of its like alone that it learned what it cost
            points[length] = ewma(before, ratio)
        return Overlap(tuple(sorted(_agreeing(points, alike | ({length} & points.keys())))))


def _agreeing(points: dict[float, float], newest: set[float]) -> Iterator[tuple[float, float]]:
    """Yield points of which none costs less than a shorter one: where two contradict, the newest hold."""
    shortest, longest = min(newest), max(newest)
    for seconds, factor in points.items():
        if seconds < shortest:
            yield seconds, min(factor, shortest * points[shortest] / seconds)
        elif longest < seconds < math.inf:
            yield seconds, max(factor, longest * points[longest] / seconds)
        else:
            yield seconds, factor


def _alike(one: float, other: float) -> bool:
    return one == other or max(one, other) < ALIKE * min(one, other)


PLAIN = Overlap()
"""Before the first run: the paper's sum of sends and receives."""
