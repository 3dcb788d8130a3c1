"""Backtests: how good the forecasts of each predictor would have been on a recorded series."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nws.engine import layout as at
from nws.engine.multi_horizon import Engine, MultiHorizonForecaster
from nws.forecasters.profiles import classic
from nws.recordings import Recording

SCHEMA: Final = "nws.backtest/1"
UNSCORED: Final = 64
"""Samples at the start that are learnt from but not scored."""
INTERVAL_LEVEL: Final = 0.9
REPORTED: Final = (12, 60)
"""Horizons in the report."""
GAUSS: Final = 1.645
"""Half the width, in standard deviations, of the interval that holds 0.9 of a normal distribution."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class BacktestTrace:
    """The forecasts before every sample of a series; row t was made from the samples before t.

    Attributes
    ----------
    values
        The samples, T of them; NaN where one is missing.
    absolute, squared
        (T + 1, horizons): the default profile's forecasts for the two criteria, by horizon (see `horizons`).
    lower, upper
        (T + 1, horizons): its intervals of level 0.9.
    method
        (T + 1): the predictor behind ``absolute[:, 0]``.
    experts
        (T + 1, E): the forecasts of its predictors, `nws.engine.layout.EXPERTS`.
    classic
        (T + 1, 2): the classic profile's, for the criteria absolute and squared.
    horizons
        The horizons: numbers of samples in the means.
    """

    values: Numbers
    absolute: Numbers
    squared: Numbers
    lower: Numbers
    upper: Numbers
    method: tuple[str, ...]
    experts: Numbers
    classic: Numbers
    horizons: tuple[int, ...] = at.HORIZONS


def trace(
    values: NDArray[Any], engine: Engine = "numpy", period: float | None = None
) -> BacktestTrace:
    """Run the default and the classic profile through `values` (NaN: missing).

    With a `period`, the seconds between two values, the default profile may find a season.

    Raises
    ------
    ValueError
        Permanent: a value is infinite or larger than 1e300.
    """
    samples = np.asarray(values, dtype=np.float64)
    size, horizons = len(samples), len(at.HORIZONS)
    absolute, squared, lower, upper = np.full((4, size + 1, horizons), np.nan)
    experts = np.full((size + 1, at.E), np.nan)
    methods = ["nothing yet"] * (size + 1)
    forecaster, started = MultiHorizonForecaster(engine=engine), False
    for row, value in enumerate(samples.tolist(), start=1):
        forecaster.clock(row * (period or 0.0), period)
        if value == value:  # noqa: PLR0124 - only NaN differs from itself
            forecaster.update(value)
            started = True
        elif started:
            forecaster.skip()
        if started:
            now = forecaster.all_outlooks(INTERVAL_LEVEL)
            absolute[row], squared[row], lower[row], upper[row], experts[row] = now
            methods[row] = forecaster.method
    return BacktestTrace(
        samples, absolute, squared, lower, upper, tuple(methods), experts, _classic(samples)
    )


def _classic(samples: Numbers) -> Numbers:
    """Return the classic profile's forecasts for both criteria; it ignores missing samples."""
    made = np.full((len(samples) + 1, 2), np.nan)
    choices = [classic("absolute"), classic("squared")]
    for row, value in enumerate(samples.tolist(), start=1):
        made[row] = made[row - 1]
        if value == value:  # noqa: PLR0124 - only NaN differs from itself
            for column, choice in enumerate(choices):
                choice.update(value)
                made[row, column] = choice.forecast()
    return made


def backtest(
    name: str, values: NDArray[Any], engine: Engine = "numpy", period: float | None = None
) -> dict[str, Any]:
    """Return the report on one series, an entry of ``series`` in the schema ``nws.backtest/1``."""
    return report(name, trace(values, engine, period))


def report(name: str, run: BacktestTrace) -> dict[str, Any]:
    """Return the report on a trace. Figures without samples are None."""
    predictors = {
        expert: _errors(run.experts[:, column], run.experts[:, column], run.values)
        for column, expert in enumerate(at.EXPERTS)
    }
    both = _errors(run.absolute[:, 0], run.squared[:, 0], run.values)
    classic_errors = _errors(run.classic[:, 0], run.classic[:, 1], run.values)
    return {
        "name": name,
        "n": int(np.count_nonzero(~np.isnan(run.values))),
        **both,
        "classic": classic_errors,
        "last_value": predictors["last_value"],
        "interval": _interval(run, classic_errors["rmse"]),
        "horizons": {str(horizon): _horizon(run, horizon) for horizon in REPORTED},
        "predictors": predictors,
    }


def means(values: Numbers, horizon: int) -> Numbers:
    """Return the means of ``values[t : t + horizon]``; NaN where fewer than half are known."""
    if len(values) < horizon:
        return np.empty(0)
    windows = np.lib.stride_tricks.sliding_window_view(values, horizon)
    known = np.count_nonzero(~np.isnan(windows), axis=1)
    enough = 2 * known >= horizon
    result = np.full(len(windows), np.nan)
    result[enough] = np.nansum(windows[enough], axis=1) / known[enough]
    return result


def _mean(numbers: Numbers) -> float | None:
    known = numbers[~np.isnan(numbers)]
    return float(known.mean()) if len(known) else None


def _errors(absolute: Numbers, squared: Numbers, values: Numbers) -> dict[str, float | None]:
    rows = slice(UNSCORED, len(values))
    mse = _mean((squared[rows] - values[rows]) ** 2)
    return {
        "mae": _mean(np.abs(absolute[rows] - values[rows])),
        "rmse": None if mse is None else float(np.sqrt(mse)),
    }


def _interval(run: BacktestTrace, classic_rmse: float | None) -> dict[str, float | None]:
    rows = slice(UNSCORED, len(run.values))
    value, lower, upper = run.values[rows], run.lower[rows, 0], run.upper[rows, 0]
    inside = np.where(np.isnan(value), np.nan, (value >= lower) & (value <= upper))
    width = _mean(upper - lower)
    ratio = width / (2 * GAUSS * classic_rmse) if width is not None and classic_rmse else None
    return {"level": INTERVAL_LEVEL, "coverage": _mean(inside), "width_ratio": ratio}


def _horizon(run: BacktestTrace, horizon: int) -> dict[str, float | None]:
    actual = means(run.values, horizon)[UNSCORED:]
    rows = slice(UNSCORED, UNSCORED + len(actual))
    place = run.horizons.index(horizon)
    lower, upper = run.lower[rows, place], run.upper[rows, place]
    inside = np.where(np.isnan(actual), np.nan, (actual >= lower) & (actual <= upper))
    return {
        "mae": _mean(np.abs(run.absolute[rows, place] - actual)),
        "classic_one_step_mae": _mean(np.abs(run.classic[rows, 0] - actual)),
        "coverage": _mean(inside),
    }


def document(
    reports: Sequence[Mapping[str, Any]], recording: Recording | None = None
) -> dict[str, Any]:
    """Return the whole document of ``nws backtest --json``."""
    read = Recording() if recording is None else recording
    return {
        "schema": SCHEMA,
        "series": list(reports),
        "left_out": read.left_out,
        "left_out_reasons": read.reasons,
        "notes": read.notes,
    }
