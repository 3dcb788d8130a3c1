"""The verbs for jobs: submit, list, status, resize, migrate, rebalance, wait, cancel, restart.

A job is a run with a supervisor process of its own, so that it outlives the command that submitted it. Each
function takes the job's id, or the beginning of an id, and returns a typed value; nothing is printed.
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
from apples.jobs import store
from apples.jobs.move_planner import plan_move
from apples.jobs.records import (
    JobStatus,
    PlannedMove,
    ResizeResult,
    RunRecord,
    control_client,
)
from apples.jobs.spec import JobSpec, ProgramSpec
from apples.launch import job_processes
from apples.malleable.control.commits import SCHEMA, other_schema, whole_manifests

Talk = Callable[[str], None]

SUPERVISOR = "apples.jobs.supervisor"
DETACHED = f"import os; os.fork() and os._exit(0); from {SUPERVISOR} import main; raise SystemExit(main())"
"""Program of a detached job's supervisor. It forks before it loads modules, so that no process has to reap it."""
FIRST_LINE_SECONDS = 300.0
"""Time limit for the next line of a starting supervisor: measuring, planning and starting print one earlier."""
STATE_SECONDS = 1.0
"""Poll interval of the state of a job while a command waits for its end."""
END_SECONDS = 10.0
CLEAR_SECONDS = 5.0
"""Time limit of the cleanup of a job's processes here after the death of its supervisor."""
PR_SET_PDEATHSIG = 1


# --------------------------------------------------------------------------- submitting
def submit(spec: RunSpec | JobSpec | ProgramSpec, *, talk: Talk = lambda _: None) -> JobStatus:
    """Start a job and return once it runs, or waits for Slurm.

    Raises
    ------
    ApplesError
        The job cannot run; the errors are those of a run in the foreground. The job is recorded as failed, and
        `talk` is called with its id.
    KeyboardInterrupt
        The start was interrupted; the job is cancelled.
    """
    if isinstance(spec, RunSpec):
        spec = JobSpec(spec)
    if isinstance(spec, JobSpec):  # report the actuator's error here, not only in the job's log
        spec = _checked(spec)
    job = store.create(spec.document(), "")
    with _cancelled_if_interrupted(job, talk):
        with job.locked() as lock:
            news = _start_supervisor(job, lock)
        return _running_job(job, news, talk)


def _checked(spec: JobSpec) -> JobSpec:
    """Return the specification of an application, with the name of its actuator filled in.

    Raises
    ------
    ApplesError
        The actuator rejects the specification.
    """
    from apples.launch.actuators.choice import actuator_name, actuator_of  # noqa: PLC0415 - only a start needs it

    through = actuator_name(spec.run.actuator, spec.run.hosts)
    if not actuator_of(through, spec.run.output, spec.run.slurm).queues:
        _refuse_rectangles(spec.run)
    return replace(spec, run=replace(spec.run, actuator=through))


RECTANGULAR = {"rectangles", "strips_or_rectangles", "square_blocks"}
"""Planners, and a blueprint, that may plan rectangles."""


def _refuse_rectangles(run: RunSpec) -> None:
    """Reject a planner or blueprint of rectangles for a job that can be moved: such a job has strips.

    Raises
    ------
    hat.DocumentError
        The user file or the template is invalid. Permanent.
    UsageError
        The run may be planned as rectangles. Permanent.
    """
    import hat  # noqa: PLC0415 - only a start needs it
    from apples.malleable.actuator import NO_RECTANGLES  # noqa: PLC0415 - likewise

    named = {run.planner, run.blueprint}
    if run.user is not None and None in named:
        written = hat.Document.of(run.user, run.contents.get("user"))
        wishes = written.validate(hat.UserSpecifications).preferences
        named = {run.planner or wishes.planner, run.blueprint or wishes.blueprint}
    if not named & RECTANGULAR:
        return
    template = hat.Document.of(run.template, run.contents.get("template"))
    if template.validate(hat.ApplicationTemplate).malleable:
        raise UsageError(NO_RECTANGLES, code="rectangles-unsupported")


def restart(job: str, *, talk: Talk = lambda _: None) -> JobStatus:
    """Restart a failed or cancelled job from its last commit on disk; return once it runs.

    The job is planned again for the hosts that are available now. Any end can be restarted: the supervisor, this
    machine or all hosts were lost, the job failed, or the user cancelled it.

    Raises
    ------
    LaunchError
        The job is not over; or one of its processes cannot be ended.
    UsageError
        The job is finished, or has no commit. Permanent.
    ApplesError, KeyboardInterrupt
        The job could not be started; as `submit`.
    """
    stored = store.job(job)
    if stored.record()["state"] in store.OVER:
        stored.until_over(END_SECONDS)  # the supervisor records the end shortly before it ends
    with _cancelled_if_interrupted(stored, talk):
        try:
            with stored.locked() as lock:
                record = stored.record()
                commit = _last_commit(stored, record)
                _end_leftovers(stored)
                stored.begin_again(record, commit)
                news = _start_supervisor(stored, lock)
        except BlockingIOError:
            state = stored.record()["state"]
            raise LaunchError(
                f"job {stored.id} is {state}: it is not over",
                code="job-running",
                job=stored.id,
                value=state,
            ) from None
        return _running_job(stored, news, talk)


