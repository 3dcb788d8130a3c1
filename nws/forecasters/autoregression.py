"""Autoregressions: by moments of order one, and by recursive least squares. Without NumPy."""

import math
from abc import abstractmethod
from collections import deque
from typing import Any, ClassVar, Final

from nws.forecaster import Forecaster, NoValueYetError, checked_object, unpacked
from nws.measurement import checked_value

FORGETTING: Final = 0.999
RENEWAL: Final = 1.0 / FORGETTING
TRACE: Final = 1000.0
CLIP: Final = 6.0
GAIN: Final = 0.02


def clipped(value: float, most: float = CLIP) -> float:
    """Return `value` within plus and minus `most`."""
    return min(max(value, -most), most)


class RecursiveLeastSquares:
    """Weights w with w.x near z, the past forgotten exponentially (Haykin, "RLS algorithm").

    ``g = P x / (lambda + x.P x)``, ``w += g (z - w.x)``, ``P = (P - g x'P) / lambda`` with
    lambda .999. P is shrunk when its trace exceeds 1000: what does not vary must not wind up.

    Examples
    --------
    >>> fit = RecursiveLeastSquares(1)
    >>> for x in (1.0, 2.0, 3.0) * 50:
    ...     fit.update([x], 2 * x)
    >>> round(fit.predict([4.0]), 2)
    8.0
    """

    def __init__(self, order: int) -> None:
        self.w = [0.0] * order
        self.p = [[float(i == j) for j in range(order)] for i in range(order)]

    def predict(self, x: list[float]) -> float:
        """Return w.x."""
        total = 0.0
        for weight, each in zip(self.w, x, strict=True):
            total += weight * each
        return total

    def update(self, x: list[float], z: float) -> None:
        """Move the weights towards w.x = z."""
        order = range(len(x))
        px = [0.0] * len(x)
        for row, each in zip(self.p, x, strict=True):
            px = [total + entry * each for total, entry in zip(px, row, strict=True)]
        power = 0.0
        for each, projected in zip(x, px, strict=True):
            power += each * projected
        power += FORGETTING
        error = z - self.predict(x)
        trace = 0.0
        for i in order:
            gain = px[i] / power
            self.w[i] += gain * error
            row = self.p[i]
            self.p[i] = [(row[j] - gain * px[j]) * RENEWAL for j in order]
            trace += self.p[i][i]
        if trace > TRACE:
            shrink = TRACE / trace
            self.p = [[entry * shrink for entry in row] for row in self.p]

    def state(self) -> dict[str, Any]:
        """Return weights and matrix."""
        return {"w": list(self.w), "p": [list(row) for row in self.p]}

    def restore(self, state: Any) -> None:
        """Take over weights and matrix; ValueError unless they are of the same size."""
        given = checked_object(state, ("w", "p"), "a regression")
        w, p = unpacked(self.w, given["w"], "w"), unpacked(self.p, given["p"], "p")
        if len(w) != len(self.w) or [len(row) for row in p] != [len(row) for row in self.p]:
            raise ValueError(f"the state of a regression on {len(self.w)} values is wanted")
        self.w, self.p = w, p


class RunningStandardisation:
    """The exponentially weighted mean and deviation that a regression's values are measured by.

    The gain is .02, and 1/n for the first n values. ``variance = (1 - g)(variance + g d^2)``, d
    the deviation from the mean before.
    """

    def __init__(self) -> None:
        self.samples = 0
        self.mean = 0.0
        self.variance = 0.0

    def update(self, value: float) -> None:
        """Take in a value; magnitudes beyond 1e150 count as that, so that squares stay finite."""
        value = clipped(value, 1e150)
        self.samples += 1
        gain = max(GAIN, 1.0 / self.samples)
        away = value - self.mean if self.samples > 1 else 0.0
        self.mean = self.mean + gain * away if self.samples > 1 else value
        self.variance = (1.0 - gain) * (self.variance + gain * away * away)

    def of(self, value: float) -> float:
        """Return `value` in deviations from the mean, within plus and minus `CLIP`."""
        deviation = math.sqrt(self.variance)
        inverse = 1.0 / deviation if deviation > 0 else 0.0
        return clipped((clipped(value, 1e150) - self.mean) * inverse)

    def back(self, z: float) -> float:
        """Return the value that is `z` deviations from the mean, at most `CLIP` of them."""
        return self.mean + math.sqrt(self.variance) * clipped(z)

    def state(self) -> list[float]:
        """Return count, mean, variance."""
        return [self.samples, self.mean, self.variance]

    def restore(self, state: Any) -> None:
        """Take over count, mean, variance."""
        samples, self.mean, self.variance = unpacked((0.0, 0.0, 0.0), state, "standard")
        self.samples = int(samples)


