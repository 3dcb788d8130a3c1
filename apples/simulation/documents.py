"""Types of the JSON documents of simulations. A field's docstring is its description in schema and json.md."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict


class Percentiles(TypedDict):
    """Percentiles 50, 75, 90, 95, 99 and 100 over the completed jobs, by percentage."""

    wait: dict[str, float]
    """From the submission to the start, in seconds."""
    response: dict[str, float]
    """From the submission to the end, in seconds."""
    slowdown: dict[str, float]
    """Response over run time."""
    bounded_slowdown: dict[str, float]
    """Slowdown of a run time of at least 10 s, and at least 1."""


class BegunReservation(TypedDict):
    """An advance reservation that began."""

    name: str
    """Its name, empty without a name."""
    begin: float
    """When it began, in seconds of the log."""
    end: float
    """When it ends, in seconds of the log."""
    nodes: int
    """Nodes that it reserves."""
    began_with: int
    """Nodes that it had when it began."""


class PolicyFailures(TypedDict):
    """One kind of failure of the user's policy."""

    kind: str
    """Kind of the failure, for example `raises`."""
    passes: int
    """Scheduling passes that failed so."""
    time: float
    """When the first of them failed, in seconds of the log."""
    where: str
    """File and line of the first failure, as `FILE:LINE`."""
    reason: str
    """Reason of the first failure."""


class HeldJob(TypedDict):
    """A job that the policy held and never released."""

    job: int
    """Number of the job."""
    reason: str
    """Reason that the policy gives."""


class SimulationFigures(TypedDict):
    """Results of one simulation."""

    jobs: int
    """Jobs simulated."""
    completed: int
    """Jobs that ended regularly."""
    mean_wait: float
    """Mean wait of the completed jobs, in seconds."""
    mean_response: float
    """Mean response of the completed jobs, in seconds."""
    mean_slowdown: float
    """Mean slowdown of the completed jobs: response over run time."""
    mean_bounded_slowdown: float
    """Mean bounded slowdown of the completed jobs: run times below 10 s count as 10 s."""
    percentiles: Percentiles
    """Percentiles over the completed jobs."""
    makespan: float
    """Seconds from the first submission to the last end."""
    utilisation: float
    """Occupied node-seconds over nodes times `makespan`."""
    energy: float | None
    """Joules; null without `idle_watts` and `busy_watts`."""
    malleable_starts: int
    """Jobs started inside the nodes of other jobs."""
    mates: int
    """Jobs that gave nodes to such starts."""
    resizes: int
    """Changes of the size of a running job."""
    restarts: int
    """Runs lost to failures and requeues."""
    killed: int
    """Jobs killed at their limit (`limits=kill`)."""
    work_lost: float
    """Of the lost runs, the work after their last checkpoint, in processor-seconds on the requested processors."""
    work_saved: float
    """Of the lost runs, the work up to their last checkpoint, in processor-seconds."""
    rejected: int
    """Jobs that can never run, for example because they exceed the machine."""
    reservations: list[BegunReservation]
    """Advance reservations that began."""
    refused_starts: int
    """Starts and growths refused because they overlap a reservation that the policy ignores."""
    held: int
    """Jobs that the policy held and never released."""
    first_held: HeldJob | None
    """The first of them; null: none."""
    failed_passes: int
    """Passes in which the user's policy failed; above 0 the exit code is 2."""
    policy_failures: list[PolicyFailures]
    """Failures of the user's policy, one entry a kind."""


class PartitionFigures(TypedDict):
    """A partition of a machine file and the results of its jobs."""

    nodes: int
    """Nodes of the partition."""
    cores: int
    """Cores of a node."""
    memory: float | None
    """Bytes of a node; null: not given."""
    gpus: int | None
    """GPUs of a node; null: not given."""
    speed: float
    """Speed relative to the speed at which the log's run times were measured."""
    jobs: int
    """Jobs of the partition."""
    completed: int
    """Jobs that ended regularly."""
    rejected: int
    """Jobs that can never run there."""
    mean_wait: float | None
    """Mean wait in seconds; null: no job completed."""
    mean_response: float | None
    """Mean response in seconds; null: no job completed."""
    mean_slowdown: float | None
    """Mean slowdown; null: no job completed."""
    mean_bounded_slowdown: float | None
    """Mean bounded slowdown; null: no job completed."""
    utilisation: float
    """Occupied node-seconds over nodes times `makespan`."""


