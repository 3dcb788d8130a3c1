"""What is written is read back as it was."""

import dataclasses
import tomllib
from datetime import UTC, date, datetime, time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hat import dump, parse

KEYS = st.text(max_size=6)
SCALARS = st.one_of(
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=12),
    st.datetimes(timezones=st.just(UTC)),
    st.dates(),
    st.times(),
)
VALUES = st.recursive(
    SCALARS,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(KEYS, below, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_any_table_survives_being_written_and_read(table):
    assert tomllib.loads(dump(table)) == table


@given(st.floats())
def test_every_float_keeps_its_bits(value):
    assert tomllib.loads(dump({"x": value}))["x"].hex() == float(value).hex()


def test_a_dataclass_is_written_too():
    @dataclasses.dataclass(frozen=True)
    class Point:
        x: int
        when: date | None = None

    assert dump(Point(3)) == "x = 3\n"
    assert parse(dump(Point(3, date(2026, 1, 2))), Point) == Point(3, date(2026, 1, 2))


def test_tables_come_after_plain_values():
    table = {"a": {"b": [{"c": 1}, {"d": {}}]}, "e": [{"f": 1}, 2], "g h": [], "t": time(1, 2)}
    assert dump(table) == (
        'e = [{f = 1}, 2]\n"g h" = []\nt = 01:02:00\n\n[a]\n\n[[a.b]]\nc = 1\n\n[[a.b]]\n\n[a.b.d]\n'
    )


@pytest.mark.parametrize("value", [{"a": None}, {"a": object()}, 3, {"a": "\ud800"}, {"a": b"x"}])
def test_what_toml_cannot_say_is_refused(value):
    with pytest.raises((TypeError, ValueError)):
        dump(value)


def test_nothing_is_an_empty_document():
    assert tomllib.loads(dump({})) == {}
    assert dump({"x": datetime(2026, 1, 2, 3, 4)}) == "x = 2026-01-02T03:04:00\n"  # noqa: DTZ001


@example({"": {}}, {"": [{}]})
@example({"a": [{"b": 1}]}, {"a": {"b": 2}})
@given(st.dictionaries(KEYS, VALUES, max_size=5), st.dictionaries(KEYS, VALUES, max_size=5))
def test_what_is_written_over_another_document_is_read_as_it_was(old, new):
    assert tomllib.loads(dump(new, over=dump(old))) == new


HOSTS = """\
# our two machines

[[host]]            # the quick one
name = 'ada'        # in the cellar
cpu = 0.50          # half of it is ours
cpus = [0,  1]

[[host]]
name = "bob"

# the wire between them
[default_link]
latency = 1e-4  # measured in May
"""


def test_a_document_that_already_says_so_is_not_touched():
    assert dump(tomllib.loads(HOSTS), over=HOSTS) == HOSTS


def test_comments_order_and_spelling_stay_where_a_value_changes():
    wanted = tomllib.loads(HOSTS)
    wanted["host"][0]["cpu"] = 0.75
    del wanted["host"][0]["cpus"]
    wanted["host"][1]["slots"] = 2
    wanted["host"].append({"name": "eve"})
    wanted["ssh_config"] = "config"
    text = dump(wanted, over=HOSTS)
    assert tomllib.loads(text) == wanted
    kept = [line for line in HOSTS.splitlines() if "#" in line and not line.startswith("cpu")]
    assert [line for line in text.splitlines() if line in kept] == kept
    assert "cpu = 0.75          # half of it is ours" in text
