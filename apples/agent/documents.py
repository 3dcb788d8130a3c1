"""The JSON documents of the agent, as types: a plan, a run, a calibration, the learned state.

The docstring below a field is its description in the JSON Schema and in ``docs/reference/json.md``. A record of an
earlier version may lack fields that later versions added.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NotRequired

from typing_extensions import Doc, TypedDict

from apples.topology.documents import Messages

LEARNED_WEATHERS: Final = frozenset({"live", "remembered"})
"""Weathers that a plan combines with the learned state."""

# ---------------------------------------------------------------- parts of a plan


class ApplicationInfo(TypedDict):
    """The application that is planned."""

    name: str
    """Its name in the template."""
    version: str
    """Its version in the template."""
    parameters: dict[str, Any]
    """Value by parameter, after ``--set``."""
    rows: int
    """Rows of the grid."""
    columns: int
    """Columns of the grid."""
    iterations: int
    """Iterations of a run."""


class ObjectiveInfo(TypedDict):
    """The measure by which a plan is chosen, and its value for this plan."""

    measure: str
    """``execution_time``, ``cost``, ``speedup``, or the user's metric."""
    better: Literal["lower", "higher"]
    """Which values are better."""
    value: float
    """Value of the measure; for ``execution_time`` the turnaround in seconds. A speedup counts the wait and the
    start."""


Coverage = TypedDict(
    "Coverage",
    {
        "class": Annotated[
            Literal["alone", "site", "sites"],
            Doc("One host, several hosts of one site, or hosts of several sites."),
        ],
        "level": Annotated[float, Doc("Share of runs that the interval is to hold: 0.8.")],
        "runs": Annotated[int, Doc("Past runs of the class.")],
        "needed": Annotated[int, Doc("Runs of the class before a plan has an interval.")],
        "inside": Annotated[
            int, Doc("Of the last runs, those inside the interval made from the runs before them.")
        ],
        "of": Annotated[int, Doc("Last runs that `inside` counts: at most ten.")],
    },
)
"""The past runs behind an interval."""


class RectangleInfo(TypedDict):
    """A host's rectangle of the grid."""

    first_row: int
    """Its first row."""
    rows: int
    """Its height in rows."""
    first_column: int
    """Its first column."""
    columns: int
    """Its width in columns."""


class StripInfo(TypedDict):
    """One host of a plan; its seconds are of one iteration."""

    host: str
    """Name of the host."""
    site: str
    """Site of the host."""
    rows: int
    """Rows of the host; of a rectangle, its height."""
    rectangle: NotRequired[RectangleInfo]
    """The host's rectangle. Only in a plan of rectangles."""
    threads: NotRequired[int]
    """Threads of the one process that computes. Only in a plan by threads."""
    implementation: str | None
    """Name of the implementation."""
    compute_seconds: float
    """Predicted computing."""
    communicate_seconds: float
    """Predicted communication."""
    seconds: float
    """Predicted iteration of this host, T_i."""
    cpu: float
    """Forecast share of a CPU, 0 to 1."""
    cpu_error: float
    """Mean absolute error of that forecast; a tenth of the forecast before it was scored."""
    cpu_method: str
    """Forecaster of the CPU share."""
    cpu_samples: int
    """Measurements behind that forecast."""
    memory: float
    """Bytes that the host's part takes."""
    free_memory: float | None
    """Bytes that it may take: the forecast less the user's risk, at most the user's limit. Null: not known."""


class Chosen(TypedDict):
    """The plan itself."""

    hosts: list[str]
    """Names of the hosts, in strip order; of rectangles, column by column."""
    rows: list[int]
    """Rows of each host, at least 1; of strips they add up to `application.rows`."""
    iteration_seconds: float
    """Predicted iteration: the largest T_i times `straggler_factor`."""
    straggler_factor: NotRequired[float]
    """Iteration time over the largest T_i: hosts are late in turn. 1 without a learned factor."""
    execution_seconds: float
    """Predicted execution: iterations times `iteration_seconds`."""
    wait_seconds: float
    """Expected wait for the hosts, 0 without a queue."""
    start_seconds: float
    """From the launch until the slowest host is ready: learned, else from the host list."""
    turnaround_seconds: float
    """Wait, start and execution together."""
    objective: ObjectiveInfo
    """The measure by which the plan was chosen."""
    interval: list[float]
    """Low and high seconds of the execution: four of five runs end inside. Both are the prediction if the class
    has fewer than `coverage.needed` runs, or a speed was not measured."""
    iteration_interval: list[float]
    """The same of one iteration."""
    coverage: Coverage | None
    """The past runs behind the interval."""
    cost: float
    """Cost of the hosts while they start and execute."""
    speedup: float | None
    """Against the best single host or the user's reference; null: no single host can run it."""
    planner: str
    """Planner that made the schedule."""
    strips: list[StripInfo]
    """The hosts, in strip order."""


