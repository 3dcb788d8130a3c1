"""The jobs of a live scheduler as jobs of the job service: what is begun, and what never is."""

import os
import threading
import time

import pytest
from waiting import until

from apples.jobs import parked, service, store
from apples.jobs.executor import JobServiceExecutor
from apples.scheduling.server.orders import (
    LAST,
    AskOrder,
    AttemptPhase,
    EndOrder,
    EstimateOrder,
    HostLeft,
    StartOrder,
)

START = StartOrder(1, 1, 1, "0000abcd", ("ada", "bob"), {"template": "none.toml"})
END = EndOrder(1, 1, 1, "0000abcd", ("ada", "bob"))


class Watched:
    """An executor, and all that it has reported."""

    def __init__(self, tmp_path):
        self.executor = JobServiceExecutor(
            "lab", tmp_path / "h.toml", time.monotonic, lambda: None
        )
        self.said = []

    def ended(self):
        self.said += self.executor.reports()
        phases = [getattr(one, "phase", None) for one in self.said]
        left = {one.host for one in self.said if isinstance(one, HostLeft) and one.epoch == LAST}
        return AttemptPhase.ENDED in phases and left == {"ada", "bob"}


@pytest.fixture
def watched(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found = Watched(tmp_path)
    yield found
    found.executor.close()


def test_an_attempt_that_was_ended_before_it_began_never_begins(watched, monkeypatch):
    begun = []
    monkeypatch.setattr(service, "begin", begun.append)
    watched.executor.carry_out([END])
    until(watched.ended, 30)
    watched.executor.carry_out([START])
    until(lambda: not watched.executor._doing, 30)
    assert begun == []
    assert store.job("0000abcd").record()["state"] == "cancelled"


def test_an_order_to_end_does_not_meet_one_to_start_half_way(watched, monkeypatch):
    """It would find a folder and no supervisor, say that all is over, and the job would run."""
    go_on, at_it = threading.Event(), threading.Event()

    def slow(_job):
        at_it.set()
        go_on.wait(30)

    monkeypatch.setattr(service, "begin", slow)
    watched.executor.carry_out([START])
    assert at_it.wait(30)
    watched.executor.carry_out([END])
    assert watched.executor._doing == {(False, 1, 1)}
    go_on.set()
    until(lambda: not watched.executor._doing, 30)
    watched.executor.carry_out([END])
    until(watched.ended, 30)


def test_an_attempt_whose_starter_died_before_its_supervisor_is_begun_by_the_next(
    watched, monkeypatch
):
    store.create({}, "", identifier="0000abcd")
    watched.executor.carry_out([AskOrder(1, 1, 2, "0000abcd", False)])
    until(lambda: not watched.executor._doing, 30)
    assert [one.phase for one in watched.executor.reports()] == [AttemptPhase.ABSENT]
    begun = []
    monkeypatch.setattr(service, "begin", begun.append)
    watched.executor.carry_out([START])
    until(lambda: not watched.executor._doing, 30)
    assert [job.id for job in begun] == ["0000abcd"]


def test_an_attempt_whose_record_was_not_completed_is_over_and_never_began(watched):
    (store.folder() / "0000abcd").mkdir()
    watched.executor.carry_out([START])
    until(watched.ended, 30)
    assert store.StoredJob(store.folder() / "0000abcd").record()["exit_code"] == 4


def test_an_attempt_whose_folder_is_gone_is_over_and_one_that_never_was_is_absent(watched):
    watched.executor.carry_out([AskOrder(1, 1, 1, "0000abcd", False)])
    until(lambda: not watched.executor._doing, 30)
    assert [one.phase for one in watched.executor.reports()] == [AttemptPhase.ABSENT]
    watched.executor.carry_out(
        [AskOrder(1, 1, 1, "0000abcd", True, (("ada", LAST), ("bob", LAST)))]
    )
    until(watched.ended, 30)


def test_a_job_is_estimated_again_when_one_of_its_files_was_written_anew(
    watched, monkeypatch, tmp_path
):
    calls = []

    def call(_, **asked):
        calls.append(asked)
        return 10.0 * len(calls)

    monkeypatch.setattr(parked, "call", call)
    template = tmp_path / "t.toml"
    template.write_text("one")
    order = EstimateOrder(1, 1, 2, {"template": str(template), "user": None})

    def estimates(count):
        watched.executor.carry_out([order])
        until(
            lambda: watched.said.extend(watched.executor.reports()) or len(watched.said) == count,
            30,
        )
        return [one.seconds for one in watched.said]

    estimates(1)
    assert estimates(2) == [10.0, 10.0]
    os.utime(template, ns=(1, 1))
    assert estimates(3) == [10.0, 10.0, 20.0]
