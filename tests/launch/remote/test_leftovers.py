"""What is left of a job on another machine, on a real sshd: counted, killed if the job is over, or not known."""

import os
import subprocess
import sys
import tempfile

import pytest

from apples.errors import LaunchError
from apples.launch import MARK, mark, remains
from apples.resources import read_host_list

pytestmark = pytest.mark.ssh
WAIT = "import sys; sys.stdout.write('.'); sys.stdout.flush(); sys.stdin.read()"
JOB, OTHER = "fee1dead", "fee1feed"


@pytest.fixture
def listed(sshd, tmp_path, monkeypatch):
    with tempfile.TemporaryDirectory(prefix="s-", dir="/tmp") as folder:
        monkeypatch.setenv("XDG_STATE_HOME", f"{folder}/{'long' * 30}")  # no login is shared
        (tmp_path / "hosts.toml").write_text(sshd.host_list(1, dead=1))
        yield read_host_list(tmp_path / "hosts.toml")


def left(listed, jobs, host="h1", **seconds):
    """Return how many processes of each job are on a host; a busy machine may take long to answer."""
    return remains(listed[host], listed, jobs, answer_seconds=60.0, **seconds)


def started(*words, before="", **environment):
    process = subprocess.Popen(
        [sys.executable, "-c", f"{before}\n{WAIT}", *words], env={**os.environ, **environment},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout.read(1) == b"."
    return process


def test_processes_are_known_by_their_environment_or_their_arguments_and_ended_when_over(listed):
    with started(**{MARK: JOB}) as one, started(mark(JOB)) as two, started(mark(OTHER)) as other:
        assert left(listed, {JOB: False, OTHER: False}) == {JOB: 2, OTHER: 1}
        assert left(listed, {JOB: True, OTHER: False}) == {JOB: 0, OTHER: 1}
        assert (one.wait(30), two.wait(30), other.poll()) == (-15, -15, None)
        other.kill()


def test_what_is_asked_to_end_removes_what_it_has_made(listed, tmp_path):
    made = tmp_path / "made"
    made.mkdir()
    tidy = (
        f"import os, signal; signal.signal(15, lambda *_: os._exit(bool(os.rmdir({str(made)!r}))))"
    )
    with started(mark(JOB), before=tidy) as one:
        assert left(listed, {JOB: True}, end_seconds=30.0) == {JOB: 0}
        assert one.wait(30) == 0
    assert not made.exists()


def test_what_does_not_end_when_it_is_asked_to_is_killed(listed):
    deaf = "import signal; signal.signal(15, signal.SIG_IGN)"
    with started(mark(JOB), before=deaf) as one:
        assert left(listed, {JOB: True}) == {JOB: 0}
        assert one.wait(30) == -9


def test_a_host_that_does_not_answer_says_nothing_of_what_is_there(listed):
    with pytest.raises(LaunchError) as raised:
        left(listed, {JOB: True}, host="dead1")
    assert (raised.value.code, raised.value.fields["host"]) == ("host-unreachable", "dead1")
    assert left(listed, {}) == {}
