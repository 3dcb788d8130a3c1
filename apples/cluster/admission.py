"""The requests that a live scheduler rejects, for ever or for the moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from apples.cluster.host_leases import MOVABLE
from apples.cluster.live_job import OVER, JobSubmission, LiveJob, LiveJobState
from apples.cluster.pass_ledger import is_alone
from apples.cluster.state import SchedulerState, unknown_job
from apples.cluster.timeouts import QueueLimits
from apples.errors import LaunchError, UsageError
from apples.scheduling.jobs import JobKind
from apples.scheduling.passes import name_of
from apples.scheduling.policy import SchedulingPolicy


class CrowdedError(LaunchError):
    """A limit on the number of jobs or requests is reached. Transient."""

    code = "too-many-requests"


def check_room(
    state: SchedulerState, limits: QueueLimits, submission: JobSubmission, operator: bool
) -> None:
    """Reject a job if too many wait; some places of the queue are reserved for the operator.

    Raises
    ------
    CrowdedError
        The queue is full. Transient.
    """
    user, size = submission.user, limits.content_bytes
    if state.content_bytes + submission.content_bytes > size:
        raise CrowdedError(
            f"the templates and user files of the queued jobs have {size} bytes already",
            code="queue-full", bound=size,
        )  # fmt: skip
    most = limits.waiting - (0 if operator else limits.reserved)
    if state.waiting >= most:
        raise CrowdedError(f"{most} jobs wait already", code="queue-full", bound=most)
    most = limits.waiting_of_one
    if not operator and state.waiting_of[user] >= most:
        raise CrowdedError(
            f"{most} jobs of {user} wait already", code="queue-full", bound=most, user=user,
        )  # fmt: skip


def check_width(submission: JobSubmission, most: int, *, joins: bool) -> None:
    """Reject a job for more hosts than there are or, if hosts can join, than there may ever be.

    Raises
    ------
    UsageError
        The job needs too many hosts. Permanent.
    """
    if submission.maximum > most:
        at_most = "never more than " * joins
        raise UsageError(
            f"it requests up to {submission.maximum} hosts; the scheduler has {at_most}{most}",
            code="too-many-hosts", value=submission.maximum, bound=most,
        )  # fmt: skip


def check_sharing(submission: JobSubmission, policy: str) -> None:
    """Reject a job that cannot share its hosts, although the policy requires it.

    Raises
    ------
    UsageError
        It is a malleable master with its workers. Permanent.
    """
    if submission.kind is JobKind.MALLEABLE and "units" in submission.work:
        raise UsageError(
            f"malleable jobs share hosts under policy {policy}, but a master/worker program cannot: "
            "use --kind evolving or rigid",
            code="policy-unsuitable", policy=policy, field="kind",
        )  # fmt: skip


def check_predecessors(
    state: SchedulerState, past: Mapping[int, str], name: str, after: Sequence[int]
) -> None:
    """Reject a job if a predecessor is unknown, or is over without being finished.

    Parameters
    ----------
    past
        Final states of the predecessors in the history.
    name
        Name of the scheduler.

    Raises
    ------
    UsageError
        There is such a predecessor. Permanent.
    """
    for number in after:
        job = state.jobs.get(number)
        shown = past.get(number) if job is None else job.state.value
        if shown is None:
            raise unknown_job(f"{name}.{number}", "after ")
        if shown in OVER and shown != LiveJobState.FINISHED:
            raise UsageError(
                f"after {name}.{number}: it is {shown}, and never finishes",
                code="dependency-failed", job=f"{name}.{number}", state=shown,
            )  # fmt: skip


def check_host(state: SchedulerState, host: str) -> None:
    """Reject the name of a host that is not in the list.

    Raises
    ------
    UsageError
        The host is not in the list. Permanent.
    """
    if host not in state.hosts:
        raise UsageError(
            f"unknown host '{host}': the list has {', '.join(state.hosts)}",
            code="host-unknown", host=host, known=list(state.hosts),
        )  # fmt: skip


def check_resizable(
    state: SchedulerState,
    job: LiveJob,
    hosts: Sequence[str],
    scheduler: str,
    policy: SchedulingPolicy,
) -> None:
    """Reject a resize of a job to these hosts; the state of the hosts is not checked.

    Raises
    ------
    UsageError
        It is not malleable, the number of hosts is out of its range, or the policy decides it. Permanent.
    LaunchError
        It does not run, is being resized, or shares its hosts. Transient.
    """
    one, name = job.submission, f"{scheduler}.{job.number}"
    if one.kind not in MOVABLE:
        raise UsageError(
            f"{name} is {one.kind.value}: only malleable and evolving jobs can be resized",
            code="job-not-resizable", job=name, kind=one.kind.value,
        )  # fmt: skip
    if not one.minimum <= len(set(hosts)) == len(hosts) <= one.maximum:
        raise UsageError(
            f"{name} was submitted for {one.minimum} to {one.maximum} hosts: give that many different hosts",
            code="value-range", job=name, field="hosts", value=len(hosts), bound=[one.minimum, one.maximum],
        )  # fmt: skip
    if policy.uses_malleable and len(hosts) != len(job.hosts):
        raise UsageError(
            f"{name}: policy {name_of(policy)} decides its number of hosts; "
            f"to move it, give {len(job.hosts)} hosts, as many as it has now",
            code="policy-unsuitable", job=name, policy=name_of(policy), field="hosts", bound=len(job.hosts),
        )  # fmt: skip
    if job.state is not LiveJobState.RUNNING or not job.settled:
        raise LaunchError(
            f"{name} is {job.state.value}: it can be resized while it runs and no other change is under way",
            code="job-busy", job=name, state=job.state.value,
        )  # fmt: skip
    if not is_alone(state, job):
        raise LaunchError(
            f"{name} shares its hosts with another job: it can be moved once it has them alone",
            code="job-busy", job=name, hosts=list(job.hosts),
        )  # fmt: skip


def job_of(state: SchedulerState, number: int, name: str) -> LiveJob:
    """Return a job of a state; `name` of the scheduler is for messages.

    Raises
    ------
    UsageError
        No job has this number.
    """
    found = state.jobs.get(number)
    if found is None:
        raise unknown_job(f"{name}.{number}")
    return found


def not_recorded(trouble: str, *, pending: bool = False) -> LaunchError:
    """Return the error of an input while the log cannot be written; `pending`: it may take effect later."""
    later = "; the request may be carried out when the log can be written" if pending else ""
    return LaunchError(
        f"the journal cannot be written: {trouble}{later}",
        code="log-unwritable",
        reason=trouble,
        pending=pending,
    )
