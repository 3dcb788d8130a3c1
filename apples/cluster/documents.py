"""Types of the JSON documents of the scheduler."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from apples.topology.documents import TopologyDocument

NOT_DECIDED = "the scheduler decides in a moment"
"""The reason of a job that no pass of the policy has seen yet."""

JobState = Literal[
    "held",
    "queued",
    "starting",
    "running",
    "verifying",
    "resizing",
    "unsettled",
    "ending",
    "finished",
    "failed",
    "cancelled",
    "lost",
]
HostState = Literal["free", "held", "leaving", "draining", "drained", "quarantined", "lost"]
EstimateSource = Literal["user", "model", "nobody"]


class SubmittedDocument(TypedDict):
    """``apples submit --json`` prints this document."""

    schema: Literal["apples.submitted/1"]
    job: str
    """Id of the job, `NAME.N`."""
    position: int
    """Place in the queue, from 1; 0: it does not wait."""
    start: list[float] | None
    """Predicted start as low, middle and high; eight of ten starts are inside. Null: not known."""
    reason: str
    """Reason that the job waits; empty: it does not."""


class SubmittedAnswer(SubmittedDocument):
    """The scheduler's answer to a submission."""

    state: JobState
    """State of the job."""


class PredictionDocument(TypedDict):
    """``apples submit --dry-run --json`` prints this document."""

    schema: Literal["apples.prediction/1"]
    name: str
    """Name of the scheduler."""
    time: float
    """Time of the answer."""
    basis: Literal["history", "estimates"]
    """Source of the run times: drawn from past jobs (`history`), or the estimates, because there are too
    few past jobs."""
    requested: float
    """Estimated run time, in seconds."""
    estimated_by: EstimateSource
    """Source of that estimate: the user, or the application's model at an earlier submission."""
    start: list[float] | None
    """Predicted start as low, middle and high; eight of ten starts are inside. Under the basis `estimates` the
    three are equal. Null: too few hosts are in service."""
    finish: list[float] | None
    """Predicted end, in the same form."""


class ScheduledJob(TypedDict):
    """A job of a scheduler."""

    job: str
    """Id of the job, `NAME.N`."""
    state: JobState
    """State of the job; `unsettled`: it has not answered an order to resize in time; `verifying`: its
    application has ended and its result is being verified."""
    name: str
    """Name of the application."""
    user: str
    """The user that submitted the job: `uid:1000`, or `token:NAME`."""
    kind: Literal["rigid", "moldable", "malleable", "evolving"]
    """Whether its number of hosts is fixed, chosen at the start, or may change."""
    hosts: list[str]
    """Hosts that it has."""
    started_on: list[str]
    """Hosts on which its last attempt started; a resize does not change them."""
    after: list[str]
    """Jobs that have to finish before."""
    minimum: int
    """Fewest hosts."""
    maximum: int
    """Most hosts."""
    submitted: float
    """Time of the submission."""
    started: float | None
    """Time of the start; null: not started."""
    ended: float | None
    """Time of the end; null: not over."""
    start: list[float] | None
    """Predicted start: low, middle, high; eight of ten are inside. Null: not known."""
    requested: float
    """Estimated run time, in seconds."""
    estimated_by: EstimateSource
    """Source of the estimate: the user or the application's model; `nobody`: the model gave none."""
    mean_hosts: float | None
    """Of an ended job, the mean number of hosts over its time; null otherwise."""
    iteration: int | None
    """Iterations done; null: not known."""
    iterations: int | None
    """Iterations in all; null: not known."""
    expected_end: float | None
    """Of a running job, its end at its present speed; of a `verifying` one, the end of the verification; null: not
    known."""
    asks: list[int] | None
    """Fewest and most hosts that its program asked for; null: none."""
    resizes: int
    """Resizes done."""
    attempt: int
    """Attempts, from 1."""
    record: str
    """Id of the last attempt's record, for `apples jobs`, `logs` and `report`."""
    reason: str
    """Reason of its state; empty: none."""
    require: NotRequired[str]
    """Requirement on its CPUs; empty: none. A scheduler of an earlier version leaves it out."""
    exit_code: int | None
    """Exit code of `apples wait`; null: not over."""


class ScheduledDocument(ScheduledJob):
    """``apples cancel NAME.N --json`` prints this document, and ``apples wait`` of a job that never ran."""

    schema: Literal["apples.scheduled/1"]


class ScheduledHost(TypedDict):
    """A host of a scheduler."""

    host: str
    """Name of the host."""
    state: HostState
    """State of the host."""
    job: str | None
    """Job that has the host; null: none."""
    reason: str
    """Reason of a quarantine; empty: none."""


class Alarm(TypedDict):
    """An alarm."""

    time: float
    """Time of the alarm."""
    text: str
    """The alarm as a sentence."""


class QueueDocument(TypedDict):
    """``apples queue --json`` prints this document, and so do ``drain`` and ``undrain``."""

    schema: Literal["apples.queue/1"]
    name: str
    """Name of the scheduler."""
    policy: str
    """Scheduling policy."""
    time: float
    """Time of the answer."""
    trouble: str
    """Reason that the scheduler cannot write its log; empty: none."""
    alarms: list[Alarm]
    """Alarms, the oldest first."""
    hosts: list[ScheduledHost]
    """The hosts."""
    jobs: list[ScheduledJob]
    """Jobs that are not over."""


