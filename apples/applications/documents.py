"""Types of the JSON documents that commands of the applications print."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict

# ---------------------------------------------------------------- parameter sweeps


class PlannedTask(TypedDict):
    """A task of a planned sweep."""

    task: str
    """Name of the task."""
    host: str
    """Host that runs it."""
    start: float
    """Start, in seconds since the start of the sweep."""
    end: float
    """End, in seconds since the start of the sweep."""


class PlannedMoveInfo(TypedDict):
    """A file transfer of a planned sweep."""

    file: str
    """The file."""
    cache: str
    """Site that receives the file."""
    start: float
    """Start, in seconds since the start of the sweep."""
    end: float
    """End, in seconds since the start of the sweep."""


class FailedTask(TypedDict):
    """A task without a result."""

    task: str
    """Name of the task."""
    parameters: dict[str, int | float | str]
    """Value by parameter."""
    reason: str
    """Reason of the last failure."""


class SweepExecution(TypedDict):
    """The execution of a sweep."""

    measured_seconds: float
    """Duration of the execution."""
    done: int
    """Tasks with a result."""
    hosts: dict[str, int]
    """Tasks that each host finished."""
    failed: list[FailedTask]
    """Tasks without a result."""
    plans: int
    """Plans made."""
    replicas: int
    """Replicas of stragglers started."""
    moved_files: int
    """File transfers."""
    lost: dict[str, str]
    """Reason by lost host."""
    failing: dict[str, str]
    """Hosts on which every task failed, with the reason of the first failure."""


class ParameterSweepDocument(TypedDict):
    """``apples plan --json`` and ``apples run --json`` print this document of a parameter sweep."""

    schema: Literal["apples.parameter-sweep/1"]
    name: str
    """Name of the sweep."""
    tasks: int
    """Tasks of the sweep."""
    resumed: int
    """Tasks with results of an earlier command."""
    heuristic: str | None
    """Heuristic of the first plan; null: no plan was made."""
    predicted_seconds: float
    """Makespan that the first plan predicts; 0 without a plan."""
    makespans: dict[str, float]
    """Makespan that the plan of each heuristic predicts, in seconds."""
    assumed: list[str]
    """Values that were neither given nor measured, one line each."""
    planned: list[PlannedTask]
    """Tasks of a dry run; empty after a run."""
    moves: list[PlannedMoveInfo]
    """File transfers of a dry run; empty after a run."""
    execution: SweepExecution | None
    """The execution; null: a dry run."""
    results: str | None
    """File with one line a task: `task`, `parameters`, `host`, `seconds` and `result`; null: a dry run."""


# ---------------------------------------------------------------- pipelines

Mode = Literal["pipelined", "alternating"]


class TaskHost(TypedDict):
    """A host of a task."""

    host: str
    """Name of the host."""
    rows: int
    """Rows of an item that it computes."""
    implementation: str
    """Name of the implementation; empty: the only one."""


class PipelineTaskInfo(TypedDict):
    """A task of a pipeline."""

    task: str
    """Name of the task."""
    hosts: list[TaskHost]
    """Its hosts."""


class StageSeconds(TypedDict):
    """A stage: a task, or the transfer between two tasks."""

    stage: str
    """Name of the stage."""
    seconds: float
    """Duration of the stage for a unit."""


class OtherMode(TypedDict):
    """The best plan of the other mode."""

    mode: Mode
    """Its mode."""
    unit: int
    """Items that pass at a time."""
    predicted_seconds: float
    """Predicted duration for all items."""
    bottleneck: str
    """Its slowest stage."""


class PipelineRun(TypedDict):
    """The execution of a pipeline."""

    mode: Mode
    """Mode of the plan that ran."""
    predicted_seconds: float
    """Predicted duration of that plan."""
    measured_seconds: float
    """Measured duration of the loop."""
    verified: bool | None
    """Whether one process computes the same result; null: not compared."""


class PipelineDocument(TypedDict):
    """``apples plan --json`` and ``apples run --json`` print this document of a pipeline."""

    schema: Literal["apples.pipeline/1"]
    name: str
    """Name of the application."""
    items: int
    """Items that each task processes."""
    mode: Mode
    """`pipelined`: each task has hosts of its own; `alternating`: all tasks take turns on one set of hosts."""
    unit: int
    """Items that pass at a time."""
    predicted_seconds: float
    """Predicted duration for all items."""
    bottleneck: str
    """The slowest stage."""
    tasks: list[PipelineTaskInfo]
    """The tasks with their hosts."""
    stages: list[StageSeconds]
    """The stages in order."""
    others: list[OtherMode]
    """The best plan of the other mode; empty: no plan."""
    unused: list[str]
    """Hosts that the plan leaves out."""
    assumed: list[str]
    """Values that were neither given nor measured, one line each."""
    execution: PipelineRun | None
    """The execution; null without `--run`."""


# ---------------------------------------------------------------- master/worker programs

Bound = Literal["workers", "links", "master"]


class RankedMaster(TypedDict):
    """A host as the master, with its best workers."""

    host: str
    """The host."""
    rate: float
    """Predicted units a second."""
    bound: Bound
    """Limit of the rate."""
    workers: list[str]
    """Its best workers."""


class FailedUnit(TypedDict):
    """A unit without a result."""

    unit: int
    """Number of the unit."""
    reason: str
    """Reason of the last failure."""


class MasterWorkerExecution(TypedDict):
    """The execution of a master/worker program."""

    measured_seconds: float
    """From the first worker's connection to the last result."""
    measured_rate: float
    """Units a second."""
    service_seconds: float
    """Processor seconds of the master for a unit."""
    hosts: dict[str, int]
    """Units that each host finished."""
    joined: list[str]
    """Hosts that joined after the start."""
    left: list[str]
    """Hosts that left before the end."""
    lost: dict[str, str]
    """Reason by lost host."""
    verified: int
    """Units computed twice with the same result."""
    failed: list[FailedUnit]
    """Units without a result."""
    result: Any
    """Combined result of the other units."""


