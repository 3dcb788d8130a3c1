"""The median of the latest values."""

from typing import ClassVar

from nws.forecaster import Forecaster, NoValueYetError
from nws.measurement import checked_value
from nws.window import Window


class SlidingMedian(Forecaster):
    """Forecasts the median of the latest `size` values (NWS 2.x, "Median Window").

    Examples
    --------
    >>> forecaster = SlidingMedian(size=3)
    >>> for value in [1.0, 2.0, 99.0]:
    ...     forecaster.update(value)
    >>> forecaster.forecast()
    2.0
    """

    STATEFUL: ClassVar[tuple[str, ...]] = ("_window",)

    def __init__(self, size: int) -> None:
        self._window = Window(size)

    def update(self, value: float) -> None:
        """Add `value`; the oldest leaves."""
        self._window.push(checked_value(value))

    def forecast(self) -> float:
        """Return the median."""
        if not self._window.ordered:
            raise NoValueYetError
        return self._window.median()
