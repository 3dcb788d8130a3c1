"""How fast the forecasts are made: updates a second and milliseconds a tick, with and without numba.

Run: python benchmarks/forecast_speed.py [--seconds 2] [--series 10000]
CPU time of this process, the best stretch of 400 updates or tick of many; one line a bar; exit 1
when a bar is missed. Bytes are the state's.
"""

import argparse
import sys
import time

import numpy as np

from nws import HORIZONS, MultiHorizonForecaster, classic


def seconds_per_update(forecaster, values, seconds):
    """Return the CPU seconds of an update, the forecast asked for after each."""
    for value in values[:950]:  # until the history is full
        forecaster.update(value)
    best, done, start = float("inf"), 0, time.process_time()
    while time.process_time() - start < seconds:
        before = time.process_time()
        for value in values[done % 1600 : done % 1600 + 400]:
            forecaster.update(value)
            forecaster.forecast()
        best, done = min(best, (time.process_time() - before) / 400), done + 400
    return best


def seconds_per_tick(count, horizons, seconds):
    """Return CPU seconds of a tick of so many series, a forecaster each, and the bytes of one."""
    values = np.abs(np.random.default_rng(2).normal(size=(64, count))).tolist()
    forecasters = [MultiHorizonForecaster("absolute", horizons, "numba") for _ in range(count)]
    for tick in range(950):  # until the history is full
        for forecaster, value in zip(forecasters, values[tick % 64], strict=True):
            forecaster.update(value)
    best, start, tick = float("inf"), time.process_time(), 0
    while time.process_time() - start < seconds or tick < 6:
        before = time.process_time()
        for forecaster, value in zip(forecasters, values[tick % 64], strict=True):
            forecaster.update(value)
            forecaster.forecast()
        best, tick = min(best, time.process_time() - before), tick + 1
    fields = forecasters[0].fields
    return best, fields.wide.nbytes + fields.narrow.nbytes


def main():
    """Print the table; return the exit code."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=2.0)
    options.add_argument("--series", type=int, default=10_000, help="measured at the same ticks")
    options = options.parse_args()
    seconds = options.seconds
    values = np.abs(np.random.default_rng(1).normal(size=2300)).tolist()
    missed = 0

    def say(what, got, sign, bar, unit):
        nonlocal missed
        met = bar is None or (got >= bar if sign == ">=" else got <= bar)
        missed += not met
        asked = "" if bar is None else f"  (asked {sign} {bar:,} {unit})"
        print(
            f"{'met   ' if met else 'MISSED'} {what:<48} {got:>12,.1f} {unit}{asked}", flush=True
        )

    say("classic", 1 / seconds_per_update(classic(), values, seconds), ">=", None, "updates/s")
    for engine, horizons, bar in (
        ("numpy", (1,), None),
        ("numpy", HORIZONS, 5_000),
        ("numba", (1,), 150_000),
        ("numba", HORIZONS, None),
    ):
        rate = 1 / seconds_per_update(
            MultiHorizonForecaster("absolute", horizons, engine), values, seconds
        )
        say(f"one series, {engine}, {len(horizons)} horizons", rate, ">=", bar, "updates/s")
    count = options.series
    for horizons, bar in (((1,), 60), (HORIZONS, None)):
        tick, size = seconds_per_tick(count, horizons, seconds)
        asked = bar if count == 10_000 else None
        say(
            f"{count:,} series, numba, {len(horizons)} horizons",
            tick * 1e3,
            "<=",
            asked,
            "ms/tick",
        )
    say("state of a series, all horizons", size / 1000, "<=", 26, "kB")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
