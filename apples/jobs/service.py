"""The verbs for jobs: submit, list, status, resize, migrate, rebalance, wait, cancel, restart.

A job is a run that a supervisor of its own owns, so that it outlives whoever submitted it. Every function takes
the job's id, or the beginning of one, and hands back a typed value; nothing is printed. What planning needs is
loaded by none: supervisors, and plans of moves, are forks of the parked interpreter (`apples.jobs.parked`).
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from apples.agent.session.spec import RunSpec
from apples.errors import DeadlineError, Failure, LaunchError, UsageError, failure_of
from apples.jobs import parked, store
from apples.jobs.records import (
    JobStatus,
    PlannedMove,
    ResizeEstimate,
    ResizeResult,
    RunRecord,
    conversation,
)
from apples.jobs.spec import JobSpec, ProgramSpec
from apples.launch import job_processes
from apples.launch.host_spec import place_of
from apples.malleable.control.commits import whole_manifests

Talk = Callable[[str], None]

SUPERVISOR = "apples.jobs.supervisor"
FIRST_LINE_SECONDS = 300.0
"""Longer than measuring, planning and starting may take without a line: then the supervisor itself is stuck."""
END_SECONDS = 10.0
CLEAR_SECONDS = 5.0
"""For what a job had here to be cleared up after the death of its supervisor."""
PR_SET_PDEATHSIG = 1


# --------------------------------------------------------------------------- submitting
def submit(spec: RunSpec | JobSpec | ProgramSpec, *, talk: Talk = lambda _: None) -> JobStatus:
    """Start a job and return once it runs, or waits for Slurm.

    Raises
    ------
    ApplesError
        What kept it from running, as in the foreground. The job is on record as failed; `talk` hears its id.
    KeyboardInterrupt
        It was interrupted before; the job is cancelled.
    """
    order = (JobSpec(spec) if isinstance(spec, RunSpec) else spec).document()
    if not isinstance(spec, ProgramSpec):  # what its actuator refuses is said here already
        order = parked.call("check", order=order)
    job = store.create(order, "")
    with _cancelled_if_interrupted(job, talk):
        with job.locked() as lock:
            heard = _start_supervisor(job, lock)
        return _running_job(job, heard, talk)


def begin(job: store.StoredJob) -> None:
    """Start the supervisor of a job whose record was just made, and do not wait for what it says.

    Raises
    ------
    LaunchError, OSError
        There is none; the job is on record as failed.
    """
    with job.locked() as lock:
        os.close(_start_supervisor(job, lock))


def restart(job: str, *, talk: Talk = lambda _: None) -> JobStatus:
    """Start a job again that is over and not finished, from its last commit on disk; return once it runs.

    It is planned anew, for the hosts that there are now. Whatever ended it is no matter: its supervisor or this
    machine was lost, or all its hosts, or it failed, or was cancelled.

    Raises
    ------
    LaunchError
        It is not over; or a process of it cannot be ended.
    UsageError
        It is finished, or there is no commit. Permanent.
    ApplesError, KeyboardInterrupt
        What kept it from running, as of `submit`.
    """
    found = store.job(job)
    if found.record()["state"] in store.OVER:
        found.until_over(END_SECONDS)  # its supervisor may have said so and not ended yet
    with _cancelled_if_interrupted(found, talk):
        try:
            with found.locked() as lock:
                record = found.record()
                commit = _last_commit(found, record)
                _end_remains(found)
                found.begin_again(record, commit)
                heard = _start_supervisor(found, lock)
        except BlockingIOError:
            state = found.record()["state"]
            raise LaunchError(
                f"job {found.id} is {state}: it is not over",
                code="job-running",
                job=found.id,
                value=state,
            ) from None
        return _running_job(found, heard, talk)


@contextmanager
def _cancelled_if_interrupted(job: store.StoredJob, talk: Talk) -> Iterator[None]:
    """Cancel a job whose start is interrupted: who was told no id cannot."""
    try:
        yield
    except KeyboardInterrupt:
        cancel(job.id)
        _record_as_cancelled(job)
        talk(f"job {job.id} is {job.record()['state']}")
        raise


def _last_commit(job: store.StoredJob, record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the manifest of the commit that a job would go on from; refuse one that cannot."""
    if record["state"] == "finished":
        raise UsageError(
            f"job {job.id} is finished: there is nothing to go on with",
            code="job-finished",
            job=job.id,
        )
    commit = next(whole_manifests(job.commits), None)
    if commit is None:
        raise UsageError(
            f"job {job.id} has no commit in {job.commits} to go on from (see --commit of apples run)",
            code="commit-missing",
            job=job.id,
            file=job.commits,
        )
    return commit


