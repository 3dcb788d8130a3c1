"""What is left of a job on another machine, on a real sshd: counted, killed if the job is over, or not known."""

import os
import subprocess
import sys
import tempfile

import pytest

from apples.errors import LaunchError
from apples.launch.remote.remains import remains
from apples.resources import read_host_list
from apples.supervision.job_processes import MARK, mark

pytestmark = pytest.mark.ssh
WAIT = ["-c", "import sys; sys.stdout.write('.'); sys.stdout.flush(); sys.stdin.read()"]
JOB, OTHER = "fee1dead", "fee1feed"


@pytest.fixture
def listed(sshd, tmp_path, monkeypatch):
    with tempfile.TemporaryDirectory(prefix="s-", dir="/tmp") as folder:
        monkeypatch.setenv("XDG_STATE_HOME", f"{folder}/{'long' * 30}")  # no login is shared
        (tmp_path / "hosts.toml").write_text(sshd.host_list(1, dead=1))
        yield read_host_list(tmp_path / "hosts.toml")


def started(*words, **environment):
    process = subprocess.Popen(
        [sys.executable, *WAIT, *words], env={**os.environ, **environment},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout.read(1) == b"."
    return process


def test_processes_are_known_by_their_environment_or_their_arguments_and_killed_when_over(listed):
    host = listed["h1"]
    with started(**{MARK: JOB}) as one, started(mark(JOB)) as two, started(mark(OTHER)) as other:
        assert remains(host, listed, {JOB: False, OTHER: False}) == {JOB: 2, OTHER: 1}
        assert remains(host, listed, {JOB: True, OTHER: False}) == {JOB: 0, OTHER: 1}
        assert (one.wait(30), two.wait(30), other.poll()) == (-9, -9, None)
        other.kill()


def test_a_host_that_does_not_answer_says_nothing_of_what_is_there(listed):
    with pytest.raises(LaunchError, match=r"dead1: ssh: connect to host 127\.0\.0\.9"):
        remains(listed["dead1"], listed, {JOB: True})
    assert remains(listed["h1"], listed, {}) == {}