@contextmanager
def _cancelled_if_interrupted(job: store.StoredJob, talk: Talk) -> Iterator[None]:
    """Cancel the job if its start is interrupted: the user does not have its id yet."""
    try:
        yield
    except KeyboardInterrupt:
        cancel(job.id)
        _record_as_cancelled(job)
        talk(f"job {job.id} is {job.record()['state']}")
        raise


def _last_commit(job: store.StoredJob, record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the manifest of the commit from which a job continues; reject a job that cannot continue."""
    if record["state"] == "finished":
        raise UsageError(
            f"job {job.id} is finished and cannot be restarted",
            code="job-finished",
            job=job.id,
        )
    commit = next(whole_manifests(job.commits), None)
    if commit is None and (schema := other_schema(job.commits)):
        raise UsageError(
            f"job {job.id}: the commits in {job.commits} have the format {schema}; this version reads {SCHEMA}:"
            " restart the job with the version that wrote them, or run it anew",
            code="commit-format",
            job=job.id,
            file=job.commits,
            value=schema,
            expected=SCHEMA,
        )
    if commit is None:
        raise UsageError(
            f"job {job.id} has no commit in {job.commits} to restart from (see --commit of apples run)",
            code="commit-missing",
            job=job.id,
            file=job.commits,
        )
    return commit


def _end_leftovers(job: store.StoredJob) -> None:
    """Wait for the end of a job's processes after its supervisor has died, then kill the remaining processes."""
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


# The lock is handed over: if it were free in between, `apples jobs` would report a killed
# supervisor, and the record could overwrite a cancellation.
def _start_supervisor(job: store.StoredJob, lock: int) -> int:
    """Start the supervisor of a job, which inherits its lock; return the pipe on which it reports the start."""
    news, report = os.pipe()
    words = [str(job.folder), str(report), str(lock)]
    try:
        with job.log.open("ab") as log:
            subprocess.run(
                [sys.executable, "-P", "-c", DETACHED, *words],
                pass_fds=(report, lock),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                check=True,
            )
    except (OSError, subprocess.CalledProcessError) as error:
        os.close(news)
        refused = LaunchError(
            f"cannot start the job's supervisor: {error}", code="process-not-started", job=job.id
        )
        job.never_begins("failed", str(refused))
        raise refused from None
    except BaseException:
        os.close(news)
        raise
    finally:
        os.close(report)
    return news


def _running_job(job: store.StoredJob, pipe: int, talk: Talk) -> JobStatus:
    """Wait until a job's supervisor reports that it runs or waits for Slurm; return its status."""
    try:
        news = _news(pipe, talk)
    finally:
        os.close(pipe)
    if "failure" in news:
        talk(f"job {job.id} failed; see: apples logs {job.id}")
        raise Failure.of_document(news["failure"]).error()
    return JobStatus.of(job)


def run_program(spec: ProgramSpec, *, talk: Talk = lambda _: None) -> RunRecord:
    """Run a program as a job that ends with this process, and return the record of its run.

    `talk` is called with the job's id, by which the job can be migrated while it runs.
    """
    job = store.create(spec.document(), "")
    talk(f"job {job.id} on {', '.join(spec.on)}; its output: {spec.output or job.commits}")
    news, report = os.pipe()
    libc = ctypes.CDLL(None)
    with job.locked() as lock:
        supervisor = subprocess.Popen(
            [sys.executable, "-P", "-m", SUPERVISOR, str(job.folder), str(report), str(lock)],
            pass_fds=(report, lock),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0),  # noqa: PLW1509 - one thread
        )
    os.close(report)
    try:
        code = supervisor.wait()
    except KeyboardInterrupt:
        supervisor.terminate()
        supervisor.wait()
        raise
    finally:
        os.close(news)
    return replace(RunRecord.of(job), exit_code=code)


def _news(pipe: int, talk: Talk) -> dict[str, Any]:
    """Return the supervisor's message about the start of a job; call `talk` with the log lines before it."""
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
    """Return the last recorded status of each job of this user, the oldest first."""
    return [JobStatus.of(job, ask=False) for job in store.jobs()]


def list_runs() -> list[dict[str, Any]]:
    """Return the entry in `runs` of ``apples.jobs/1`` of every run and job of this user, the oldest first."""
    return [run.summary() for run in store.records()]


def run_record(name: str) -> RunRecord:
    """Return the record of a run or job, over or not; a run without a supervisor is over."""
    return RunRecord.of(store.record(name))


