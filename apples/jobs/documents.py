"""The JSON documents of runs and jobs, as types: a recorded run, jobs, a demo, a comparison, a report.

The docstring below a field is its description in the JSON Schema and in ``docs/reference/json.md``. A record of an
earlier version may lack fields that later versions added.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from typing_extensions import Doc, TypedDict

from apples.agent import documents as agent
from apples.simulation.documents import SimulationReport

State = Literal["starting", "running", "verifying", "finished", "failed", "cancelled"]

# ---------------------------------------------------------------- a run over time


class Promise(TypedDict):
    """The promised iteration of an epoch."""

    iteration_seconds: float
    """Predicted seconds of an iteration."""
    interval: list[float]
    """Low and high seconds."""


class TimelineMove(TypedDict):
    """A move of the application, or the beginning of an epoch."""

    iteration: int | None
    """Iteration of the move; null: not known."""
    seconds: float | None
    """Duration of the move."""
    phases: dict[str, float] | None
    """Seconds of the move by phase; null: the run was restarted."""
    gain_seconds: float | None
    """Expected gain."""
    cost_seconds: float | None
    """Expected duration."""
    reason: str
    """Reason for the move; empty: not known."""
    at: NotRequired[float]
    """Seconds since the first barrier."""
    hosts_before: NotRequired[list[str]]
    """Hosts before the move."""
    rows_before: NotRequired[list[int]]
    """Their rows."""
    hosts: NotRequired[list[str]]
    """Hosts after the move."""
    rows: NotRequired[list[int]]
    """Their rows."""
    iteration_before: NotRequired[float | None]
    """Mean seconds of an iteration before the move."""
    iteration_after: NotRequired[float | None]
    """Mean seconds of an iteration after the move."""
    came_seconds: NotRequired[float | None]
    """Seconds gained until the next move, less the duration of the move."""


Spent = Annotated[
    list[list[float] | None],
    Doc(
        "Shares of each host's time in each of `kinds`, with the sum 1; null: it reported nothing."
    ),
]
From = Annotated[float, Doc("Begin, seconds since the first barrier.")]
To = Annotated[float, Doc("End, seconds since the first barrier.")]
EpochHosts = Annotated[list[str], Doc("Hosts, in strip order.")]
EpochRows = Annotated[list[int], Doc("Rows of each host.")]
EpochIteration = Annotated[float | None, Doc("Mean seconds of an iteration; null: none was done.")]
TimelineEpoch = TypedDict(
    "TimelineEpoch",
    {
        "from": From,
        "to": To,
        "hosts": EpochHosts,
        "rows": EpochRows,
        "iteration_seconds": EpochIteration,
        "promised": Annotated[Promise | None, Doc("Promised iteration; null: none.")],
        "spent": Spent,
        "move": Annotated[
            TimelineMove | None, Doc("The move that began the epoch; null of the first.")
        ],
    },
)
TimelineSlice = TypedDict(
    "TimelineSlice",
    {
        "from": From,
        "to": To,
        "iteration_seconds": EpochIteration,
        "hosts": EpochHosts,
        "rows": EpochRows,
        "spent": Spent,
    },
)


class Timeline(TypedDict):
    """A run over time."""

    seconds: float
    """Seconds from the first barrier to the end."""
    iterations: int
    """Iterations done."""
    hosts: list[str]
    """All hosts, in the order of their first epoch."""
    kinds: list[Literal["compute", "halo", "halo and wait", "wait", "other"]]
    """Kinds of time. ``halo and wait`` is one kind if the program does not report its waits."""
    stayed: int
    """Decisions against a move."""
    epochs: list[TimelineEpoch]
    """Stretches in which each host kept its rows."""
    moves: list[TimelineMove]
    """The moves between epochs."""
    slices: list[TimelineSlice]
    """Columns of the drawing."""


class RunDocument(agent.AgentRunDocument):
    """``apples run --json`` and ``apples wait --json`` print this document."""

    timeline: NotRequired[Timeline | None]
    """With ``--timeline``: the run over time; null: the run reported too little."""
    program: NotRequired[list[str]]
    """Words of the command of an unmodified program. `plan`, `verified` and `result_sha256` are then null, and
    each host has its name only."""
    on: NotRequired[list[str]]
    """With ``--dry-run`` of an unmodified program: the host of each process."""


# ---------------------------------------------------------------- demo


class MiddleRun(TypedDict):
    """The repetition with the median measured time."""

    iteration_seconds: float
    """Measured seconds of an iteration."""
    predicted_iteration_seconds: float
    """Predicted seconds of an iteration."""
    off: float
    """Measured over predicted, less 1."""


class Method(TypedDict):
    """The runs of one method."""

    method: str
    """Name of its blueprint."""
    title: str
    """Its title in the paper's words."""
    runs: int
    """Runs that executed."""
    rejection: NotRequired[str]
    """Why it has no plan."""
    hosts: NotRequired[list[str]]
    """Hosts of the last plan."""
    rows: NotRequired[list[int]]
    """Rows of the last plan."""
    iteration_seconds: NotRequired[float]
    """Median of the measured iteration."""
    least: NotRequired[float]
    """Shortest measured iteration."""
    largest: NotRequired[float]
    """Longest measured iteration."""
    predicted_iteration_seconds: NotRequired[float]
    """Median of the predicted iteration."""
    middle: NotRequired[MiddleRun]
    """The repetition with the median measured time."""
    median_error: NotRequired[float]
    """Median relative error of the prediction."""
    inside: NotRequired[int]
    """Runs that ended inside their interval."""
    with_interval: NotRequired[int]
    """Runs that had an interval."""


