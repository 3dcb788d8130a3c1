"""Recordings that other tools wrote are read, or refused with one line."""

import gzip
import json
import os
import time
import zipfile

import numpy as np
import pytest
from foreign_recordings import EQUAL, PLAIN, REFUSED, VALUES, iso, table

from nws import InputError, read_history, read_recording


@pytest.mark.parametrize("name", EQUAL)
def test_the_same_series_is_read_from_every_dialect(tmp_path, name):
    text = EQUAL[name]
    path = tmp_path / "ada.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    recording = read_recording(path)
    (values,) = recording.values()
    assert values.tolist() == VALUES
    assert recording.left_out == 0


def test_other_columns_are_ignored_with_a_note(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(EQUAL["value column among others"])
    assert read_recording(path).notes == ["columns ignored: host, label"]


def test_the_user_chooses_a_column_by_its_header_or_its_number(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(table(["Time,ada,bob"], lambda t, v: f"{t},{v},{2 * v}"))
    assert read_recording(path, "Bob")["a"].tolist() == [2 * v for v in VALUES]
    path.write_text(table([], lambda t, v: f"{t},{v},{2 * v}"))
    assert read_recording(path, "3")["a"].tolist() == [2 * v for v in VALUES]
    for column in (None, "eva"):
        with pytest.raises(InputError) as raised:
            read_recording(path, column)
        assert raised.value.code == "columns-differ"
        assert raised.value.fields["known"] == ["2", "3"]


def test_a_period_is_known_only_of_times_in_seconds(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("time,value\n" + "".join(f"{iso(300 * k)},1\n" for k in range(48)))
    assert read_recording(path).periods == {"a": 300.0}
    path.write_text("time,value\n" + "".join(f"{300 * k},1\n" for k in range(48)))
    assert read_recording(path).periods == {}


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "UTC"])
def test_naive_times_are_utc_whatever_the_zone_of_the_reader(tmp_path, monkeypatch, zone):
    path = tmp_path / "a.csv"
    night = 1_711_846_800  # 2024-03-31 01:00 UTC, when summer begins in Berlin
    path.write_text("time,value\n" + "".join(f"{iso(night + 300 * k)},1\n" for k in range(48)))
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        values = read_recording(path)["a"]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert values.tolist() == [1.0] * 48


@pytest.mark.parametrize("mark", ["", "NaN", "null", "N/A", "None"])
def test_a_missing_value_is_a_gap_and_counted(tmp_path, mark):
    path = tmp_path / "a.csv"
    rows = PLAIN.splitlines()
    for place in (10, 11, 20):
        rows[place] = rows[place].partition(",")[0] + "," + mark
    path.write_text("\n".join(rows))
    recording = read_recording(path)
    gaps = np.flatnonzero(np.isnan(recording["a"])).tolist()
    assert gaps == [9, 10, 19]
    assert recording.left_out == 3
    assert recording.reasons[0].startswith("line 11: ")


def test_a_repeated_or_earlier_time_is_left_out_and_counted(tmp_path):
    path = tmp_path / "a.csv"
    rows = PLAIN.splitlines()
    path.write_text("\n".join([*rows[:20], rows[19], rows[10], *rows[20:]]))
    recording = read_recording(path)
    assert recording["a"].tolist() == VALUES
    assert recording.reasons == [
        "line 21: repeats the time of the row before",
        "line 22: is not later than the time of the row before",
    ]


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_with_one_line(tmp_path, name):
    text, code = REFUSED[name]
    path = tmp_path / "a.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as raised:
        read_recording(path)
    assert (raised.value.code, raised.value.fields["file"]) == (code, str(path))
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


def test_a_column_of_what_is_no_csv_is_refused(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(EQUAL["query_range"])
    with pytest.raises(InputError) as raised:
        read_recording(path, "value")
    assert raised.value.code == "option-conflict"


HOST = [
    ({"__name__": "node_procs_running", "instance": "a:9100"}, "3"),
    (
        {"__name__": "node_cpu_seconds_total", "cpu": "0", "instance": "a:9100", "mode": "idle"},
        "7",
    ),
    ({"__name__": "node_memory_MemAvailable_bytes", "instance": "a:9100"}, "1e9"),
    ({"__name__": "node_load1", "instance": "a:9100"}, "1"),
]


def exported(form):
    if form == "JSON":
        result = [{"metric": labels, "values": [[10.5, value]]} for labels, value in HOST]
        data = {"status": "success", "data": {"resultType": "matrix", "result": result}}
        return json.dumps(data, indent=1).splitlines()
    lines = []
    for labels, value in HOST:
        inner = ",".join(f'{key}="{text}"' for key, text in labels.items() if key != "__name__")
        lines.append(
            f"{labels['__name__']}{{{inner}}} {value} 10.5"
            if form == "OpenMetrics"
            else f'{{__name__="{labels["__name__"]}",{inner}}} {value} 10500'
        )
    return ["# TYPE node_load1 gauge", *lines, "# EOF"]


@pytest.mark.parametrize("form", ["JSON", "OpenMetrics", "dump"])
def test_the_past_of_a_host_is_imported_from_every_export(form):
    history = read_history(exported(form))
    assert history.left_out == 0
    assert {str(one.series): (one.time, one.value) for one in history.measurements} == {
        "availableCpu/a": (10.5, 1 / 3),
        "currentCpu/a": (10.5, 1 / 2),
        "competitors/a": (10.5, 2.0),
        "freeMemory/a": (10.5, 1e9),
    }


def test_a_recording_may_come_through_a_pipe(tmp_path):
    from threading import Thread

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = Thread(target=pipe.write_bytes, args=(gzip.compress(PLAIN.encode()),))
    writer.start()
    assert read_recording(pipe)["pipe"].tolist() == VALUES
    writer.join()


def test_a_stray_quote_costs_one_row(tmp_path):
    path = tmp_path / "a.csv"
    rows = [f"{10 * k},{k}" for k in range(60)]
    rows[20] = '200,"20'
    path.write_text("\n".join(["time,value", *rows]))
    recording = read_recording(path)
    values = recording["a"]
    assert (len(values), values[-1]) == (60, 59)
    assert recording.left_out == 1
    assert recording.reasons[0].startswith("line 22:")


def test_a_long_word_in_labels_costs_no_more_than_its_length():
    line = 'node_memory_MemAvailable_bytes{instance="a:9100",' + "x" * 800_000 + "} 3 10.5"
    assert len(read_history([line]).measurements) == 1


@pytest.mark.parametrize(
    ("shapes", "code"),
    [([10**9], "too-many-samples"), ([49_000_000] * 3, "file-too-large")],
)
def test_arrays_are_refused_by_their_headers_before_they_are_unpacked(tmp_path, shapes, code):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for k, count in enumerate(shapes):
            with archive.open(f"a{k}.npy", "w") as file:
                header = {"descr": "<f8", "fortran_order": False, "shape": (count,)}
                np.lib.format.write_array_header_1_0(file, header)
    with pytest.raises(InputError) as raised:
        read_recording(path)
    assert raised.value.code == code
