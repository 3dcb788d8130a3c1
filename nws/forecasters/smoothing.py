"""Exponential smoothing with a fixed gain."""

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
            raise ValueError(f"gain: must be above 0 and at most 1 (is {gain})")
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
