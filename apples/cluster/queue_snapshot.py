"""A queue at one moment as plain values, from which another process computes its future."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import Any

from apples.cluster.documents import EstimateSource
from apples.cluster.live_job import JobSubmission, LiveJob, LiveJobState
from apples.cluster.scheduler import LiveScheduler
from apples.errors import LaunchError, UsageError
from apples.scheduling.jobs import JobKind

MAX_QUEUED = 2000
"""Waiting jobs of a snapshot, the first of the queue; it omits the others."""
MAX_PAST = 1000
HOST_FAILED = 4
NOT_SUBMITTED = 0
"""Number of a job in a snapshot that is predicted before it is submitted; jobs count from 1."""


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job that runs or waits.

    Attributes
    ----------
    requested
        Estimate of its run time on `maximum` nodes, in seconds.
    nodes
        Its number of nodes; 0: it waits.
    done
        The part of its run time on `maximum` nodes that is over, in seconds.
    alike
        Key of similar runs: its user and name.
    measured
        Whether `requested` comes from its measured progress: then its end is known, and not drawn.
    """

    number: int
    minimum: int
    maximum: int
    requested: float
    malleable: bool = False
    priority: float = 0.0
    nodes: int = 0
    done: float = 0.0
    user: str = ""
    alike: str = ""
    measured: bool = False


@dataclass(frozen=True, slots=True)
class PastJob:
    """A job that was submitted before, over or not.

    Attributes
    ----------
    job
        As it was submitted.
    submitted, started, ended
        Seconds of the scheduler's clock; the last two of its last attempt. None: not yet.
    ratio
        Ratio of its run time on `maximum` nodes to its estimate; None: it is not over, or did not end by itself.
    nodes
        Its mean number of nodes.
    """

    job: QueuedJob
    submitted: float
    started: float | None = None
    ended: float | None = None
    ratio: float | None = None
    nodes: int = 0


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """A queue at one moment.

    Attributes
    ----------
    nodes
        Number of nodes in service.
    jobs
        The running jobs, then the waiting jobs in the order of the queue.
    past
        The jobs submitted last and the jobs that ended last, in the order of their submission, including running
        and waiting jobs. Both kinds are needed: if the queue is long, no recent job is over.
    time
        Time of the snapshot in seconds of the scheduler's clock.
    """

    nodes: int
    jobs: tuple[QueuedJob, ...]
    past: tuple[PastJob, ...] = ()
    time: float = 0.0

    def document(self) -> dict[str, Any]:
        """Return the snapshot as JSON."""
        return {
            "nodes": self.nodes,
            "time": self.time,
            "jobs": [_row(one) for one in self.jobs],
            "past": [[_row(one.job), *_row(one)[1:]] for one in self.past],
        }

    @classmethod
    def parse(cls, found: dict[str, Any]) -> QueueSnapshot:
        """Return the snapshot of a document."""
        jobs = tuple(QueuedJob(*row) for row in found["jobs"])
        past = tuple(PastJob(QueuedJob(*job), *row) for job, *row in found["past"])
        return cls(found["nodes"], jobs, past, found["time"])


def _row(one: QueuedJob | PastJob) -> list[Any]:
    return [getattr(one, each.name) for each in fields(one)]


def snapshot_of(scheduler: LiveScheduler) -> QueueSnapshot:
    """Return the present queue of a scheduler.

    A host that gets no other job is not in service, and does not count for a job on it. A job that is ending
    counts as running for a moment.
    """
    state, now = scheduler.state, scheduler.now
    out = {*state.drained, *state.quarantined, *scheduler.lost}
    jobs = []
    for job in state.jobs.values():
        nodes = sum(state.owner(host) == job.number and host not in out for host in job.holds)
        if nodes:
            jobs.append(_with_end(scheduler, job, _queued(job, now, nodes)))
    waiting = [state.jobs[number] for number in islice(scheduler.eligible, MAX_QUEUED)]
    jobs += [_queued(job, now, 0) for job in waiting]
    in_service = sum(host not in out for host in state.hosts)
    return QueueSnapshot(in_service, tuple(jobs), _past(scheduler), now)


