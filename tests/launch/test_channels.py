"""What supervisors say over ssh, cut up by the network as it likes, and what is no supervisor at all."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from apples.launch import HELLO, LONGEST_HEAD, MOST_BEFORE_HELLO, SupervisorChannel

FRAMES = st.lists(
    st.tuples(st.sampled_from(["output", "error", "beat"]), st.binary(max_size=60)), max_size=12
)


def frame(kind, body):
    return f"{kind} {len(body)}\n".encode() + body


@example(frames=[("output", b"half a line end\r")], cuts=[], junk=b"")
@example(frames=[("output", b"\r")], cuts=[], junk=b"")
@given(frames=FRAMES, cuts=st.lists(st.integers(1, 40), max_size=60), junk=st.binary(max_size=30))
def test_lines_do_not_depend_on_how_the_stream_was_cut(frames, cuts, junk):
    stream = junk.replace(b"apples", b"") + b"\n" + HELLO
    stream += b"".join(frame(kind, body) for kind, body in frames) + frame("report", b"rank 3")
    channel, heard, at = SupervisorChannel("ada"), [], 0
    for size in [*cuts, len(stream)]:
        heard += channel.feed(stream[at : at + size])
        at += size
    heard += channel.rest()
    for source in ("output", "error"):
        whole = b"".join(body for kind, body in frames if kind == source)
        lines = [line.removesuffix(b"\r") for line in whole.split(b"\n")]
        lines = lines if lines[-1] else lines[:-1]
        assert [line for kind, line in heard if kind == source] == lines
    assert ("report", b"rank 3") in heard
    assert (channel.heard, channel.broken, channel.cleared) == (True, "", False)


@pytest.mark.parametrize(
    "stream",
    [
        b"output x\n",
        b"output 99999999999\n",
        b"shell 3\nabc",
        b"output -1\n",
        b"x" * (LONGEST_HEAD + 1),
    ],
)
def test_what_is_no_frame_breaks_the_channel_and_is_not_kept(stream):
    channel = SupervisorChannel("ada")
    assert channel.feed(HELLO + stream) == []
    assert channel.broken
    assert channel.feed(frame("output", b"late\n")) == []


def test_a_login_may_greet_but_not_for_ever():
    channel = SupervisorChannel("ada")
    channel.feed(b"Welcome!\n" * (MOST_BEFORE_HELLO // 9 - 1))
    assert not channel.broken
    channel.feed(b"Welcome!\n" * 2)
    assert channel.broken


def test_a_report_that_is_none_is_not_passed_on():
    channel = SupervisorChannel("ada")
    for body in (b"rank x", b"rank -1", b"rank " + b"9" * 20, b"lost ada", b"\xff"):
        assert channel.feed((b"" if channel.heard else HELLO) + frame("report", body)) == []


def test_a_supervisor_that_says_clear_is_believed_and_others_reports_are_not():
    channel = SupervisorChannel("ada")
    assert channel.feed(HELLO + frame("report", b"exit 0") + frame("report", b"clear")) == []
    assert channel.cleared
