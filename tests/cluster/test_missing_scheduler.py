"""A scheduler that is not there: one exit code in every verb, whether its directory or its process is missing."""

import os
import socket
import subprocess
import sys

import pytest
from coding import with_code
from commands import refused

from apples.errors import LaunchError
from apples.jobs import SchedulerClient, found

VERBS = [
    ["queue"],
    ["queue", "--all"],
    ["queue", "local.1"],
    ["cancel", "local.1"],
    ["resize", "local.1", "--on", "ada"],
    ["resize", "local.1", "--from", "ada", "--to", "bob"],
    ["drain", "ada"],
    ["undrain", "ada"],
    ["queue", "--what-if", "--hosts-more", "1"],
    ["submit", "--template", "t.toml"],
]
OF_LOG = [
    ["wait", "local.1"],
    ["logs", "local.1"],
    ["report", "local.1"],
    ["resize", "local.1", "--balance"],
]
"""Verbs that read the log where no process answers, or wait for one to come back."""


@pytest.fixture(autouse=True)
def no_scheduler(tmp_path, monkeypatch):
    """Start in an empty folder, with an empty state directory; return the home of the schedulers."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("APPLES_SCHEDULER", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.toml").write_text('name = "heat"\nprogram = ["true"]\n')
    return tmp_path / "state/apples/schedulers"


@pytest.mark.parametrize("words", [*VERBS, *OF_LOG], ids=" ".join)
def test_missing_directory_is_exit_code_4(words):
    failure = refused("apples", *words)
    assert (failure["code"], failure["exit_code"]) == ("scheduler-missing", 4)


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_missing_process_is_exit_code_4(words, no_scheduler):
    (no_scheduler / "local").mkdir(parents=True)
    (no_scheduler / "local/journal").touch()
    failure = refused("apples", *words)
    assert (failure["code"], failure["exit_code"]) == ("scheduler-unreachable", 4)
    assert failure["fields"]["place"] == str(no_scheduler / "local")
    assert f"apples scheduler --directory {no_scheduler / 'local'}" in failure["message"]


def test_named_directory_that_is_missing_is_the_same_error(tmp_path, monkeypatch):
    missing = with_code("scheduler-missing", file=str(tmp_path / "none"))
    with pytest.raises(LaunchError, check=missing):
        found(tmp_path / "none")
    monkeypatch.setenv("APPLES_SCHEDULER", str(tmp_path / "none"))
    with pytest.raises(LaunchError, check=missing):
        found()
    unreachable = with_code("scheduler-unreachable", place=str(tmp_path))
    with pytest.raises(LaunchError, check=unreachable):
        SchedulerClient(tmp_path).ask("GET", "/v1/queue")


@pytest.mark.parametrize(("method", "may_happen"), [("GET", False), ("POST", True)])
def test_request_without_an_answer_may_still_be_carried_out(method, may_happen, tmp_path):
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.bind(str(tmp_path / "socket"))
        stopped.listen()
        with pytest.raises(LaunchError, check=with_code("scheduler-unreachable")) as raised:
            SchedulerClient(tmp_path, seconds=0.1).ask(method, "/v1/jobs")
    assert "not within 0.1 s" in str(raised.value)
    assert ("may still carry out" in str(raised.value)) == may_happen


LISTENS = """
import os, signal, socket, sys
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(sys.argv[1])
    listener.listen()
    print(flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_stopped_scheduler_is_named_with_the_remedy(tmp_path):
    command = [sys.executable, "-c", LISTENS, str(tmp_path / "socket")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        try:
            failure = refused("apples", "queue", "--scheduler", tmp_path)
        finally:
            process.kill()
    assert (failure["code"], failure["exit_code"]) == ("scheduler-stopped", 4)
    assert failure["fields"] == {"place": str(tmp_path), "process": process.pid}
    assert f"kill -CONT {process.pid}" in failure["message"]
