"""`Regression`: what the autoregressions on one series have in common."""

from abc import abstractmethod
from collections import deque

from nws.forecaster import Forecaster, NoValueYetError
from nws.measurement import checked_value
from nws.recursive import RecursiveLeastSquares, Standard


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
        self._standard = Standard()
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
