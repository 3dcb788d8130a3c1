"""The experts of a single series: windows and smoothing in plain numbers, autoregressions in small arrays.

The same arithmetic in the same order as `nws.engine.tick`; sorted lists stand in for sorting. One of
several forms on purpose: see `nws.engine`.
"""

import math
import sys
from bisect import bisect_left, insort
from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Final

import numpy as np

from nws.engine import layout as at
from nws.engine.analogs import DistanceRing
from nws.engine.vectorised import Array, SeriesFields


def _sum(values: list[float]) -> float:
    return reduce(add, values)


in_order: Final[Callable[[list[float]], float]] = sum if sys.version_info < (3, 12) else _sum
"""Adds up from the first to the last; from Python 3.12 on `sum` is more exact, and differs."""
WIDEST: Final = at.RECENT


class AdaptiveMedianWindows:
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


class WindowExperts:
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
        self.adaptive = (AdaptiveMedianWindows(10, 5, 21, 1), AdaptiveMedianWindows(30, 21, 51, 5))

    def load(self, s: SeriesFields) -> None:
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

    def save(self, s: SeriesFields) -> None:
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


ROOM = 4 * at.HISTORY


class Autoregressions:
    """AR(16) and the auto-lag AR(8), the latter filled up with zeros, which change no bit.

    The history is kept once more in a buffer in which the latest values lie side by side.
    """

    def __init__(self, series: SeriesFields) -> None:
        self._series = series
        self._p = np.zeros((2, at.ORDER, at.ORDER))
        self._w = np.zeros((2, at.ORDER))
        self._x = np.zeros((2, at.ORDER))
        self._flat = self._x.ravel()[: at.ORDER + at.LAGS]
        self._diagonal = np.einsum("mii->mi", self._p)
        self._product = np.empty_like(self._p)
        self._px = np.empty((2, at.ORDER))
        self._row = np.empty((2, at.ORDER))
        self._gain = np.empty((2, at.ORDER))
        self._two = np.empty((2, 1))
        self._past = np.zeros(ROOM)
        self._latest = at.HISTORY
        self.ring = DistanceRing()
        self._fits = [0.0, 0.0]
        self._unchecked = 0

    def resume(self, tick: int) -> None:
        """Take over the fields of the series, `tick` being the next."""
        s = self._series
        self._p[0], self._w[0], self._x[0] = s.ar_p[:, :, 0], s.ar_w[:, 0], s.ar_x[:, 0]
        self._p[1, : at.LAGS, : at.LAGS] = s.lag_p[:, :, 0]
        self._w[1, : at.LAGS], self._x[1, : at.LAGS] = s.lag_w[:, 0], s.lag_x[:, 0]
        rows = np.arange(tick - at.HISTORY, tick) % at.HISTORY
        self._past[: at.HISTORY] = s.history[rows, 0]
        self.ring.resume(s.history[rows, 0])
        self._latest = at.HISTORY - 1
        self._behind = np.concatenate([np.arange(at.ORDER), s.lag[:, 0] - 1]).astype(np.intp)
        self._deepest = int(self._behind.max())
        self._fits = [float(fit) for fit in np.add.accumulate(self._w * self._x, axis=1)[:, -1]]
        self._unchecked = 0

    def save(self) -> None:
        """Write all but the history into the fields of the series."""
        s = self._series
        s.ar_p[:, :, 0], s.ar_w[:, 0], s.ar_x[:, 0] = self._p[0], self._w[0], self._x[0]
        s.lag_p[:, :, 0] = self._p[1, : at.LAGS, : at.LAGS]
        s.lag_w[:, 0], s.lag_x[:, 0] = self._w[1, : at.LAGS], self._x[1, : at.LAGS]

    def latest(self, count: int) -> Array:
        """Return the last `count` values, the newest first."""
        return self._past[self._latest : self._latest - count : -1]

    def learn(self, z: float) -> None:
        """Move the weights of both towards w.x = z (`nws.engine.vectorised.regress`)."""
        p, px, product, gain, two = self._p, self._px, self._product, self._gain, self._two
        np.multiply(p, self._x[:, :, None], out=product)
        np.add.reduce(product, axis=1, out=px)
        np.multiply(self._x, px, out=self._row)
        powers = np.add.accumulate(self._row, axis=1)[:, -1:]
        powers += at.FORGETTING
        np.divide(px, powers, out=gain)
        np.multiply(gain[:, :, None], px[:, None, :], out=product)
        p -= product
        p *= at.RENEWAL
        two[0, 0], two[1, 0] = z - self._fits[0], z - self._fits[1]
        gain *= two
        self._w += gain
        self._unchecked -= 1
        if self._unchecked < 0:
            self._check_trace()

    def _check_trace(self) -> None:
        """Shrink what exceeds the cap; without shrinking, a trace grows by 1/lambda at most."""
        traces = np.add.accumulate(self._diagonal, axis=1)[:, -1].tolist()
        for place, trace in enumerate(traces):
            if trace > at.TRACE:
                self._p[place] *= at.TRACE / trace
        greatest = max(traces)
        if 0 < greatest < at.TRACE:
            self._unchecked = int(math.log(at.TRACE / greatest) / math.log(at.RENEWAL) * 0.99) - 1

    def look_back(
        self, tick: int, value: float, age: int, mean: float, inverse: float
    ) -> list[float]:
        """Remember `value`; return what both make of the past, in standard deviations."""
        history = self._series.history
        history[tick % at.HISTORY, 0] = value
        self._latest += 1
        if self._latest == ROOM:
            self._past[: at.HISTORY] = self._past[-at.HISTORY :]
            self._latest = at.HISTORY
        self._past[self._latest] = kept = history[tick % at.HISTORY, 0]
        self.ring.push(kept)
        flat = self._flat
        self._past.take(self._latest - self._behind, out=flat)
        flat -= mean
        flat *= inverse
        np.maximum(flat, -at.CLIP, out=flat)
        np.minimum(flat, at.CLIP, out=flat)
        if age < self._deepest:
            flat[self._behind > age] = 0.0
        np.multiply(self._w, self._x, out=self._row)
        self._fits = np.add.accumulate(self._row, axis=1)[:, -1].tolist()
        return self._fits
