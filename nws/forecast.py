"""Forecasts: a number with its error, and an interval with the coverage it has reached."""

import math
from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True, slots=True)
class Interval:
    """Where a value is expected to lie.

    Attributes
    ----------
    lower, upper
        The ends, in the unit of the series, within its physical bounds.
    level
        The share of values that such intervals are meant to contain, in (0, 1).
    coverage
        The share that they have contained so far; ``None`` before the first.
    """

    lower: float
    upper: float
    level: float
    coverage: float | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """The value to expect of a series, the error of such values so far, and their predictor.

    Attributes
    ----------
    value
        The forecast, in the unit of its series.
    error
        Mean absolute error, same unit, of the forecasts made for this series so far: the error of
        the choice, not of the predictor that happens to be best. ``None`` until a forecast has met
        the value it was made for (so never a zero that means "unknown").
    method
        The predictor, or mixture of predictors, of the value.
    samples
        The number of measurements so far; 0 if the forecaster does not count them.
    time
        Time of the last measurement, in seconds since the epoch; minus infinity from a forecaster, which has no
        clock (see `nws.forecasters.scored.ScoredForecaster`).
    rmse
        Root mean squared error, same unit, of the forecasts made for the criterion ``squared``;
        ``None`` if not known.
    horizon
        The value is the mean of this many samples to come: the forecaster's horizon nearest to the
        question. `error`, `rmse` and `interval` are of such means.
    over
        The same in seconds, if the period of the series is known; else ``None``.
    interval
        Where the mean will lie; ``None`` from a forecaster without intervals. It contains the forecast for the
        squared error. The forecast for the absolute error, nearer to a median, may lie outside it if the series is
        very skewed.
    """

    value: float
    error: float | None
    method: str
    samples: int = 0
    time: float = -math.inf
    rmse: float | None = None
    horizon: int = 1
    over: float | None = None
    interval: Interval | None = None

    def scaled(self, factor: float) -> Self:
        """Return the forecast of `factor` times the quantity, errors and interval with it.

        Examples
        --------
        >>> Forecast(8.0, 2.0, "last_value", 9, 0.0).scaled(0.5).error
        1.0
        """
        interval = self.interval
        if interval is not None:
            ends = factor * interval.lower, factor * interval.upper
            interval = replace(interval, lower=ends[0], upper=ends[1])
        error = None if self.error is None else factor * self.error
        rmse = None if self.rmse is None else factor * self.rmse
        return replace(self, value=factor * self.value, error=error, rmse=rmse, interval=interval)

    def age(self, now: float) -> float:
        """Return the seconds from the last measurement to `now`; never negative."""
        return max(0.0, now - self.time)
