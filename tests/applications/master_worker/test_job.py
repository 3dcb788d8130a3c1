"""A master with its workers as a job: what its scheduler commands reaches the run, the rest its record."""

import secrets
import threading
from contextlib import contextmanager

import pytest
from waiting import until

from apples import LaunchError, UsageError
from apples.applications import RunStatus
from apples.jobs import CommandedHosts, JobStatus, RunRecorder, control_client, store
from apples.malleable import ControlServer, HostShare, JobEnded, ResizeCommand, carried_out

AT = RunStatus("ada", ("ada", "bob"), 20, 200, {"ada": 30.0, "bob": 0.0}, (3, 4))


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = store.create({}, "")
    made.write({**made.record(), "state": "running"})
    with made.supervising():
        yield made


@contextmanager
def commanded(job, *, evolving=True, ended=JobEnded("finished")):  # noqa: B008 - it is frozen
    recorder = RunRecorder(job, lambda _: None)
    given = CommandedHosts(job, recorder, ["ada", "bob", "cleo"], ("ada",), evolving=evolving)
    try:
        yield given
    finally:
        given.close(ended)


def position(job):
    with control_client(job) as client:
        return client.status()


def resized(job, *hosts):
    """Command a job to be on hosts from a thread; return the thread, and what comes of it."""
    came = []

    def ask():
        with control_client(job) as client:
            epoch = int(client.status()["epoch"]) + 1
            command = ResizeCommand(epoch, tuple(HostShare(host) for host in hosts))
            try:
                came.append(carried_out(client.resize(command, 30.0)).kind)
            except (LaunchError, UsageError) as error:
                came.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread, came


def test_a_record_says_where_the_run_is_how_far_how_fast_and_for_what_it_asks(job):
    with commanded(job) as giver:
        assert JobStatus.of(job).hosts == ("ada",)
        giver.report(AT)
        record, status = job.record(), JobStatus.of(job)
    assert (status.hosts, status.iteration, status.iterations) == (("ada", "bob"), 20, 200)
    assert (record["asks"], record["anchor"]) == ([3, 4], "ada")
    assert record["measured"] == {"rows": {"ada": 30.0}, "compute_seconds": {"ada": 1.0}}
    assert not job.control_socket.exists()


def test_one_that_is_not_evolving_says_only_how_many_it_can_use(job):
    with commanded(job, evolving=False) as giver:
        giver.report(AT)
        assert job.record()["asks"] == [1, 4]


def test_a_command_stands_until_the_run_has_answered_it_and_its_epoch_is_in_the_record(job):
    with commanded(job) as giver:
        giver.report(AT)
        thread, came = resized(job, "ada", "cleo")
        assert until(giver.order, 30) == ("ada", "cleo") == giver.order()
        assert position(job)["busy"]
        giver.answer(RunStatus("ada", ("ada", "cleo"), 30, 200))
        assert giver.order() == ()
        thread.join(30)
        assert came == ["done"]
        assert (JobStatus.of(job).hosts, job.record()["epoch"]) == (("ada", "cleo"), 1)
        thread, came = resized(job, "bob")
        until(giver.order)
        giver.answer(AT, "ada is the master's host")
        thread.join(30)
        assert came[0].code == "resize-failed"
        assert came[0].fields.get("reason") == "ada is the master's host"
        assert (position(job)["epoch"], job.record()["epoch"]) == (2, 2)


def refusal_of(giver):
    """Return the error with which a run is ended when it says where it is, None if there is none."""
    try:
        giver.report(AT)
    except LaunchError as error:
        return error
    return None


def test_a_run_that_nobody_can_command_any_more_ends_with_a_line(job, monkeypatch):
    def broken(_):
        raise RuntimeError("planted")

    with commanded(job) as giver:
        giver.report(AT)
        monkeypatch.setattr(ControlServer, "poll", broken)
        error = until(lambda: refusal_of(giver))
    assert error.code == "control-lost"
    assert error.fields["reason"].endswith("RuntimeError: planted")


@pytest.mark.parametrize("state", ["finished", "failed", "cancelled"])
def test_a_host_that_nobody_knows_is_refused_and_whoever_waits_hears_how_the_run_ended(job, state):
    with commanded(job, ended=JobEnded(state, "why " * 1000)) as giver:
        thread, came = resized(job, "ada", secrets.token_hex(4))
        thread.join(30)
        assert isinstance(came[0], UsageError)
        assert came[0].code == "host-unknown"
        thread, late = resized(job, "ada", "bob")
        until(giver.order)
    thread.join(30)
    assert late[0].code == "job-ended"
    assert state in late[0].fields["reason"]
