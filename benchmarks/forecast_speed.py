"""The speed of forecasts: updates a second and milliseconds a tick of many series, with and without numba.

CPU time of this process. Bytes are those of the state.
"""

import time

import numpy as np

from benchmarks.common import Row
from nws import HORIZONS, MultiHorizonForecaster, classic


def seconds_per_update(forecaster, values, seconds):
    """Return the CPU seconds of an update with its forecast, the best of stretches of 400."""
    for value in values[:950]:  # fills the history
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
    """Return the CPU seconds of a tick of `count` series with a forecaster each, and the bytes of one state."""
    values = np.abs(np.random.default_rng(2).normal(size=(64, count))).tolist()
    forecasters = [MultiHorizonForecaster("absolute", horizons, "numba") for _ in range(count)]
    for tick in range(950):  # fills the history
        for forecaster, value in zip(forecasters, values[tick % 64], strict=True):
            forecaster.update(value)
    best, start, tick = float("inf"), time.process_time(), 0
    while time.process_time() - start < seconds or tick < 6:
        before = time.process_time()
        for forecaster, value in zip(forecasters, values[tick % 64], strict=True):
            forecaster.update(value)
            forecaster.forecast()
        best, tick = min(best, time.process_time() - before), tick + 1
    state = forecasters[0]
    return best, state._wide.nbytes + state._narrow.nbytes


def updates(settings):
    """Measure the updates of one series."""
    values = np.abs(np.random.default_rng(1).normal(size=2300)).tolist()
    cases = [("classic", classic(), None)]
    for engine, horizons, bar in (
        ("numpy", (1,), None),
        ("numpy", HORIZONS, 5_000),
        ("numba", (1,), 150_000),
        ("numba", HORIZONS, None),
    ):
        forecaster = MultiHorizonForecaster("absolute", horizons, engine)
        cases.append((f"{engine}, {len(horizons)} horizons", forecaster, bar))
    for name, forecaster, bar in cases:
        rate = 1 / seconds_per_update(forecaster, values, settings.pick(2.0, 0.1))
        yield Row(name, f"one series: {name}", rate, "updates/s", at_least=bar)


def ticks(settings):
    """Measure a tick of 10,000 series."""
    count = settings.pick(10_000, 20)
    for horizons, bar in (((1,), 60), (HORIZONS, None)):
        seconds, size = seconds_per_tick(count, horizons, settings.pick(2.0, 0.1))
        name = f"{len(horizons)} horizons"
        yield Row(
            name, f"tick of {count:,} series, numba, {name}", 1e3 * seconds, "ms CPU", at_most=bar
        )
    yield Row("state", "state of a series, all horizons", size / 1000, "kB", at_most=26)


PARTS = {"updates": updates, "ticks": ticks}
