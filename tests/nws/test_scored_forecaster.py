import json
import math

import pytest

from nws import (
    MAX_MISSING,
    Forecast,
    InputError,
    Interval,
    LastValue,
    Measurement,
    NetworkWeatherService,
    ReplaySensor,
    RingMemory,
    SamplingGrid,
    ScoredForecaster,
    SeriesName,
    Weather,
    classic,
    default,
)

ADA = SeriesName("availableCpu", "ada")


def fed(scored, values, period=10.0, start=0.0):
    for step, value in enumerate(values):
        scored.update(Measurement(ADA, start + step * period, value))
    return scored


def test_a_frame_is_answered_from_the_nearest_horizon_and_names_it():
    scored = fed(ScoredForecaster(default()), [0.0, 1.0] * 200)
    forecast = scored.forecast(over=300.0)
    assert (forecast.horizon, forecast.over) == (30, 300.0)
    assert forecast.value == pytest.approx(0.5, abs=0.02)
    assert scored.forecast(over=250.0).horizon == 30
    assert scored.forecast(over=1e9).horizon == 120
    assert scored.forecast().horizon == 1
    assert scored.forecast().over == 10.0


def test_a_forecaster_without_horizons_says_that_it_looked_one_step_ahead():
    forecast = fed(ScoredForecaster(classic()), [0.0, 1.0] * 20).forecast(over=300.0)
    assert (forecast.horizon, forecast.over, forecast.interval) == (1, 10.0, None)


def test_a_series_of_unknown_period_is_forecast_one_step_ahead():
    forecast = fed(ScoredForecaster(default()), [0.5, 0.5]).forecast(over=300.0)
    assert (forecast.horizon, forecast.over) == (1, None)


def test_an_interval_ends_at_the_physical_bounds():
    values = [0.9, 1.0, 0.95, 1.0, 0.2, 1.0] * 50
    interval = fed(ScoredForecaster(default(), bounds=(0.0, 1.0)), values).forecast().interval
    assert 0.0 <= interval.lower <= interval.upper <= 1.0
    assert interval.level == 0.9
    assert interval.coverage == pytest.approx(0.9, abs=0.05)


def test_the_level_that_was_asked_for_is_named():
    scored = fed(ScoredForecaster(default()), [0.1, 0.5, 0.3] * 30)
    assert scored.forecast(level=0.5).interval.level == 0.5
    assert scored.forecast(level=0.7).interval.level == 0.8
    assert scored.forecast(level=0.99).interval.level == 0.95


def test_there_is_no_interval_before_20_measurements():
    scored = fed(ScoredForecaster(default()), [0.1, 0.5] * 9 + [0.3])
    assert scored.forecast().interval is None
    assert scored.forecast(over=300.0).interval is None
    scored.update(Measurement(ADA, 1000.0, 0.4))
    assert scored.forecast().interval is not None


def test_a_clock_that_is_set_back_lets_earlier_measurements_in():
    scored = fed(ScoredForecaster(LastValue()), [0.5] * 10)
    scored.update(Measurement(ADA, 500.0, 0.9))
    scored.set_back(90.0)
    scored.update(Measurement(ADA, 100.0, 0.4))
    assert (scored.time, scored.forecast().value, scored.period) == (100.0, 0.4, 10.0)


@pytest.mark.parametrize("over", [0.0, -1.0, math.nan, math.inf])
def test_a_frame_of_no_seconds_is_refused(over):
    with pytest.raises(InputError) as raised:
        fed(ScoredForecaster(default()), [0.5] * 10).forecast(over=over)
    assert (raised.value.code, raised.value.fields["field"]) == ("value-range", "over")


def test_a_forecaster_with_the_old_name_of_skip_warns_and_skips():
    with pytest.warns(FutureWarning, match="Counts.miss moved: name it `skip`"):

        class Counts(LastValue):
            skipped = 0

            def miss(self):
                self.skipped += 1

    counts = Counts()
    fed(ScoredForecaster(counts), [0.5] * 10).update(Measurement(ADA, 140.0, 0.5))
    assert counts.skipped == 4


def test_miss_reaches_the_inherited_skip_and_yields_to_its_own():
    calls = []

    class Inner(LastValue):
        def skip(self):
            calls.append("inner")

    class Mixin:
        def miss(self):
            calls.append("old")
            super().miss()

    with pytest.warns(FutureWarning, match="Old.miss moved") as warned:

        class Old(Mixin, Inner):
            pass

    assert [each.filename for each in warned] == [__file__]

    class Both(Inner):
        def miss(self):
            raise AssertionError

        def skip(self):
            calls.append("new")

    for forecaster in (Old(), Both()):
        fed(ScoredForecaster(forecaster), [0.5] * 10).update(Measurement(ADA, 110.0, 0.5))
    assert calls == ["old", "inner", "new"]


