"""The experts that need no regression, for a single series, in plain Python.

The same arithmetic in the same order as `nws.bank.vectors.take`; sorted lists stand in for sorting.
"""

import sys
from bisect import bisect_left, insort
from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Final

from nws.bank import layout as at
from nws.bank.vectors import Series


def _sum(values: list[float]) -> float:
    return reduce(add, values)


in_order: Final[Callable[[list[float]], float]] = sum if sys.version_info < (3, 12) else _sum
"""Adds up from the first to the last; from Python 3.12 on `sum` is more exact, and differs."""
WIDEST: Final = at.RECENT


class Adaptive:
    """An adaptive median (`nws.forecasters.AdaptiveMedian`) that shares its history."""

    def __init__(self, start: int, minimum: int, maximum: int, offset: int) -> None:
        self._bounds = minimum, maximum, offset
        self.width = start
        self._windows: dict[int, list[float]] = {}
        self.median = 0.0

    def fill(self, recent: list[float]) -> None:
        """Take over the latest values, the oldest first."""
        self._windows = {width: sorted(recent[-width:]) for width in self._options()}
        self.median = self.medians()[0] if recent else 0.0

    def medians(self) -> list[float]:
        """Return the medians over the present, the shorter and the longer window."""
        return [_median(self._windows[width]) for width in self._options()]

    def update(self, value: float, recent: list[float]) -> None:
        """Take the width that would have forecast `value` best; `value` is the last of `recent`."""
        width, minimum = self.width, abs(self.median - value)
        for each, values in self._windows.items():
            error = abs(_median(values) - value)
            if error < minimum:
                width, minimum = each, error
        if width != self.width:
            self.width = width
            self.fill(recent)
            return
        count = len(recent)
        for size, values in self._windows.items():
            if count > size:
                del values[bisect_left(values, recent[-1 - size])]
            insort(values, value)
        self.median = _median(self._windows[width])

    def _options(self) -> tuple[int, int, int]:
        minimum, maximum, offset = self._bounds
        width = self.width
        return width, max(minimum, width - offset), min(maximum, width + offset)