def as_if_submitted(
    scheduler: LiveScheduler, snapshot: QueueSnapshot, submission: JobSubmission
) -> tuple[QueueSnapshot, EstimateSource]:
    """Return a queue with a job of this submission as its last, and the source of its run time.

    Its number is `NOT_SUBMITTED`. If the submission has no estimate, use that of the user's last job with the same
    name and hosts.

    Raises
    ------
    UsageError
        No such job exists. Permanent.
    LaunchError
        More than `MAX_QUEUED` jobs wait before it. Transient.
    """
    if (waiting := len(scheduler.eligible)) > MAX_QUEUED:
        raise LaunchError(
            f"no prediction behind {waiting} waiting jobs: the limit is {MAX_QUEUED}; try again when fewer wait",
            code="prediction-unavailable", value=waiting, bound=MAX_QUEUED,
        )  # fmt: skip
    source: EstimateSource = "user"
    if submission.modelled:
        alike = [
            job for job in scheduler.state.jobs.values()
            if _likeness(job.submission) == _likeness(submission) and not job.unestimated
            and (job.estimate or not job.submission.modelled)
        ]  # fmt: skip
        if not alike:
            raise UsageError(
                f"no estimate of the run time: no job {submission.name} of up to {submission.maximum} hosts was "
                "submitted before; add --seconds",
                code="estimate-missing", name=submission.name, value=submission.maximum,
            )  # fmt: skip
        last = max(alike, key=lambda job: job.number)
        source = "model" if last.estimate else "user"
        submission = replace(submission, requested=last.requested, modelled=False)
    job = _queued(LiveJob(NOT_SUBMITTED, submission, scheduler.now), scheduler.now, 0)
    return replace(snapshot, jobs=(*snapshot.jobs, job)), source


def _likeness(submission: JobSubmission) -> tuple[str, str, int]:
    return submission.user, submission.name, submission.maximum


def _with_end(scheduler: LiveScheduler, job: LiveJob, queued: QueuedJob) -> QueuedJob:
    """Return a running job with the end that its measured progress gives, if it is known."""
    end = expected_end(scheduler, job)
    if end is None:
        return queued
    left = max(0.0, end - scheduler.now) * queued.nodes / queued.maximum
    return replace(queued, requested=queued.done + left, measured=True)


def expected_end(scheduler: LiveScheduler, job: LiveJob) -> float | None:
    """Return the end of a running job by its measured progress, in seconds of the scheduler's clock, or None."""
    said, pace = scheduler.progress.get(job.number), scheduler.paces.get(job.number)
    if said is not None and said.verifying_until is not None and job.state is LiveJobState.RUNNING:
        return said.verifying_until - scheduler.state.wall
    return None if pace is None or job.state is LiveJobState.ENDING else pace.end


def _queued(job: LiveJob, now: float, nodes: int) -> QueuedJob:
    one = job.submission
    flexible = one.kind is JobKind.MALLEABLE and job.state is not LiveJobState.ENDING
    most = (nodes or one.minimum) if one.kind is JobKind.EVOLVING else one.maximum
    return QueuedJob(
        job.number, min(one.minimum, most), most, job.requested, flexible, one.priority, nodes,
        work_of(job, now) if nodes else 0.0, one.user, f"{one.user} {one.name}",
    )  # fmt: skip


def work_of(job: LiveJob, now: float) -> float:
    """Return the seconds that an attempt has run, on the scale of its `maximum` hosts: half of them count half.

    For an evolving job each second counts fully: it has as many hosts as it has work for.
    """
    if job.submission.kind is JobKind.EVOLVING:
        return _seconds_of(job, now)
    return _host_seconds_of(job, now) / job.submission.maximum


def _host_seconds_of(job: LiveJob, now: float) -> float:
    since = 0.0 if job.placed is None else len(job.hosts) * (now - job.placed)
    return job.host_seconds + since


def _seconds_of(job: LiveJob, now: float) -> float:
    end = now if job.ended is None else job.ended
    return end - (now if job.started is None else job.started)


def _past(scheduler: LiveScheduler) -> tuple[PastJob, ...]:
    jobs, now = scheduler.state.jobs, scheduler.now
    found = []
    ended = sorted((job.ended, number) for number, job in jobs.items() if job.ended is not None)
    last = {*sorted(jobs)[-MAX_PAST:], *(number for _, number in ended[-MAX_PAST:])}
    for number in sorted(last):
        job = jobs[number]
        over = job.state is LiveJobState.FINISHED or (
            job.state is LiveJobState.FAILED and job.exit_code not in {None, HOST_FAILED}
        )
        work, seconds = work_of(job, now), _seconds_of(job, now)
        nodes = max(1, round(_host_seconds_of(job, now) / seconds)) if seconds > 0 else 1
        ratio = work / job.requested if over and work > 0 else None
        found.append(
            PastJob(_queued(job, now, 0), job.submitted, job.started, job.ended, ratio, nodes)
        )
    return tuple(found)
