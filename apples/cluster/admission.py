"""What a live scheduler refuses: requests that it can never carry out, and those that it cannot now."""

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
    """There are too many of something. Transient."""

    code = "too-many-requests"


def check_room(
    state: SchedulerState, limits: QueueLimits, submission: JobSubmission, operator: bool
) -> None:
    """Reject a job where too many wait; the operator has places that no other takes.

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
    """Reject a job that wants more hosts than there are, or, if hosts join, than there may ever be.

    Raises
    ------
    UsageError
        It does. Permanent.
    """
    if submission.maximum > most:
        at_most = "never more than " * joins
        raise UsageError(
            f"it wants up to {submission.maximum} hosts: there are {at_most}{most}",
            code="too-many-hosts", value=submission.maximum, bound=most,
        )  # fmt: skip


def check_sharing(submission: JobSubmission, policy: str) -> None:
    """Reject a job that would have to share its hosts and cannot.

    Raises
    ------
    UsageError
        It is a malleable master with its workers. Permanent.
    """
    if submission.kind is JobKind.MALLEABLE and "units" in submission.work:
        raise UsageError(
            f"{policy} has malleable jobs share hosts, and a master with its workers cannot: "
            "--kind evolving or rigid",
            code="policy-unsuitable", policy=policy, field="kind",
        )  # fmt: skip


def check_predecessors(
    state: SchedulerState, past: Mapping[int, str], name: str, after: Sequence[int]
) -> None:
    """Reject a job that is to come after one that is not there, or is over and not finished.

    Parameters
    ----------
    past
        Final states of the jobs in the history after which it is to come.
    name
        Of the scheduler.

    Raises
    ------
    UsageError
        It is. Permanent.
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
        It is not. Permanent.
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
    """Reject to have a job on these hosts, whatever is on them.

    Raises
    ------
    UsageError
        It is not malleable, or its size is the policy's. Permanent.
    LaunchError
        It does not run, is being resized, or shares its hosts. Transient.
    """
    one, name = job.submission, f"{scheduler}.{job.number}"
    if one.kind not in MOVABLE:
        raise UsageError(
            f"{name} is {one.kind.value}: only a malleable or evolving one is resized",
            code="job-not-resizable", job=name, kind=one.kind.value,
        )  # fmt: skip
    if not one.minimum <= len(set(hosts)) == len(hosts) <= one.maximum:
        raise UsageError(
            f"{name} was submitted for {one.minimum} to {one.maximum} hosts, each once",
            code="value-range", job=name, field="hosts", value=len(hosts), bound=[one.minimum, one.maximum],
        )  # fmt: skip
    if policy.uses_malleable and len(hosts) != len(job.hosts):
        raise UsageError(
            f"{name}: how many hosts it has is decided by {name_of(policy)}; "
            f"with as many as it has ({len(job.hosts)}) it can be moved",
            code="policy-unsuitable", job=name, policy=name_of(policy), field="hosts", bound=len(job.hosts),
        )  # fmt: skip
    if job.state is not LiveJobState.RUNNING or not job.settled:
        raise LaunchError(
            f"{name} is {job.state.value}: it is resized when it runs and has settled",
            code="job-busy", job=name, state=job.state.value,
        )  # fmt: skip
    if not is_alone(state, job):
        raise LaunchError(
            f"{name} shares its hosts: it is moved when it has them to itself",
            code="job-busy", job=name, hosts=list(job.hosts),
        )  # fmt: skip


def job_of(state: SchedulerState, number: int, name: str) -> LiveJob:
    """Return a job of a state; the scheduler's name is for messages.

    Raises
    ------
    UsageError
        There is none of this number.
    """
    found = state.jobs.get(number)
    if found is None:
        raise unknown_job(f"{name}.{number}")
    return found


def not_recorded(trouble: str, *, pending: bool = False) -> LaunchError:
    """Return the error of an input while the log cannot be written; `pending`: it may still have an effect."""
    later = "; the request may be carried out when the log can be written" if pending else ""
    return LaunchError(
        f"nothing can be recorded: {trouble}{later}",
        code="log-unwritable",
        reason=trouble,
        pending=pending,
    )
