"""Exponential smoothing, with a fixed gain and with one that tunes itself."""

from typing import ClassVar

from nws.forecaster import Forecaster, NoValueYetError
from nws.measurement import checked_value


class Smoothing(Forecaster):
    """Forecasts a mean in which older values weigh exponentially less.

    Starts at the first value (NWS 2.x forecasters.c, "Exp Smooth").

    Parameters
    ----------
    gain
        The weight of the newest value, in (0, 1].

    Examples
    --------
    >>> forecaster = Smoothing(gain=0.25)
    >>> for value in [1.0, 1.0, 2.0]:
    ...     forecaster.update(value)
    >>> forecaster.forecast()
    1.25
    """

    STATEFUL: ClassVar[tuple[str, ...]] = ("_smooth",)

    def __init__(self, gain: float) -> None:
        if not 0 < gain <= 1:
            raise ValueError(f"a gain lies in (0, 1], not {gain}")
        self._gain = gain
        self._smooth: float | None = None

    def update(self, value: float) -> None:
        """Move towards `value` by the gain."""
        value = checked_value(value)
        if self._smooth is None:
            self._smooth = value
        else:
            self._smooth += self._gain * (value - self._smooth)

    def forecast(self) -> float:
        """Return the smoothed value."""
        if self._smooth is None:
            raise NoValueYetError
        return self._smooth


class SelfTuningSmoothing(Forecaster):
    """Forecasts a smoothed level whose gain descends the squared error.

    With the error e of the last forecast: ``level += g e``, ``d = (1 - g) d + e`` (the slope of
    the level along g), ``g += .05 e d / s`` with the smoothed squared error s and the step at
    most .05; g stays in [.01, .99] (stochastic gradient, as in Wolski 1998).

    Parameters
    ----------
    gain
        The gain to start with.

    Examples
    --------
    >>> steady, lively = SelfTuningSmoothing(), SelfTuningSmoothing()
    >>> for step in range(200):
    ...     steady.update(step % 2)
    ...     lively.update(step // 50)
    >>> steady.gain < 0.1 < lively.gain
    True
    """

    STATEFUL: ClassVar[tuple[str, ...]] = (
        "_samples",
        "_level",
        "gain",
        "_slope",
        "_power",
        "_least",
        "_greatest",
    )

    def __init__(self, gain: float = 0.3) -> None:
        if not 0.01 <= gain <= 0.99:
            raise ValueError(f"a gain lies in [0.01, 0.99], not {gain}")
        self.gain = gain
        self._samples = 0
        self._level = self._slope = self._power = 0.0
        self._least = self._greatest = 0.0

    def update(self, value: float) -> None:
        """Move the level, then the gain."""
        value = checked_value(value)
        self._samples += 1
        if self._samples == 1:
            self._level = self._least = self._greatest = value
            return
        gain = self.gain
        error = _clipped(value - self._level, 1e150)
        self._level += gain * (value - self._level)
        if self._power > 0:
            push = 0.05 * _clipped(error * (self._slope / self._power), 1.0)
            self.gain = min(max(gain + push, 0.01), 0.99)
        self._slope = _clipped((1.0 - gain) * self._slope + error, 1e150)
        self._power += max(0.02, 1.0 / self._samples) * (error * error - self._power)
        self._least, self._greatest = min(self._least, value), max(self._greatest, value)

    def forecast(self) -> float:
        """Return the level."""
        if not self._samples:
            raise NoValueYetError
        return min(max(self._level, self._least), self._greatest)


def _clipped(value: float, most: float) -> float:
    return min(max(value, -most), most)
