"""The contracts of the NWS as functions that run: one promise each.

Every check takes a function that makes a fresh object under test, and raises AssertionError with
the promise that was broken. They run on all implementations here, and on yours:

    for check in nws.checks.FORECASTER_CHECKS:
        check(lambda: MyForecaster(gain=0.2))

Reading order: forecasters (`FORECASTER_CHECKS`, `AVERAGING_CHECKS` for those that never leave the
range of their values, `STATE_CHECKS` for those that can be saved, `FRAME_CHECKS` for those that
look over a frame), sensors (`SENSOR_CHECKS`), memories (`MEMORY_CHECKS`).
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Final

from nws.forecaster import Forecaster
from nws.forecaster_checks import FRAME_CHECKS, STATE_CHECKS
from nws.measurement import Measurement, SeriesName
from nws.memory import Memory, RefusedError
from nws.sensor import Sensor

__all__ = [
    "AVERAGING_CHECKS",
    "FORECASTER_CHECKS",
    "FRAME_CHECKS",
    "MEMORY_CHECKS",
    "SENSOR_CHECKS",
    "STATE_CHECKS",
]

MakeForecaster = Callable[[], Forecaster]
MakeSensor = Callable[[], Sensor]
MakeMemory = Callable[[], Memory]

WALK: Final = tuple(
    0.5 + 0.3 * math.sin(step / 3) + 0.2 * ((step * 7919) % 101) / 101 for step in range(120)
)
"""A series with a rhythm and something like noise, longer than any window of the NWS."""
EXTREME: Final = (0.0, 1e300, -1e300, 1.0, 5e-324, -5e-324, 1e300, 1e300, 0.5) * 8
NOT_MEASURABLE: Final = (math.nan, math.inf, -math.inf, 1e301)

ADA: Final = SeriesName("availableCpu", "ada")
BOB: Final = SeriesName("availableCpu", "bob")


def check_there_is_no_forecast_before_a_value(make: MakeForecaster) -> None:
    """Check that before the first update `forecast` raises LookupError."""
    _raises(LookupError, make().forecast, "a forecaster without values must not forecast")


def check_asking_changes_nothing(make: MakeForecaster) -> None:
    """Check that one asked after every value forecasts as one that never was."""
    asked, left_alone = make(), make()
    for value in WALK:
        asked.update(value)
        first = asked.forecast()
        _require(asked.forecast() == first, "the same question, another answer")
        left_alone.update(value)
    _require(asked.forecast() == left_alone.forecast(), "asking changed the forecast")


def check_equal_values_give_equal_forecasts(make: MakeForecaster) -> None:
    """Check that two that are given the same values forecast the same, at every step."""
    one, other = make(), make()
    for value in WALK:
        one.update(value)
        other.update(value)
        _require(one.forecast() == other.forecast(), "the same values, another forecast")


def check_what_never_changed_stays(make: MakeForecaster) -> None:
    """Check that a constant series is forecast to go on."""
    for constant in (0.0, 0.1, -3.0, 1e300):
        forecaster = make()
        for _ in range(120):
            forecaster.update(constant)
            _require(
                math.isclose(forecaster.forecast(), constant, rel_tol=1e-9),
                f"{constant} always, but {forecaster.forecast()} is forecast",
            )


def check_forecasts_are_finite(make: MakeForecaster) -> None:
    """Check that values up to 1e300, of either sign, make no forecast infinite or NaN."""
    forecaster = make()
    for value in EXTREME:
        forecaster.update(value)
        _require(math.isfinite(forecaster.forecast()), f"{forecaster.forecast()} is forecast")


def check_nonsense_is_refused_and_leaves_no_trace(make: MakeForecaster) -> None:
    """Check that NaN, infinite and too large values raise ValueError and change nothing."""
    fresh = make()
    for nonsense in NOT_MEASURABLE:
        _raises(ValueError, partial(fresh.update, nonsense), f"{nonsense} was taken")
    _raises(LookupError, fresh.forecast, "a refused value left a forecast behind")
    offered, spared = make(), make()
    for step, value in enumerate(WALK):
        nonsense = NOT_MEASURABLE[step % len(NOT_MEASURABLE)]
        _raises(ValueError, partial(offered.update, nonsense), f"{nonsense} was taken")
        offered.update(value)
        spared.update(value)
        _require(offered.forecast() == spared.forecast(), f"{nonsense} left a trace")


def check_a_method_has_a_name(make: MakeForecaster) -> None:
    """Check that after any update `method` is a name."""
    forecaster = make()
    for value in WALK[:10]:
        forecaster.update(value)
        _require(bool(forecaster.method.strip()), "the method has no name")


def check_forecasts_stay_among_the_values(make: MakeForecaster) -> None:
    """Check that the forecast lies between the least and the greatest value so far."""
    for values in (WALK, EXTREME, (0.1,) * 60, (0.0,) * 60 + (1.0,) * 60):
        forecaster = make()
        least, greatest = math.inf, -math.inf
        for value in values:
            forecaster.update(value)
            least, greatest = min(least, value), max(greatest, value)
            answer = forecaster.forecast()
            _require(least <= answer <= greatest, f"{answer} is not in [{least}, {greatest}]")


def check_each_series_is_measured_once_and_in_order(make: MakeSensor) -> None:
    """Check that `measure` gives one measurement for each of `series`, in that order."""
    sensor = make()
    names = sensor.series
    _require(len(names) >= 1, "a sensor without a series")
    _require(len(set(names)) == len(names), "a series is named twice")
    measured = tuple(measurement.series for measurement in sensor.measure())
    _require(measured == names, f"{measured} were measured, {names} announced")
    _require(sensor.series == names, "measuring changed the series")


def check_measured_values_are_amounts(make: MakeSensor) -> None:
    """Check that measured values and times are finite and values not negative."""
    for measurement in make().measure():
        _require(math.isfinite(measurement.time), f"measured at {measurement.time}")
        _require(0 <= measurement.value < math.inf, f"{measurement.series}: {measurement.value}")


def check_time_goes_forward(make: MakeSensor) -> None:
    """Check that a second measurement is not earlier than the first."""
    sensor = make()
    first, second = sensor.measure(), sensor.measure()
    _require(
        max(one.time for one in first) <= min(other.time for other in second),
        "the second measurement is earlier than the first",
    )


def check_what_was_stored_can_be_fetched(make: MakeMemory) -> None:
    """Check that a new measurement says True, is fetched as it was, its series listed."""
    memory = make()
    measurement = Measurement(ADA, 1.0, 0.5)
    _require(memory.store(measurement) is True, "a new measurement was not new")
    _require(memory.fetch(ADA) == (measurement,), f"fetched {memory.fetch(ADA)}")
    _require(memory.series() == (ADA,), f"listed {memory.series()}")


def check_storing_again_changes_nothing(make: MakeMemory) -> None:
    """Check that the first value of a time stays; storing the same or another says False."""
    memory = make()
    memory.store(Measurement(ADA, 1.0, 0.5))
    _require(memory.store(Measurement(ADA, 1.0, 0.5)) is False, "the same was new twice")
    _require(memory.store(Measurement(ADA, 1.0, 0.9)) is False, "a time was taken twice")
    _require(memory.fetch(ADA) == (Measurement(ADA, 1.0, 0.5),), "the first value did not stay")


def check_fetching_is_in_the_order_of_time(make: MakeMemory) -> None:
    """Check that what comes in any order is fetched oldest first, and series do not mix."""
    memory = make()
    for time in (3.0, 1.0, 4.0, 2.0):
        memory.store(Measurement(ADA, time, time / 10))
        memory.store(Measurement(BOB, time, time / 20))
    fetched = memory.fetch(ADA)
    _require(
        fetched == tuple(Measurement(ADA, time, time / 10) for time in (1.0, 2.0, 3.0, 4.0)),
        f"fetched {fetched}",
    )
    _require(memory.series() == (ADA, BOB), f"listed {memory.series()}")


def check_fetching_can_be_limited(make: MakeMemory) -> None:
    """Check that `after` excludes its own time and `count` keeps the latest."""
    memory = make()
    for time in (1.0, 2.0, 3.0, 4.0):
        memory.store(Measurement(ADA, time, 0.5))

    def times(after: float = -math.inf, count: int | None = None) -> list[float]:
        return [measurement.time for measurement in memory.fetch(ADA, after, count)]

    _require(times(after=2.0) == [3.0, 4.0], f"after 2: {times(after=2.0)}")
    _require(times(count=1) == [4.0], f"the latest one: {times(count=1)}")
    _require(times(after=1.0, count=2) == [3.0, 4.0], "the latest two after 1")
    _require(times(count=0) == [], f"the latest none: {times(count=0)}")
    _require(memory.fetch(BOB) == (), f"an unknown series: {memory.fetch(BOB)}")
    _raises(ValueError, partial(memory.fetch, ADA, count=-1), "a negative count was taken")


def check_a_memory_refuses_nonsense(make: MakeMemory) -> None:
    """Check that what is no measurement, or far in the future, is refused with a reason."""
    memory = make()
    nonsense = [Measurement(ADA, 1.0, value) for value in NOT_MEASURABLE]
    nonsense += [Measurement(ADA, time, 0.5) for time in (*NOT_MEASURABLE, 1e18)]
    for measurement in nonsense:
        reason = _raises(
            RefusedError,
            partial(memory.store, measurement),
            f"{measurement} was taken",
        )
        _require(bool(reason), "refused without a reason")
    _require(memory.series() == (), "something refused was kept")


FORECASTER_CHECKS: Final = (
    check_there_is_no_forecast_before_a_value,
    check_asking_changes_nothing,
    check_equal_values_give_equal_forecasts,
    check_what_never_changed_stays,
    check_forecasts_are_finite,
    check_nonsense_is_refused_and_leaves_no_trace,
    check_a_method_has_a_name,
)
AVERAGING_CHECKS: Final = (check_forecasts_stay_among_the_values,)
SENSOR_CHECKS: Final = (
    check_each_series_is_measured_once_and_in_order,
    check_measured_values_are_amounts,
    check_time_goes_forward,
)
MEMORY_CHECKS: Final = (
    check_what_was_stored_can_be_fetched,
    check_storing_again_changes_nothing,
    check_fetching_is_in_the_order_of_time,
    check_fetching_can_be_limited,
    check_a_memory_refuses_nonsense,
)


def _require(condition: bool, promise: str) -> None:
    if not condition:
        raise AssertionError(promise)


def _raises(kind: type[Exception], act: Callable[[], object], promise: str) -> str:
    """Return the message of the exception of this `kind` that `act` raises."""
    try:
        act()
    except kind as error:
        return str(error)
    raise AssertionError(promise)
