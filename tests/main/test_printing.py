"""Nothing that is printed steers a terminal or hides in what it shows, whoever wrote it."""

import json
import os
import re
import subprocess
import sys
import unicodedata

import pytest
from commands import command
from hypothesis import assume, given
from hypothesis import strategies as st

from apples.jobs import store
from apples.ui import INVISIBLE, escaped

HIDDEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u180b\u180e\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u202a\u202e"
    "\u2060\u2064\u2065\u2066\u2069\u3164\ufe00\ufe0f\ufeff\uffa0\ufff0\ufff9\U0001bca0\U000e0001\U000e0041"
    "\x00\x07\x08\r\x1b\x7f\x80\x9b\x9c\x9f\ud800\udcff"
)
TEXTS = st.text(max_size=80) | st.text(st.sampled_from(HIDDEN + "a\n\té界 "), max_size=20)


def steers(text):
    """Characters of a text that no terminal may be given."""
    bad = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return [c for c in text if hides(c) or (unicodedata.category(c) in bad and c not in "\t\n")]


def hides(character):
    return character in HIDDEN or any(ord(character) in each for each in INVISIBLE)


@given(TEXTS)
def test_no_character_that_steers_or_hides_is_left_and_no_other_is_changed(text):
    found = escaped(text)
    assert not steers(found)
    if not steers(text):
        assert found == text


@pytest.mark.more
def test_every_character_of_unicode_is_shown_or_escaped():
    for start in range(0, 0x110000, 0x1000):
        assert not steers(escaped("".join(map(chr, range(start, start + 0x1000)))))


@given(TEXTS)
def test_json_that_was_escaped_says_what_it_said(text):
    assume(
        not re.search("[\ud800-\udbff][\udc00-\udfff]", text)
    )  # JSON reads such a pair as one character
    printed = escaped(json.dumps({text: [text]}, ensure_ascii=False))
    assert not steers(printed)
    assert json.loads(printed) == {text: [text]}


def test_a_file_whose_name_clears_the_screen_is_named_and_the_screen_stays(tmp_path):
    done = command("apples", "topology", "show", tmp_path / "a\x1b[2J\u202e\u200b.xml")
    assert done.code == 2
    assert r"a\u001b[2J\u202e\u200b.xml" in done.err
    assert not steers(done.err)


def test_words_that_are_misused_steer_nothing():
    assert not steers(command("apples", "plan", "--a\x9b2J\u202e").err)


@pytest.mark.parametrize("terminal", [True, False])
def test_what_a_job_said_is_as_it_was_in_a_pipe_and_harmless_on_a_terminal(
    terminal, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    said = "step 1\x1b]0;owned\x07\u202edone\n"
    job = store.create({}, "heat")
    job.log.write_text(said)
    reading, writing = os.openpty() if terminal else os.pipe()
    code = "from apples.__main__ import main; main()"
    words = [sys.executable, "-c", code, "logs", job.folder.name]
    subprocess.run(words, stdout=writing, check=True, stderr=subprocess.DEVNULL)
    found = os.read(reading, 1000).decode().replace("\r\n", "\n")
    os.close(reading)
    os.close(writing)
    assert (found == said) != terminal
    assert bool(steers(found)) != terminal
