import copy
import json
from dataclasses import FrozenInstanceError, fields

import pytest

from nws import Forecast, InputError, SeriesName, Weather

HALF = Forecast(0.5, 0.1, "last_value", samples=9, time=90.0)
NEW = Forecast(0.25, None, "last_value", samples=1, time=90.0)
SKY = Weather(
    time=100.0,
    cpu={"ada": HALF, "bob": NEW},
    current_cpu={"ada": HALF},
    competitors={"ada": HALF},
    free_memory={"ada": Forecast(2.0**33, 1e6, "running_mean", 5, 99.0)},
    latency={("ada", "bob"): Forecast(1e-4, 1e-6, "sliding_median_5", 7, 98.0)},
    bandwidth={("bob", "ada"): Forecast(1.25e8, 1e6, "trimmed_mean_31", 7, 98.0)},
)


def test_an_empty_weather_knows_nothing():
    assert Weather().cpu == Weather().latency == {}
    assert Weather.from_json(Weather().to_json()) == Weather()


def test_a_weather_reads_back_as_it_was_written():
    assert Weather.from_json(SKY.to_json()) == SKY


def test_a_weather_can_be_copied_and_sent_to_another_process():
    assert copy.deepcopy(SKY) == SKY


def test_a_weather_cannot_be_changed_not_even_through_what_it_was_made_of():
    table = {"ada": HALF}
    sky = Weather(cpu=table)
    table["bob"] = HALF
    assert list(sky.cpu) == ["ada"]
    with pytest.raises(FrozenInstanceError):
        sky.cpu = {}
    with pytest.raises(TypeError):
        sky.cpu["bob"] = HALF


def test_series_find_their_tables():
    forecasts = {
        SeriesName("availableCpu", "ada"): HALF,
        SeriesName("bandwidthTcp", "ada", "bob"): NEW,
        SeriesName("freeDisk", "ada"): HALF,  # another resource has no part in the weather
        SeriesName("availableCpu", "ada", "bob"): HALF,  # neither has a share towards a peer
        SeriesName("latencyTcp", "ada"): HALF,
    }
    assert Weather.of(forecasts, time=100.0) == Weather(
        time=100.0, cpu={"ada": HALF}, bandwidth={("ada", "bob"): NEW}
    )


def test_a_sky_can_be_written_by_hand():
    text = '{"schema": "nws.weather/1", "time": 5, "cpu": {"ada": {"value": 1}}}'
    expected = Forecast(1.0, None, "given", samples=0, time=5.0)
    assert Weather.from_json(text) == Weather(time=5.0, cpu={"ada": expected})


def edited(path, value):
    """Return the text of SKY with the value at a dotted path replaced."""
    document = json.loads(SKY.to_json())
    *parents, last = path.split(".")
    entry = document
    for parent in parents:
        entry = entry[parent]
    entry[last] = value
    return json.dumps(document)


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        ("schema", "nws.weather/2", "schema-unknown"),
        ("schema", None, "schema-unknown"),
        ("time", "now", "value-type"),
        ("time", None, "value-type"),
        ("wind", {}, "field-unknown"),
        ("cpu", [], "value-type"),
        ("cpu.ada", 0.5, "value-type"),
        ("cpu.ada.value", "fast", "value-type"),
        ("cpu.ada.value", True, "value-type"),
        ("cpu.ada.value", 1.5, "value-range"),
        ("cpu.ada.value", -0.5, "value-range"),
        ("cpu.ada.error", -1, "value-range"),
        ("free_memory.ada.value", 10**400, "value-invalid"),
        ("cpu.ada.samples", 1.5, "value-type"),
        ("cpu.ada.samples", -1, "value-type"),
        ("cpu.ada.method", None, "value-type"),
        ("cpu.ada.sigma", 1, "field-unknown"),
        ("cpu.a b", {"value": 1}, "name-invalid"),
        ("cpu.ada/bob", {"value": 1}, "name-invalid"),
        ("latency.ada", {"value": 1}, "name-invalid"),
        ("latency.ada/", {"value": 1}, "name-invalid"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(path, value, code):
    with pytest.raises(InputError) as raised:
        Weather.from_json(edited(path, value))
    assert raised.value.code == code
    assert raised.value.fields["field"].startswith(path)


@pytest.mark.parametrize(
    ("text", "code", "field"),
    [
        ("", "weather-invalid", None),
        ("{", "weather-invalid", None),
        ("[]", "value-type", "weather"),
        ('{"schema": "nws.weather/1", "time": NaN}', "value-invalid", "weather"),
        ('{"schema": "nws.weather/1", "time": 1e999}', "value-invalid", "time"),
        ("[" * 100_000, "weather-invalid", None),
    ],
    ids=["empty", "brace", "list", "nan", "infinite", "deep"],
)
def test_what_is_no_weather_at_all_is_refused(text, code, field):
    with pytest.raises(InputError) as raised:
        Weather.from_json(text)
    assert (raised.value.code, raised.value.fields.get("field")) == (code, field)


def test_a_weather_with_a_value_that_json_lacks_is_not_written():
    with pytest.raises(ValueError, match="nan"):
        Weather(cpu={"ada": Forecast(float("nan"), None, "x", 1, 0.0)}).to_json()


BY_PAIR = {"latency", "bandwidth"}


def everywhere(time, *hosts, value=0.5):
    """Return a weather with an entry in every table for these hosts, or for the ordered pairs of them."""
    forecast = Forecast(value, 0.1, "last_value", samples=9, time=90.0)
    pairs = [(a, b) for a in hosts for b in hosts if a != b]
    tables = [table.name for table in fields(Weather)[1:]]
    return Weather(
        time, **{t: dict.fromkeys(pairs if t in BY_PAIR else hosts, forecast) for t in tables}
    )


def test_every_table_goes_with_a_host_to_its_new_name_and_without_one_is_left_out():
    renamed = everywhere(3.0, "n1", "n2", "n3").renamed({"ada": "n1", "bob": "n2", "cyd": "n9"})
    assert renamed == everywhere(3.0, "ada", "bob")


def test_two_names_of_one_host_share_its_entries_and_have_no_link_between_them():
    renamed = everywhere(0.0, "n1", "n2").renamed({"ada": "n1", "bob": "n1", "cyd": "n2"})
    assert list(renamed.cpu) == ["ada", "bob", "cyd"]
    assert list(renamed.latency) == [
        ("ada", "cyd"),
        ("bob", "cyd"),
        ("cyd", "ada"),
        ("cyd", "bob"),
    ]


def test_a_merged_weather_has_the_entries_of_both_and_prefers_its_own_in_every_table():
    own, other = everywhere(1.0, "ada", "bob", value=0.25), everywhere(2.0, "bob", "cyd")
    merged = own.merge(other)
    assert merged.time == 2.0
    assert merged.cpu["bob"].value == 0.25
    for table in fields(Weather)[1:]:
        expected = {**getattr(other, table.name), **getattr(own, table.name)}
        assert getattr(merged, table.name) == expected, table.name
