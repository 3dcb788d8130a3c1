"""Slow and obvious forms of the engine's experts, to compare the compiled step with: one number at a time."""

import math
from collections import deque

import numpy as np

from nws import Forecaster, NoValueYetError

FORGETTING, MAX_TRACE, CLIP = 0.999, 1000.0, 6.0


def clipped(value, bound=CLIP):
    """Return `value` within plus and minus `bound`."""
    return min(max(value, -bound), bound)


class RecursiveLeastSquares:
    """Weights w with w.x near z, the past forgotten exponentially (Haykin, "RLS algorithm")."""

    def __init__(self, order):
        self.w = np.zeros(order)
        self.p = np.eye(order)

    def update(self, x, z):
        """Move the weights towards w.x = z."""
        px = self.p @ x
        gain = px / (FORGETTING + x @ px)
        self.w += gain * (z - self.w @ x)
        self.p = (self.p - np.outer(gain, px)) / FORGETTING
        self.p *= min(1.0, MAX_TRACE / np.trace(self.p))


class RobustAr(Forecaster):
    """Forecasts by a regression on the latest values, in deviations from an exponentially weighted mean."""

    def __init__(self, order):
        self._past = deque(maxlen=order)  # newest first
        self._x = np.zeros(order)
        self._fit = RecursiveLeastSquares(order)
        self._samples = 0
        self._mean = self._variance = 0.0
        self._least = self._greatest = 0.0

    def update(self, value):
        """Learn from `value`, then look back from it."""
        self._samples += 1
        if self._samples == 1:
            self._mean = self._least = self._greatest = value
        else:
            self._fit.update(self._x, self._deviations(value))
            gain = max(0.02, 1.0 / self._samples)
            away = value - self._mean
            self._mean += gain * away
            self._variance = (1.0 - gain) * (self._variance + gain * away * away)
        self._least, self._greatest = min(self._least, value), max(self._greatest, value)
        self._past.appendleft(value)
        self._x[: len(self._past)] = [self._deviations(past) for past in self._past]

    def forecast(self):
        """Return the forecast of the regression, within the range of the values."""
        if not self._samples:
            raise NoValueYetError
        forecast = self._mean + math.sqrt(self._variance) * clipped(float(self._fit.w @ self._x))
        return min(max(forecast, self._least), self._greatest)

    def _deviations(self, value):
        deviation = math.sqrt(self._variance)
        return clipped((value - self._mean) / deviation) if deviation > 0 else 0.0


class EwAr1(Forecaster):
    """Forecasts ``m + phi (x - m)``, m and phi exponentially weighted (Dinda, O'Hallaron 1999)."""

    def __init__(self, gain):
        self._gain = gain
        self._samples = 0
        self._last = self._mean = self._covariance = self._variance = 0.0

    def update(self, value):
        """Move mean, variance and covariance."""
        self._samples += 1
        if self._samples == 1:
            self._last = self._mean = value
            return
        gain = max(self._gain, 1.0 / self._samples)
        before = self._last - self._mean
        self._mean += gain * (value - self._mean)
        after = value - self._mean
        self._covariance += gain * (before * after - self._covariance)
        self._variance += gain * (before * before - self._variance)
        self._last = value

    def forecast(self):
        """Return the mean plus what is left of the last deviation."""
        phi = clipped(self._covariance / self._variance, 0.999) if self._variance > 0 else 0.0
        return self._mean + phi * (self._last - self._mean)


class SelfTuningSmoothing(Forecaster):
    """Forecasts a smoothed level whose gain descends the squared error (as in Wolski 1998).

    With the error e of the last forecast: ``level += g e``, ``d = (1 - g) d + e``, ``g += .05 e d / s`` with the
    smoothed squared error s and the step at most .05; g stays in [.01, .99].
    """

    def __init__(self):
        self._samples, self._gain = 0, 0.3
        self._level = self._slope = self._power = 0.0

    def update(self, value):
        """Move the level, then the gain."""
        self._samples += 1
        if self._samples == 1:
            self._level = value
            return
        gain, error = self._gain, value - self._level
        self._level += gain * error
        if self._power > 0:
            change = 0.05 * clipped(error * self._slope / self._power, 1.0)
            self._gain = min(max(gain + change, 0.01), 0.99)
        self._slope = (1.0 - gain) * self._slope + error
        self._power += max(0.02, 1.0 / self._samples) * (error * error - self._power)

    def forecast(self):
        """Return the level."""
        return self._level


class Analog(Forecaster):
    """Forecasts the median of the values that followed the 9 stretches nearest to the latest values.

    The distance is the sum of the absolute differences, value by value; of equally near stretches the more recent
    counts (Lorenz 1969). With fewer than 32 stretches to compare it repeats the last value.
    """

    def __init__(self, pattern):
        self._pattern = pattern
        self._past = deque(maxlen=896)  # newest first

    def update(self, value):
        """Remember `value`."""
        self._past.appendleft(value)

    def forecast(self):
        """Return the median of the values that followed."""
        past = np.array(self._past)
        count = (
            len(past) - 12
        )  # stretches within the oldest 12 values are left out, whatever the pattern
        if count < 32:
            return self._past[0]
        distance = np.zeros(count)
        for place in range(self._pattern):
            distance += np.abs(past[place + 1 : place + 1 + count] - past[place])
        return float(np.median(past[np.argsort(distance, kind="stable")[:9]]))
