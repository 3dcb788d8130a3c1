"""A scheduler that is not there: one exit code in every verb, whether its directory or its process is missing."""

import pytest
from coding import with_code
from commands import refused

from apples.errors import LaunchError
from apples.jobs import SchedulerClient, found

VERBS = [
    ["queue"],
    ["history"],
    ["why", "local.1"],
    ["cancel", "local.1"],
    ["resize", "local.1", "--hosts", "ada"],
    ["migrate", "local.1", "--from", "ada", "--to", "bob"],
    ["drain", "ada"],
    ["resume", "ada"],
    ["what-if", "--hosts-more", "1"],
    ["submit", "--template", "t.toml"],
]
OF_LOG = [
    ["wait", "local.1"],
    ["logs", "local.1"],
    ["report", "local.1"],
    ["rebalance", "local.1"],
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
