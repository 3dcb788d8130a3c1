"""The slow hosts of a job: in its status and text, and in the document of a run that has not ended."""

from apples.jobs import JobStatus, RunRecord, document_so_far, job_text, store

SLOW = {
    "host": "bob", "since_iteration": 120, "until_iteration": None, "factor": 2.13, "cause": "other load",
    "iteration_cost_seconds": 0.01, "costs_seconds": 8.8,
}  # fmt: skip
LINE = (
    "slow host bob: 2.1 times as slow as planned since iteration 120: other load has its CPU; "
    "costs 10.0 ms an iteration, 8.80 s until the end"
)
PLAN = {
    "schema": "apples.plan/1",
    "chosen": {
        "iteration_seconds": 0.1,
        "strips": [{"host": "bob", "rows": 5, "compute_seconds": 0.1, "communicate_seconds": 0.0}],
    },
}


def test_the_status_of_a_job_has_its_slow_hosts(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    job = store.create({}, "")
    assert JobStatus.of(job).document()["slow_hosts"] == []
    job.write({**job.record(), "slow_hosts": [SLOW]})
    status = JobStatus.of(job)
    assert status.document()["slow_hosts"] == [SLOW]
    assert f"  {LINE}" in job_text(status).splitlines()


def test_a_run_that_has_not_ended_has_the_slow_hosts_of_its_events():
    host = {
        "host": "bob", "compute_seconds": 20.0, "communicate_seconds": 0.0, "wait_seconds": None,
        "processor_seconds": None,
    }  # fmt: skip
    events = (
        {"event": "slow-host", "at": 3.0, **SLOW},
        {"event": "slow-host", "at": 4.0, **SLOW, "since_iteration": 10, "until_iteration": None},
        {"event": "slow-host", "at": 5.0, **SLOW, "since_iteration": 10, "until_iteration": 60,
         "costs_seconds": 0.5},
        {"event": "progress", "at": 9.0, "iteration": 200, "seconds": 21.0, "hosts": [host]},
    )  # fmt: skip
    record = RunRecord("1f2e3d4c", "running", "", 0, None, PLAN, events)
    found = document_so_far(record)["execution"]["slow_hosts"]
    assert found == [
        {**SLOW, "costs_seconds": 0.01 * 80},
        {**SLOW, "since_iteration": 10, "until_iteration": 60, "costs_seconds": 0.5},
    ]
