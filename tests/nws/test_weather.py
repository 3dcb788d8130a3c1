import copy
import json
from dataclasses import FrozenInstanceError

import pytest

from nws import Forecast, SeriesName, Weather

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
    ("path", "value", "message"),
    [
        ("schema", "nws.weather/2", "schema: 'nws.weather/1' is wanted"),
        ("schema", None, "schema:"),
        ("time", "now", "time: a number is wanted, not 'now'"),
        ("time", None, "time: a number is wanted"),
        ("wind", {}, "wind: there is no such table, only cpu, "),
        ("cpu", [], r"cpu: an object is wanted, not \[\]"),
        ("cpu.ada", 0.5, "cpu.ada: an object is wanted, not 0.5"),
        ("cpu.ada.value", "fast", "cpu.ada.value: a number is wanted, not 'fast'"),
        ("cpu.ada.value", True, "cpu.ada.value: a number is wanted, not True"),
        ("cpu.ada.value", 1.5, r"cpu.ada.value: a share lies in 0..1, not 1.5"),
        ("cpu.ada.value", -0.5, "cpu.ada.value: nothing that is measured is negative"),
        ("cpu.ada.error", -1, "cpu.ada.error: nothing that is measured is negative"),
        ("free_memory.ada.value", 10**400, "free_memory.ada.value: a finite number is wanted"),
        ("cpu.ada.samples", 1.5, "cpu.ada.samples: a whole number >= 0 is wanted, not 1.5"),
        ("cpu.ada.samples", -1, "cpu.ada.samples: a whole number"),
        ("cpu.ada.method", None, "cpu.ada.method: text is wanted, not None"),
        ("cpu.ada.sigma", 1, "cpu.ada.sigma: there is no such field, only value, error"),
        ("cpu.a b", {"value": 1}, "cpu.a b: host 'a b' is not a name"),
        ("cpu.ada/bob", {"value": 1}, "cpu.ada/bob: the key is not a host"),
        ("latency.ada", {"value": 1}, "latency.ada: the key is not host/peer"),
        ("latency.ada/", {"value": 1}, "latency.ada/: host '' is not a name"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(path, value, message):
    with pytest.raises(ValueError, match=message):
        Weather.from_json(edited(path, value))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "weather: not JSON"),
        ("{", "weather: not JSON"),
        ("[]", "weather: an object is wanted"),
        ('{"schema": "nws.weather/1", "time": NaN}', "NaN is not a number"),
        ('{"schema": "nws.weather/1", "time": 1e999}', "time: a finite number is wanted"),
        ("[" * 100_000, "weather: nested too deeply"),
    ],
)
def test_what_is_no_weather_at_all_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        Weather.from_json(text)


def test_a_weather_with_a_value_that_json_lacks_is_not_written():
    with pytest.raises(ValueError, match="JSON compliant"):
        Weather(cpu={"ada": Forecast(float("nan"), None, "x", 1, 0.0)}).to_json()
