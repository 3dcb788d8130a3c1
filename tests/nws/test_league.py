"""The league of predictors: how wrong each has been, against errors added up here, and which answers."""

import time
from itertools import pairwise
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nws import (
    CANDIDATES,
    EXPERTS,
    OWN,
    Measurement,
    MultiHorizonForecaster,
    ScoredForecaster,
    SeriesName,
    Smoothing,
    classic,
)

ADA = SeriesName("availableCpu", "ada")
SHARES = st.lists(st.integers(0, 64).map(lambda k: k / 64), min_size=1, max_size=120)


def fed(forecaster, values):
    for value in values:
        forecaster.update(value)
    return forecaster


def error_of(predictor, values):
    """Return the mean absolute error of a predictor on a series."""
    errors = []
    for value, after in pairwise(values):
        predictor.update(value)
        errors.append(abs(predictor.forecast() - after))
    return fmean(errors)


@given(SHARES)
def test_the_default_profile_tells_each_predictors_mean_error(values):
    found = fed(MultiHorizonForecaster(), values).league()
    assert [one.name for one in found.predictors] == list(EXPERTS)
    assert [one.name for one in found.candidates] == list(CANDIDATES)
    assert found.scored == len(values) - 1
    errors = {one.name: one.error for one in found.predictors}
    if len(values) == 1:
        assert {*errors.values(), *(one.rmse for one in found.candidates)} == {None}
        return
    assert errors["last_value"] == pytest.approx(
        fmean(abs(b - a) for a, b in pairwise(values)), abs=1e-9
    )
    assert errors["smoothing_0.30"] == pytest.approx(error_of(Smoothing(0.3), values), abs=1e-9)


@given(SHARES, st.sampled_from([1, 3, 12, 60]), st.sampled_from(["absolute", "squared"]))
def test_what_answers_is_in_the_league_once(values, samples, criterion):
    forecaster = fed(MultiHorizonForecaster(), values)
    found = forecaster.league(samples, criterion)
    assert found.method == forecaster.outlook(samples, criterion=criterion).method
    (taken,) = [one.name for one in found.candidates if one.taken]
    names = {one.name for one in found.predictors}
    lowest = {"lowest error": "error", "lowest lately": "lately"}.get(taken)
    assert found.method == taken or found.method in names
    if lowest and found.scored:
        least = min(found.predictors, key=lambda one: getattr(one, lowest))
        assert found.method == least.name


def test_a_horizon_tells_its_own_errors_once_it_is_trusted():
    values = [(k % 12) / 12 for k in range(200)]
    found = fed(MultiHorizonForecaster(), values).league(12)
    assert found.horizon == 12
    assert {one.name for one in found.predictors} > {*OWN}
    early = fed(MultiHorizonForecaster(), values[:15]).league(12)
    assert early.horizon == 1


@given(SHARES)
def test_the_classic_profile_tells_the_errors_over_the_latest_hundred(values):
    found = fed(classic(), values).league()
    lately = {one.name: one.lately for one in found.predictors}
    assert len(lately) == 18
    if len(values) == 1:
        assert set(lately.values()) == {None}
        return
    errors = [abs(b - a) for a, b in pairwise(values)]
    assert lately["last_value"] == pytest.approx(fmean(errors[-99:]))
    assert found.method in lately


def test_a_forecaster_that_does_not_choose_has_no_league():
    assert fed(Smoothing(0.5), [0.5, 0.25]).league() is None


def test_the_frame_of_a_league_is_told_in_seconds():
    scored = ScoredForecaster(MultiHorizonForecaster(), period=10.0)
    for step in range(200):
        scored.update(Measurement(ADA, 10.0 * step, (step % 4) / 4))
    assert scored.league(120.0).horizon == 12
    assert scored.league(120.0).method == scored.forecast(120.0).method
    assert scored.league().horizon == 1


def test_the_service_tells_a_league_and_nothing_of_what_it_does_not_know(client):
    name, now = SeriesName("availableCpu", "league"), time.time()
    client.store([Measurement(name, now - 10 * (60 - k), (k % 4) / 4) for k in range(60)])
    found = client.league(str(name), over=30.0)
    (forecast,) = client.forecasts([str(name)], over=30.0)
    assert found["method"] == forecast["method"]
    assert found["horizon"] == forecast["horizon"] == 3
    errors = [one["error"] for one in found["predictors"]]
    assert errors == sorted(errors)
    assert sum(one["taken"] for one in found["candidates"]) == 1
    unknown = client.league("availableCpu/nobody")
    assert (unknown["state"], unknown["method"], unknown["predictors"]) == ("unknown", None, [])
