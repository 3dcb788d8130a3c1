import csv
import json
import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from commands import command

from apples.weather import picture
from nws import (
    InputError,
    backtest,
    classic,
    default,
    document,
    means,
    read_recording,
    report,
    trace,
)


def beat(size=400):
    random = np.random.default_rng(5)
    return np.sin(np.arange(size) / 4) + 0.2 * random.normal(size=size)


def run(*arguments):
    return command("nws", "backtest", *map(str, arguments))


def test_a_backtest_scores_what_was_forecast_before_each_value():
    values = beat(200)
    for criterion, name, norm in (("absolute", "mae", np.abs), ("squared", "rmse", np.square)):
        ours, theirs, errors = default(criterion), classic(criterion), []
        for step, value in enumerate(values.tolist()):
            if step >= 64:
                errors.append((ours.forecast() - value, theirs.forecast() - value))
            ours.update(value)
            theirs.update(value)
        expected = norm(np.array(errors)).mean(axis=0)
        if name == "rmse":
            expected = np.sqrt(expected)
        entry = backtest("x", values)
        assert [entry[name], entry["classic"][name]] == pytest.approx(expected.tolist())


def test_a_horizon_is_scored_on_the_mean_of_the_next_values():
    values, forecaster, errors = beat(200), default(), []
    for step, value in enumerate(values.tolist()):
        if 64 <= step <= len(values) - 12:
            errors.append(abs(forecaster.outlook(12).value - values[step : step + 12].mean()))
        forecaster.update(value)
    assert backtest("x", values)["horizons"]["12"]["mae"] == pytest.approx(np.mean(errors))


def test_the_last_value_is_scored_too():
    values = beat(100)
    entry = backtest("x", values)
    assert entry["last_value"]["mae"] == pytest.approx(np.abs(np.diff(values)[63:]).mean())
    assert entry["predictors"]["last_value"] == entry["last_value"]


def test_what_cannot_be_scored_is_null_and_the_document_is_json():
    entry = backtest("x", beat(50))
    assert (entry["mae"], entry["interval"]["coverage"], entry["n"]) == (None, None, 50)
    assert json.loads(json.dumps(document([entry]), allow_nan=False))["series"][0]["mae"] is None


def test_a_mean_needs_half_of_its_values():
    nan = math.nan
    result = means(np.array([1.0, nan, 3.0, nan, nan, nan]), 3)
    assert result[0] == 2.0
    assert np.isnan(result[1:]).all()
    assert len(means(np.array([1.0]), 3)) == 0


def test_missing_values_are_not_scored():
    values = beat(300)
    values[100:110] = np.nan
    entry = backtest("x", values)
    assert entry["n"] == 290
    assert entry["mae"] < 1.0


def test_the_command_prints_a_league_table_and_the_same_in_json(tmp_path):
    path = tmp_path / "two.npz"
    np.savez(path, one=beat(150), two=np.ones(100, dtype=np.float32))
    table, machine = run(path), run(path, "--json")
    assert (table.code, machine.code) == (0, 0)
    report_of = json.loads(machine.out)
    assert report_of["schema"] == "nws.backtest/1"
    assert [entry["name"] for entry in report_of["series"]] == ["one", "two"]
    assert {"mae", "rmse", "classic", "last_value", "interval", "horizons"} <= set(
        report_of["series"][0]
    )
    assert f"{report_of['series'][0]['mae']:.4g}" in table.out.splitlines()[0]
    assert report_of["series"][1]["mae"] == 0.0


def test_the_command_draws_a_picture_of_each_series(tmp_path):
    path = tmp_path / "history.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["timestamp", "value"])
        writer.writerows([1e9 + 5 * i, value] for i, value in enumerate(beat(120)))
    assert run(path, "--plot", tmp_path / "pictures").code == 0
    drawn = ET.parse(tmp_path / "pictures" / "history.svg").getroot()  # noqa: S314 - our own
    assert drawn.find("*[@role='img']") is not None
    assert "history: measured, forecast one step ahead" in "".join(drawn.itertext())
    assert "http" not in "".join(drawn.itertext())


@pytest.mark.parametrize(
    ("name", "content", "code", "fields"),
    [
        ("a.csv", b"timestamp,value\n1,2\nx,3\n", "file-invalid", {"line": 3, "value": "x,3"}),
        ("a.csv", b"1,2\n1,3\n", "file-invalid", {"line": 2, "field": "timestamp"}),
        ("a.csv", b"", "file-empty", {}),
        ("a.csv", b"\xff\xfe\x00", "file-damaged", {}),
        ("a.npz", b"not a zip", "file-invalid", {}),
    ],
)
def test_a_file_that_is_none_is_refused_with_its_line(tmp_path, name, content, code, fields):
    (tmp_path / name).write_bytes(content)
    done = run(tmp_path / name, "--json")
    assert done.code == 2
    error = json.loads(done.err)
    assert (error["code"], error["fields"]["file"]) == (code, str(tmp_path / name))
    assert error["fields"].items() >= fields.items()


def test_a_file_that_is_not_there_is_refused(tmp_path):
    done = run(tmp_path / "none.csv", "--json")
    assert (done.code, json.loads(done.err)["code"]) == (2, "file-missing")


@pytest.mark.parametrize("array", [np.ones((2, 2)), np.array(["a"]), np.array([np.inf]), {}])
def test_an_array_that_is_no_series_is_refused(tmp_path, array):
    np.savez(tmp_path / "a.npz", x=array)
    with pytest.raises(InputError) as raised:
        read_recording(tmp_path / "a.npz")
    assert raised.value.code == "file-invalid"
    assert raised.value.fields["file"] == str(tmp_path / "a.npz")
    assert raised.value.fields["field"] == "x"


def test_gaps_of_a_csv_are_missing_values(tmp_path):
    path = tmp_path / "a.csv"
    times = [f"2026-11-20T00:00:{second:02d}+00:00" for second in (0, 1, 2, 3, 4, 5, 8, 9)]
    path.write_text("# a comment\ntime,value\n" + "".join(f"{time},1.5\n" for time in times))
    values = read_recording(path)["a"]
    assert len(values) == 10
    assert np.isnan(values[6:8]).all()


@pytest.mark.more
@pytest.mark.parametrize("values", [np.ones(80), np.arange(1000.0), beat(70), np.full(5, 1.0)])
def test_a_picture_can_be_drawn_of_any_series(values):
    made = trace(values)
    text = picture("<&>", made)
    ET.fromstring(text)  # noqa: S314 - our own picture
    assert "nan" not in text
    assert report("x", made)["name"] == "x"
