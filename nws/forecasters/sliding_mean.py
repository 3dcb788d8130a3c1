"""The mean of the latest values."""

from typing import ClassVar

from nws.forecaster import Forecaster, NoValueYetError
from nws.measurement import checked_value
from nws.window import Window


class SlidingMean(Forecaster):
    """Forecasts the mean of the latest `size` values.

    NWS 2.x calls this "Sliding Median", but trims none of the window away before it averages.

    Examples
    --------
    >>> forecaster = SlidingMean(size=2)
    >>> for value in [9.0, 1.0, 2.0]:
    ...     forecaster.update(value)
    >>> forecaster.forecast()
    1.5
    """

    STATEFUL: ClassVar[tuple[str, ...]] = ("_window",)

    def __init__(self, size: int) -> None:
        self._window = Window(size)

    def update(self, value: float) -> None:
        """Add `value`; the oldest leaves."""
        self._window.push(checked_value(value))

    def forecast(self) -> float:
        """Return the mean, added up afresh: a running sum never forgets one huge value."""
        ordered = self._window.ordered
        if not ordered:
            raise NoValueYetError
        mean = sum(ordered) / len(ordered)
        return min(max(mean, ordered[0]), ordered[-1])  # rounding must not leave the range
