"""What is known of a queue at one moment, as plain values: what its future is computed from, elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import islice
from typing import Any

from apples.cluster.live_job import LiveJob, LiveJobState
from apples.cluster.scheduler import LiveScheduler
from apples.scheduling.jobs import JobKind

MOST_QUEUED = 2000
"""Jobs that wait, beyond which the others are not looked at."""
MOST_PAST = 1000
HOST_FAILED = 4


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job that runs or waits.

    Attributes
    ----------
    requested
        Estimate of its run time on `maximum` nodes, seconds.
    nodes
        Those that it has, 0: it waits.
    done
        Seconds of its run time on `maximum` nodes that are over.
    alike
        By which the runs are found that were like it: its user and name.
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


@dataclass(frozen=True, slots=True)
class PastJob:
    """A job that came before, over or not.

    Attributes
    ----------
    job
        As it was submitted.
    submitted, started, ended
        Seconds of the scheduler's clock; of its last attempt. None: not yet.
    ratio
        Its run time on `maximum` nodes by its estimate; None: it is not over, or was ended from outside.
    nodes
        Those that it had, in the mean.
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
        In service.
    jobs
        Those that run, then those that wait in the order of the queue.
    past
        The last jobs that came, the oldest first; those that run or wait are among them.
    time
        When it was so, seconds of the scheduler's clock.
    """

    nodes: int
    jobs: tuple[QueuedJob, ...]
    past: tuple[PastJob, ...] = ()
    time: float = 0.0

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
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
    """Return the queue of a scheduler as it is.

    A host that gets no other job is not in service, nor what a job has there; a job that is ending counts as one
    that runs for a moment.
    """
    state, now = scheduler.state, scheduler.now
    out = {*state.drained, *state.quarantined, *scheduler.lost}
    jobs = []
    for job in state.jobs.values():
        nodes = sum(state.owner(host) == job.number and host not in out for host in job.holds)
        if nodes:
            jobs.append(_queued(job, now, nodes))
    ledger = scheduler.ledger
    waiting = [state.jobs[number] for number in ledger.running if state.jobs[number].waits]
    waiting += [state.jobs[one.id] for one in islice(ledger.queue, MOST_QUEUED)]
    jobs += [_queued(job, now, 0) for job in waiting]
    in_service = sum(host not in out for host in state.hosts)
    return QueueSnapshot(in_service, tuple(jobs), _past(scheduler), now)


def _queued(job: LiveJob, now: float, nodes: int) -> QueuedJob:
    one = job.submission
    flexible = one.kind is JobKind.MALLEABLE and job.state is not LiveJobState.ENDING
    most = (nodes or one.minimum) if one.kind is JobKind.EVOLVING else one.maximum
    return QueuedJob(
        job.number, min(one.minimum, most), most, job.requested, flexible, one.priority, nodes,
        work_of(job, now) if nodes else 0.0, one.user, f"{one.user} {one.name}",
    )  # fmt: skip


def work_of(job: LiveJob, now: float) -> float:
    """Return the seconds of its run time on its most hosts that an attempt has had; half the hosts count half.

    Of an evolving job each second counts: it has the hosts that it has work for.
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
    for number in sorted(jobs)[-MOST_PAST:]:
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