class MasterWorkerDocument(TypedDict):
    """``apples plan --json`` and ``apples run --json`` print this document of a master/worker program."""

    schema: Literal["apples.master-worker/1"]
    name: str
    """Name of the program."""
    units: int
    """Units of the program."""
    master: str
    """Host of the master."""
    workers: dict[str, float]
    """Predicted units a second by worker."""
    predicted_rate: float
    """Predicted units a second of all workers."""
    predicted_seconds: float
    """Duration of all units at that rate."""
    bound: Bound
    """Limit of the rate: the workers, the links or the master."""
    masters: list[RankedMaster]
    """Each possible master with its best workers, the highest rate first."""
    assumed: list[str]
    """Values that were neither given nor measured, one line each."""
    execution: MasterWorkerExecution | None
    """The execution; null: a dry run."""


# ---------------------------------------------------------------- files


class FileProblem(TypedDict):
    """A problem in a file."""

    line: int | None
    """Line, counted from 1; null: no line."""
    field: str
    """Field such as `host[1].cpu`; empty: the whole file."""
    message: str
    """The problem."""
    suggestion: str
    """The nearest valid name; empty: none."""


class CheckedFile(TypedDict):
    """A checked file."""

    file: str
    """Path of the file."""
    kind: str | None
    """Kind of the file; null: not recognised."""
    problems: list[FileProblem]
    """Its problems; empty: none."""


class CheckDocument(TypedDict):
    """``apples check --json`` and ``hat check --json`` print this document."""

    schema: Literal["hat.check/1"]
    files: list[CheckedFile]
    """The files, in the order of the command line."""


class NewDocument(TypedDict):
    """``hat new --json`` prints this document."""

    schema: Literal["hat.new/1"]
    files: list[str]
    """The written files."""


class HostsDocument(TypedDict):
    """``hat import slurm --json`` prints this document."""

    schema: Literal["apples.hosts/1"]
    host: list[dict[str, Any]]
    """Entries of a host list, with the keys of `[[host]]`."""
