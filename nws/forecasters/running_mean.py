"""The mean of all values."""

from typing import ClassVar

from nws.forecaster import Forecaster, NoValueYetError
from nws.measurement import checked_value


class RunningMean(Forecaster):
    """Forecasts the mean of everything so far (NWS 2.x forecasters.c, "Running Mean").

    Examples
    --------
    >>> forecaster = RunningMean()
    >>> for value in [1.0, 2.0, 6.0]:
    ...     forecaster.update(value)
    >>> forecaster.forecast()
    3.0
    """

    STATEFUL: ClassVar[tuple[str, ...]] = ("_count", "_mean")

    def __init__(self) -> None:
        self._count = 0
        self._mean = 0.0

    def update(self, value: float) -> None:
        """Move the mean towards `value` by one share; no sum that could overflow or drift."""
        value = checked_value(value)
        self._count += 1
        self._mean += (value - self._mean) / self._count

    def forecast(self) -> float:
        """Return the mean."""
        if not self._count:
            raise NoValueYetError
        return self._mean