class SpeedSource(TypedDict):
    """The source of a host's speed."""

    source: Literal["measured", "host list", "template", "assumed"]
    """``measured``: by a calibration or by runs of this application."""
    points: float | None
    """Points of the whole grid where it was measured; null: not measured, or not known."""
    factor: float
    """Points of this grid over those of the measurement; 1 inside the measured range."""


class NextBest(TypedDict):
    """The best plan on another set of hosts."""

    hosts: list[str]
    """Names of its hosts."""
    iteration_seconds: float
    """Its predicted iteration."""
    ratio: float
    """Its iteration time over that of the plan."""


class LeftOut(TypedDict):
    """A usable host that was not chosen."""

    host: str
    """Name of the host."""
    reason: str
    """One sentence with the two figures."""
    figures: list[float]
    """The two figures in `reason`: seconds, or the bytes that it offers and seconds."""


class Binding(TypedDict):
    """A limit without which the plan would be better."""

    host: str
    """Host that the limit holds back."""
    what: Literal["memory", "allocation", "hosts", "sites", "distance", "deadline", "cost"]
    """``allocation``: the user's limit of bytes on a host. Limits beside memory are tested with ``--explain``
    and up to 256 hosts."""
    limit: float
    """The limit: bytes, hosts, sites, the distance's unit, seconds, or the currency of the costs."""
    needed: float
    """The same of the better plan."""
    reason: str
    """One sentence with the figures."""


class Rejected(TypedDict):
    """A set of hosts, or one host, that a filter rejected."""

    hosts: list[str]
    """Names of the hosts."""
    reason: str
    """One sentence with the two figures."""
    filter: str
    """Name of the filter."""
    figures: list[float]
    """The figures in `reason`."""


class RememberedLink(TypedDict):
    """A link of the plan that was not measured again."""

    between: list[str]
    """The two hosts."""
    age_seconds: float
    """Age of the measurement."""


class Probed(TypedDict):
    """Measurements over ssh before the plan."""

    hosts: int
    """Number of hosts."""
    links: list[list[str]]
    """Pairs of hosts, in order, with a link measured now."""
    remembered: list[RememberedLink]
    """Links of the plan that were not measured again."""
    left_out: list[list[str]]
    """Links of the plan that it does not depend on."""


class WeatherInfo(TypedDict):
    """The weather of a plan."""

    kind: Literal["measured", "static"]
    """``static``: the host list's values."""
    time: float
    """Seconds since the epoch."""
    over: float | None
    """Seconds of the run for which the forecasts are; null: the next measurement."""
    source: str
    """URL of the service, ``this process``, a file, or ``host list``."""
    looked: Probed | None
    """Null: nothing was measured over ssh."""


class ComparedSet(TypedDict):
    """A set of hosts that was planned."""

    hosts: list[str]
    """Names of the hosts."""
    iteration_seconds: float
    """Predicted iteration."""
    ratio: float
    """Its iteration time over that of the plan."""
    turnaround_seconds: float
    """Wait, start and execution together."""
    objective: float
    """Value of the objective."""


class ChangeInfo(TypedDict):
    """A quantity of one host, and its value at which another set of hosts becomes the answer."""

    host: str
    """Name of the host."""
    quantity: Literal["cpu", "speed", "latency", "memory"]
    """``cpu``: share; ``speed`` and ``latency``: times the present one; ``memory``: bytes."""
    now: float
    """Its value now."""
    error: float
    """Mean absolute error of its forecast, 0 without one."""
    at: float
    """Its value at which the answer changes."""
    answer: list[str]
    """The set that wins beyond it, sorted by name; empty: no set is feasible there."""
    errors_away: float | None
    """Forecast errors between `now` and `at`; null without an error."""
    advice: str
    """``close``, ``watch`` or ``safe``: by `errors_away`, without it by the ratio of the values."""


