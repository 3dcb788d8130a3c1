"""The contracts of the NWS as functions that run: one promise each.

Every check takes a function that makes a fresh object under test, and raises AssertionError with
the promise that was broken. They run on all implementations here, and on yours:

    for check in nws.checks.FORECASTER_CHECKS:
        check(lambda: MyForecaster(gain=0.2))

Reading order: forecasters (`FORECASTER_CHECKS`, `AVERAGING_CHECKS` for those that never leave the
range of their values, `STATE_CHECKS` for those that can be saved, `FRAME_CHECKS` for those that
look over a frame), sensors (`SENSOR_CHECKS`), memories (`MEMORY_CHECKS`).
"""

import json
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from nws.forecaster import Forecaster, FrameForecaster
from nws.measurement import Measurement, SeriesName
from nws.memory.contract import Memory, RefusedError
from nws.sensor import Sensor

LONG_WALK: Final = tuple(
    0.5 + 0.3 * math.sin(step / 3) + 0.2 * ((step * 7919) % 101) / 101 for step in range(300)
)
"""A series with a periodicity and something like noise, longer than two looks for a periodicity."""
NOT_A_STATE: Final[tuple[Any, ...]] = (None, [], {}, {"no": "such field"}, "text", 7)


def check_a_restored_forecaster_goes_on_alike(make: Callable[[], Forecaster]) -> None:
    """Check that a state survives JSON and gives the same forecasts from then on, bit for bit."""
    for stop in (0, 1, 3, 60, 140):
        one, other = make(), make()
        for step, value in enumerate(LONG_WALK[:stop]):
            one.update(value)
            if step % 17 == 16:
                one.skip()
        other.restore(json.loads(json.dumps(one.state(), allow_nan=False)))
        for step, value in enumerate(LONG_WALK[stop:]):
            one.update(value)
            other.update(value)
            if step % 19 == 18:
                one.skip()
                other.skip()
            _require(one.forecast() == other.forecast(), f"another forecast after {stop}, {step}")
            _require(one.method == other.method, f"another method after {stop}, {step}")


def check_saving_changes_nothing(make: Callable[[], Forecaster]) -> None:
    """Check that forecasts are the same with and without taking the state after every value."""
    saved, left_alone = make(), make()
    for value in LONG_WALK[:150]:
        saved.update(value)
        saved.state()
        left_alone.update(value)
        _require(saved.forecast() == left_alone.forecast(), "saving changed the forecast")


def check_what_is_no_state_is_refused(make: Callable[[], Forecaster]) -> None:
    """Check that restoring from something else raises ValueError."""
    for nonsense in NOT_A_STATE:
        try:
            make().restore(nonsense)
        except ValueError:
            continue
        raise AssertionError(f"restore accepted {nonsense!r} as a state")


def check_skipping_a_value_keeps_it_safe(make: Callable[[], Forecaster]) -> None:
    """Check that skipped values leave the forecast finite, and give none before the first value."""
    forecaster = make()
    forecaster.skip()
    try:
        forecaster.forecast()
    except LookupError:
        pass
    else:
        raise AssertionError("a forecast from skipped values alone")
    for value in LONG_WALK[:100]:
        forecaster.update(value)
        forecaster.skip()
        _require(math.isfinite(forecaster.forecast()), f"{forecaster.forecast()} is forecast")


def check_the_nearest_horizon_is_named(make: Callable[[], FrameForecaster]) -> None:
    """Check that an outlook names its horizon, and that more samples never give a nearer one."""
    forecaster = _fed(make())
    _require(forecaster.outlook(1).value == forecaster.forecast(), "outlook(1) is not forecast()")
    horizons = [
        forecaster.outlook(samples).horizon for samples in (0.3, 1, 2, 7, 15, 45, 90, 9999)
    ]
    _require(
        horizons == sorted(horizons) and horizons[0] == 1, f"the horizons named are {horizons}"
    )
    for horizon in set(horizons):
        _require(
            forecaster.outlook(horizon).horizon == horizon, f"{horizon} is not its own horizon"
        )


def check_an_outlook_stays_among_the_values(make: Callable[[], FrameForecaster]) -> None:
    """Check that the mean forecast lies between the least and the greatest value so far."""
    for values in (LONG_WALK, (0.0,) * 60 + (1.0,) * 60, tuple(range(150))):
        forecaster = make()
        for count, value in enumerate(values, start=1):
            forecaster.update(value)
            if count % 10 == 1:
                mean = forecaster.outlook(12).value
                _require(min(values[:count]) <= mean <= max(values[:count]), f"{mean}: outside")


