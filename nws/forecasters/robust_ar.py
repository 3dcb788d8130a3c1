"""A robust autoregression."""

from collections import deque
from typing import ClassVar

from nws.forecaster import Forecaster, NoValueYetError
from nws.measurement import checked_value
from nws.recursive import RecursiveLeastSquares, Standard


class RobustAr(Forecaster):
    """Forecasts by a regression on the latest values, which outliers cannot carry away.

    Recursive least squares on values in deviations from an exponentially weighted mean, regressors,
    target and forecast within 6 of them; the forecast stays within the range of the values
    (Dinda, O'Hallaron 1999 recommend AR(16) for host load; the clipping is what makes it safe,
    research/nws 3.3). A value that is missing is taken to be as forecast, and teaches nothing.

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
        "_latest",
        "_x",
        "_fit",
        "_standard",
        "_least",
        "_greatest",
    )

    def __init__(self, order: int = 16) -> None:
        if order < 1:
            raise ValueError(f"an autoregression of order {order} looks at nothing: no window")
        self._latest: deque[float] = deque(maxlen=order)  # newest first
        self._x = [0.0] * order
        self._fit = RecursiveLeastSquares(order)
        self._standard = Standard()
        self._least = self._greatest = 0.0

    def update(self, value: float) -> None:
        """Learn from `value`, then look back from it."""
        value = checked_value(value)
        if self._latest:
            self._fit.update(self._x, self._standard.of(value))
        else:
            self._least = self._greatest = value
        self._standard.update(value)
        self._least, self._greatest = min(self._least, value), max(self._greatest, value)
        self._look_back_from(value)

    def miss(self) -> None:
        """Go on from the forecast."""
        if self._latest:
            self._look_back_from(self.forecast())

    def forecast(self) -> float:
        """Return what the regression makes of the latest values."""
        if not self._latest:
            raise NoValueYetError
        if self._standard.variance == 0:
            return self._latest[0]
        answer = self._standard.back(self._fit.predict(self._x))
        return min(max(answer, self._least), self._greatest)

    def _look_back_from(self, value: float) -> None:
        self._latest.appendleft(value)
        known = [self._standard.of(each) for each in self._latest]
        self._x = known + [0.0] * (len(self._x) - len(known))