class LinkBasis(TypedDict):
    """A link that the plan uses."""

    between: list[str]
    """The two hosts."""
    latency: float
    """Seconds one way."""
    bandwidth: float
    """Bytes per second."""
    method: str
    """Forecaster, or the source of the value."""
    assumed: bool
    """Whether the link is neither listed nor measured."""
    seconds: float
    """Planned seconds of one transfer of the border."""
    measured_runs: int
    """Runs that measured this link or that of its sites."""


class CorrectionInfo(TypedDict):
    """A learned correction of a host, of a link or of a set, with its evidence."""

    kind: str
    """``slowdown``, ``co_run_slowdown``, ``share_bias``, ``link``, ``border_wait``, ``straggler_factor`` or
    ``start``."""
    of: list[str]
    """Hosts or sites; of a start, launcher and host; empty: any set."""
    factor: float | None
    """Factor on the time of its term; for a share bias, on the share; for a link, forecast over used bandwidth.
    Null: the correction is in seconds."""
    seconds: float | None
    """Seconds of a border wait, or of a start from the launch; else null."""
    applied: bool
    """Whether the model uses it: it was better in two tests, and not worse in the newest."""
    runs: int
    """Runs that taught it."""
    first: str
    """Day of the first of them, UTC, such as ``2026-11-28``."""
    last: str
    """Day of the last of them."""
    tested: int
    """Runs that it predicted before they taught it."""
    error_with: float
    """Mean absolute error on these runs with it: relative, of a start in seconds."""
    error_without: float
    """The same without it."""
    bound: float
    """Largest factor either way, or largest seconds."""
    unused: NotRequired[str | None]
    """Why the model does not use it; null if it does."""


class Basis(TypedDict):
    """The links and corrections of a plan."""

    links: list[LinkBasis]
    """Links between neighbours."""
    corrections: list[CorrectionInfo]
    """Each correction of a usable host, or of a link or a set of them, in use or not."""
    drag: float
    """Straggler factor of the set."""
    company: dict[str, float]
    """Co-run slowdown by host; empty for a host alone."""
    share_bias: dict[str, float]
    """Learned factor on the forecast share of a CPU, by host. Hosts without one are not in it."""


class EqualStrips(TypedDict):
    """Equal strips on the chosen hosts."""

    iteration_seconds: float
    """Their predicted iteration."""
    ratio: float
    """Their iteration time over that of the plan."""


class ArrangementInfo(TypedDict):
    """The order of the hosts by the messages of their ranks."""

    source: str
    """``counted`` in a run, reported by its ``arrays``, or ``declared``."""
    ranks: int
    """Ranks of the messages."""
    bytes_times_distance: float | None
    """Value for this order of hosts; null: the messages are of another number of ranks."""
    bytes_times_distance_before: float | None
    """Value for the planner's order; null as above."""


class Partitions(TypedDict):
    """Decomposition of the data, compared with one partition per rank."""

    decomposition: str
    """As the user wrote it, for example ``redundant:4``."""
    partitions: int
    """Number of partitions."""
    ranks: int
    """Number of ranks."""
    computing: float
    """Computing of the longest rank, as a multiple of that with one partition each, by the planned speeds."""


class PlanDocument(TypedDict):
    """``apples plan --json``, and the plan of a run."""

    schema: Literal["apples.plan/1"]
    """Name and version of the form."""
    blueprint: str
    """Name of the blueprint, as given."""
    application: ApplicationInfo
    """The application, with the parameters of this plan."""
    chosen: Chosen | None
    """The plan; null: there is none (exit code 3)."""
    speeds: NotRequired[dict[str, SpeedSource]]
    """Source of each chosen host's speed. An interval needs ``measured`` speeds with a `factor` up to 4."""
    next_best: NextBest | None
    """The best plan on another set; null: there is none."""
    hosts: int
    """Hosts that passed the filters on single hosts."""
    considered: int
    """Schedules that were made."""
    feasible: int
    """Feasible schedules among them."""
    left_out: list[LeftOut]
    """Usable hosts that were not chosen, the first twelve."""
    binding: list[Binding]
    """Limits without which the plan would be better."""
    rejected: list[Rejected]
    """Rejections, the first 100."""
    rejected_total: int
    """Number of all rejections."""
    assumed: list[str]
    """Values that were neither given nor measured, one line each."""
    weather: WeatherInfo
    """The weather of the plan."""
    risk: float
    """The user's risk."""
    coverage: float | None
    """Share of past runs inside their interval; null before the first."""
    arrangement: NotRequired[ArrangementInfo]
    """With ``--messages``, and for rectangles with hosts in another order than the planner's."""
    partitions: NotRequired[Partitions]
    """Only if the user prefers a decomposition."""
    remedy: NotRequired[str]
    """The nearest change that gives a plan, in a document without one."""
    sets: NotRequired[list[ComparedSet]]
    """With ``--explain``: planned sets, at most 40, the best by the objective first."""
    changes: NotRequired[list[ChangeInfo]]
    """With ``--explain``: values of single quantities at which the answer changes."""
    changes_within: NotRequired[float]
    """With ``--explain``: largest factor by which a quantity was varied."""
    changes_asked: NotRequired[int]
    """With ``--explain``: questions asked for `changes`."""
    changes_possible: NotRequired[int]
    """With ``--explain``: possible questions: CPU and memory of each chosen host, speed and latency of the
    others."""
    equal_strips: NotRequired[EqualStrips | None]
    """With ``--explain``: equal strips on the chosen hosts; null: more hosts than rows."""
    rests_on: NotRequired[Basis]
    """With ``--explain``: links and learned corrections of the plan."""


