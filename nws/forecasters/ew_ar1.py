"""An autoregression of order one whose moments forget."""

from typing import ClassVar

from nws.forecaster import Forecaster, NoValueYetError
from nws.measurement import checked_value
from nws.recursive import clipped


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
