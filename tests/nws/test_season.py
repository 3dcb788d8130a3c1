import json

import numpy as np
import pytest

from nws import (
    InputError,
    Measurement,
    MultiHorizonForecaster,
    ScoredForecaster,
    SeriesName,
    backtest,
)
from nws import layout as at

pytestmark = pytest.mark.xdist_group("what loads numba")
QUARTER = 21_600.0
"""Seconds between the values of the tests: four a day, the longest period with a season."""


def repeating(days=60, seed=4):
    """Four values a day: a day's shape, a quiet weekend, noise."""
    tick = np.arange(4 * days)
    shape = np.array([0.0, 4.0, 10.0, 3.0])[tick % 4]
    return shape * np.where(tick // 4 % 7 < 5, 1.0, 0.3) + np.random.default_rng(seed).normal(
        size=len(tick), scale=0.5
    )


def noise(count, seed=5):
    return np.random.default_rng(seed).normal(size=count)


def feed(forecaster, values, start=0, period=QUARTER):
    """Give values at regular times; NaN is a missing one. Return the forecasters' answers for the mean of 3."""
    answers = []
    for tick, value in enumerate(values, start=start):
        forecaster.clock(tick * QUARTER, period)
        if np.isnan(value):
            forecaster.skip()
        else:
            forecaster.update(value)
        answers.append(forecaster.outlook(3).value)
    return np.array(answers)


def mean_error(answers, values, scored):
    """Return the mean absolute error of the last `scored` answers for the mean of the next three values."""
    means = (values[1:-2] + values[2:-1] + values[3:]) / 3
    return np.abs(answers[:-3] - means)[-scored:].mean()


def test_a_season_halves_the_error_on_means_and_reports_it():
    values, seasonal = repeating(), MultiHorizonForecaster(engine="auto")
    answers = feed(seasonal, values)
    without = feed(MultiHorizonForecaster(engine="auto"), values, period=None)
    assert mean_error(answers, values, 100) < 0.5 * mean_error(without, values, 100)
    outlook = seasonal.outlook(3)
    assert outlook.method == "season"
    (taken,) = (each for each in seasonal.league(3).candidates if each.taken)
    assert (taken.name, taken.rmse) == ("season", outlook.rmse)
    assert outlook.error == pytest.approx(mean_error(answers, values, 225), rel=0.25)
    assert outlook.interval.lower < outlook.value < outlook.interval.upper
    assert 0.75 < outlook.interval.coverage <= 1


def test_a_backtest_finds_the_season_of_a_series_of_known_period():
    values = repeating(60)
    seasonal, plain = (backtest("x", values, "auto", period) for period in (QUARTER, None))
    assert seasonal["horizons"]["12"]["mae"] < 0.9 * plain["horizons"]["12"]["mae"]
    assert (seasonal["mae"], seasonal["rmse"]) == (plain["mae"], plain["rmse"])


def test_one_step_forecasts_and_those_of_other_series_are_as_without_a_season():
    values = repeating(40)
    seasonal, plain = MultiHorizonForecaster(engine="auto"), MultiHorizonForecaster(engine="auto")
    fast = MultiHorizonForecaster(engine="auto")
    for tick, value in enumerate(values):
        seasonal.clock(tick * QUARTER, QUARTER)
        fast.clock(tick * 10.0, 10.0)
        for forecaster in (seasonal, plain, fast):
            forecaster.update(value)
        assert seasonal.outlook(1) == plain.outlook(1)
        assert fast.outlook(12) == plain.outlook(12)
    assert "season" in seasonal.state()
    assert fast.state() == plain.state()


def test_both_engines_give_the_same_bits_over_gaps():
    pytest.importorskip("numba")
    values = repeating(45)
    values[np.random.default_rng(1).random(len(values)) < 0.1] = np.nan
    values[0] = 1.0
    forms = [MultiHorizonForecaster(engine=engine) for engine in ("numpy", "numba")]
    one, other = (feed(form, values) for form in forms)
    assert np.array_equal(one, other)
    assert forms[0].state() == forms[1].state()


def test_a_restored_forecaster_continues_its_season_with_the_same_bits():
    values = repeating(50)
    one, other = MultiHorizonForecaster(engine="auto"), MultiHorizonForecaster(engine="auto")
    feed(one, values[:150])
    other.restore(json.loads(json.dumps(one.state(), allow_nan=False)))
    again = [feed(form, values[150:], start=150) for form in (one, other)]
    assert np.array_equal(*again)
    assert one.state() == other.state()


def test_a_state_without_a_season_starts_one():
    values = repeating(50)
    old, fresh = MultiHorizonForecaster(engine="auto"), MultiHorizonForecaster(engine="auto")
    feed(old, values[:20], period=None)
    fresh.restore(old.state())
    answers = feed(fresh, values[20:], start=20)
    assert np.isfinite(answers).all()
    assert fresh.outlook(3).method == "season"


@pytest.mark.parametrize("damaged", [{}, {"wide": "", "narrow": ""}, "season", 7])
def test_a_damaged_season_is_rejected(damaged):
    seasonal = MultiHorizonForecaster(engine="auto")
    feed(seasonal, repeating(3))
    with pytest.raises(ValueError, match=r"season|numbers"):
        MultiHorizonForecaster().restore(seasonal.state() | {"season": damaged})


def test_a_season_without_slots_is_rejected():
    seasonal = MultiHorizonForecaster(engine="auto")
    feed(seasonal, repeating(3))
    state = seasonal.state()
    state["season"]["wide"] = "A" * len(state["season"]["wide"].rstrip("=")) + "=" * (
        len(state["season"]["wide"]) - len(state["season"]["wide"].rstrip("="))
    )
    with pytest.raises(InputError):
        MultiHorizonForecaster().restore(state)


def test_a_season_that_never_helps_is_given_up():
    forecaster = MultiHorizonForecaster(engine="auto")
    feed(forecaster, noise(110))
    assert forecaster.state()["season"] is not None
    feed(forecaster, noise(10, seed=6), start=110)
    state = forecaster.state()
    assert state["season"] is None
    other = MultiHorizonForecaster(engine="auto")
    other.restore(state)
    feed(other, noise(10, seed=7), start=120)
    assert other.state()["season"] is None


def test_values_without_a_regular_time_pause_the_season():
    values = repeating(60)
    forecaster = MultiHorizonForecaster(engine="auto")
    feed(forecaster, values[:160])
    feed(forecaster, noise(9), period=None)
    answers = feed(forecaster, values[160:], start=160)
    assert mean_error(answers, values[160:], 40) < 1.5


def test_measurements_of_a_regular_series_bring_the_season_its_times():
    scored = ScoredForecaster(MultiHorizonForecaster(engine="auto"))
    series = SeriesName("availableCpu", "ada")
    for tick, value in enumerate(repeating(60)):
        if tick % 23:
            jitter = 300.0 * (tick % 3)
            scored.update(Measurement(series, 1e9 + tick * QUARTER + jitter, float(value)))
    forecast = scored.forecast(over=3 * QUARTER)
    assert (forecast.horizon, forecast.method) == (3, "season")


def test_a_season_takes_less_than_10_kilobytes():
    forecaster = MultiHorizonForecaster(engine="auto")
    feed(forecaster, repeating(3))
    blocks = forecaster.state()["season"].values()
    assert sum(len(block) * 3 // 4 for block in blocks) < 10_000
    assert at.HORIZONS[-1] == 120