class Regression(Forecaster):
    """Forecasts by recursive least squares on past values, in deviations; within the range of the values.

    Parameters
    ----------
    order
        How many values it looks at.
    memory
        How many it remembers.
    """

    def __init__(self, order: int, memory: int) -> None:
        self._past: deque[float] = deque(maxlen=memory)  # newest first
        self._x = [0.0] * order
        self._fit = RecursiveLeastSquares(order)
        self._standard = RunningStandardisation()
        self._least = self._greatest = 0.0

    def update(self, value: float) -> None:
        """Learn from `value`, then look back from it."""
        value = checked_value(value)
        if self._past:
            self._fit.update(self._x, self._standard.of(value))
        else:
            self._least = self._greatest = value
        self._standard.update(value)
        self._least, self._greatest = min(self._least, value), max(self._greatest, value)
        self._look_back_from(value)

    def miss(self) -> None:
        """Go on from the forecast."""
        if self._past:
            self._look_back_from(self.forecast())

    def forecast(self) -> float:
        """Return what the regression makes of the values it looks at."""
        if not self._past:
            raise NoValueYetError
        if self._standard.variance == 0:
            return self._past[0]
        answer = self._standard.back(self._fit.predict(self._x))
        return min(max(answer, self._least), self._greatest)

    @abstractmethod
    def _look_back_from(self, value: float) -> None:
        """Remember `value`, the newest, and set the regressors for the next one."""


class EwAr1(Forecaster):
    """Forecasts ``m + phi (x - m)``: how far the last value x is from the mean decays.

    m and the lag-one correlation phi, within plus and minus .999, are exponentially weighted
    (Dinda, O'Hallaron 1999: simple linear models suffice for host load). The
    forecast stays within the range of the values. Deviations count as at most 1e150.

    Parameters
    ----------
    gain
        The weight of the newest value, in (0, 1]; 1/n while the n values are fewer than 1/gain.

    Examples
    --------
    >>> forecaster = EwAr1(gain=0.02)
    >>> for value in [0.0, 1.0] * 30:
    ...     forecaster.update(value)
    >>> forecaster.forecast() < 0.1
    True
    """

    STATEFUL: ClassVar[tuple[str, ...]] = (
        "_samples",
        "_last",
        "_mean",
        "_covariance",
        "_variance",
        "_least",
        "_greatest",
    )

    def __init__(self, gain: float) -> None:
        if not 0 < gain <= 1:
            raise ValueError(f"a gain lies in (0, 1], not {gain}")
        self._gain = gain
        self._samples = 0
        self._last = self._mean = self._covariance = self._variance = 0.0
        self._least = self._greatest = 0.0

    def update(self, value: float) -> None:
        """Move mean, variance and covariance."""
        value = checked_value(value)
        self._samples += 1
        if self._samples == 1:
            self._last = self._mean = self._least = self._greatest = value
            return
        gain = max(self._gain, 1.0 / self._samples)
        before = clipped(self._last - self._mean, 1e150)
        self._mean += gain * (value - self._mean)
        after = clipped(value - self._mean, 1e150)
        self._covariance += gain * (before * after - self._covariance)
        self._variance += gain * (before * before - self._variance)
        self._last = value
        self._least, self._greatest = min(self._least, value), max(self._greatest, value)

    def forecast(self) -> float:
        """Return the mean plus what is left of the last deviation."""
        if not self._samples:
            raise NoValueYetError
        phi = clipped(self._covariance / self._variance, 0.999) if self._variance > 0 else 0.0
        answer = self._mean + phi * (self._last - self._mean)
        return min(max(answer, self._least), self._greatest)


class RobustAr(Regression):
    """Forecasts by a regression on the latest values, which outliers cannot carry away.

    Recursive least squares on values in deviations from an exponentially weighted mean, regressors,
    target and forecast within 6 of them; the forecast stays within the range of the values
    (Dinda, O'Hallaron 1999 recommend AR(16) for host load; the clipping is what makes it safe). A
    value that is missing is taken to be as forecast, and teaches nothing.

    Parameters
    ----------
    order
        How many values it looks back.

    Examples
    --------
    >>> forecaster = RobustAr(order=4)
    >>> for value in [0.0, 0.0, 1.0] * 60:
    ...     forecaster.update(value)
    >>> round(forecaster.forecast(), 1)
    0.0
    """

    STATEFUL: ClassVar[tuple[str, ...]] = (
        "_past",
        "_x",
        "_fit",
        "_standard",
        "_least",
        "_greatest",
    )

    def __init__(self, order: int = 16) -> None:
        if order < 1:
            raise ValueError(f"an autoregression of order {order} looks at nothing: no window")
        super().__init__(order, order)

    def _look_back_from(self, value: float) -> None:
        self._past.appendleft(value)
        known = [self._standard.of(each) for each in self._past]
        self._x = known + [0.0] * (len(self._x) - len(known))
