"""An autoregression on the lags at which the series resembles itself. Needs NumPy."""

from typing import ClassVar, Final

import numpy as np

from nws.recursive import RecursiveLeastSquares
from nws.regression import Regression
from nws.rhythm import dominant_lags

HISTORY: Final = 896
REFRESH: Final = 128


class AutoLagAr(Regression):
    """Forecasts by a regression on eight values: the latest two and those one or two periods ago.

    As `RobustAr`, but every 128 values the two strongest periods are looked for in the
    autocorrelation of the latest 896 (`nws.rhythm`); each brings its neighbours. Finds cron jobs
    and other clockwork up to 448 samples long.

    Examples
    --------
    >>> forecaster = AutoLagAr()
    >>> for value in ([0.0] * 29 + [1.0]) * 30:
    ...     forecaster.update(value)
    >>> 30 in forecaster.lags
    True
    """

    STATEFUL: ClassVar[tuple[str, ...]] = (
        "_past",
        "_count",
        "_lags",
        "_x",
        "_fit",
        "_standard",
        "_least",
        "_greatest",
    )

    def __init__(self) -> None:
        super().__init__(8, HISTORY)
        self._count = 0
        self._lags = list(range(1, 9))

    @property
    def lags(self) -> tuple[int, ...]:
        """How many values back it looks."""
        return tuple(self._lags)

    def _look_back_from(self, value: float) -> None:
        self._past.appendleft(value)
        self._count += 1
        if self._count % REFRESH == 0:
            self._listen()
        known = len(self._past)
        self._x = [
            self._standard.of(self._past[lag - 1]) if lag <= known else 0.0 for lag in self._lags
        ]

    def _listen(self) -> None:
        """Look for the rhythm; a lag that stays keeps its weight."""
        standard = np.array([self._standard.of(each) for each in reversed(self._past)])
        lags = list(dominant_lags(standard, 8))
        if lags != self._lags:
            weights = dict(zip(self._lags, self._fit.w, strict=True))
            self._fit = RecursiveLeastSquares(8)
            self._fit.w = [weights.get(lag, 0.0) for lag in lags]
            self._lags = lags
