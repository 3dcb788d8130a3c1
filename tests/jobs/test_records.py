"""What is known of a job from its files alone."""

import errno
import os
import signal

import pytest

from apples.errors import ApplicationError, LaunchError, UsageError
from apples.io import documents
from apples.jobs import (
    CancelledError,
    JobStatus,
    RunRecord,
    Supervisor,
    cancel_by_signal,
    position_record,
    service,
    store,
)

KEYS = [
    "schema", "id", "state", "hosts", "rows", "epoch", "iteration", "last_resize",
    "name", "iterations", "reason", "exit_code", "redistributions", "last_change",
    "attempt", "slow_hosts",
]  # fmt: skip


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def job():
    return store.create({}, "heat")


def write(job, **news):
    job.write({**job.record(), **news})


def test_the_document_of_a_job_has_these_keys_in_this_order(job):
    with job.supervising():
        write(job, state="running", hosts=["ada"], rows=[20])
        assert list(JobStatus.of(job).document()) == KEYS


def test_a_job_whose_supervisor_is_gone_is_failed(job):
    write(job, state="running")
    status = JobStatus.of(job)
    assert (status.state, status.reason, status.exit_code) == ("failed", store.LOST, 4)


def test_a_job_that_is_being_started_is_not_taken_for_one_whose_supervisor_is_gone(job):
    with job.locked() as lock:
        assert JobStatus.of(job).state == "starting"
        with pytest.raises(BlockingIOError), job.locked():
            pass
        inherited = os.dup(lock)
    try:
        assert job.supervised()
        with job.supervising(inherited):
            handle = job.supervisor()
            assert handle >= 0
            os.close(handle)
    finally:
        os.close(inherited)
    assert not job.supervised()


@pytest.mark.more
@pytest.mark.parametrize(
    ("record", "code"),
    [
        ({"state": "finished", "exit_code": 0}, "job-finished"),
        ({"state": "failed", "reason": "x"}, "commit-missing"),
        ({"state": "running"}, "commit-missing"),  # its supervisor was killed
    ],
)
def test_a_job_that_cannot_go_on_says_why_and_stays_as_it_was(job, record, code):
    write(job, **record)
    before = JobStatus.of(job)
    with pytest.raises(UsageError) as refused:
        service.restart(job.id)
    assert (refused.value.code, refused.value.fields["job"]) == (code, job.id)
    assert JobStatus.of(job) == before
    with job.supervising(), pytest.raises(LaunchError) as running:
        service.restart(job.id)
    assert (running.value.code, running.value.fields["job"]) == ("job-running", job.id)


@pytest.mark.parametrize(("name", "kept"), [("apples-abcdefg8", False), ("apples-abc", True)])
def test_a_runs_folder_is_removed_only_where_the_note_of_it_is_whole(job, tmp_path, name, kept):
    folder = tmp_path / name
    folder.mkdir()
    (folder / "task.json").touch()
    (job.folder / "run").write_text(str(folder))
    job.clear_up()
    job.clear_up()  # there is nothing left to do
    assert folder.exists() == kept
    assert not (job.folder / "run").exists()


def test_a_damaged_record_is_a_failed_job_among_the_others(job):
    other = store.create({}, "other")
    (job.folder / "job.json").write_text("{")
    states = {one.id: one.state for one in service.list_jobs()}
    assert states == {job.id: "failed", other.id: "failed"}
    assert "job.json" in JobStatus.of(job).reason


@pytest.mark.parametrize(
    ("record", "code"),
    [
        ({"state": "cancelled", "exit_code": 0}, 5),
        ({"state": "failed", "exit_code": 3}, 3),
        ({"state": "failed", "exit_code": None}, 4),
    ],
)
def test_a_run_without_a_result_has_an_exit_code_that_says_so(job, record, code):
    write(job, **record)
    found = RunRecord.of(job)
    assert (found.exit_code, found.document, found.verified, found.hosts) == (code, None, None, ())


def test_a_record_has_the_figures_of_its_document(job):
    execution = {
        "iterations": 7, "predicted_seconds": 2.0, "measured_seconds": 2.5,
        "hosts": [{"host": "ada"}, {"host": "bob"}],
    }  # fmt: skip
    job.write_result({"execution": execution, "verified": False, "result_sha256": "ab"})
    write(job, state="failed", exit_code=6, reason="the result differs")
    found = RunRecord.of(job)
    assert (found.iterations, found.predicted_seconds, found.measured_seconds) == (7, 2.0, 2.5)
    assert (found.hosts, found.verified, found.result_sha256) == (("ada", "bob"), False, "ab")
    assert (found.state, found.exit_code) == ("failed", 6)


