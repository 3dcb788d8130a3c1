"""What a bank does with the rhythms that `nws.rhythm` hears."""

import numpy as np

from nws.bank import layout as at
from nws.bank import vectors
from nws.bank.vectors import Series
from nws.rhythm import dominant_lags


def look_for_rhythm(series: Series, column: int, tick: int) -> None:
    """Give the auto-lag regression of a series the lags at which it resembles itself."""
    size = int(min(series.age[column] + 1.0, at.HISTORY))
    rows = np.arange(tick + 1 - size, tick + 1) % at.HISTORY
    lags = np.array(dominant_lags(series.history[rows, column], at.LAGS), dtype=np.float64)
    old = series.lag[:, column]
    if np.array_equal(old, lags):
        return
    weights = dict(zip(old.tolist(), series.lag_w[:, column].tolist(), strict=True))
    series.lag_w[:, column] = [weights.get(lag, 0.0) for lag in lags.tolist()]
    series.lag_p[:, :, column] = np.eye(at.LAGS)
    series.lag[:, column] = lags
    part = Series(
        series.wide[:, column : column + 1], series.narrow[:, column : column + 1], series.ladder
    )
    vectors.look_back(part, tick, part.lag_x, part.lag_w, part.lag.astype(np.intp))