class WorkloadLog(TypedDict):
    """The simulated log."""

    name: str
    """The log as given on the command line."""
    sha256: str | None
    """SHA-256 of the file; null: a workload model has no file."""


class SimulationDocument(SimulationFigures):
    """``apples simulate --json`` prints this document."""

    schema: Literal["apples.simulation/1"]
    log: WorkloadLog
    """The simulated log."""
    records: int
    """Records of the log."""
    dropped: dict[str, int]
    """Jobs left out, by reason."""
    reordered: int
    """Jobs put in the order of submission."""
    requests_raised: int
    """Requested times raised to the run time."""
    notes: list[str]
    """Other corrections of the log, and columns that the simulation ignores."""
    policy: str
    """The policy as given on the command line."""
    malleable: float | None
    """Fraction of malleable jobs; null: the policy resizes no job."""
    by_partition: dict[str, PartitionFigures]
    """Results by partition; empty without a machine file."""
    rejections: dict[str, int]
    """Rejected jobs by reason: the 20 most frequent reasons. `rejected` counts all jobs."""
    engine: str
    """`numba` for a compiled kernel, `events` for the event engine."""
    simulation_seconds: float
    """Duration of the simulation, without reading and compilation."""
    read_seconds: float
    """Duration of reading the log."""


class WaitGroup(TypedDict):
    """Mean waits of jobs of one day, size or partition."""

    name: str
    """The day counted from 1, the range of processors, or the partition."""
    jobs: int
    """Jobs of the group."""
    logged_wait: float
    """Mean wait in the log, in seconds."""
    simulated_wait: float
    """Mean wait in the simulation, in seconds."""


class WorstBreakdown(TypedDict):
    """The breakdown in which a policy differs most from the log."""

    breakdown: str
    """`overall`, `day`, `size` or `partition`."""
    factor: float
    """Simulated over logged waits, or the inverse: at least 1."""


class PolicyWaits(TypedDict):
    """Waits under one policy against the waits of one half of the log."""

    logged_wait: float
    """Mean wait in the log, in seconds."""
    simulated_wait: float
    """Mean wait in the simulation, in seconds."""
    worst: WorstBreakdown
    """The breakdown in which the policy differs most from the log."""
    by_day: NotRequired[list[WaitGroup]]
    """Waits by day of submission, groups of at least 20 jobs."""
    by_size: NotRequired[list[WaitGroup]]
    """Waits by number of processors, groups of at least 20 jobs."""
    by_partition: NotRequired[list[WaitGroup]]
    """Waits by partition, if the log has several; groups of at least 20 jobs."""


class HalfWaits(TypedDict):
    """Waits under one policy by half of the log."""

    first_half: PolicyWaits
    """The half by which the nearest policy is chosen."""
    second_half: PolicyWaits
    """The half by which it is judged."""


class ExplainedWaitsDocument(TypedDict):
    """``apples simulate LOG --explain-waits --json`` prints this document."""

    schema: Literal["apples.explained_waits/1"]
    log: str
    """The log as given on the command line."""
    verdict: str
    """The verdict as a sentence."""
    explained: bool
    """Whether the model explains the waits of the log."""
    policy: str
    """The policy nearest to the log on its first half."""
    factor: float
    """Factor by which that policy differs from the log on the second half, in the worst breakdown."""
    jobs: int
    """Jobs with a known wait, which are compared."""
    unknown: int
    """Jobs without a known wait, or that did not complete."""
    not_tried: list[str]
    """Policies left out because they take long on a log of this size."""
    failed_passes: int
    """Passes in which the user's policy failed."""
    policies: dict[str, HalfWaits]
    """Waits by policy."""


class RelativeChange(TypedDict):
    """The change of a metric against the baseline."""

    change: float | None
    """Relative change: 0.1 is 10 % more; null: no run of the baseline to compare with."""
    change_interval: list[float] | None
    """95 % interval of the change, low and high; null: one value gives none."""
    over: str | None
    """Independent parts behind the interval: `slices`, `seeds` or `run`; null: no change."""
    count: int
    """Number of these parts."""


