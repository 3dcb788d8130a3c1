"""An autoregression on the lags at which the autocorrelation of the series peaks. Needs NumPy."""

from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from nws.forecasters.autoregression import RecursiveLeastSquares, Regression

SHORTEST_HISTORY: Final = 128
LEAST_CORRELATION: Final = 0.1
WINSOR: Final = 3.0
"""Values further from the mean, in standard deviations, count as that far."""


def dominant_lags(values: NDArray[Any], count: int) -> tuple[int, ...]:
    """Return `count` lags to regress on: 1, 2, the two strongest periods and their neighbours.

    A period is a local maximum of the autocorrelation, of lag 3 to half the length; without one,
    or with fewer than 128 values, the lags are 1, 2, .. `count`. The autocorrelation comes from
    the power spectrum (Wiener-Khinchin), in O(n log n).

    Examples
    --------
    >>> week = np.tile([5.0, 5.0, 5.0, 5.0, 5.0, 1.0, 0.0], 40)
    >>> dominant_lags(week, 8)
    (1, 2, 6, 7, 8, 13, 14, 15)
    """
    periods = _periods(np.asarray(values, dtype=np.float64))
    wanted = [1, 2, *(lag for period in periods for lag in (period - 1, period, period + 1))]
    lags = list(dict.fromkeys(wanted))[:count]
    spare = (lag for lag in range(1, 2 * count + 1) if lag not in lags)
    while len(lags) < count:
        lags.append(next(spare))
    return tuple(lags)


def _periods(values: NDArray[np.float64]) -> tuple[int, ...]:
    size = len(values)
    if size < SHORTEST_HISTORY:
        return ()
    away = values - values.mean()
    deviation = away.std()
    if not deviation > 0:
        return ()
    away = np.clip(away, -WINSOR * deviation, WINSOR * deviation)
    spectrum = np.fft.rfft(away, 1 << (2 * size - 1).bit_length())
    likeness = np.fft.irfft(spectrum.real**2 + spectrum.imag**2)[: size // 2 + 1]
    inner = likeness[3:-1]
    peaks = (inner > likeness[2:-2]) & (inner >= likeness[4:])
    peaks &= inner > LEAST_CORRELATION * likeness[0]
    places = np.flatnonzero(peaks)
    strongest = places[np.argsort(-inner[places], kind="stable")][:2]
    return tuple(int(place) + 3 for place in strongest)


HISTORY: Final = 896
REFRESH: Final = 128


class AutoLagAr(Regression):
    """Forecasts by a regression on eight values: the latest two and those one or two periods ago.

    As `RobustAr`, but every 128 values the two strongest periods are looked for in the
    autocorrelation of the latest 896 (`nws.forecasters.auto_lag_ar`); each brings its neighbours. Finds cron jobs
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
        """Look for the periodicity; a lag that stays keeps its weight."""
        standard = np.array([self._standard.of(each) for each in reversed(self._past)])
        lags = list(dominant_lags(standard, 8))
        if lags != self._lags:
            weights = dict(zip(self._lags, self._fit.w, strict=True))
            self._fit = RecursiveLeastSquares(8)
            self._fit.w = [weights.get(lag, 0.0) for lag in lags]
            self._lags = lags
