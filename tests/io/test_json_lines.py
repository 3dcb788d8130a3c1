"""Lines are bounded before they are parsed, objects are checked, and nothing depends on how bytes are cut."""

from __future__ import annotations

import contextlib
import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apples.io import (
    DEEPEST,
    MAX_LINE_BYTES,
    Greeting,
    LineBuffer,
    LineError,
    decode,
    encode,
)

documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def exceeds(code, bound):
    """Return a check: a `LineError` of this code and bound."""
    return lambda error: (error.code, error.bound) == (code, bound)


@pytest.mark.more
@given(st.lists(st.dictionaries(st.text(max_size=8), documents, max_size=5), max_size=5))
def test_what_is_encoded_is_decoded_to_the_same(bodies):
    stream = b"".join(encode(body) for body in bodies)
    assert stream.count(b"\n") == len(bodies)
    assert [decode(line) for line in LineBuffer().feed(stream)] == bodies


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=8), st.booleans())
def test_lines_do_not_depend_on_how_the_bytes_are_cut(data, cuts, truncating):
    longest = 12 if truncating else 200
    whole = LineBuffer(longest, truncating=truncating)
    pieces = LineBuffer(longest, truncating=truncating)
    at_once = whole.feed(data)
    found = []
    for start, end in pairwise([0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]):
        found += pieces.feed(data[start:end])
    assert found == at_once
    assert pieces.rest() == whole.rest()


@given(st.binary(max_size=300))
def test_any_bytes_are_an_object_or_a_line_error(line):
    with contextlib.suppress(LineError):
        assert isinstance(decode(line), dict)


def test_a_line_that_does_not_end_is_refused_at_its_bound():
    lines = LineBuffer(100)
    assert lines.feed(b"x" * 100) == []
    with pytest.raises(LineError, check=exceeds("message-too-long", 100)):
        lines.feed(b"x")


def test_a_truncated_line_can_be_told_from_one_that_fits():
    lines = LineBuffer(3, truncating=True)
    assert lines.feed(b"abc\nabcd\n" + b"e" * 1000 + b"\n") == [b"abc", b"abcd", b"eeee"]
    lines.feed(b"f" * 1000)
    assert lines.unfinished == 4


def test_the_carriage_return_of_half_a_line_end_is_no_text():
    lines = LineBuffer(10)
    assert lines.feed(b"a\r") == []
    assert lines.feed(b"\nb\r") == [b"a"]
    assert lines.rest() == b"b"
    assert lines.rest() == b""


@pytest.mark.parametrize(
    "line",
    [
        b"", b"[]", b"5", b'"text"', b"null", b"{", b"{}{}", b"\xff\xfe", b'{"a":NaN}', b'{"a":-Infinity}',
        b'{"a":1e999}', b'{"a":1,"a":2}', b'{"b":{"a":1,"a":2}}', b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":' + b"9" * 400 + b"}",
        b"[" * 50_000, b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    ],
)  # fmt: skip
def test_what_is_no_checked_object_is_refused(line):
    with pytest.raises(LineError):
        decode(line)


def test_an_object_is_bounded_in_depth():
    nested: object = 1
    for _ in range(DEEPEST - 1):
        nested = [nested]
    assert decode(encode({"a": nested})) == {"a": nested}
    with pytest.raises(LineError, check=exceeds("message-too-deep", DEEPEST)):
        decode(encode({"a": [nested]}))
    assert decode(b'{"a":{}}', deepest=2) == {"a": {}}
    with pytest.raises(LineError, check=exceeds("message-too-deep", 1)):
        decode(b'{"a":{}}', deepest=1)


def test_an_object_is_bounded_in_length():
    line = encode({"a": "x" * MAX_LINE_BYTES})
    with pytest.raises(LineError, check=exceeds("message-too-long", MAX_LINE_BYTES)):
        decode(line)
    assert decode(line, longest=len(line))["a"].startswith("xx")


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_number_that_is_not_finite_is_not_sent(number):
    with pytest.raises(ValueError):  # noqa: PT011 - of the standard library, without a code
        encode({"seconds": number})


def test_a_login_that_never_greets_is_given_up():
    greeting = Greeting(b"hello/1\n", longest=50)
    assert greeting.skip(b"Welcome\n" * 5) == b""
    with pytest.raises(LineError, check=exceeds("greeting-missing", 50)):
        greeting.skip(b"Welcome\n" * 5)


@given(st.integers(0, 30))
def test_a_greeting_is_heard_wherever_the_bytes_are_cut(cut):
    stream = b"motd motd\nhello/1\n{}\nmore"
    greeting = Greeting(b"hello/1\n")
    assert greeting.skip(stream[:cut]) + greeting.skip(stream[cut:]) == b"{}\nmore"