# ---------------------------------------------------------------- parts of a run


class HostRun(TypedDict):
    """The figures of one host of a run. A program without a plan has `host` only."""

    host: str
    """Name of the host."""
    rows: NotRequired[int]
    """Rows of the host; of a rectangle, its height."""
    rectangle: NotRequired[RectangleInfo]
    """The host's rectangle. Only in a run of rectangles."""
    compute_seconds: NotRequired[float]
    """Computing, in the whole loop."""
    communicate_seconds: NotRequired[float]
    """Communication, in the whole loop."""
    wait_seconds: NotRequired[float | None]
    """Waiting for neighbours, in the whole loop; null: the program does not report it."""
    processor_seconds: NotRequired[float | None]
    """Processor time of computing, in the whole loop; null: the program does not report it."""
    cpu_got: NotRequired[float | None]
    """Processor over compute seconds."""
    off: NotRequired[float | None]
    """Computing, measured over predicted, less 1."""
    predicted_compute_per_iteration: NotRequired[float]
    """Predicted computing in one iteration, seconds."""
    compute_per_iteration: NotRequired[float]
    """Measured computing in one iteration, seconds."""
    predicted_communicate_per_iteration: NotRequired[float]
    """Predicted communication in one iteration, seconds."""
    communicate_per_iteration: NotRequired[float]
    """Measured communication in one iteration, seconds."""
    wait_per_iteration: NotRequired[float | None]
    """Waiting in one iteration, seconds; null: it is within communication."""
    other_per_iteration: NotRequired[float]
    """The rest of an iteration, seconds: compute, communicate, wait and other add up to `iteration_seconds`."""


class BorderRun(TypedDict):
    """The border of two neighbours."""

    hosts: list[str]
    """The two hosts."""
    bytes: float
    """Bytes of one transfer, one way."""
    seconds: float
    """Measured seconds of one transfer, from the moment both ranks were there."""
    latency_seconds: float | None
    """Seconds of a small message; null: the program does not report it."""
    predicted_seconds: float | None
    """Predicted seconds of one transfer; null: the plan had no such border."""


class Redistribution(TypedDict):
    """A move that was evaluated while the application ran."""

    iteration: int
    """Iteration of the decision."""
    moved: bool
    """Whether the move was made."""
    explanation: str
    """Why it was made or not."""
    breach: str
    """Violation of the contract, or the reason that the blueprint gives; empty: a periodic evaluation."""
    hosts: list[str]
    """Proposed hosts."""
    rows: list[int]
    """Proposed rows."""
    iteration_seconds: float
    """Measured iteration."""
    predicted_seconds: float
    """Predicted iteration after the move."""
    remaining: int
    """Iterations left."""
    error: float
    """Relative error of the measured iteration."""
    gain_seconds: float
    """Expected gain of all remaining iterations."""
    cost_seconds: float
    """Expected duration of the move."""
    payback_seconds: float | None
    """Seconds until the gain exceeds the cost; null: never."""
    resize_seconds: float | None
    """Measured duration of the move; null: none was made."""
    probed: dict[str, float]
    """Hosts with a measured kernel: measured time over the model's."""


