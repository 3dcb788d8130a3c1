"""A check that never fails checks nothing: each one is shown a class that breaks its promise."""

import itertools
import math

import pytest

from nws import LastValue, Measurement, ReplaySensor, RingMemory, RunningMean, Sensor, SeriesName
from nws import checks as c

ADA = SeriesName("availableCpu", "ada")
BOB = SeriesName("availableCpu", "bob")


class StartsAtZero(LastValue):
    def forecast(self):
        return 0.0 if self._last is None else self._last


class WearsOutWhenAsked(RunningMean):
    def forecast(self):
        self._count += 1
        return super().forecast()


class EachIsDifferent(LastValue):
    born = itertools.count()

    def __init__(self):
        super().__init__()
        self.bias = 1e-9 * next(self.born)

    def forecast(self):
        return super().forecast() + self.bias


class Optimist(LastValue):
    def forecast(self):
        return super().forecast() * 1.01


class SumsUp(RunningMean):
    def forecast(self):
        return super().forecast() * 1e10 / 1e10


class TakesAnything(LastValue):
    def update(self, value):
        self._last = value


class CountsBeforeItChecks(RunningMean):
    def update(self, value):
        self._count += 1
        if not abs(value) <= 1e300:
            raise ValueError(value)
        self._mean += (value - self._mean) / self._count


class Nameless(LastValue):
    @property
    def method(self):
        return " "


@pytest.mark.parametrize(
    ("check", "broken"),
    [
        (c.check_there_is_no_forecast_before_a_value, StartsAtZero),
        (c.check_asking_changes_nothing, WearsOutWhenAsked),
        (c.check_equal_values_give_equal_forecasts, EachIsDifferent),
        (c.check_what_never_changed_stays, Optimist),
        (c.check_forecasts_are_finite, SumsUp),
        (c.check_nonsense_is_refused_and_leaves_no_trace, TakesAnything),
        (c.check_nonsense_is_refused_and_leaves_no_trace, CountsBeforeItChecks),
        (c.check_a_method_has_a_name, Nameless),
        (c.check_forecasts_stay_among_the_values, Optimist),
    ],
)
def test_a_forecaster_that_breaks_a_promise_is_found(check, broken):
    with pytest.raises(AssertionError):
        check(broken)


class Measures(Sensor):
    def __init__(self, series, *rounds):
        self._series = series
        self.rounds = iter(rounds)

    @property
    def series(self):
        return self._series

    def measure(self):
        return next(self.rounds)


@pytest.mark.parametrize(
    ("check", "broken"),
    [
        (c.check_each_series_is_measured_once_and_in_order, Measures((), ())),
        (c.check_each_series_is_measured_once_and_in_order, Measures((ADA, ADA), ())),
        (
            c.check_each_series_is_measured_once_and_in_order,
            Measures((ADA, BOB), (Measurement(BOB, 0, 0), Measurement(ADA, 0, 0))),
        ),
        (c.check_measured_values_are_amounts, ReplaySensor(ADA, [(0.0, -1.0)])),
        (c.check_measured_values_are_amounts, ReplaySensor(ADA, [(math.nan, 1.0)])),
        (c.check_time_goes_forward, ReplaySensor(ADA, [(1.0, 0.5), (0.0, 0.5)])),
    ],
)
def test_a_sensor_that_breaks_a_promise_is_found(check, broken):
    with pytest.raises(AssertionError):
        check(lambda: broken)


class Forgets(RingMemory):
    def fetch(self, series, after=-math.inf, count=None):
        return super().fetch(series, after, count)[1:]


class LastValueWins(RingMemory):
    def store(self, measurement):
        kept = self._rings.get(measurement.series, [])
        kept[:] = [other for other in kept if other.time != measurement.time]
        return super().store(measurement)


class InOrderOfArrival(RingMemory):
    def store(self, measurement):
        self._rings.setdefault(measurement.series, []).append(measurement)
        return True


class IncludesAfter(RingMemory):
    def fetch(self, series, after=-math.inf, count=None):
        return super().fetch(series, math.nextafter(after, -math.inf), count)


class TakesNonsense(RingMemory):
    def _check(self, measurement):
        pass


@pytest.mark.parametrize(
    ("check", "broken"),
    [
        (c.check_what_was_stored_can_be_fetched, Forgets),
        (c.check_storing_again_changes_nothing, LastValueWins),
        (c.check_fetching_is_in_the_order_of_time, InOrderOfArrival),
        (c.check_fetching_can_be_limited, IncludesAfter),
        (c.check_a_memory_refuses_nonsense, TakesNonsense),
    ],
)
def test_a_memory_that_breaks_a_promise_is_found(check, broken):
    with pytest.raises(AssertionError):
        check(broken)