class MetricFigures(RelativeChange):
    """A metric of the runs of one log and policy."""

    mean: float
    """Mean over the runs."""
    half: float | None
    """Half width of the 95 % interval of the mean; null: one run."""


class FractionPoint(RelativeChange):
    """The change with one fraction of malleable jobs."""

    malleable: float
    """Fraction of malleable jobs."""


class JudgedChange(RelativeChange):
    """A change and the verdict that follows."""

    verdict: str
    """`better`, `worse`, `no clear difference` or `one run: no verdict`."""


class SweepRow(TypedDict):
    """The runs of one log and policy. A metric without a value, for example energy, is absent."""

    log: str
    """The log."""
    policy: str
    """The policy with its options."""
    runs: int
    """Simulations."""
    failed_passes: int
    """Passes in which the user's policy failed."""
    mean_wait: NotRequired[MetricFigures]
    """Mean wait, in seconds."""
    mean_response: NotRequired[MetricFigures]
    """Mean response, in seconds."""
    mean_slowdown: NotRequired[MetricFigures]
    """Mean slowdown."""
    mean_bounded_slowdown: NotRequired[MetricFigures]
    """Mean bounded slowdown."""
    makespan: NotRequired[MetricFigures]
    """Makespan, in seconds."""
    utilisation: NotRequired[MetricFigures]
    """Utilisation, 0 to 1."""
    energy: NotRequired[MetricFigures]
    """Energy, in joules."""
    malleable_starts: NotRequired[MetricFigures]
    """Jobs started inside the nodes of other jobs."""
    mates: NotRequired[MetricFigures]
    """Jobs that gave nodes to such starts."""
    resizes: NotRequired[MetricFigures]
    """Changes of the size of a running job."""


FractionMetric = Literal["mean_slowdown", "mean_wait", "mean_response"]
"""A metric of `FractionGains`."""


class FractionGains(TypedDict):
    """The changes under one policy by fraction of malleable jobs."""

    log: str
    """The log."""
    policy: str
    """The policy."""
    finding: str
    """The smallest fraction with a clear gain and the largest gain, as a sentence."""
    mean_slowdown: list[FractionPoint]
    """Changes of the mean slowdown, by ascending fraction."""
    mean_wait: list[FractionPoint]
    """Changes of the mean wait, by ascending fraction."""
    mean_response: list[FractionPoint]
    """Changes of the mean response, by ascending fraction."""


Metric = Literal[
    "mean_wait",
    "mean_response",
    "mean_slowdown",
    "mean_bounded_slowdown",
    "makespan",
    "utilisation",
    "energy",
    "malleable_starts",
    "mates",
    "resizes",
]
"""A key of `SweepRow`."""


class SweepFigures(TypedDict):
    """Results of a sweep."""

    baseline: str
    """The policy that the others are compared with."""
    table: list[SweepRow]
    """Results by log and policy."""
    fractions: list[FractionGains]
    """Gains by fraction of malleable jobs, if the sweep has several fractions."""


class SweepDocument(SweepFigures):
    """``apples simulate --grid FILE --json`` prints this document."""

    schema: Literal["apples.sweep/2"]
    cells: int
    """Simulations of the sweep."""
    resumed: int
    """Simulations with results of an earlier command."""


class PolicyComparison(SimulationFigures):
    """The results of one policy and their changes against the baseline."""

    policy: str
    """The policy."""
    changes: dict[str, JudgedChange]
    """Changes against the baseline, by metric; empty for the baseline."""


class TimePart(TypedDict):
    """One of ten equal parts of the simulated time."""

    until: float
    """End of the part, in seconds since the first submission."""
    utilisation: float
    """Mean utilisation, 0 to 1."""
    waiting: float
    """Mean number of waiting jobs."""
    malleable_starts: int
    """Jobs started inside the nodes of other jobs."""


class TimeParts(TypedDict):
    """The machine over time under one policy."""

    policy: str
    """The policy."""
    parts: list[TimePart]
    """Ten equal parts of the simulated time."""


class JobChange(TypedDict):
    """The bounded slowdown of one job under two policies."""

    job: int
    """Number of the job."""
    before: float
    """Bounded slowdown under the baseline."""
    after: float
    """Bounded slowdown under the policy."""