def check_an_interval_is_in_order_and_wider_at_a_higher_level(
    make: Callable[[], FrameForecaster],
) -> None:
    """Check the ends, the level that is named, and that a wider one is not narrower."""
    forecaster = _fed(make())
    for samples in (1, 12, 60):
        intervals = [forecaster.outlook(samples, level).interval for level in (0.5, 0.95)]
        widths = []
        for interval in intervals:
            if interval is None:
                raise AssertionError(f"no interval for {samples} samples")
            _require(interval.lower <= interval.upper, f"{interval}: lower end above upper end")
            _require(0 <= (interval.coverage or 0) <= 1, f"{interval}: coverage above 1")
            widths.append(interval.upper - interval.lower)
        _require(widths[0] <= widths[1], f"{samples} samples: narrower interval at a higher level")


def check_a_frame_that_is_none_is_refused(make: Callable[[], FrameForecaster]) -> None:
    """Check that no samples, or a level of none or all, raise ValueError."""
    forecaster = _fed(make())
    for samples, level in (
        (0, 0.9),
        (-1, 0.9),
        (math.nan, 0.9),
        (1, 0.0),
        (1, 1.0),
        (1, math.nan),
    ):
        try:
            forecaster.outlook(samples, level)
        except ValueError:
            continue
        raise AssertionError(f"a frame of {samples} at level {level} was forecast")


def _fed(forecaster: FrameForecaster) -> FrameForecaster:
    for value in LONG_WALK:
        forecaster.update(value)
    return forecaster


STATE_CHECKS: Final = (
    check_a_restored_forecaster_goes_on_alike,
    check_saving_changes_nothing,
    check_what_is_no_state_is_refused,
    check_skipping_a_value_keeps_it_safe,
)
FRAME_CHECKS: Final = (
    check_the_nearest_horizon_is_named,
    check_an_outlook_stays_among_the_values,
    check_an_interval_is_in_order_and_wider_at_a_higher_level,
    check_a_frame_that_is_none_is_refused,
)


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

WALK: Final = LONG_WALK[:120]
"""A series with a periodicity and something like noise, longer than any window of the NWS."""
EXTREME: Final = (0.0, 1e300, -1e300, 1.0, 5e-324, -5e-324, 1e300, 1e300, 0.5) * 8
NOT_MEASURABLE: Final = (math.nan, math.inf, -math.inf, 1e301)

ADA: Final = SeriesName("availableCpu", "ada")
BOB: Final = SeriesName("availableCpu", "bob")


def check_there_is_no_forecast_before_a_value(make: MakeForecaster) -> None:
    """Check that before the first update `forecast` raises LookupError."""
    _raises(LookupError, make().forecast, "a forecaster without values must not forecast")


def check_asking_changes_nothing(make: MakeForecaster) -> None:
    """Check that forecasts are the same with and without a question after every value."""
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
    """Check that storing a new measurement returns True, and that its series is listed and fetched."""
    memory = make()
    measurement = Measurement(ADA, 1.0, 0.5)
    _require(memory.store(measurement) is True, "a new measurement was not new")
    _require(memory.fetch(ADA) == (measurement,), f"fetched {memory.fetch(ADA)}")
    _require(memory.series() == (ADA,), f"listed {memory.series()}")


def check_storing_again_changes_nothing(make: MakeMemory) -> None:
    """Check that the first value of a time stays; storing the same or another returns False."""
    memory = make()
    memory.store(Measurement(ADA, 1.0, 0.5))
    _require(memory.store(Measurement(ADA, 1.0, 0.5)) is False, "the same was new twice")
    _require(memory.store(Measurement(ADA, 1.0, 0.9)) is False, "a time was taken twice")
    _require(memory.fetch(ADA) == (Measurement(ADA, 1.0, 0.5),), "the first value did not stay")


def check_fetching_is_in_the_order_of_time(make: MakeMemory) -> None:
    """Check that measurements stored in any order are fetched oldest first, and series do not mix."""
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
    """Check that invalid measurements, and times far in the future or before 1970, are refused with a reason."""
    memory = make()
    nonsense = [Measurement(ADA, 1.0, value) for value in NOT_MEASURABLE]
    nonsense += [Measurement(ADA, time, 0.5) for time in (*NOT_MEASURABLE, 1e18, -1.0, -1e300)]
    nonsense += [Measurement(ADA, 1.0, value) for value in (-0.1, 7.0)]  # a share lies in 0..1
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