def _end_remains(job: store.StoredJob) -> None:
    """See that nothing is left here of a job whose supervisor has just died; it is being cleared up already."""
    deadline = time.monotonic() + CLEAR_SECONDS
    while job_processes.marked(job.id) and time.monotonic() < deadline:
        time.sleep(0.02)
    _kill_marked(job)


def _kill_marked(job: store.StoredJob) -> None:
    if not job_processes.kill_marked(job.id, END_SECONDS):
        left = job_processes.marked(job.id)
        raise LaunchError(
            f"processes that cannot be killed: {left}",
            code="processes-left",
            job=job.id,
            value=left,
        )
    job.clear_up()


# The lock is handed over. If it were free in between, `apples jobs` would report a killed
# supervisor, and the record could overwrite a cancellation.
def _start_supervisor(job: store.StoredJob, lock: int) -> int:
    """Start the supervisor of a job, which inherits its lock; return the pipe in which it says one line."""
    heard, telling = os.pipe()
    try:
        with job.log.open("ab") as log:
            parked.start("supervise", log.fileno(), (telling, lock), folder=str(job.folder))
    except LaunchError as error:
        os.close(heard)
        code = error.exit_code
        job.write({**job.record(), "state": "failed", "reason": str(error), "exit_code": code})
        raise
    except BaseException:
        os.close(heard)
        raise
    finally:
        os.close(telling)
    return heard


def _running_job(job: store.StoredJob, heard: int, talk: Talk) -> JobStatus:
    """Return a job once its supervisor says that it runs, or waits for Slurm."""
    try:
        news = _news(heard, talk)
    finally:
        os.close(heard)
    if "failure" in news:
        talk(f"job {job.id} failed; see: apples logs {job.id}")
        raise Failure.of_document(news["failure"]).error()
    return JobStatus.of(job)


def run_program(spec: ProgramSpec, *, talk: Talk = lambda _: None) -> RunRecord:
    """Run a program as a job that ends with this process, and return the record of its run.

    It has an id, so that it can be migrated while it runs; `talk` hears it.
    """
    job = store.create(spec.document(), "")
    talk(f"job {job.id} on {', '.join(spec.on)}; its output: {spec.output or job.commits}")
    heard, telling = os.pipe()
    libc = ctypes.CDLL(None)
    with job.locked() as lock:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", SUPERVISOR, str(job.folder), str(telling), str(lock)],
            pass_fds=(telling, lock),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0),  # noqa: PLW1509 - one thread
        )
    os.close(telling)
    try:
        code = supervisor.wait()
    except KeyboardInterrupt:
        supervisor.terminate()
        supervisor.wait()
        raise
    finally:
        os.close(heard)
    return replace(RunRecord.of(job), exit_code=code)


def _news(pipe: int, talk: Talk) -> dict[str, Any]:
    """Return the news of a job's start from its supervisor; `talk` is told the lines of its log before that."""
    text = b""
    while True:
        while b"\n" not in text:
            if not select.select([pipe], [], [], FIRST_LINE_SECONDS)[0]:
                silent = DeadlineError(
                    f"the job's supervisor sent nothing for {FIRST_LINE_SECONDS:g} s",
                    code="supervisor-silent",
                    seconds=FIRST_LINE_SECONDS,
                )
                return {"failure": failure_of(silent).document()}
            data = os.read(pipe, 1 << 16)
            if not data:
                gone = LaunchError(
                    "the job's supervisor ended before it reported the start",
                    code="supervisor-ended",
                )
                return {"failure": failure_of(gone).document()}
            text += data
        line, _, text = text.partition(b"\n")
        news = json.loads(line)
        if not isinstance(news, dict):
            return {}
        if "log" not in news:
            return news
        talk(str(news["log"]))


# ------------------------------------------------------------------------------ looking
def list_jobs() -> list[JobStatus]:
    """Return every job of this user, the oldest first, as its supervisor last recorded it."""
    return [JobStatus.of(job, ask=False) for job in store.jobs()]


def list_runs() -> list[dict[str, Any]]:
    """Return the entry in ``apples.runs/1`` of every run and job of this user, the oldest first."""
    return [one.summary() for one in store.records()]


def run_record(name: str) -> RunRecord:
    """Return what was recorded of a run or job, over or not; one whose record nothing supervises is over."""
    return RunRecord.of(store.record(name))


def prune(days: float, most_bytes: int) -> tuple[list[str], int]:
    """Remove records of runs that are over: those older than so many days, then the oldest beyond so many bytes.

    Returns
    -------
    Ids of the removed ones, and how many bytes they had.
    """
    return store.prune(days * 86400.0, most_bytes, time.time())


def status(job: str) -> JobStatus:
    """Return where a job is, or a run that its command waits for; a job that runs is asked.

    Raises
    ------
    UsageError
        Nothing has this id, or several begin so; every verb raises it.
    """
    return JobStatus.of(store.record(job))


