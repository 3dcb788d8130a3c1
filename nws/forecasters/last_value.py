"""The last value."""

from typing import ClassVar

from nws.forecaster import Forecaster, NoValueYetError
from nws.measurement import checked_value


class LastValue(Forecaster):
    """Forecasts that nothing changes (NWS 2.x forecasters.c, "Last Value").

    Examples
    --------
    >>> forecaster = LastValue()
    >>> for value in [0.9, 0.5]:
    ...     forecaster.update(value)
    >>> forecaster.forecast()
    0.5
    """

    STATEFUL: ClassVar[tuple[str, ...]] = ("_last",)

    def __init__(self) -> None:
        self._last: float | None = None

    def update(self, value: float) -> None:
        """Remember `value` in place of the one before."""
        self._last = checked_value(value)

    def forecast(self) -> float:
        """Return the last value."""
        if self._last is None:
            raise NoValueYetError
        return self._last