class HoldingJob(TypedDict):
    """A job that has hosts which a waiting job needs."""

    job: str
    """Id of the job."""
    hosts: list[str]
    """Its hosts."""
    end: list[float] | None
    """Predicted end as low, middle and high; null: not known."""


class StartingChanges(TypedDict):
    """Changes that each start the job now."""

    hosts: NotRequired[int]
    """Most hosts with which it would start now."""
    seconds: NotRequired[float]
    """Longest estimate with which it would start now."""
    priority: NotRequired[float]
    """Lowest priority with which it would start now."""


class WaitingDocument(TypedDict):
    """``apples queue JOB --json`` prints this document."""

    schema: Literal["apples.waiting/1"]
    time: float
    """Time of the answer."""
    job: str
    """Id of the job."""
    state: str
    """State of the job."""
    reason: str
    """Reason that it waits."""
    placed: str
    """Its hosts and their sites; empty: none."""
    placed_by: str
    """Model that chose the hosts; empty: the order of the host list."""
    position: int | None
    """Place in the queue, from 1; null: it does not wait."""
    requested: float
    """Estimated run time, in seconds."""
    estimated_by: EstimateSource
    """Source of the estimate, as in `apples.scheduled/1`."""
    needs: int
    """Hosts that it needs."""
    free: int
    """Free hosts."""
    before: list[str]
    """Jobs before it in the queue, at most 20."""
    holding: list[HoldingJob]
    """Jobs that have the hosts."""
    blocking: list[str]
    """Jobs with the earliest predicted ends that free enough hosts."""
    start: list[float] | None
    """Predicted start as low, middle and high; null: not known."""
    start_unknown: str
    """Reason that `start` is null; empty: it is not."""
    changes: StartingChanges
    """The smallest changes that each start the job now."""


class QueueFutureInfo(TypedDict):
    """The predicted queue under one policy."""

    policy: str
    """Scheduling policy."""
    hosts: int
    """Hosts in service."""
    wait: float
    """Mean seconds from now to the start of the waiting jobs."""
    response: float
    """Mean seconds from now to the end of all jobs."""
    over: float
    """Seconds until all jobs are over."""
    starts: dict[str, list[float] | None]
    """Predicted start by job as low, middle and high; null: not known."""


class WhatIfDocument(TypedDict):
    """``apples queue --what-if --json`` prints this document."""

    schema: Literal["apples.what-if/1"]
    name: str
    """Name of the scheduler."""
    basis: Literal["history", "estimates"]
    """Source of the run times: drawn from past jobs (`history`), or the estimates, because there are too
    few past jobs."""
    draws: int
    """Simulations of the queue."""
    now: QueueFutureInfo
    """The queue under the present policy and hosts."""
    then: QueueFutureInfo
    """The queue under the other policy or hosts."""


class ReplayedDecision(TypedDict):
    """A decision of the log."""

    time: float
    """Time of the decision."""
    decision: Literal["start", "resize", "vacate", "reject"]
    """Kind of the decision; `vacate`: a job leaves hosts because their allocation ends."""
    job: str
    """Id of the job, `NAME.N`."""
    hosts: list[str]
    """Hosts that the job has after it."""
    reason: str
    """Why the scheduler decided so; empty: the job asked for it."""
    runner_up: str
    """The alternative that was not taken, and why not; empty: there was none."""


class ReplayDocument(TypedDict):
    """``apples queue --replay --json`` prints this document."""

    schema: Literal["apples.replay/1"]
    name: str
    """Name of the scheduler."""
    policy: str
    """Scheduling policy."""
    since: float
    """Time from which the log has all inputs: the last start."""
    decisions: list[ReplayedDecision]
    """The decisions that the replay made."""
    logged: int
    """Decisions in the log."""
    reproduced: int
    """Decisions that the replay made at the same time, in the same order and with the same hosts."""
    difference: str
    """The first record that the replay did not reproduce; empty: it reproduced all of them."""


class HistoryDocument(TypedDict):
    """``apples queue --all --json`` prints this document."""

    schema: Literal["apples.history/1"]
    name: str
    """Name of the scheduler."""
    hosts: int
    """Number of hosts."""
    begin: float
    """Start of the scheduler."""
    jobs: list[ScheduledJob]
    """Jobs that are over."""
    next: str | None
    """The last job of `jobs` if there are more, for `GET /v1/history?after=JOB`; else null."""


class HostTopologyEntry(TypedDict):
    """The machine of one host."""

    host: str
    """Name of the host."""
    topology: NotRequired[TopologyDocument]
    """Its machine, with the CPUs that this user may use."""
    error: NotRequired[str]
    """Why its machine is not known."""
    free: NotRequired[list[int]]
    """CPUs that its topology daemon can give now."""
    daemon_error: NotRequired[str]
    """Why its free CPUs are not known."""


class HostTopologiesDocument(TypedDict):
    """``apples topology hosts --json`` prints this document."""

    schema: Literal["apples.host-topologies/1"]
    hosts: list[HostTopologyEntry]
    """The hosts, in the order of the list."""
