"""The rhythm of a series: at which lags it resembles itself, by its autocorrelation."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

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