class MethodRatio(TypedDict):
    """The iteration time of run-time AppLeS over that of blocked, pair by pair."""

    median: float
    """Median of the repetitions."""
    interval: list[float] | None
    """Least and largest; null: one repetition."""
    repetitions: int
    """Number of pairs."""
    verdict: str
    """Faster or slower in every repetition, no clear difference, or no verdict of one repetition."""


class DemoDocument(TypedDict):
    """``apples demo --json`` prints this document."""

    schema: Literal["apples.demo/1"]
    made_by: agent.MadeBy
    """Command, time, versions and machine."""
    runs: list[RunDocument]
    """The runs, in the order of execution."""
    executed: int
    """Runs that executed."""
    methods: list[Method]
    """The methods of the paper."""
    median_prediction_error: float | None
    """Median relative error of the predicted iteration over all runs; null: none executed."""
    ratio_to_blocked: MethodRatio | None
    """Run-time AppLeS over blocked; null: no pair of runs."""
    inside: int
    """Runs that ended inside their interval."""
    with_interval: NotRequired[int]
    """Runs that had an interval."""
    level: float
    """Nominal share of runs that end inside their interval."""
    verified: bool | None
    """Whether all results were right; null: not all were verified."""
    record: NotRequired[str | None]
    """Id of the demo's record. Each run has its own."""


# ---------------------------------------------------------------- jobs


class LastResize(TypedDict):
    """The last resize of a job."""

    epoch: int
    """Epoch that it began."""
    seconds: float
    """From the safe point to the end."""
    phases: dict[str, float]
    """Seconds by phase: ``start``, ``wait``, ``prefetch`` (constant arrays travel before the change), ``join``,
    ``redistribute``, ``rebuild``, ``leave``. Of an unmodified program: ``inspect``, ``signal``, ``checkpoint``,
    ``restart``; of an MPI program also ``ready``, ``stop``, ``connect``."""


class LastChange(TypedDict):
    """The outcome of the last change of hosts that a job began."""

    answer: str
    """``done``, ``refused`` (the job is unchanged) or ``rolled back``."""
    epoch: int
    """Epoch of the change."""
    reason: str
    """Reason if it was not done; else empty."""
    iteration: int | None
    """Iteration of the rollback; else null."""