class SlowHostEntry(TypedDict):
    """A host that is, or was, at least about twice as slow as planned."""

    host: str
    """Name of the host."""
    since_iteration: int
    """Iteration at which it became slow."""
    until_iteration: int | None
    """Iteration at which it was as fast as planned again; null: it still is slow."""
    factor: float
    """Its measured over its expected seconds of an iteration."""
    cause: Literal["other load", "quota", "paging", "link", "own work", "stalls", "unknown"]
    """``paging``: memory came from a disk; ``own work``: its rows need more processor time; ``stalls``: it
    neither computed nor waited for a CPU; ``unknown``: no processor time was reported."""
    iteration_cost_seconds: float
    """Seconds that it adds to an iteration."""
    costs_seconds: float
    """Seconds in all, up to the end of the run at this pace."""


class ExecutionInfo(TypedDict):
    """The measured part of a run."""

    iterations: int
    """Iterations done, as the program reports them."""
    predicted_seconds: float | None
    """Predicted seconds of the loop, first barrier to last."""
    measured_seconds: float
    """Measured seconds of the loop."""
    iteration_seconds: float
    """Measured seconds of an iteration."""
    startup_seconds: float
    """From the launch to the first barrier; with ``--actuator slurm`` with the queue."""
    hosts: list[HostRun]
    """The hosts, in strip order."""
    interval: NotRequired[list[float]]
    """The promised interval of `measured_seconds`."""
    predicted_iteration_seconds: NotRequired[float]
    """Predicted seconds of an iteration."""
    off: NotRequired[float]
    """Iteration time, measured over predicted, less 1."""
    inside: NotRequired[bool | None]
    """Whether the run ended inside its interval; null: no interval, or another number of iterations."""
    coverage: NotRequired[Coverage | None]
    """`chosen.coverage` of the plan, as it was before this run."""
    residual: NotRequired[float | None]
    """Last residual; null: the program does not report one."""
    files: NotRequired[list[str]]
    """Files that the program wrote."""
    borders: NotRequired[list[BorderRun]]
    """The measured borders; empty: the program does not measure them."""
    queue_seconds: NotRequired[float | None]
    """Wait in the queue by Slurm's times. Null: no queue, or not reported."""
    moved: NotRequired[bool]
    """Whether the application was moved while it ran. The prediction and `hosts` are then those of the start."""
    messages: NotRequired[Messages | None]
    """Messages between hosts. Null: rectangles, a moved run, or more than 256 ranks. Of a running program, the
    count so far, up to 24 ranks."""
    redistributions: NotRequired[list[Redistribution]]
    """Moves that were evaluated, in order."""
    slow_hosts: NotRequired[list[SlowHostEntry]]
    """Slow hosts, with cause and cost."""


class DifferingRow(TypedDict):
    """The first row in which two results differ."""

    row: int
    """Number of the row."""
    host: str
    """Host that computed it."""
    rank: int
    """Rank that computed it."""


class DifferingCell(TypedDict):
    """The first cell in which a result differs from that of the template's function."""

    index: list[int]
    """Indices of the cell, from 0."""
    value: str
    """Value of the result."""
    expected: str
    """Value that the function gives."""


class ExpectedResultCheck(TypedDict):
    """The comparison with the function of the template's `expected_result`."""

    function: str
    """The function, as the template has it."""
    tolerance: float
    """Largest permitted difference, as a share of max(1, absolute value of the expected cell)."""
    largest_difference: float | None
    """Largest difference found, in the same unit; null: not finite."""
    differs_at: DifferingCell | None
    """First cell beyond the tolerance; null: none."""


class ComparedRanks(TypedDict):
    """The ranks of two compared results."""

    ranks: int
    """Ranks of the run."""
    reference_ranks: int
    """Ranks of the reference run."""
    partition_tested: bool
    """Whether the two runs had different partitions; false if both had one rank."""


Asked = Literal["auto", "full", "sample", "none"]
How = Literal["full", "sample", "none"]


class VerificationInfo(TypedDict):
    """How a result was verified."""

    asked: Asked
    """Value of ``--verify``."""
    how: How
    """How it was verified in fact."""
    iterations: int
    """Iterations compared."""
    predicted_seconds: float | None
    """Predicted duration of the check."""
    seconds: float | None
    """Measured duration of the check."""
    reason: str
    """Why nothing, or only a sample, was compared; else empty."""
    sampled_on: str | None
    """Place of the sample's partition: ``hosts`` or ``this machine``; empty without a sample."""
    compared: NotRequired[ComparedRanks | None]
    """Ranks of the two results; null: nothing was compared."""
    differs_at: DifferingRow | None
    """First differing row; null: none, or the program reports no digests of rows."""
    expected_result: NotRequired[ExpectedResultCheck | None]
    """Comparison with the function of the template's `expected_result`; null: none was made."""


