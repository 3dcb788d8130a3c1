"""Jobs: runs that outlive the command that submitted them, and can be resized while they run.

Read `spec` (what a job is to do), `service` (the verbs), `store` (the folder of a run's record), `recording` (how
it is filled, of jobs and of runs that their commands wait for), `records` (what is known of a run), `unfinished`
and `comparing` (what is made of that), then `parked` (how verbs have things done by forks of an `interpreter` that
has loaded all), `resizing` (plans of moves), `supervisor` (the process that owns one job) and `programs` (jobs of
unmodified programs).

    from apples import RunSpec, jobs

    job = jobs.submit(RunSpec("hosts.toml", "template.toml", "user.toml"))
    jobs.resize(job.id, {"ada": 1, "bob": 0.5})
    print(jobs.wait(job.id).measured_seconds)
"""

from apples.jobs.records import JobStatus, PlannedMove, ResizeEstimate, ResizeResult, RunRecord
from apples.jobs.service import (
    cancel,
    list_jobs,
    list_runs,
    log,
    migrate,
    plan_migration,
    plan_resize,
    prune,
    rebalance,
    resize,
    restart,
    run_program,
    run_record,
    status,
    submit,
    wait,
)
from apples.jobs.spec import JobSpec, ProgramSpec

__all__ = [
    "JobSpec",
    "JobStatus",
    "PlannedMove",
    "ProgramSpec",
    "ResizeEstimate",
    "ResizeResult",
    "RunRecord",
    "cancel",
    "list_jobs",
    "list_runs",
    "log",
    "migrate",
    "plan_migration",
    "plan_resize",
    "prune",
    "rebalance",
    "resize",
    "restart",
    "run_program",
    "run_record",
    "status",
    "submit",
    "wait",
]