class ChangeEstimate(TypedDict):
    """The predicted duration of a resize."""

    bytes: float
    """Bytes that move between hosts; for blocks, in proportion to the rows that move."""
    rate: float | None
    """Bytes per second; null: no link was measured."""
    seconds: float | None
    """From the command to the end, without the wait for the safe point; null without a rate."""
    standstill_seconds: float | None
    """Part of `seconds` in which the job stands still; null without a rate."""
    limit_seconds: float
    """Timeout after the safe point; the resize is then abandoned."""
    rows: dict[str, int]
    """Rows by host after the change."""


class JobDocument(TypedDict):
    """``apples jobs JOB --json``, and the verbs that act on a job, print this document."""

    schema: Literal["apples.job/1"]
    id: str
    """Name of the job."""
    state: State
    """State of the job. A job that is resized is ``running``."""
    hosts: list[str]
    """Its hosts, in strip order."""
    rows: list[int]
    """Rows of each host."""
    epoch: int
    """Number of its map: 0, then one more for each change, lost host and restart."""
    iteration: int
    """Iterations done."""
    last_resize: LastResize | None
    """The last resize; null: none."""
    name: str
    """Name of the application."""
    iterations: int | None
    """Iterations in all; null: not known yet."""
    reason: str
    """Reason why it does not run. While it is ``running``: its application has ended, its blueprint has not."""
    exit_code: int | None
    """Exit code of ``apples wait``; null: the job has not ended."""
    redistributions: list[agent.Redistribution] | None
    """The last 20 moves that were evaluated."""
    last_change: LastChange | None
    """Outcome of the last change of hosts; null: none."""
    attempt: int
    """Number of starts: 1, and one more for each ``apples restart``."""
    slow_hosts: list[agent.SlowHostEntry]
    """Slow hosts, with cause and cost."""
    verifying_seconds: float | None
    """Estimated seconds until its verification ends; null unless `state` is ``verifying``."""
    restartable: bool
    """Whether ``apples restart`` can continue it from a commit."""
    change: NotRequired[ChangeEstimate | None]
    """With ``apples resize``: the estimated cost of the move, also with ``--dry-run``. Null for an unmodified
    program."""


class RecordedRun(TypedDict):
    """A recorded run in one line."""

    id: str
    """Name of the record."""
    kind: Literal["run", "job", "demo", "parameter-sweep", "master-worker", "pipeline"]
    """Kind of the record; a ``job`` outlives its command."""
    application: str
    """Name of the application."""
    blueprint: str | None
    """Name of the blueprint; null: nothing was planned yet."""
    state: State
    """State of the run; an interrupted run is ``cancelled``."""
    reason: str
    """Reason of its end; empty if it finished."""
    started: float | None
    """Seconds since the epoch; null: not yet."""
    ended: float | None
    """Seconds since the epoch; null: not yet, or it was killed."""
    hosts: list[str]
    """Its hosts now, or at the end."""
    rows: list[int]
    """Rows of each host."""
    predicted_seconds: float | None
    """Predicted seconds of the loop; null: no plan."""
    measured_seconds: float | None
    """Measured seconds of the loop; null: not at its end."""
    iteration: int | None
    """Iterations done by the last report; null: not known."""
    iterations: int | None
    """Iterations in all; null: not known."""
    verified: bool | None
    """As `verified` of a run."""


class JobsDocument(TypedDict):
    """``apples jobs --json`` prints this document."""

    schema: Literal["apples.jobs/1"]
    jobs: list[JobDocument]
    """Detached jobs, the oldest first."""
    runs: list[RecordedRun]
    """All recorded runs and jobs, the oldest first."""
    pruned: NotRequired[list[str]]
    """With ``--prune``: ids of the removed records."""
    freed_bytes: NotRequired[int]
    """With ``--prune``: size of the removed records, bytes."""


