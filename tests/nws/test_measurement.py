import math

import pytest

from nws import (
    Forecast,
    LastValue,
    LowestError,
    Measurement,
    RunningMean,
    ScoredForecaster,
    SeriesName,
)
from nws.measurement import checked_value

ADA = SeriesName("availableCpu", "ada")


def test_a_name_has_a_text_that_names_it():
    link = SeriesName("bandwidthTcp", "ada", "bob.example.org")
    assert str(link) == "bandwidthTcp/ada/bob.example.org"
    assert SeriesName.parse(str(link)) == link
    assert SeriesName.parse("freeMemory/ada").peer is None


@pytest.mark.parametrize("text", ["", "availableCpu", "a/b/c/d", "a//b", "a/", "/ada", "a/b c"])
def test_what_is_no_name_is_refused_with_the_text(text):
    with pytest.raises(ValueError, match=r"name|not resource/host"):
        SeriesName.parse(text)


@pytest.mark.parametrize("host", ["", "-ada", "../etc/passwd", "ada\n", "a b", "ä"])
def test_a_host_is_a_plain_name(host):
    with pytest.raises(ValueError, match="host"):
        SeriesName("availableCpu", host)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1.01e300])
def test_what_cannot_be_measured_is_refused(value):
    with pytest.raises(ValueError, match="is not a measurement"):
        checked_value(value)


def test_a_forecast_has_no_error_before_it_met_a_value():
    scored = ScoredForecaster(LastValue())
    scored.update(Measurement(ADA, 5.0, 0.5))
    assert scored.forecast() == Forecast(0.5, None, "LastValue", samples=1, time=5.0)


def test_there_is_nothing_to_report_before_a_measurement():
    with pytest.raises(LookupError, match="update first"):
        ScoredForecaster(LastValue()).forecast()


def test_the_error_is_that_of_the_choice_not_of_the_winner():
    members = {"last": LastValue(), "mean": RunningMean()}
    chooser = LowestError(members)
    scored = ScoredForecaster(chooser)
    for time, value in enumerate([0.0, 1.0, 0.0, 1.0, 0.0, 1.0]):
        scored.update(Measurement(ADA, float(time), value))
    forecast = scored.forecast()
    assert forecast.method == "mean"
    assert forecast.error == pytest.approx((1 + 1 + 2 / 3 + 1 / 2 + 3 / 5) / 5)  # last, last, mean
    assert chooser.errors["mean"] / 5 == pytest.approx((1 + 1 / 2 + 2 / 3 + 1 / 2 + 3 / 5) / 5)


@pytest.mark.parametrize(
    ("time", "value"), [(1.0, 0.5), (0.5, 0.5), (math.nan, 0.5), (2.0, math.nan)]
)
def test_what_is_refused_leaves_the_score_alone(time, value):
    scored = ScoredForecaster(LastValue())
    scored.update(Measurement(ADA, 0.0, 0.25))
    scored.update(Measurement(ADA, 1.0, 0.5))
    before = scored.forecast()
    with pytest.raises(ValueError, match=r"not later|not a measurement"):
        scored.update(Measurement(ADA, time, value))
    assert scored.forecast() == before


def test_age_counts_from_the_last_measurement():
    forecast = Forecast(0.5, 0.1, "last_value", samples=3, time=100.0)
    assert forecast.age(now=130.0) == 30.0
    assert forecast.age(now=90.0) == 0.0
