"""The page for Prometheus, and other answers about all series."""

import asyncio
import re
import shutil
import subprocess

import pytest

from nws import (
    ForecastDatabase,
    Forecasts,
    NetworkForecast,
    RequestHandler,
    SeriesName,
    Weather,
)

NOW = 10_000.0


@pytest.fixture
def handler(quick_disk):
    database = ForecastDatabase(quick_disk, clock=lambda: NOW)
    yield RequestHandler(database, "secret", clock=lambda: NOW)
    database.close(save=False)


def store(handler, name, values, last=NOW, period=10.0):
    rows = [
        (name, last - period * (len(values) - 1 - step), value)
        for step, value in enumerate(values)
    ]
    handler.database.submit(rows).result(timeout=120)
    handler.database.forecast(name)


def page(handler, over=None):
    return asyncio.run(handler.metrics(over, None)).decode()


def values(text):
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if not line.startswith("#")
    }


def test_every_metric_has_its_help_and_type_once_and_its_lines_together(handler):
    store(handler, "availableCpu/ada", [0.25, 0.5] * 20)
    store(handler, "latencyTcp/ada/bob", [1e-4] * 30)
    names = []
    for line in page(handler).splitlines():
        if line.startswith("# HELP"):
            names.append(line.split()[2])
        elif not line.startswith("#"):
            assert re.match(r"[a-z_]+", line)[0] == names[-1]
    assert len(set(names)) == len(names)
    text = page(handler)
    assert all(text.count(f"# TYPE {name} ") == 1 for name in names)


def test_value_forecast_interval_and_frame_are_on_the_page(handler):
    store(handler, "availableCpu/ada", [0.25, 0.5] * 20)
    ada = '{host="ada",resource="availableCpu"}'
    found = values(page(handler))
    assert found[f"nws_value{ada}"] == 0.5
    assert found[f"nws_forecast_lower{ada}"] <= found[f"nws_forecast{ada}"]
    assert found[f"nws_forecast{ada}"] <= found[f"nws_forecast_upper{ada}"]
    assert found[f"nws_forecast_frame_seconds{ada}"] == 10.0
    wide = values(page(handler, over=60.0))
    assert wide[f"nws_forecast_frame_seconds{ada}"] == 60.0
    assert wide[f"nws_forecast{ada}"] != found[f"nws_forecast{ada}"]


def test_what_is_stale_has_an_age_but_no_forecast(handler):
    store(handler, "availableCpu/gone", [0.5] * 30, last=NOW - 1000)
    found = values(page(handler))
    gone = '{host="gone",resource="availableCpu"}'
    assert found[f"nws_age_seconds{gone}"] == 1000.0
    assert found[f"nws_current{gone}"] == 0
    assert f"nws_forecast{gone}" not in found


def test_a_page_shows_what_was_measured_since_the_last(handler):
    store(handler, "availableCpu/ada", [0.25] * 30, last=NOW - 20)
    first = values(page(handler))
    store(handler, "availableCpu/ada", [0.75] * 2)
    ada = '{host="ada",resource="availableCpu"}'
    second = values(page(handler))
    assert second[f"nws_value{ada}"] == 0.75
    assert second[f"nws_forecast{ada}"] > first[f"nws_forecast{ada}"]
    assert second["nws_backlog"] == 0


@pytest.mark.skipif(not shutil.which("promtool"), reason="needs Debian's prometheus")
def test_promtool_finds_nothing_to_say(handler):
    store(handler, "availableCpu/ada", [0.25, 0.5] * 20)
    store(handler, "bandwidthTcp/ada/bob", [1e9] * 30)
    done = subprocess.run(
        ["promtool", "check", "metrics"],  # noqa: S607 - Debian's
        input=page(handler).encode(),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_weather_of_many_is_that_of_one_by_one(handler):
    store(handler, "availableCpu/ada", [0.25, 0.5] * 20)
    store(handler, "latencyTcp/ada/bob", [1e-4] * 10)
    store(handler, "degrees/ada", [-3.0] * 10)
    store(handler, "availableCpu/gone", [0.5] * 10, last=NOW - 1000)
    names = ("availableCpu/ada", "latencyTcp/ada/bob")
    wanted = {
        SeriesName.parse(name): handler.database.forecast(name, over=60.0)[0] for name in names
    }
    text = asyncio.run(handler.weather(over=60.0, level=None))
    assert Weather.from_json(text) == Weather.of(wanted, NOW)


def test_an_answer_has_all_fields_and_no_other(handler):
    store(handler, "availableCpu/ada", [0.25, 0.5] * 20)
    names = ["availableCpu/ada", "availableCpu/nobody"]
    document = asyncio.run(handler.forecasts(names)).model_dump()
    for answer in document["forecasts"]:
        assert list(answer) == list(NetworkForecast.model_fields)
    assert Forecasts.model_validate(document).forecasts[0].samples == 40
