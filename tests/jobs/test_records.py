"""What is known of a job from its files alone."""

import errno
import fcntl
import os
import re
import signal
import threading

import pytest

from apples.errors import ApplicationError, DeadlineError, LaunchError, UsageError
from apples.io import documents
from apples.jobs import (
    CancelledError,
    JobStatus,
    RunRecord,
    RunRecorder,
    Supervisor,
    cancel_by_signal,
    job_text,
    position_record,
    service,
    store,
)
from apples.malleable import commits

KEYS = [
    "schema", "id", "state", "hosts", "rows", "epoch", "iteration", "last_resize",
    "name", "iterations", "reason", "exit_code", "redistributions", "last_change",
    "attempt", "slow_hosts", "verifying_seconds", "restartable",
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


def test_last_resize_is_printed_with_its_own_epoch_and_phases_that_fit_its_seconds():
    phases = {"start": 1.35, "wait": 0.01, "redistribute": 0.2}
    last = {"epoch": 3, "seconds": 0.222, "phases": phases}
    text = job_text(JobStatus("1f2e3d4c", "running", epoch=5, last_resize=last))
    assert re.findall(r"epoch (\d+)", text) == ["3"]
    (parts,) = re.findall(r"\((.*?)\)", text)
    assert "redistribute" in parts
    assert "start" not in parts


@pytest.mark.parametrize(
    ("news", "command"),
    [
        ({"rows": [20], "malleable": True}, "resize {} --on a,b"),
        ({"rows": [20], "malleable": False}, "wait {}"),
        ({"rows": []}, "resize {} --from ada --to HOST"),
    ],
)
def test_running_job_suggests_a_command_that_it_accepts(job, news, command):
    with job.supervising():
        write(job, state="running", hosts=["ada"], **news)
        assert job_text(JobStatus.of(job)).endswith("apples " + command.format(job.id))


def test_status_of_an_application_without_rows_names_its_hosts():
    text = job_text(JobStatus("1f2e3d4c", "finished", ("ada", "bob"), name="sum"))
    assert text.splitlines()[0].endswith("ada, bob")


def test_a_failed_job_with_a_commit_is_to_be_restarted_and_no_other(job):
    write(job, state="failed", reason="rank 1 (bob) was killed", exit_code=4)
    assert not JobStatus.of(job).restartable
    assert job_text(JobStatus.of(job)).endswith(f"apples logs {job.id}")
    commits.publish(job.commits, 1, {"values": {"iteration": 40}})
    assert JobStatus.of(job).restartable
    assert job_text(JobStatus.of(job)).endswith(f"apples restart {job.id}")
    write(job, state="finished", exit_code=0)
    assert not JobStatus.of(job).restartable


def test_a_job_that_is_verified_is_not_moved_and_can_be_cancelled(job):
    recorder = RunRecorder(job, pytest.fail)
    recorder.running()
    heard = []
    with job.supervising():
        recorder.verifying(80.0)
        status = JobStatus.of(job)
        assert (status.state, round(status.verifying_seconds)) == ("verifying", 80)
        with pytest.raises(DeadlineError):
            service.wait(job.id, 0.1, on_verifying=heard.append)
        with pytest.raises(LaunchError) as raised:
            service.plan_resize(job.id, {"ada": 1.0})
        assert raised.value.code == "job-verifying"
    assert [round(seconds) for seconds in heard] == [80]
    assert JobStatus.of(job).verifying_seconds is None


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


def test_job_starts_while_another_process_checks_its_lock(job):
    """A check holds a shared lock for a moment; only a supervisor holds an exclusive one."""
    checker = (job.folder / "lock").open("rb")
    fcntl.flock(checker, fcntl.LOCK_SH)
    done = threading.Timer(0.05, checker.close)
    done.start()
    try:
        with job.locked():
            assert job.supervised()
    finally:
        done.join()


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


def test_job_with_commits_of_another_format_is_not_restarted(job):
    write(job, state="failed", reason="x")
    job.commits.mkdir(exist_ok=True)
    (job.commits / "commit-00000003.json").write_text('{"schema": "apples.commit/1", "commit": 3}')
    with pytest.raises(UsageError) as refused:
        service.restart(job.id)
    assert refused.value.code == "commit-format"
    assert refused.value.fields["value"] == "apples.commit/1"


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

    job.control_socket.touch()
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


def test_job_whose_end_fails_after_a_cancel_is_cancelled(job):
    def fails_to_end():
        try:
            raise CancelledError("cancelled by signal 15")
        finally:
            raise LaunchError("host ada is lost", code="host-lost")

    assert Supervisor(job, lambda _: None, fails_to_end).run() == 0
    assert JobStatus.of(job).state == "cancelled"
    assert "host ada is lost" not in JobStatus.of(job).reason


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