class SizeChange(TypedDict):
    """The bounded slowdown of the jobs of one size under two policies."""

    nodes: str
    """Range of nodes."""
    jobs: int
    """Jobs that completed under both policies."""
    before: float
    """Mean bounded slowdown under the baseline."""
    after: float
    """Mean bounded slowdown under the policy."""
    worst: JobChange
    """The job with the largest relative loss."""
    best: JobChange
    """The job with the largest relative gain."""


class HeatMap(TypedDict):
    """Means of the baseline over means of the policy, by size and run time; above 1 the policy is better."""

    of: str
    """Metric: `slowdown`, `run time` or `wait`."""
    columns: list[str]
    """Ranges of nodes."""
    rows: list[str]
    """Ranges of run times."""
    ratio: list[list[float | None]]
    """Ratio of each row and column; null: no job."""
    counts: list[list[int]]
    """Jobs of each row and column."""


class JobStory(TypedDict):
    """The steps of one job under both policies."""

    summary: str
    """The job and its change, as a sentence."""
    under: dict[str, list[str]]
    """Submission, start, resizes and end of the job, by policy."""


class PolicyDetails(TypedDict):
    """Gains and losses under one policy against the baseline."""

    policy: str
    """The policy."""
    sizes: list[SizeChange]
    """Changes by size of job."""
    heat_maps: list[HeatMap]
    """Ratios by size and run time."""
    single_jobs: list[JobStory]
    """Of each size the jobs with the largest loss and the largest gain."""


class RejectionInfo(TypedDict):
    """Jobs that a policy rejects for one reason."""

    policy: str
    """The policy."""
    reason: str
    """The reason, with `N` for each number."""
    jobs: int
    """Rejected jobs."""


class ReportFigures(TypedDict, total=False):
    """Results on a page: a sweep has the first three keys, a comparison of policies all but `table`."""

    baseline: str
    """The policy that the others are compared with."""
    table: list[SweepRow]
    """Results by log and policy."""
    fractions: list[FractionGains]
    """Gains by fraction of malleable jobs, if several were simulated."""
    log: str
    """Name of the log."""
    jobs: int
    """Jobs simulated."""
    processors: int
    """Processors of the machine."""
    explained: bool | None
    """Whether the model explains the waits of the log; null: not known."""
    withheld: bool
    """Whether the page gives no verdict, because the waits of a site are not explained or not known."""
    headline: str
    """First line of the page."""
    findings: list[str]
    """Sentences of the page."""
    policies: list[PolicyComparison]
    """Results by policy, the baseline first."""
    over_time: list[TimeParts]
    """The machine over time, by policy."""
    against: list[PolicyDetails]
    """Gains and losses of each policy but the baseline."""
    refused: list[RejectionInfo]
    """Rejected jobs by policy and reason."""


class SimulationReport(ReportFigures):
    """``apples report`` of a log or of the results of a sweep prints this document."""

    schema: Literal["apples.report/1"]
    page: str
    """The written file."""
    bytes: int
    """Size of the file."""
    runs: NotRequired[int]
    """Simulations on the page."""
    pictures: NotRequired[list[str]]
    """Files of `--pictures`."""


class LogDocument(TypedDict):
    """``apples simulate --fetch NAME --json`` prints this document."""

    schema: Literal["apples.log/1"]
    name: str
    """Name of the log in the archive."""
    path: str
    """The file."""
    sha256: str
    """SHA-256 of the file."""
    checked: bool
    """Whether the file was compared with a known SHA-256."""


class ConvertedDocument(TypedDict):
    """``apples workloads convert LOG FILE --json`` prints this document."""

    schema: Literal["apples.converted/1"]
    path: str
    """The file that was written."""
    records: int
    """Jobs in it."""
    damaged: int
    """Rows of the log that were left out."""
    notes: list[str]
    """Other remarks on the conversion."""


class KnownLogInfo(TypedDict):
    """A log of the archive."""

    name: str
    """Name of the log in the archive."""
    processors: int
    """Processors of its machine."""


class LogsDocument(TypedDict):
    """``apples simulate --list-logs --json`` prints this document."""

    schema: Literal["apples.logs/1"]
    logs: list[KnownLogInfo]
    """Logs that `apples simulate --fetch` can fetch."""
