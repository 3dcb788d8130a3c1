import json
import math

import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from nws import (
    Forecast,
    InputError,
    LastValue,
    LowestError,
    Measurement,
    RunningMean,
    ScoredForecaster,
    SeriesName,
    checked_value,
    line,
    read_batch,
)

ADA = SeriesName("availableCpu", "ada")


def test_a_name_has_a_text_that_names_it():
    link = SeriesName("bandwidthTcp", "ada", "bob.example.org")
    assert str(link) == "bandwidthTcp/ada/bob.example.org"
    assert SeriesName.parse(str(link)) == link
    assert SeriesName.parse("freeMemory/ada").peer is None


@pytest.mark.parametrize("text", ["", "availableCpu", "a/b/c/d", "a//b", "a/", "/ada", "a/b c"])
def test_what_is_no_name_is_refused_with_the_text(text):
    with pytest.raises(InputError) as raised:
        SeriesName.parse(text)
    assert raised.value.code == "name-invalid"
    assert raised.value.fields["value"] in {text, *text.split("/")}


@pytest.mark.parametrize("host", ["", "-ada", "../etc/passwd", "ada\n", "a b", "ä"])
def test_a_host_is_a_plain_name(host):
    with pytest.raises(InputError) as raised:
        SeriesName("availableCpu", host)
    assert raised.value.code == "name-invalid"
    assert raised.value.fields == {"field": "host", "value": host}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1.01e300])
def test_what_cannot_be_measured_is_refused(value):
    with pytest.raises(InputError) as raised:
        checked_value(value)
    assert (raised.value.code, raised.value.fields["value"]) == ("value-invalid", repr(value))


def test_a_forecast_has_no_error_before_it_met_a_value():
    scored = ScoredForecaster(LastValue())
    scored.update(Measurement(ADA, 5.0, 0.5))
    assert scored.forecast() == Forecast(0.5, None, "LastValue", samples=1, time=5.0)


def test_there_is_nothing_to_report_before_a_measurement():
    with pytest.raises(LookupError) as raised:
        ScoredForecaster(LastValue()).forecast()
    assert raised.value.code == "no-value-yet"


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
    with pytest.raises(InputError) as raised:
        scored.update(Measurement(ADA, time, value))
    assert raised.value.code == ("value-invalid" if math.isnan(value) else "measurement-late")
    assert scored.forecast() == before


def test_age_counts_from_the_last_measurement():
    forecast = Forecast(0.5, 0.1, "last_value", samples=3, time=100.0)
    assert forecast.age(now=130.0) == 30.0
    assert forecast.age(now=90.0) == 0.0


MEASUREMENTS = st.lists(
    st.builds(
        Measurement,
        st.just(SeriesName("degrees", "ada")),
        st.floats(0, 1e300),
        st.floats(-1e300, 1e300),
    )
    | st.builds(
        Measurement,
        st.just(SeriesName("availableCpu", "ada")),
        st.floats(0, 1e300),
        st.floats(0, 1),
    )
    | st.builds(
        Measurement,
        st.just(SeriesName("latencyTcp", "a", "b")),
        st.floats(0, 1e300),
        st.floats(0, 1e300),
    ),
    max_size=5,
)


@settings(max_examples=examples(40))
@given(MEASUREMENTS)
def test_a_message_is_read_back(measurements):
    text = line(measurements)
    assert text.endswith("\n")
    assert text.count("\n") == 1
    assert read_batch(text) == measurements


def test_a_value_that_its_kind_cannot_have_is_no_part_of_a_message():
    text = line([Measurement(SeriesName("availableCpu", "ada"), 1.0, 7.0)])
    with pytest.raises(InputError) as raised:
        read_batch(text)
    assert raised.value.code == "value-range"
    assert raised.value.fields == {"field": "measurements[0].value", "bound": 1.0}


GOOD = {"series": "availableCpu/ada", "time": 1.0, "value": 0.5}


@pytest.mark.parametrize(
    ("document", "code", "field"),
    [
        ("no json", "message-invalid", None),
        ("[" * 100_000, "message-invalid", None),
        ([], "message-invalid", None),
        ({"schema": "nws.measurements/2", "measurements": []}, "schema-unknown", "schema"),
        ({"schema": "nws.measurements/1", "measurements": {}}, "message-invalid", "measurements"),
        ([{**GOOD, "more": 1}], "message-invalid", "measurements[0]"),
        ([GOOD, {**GOOD, "time": "1"}], "value-type", "measurements[1].time"),
        ([{**GOOD, "time": -1.0}], "time-invalid", "measurements[0].time"),
        ([{**GOOD, "value": True}], "value-type", "measurements[0].value"),
        ([{**GOOD, "value": 1e301}], "value-invalid", "measurements[0]"),
        ([{**GOOD, "value": 10**400}], "value-invalid", "measurements[0]"),
        ([{**GOOD, "series": "../etc/passwd"}], "value-invalid", "measurements[0]"),
        ([{**GOOD, "series": 7}], "name-invalid", "measurements[0].series"),
        ([GOOD] * 20_001, "message-invalid", "measurements"),
    ],
)
def test_what_is_no_message_is_refused_with_its_field(document, code, field):
    if isinstance(document, list) and document:
        document = {"schema": "nws.measurements/1", "measurements": document}
    text = document if isinstance(document, str) else json.dumps(document)
    with pytest.raises(InputError) as raised:
        read_batch(text)
    assert (raised.value.code, raised.value.fields.get("field")) == (code, field)
