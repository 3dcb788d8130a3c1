"""The lags of the auto-lag regression of a series, renewed from time to time."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nws.engine import layout as at
from nws.engine.tick import Narrow, Wide, look_back

MIN_HISTORY: Final = 128
MIN_CORRELATION: Final = 0.1
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
    if size < MIN_HISTORY:
        return ()
    away = values - values.mean()
    deviation = away.std()
    if not deviation > 0:
        return ()
    away = np.clip(away, -WINSOR * deviation, WINSOR * deviation)
    spectrum = np.fft.rfft(away, 1 << (2 * size - 1).bit_length())
    autocorrelation = np.fft.irfft(spectrum.real**2 + spectrum.imag**2)[: size // 2 + 1]
    inner = autocorrelation[3:-1]
    peaks = (inner > autocorrelation[2:-2]) & (inner >= autocorrelation[4:])
    peaks &= inner > MIN_CORRELATION * autocorrelation[0]
    places = np.flatnonzero(peaks)
    strongest = places[np.argsort(-inner[places], kind="stable")][:2]
    return tuple(int(place) + 3 for place in strongest)


def update_lags(wide: Wide, narrow: Narrow, tick: int) -> None:
    """Give the auto-lag regression of a series its dominant lags; a lag that stays keeps its weight."""
    size = int(min(at.WIDE["age"].of(wide) + 1.0, at.HISTORY))
    rows = np.arange(tick + 1 - size, tick + 1) % at.HISTORY
    history = at.NARROW["history"].of(narrow)
    lags = np.array(dominant_lags(history[rows], at.LAGS), dtype=np.float64)
    old, w = at.WIDE["lag"].of(wide), at.WIDE["lag_w"].of(wide)
    if np.array_equal(old, lags):
        return
    weights = dict(zip(old.tolist(), w.tolist(), strict=True))
    w[:] = [weights.get(lag, 0.0) for lag in lags.tolist()]
    at.WIDE["lag_p"].of(wide)[:] = np.eye(at.LAGS)
    old[:] = lags
    look_back(wide, narrow, tick, at.WIDE["lag_x"].of(wide), old)