def prune(days: float, most_bytes: int) -> tuple[list[str], int]:
    """Remove records of ended runs: those older than `days`, then the oldest until all have at most `most_bytes`.

    Returns
    -------
    Ids and total bytes of the removed records.
    """
    return store.prune(days * 86400.0, most_bytes, time.time())


def status(job: str) -> JobStatus:
    """Return the status of a job or run; a running job is queried.

    Raises
    ------
    UsageError
        No id begins with `job`, or several do; each verb raises this error.
    """
    return JobStatus.of(store.record(job))


def log(job: str) -> str:
    """Return the log of a job or run so far."""
    return store.record(job).log.read_text("utf-8", errors="replace")


def wait(
    job: str,
    seconds: float | None = None,
    *,
    on_verifying: Callable[[float], object] = lambda _: None,
) -> RunRecord:
    """Wait for the end of a job, or of a run in the foreground of another command, and return its record.

    Parameters
    ----------
    on_verifying
        Called once, with the estimated seconds left, if the result is being verified.

    Raises
    ------
    DeadlineError
        The job still runs after `seconds`.
    """
    stored = store.record(job)
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    announced = False
    while not stored.until_over(max(0.0, min(STATE_SECONDS, deadline - time.monotonic()))):
        if not announced:
            left = JobStatus.of(stored, ask=False).verifying_seconds
            announced = left is not None
            if left is not None:
                on_verifying(left)
        if time.monotonic() < deadline:
            continue
        raise DeadlineError(
            f"job {stored.id} still runs after {seconds:g} s",
            code="wait-timeout",
            job=stored.id,
            seconds=seconds,
        )
    return RunRecord.of(stored)


# ------------------------------------------------------------------------------- moving
def resize(job: str, weights: Mapping[str, float]) -> ResizeResult:
    """Move a running job to these hosts; return when the move is complete.

    Parameters
    ----------
    weights
        Host -> factor on its planned speed, above 0; 1: as planned.

    Raises
    ------
    UsageError
        A host is unknown, a weight is invalid, or the job's limits forbid the move. Permanent.
    LaunchError
        The job is over, busy, or cannot be resized; the move failed and the job continues unchanged; or the job
        lost a host during the move and was rolled back to the iteration in the message.
    """
    return plan_resize(job, weights).carry_out()


def migrate(job: str, source: str, target: str) -> ResizeResult:
    """Move the rows of a running job from one host to another; the other hosts keep theirs. Raises as `resize`."""
    return plan_migration(job, source, target).carry_out()


def rebalance(job: str) -> ResizeResult:
    """Balance the rows of a running job on its hosts by their measured speeds. Raises as `resize`."""
    return plan_resize(job, None).carry_out()


def own_job(job: str, called: str = "") -> str:
    """Return the name of a job that no scheduler manages.

    Parameters
    ----------
    called
        The name that the user typed, if it differs from `job`.

    Raises
    ------
    UsageError
        A scheduler manages the job; a move from here would bypass it. Permanent.
    """
    scheduled = store.job(job).order().get("scheduled")
    if scheduled:
        name = f"{scheduled['scheduler']}.{scheduled['job']}"
        raise UsageError(
            f"{called or job}: is {name}; its scheduler decides its hosts; see: apples queue",
            code="job-scheduled",
            job=name,
        )
    return job


def plan_resize(job: str, weights: Mapping[str, float] | None) -> PlannedMove:
    """Return the move of `resize`, or of `rebalance` without weights, with its estimated cost."""
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
    """Return the move of `migrate`, with its estimated cost."""
    return _planned(job, source=source, target=target)


def _planned(job: str, **wanted: Any) -> PlannedMove:
    """Return the move that the job's supervisor plans."""
    stored = store.job(job)
    control = control_client(stored)  # for the command as well
    try:
        position = control.status()
        return PlannedMove(stored, control, position, *plan_move(stored, position, **wanted))
    except BaseException:
        control.close()
        raise


# ------------------------------------------------------------------------------- ending
def cancel(job: str) -> JobStatus:
    """End a job; when this returns, all its processes are gone.

    Raises
    ------
    LaunchError
        The supervisor, or another process of the job, cannot be ended.
    """
    stored = store.job(job)
    ended = stored.record()["state"] in store.OVER and not stored.supervised()
    if not ended:
        _end(stored)
    _kill_marked(stored)
    if not ended:
        _record_as_cancelled(stored)
    return JobStatus.of(stored)


def _record_as_cancelled(job: store.StoredJob) -> None:
    """Record a job as cancelled if its supervisor ended before it recorded an end."""
    record = job.record()
    if record.get("reason") == store.LOST:
        record.update(state="cancelled", reason="")
        job.write(record)


def _end(job: store.StoredJob) -> None:
    """Request the end of the job from its supervisor; kill the supervisor if it does not end."""
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
