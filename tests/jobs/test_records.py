"""What is known of a job from its files alone."""

import pytest

from apples.jobs import JobStatus, RunRecord, service, store
from apples.jobs.records import position_record

KEYS = [
    "schema", "id", "state", "hosts", "rows", "epoch", "iteration", "last_resize",
    "name", "iterations", "reason", "exit_code", "redistributions",
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


def test_a_damaged_record_is_a_failed_job_among_the_others(job):
    other = store.create({}, "other")
    (job.folder / "job.json").write_text("{")
    states = {one.id: one.state for one in service.list_jobs()}
    assert states == {job.id: "failed", other.id: "failed"}
    assert "cannot be read" in JobStatus.of(job).reason


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