def log(job: str) -> str:
    """Return what a job and its supervisor, or a run, said so far."""
    return store.record(job).log.read_text("utf-8", errors="replace")


def wait(job: str, seconds: float | None = None) -> RunRecord:
    """Wait for the end of a job, or of a run that another command waits for, and return its record.

    Raises
    ------
    DeadlineError
        It still runs after `seconds`.
    """
    found = store.record(job)
    if not found.until_over(seconds):
        raise DeadlineError(
            f"job {found.id} still runs after {seconds:g} s",
            code="wait-timeout",
            job=found.id,
            seconds=seconds,
        )
    return RunRecord.of(found)


# ------------------------------------------------------------------------------- moving
def resize(job: str, weights: Mapping[str, float]) -> ResizeResult:
    """Move a running job to these hosts; returns when it is there.

    Parameters
    ----------
    weights
        By host: a factor on its planned speed, above 0; 1 is as planned.

    Raises
    ------
    UsageError
        An unknown host, a weight that is none, or what the job's limits forbid. Permanent.
    LaunchError
        It is over, busy, or cannot be resized; it tried in vain and goes on as it was; or it lost a host meanwhile
        and was rolled back, and the message says to which iteration.
    """
    return plan_resize(job, weights).carry_out()


def migrate(job: str, source: str, target: str) -> ResizeResult:
    """Move what a running job has on one host to another; the others keep what they have. Raises as `resize`."""
    return plan_migration(job, source, target).carry_out()


def rebalance(job: str) -> ResizeResult:
    """Balance a running job anew on its hosts, by what they were measured to do. Raises as `resize`."""
    return plan_resize(job, None).carry_out()


def own_job(job: str, called: str = "") -> str:
    """Return the name of a job that is nobody's but its user's.

    Parameters
    ----------
    called
        What the user calls it, if otherwise.

    Raises
    ------
    UsageError
        It is a scheduler's, which would know nothing of a move. Permanent.
    """
    scheduled = store.job(job).order().get("scheduled")
    if scheduled:
        name = f"{scheduled['scheduler']}.{scheduled['job']}"
        raise UsageError(
            f"{called or job}: is {name}, whose hosts are its scheduler's; see: apples queue",
            code="job-scheduled",
            job=name,
        )
    return job


def plan_resize(job: str, weights: Mapping[str, float] | None) -> PlannedMove:
    """Return what `resize` would do, or `rebalance` where there are no weights, with what it would take."""
    for host, weight in (weights or {}).items():
        if not 0 < weight < math.inf:
            raise UsageError(
                f"{host}: its weight must be above 0, and is {weight:g}",
                code="value-range",
                field="weight",
                host=host,
                value=weight if math.isfinite(weight) else str(weight),
                bound=0,
            )
    return _planned(job, weights=None if weights is None else dict(weights))


def plan_migration(job: str, source: str, target: str) -> PlannedMove:
    """Return what `migrate` would do, with what it would take."""
    return _planned(job, source=source, target=target)


def _planned(job: str, **wanted: Any) -> PlannedMove:
    """Return a move that a fork of the parked interpreter has planned (`apples.jobs.resizing.plan`)."""
    found = store.job(job)
    talking = conversation(found)  # one that is over says so at once
    plan = parked.call("plan", folder=str(found.folder), **wanted)
    estimate = plan["estimate"] and ResizeEstimate(**plan["estimate"])
    places = [place_of(one) for one in plan["places"]]
    return PlannedMove(found, talking, plan["position"], plan["rows"], estimate, places)


# ------------------------------------------------------------------------------- ending
def cancel(job: str) -> JobStatus:
    """End a job; when this returns no process of it is left.

    Raises
    ------
    LaunchError
        Its supervisor, or a process of it, cannot be ended.
    """
    found = store.job(job)
    ended = found.record()["state"] in store.OVER and not found.supervised()
    if not ended:
        _end(found)
    _kill_marked(found)
    if not ended:
        _record_as_cancelled(found)
    return JobStatus.of(found)


def _record_as_cancelled(job: store.StoredJob) -> None:
    """Have a job that has no supervisor any more, and was not over when it ended, be one that was cancelled."""
    record = job.record()
    if record.get("reason") == store.LOST:
        record.update(state="cancelled", reason="")
        job.write(record)


def _end(job: store.StoredJob) -> None:
    """Have the supervisor end the job, and end the supervisor if it does not."""
    handle = job.supervisor()
    if handle < 0:
        return
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(OSError):
                signal.pidfd_send_signal(handle, signal.SIGCONT)
                signal.pidfd_send_signal(handle, number)
            if select.select([handle], [], [], END_SECONDS)[0]:
                return
    finally:
        os.close(handle)
    raise LaunchError(
        f"job {job.id}: its supervisor cannot be ended", code="processes-left", job=job.id
    )