class ForgetDocument(TypedDict):
    """``apples forget --all --json`` prints this document."""

    schema: Literal["apples.forget/1"]
    paths: list[str]
    """The files and folders of the state directory and the cache."""
    bytes: int
    """Their size, bytes."""
    removed: bool
    """False with ``--dry-run``."""


class JobLogDocument(TypedDict):
    """``apples logs JOB --json`` prints this document."""

    schema: Literal["apples.joblog/1"]
    id: str
    """Name of the job."""
    lines: list[str]
    """Lines of its log."""


# ---------------------------------------------------------------- comparisons and reports


FigureName = Literal["predicted", "measured", "compute", "communicate"]


class MeasuredFigure(TypedDict):
    """One figure of one run by itself."""

    value: float | None
    """Seconds of an iteration; null: not known."""
    range: list[float] | None
    """Interval that holds four fifths of the stretches; null: fewer than five."""
    stretches: int
    """Stretches between two reports of progress."""


class ComparedFigure(MeasuredFigure):
    """One figure of one run."""

    ratio: float | None
    """Value over that of the first run; null: not known."""
    clear: bool | None
    """Whether the two ranges do not meet; null: not known."""


class ComparedFigures(TypedDict):
    """One figure of all runs."""

    figure: FigureName
    """Name of the figure."""
    runs: list[ComparedFigure]
    """The figure of each run."""


class ComparedHost(TypedDict):
    """A host of at least one plan."""

    host: str
    """Name of the host."""
    rows: list[int | None]
    """Its rows in each plan; null: the plan does not use it."""
    reasons: list[str]
    """Reason of each plan to leave it out; empty: the plan uses it, or gives no reason."""


class CompareDocument(TypedDict):
    """``apples report RUN RUN .. --json`` prints this document."""

    schema: Literal["apples.compare/1"]
    runs: list[RecordedRun]
    """The runs; the others are compared with the first."""
    same: dict[str, Any]
    """Equal facts: application, version, each parameter, blueprint, hosts, rows, kind of weather."""
    differ: dict[str, list[Any]]
    """Other facts, with a value a run."""
    figures: list[ComparedFigures]
    """Seconds of an iteration of each run."""
    hosts: list[ComparedHost]
    """Hosts of the plans."""


class ComparedPlan(TypedDict):
    """A plan, or the plan of a run."""

    name: str
    """Its file, or the id of a run."""
    blueprint: str
    """Name of the blueprint."""
    weather: Literal["measured", "static"]
    """Kind of weather."""
    weather_source: str
    """Source of the weather."""
    weather_time: float | None
    """Time of the weather, seconds since the epoch; null: static."""
    hosts: list[str] | None
    """Names of the hosts; null: no plan, `refusal` gives the reason."""
    iteration_seconds: float | None
    """Predicted seconds of an iteration."""
    ratio: float | None
    """Iteration time over that of the first plan."""
    iteration_interval: list[float] | None
    """Low and high seconds; null: the plan has none."""
    execution_seconds: float | None
    """Predicted seconds of the execution."""
    measured_iteration_seconds: float | None
    """Measured seconds of an iteration of a run that has ended; else null."""
    refusal: str
    """Reason if no plan was found; else empty."""


class ComparePlansDocument(TypedDict):
    """``apples report PLAN PLAN .. --json`` prints this document."""

    schema: Literal["apples.compare-plans/1"]
    plans: list[ComparedPlan]
    """The plans; the others are compared with the first."""
    same: dict[str, Any]
    """Equal facts: application, version, each parameter, iterations, planner, objective, risk, partitions."""
    differ: dict[str, list[Any]]
    """Other facts, with a value a plan."""
    hosts: list[ComparedHost]
    """Hosts of the plans."""


AnyComparison = CompareDocument | ComparePlansDocument


class ReportDocument(SimulationReport):
    """``apples report`` prints this document: of a run, of a log, or of the results of a sweep."""

    record: NotRequired[str]
    """With a run: the id of its record."""
    timeline: NotRequired[Timeline | None]
    """With a run and ``--timeline``: the run over time; null: the run reported too little."""