def test_missing_measurements_are_skipped_on_the_grid():
    class Counts(LastValue):
        skipped = 0

        def skip(self):
            self.skipped += 1

    counts = Counts()
    scored = fed(ScoredForecaster(counts), [0.5] * 10)
    scored.update(Measurement(ADA, 90.0 + 50.0, 0.5))
    assert counts.skipped == 4
    scored.update(Measurement(ADA, 150.4, 0.5))
    assert counts.skipped == 4


def test_a_refused_value_misses_nothing():
    scored = fed(ScoredForecaster(default()), [0.1, 0.7] * 20)
    before = scored.forecast()
    with pytest.raises(InputError) as raised:
        scored.update(Measurement(ADA, 1e6, math.nan))
    assert (raised.value.code, raised.value.fields["value"]) == ("value-invalid", "nan")
    assert scored.forecast() == before


#   distances 10 10 10 10 | 31 -> two are missing      irregular: none ever is
def test_a_grid_needs_a_regular_series():
    grid = SamplingGrid()
    assert grid.missing(1e9) == 0
    for distance in [10.0] * 4:
        grid.update(distance)
    assert grid.missing(31.0) == 2
    assert grid.missing(14.9) == 0
    assert grid.missing(1e9) == MAX_MISSING
    irregular = SamplingGrid()
    for distance in [1.0, 50.0, 7.0, 300.0, 20.0]:
        irregular.update(distance)
    assert irregular.missing(1000.0) == 0


@pytest.mark.parametrize("period", [0.0, -1.0, math.inf, math.nan])
def test_a_period_that_is_none_is_refused(period):
    with pytest.raises(InputError) as raised:
        SamplingGrid(period)
    assert (raised.value.code, raised.value.fields["field"]) == ("value-range", "period")


def test_a_restored_series_forecasts_the_same_bits():
    one, other = ScoredForecaster(default()), ScoredForecaster(default())
    fed(one, [0.1, 0.7, 0.4] * 60)
    other.restore(json.loads(json.dumps(one.state(), allow_nan=False)))
    for scored in (one, other):
        scored.update(Measurement(ADA, 5000.0, 0.3))
    assert one.forecast(over=600.0) == other.forecast(over=600.0)
    fresh, empty = ScoredForecaster(default()), ScoredForecaster(default())
    fresh.restore(json.loads(json.dumps(empty.state(), allow_nan=False)))
    with pytest.raises(LookupError):
        fresh.forecast()


@pytest.mark.parametrize(
    "change",
    [
        {"samples": -1},
        {"samples": "3"},
        {"time": None},
        {"error": None},
        {"grid": {}},
        {"more": 1},
    ],
)
def test_a_state_that_was_tampered_with_is_refused(change):
    state = fed(ScoredForecaster(LastValue()), [0.5, 0.6]).state()
    with pytest.raises(InputError) as raised:
        ScoredForecaster(LastValue()).restore(state | change)
    assert raised.value.code == "state-invalid"


def test_the_service_gives_a_weather_over_a_frame():
    samples = [(10.0 * step, 0.25 + 0.5 * (step % 2)) for step in range(200)]
    service = NetworkWeatherService(
        RingMemory(clock=lambda: 2000.0), [ReplaySensor(ADA, samples)], clock=lambda: 2000.0
    )
    for _ in samples:
        service.sense()
    forecast = service.weather(over=600.0, level=0.8).cpu["ada"]
    assert forecast.horizon == 60
    assert forecast.value == pytest.approx(0.5, abs=0.02)
    assert forecast.interval.level == 0.8
    assert service.forecast(ADA).horizon == 1


def test_a_weather_with_intervals_reads_back_as_it_was_written():
    interval = Interval(0.25, 0.75, 0.9, 0.89)
    forecast = Forecast(0.5, 0.1, "x", 9, 90.0, 0.2, 12, 120.0, interval)
    sky = Weather(time=100.0, cpu={"ada": forecast})
    assert Weather.from_json(sky.to_json()) == sky


@pytest.mark.parametrize(
    "interval",
    [
        {"lower": 1.0, "upper": 0.0, "level": 0.9, "coverage": None},
        {"lower": 0.0, "upper": 1.0, "level": 1.5, "coverage": None},
        {"lower": 0.0, "upper": 1.0, "level": 0.9, "coverage": 2.0},
        {"lower": 0.0},
        [],
    ],
)
def test_an_interval_that_is_none_is_refused_with_its_field(interval):
    text = json.dumps(
        {
            "schema": "nws.weather/1",
            "time": 1.0,
            "cpu": {"ada": {"value": 0.5, "interval": interval}},
        }
    )
    with pytest.raises(InputError) as raised:
        Weather.from_json(text)
    assert raised.value.fields["field"].startswith("cpu.ada.interval")
    assert raised.value.code in {"field-missing", "value-range", "value-type"}
