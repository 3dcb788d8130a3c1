"""``apples jobs --watch``: jobs again and again on a terminal, once elsewhere, never more than it shows."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest
from commands import command
from hypothesis import given
from hypothesis import strategies as st
from waiting import until

from apples.jobs import JobStatus, store, watched_text


@pytest.mark.more
def test_jobs_are_followed_on_a_terminal_until_control_c(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    job = store.create({}, "heat")
    controller, terminal = os.openpty()
    os.set_blocking(controller, False)
    with job.supervising():
        job.write({**job.record(), "state": "running", "iteration": 5, "iterations": 90})
        words = [sys.executable, "-m", "apples", "jobs", "--watch"]
        watching = subprocess.Popen(words, stdout=terminal, stderr=terminal, stdin=terminal)
        shown = bytearray()

        def says(text):
            with contextlib.suppress(BlockingIOError):
                shown.extend(os.read(controller, 1 << 16))
            assert watching.poll() is None, shown
            return text in shown

        try:
            until(lambda: says(job.id.encode()), 120)
            job.write({**job.record(), "iteration": 77})
            until(lambda: says(b"77"), 120)
            watching.send_signal(signal.SIGINT)
            assert watching.wait(60) == 0
        finally:
            watching.kill()
            watching.wait()
            os.close(controller)
            os.close(terminal)
        once = command("apples", "jobs", "--watch")  # where the answer goes no terminal is
        assert once.code == 0
        assert once.out.splitlines()[1].split()[0] == job.id
        assert (
            len(once.out.splitlines()) == 3
        )  # heading, job and the line that says what to do next


states = st.sampled_from(["running", "finished", "failed"])
some = st.lists(st.builds(JobStatus, st.just("1f2e3d4c"), states, hosts=st.just(("ada", "bob"))))


@given(some, st.integers(1, 200), st.integers(1, 60))
def test_no_more_is_shown_than_a_terminal_has_room_for(jobs, columns, lines):
    text = watched_text(jobs, columns, lines, alone=False).splitlines()
    assert len(text) <= max(1, lines - 1)
    assert all(len(line) <= max(2, columns) for line in text)
