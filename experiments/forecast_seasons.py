"""Measure what the season of the default profile gains, and what it loses, on recorded series.

    python experiments/forecast_seasons.py FILE.npz .. [--most 8000] [--every]

A file holds two arrays for each series, ``NAME|v`` with the values and ``NAME|t`` with their times in seconds.
Each series runs through two forecasters, of which only one knows the times. Series with a period outside 1 minute
to 6 hours, or shorter than 2.5 days, have no season and are left out. `--every` prints each series.

Printed for each horizon above the first: the mean absolute error with the season over the one without it
(geometric mean and worst of the series), the number of series that lose more than 2 % and that gain more than 5 %,
the same ratio of the root mean squared errors, and the share of values that the 90 % intervals of seasonal answers
held. The first 64 answers are not scored. Exit code 1: a forecast one step ahead differs.

Result, 2026-11-30. The constants were chosen on 32 series of the Numenta Anomaly Benchmark (nab). Two sets were
kept aside: the hours and minutes of microsoft/cloud-monitoring-dataset (ms), and every fifth hourly series of the
M4 competition with one of Internet traffic (m4)::

    nab: 32 series
    mean of    MAE  worst  lose  gain   RMSE  worst  lose  coverage
          3  0.971  1.000     0     4  0.975  1.004     0      0.88
          6  0.959  1.000     0     4  0.964  1.013     0      0.86
         12  0.946  1.001     0     5  0.951  1.000     0      0.87
         30  0.961  1.004     0     7  0.965  1.002     0      0.84
         60  0.948  1.012     0     7  0.956  1.007     0      0.80
        120  0.944  1.011     0     8  0.954  1.000     0      0.80

    ms: 56 series
    mean of    MAE  worst  lose  gain   RMSE  worst  lose  coverage
          3  0.957  1.056     1    14  0.967  1.012     0      0.86
          6  0.942  1.025     1    16  0.959  1.093     3      0.85
         12  0.945  1.109     2    13  0.959  1.231     2      0.84
         30  0.989  1.008     0     6  0.990  1.003     0      0.77
         60  0.993  1.035     1     2  0.992  1.029     1      0.79
        120  0.994  1.053     2     2  0.995  1.041     1      0.77

    m4: 84 series
    mean of    MAE  worst  lose  gain   RMSE  worst  lose  coverage
          3  0.549  1.008     0    81  0.570  1.003     0      0.90
          6  0.502  1.022     1    82  0.566  1.000     0      0.89
         12  0.525  1.012     0    75  0.613  1.000     0      0.88
         30  0.779  1.017     0    44  0.859  1.010     0      0.85
         60  0.926  1.042     1    27  0.963  1.053     1      0.92
        120  1.000  1.000     0     0  1.000  1.000     0       nan

Of single series, mean of 12: New York taxis 0.49, orders of a shop (ms purchase-04) 0.61, requests of an API
(ms api-01) 0.72; the worst is the latency of a service (ms outbound-01) with 1.11.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from nws import HORIZONS, MultiHorizonForecaster

UNSCORED = 64
DAY = 86_400.0


def series_of(path: Path, most: int) -> dict[str, tuple[np.ndarray, float]]:
    """Return values and period of the series of a file that may have a season."""
    series = {}
    with np.load(path) as arrays:
        for name in (key[:-2] for key in arrays if key.endswith("|v")):
            values = arrays[f"{name}|v"][:most].astype(float)
            period = float(np.median(np.diff(arrays[f"{name}|t"])))
            if 60 <= period <= 6 * 3600 and len(values) * period > 2.5 * DAY:
                series[name] = values, period
    return series


def means(values: np.ndarray, horizon: int) -> np.ndarray:
    """Return the mean of the next `horizon` values before each value."""
    sums = np.concatenate(([0.0], np.cumsum(values)))
    return (sums[horizon:] - sums[:-horizon]) / horizon


def measure(values: np.ndarray, period: float) -> np.ndarray:
    """Return for every horizon: ratio of MAE, ratio of RMSE, coverage of seasonal answers (NaN without any)."""
    seasonal, plain = (MultiHorizonForecaster(engine="auto") for _ in range(2))
    shape = (4, len(values), len(HORIZONS))
    ours, theirs = np.full(shape, np.nan), np.full(shape, np.nan)
    for row, value in enumerate(values[:-1].tolist()):
        seasonal.clock(row * period, period)
        for forecaster, answers in ((seasonal, ours), (plain, theirs)):
            forecaster.update(value)
            answers[:, row + 1] = forecaster.all_outlooks()[:4]
    if not np.array_equal(ours[:, :, 0], theirs[:, :, 0], equal_nan=True):
        raise SystemExit("a forecast one step ahead differs")
    result = np.ones((len(HORIZONS), 3))
    for column, horizon in enumerate(HORIZONS):
        actual = means(values, horizon)[UNSCORED:]
        rows = slice(UNSCORED, UNSCORED + len(actual))
        mine, other = ours[:, rows, column], theirs[:, rows, column]
        result[column, 0] = np.abs(mine[0] - actual).mean() / np.abs(other[0] - actual).mean()
        square = [((answers[1] - actual) ** 2).mean() for answers in (mine, other)]
        result[column, 1] = np.sqrt(square[0] / square[1])
        held = ((mine[2] <= actual) & (actual <= mine[3]))[mine[0] != other[0]]
        result[column, 2] = held.mean() if len(held) > UNSCORED else np.nan
    return result


def main() -> None:
    """Print one table a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--most", type=int, default=8000, help="samples of a series")
    parser.add_argument("--every", action="store_true", help="print each series")
    asked = parser.parse_args()
    for path in asked.files:
        results = {}
        for name, (values, period) in series_of(path, asked.most).items():
            results[name] = measure(values, period)
            if np.isnan(results[name][:, :2]).any():  # a constant series: every forecast is right
                del results[name]
            elif asked.every:
                print(
                    f"{name:44} {period:6.0f} s  MAE",
                    np.round(results[name][1:, 0], 3),
                    flush=True,
                )
        table = np.array(list(results.values()))
        print(f"{path.stem}: {len(table)} series")
        print("mean of    MAE  worst  lose  gain   RMSE  worst  lose  coverage")
        for column, horizon in enumerate(HORIZONS[1:], start=1):
            mae, rmse, held = table[:, column].T
            known = held[~np.isnan(held)]
            print(
                f"{horizon:7} {np.exp(np.log(mae).mean()):6.3f} {mae.max():6.3f} {(mae > 1.02).sum():5}"
                f" {(mae < 0.95).sum():5} {np.exp(np.log(rmse).mean()):6.3f} {rmse.max():6.3f}"
                f" {(rmse > 1.02).sum():5} {known.mean() if len(known) else np.nan:9.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