def test_a_position_without_an_iteration_keeps_the_one_that_is_known():
    last = {"epoch": 1, "seconds": 0.2, "phases": {"wait": 0.1}}
    position = {"hosts": ["a"], "rows": [3], "epoch": 1, "iteration": 0, "last_resize": last}
    found = position_record(position)
    assert "iteration" not in found
    assert found["last_resize"] == last


class FullDisk:
    """A disk that takes a file only while there is no reserve in its folder."""

    def __init__(self, job, monkeypatch):
        self.job, self.write, self.full = job, documents.replace, True
        monkeypatch.setattr(documents, "replace", self)

    def __call__(self, path, text):
        if self.full and self.job.reserve.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        self.write(path, text)


def test_a_full_disk_is_a_warning_and_the_last_record_stays(job, monkeypatch, capsys):
    supervisor = Supervisor(job, lambda _: None)
    supervisor.recorder.note(state="running", iteration=1)
    disk = FullDisk(job, monkeypatch)
    supervisor.recorder.note(iteration=2)
    supervisor.recorder.note(iteration=3)
    with job.supervising():
        assert (job.record()["state"], job.record()["iteration"]) == ("running", 1)
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{job.folder}/job.json: {os.strerror(errno.ENOSPC)}" in line
        disk.full = False
        supervisor.recorder.note(iteration=4)
        assert job.record()["iteration"] == 4


def test_a_cancellation_is_heard_while_the_job_is_asked_where_it_is(job):
    class Asked:
        movable = True

        def position(self, _):
            signal.raise_signal(signal.SIGTERM)

    job.announce.touch()
    before = signal.signal(signal.SIGTERM, cancel_by_signal)
    try:
        with pytest.raises(CancelledError):
            Supervisor(job, lambda _: None).update_position(Asked())
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("kept", ["by its own model", "here"])
def test_a_job_whose_result_cannot_be_kept_has_failed(job, kept):
    document = {"verified": None}

    def carried_out():
        if kept != "here":
            supervisor.recorder.record_result(document)
        return document

    told = []
    supervisor = Supervisor(job, told.append, carried_out)
    job.result.mkdir()
    assert supervisor.run() == 4
    assert JobStatus.of(job).state == "failed"
    assert [news["failure"]["code"] for news in told] == ["result-unwritable"]


@pytest.mark.parametrize("by_its_own_model", [True, False])
def test_the_result_of_a_job_is_written_once(job, by_its_own_model):
    document, written = {"verified": None}, []

    class Counting(store.StoredJob):
        def write_result(self, result):
            written.append(result)
            super().write_result(result)

    def carried_out():
        if by_its_own_model:
            supervisor.recorder.record_result(document)
        return document

    supervisor = Supervisor(Counting(job.folder), lambda _: None, carried_out)
    assert supervisor.run() == 0
    assert written == [document]
    assert job.result.exists()


def test_how_a_job_ended_is_kept_on_a_full_disk_in_the_room_kept_for_it(job, monkeypatch):
    def fails():
        FullDisk(job, monkeypatch)
        raise ApplicationError("rank 0 fell", code="program-failed")

    told = []
    assert Supervisor(job, told.append, fails).run() == ApplicationError.exit_code
    status = JobStatus.of(job)
    assert (status.state, status.exit_code) == ("failed", ApplicationError.exit_code)
    assert [news["failure"]["code"] for news in told] == ["program-failed"]
    assert not job.reserve.exists()


def test_what_became_of_a_change_is_on_record_with_one_of_three_answers():
    about = {"id": "", "epoch": 3, "reason": "", "seconds": 0.0, "phases": {}}
    place = {"hosts": ["ada"], "rows": [9], "epoch": 3, "iteration": 7, "last_resize": None}
    for kind, answer, iteration in (
        ("done", "done", None),
        ("failed", "refused", None),
        ("rolled_back", "rolled back", 5),
    ):
        last = {**about, "reply": kind, "detail": "why", "iteration": iteration or 0}
        found = position_record({**place, "last_change": last})["last_change"]
        said = {"answer": answer, "epoch": 3, "reason": "why", "iteration": iteration}
        assert found == said