class LaunchCommandInfo(TypedDict):
    """The command that a dry run would start."""

    argv: list[str]
    """Words of the command."""
    environment: dict[str, str]
    """Variables that it adds."""
    files: dict[str, str]
    """Text by file name; the command runs in their folder."""


class Machine(TypedDict):
    """The machine that ran the command."""

    system: str
    """Operating system."""
    processor: str
    """Model of the processor."""
    cpus: int
    """Number of CPUs."""
    memory: int
    """Bytes of memory."""


class MadeBy(TypedDict):
    """The command that made a document."""

    command: str
    """The command."""
    time: str
    """Its time, ISO 8601."""
    versions: dict[str, str]
    """Version by package, with Python."""
    machine: Machine
    """The machine."""


class AgentRunDocument(TypedDict):
    """``apples run --json`` and ``apples wait --json``."""

    schema: Literal["apples.run/1"]
    """Name and version of the form."""
    plan: PlanDocument | None
    """The plan, frozen before the launch; null of a program without a plan."""
    execution: ExecutionInfo | None
    """The measured run; null: nothing ran."""
    verified: bool | None
    """Whether the result equals that of a run with one rank (with two, if it had one). Null: not compared."""
    verification: NotRequired[VerificationInfo]
    """How it was verified."""
    result_sha256: str | None
    """Digest of the result's bytes, row-major float64."""
    phases: NotRequired[dict[str, float]]
    """Seconds of the command by phase: ``imports``, ``read`` (files), ``here`` (this machine), ``look`` (checks
    of all hosts), ``hosts`` (CPUs), ``links``, ``calibrate``, ``plan``, ``launch`` (to ready), ``loop``,
    ``moves`` (standstill), ``end``, ``verify``, ``learn``."""
    seconds: NotRequired[float]
    """Sum of `phases`: the whole command, up to its answer."""
    made_by: NotRequired[MadeBy]
    """Command, time, versions and machine."""
    record: NotRequired[str | None]
    """Id of the run's record; null: none could be kept."""
    rejection: NotRequired[str]
    """The reason if no plan or no result exists (`execution` is null)."""
    command: NotRequired[LaunchCommandInfo]
    """With ``--dry-run``: the command that would be started."""


# ---------------------------------------------------------------- learned state


class SpeedCurve(TypedDict):
    """The measured speed of an implementation on a host."""

    rows: list[float]
    """Measured strip sizes."""
    seconds_per_point: list[float]
    """Seconds a point at each of them."""
    error: float | None
    """Relative error."""
    columns: float | None
    """Points of a row."""
    memory: float | None
    """Free bytes of a separate memory, for example a GPU's; else null."""
    points: float
    """Points of the whole grid."""


class CalibrationDocument(TypedDict):
    """``apples calibrate --json``."""

    schema: Literal["apples.calibration/1"]
    """Name and version of the form."""
    application: str
    """Name of the application."""
    version: str
    """Its version."""
    hosts: dict[str, dict[str, SpeedCurve]]
    """Measured speed by host and implementation."""


class LearnedApplication(TypedDict):
    """The learned state of one application."""

    application: str
    """Name of the application."""
    version: str
    """Its version."""
    folder: str
    """Folder of its template."""
    speeds: dict[str, dict[str, SpeedCurve]]
    """Measured speed by identity of the host and implementation."""
    corrections: list[CorrectionInfo]
    """Its corrections; hosts by identity."""
    runs: int
    """Past runs that were compared with a prediction."""
    coverage: float | None
    """Share of printed intervals that held; null: none was printed."""


class LearnedDocument(TypedDict):
    """``apples calibrate --learned --json``."""

    schema: Literal["apples.learned/1"]
    """Name and version of the form."""
    applications: list[LearnedApplication]
    """Measured speeds and corrections by application."""


class ForgottenDocument(TypedDict):
    """``apples calibrate --forget --json``."""

    schema: Literal["apples.forgotten/1"]
    """Name and version of the form."""
    removed: list[str]
    """A line for each application that changed."""
