"""An autoregression on the lags at which the series resembles itself. Needs NumPy."""

from collections import deque
from typing import ClassVar, Final

import numpy as np

from nws.forecaster import Forecaster, NoValueYetError
from nws.measurement import checked_value
from nws.recursive import RecursiveLeastSquares, Standard
from nws.rhythm import dominant_lags

HISTORY: Final = 896
REFRESH: Final = 128


class AutoLagAr(Forecaster):
    """Forecasts by a regression on eight values: the latest two and those one or two periods ago.

    As `RobustAr`, but every 128 values the two strongest periods are looked for in the
    autocorrelation of the latest 896 (`nws.rhythm`); each brings its neighbours. Finds cron jobs
    and other clockwork up to 448 samples long (research/nws 3.3).

    Examples
    --------
    >>> forecaster = AutoLagAr()
    >>> for value in ([0.0] * 29 + [1.0]) * 30:
    ...     forecaster.update(value)
    >>> 30 in forecaster.lags
    True
    """

    STATEFUL: ClassVar[tuple[str, ...]] = (
        "_history",
        "_count",
        "_lags",
        "_x",
        "_fit",
        "_standard",
        "_least",
        "_greatest",
    )

    def __init__(self) -> None:
        self._history: deque[float] = deque(maxlen=HISTORY)  # newest first
        self._count = 0
        self._lags = list(range(1, 9))
        self._x = [0.0] * 8
        self._fit = RecursiveLeastSquares(8)
        self._standard = Standard()
        self._least = self._greatest = 0.0

    @property
    def lags(self) -> tuple[int, ...]:
        """How many values back it looks."""
        return tuple(self._lags)

    def update(self, value: float) -> None:
        """Learn from `value`, then look back from it."""
        value = checked_value(value)
        if self._history:
            self._fit.update(self._x, self._standard.of(value))
        else:
            self._least = self._greatest = value
        self._standard.update(value)
        self._least, self._greatest = min(self._least, value), max(self._greatest, value)
        self._look_back_from(value)

    def miss(self) -> None:
        """Go on from the forecast."""
        if self._history:
            self._look_back_from(self.forecast())

    def forecast(self) -> float:
        """Return what the regression makes of the values at the lags."""
        if not self._history:
            raise NoValueYetError
        if self._standard.variance == 0:
            return self._history[0]
        answer = self._standard.back(self._fit.predict(self._x))
        return min(max(answer, self._least), self._greatest)

    def _look_back_from(self, value: float) -> None:
        self._history.appendleft(value)
        self._count += 1
        if self._count % REFRESH == 0:
            self._listen()
        known = len(self._history)
        self._x = [
            self._standard.of(self._history[lag - 1]) if lag <= known else 0.0
            for lag in self._lags
        ]

    def _listen(self) -> None:
        """Look for the rhythm; a lag that stays keeps its weight."""
        standard = np.array([self._standard.of(each) for each in reversed(self._history)])
        lags = list(dominant_lags(standard, 8))
        if lags != self._lags:
            weights = dict(zip(self._lags, self._fit.w, strict=True))
            self._fit = RecursiveLeastSquares(8)
            self._fit.w = [weights.get(lag, 0.0) for lag in lags]
            self._lags = lags
