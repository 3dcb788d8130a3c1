"""Backtests: how good the forecasts of each predictor would have been on a recorded series."""

import csv
import math
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nws.engine import layout as at
from nws.engine.multi_horizon import Engine, MultiHorizonForecaster
from nws.errors import InputError
from nws.forecasters.profiles import classic
from nws.forecasters.scored import SamplingGrid
from nws.measurement import checked_value

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
    """What was forecast before every sample of a series; row t was made from the samples before t.

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
        The numbers of samples whose mean was forecast.
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


def trace(values: NDArray[Any], engine: Engine = "numpy") -> BacktestTrace:
    """Run the default and the classic profile through `values` (NaN: missing).

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
        if value == value:  # noqa: PLR0124 - NaN is what differs from itself
            forecaster.update(value)
            started = True
        elif started:
            forecaster.miss()
        if started:
            now = forecaster.all_outlooks(INTERVAL_LEVEL)
            absolute[row], squared[row], lower[row], upper[row], experts[row] = now
            methods[row] = forecaster.method
    return BacktestTrace(
        samples, absolute, squared, lower, upper, tuple(methods), experts, _classic(samples)
    )


def _classic(samples: Numbers) -> Numbers:
    """Return the classic profile's forecasts for both criteria; what is missing it skips."""
    made = np.full((len(samples) + 1, 2), np.nan)
    choices = [classic("absolute"), classic("squared")]
    for row, value in enumerate(samples.tolist(), start=1):
        made[row] = made[row - 1]
        if value == value:  # noqa: PLR0124 - NaN is what differs from itself
            for column, choice in enumerate(choices):
                choice.update(value)
                made[row, column] = choice.forecast()
    return made


def backtest(name: str, values: NDArray[Any], engine: Engine = "numpy") -> dict[str, Any]:
    """Return the report on one series, an entry of ``series`` in the schema ``nws.backtest/1``."""
    return report(name, trace(values, engine))


def report(name: str, run: BacktestTrace) -> dict[str, Any]:
    """Return the report on a trace. Numbers that there is nothing to take from are None."""
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


def document(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the whole document of ``nws backtest --json``."""
    return {"schema": SCHEMA, "series": list(reports)}


MOST_SAMPLES: Final = 50_000_000


def read_recording(path: Path) -> dict[str, Numbers]:
    """Return the series of a file by name: of ``.npz`` its arrays, else of a CSV the one series.

    A CSV has lines ``timestamp,value``, times in seconds since the epoch or ISO 8601, ascending; a
    heading and lines that start with ``#`` are passed over. What is missing from a regular series
    is NaN in the result.

    Raises
    ------
    ValueError
        Permanent: it cannot be read so; the message names the line or the array.
    OSError
        The file cannot be opened.
    """
    if path.suffix == ".npz":
        return _read_arrays(path)
    return {path.stem: _read_lines(path)}


def _read_arrays(path: Path) -> dict[str, Numbers]:
    with path.open("rb") as file:
        if not zipfile.is_zipfile(file):
            raise _invalid(path, "not an npz file")
    found = {}
    with np.load(path, allow_pickle=False) as arrays:
        for name in arrays.files:
            try:
                array = arrays[name]
            except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
                raise _invalid(
                    path, f"{name}: not an array of numbers: {error}", field=name
                ) from error
            found[name] = _series(array, path, name)
    if not found:
        raise _invalid(path, "must contain an array", code="file-empty")
    return found


def _invalid(path: Path, why: str, *, code: str = "file-invalid", **fields: object) -> InputError:
    return InputError(f"{path}: {why}", code=code, file=str(path), **fields)


def _series(array: NDArray[Any], path: Path, name: str) -> Numbers:
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        raise _invalid(
            path,
            f"{name}: must be one row of numbers (is {array.dtype} {array.shape})",
            field=name,
        )
    if not len(array):
        raise _invalid(path, f"{name}: is empty", code="file-empty", field=name)
    if len(array) > MOST_SAMPLES:
        raise _invalid(
            path,
            f"{name}: must have at most {MOST_SAMPLES} samples (has {len(array)})",
            code="too-many-samples",
            field=name,
            value=len(array),
            bound=MOST_SAMPLES,
        )
    values = array.astype(np.float64)
    known = values[~np.isnan(values)]
    if (np.abs(known) > 1e300).any():
        raise _invalid(path, f"{name}: a value is infinite or larger than 1e300", field=name)
    return values


def _read_lines(path: Path) -> Numbers:
    values: list[float] = []
    grid, before = SamplingGrid(), -math.inf
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        try:
            for row in rows:
                if not row or row[0].startswith("#") or (not values and _is_heading(row)):
                    continue
                time, value = _sample(row, path, rows.line_num)
                if not time > before:
                    raise InputError(
                        f"{path}:{rows.line_num}: the time is not later than that of the line before",
                        code="file-invalid",
                        file=str(path),
                        line=rows.line_num,
                        field="timestamp",
                    )
                if values:
                    values += [math.nan] * grid.missing(time - before)
                    grid.update(time - before)
                values.append(value)
                before = time
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError(
                f"{path}:{rows.line_num}: {error}",
                code="file-invalid",
                file=str(path),
                line=rows.line_num,
            ) from error
    if not values:
        raise _invalid(path, "must contain lines of 'timestamp,value'", code="file-empty")
    return np.array(values)


def _is_heading(row: list[str]) -> bool:
    try:
        float(row[-1])
    except ValueError:
        return True
    return False


def _sample(row: list[str], path: Path, line: int) -> tuple[float, float]:
    try:
        time, value = row
        return _seconds(time), checked_value(float(value))
    except ValueError as error:
        given = ",".join(row)
        raise InputError(
            f"{path}:{line}: must be 'timestamp,value' (is {given!r:.80})",
            code="file-invalid",
            file=str(path),
            line=line,
            value=given[:80],
        ) from error


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return datetime.fromisoformat(text.strip()).timestamp()
    return checked_value(seconds)