def _median(values: list[float]) -> float:
    count = len(values)
    return (values[(count - 1) // 2] + values[count // 2]) / 2


class Battery:
    """Follows a series and forecasts with 21 experts; the two autoregressions are not its own."""

    def __init__(self) -> None:
        self.samples = 0
        self.low = self.high = self.mean = self.variance = 0.0
        self.recent: list[float] = []  # oldest first
        self.smooth = [0.0] * len(at.GAINS)
        self.running = 0.0
        self.ar = [[0.02, 0.0, 0.0, 0.0], [0.10, 0.0, 0.0, 0.0]]
        self.tuning = [0.0, 0.3, 0.0, 0.0]
        self.sorted: tuple[list[float], list[float], list[float]] = ([], [], [])
        self.adaptive = (Adaptive(10, 5, 21, 1), Adaptive(30, 21, 51, 5))

    def load(self, s: Series) -> None:
        """Take over what the fields of a series hold."""
        self.samples = int(s.samples[0])
        self.low, self.high = float(s.low[0]), float(s.high[0])
        self.mean, self.variance = float(s.mean[0]), float(s.variance[0])
        f = s.expert[:, 0].tolist()
        self.running, self.smooth = f[1], f[2:10]
        self.tuning = s.tuning[:, 0].tolist()
        for i, ar in enumerate(self.ar):
            moments = s.ar_mean[i, 0], s.ar_covariance[i, 0], s.ar_variance[i, 0]
            ar[1:] = [float(moment) for moment in moments]
        self.recent = s.recent[: min(self.samples, WIDEST), 0][::-1].tolist()
        for values, size in zip(self.sorted, (5, 31, 51), strict=True):
            values[:] = sorted(self.recent[-size:])
        for adaptive, width in zip(self.adaptive, s.width[:, 0].tolist(), strict=True):
            adaptive.width = int(width)
            adaptive.fill(self.recent)

    def save(self, s: Series) -> None:
        """Write all but the forecasts into the fields of a series."""
        s.samples[0], s.low[0], s.high[0] = self.samples, self.low, self.high
        s.mean[0], s.variance[0] = self.mean, self.variance
        s.tuning[:, 0] = self.tuning
        for i, (_, mean, covariance, variance) in enumerate(self.ar):
            s.ar_mean[i], s.ar_covariance[i], s.ar_variance[i] = mean, covariance, variance
        latest = self.recent[-WIDEST:]
        s.recent[: len(latest), 0] = latest[::-1]
        for i, adaptive in enumerate(self.adaptive):
            s.width[i, 0] = adaptive.width
            if self.samples:
                s.medians[i, :, 0] = adaptive.medians()

    def begin(self, value: float) -> list[float]:
        """Take in the first value; return the forecasts."""
        self.samples = 1
        self.low = self.high = self.mean = self.running = self.tuning[0] = value
        self.ar[0][1] = self.ar[1][1] = value
        self.smooth = [value] * len(self.smooth)
        self.recent = [value]
        for values in self.sorted:
            values[:] = [value]
        for adaptive in self.adaptive:
            adaptive.fill(self.recent)
        return [value] * 21

    def take(self, value: float) -> list[float]:
        """Take in another value; return the forecasts, in the order of `EXPERTS`."""
        last = self.recent[-1]
        self.samples += 1
        share = 1.0 / self.samples
        gain = max(0.02, share)
        away = value - self.mean
        self.mean += gain * away
        self.variance = (1.0 - gain) * (self.variance + gain * away * away)
        if value < self.low:
            self.low = value
        elif value > self.high:
            self.high = value
        self.running += (value - self.running) / self.samples
        self.smooth = [
            old + gain * (value - old) for old, gain in zip(self.smooth, at.GAINS, strict=True)
        ]
        self._push(value)
        five, more, most = self.sorted
        few, many, all_ = len(five), len(more), len(most)
        cut, wide_cut = int(0.30 * many), int(0.30 * all_)
        ar = [self._autoregress(moments, value, last, share) for moments in self.ar]
        return [
            value,
            self.running,
            *self.smooth,
            (more[(many - 1) // 2] + more[many // 2]) / 2,
            (five[(few - 1) // 2] + five[few // 2]) / 2,
            in_order(more) / many,
            in_order(five) / few,
            in_order(more[cut : many - cut]) / (many - 2 * cut),
            in_order(most[wide_cut : all_ - wide_cut]) / (all_ - 2 * wide_cut),
            self.adaptive[0].median,
            self.adaptive[1].median,
            *ar,
            self._tune(value, gain),
        ]

    def _push(self, value: float) -> None:
        recent = self.recent
        recent.append(value)
        for values, size in zip(self.sorted, (5, 31, 51), strict=True):
            if len(values) == size:
                del values[bisect_left(values, recent[-1 - size])]
            insort(values, value)
        for adaptive in self.adaptive:
            adaptive.update(value, recent)
        if len(recent) > 8 * WIDEST:
            del recent[: -WIDEST - 1]

    @staticmethod
    def _autoregress(moments: list[float], value: float, last: float, share: float) -> float:
        gain, mean, covariance, variance = moments
        gain = max(gain, share)
        before = last - mean
        mean += gain * (value - mean)
        after = value - mean
        covariance += gain * (before * after - covariance)
        variance += gain * (before * before - variance)
        moments[1:] = mean, covariance, variance
        phi = min(max(covariance / variance, -0.999), 0.999) if variance > 0 else 0.0
        return mean + phi * after

    def _tune(self, value: float, least: float) -> float:
        level, gain, slope, power = self.tuning
        error = value - level
        level += gain * error
        tuned = gain
        if power > 0:
            push = at.TUNING_RATE * min(max(error * slope / power, -1.0), 1.0)
            tuned = min(max(gain + push, 0.01), 0.99)
        slope = (1.0 - gain) * slope + error
        self.tuning = [level, tuned, slope, power + least * (error * error - power)]
        return level
