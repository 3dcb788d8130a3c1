"""The steps of a single series with NumPy, where a bank of one would be too slow.

What a bank does with arrays of N series, this does with plain numbers where there are few and
with small arrays where there are many; in the same order, so that the bits are the same.
"""

import math

import numpy as np

from nws.bank import layout as at
from nws.bank import vectors
from nws.bank.battery import Battery
from nws.bank.climber import Climber, Facts
from nws.bank.first_rung import FirstRung
from nws.bank.pair import Pair
from nws.bank.rhythms import look_for_rhythm
from nws.bank.vectors import Series


class SingleRunner:
    """Steps one series with small arrays; `nws.bank.runners` says what a runner is."""

    def __init__(self, series: Series) -> None:
        self._series = series
        self._battery = Battery()
        self._first = FirstRung(series.step)
        self._pair = Pair(series)
        self._f = np.zeros(at.E)
        self._age = 0
        self._whole = 0
        self._climber = Climber(series) if len(series.ladder) > 1 else None
        self.resume(0)

    def step(self, tick: int, value: float) -> None:
        """Take in the value of `tick`, in the engine's unit; NaN: there is none."""
        battery, first, f = self._battery, self._first, self._f
        known = value == value  # noqa: PLR0124 - NaN is what differs from itself
        if not known:
            value = first.final[0]
            self._age += 1
        elif battery.samples:
            self._age += 1
            first.score(f, value)
            self._pair.learn(clipped((value - battery.mean) * inverse(battery.variance)))
            f[:21] = battery.take(value)
        else:
            f[:21] = battery.begin(value)
        mean, deviation, by = battery.mean, math.sqrt(battery.variance), inverse(battery.variance)
        fits = self._pair.look_back(tick, value, self._age, mean, by)
        low, high = battery.low, battery.high
        f[21] = min(max(mean + deviation * clipped(fits[0]), low), high)
        f[22] = min(max(mean + deviation * clipped(fits[1]), low), high)
        first.answer(f, battery.variance)
        self._series.valid[tick % at.LONGEST, 0] = known
        self._whole = self._whole + 1 if known else 0
        if self._climber is not None:
            self._climb(tick, mean, deviation, by)

    def _climb(self, tick: int, mean: float, deviation: float, by: float) -> None:
        climber, battery, s = self._climber, self._battery, self._series
        assert climber is not None  # noqa: S101 - for the type checker
        if self._whole > min(self._age, at.LONGEST):
            facts = Facts(mean, battery.variance, deviation, by, battery.low, battery.high)
            facts.final = self._first.final
            climber.climb(tick, self._age, self._pair.latest(at.LONGEST), self._f, facts)
            return
        climber.save()
        s.mean[0], s.variance[0] = battery.mean, battery.variance
        s.low[0], s.high[0], s.age[0] = battery.low, battery.high, self._age
        s.expert[:, 0] = self._f
        s.step.final[0, :, 0] = self._first.final
        vectors.climb(s, tick)
        climber.resume()

    def final(self, which: int) -> float:
        """Return the answer of the first rung."""
        return self._first.final[which]

    def look_for_rhythm(self, tick: int) -> None:
        """Give the auto-lag regression new lags."""
        s, battery = self._series, self._battery
        s.mean[0], s.variance[0], s.age[0] = battery.mean, battery.variance, self._age
        s.low[0], s.high[0] = battery.low, battery.high
        self._pair.save()
        look_for_rhythm(s, 0, tick)
        self._pair.resume(tick + 1)

    def settle(self) -> None:
        """Write what is kept here into the fields of the series."""
        self._battery.save(self._series)
        self._first.save()
        self._pair.save()
        if self._climber is not None:
            self._climber.save()
        self._series.age[0] = self._age
        self._series.expert[:, 0] = self._f

    def resume(self, tick: int) -> None:
        """Take over the fields of the series, `tick` being the next."""
        self._battery.load(self._series)
        self._first.resume()
        self._pair.resume(tick)
        if self._climber is not None:
            self._climber.resume()
        self._age = int(self._series.age[0])
        self._whole = self._unbroken(tick)
        self._f[:] = self._series.expert[:, 0]

    def _unbroken(self, tick: int) -> int:
        """Return how many of the ticks before `tick`, at most the longest rung, had a value."""
        backwards = (tick - 1 - np.arange(at.LONGEST)) % at.LONGEST
        missing = np.flatnonzero(self._series.valid[backwards, 0] == 0)
        return int(missing[0]) if len(missing) else at.LONGEST


def clipped(value: float) -> float:
    """Return `value` within plus and minus `CLIP`."""
    return min(max(value, -at.CLIP), at.CLIP)


def inverse(variance: float) -> float:
    """Return one over the deviation, and 0 where that is 0."""
    return 1.0 / math.sqrt(variance) if variance > 0 else 0.0
