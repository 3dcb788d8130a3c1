import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from apples.errors import ApplicationError
from apples.launch import HostTimes, Progress, events, parse, readable
from apples.malleable import HostRows, ResizeDone, say_moved

SCHEMA = json.loads(Path(events.__file__).with_name("protocol.schema.json").read_text())["$defs"]
KINDS = {
    "ready": events.Ready,
    "progress": events.Progress,
    "messages": events.MessagesSent,
    "rows": events.RowDigests,
    "result": events.Outcome,
    "done": events.DoneEvent,
    "error": events.ErrorEvent,
    "calibration": events.Calibration,
}
PROGRESS = {
    "event": "progress",
    "iteration": 1,
    "iterations": 2,
    "seconds": 0.5,
    "residual": None,
    "hosts": [{"host": "ada", "compute_seconds": 1, "communicate_seconds": 2.0}],
}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def line(**changes):
    return json.dumps({**PROGRESS, **changes}).encode()


def test_progress_is_read_as_it_is_written():
    assert parse(line()) == Progress(1, 2, 0.5, (HostTimes("ada", 1.0, 2.0),))


def test_a_job_manager_says_that_hosts_are_changing_and_how_many_ranks_there_will_be():
    assert parse(b'{"event": "changing", "ranks": 5}') == events.HostsChanging(5)
    said = []
    done = ResizeDone(3, (HostRows("ada", 0, 7), HostRows("bob", 7, 2)), 0.5, {"wait": 0.25})
    say_moved(said.append, done, 40)
    found = parse(said[0].encode())
    assert isinstance(found, events.HostsChanged)
    assert (found.epoch, found.iteration, found.seconds, found.phases) == (
        3,
        40,
        0.5,
        {"wait": 0.25},
    )
    assert found.members == (("ada", 7), ("bob", 2))
    many = tuple(HostRows(f"{k:0120}", 0, 1) for k in range(512))
    say_moved(said.append, ResizeDone(4, many, 0.5, {}), 50)
    assert len(said) == 1, "a line that nobody would read"
    resumed = parse(b'{"event": "resumed", "ranks": 5, "iteration": 40}')
    assert resumed == events.Resumed(5, 40)


def test_messages_of_more_ranks_than_a_job_has_are_refused():
    said = {"event": "messages", "hosts": [["ada", 1 << 15], ["bob", 1 << 15]], "sent": []}
    assert parse(json.dumps(said).encode()).hosts == (("ada", 1 << 15), ("bob", 1 << 15))
    said["hosts"].append(["cleo", 1])
    with pytest.raises(ApplicationError) as raised:
        parse(json.dumps(said).encode())
    assert raised.value.code == "event-invalid"
    assert raised.value.fields == {"event": "messages", "field": "hosts"}


def test_fields_of_a_later_version_are_passed_over():
    assert parse(line(mood="good")) == parse(line())


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"iteration": "1"}, "iteration"),
        ({"iteration": 1.5}, "iteration"),
        ({"iteration": True}, "iteration"),
        ({"seconds": float("nan")}, "seconds"),
        ({"seconds": float("inf")}, "seconds"),
        ({"seconds": -1}, "seconds"),
        ({"seconds": 10**400}, "seconds"),
        ({"residual": float("inf")}, "residual"),
        ({"hosts": {}}, "hosts"),
        ({"hosts": [{"host": "ada"}]}, "hosts.0.compute_seconds"),
        ({"hosts": [{**PROGRESS["hosts"][0], "host": 7}]}, "hosts.0.host"),
    ],
)
def test_a_wrong_field_is_named(changes, field):
    with pytest.raises(ApplicationError) as raised:
        parse(line(**changes))
    assert raised.value.code == "event-invalid"
    assert raised.value.fields == {"event": "progress", "field": field}


@pytest.mark.parametrize(
    "talk",
    [
        *(b"", b"{", b"[]", b"null", b"3", b'"event"', b'{"event": 3}', b'{"event": "weather"}'),
        *(b"{" * 60_000, b'{"a":' * 20_000, b"\xff\x00", b'{"event": "progress"', b"x" * 200_000),
    ],
)
def test_what_is_no_event_is_talk(talk):
    assert parse(talk) is None


def test_an_event_that_is_too_long_is_refused_and_not_lost():
    with pytest.raises(ApplicationError) as raised:
        parse(line(hosts=PROGRESS["hosts"] * 2000))
    assert (raised.value.code, raised.value.fields["bound"]) == ("event-too-long", 65536)


@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_line_is_an_event_or_talk_or_refused(data):
    assert_harmless(data)


@given(
    st.sampled_from([*KINDS, "weather"]),
    st.dictionaries(
        st.sampled_from(sorted({name for kind in KINDS for name in SCHEMA[kind]["properties"]})),
        json_values,
    ),
)
@example("error", {"message": "\ud800"})
@example("error", {"message": "two\nlines"})
def test_any_event_is_checked_or_refused(kind, fields):
    assert_harmless(json.dumps({**fields, "event": kind}).encode())


def assert_harmless(data):
    try:
        found = parse(data)
    except ApplicationError as refusal:
        found = str(refusal).isprintable()
    assert found is None or found is True or isinstance(found, tuple(KINDS.values()))


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_and_the_values_have_the_same_fields(kind):
    schema = TypeAdapter(KINDS[kind]).json_schema()
    assert set(schema.get("properties", {})) == set(SCHEMA[kind]["properties"]) - {"event"}
    stricter = {"hosts"} if kind == "progress" else {"sha256"} if kind == "result" else set()
    assert set(schema.get("required", ())) | stricter == set(SCHEMA[kind]["required"]) - {"event"}


def test_the_schema_and_the_values_have_the_same_fields_of_a_host():
    schema = TypeAdapter(events.HostTimes).json_schema()
    assert set(schema["properties"]) == set(SCHEMA["hosts"]["items"]["properties"])


def test_times_without_spikes_are_the_whole_where_a_program_clips_none():
    plain = HostTimes("ada", 2.0, 0.1, processor_seconds=1.5)
    assert (plain.steady_compute_seconds, plain.steady_processor_seconds) == (2.0, 1.5)
    clipped = parse(line(
        clipped_seconds=1.1,
        hosts=[{"host": "ada", "compute_seconds": 2.0, "communicate_seconds": 0.1,
                "clipped_compute_seconds": 1.0, "clipped_processor_seconds": 0.9}],
    ))  # fmt: skip
    assert clipped.steady_seconds == 1.1
    assert clipped.hosts[0].steady_compute_seconds == 1.0
    assert clipped.hosts[0].steady_processor_seconds == 0.9


@given(st.text(), st.integers(3, 50))
def test_foreign_text_becomes_one_printable_line(text, limit):
    shown = readable(text, limit)
    assert len(shown) <= limit
    assert shown.isprintable()
