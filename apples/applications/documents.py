"""The JSON documents that commands print, as types: what ``apples schema NAME`` prints is made from these.

A document may have keys that stand here with `NotRequired`, and later versions may add others under the same
number. `docs/reference/json.md` says what each key means; tests hold that page and what commands really
print against this file.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

import nws

Rows = list[int]
Hosts = list[str]
Interval = list[float]
"""Low and high."""
Seconds = float
Figures = list[float]
Phases = dict[str, Seconds]

# ---------------------------------------------------------------- plans


class _Application(TypedDict):
    name: str
    version: str
    parameters: dict[str, Any]
    rows: int
    columns: int
    iterations: int


class _Objective(TypedDict):
    measure: str
    better: Literal["lower", "higher"]
    value: float


_Coverage = TypedDict(
    "_Coverage",
    {
        "class": Literal["alone", "site", "sites"],
        "level": float,
        "runs": int,
        "needed": int,
        "inside": int,
        "of": int,
    },
)


class _Rectangle(TypedDict):
    first_row: int
    rows: int
    first_column: int
    columns: int


class _Strip(TypedDict):
    host: str
    site: str
    rows: int
    rectangle: NotRequired[_Rectangle]
    threads: NotRequired[int]
    implementation: str | None
    compute_seconds: Seconds
    communicate_seconds: Seconds
    seconds: Seconds
    cpu: float
    cpu_error: float | None
    cpu_method: str
    cpu_samples: int
    memory: float
    free_memory: float | None


class _Chosen(TypedDict):
    hosts: Hosts
    rows: Rows
    iteration_seconds: Seconds
    straggler_factor: NotRequired[float]
    execution_seconds: Seconds
    wait_seconds: Seconds
    start_seconds: Seconds
    turnaround_seconds: Seconds
    objective: _Objective
    interval: Interval
    iteration_interval: Interval
    coverage: _Coverage | None
    cost: float
    speedup: float | None
    planner: str
    strips: list[_Strip]


class _NextBest(TypedDict):
    hosts: Hosts
    iteration_seconds: Seconds
    ratio: float


class _LeftOut(TypedDict):
    host: str
    reason: str
    figures: Figures


class _Rejected(TypedDict):
    hosts: Hosts
    reason: str
    filter: str
    figures: Figures


class _Remembered(TypedDict):
    between: Hosts
    age_seconds: Seconds


class _Looked(TypedDict):
    hosts: int
    links: list[Hosts]
    remembered: list[_Remembered]
    left_out: list[Hosts]


class _Sky(TypedDict):
    kind: Literal["measured", "static"]
    time: float
    over: Seconds | None
    source: str
    looked: _Looked | None


class _Set(TypedDict):
    hosts: Hosts
    iteration_seconds: Seconds
    ratio: float
    turnaround_seconds: Seconds
    objective: float


class _Change(TypedDict):
    host: str
    quantity: Literal["cpu", "speed", "latency", "memory"]
    now: float
    error: float | None
    at: float
    answer: Hosts
    errors_away: float | None
    advice: str


class _RestingLink(TypedDict):
    between: Hosts
    latency: Seconds
    bandwidth: float
    method: str
    assumed: bool
    seconds: Seconds
    measured_runs: int


class _Correction(TypedDict):
    kind: str
    of: list[str]
    factor: float | None
    seconds: Seconds | None
    applied: bool
    runs: int
    first: str
    last: str
    tested: int
    error_with: float
    error_without: float
    bound: float
    unused: NotRequired[str | None]


class _RestsOn(TypedDict):
    links: list[_RestingLink]
    corrections: list[_Correction]
    drag: float
    company: dict[str, float]
    share_bias: dict[str, float]


class _EqualStrips(TypedDict):
    iteration_seconds: Seconds
    ratio: float


class _Arrangement(TypedDict):
    source: str
    ranks: int
    bytes_times_distance: float | None
    bytes_times_distance_before: float | None


class _Partitions(TypedDict):
    decomposition: str
    partitions: int
    ranks: int
    computing: float


class _SpeedSource(TypedDict):
    source: Literal["measured", "host list", "template", "assumed"]
    points: float | None
    factor: float


class _Binding(TypedDict):
    host: str
    what: Literal["memory", "allocation", "hosts", "sites", "distance", "deadline", "cost"]
    limit: float
    needed: float
    reason: str


class PlanDocument(TypedDict):
    """``apples plan --json``; ``chosen`` is null where there is no plan."""

    schema: Literal["apples.plan/1"]
    blueprint: str
    application: _Application
    chosen: _Chosen | None
    speeds: NotRequired[dict[str, _SpeedSource]]
    next_best: _NextBest | None
    hosts: int
    considered: int
    feasible: int
    left_out: list[_LeftOut]
    binding: list[_Binding]
    rejected: list[_Rejected]
    rejected_total: int
    assumed: list[str]
    weather: _Sky
    risk: float
    coverage: float | None
    arrangement: NotRequired[_Arrangement]
    partitions: NotRequired[_Partitions]
    remedy: NotRequired[str]
    sets: NotRequired[list[_Set]]
    changes: NotRequired[list[_Change]]
    changes_within: NotRequired[float]
    changes_asked: NotRequired[int]
    changes_possible: NotRequired[int]
    equal_strips: NotRequired[_EqualStrips | None]
    rests_on: NotRequired[_RestsOn]


# ---------------------------------------------------------------- runs


class _HostTimes(TypedDict):
    host: str
    rows: NotRequired[int]
    rectangle: NotRequired[_Rectangle]
    compute_seconds: NotRequired[Seconds]
    communicate_seconds: NotRequired[Seconds]
    wait_seconds: NotRequired[Seconds | None]
    processor_seconds: NotRequired[Seconds | None]
    cpu_got: NotRequired[float | None]
    off: NotRequired[float | None]
    predicted_compute_per_iteration: NotRequired[Seconds]
    compute_per_iteration: NotRequired[Seconds]
    predicted_communicate_per_iteration: NotRequired[Seconds]
    communicate_per_iteration: NotRequired[Seconds]
    wait_per_iteration: NotRequired[Seconds | None]
    other_per_iteration: NotRequired[Seconds]


class _Border(TypedDict):
    hosts: Hosts
    bytes: float
    seconds: Seconds
    latency_seconds: Seconds | None
    predicted_seconds: Seconds | None


class _Redistribution(TypedDict):
    iteration: int
    moved: bool
    explanation: str
    breach: str
    hosts: Hosts
    rows: Rows
    iteration_seconds: Seconds
    predicted_seconds: Seconds
    remaining: int
    error: float
    gain_seconds: Seconds
    cost_seconds: Seconds
    payback_seconds: Seconds | None
    resize_seconds: Seconds | None
    probed: dict[str, float]


class _CountedRank(TypedDict):
    host: str
    world: int
    rank: int


class _Messages(TypedDict):
    source: Literal["declared", "arrays", "counted"]
    hosts: Hosts
    bytes: list[list[int]]
    messages: list[list[int]]
    missed: int
    ranks: list[_CountedRank] | None
    rank_bytes: list[list[int]] | None
    rank_messages: list[list[int]] | None


class _SlowHost(TypedDict):
    host: str
    since_iteration: int
    until_iteration: int | None
    factor: float
    cause: Literal["other load", "quota", "paging", "link", "own work", "stalls", "unknown"]
    iteration_cost_seconds: Seconds
    costs_seconds: Seconds


class _Execution(TypedDict):
    iterations: int
    predicted_seconds: Seconds | None
    measured_seconds: Seconds
    iteration_seconds: Seconds
    startup_seconds: Seconds
    hosts: list[_HostTimes]
    interval: NotRequired[Interval]
    predicted_iteration_seconds: NotRequired[Seconds]
    off: NotRequired[float]
    inside: NotRequired[bool | None]
    coverage: NotRequired[_Coverage | None]
    residual: NotRequired[float | None]
    files: NotRequired[list[str]]
    borders: NotRequired[list[_Border]]
    queue_seconds: NotRequired[Seconds | None]
    moved: NotRequired[bool]
    messages: NotRequired[_Messages | None]
    redistributions: NotRequired[list[_Redistribution]]
    slow_hosts: NotRequired[list[_SlowHost]]


class _DifferingRow(TypedDict):
    row: int
    host: str
    rank: int


class _Compared(TypedDict):
    ranks: int
    reference_ranks: int
    partition_tested: bool


class _Verification(TypedDict):
    asked: Literal["auto", "full", "sample", "none"]
    how: Literal["full", "sample", "none"]
    iterations: int
    predicted_seconds: Seconds | None
    seconds: Seconds | None
    reason: str
    sampled_on: str | None
    compared: NotRequired[_Compared | None]
    differs_at: _DifferingRow | None


class _Promise(TypedDict):
    iteration_seconds: Seconds
    interval: Interval


class _TimelineMove(TypedDict):
    iteration: int | None
    seconds: Seconds | None
    phases: Phases | None
    gain_seconds: NotRequired[Seconds | None]
    cost_seconds: NotRequired[Seconds | None]
    reason: NotRequired[str]
    at: NotRequired[Seconds]
    hosts_before: NotRequired[Hosts]
    rows_before: NotRequired[Rows]
    hosts: NotRequired[Hosts]
    rows: NotRequired[Rows]
    iteration_before: NotRequired[Seconds | None]
    iteration_after: NotRequired[Seconds | None]
    came_seconds: NotRequired[Seconds | None]


_Spent = list[list[float] | None]
"""By host the shares of its time in each of `kinds`."""
_TimelineEpoch = TypedDict(
    "_TimelineEpoch",
    {
        "from": Seconds,
        "to": Seconds,
        "hosts": Hosts,
        "rows": Rows,
        "iteration_seconds": Seconds | None,
        "promised": _Promise | None,
        "spent": _Spent,
        "move": _TimelineMove | None,
    },
)
_TimelineSlice = TypedDict(
    "_TimelineSlice",
    {
        "from": Seconds,
        "to": Seconds,
        "iteration_seconds": Seconds | None,
        "hosts": Hosts,
        "rows": Rows,
        "spent": _Spent,
    },
)


class _Timeline(TypedDict):
    seconds: Seconds
    iterations: int
    hosts: Hosts
    kinds: list[Literal["compute", "halo", "halo and wait", "wait", "other"]]
    stayed: int
    epochs: list[_TimelineEpoch]
    moves: list[_TimelineMove]
    slices: list[_TimelineSlice]


class _Machine(TypedDict):
    system: str
    processor: str
    cpus: int
    memory: int


class _MadeBy(TypedDict):
    command: str
    time: str
    versions: dict[str, str]
    machine: _Machine


class _LaunchCommand(TypedDict):
    argv: list[str]
    environment: dict[str, str]
    files: dict[str, str]


class RunDocument(TypedDict):
    """``apples run --json``, ``apples wait --json``; ``execution`` is null where nothing ran."""

    schema: Literal["apples.run/1"]
    plan: PlanDocument | None
    execution: _Execution | None
    verified: bool | None
    verification: NotRequired[_Verification]
    result_sha256: str | None
    record: NotRequired[str | None]
    timeline: NotRequired[_Timeline | None]
    phases: NotRequired[Phases]
    seconds: NotRequired[Seconds]
    made_by: NotRequired[_MadeBy]
    program: NotRequired[list[str]]
    rejection: NotRequired[str]
    command: NotRequired[_LaunchCommand]


class _MiddleRun(TypedDict):
    iteration_seconds: Seconds
    predicted_iteration_seconds: Seconds
    off: float


class _Method(TypedDict):
    method: str
    title: str
    runs: int
    rejection: NotRequired[str]
    hosts: NotRequired[Hosts]
    rows: NotRequired[Rows]
    iteration_seconds: NotRequired[Seconds]
    least: NotRequired[Seconds]
    largest: NotRequired[Seconds]
    predicted_iteration_seconds: NotRequired[Seconds]
    middle: NotRequired[_MiddleRun]
    median_error: NotRequired[float]
    inside: NotRequired[int]
    with_interval: NotRequired[int]


class _Ratio(TypedDict):
    median: float
    interval: Interval | None
    repetitions: int
    verdict: str


class DemoDocument(TypedDict):
    """``apples demo --json``."""

    schema: Literal["apples.demo/1"]
    made_by: _MadeBy
    runs: list[RunDocument]
    executed: int
    methods: list[_Method]
    median_prediction_error: float | None
    ratio_to_blocked: _Ratio | None
    inside: int
    with_interval: NotRequired[int]
    level: float
    verified: bool | None
    record: NotRequired[str | None]


# ---------------------------------------------------------------- jobs


class _LastResize(TypedDict):
    epoch: int
    seconds: Seconds
    phases: Phases


class _LastChange(TypedDict):
    answer: str
    epoch: int
    reason: str
    iteration: int | None


class _ChangeEstimate(TypedDict):
    bytes: float
    rate: float | None
    seconds: Seconds | None
    standstill_seconds: Seconds | None
    limit_seconds: Seconds
    rows: dict[str, int]


class JobDocument(TypedDict):
    """``apples jobs JOB --json``, and what the verbs on jobs print."""

    schema: Literal["apples.job/1"]
    id: str
    state: Literal["starting", "running", "finished", "failed", "cancelled"]
    hosts: Hosts
    rows: Rows
    epoch: int
    iteration: int
    last_resize: _LastResize | None
    name: str
    iterations: int | None
    reason: str
    exit_code: int | None
    redistributions: list[_Redistribution] | None
    last_change: _LastChange | None
    attempt: int
    slow_hosts: list[_SlowHost]
    change: NotRequired[_ChangeEstimate | None]


class _RecordedRun(TypedDict):
    id: str
    kind: Literal["run", "job", "demo", "parameter-sweep", "master-worker", "pipeline"]
    application: str
    blueprint: str | None
    state: Literal["starting", "running", "finished", "failed", "cancelled"]
    reason: str
    started: float | None
    ended: float | None
    hosts: Hosts
    rows: Rows
    predicted_seconds: Seconds | None
    measured_seconds: Seconds | None
    iteration: int | None
    iterations: int | None
    verified: bool | None


class RunsDocument(TypedDict):
    """``apples runs --json``."""

    schema: Literal["apples.runs/1"]
    runs: list[_RecordedRun]
    pruned: NotRequired[list[str]]
    freed_bytes: NotRequired[int]


class _ComparedFigure(TypedDict):
    value: Seconds | None
    range: Interval | None
    stretches: int
    ratio: float | None
    clear: bool | None


class _ComparedFigures(TypedDict):
    figure: Literal["predicted", "measured", "compute", "communicate"]
    runs: list[_ComparedFigure]


class _ComparedHost(TypedDict):
    host: str
    rows: list[int | None]
    reasons: list[str]


class CompareDocument(TypedDict):
    """``apples compare RUN RUN .. --json``; ``same`` and ``differ`` also have the application's parameters."""

    schema: Literal["apples.compare/1"]
    runs: list[_RecordedRun]
    same: dict[str, Any]
    differ: dict[str, list[Any]]
    figures: list[_ComparedFigures]
    hosts: list[_ComparedHost]


class _ComparedPlan(TypedDict):
    name: str
    blueprint: str
    weather: Literal["measured", "static"]
    weather_source: str
    weather_time: float | None
    hosts: Hosts | None
    iteration_seconds: Seconds | None
    ratio: float | None
    iteration_interval: Interval | None
    execution_seconds: Seconds | None
    measured_iteration_seconds: Seconds | None
    refusal: str


class ComparePlansDocument(TypedDict):
    """``apples compare PLAN PLAN .. --json``; ``same`` and ``differ`` also have the application's parameters."""

    schema: Literal["apples.compare-plans/1"]
    plans: list[_ComparedPlan]
    same: dict[str, Any]
    differ: dict[str, list[Any]]
    hosts: list[_ComparedHost]


class SubmittedDocument(TypedDict):
    """``apples submit --json``."""

    schema: Literal["apples.submitted/1"]
    job: str
    position: int
    start: Interval | None
    reason: str


class _Scheduled(TypedDict):
    job: str
    state: Literal[
        "held", "queued", "placing", "starting", "running", "resizing", "unsettled", "ending",
        "finished", "failed", "cancelled", "lost",
    ]  # fmt: skip
    name: str
    user: str
    kind: Literal["rigid", "moldable", "malleable", "evolving"]
    hosts: Hosts
    after: list[str]
    minimum: int
    maximum: int
    submitted: float
    started: float | None
    ended: float | None
    start: Interval | None
    requested: float
    estimated_by: Literal["user", "model", "nobody"]
    mean_hosts: float | None
    iteration: int | None
    iterations: int | None
    expected_end: float | None
    asks: list[int] | None
    resizes: int
    attempt: int
    record: str
    reason: str
    exit_code: int | None


class ScheduledDocument(_Scheduled):
    """``apples cancel NAME.N --json``: one job of a scheduler."""

    schema: Literal["apples.scheduled/1"]


class _ScheduledHost(TypedDict):
    host: str
    state: Literal[
        "free", "reserved", "held", "leaving", "draining", "drained", "quarantined", "lost"
    ]
    job: str | None
    reason: str


class _Alarm(TypedDict):
    time: float
    text: str


class QueueDocument(TypedDict):
    """``apples queue --json``, and what ``drain`` and ``resume`` print."""

    schema: Literal["apples.queue/1"]
    name: str
    policy: str
    time: float
    trouble: str
    alarms: list[_Alarm]
    hosts: list[_ScheduledHost]
    jobs: list[_Scheduled]


class _MonitoredJob(TypedDict):
    job: str
    wanted: float
    processes: int
    cpu_seconds: float
    memory: int


class _MonitoredRank(TypedDict):
    job: str
    rank: int
    processes: int
    cpu_seconds: float
    memory: int


class _MonitoredHost(TypedDict):
    host: str
    time: float
    cpus: int
    wanted: float
    others: float
    available: dict[str, float]
    capacity: float
    load: float
    jobs: list[_MonitoredJob]
    ranks: list[_MonitoredRank]


class _MonitorProblem(TypedDict):
    machine: str
    text: str


class MonitorDocument(TypedDict):
    """``apples monitor --json``."""

    schema: Literal["apples.monitor/1"]
    time: float
    window: int
    every: float
    hosts: list[_MonitoredHost]
    problems: list[_MonitorProblem]


class _Holding(TypedDict):
    job: str
    hosts: Hosts
    end: Interval | None


class _StartingChanges(TypedDict):
    hosts: NotRequired[int]
    seconds: NotRequired[float]
    priority: NotRequired[float]


class WaitingDocument(TypedDict):
    """``apples why JOB --json``."""

    schema: Literal["apples.waiting/1"]
    time: float
    job: str
    state: str
    reason: str
    placed: str
    placed_by: str
    position: int | None
    requested: float
    estimated_by: Literal["user", "model", "nobody"]
    needs: int
    free: int
    before: list[str]
    holding: list[_Holding]
    blocking: list[str]
    start: Interval | None
    start_unknown: str
    changes: _StartingChanges


class _Future(TypedDict):
    policy: str
    hosts: int
    wait: Seconds
    response: Seconds
    over: Seconds
    starts: dict[str, Interval | None]


class WhatIfDocument(TypedDict):
    """``apples what-if --json``."""

    schema: Literal["apples.what-if/1"]
    name: str
    basis: Literal["history", "estimates"]
    draws: int
    now: _Future
    then: _Future


class HistoryDocument(TypedDict):
    """``apples history --json``."""

    schema: Literal["apples.history/1"]
    name: str
    hosts: int
    begin: float
    jobs: list[_Scheduled]


class JobsDocument(TypedDict):
    """``apples jobs --json``."""

    schema: Literal["apples.jobs/1"]
    jobs: list[JobDocument]


class JobLogDocument(TypedDict):
    """``apples logs JOB --json``."""

    schema: Literal["apples.joblog/1"]
    id: str
    lines: list[str]


class ErrorDocument(TypedDict):
    """The line that a command with ``--json`` prints on stderr if it fails."""

    schema: Literal["apples.error/1"]
    code: str
    exit_code: int
    message: str
    fields: dict[str, Any]


# ---------------------------------------------------------------- machines


class _Check(TypedDict):
    name: str
    detail: str
    status: NotRequired[str]
    cure: NotRequired[str]
    ok: NotRequired[bool | None]


class _HostChecks(TypedDict):
    host: str
    fit: bool
    checks: list[_Check]


class DoctorDocument(TypedDict):
    """``apples doctor --json``, with and without ``--hosts`` or ``--program``."""

    schema: Literal["apples.doctor/1"]
    checks: NotRequired[list[_Check]]
    hosts: NotRequired[list[_HostChecks]]
    here: NotRequired[Hosts]


class _Speed(TypedDict):
    rows: list[float]
    seconds_per_point: list[float]
    error: float | None
    columns: float | None
    memory: float | None
    points: float


class CalibrationDocument(TypedDict):
    """``apples calibrate --json``: speeds by host and implementation."""

    schema: Literal["apples.calibration/1"]
    application: str
    version: str
    hosts: dict[str, dict[str, _Speed]]


class _LearnedApplication(TypedDict):
    application: str
    version: str
    folder: str
    speeds: dict[str, dict[str, _Speed]]
    corrections: list[_Correction]
    runs: int
    coverage: float | None


class LearnedDocument(TypedDict):
    """``apples learned --json``: measured speeds and corrections by application."""

    schema: Literal["apples.learned/1"]
    applications: list[_LearnedApplication]


class ForgottenDocument(TypedDict):
    """``apples forget --json``: a line for each application that changed."""

    schema: Literal["apples.forgotten/1"]
    removed: list[str]


class HostsDocument(TypedDict):
    """``apples hosts import --json``: entries of a host list."""

    schema: Literal["apples.hosts/1"]
    host: list[dict[str, Any]]


class _LabMachine(TypedDict):
    name: str
    address: str
    site: str
    cpu: float | None
    cpus: list[int]
    memory: float | None
    pid: int
    up: bool


class LabStatusDocument(TypedDict):
    """``apples lab up | hosts | exec | shape | down --json``; each has its own keys."""

    schema: Literal["apples.lab/1"]
    name: NotRequired[str]
    hosts: NotRequired[str]
    ssh_config: NotRequired[str | None]
    interface: NotRequired[str]
    address: NotRequired[str]
    machines: NotRequired[list[_LabMachine]]
    host: NotRequired[str]
    exit_code: NotRequired[int]
    stdout: NotRequired[str]
    stderr: NotRequired[str]
    site: NotRequired[str]
    bandwidth: NotRequired[float]
    down: NotRequired[list[str]]


class _Node(TypedDict):
    node: int
    cpus: list[int]
    memory: float | None
    kind: str


class _Matrix(TypedDict):
    nodes: list[int]
    values: list[list[float]]


class _Device(TypedDict):
    name: str
    kind: Literal["gpu", "nic"]
    cpus: list[int]
    memory: int | None
    model: str


class TopologyDocument(TypedDict):
    """``apples topology show --json``."""

    schema: Literal["apples.topology/1"]
    pus: int
    cores: int
    packages: int
    numa_nodes: int
    latencies: list[float]
    cpus: list[int]
    disallowed: list[int]
    offline: list[int]
    nodes: list[_Node]
    devices: list[_Device]
    matrix: _Matrix


class _Bindings(TypedDict):
    taskset: str
    hwloc_bind: str
    srun: str
    omp_places: str
    gomp_cpu_affinity: str


class _RankOrder(TypedDict):
    cpus: list[list[int]]
    byte_hops: float
    byte_hops_in_order: float


class FitDocument(TypedDict):
    """``apples topology fit --json``."""

    schema: Literal["apples.fit/1"]
    cpus: list[int]
    radius: float
    centre: int
    total: float
    memory: list[int]
    devices: list[str]
    bindings: _Bindings
    ranks: _RankOrder | None


class _BrokerAnswer(TypedDict):
    host: str
    verdict: Literal["yes", "not now", "never"]
    reason: str
    found: Any
    needed: Any
    key: str | None
    radius: float | None


class WhyDocument(TypedDict):
    """``apples topology why --json``."""

    schema: Literal["apples.why/1"]
    hosts: list[_BrokerAnswer]
    ranking: Hosts


class _Fence(TypedDict):
    fence: str
    holds: bool
    guarantee: str | None
    why_not: str | None


class FencesDocument(TypedDict):
    """``apples topologyd --probe --json``."""

    schema: Literal["apples.fences/1"]
    fences: list[_Fence]


class _CpuAllocation(TypedDict):
    job: str
    number: int
    principal: str
    state: str
    cpus: str
    owns: str
    mems: str
    pen: str
    guarantee: str | None


class TopologydDocument(TypedDict):
    """``apples topologyd --status --json``; sets of CPUs as kernel lists (``0-3,8``)."""

    schema: Literal["apples.topologyd/1"]
    fence: str
    universe: str
    sharing_factor: float
    free: str
    epoch: int
    version: int
    foreign: dict[str, str]
    quarantined: dict[str, str]
    problems: list[str]
    jobs: list[_CpuAllocation]


# ---------------------------------------------------------------- simulations


class _Outcomes(TypedDict):
    wait: dict[str, float]
    response: dict[str, float]
    slowdown: dict[str, float]
    bounded_slowdown: dict[str, float]


class _Reservation(TypedDict):
    name: str
    begin: float
    end: float
    nodes: int
    began_with: int


class _PolicyFailure(TypedDict):
    kind: str
    passes: int
    time: float
    where: str
    reason: str


class _Held(TypedDict):
    job: int
    reason: str


class _Figures(TypedDict):
    jobs: int
    completed: int
    mean_wait: Seconds
    mean_response: Seconds
    mean_slowdown: float
    mean_bounded_slowdown: float
    percentiles: _Outcomes
    makespan: Seconds
    utilisation: float
    energy: float | None
    malleable_starts: int
    mates: int
    resizes: int
    restarts: int
    killed: int
    work_lost: float
    work_saved: float
    rejected: int
    reservations: list[_Reservation]
    refused_starts: int
    held: int
    first_held: _Held | None
    failed_passes: int
    policy_failures: list[_PolicyFailure]
    put_aside: float | None


class _Partition(TypedDict):
    nodes: int
    cores: int
    memory: float | None
    gpus: int | None
    speed: float
    jobs: int
    completed: int
    rejected: int
    mean_wait: Seconds | None
    mean_response: Seconds | None
    mean_slowdown: float | None
    mean_bounded_slowdown: float | None
    utilisation: float


class _Log(TypedDict):
    name: str
    sha256: str | None


class SimulationDocument(_Figures):
    """``apples simulate --json``."""

    schema: Literal["apples.simulation/1"]
    log: _Log
    records: int
    dropped: dict[str, int]
    reordered: int
    requests_raised: int
    notes: list[str]
    policy: str
    malleable: float | None
    by_partition: dict[str, _Partition]
    rejections: dict[str, int]
    engine: str
    simulation_seconds: Seconds
    read_seconds: Seconds


class _WaitGroup(TypedDict):
    name: str
    jobs: int
    logged_wait: Seconds
    simulated_wait: Seconds


class _Worst(TypedDict):
    breakdown: str
    factor: float


class _WaitFit(TypedDict):
    logged_wait: Seconds
    simulated_wait: Seconds
    worst: _Worst
    by_day: NotRequired[list[_WaitGroup]]
    by_size: NotRequired[list[_WaitGroup]]
    by_partition: NotRequired[list[_WaitGroup]]


class _Halves(TypedDict):
    first_half: _WaitFit
    second_half: _WaitFit


class ExplainedWaitsDocument(TypedDict):
    """``apples simulate LOG --calibrate --json``."""

    schema: Literal["apples.explained_waits/1"]
    log: str
    verdict: str
    explained: bool
    policy: str
    factor: float
    jobs: int
    unknown: int
    not_tried: list[str]
    failed_passes: int
    policies: dict[str, _Halves]


class _MetricChange(TypedDict):
    change: float | None
    change_interval: Interval | None
    over: str | None
    count: int
    mean: NotRequired[float]
    half: NotRequired[float | None]
    verdict: NotRequired[str]
    malleable: NotRequired[float]


class _SweepRow(TypedDict):
    log: str
    policy: str
    runs: int
    failed_passes: int
    mean_wait: NotRequired[_MetricChange]
    mean_response: NotRequired[_MetricChange]
    mean_slowdown: NotRequired[_MetricChange]
    mean_bounded_slowdown: NotRequired[_MetricChange]
    utilisation: NotRequired[_MetricChange]
    makespan: NotRequired[_MetricChange]
    energy: NotRequired[_MetricChange]
    malleable_starts: NotRequired[_MetricChange]
    mates: NotRequired[_MetricChange]
    resizes: NotRequired[_MetricChange]


class _Fraction(TypedDict):
    log: str
    policy: str
    finding: str
    mean_slowdown: list[_MetricChange]
    mean_wait: list[_MetricChange]
    mean_response: list[_MetricChange]


class SweepDocument(TypedDict):
    """``apples sweep --json``."""

    schema: Literal["apples.sweep/2"]
    cells: int
    resumed: int
    baseline: str
    table: list[_SweepRow]
    fractions: list[_Fraction]


class _PlannedTask(TypedDict):
    task: str
    host: str
    start: float
    end: float


class _PlannedMove(TypedDict):
    file: str
    cache: str
    start: float
    end: float


class _FailedTask(TypedDict):
    task: str
    parameters: dict[str, int | float | str]
    reason: str


class _SweepExecution(TypedDict):
    measured_seconds: float
    done: int
    hosts: dict[str, int]
    failed: list[_FailedTask]
    plans: int
    replicas: int
    moved_files: int
    lost: dict[str, str]


class ParameterSweepDocument(TypedDict):
    """``apples parameter-sweep --json``."""

    schema: Literal["apples.parameter-sweep/1"]
    name: str
    tasks: int
    resumed: int
    heuristic: str | None
    predicted_seconds: float
    makespans: dict[str, float]
    assumed: list[str]
    planned: list[_PlannedTask]
    moves: list[_PlannedMove]
    execution: _SweepExecution | None
    results: str | None


class _TaskHost(TypedDict):
    host: str
    rows: int
    implementation: str


class _PipelineTask(TypedDict):
    task: str
    hosts: list[_TaskHost]


class _PipelineStage(TypedDict):
    stage: str
    seconds: float


class _OtherMode(TypedDict):
    mode: Literal["pipelined", "alternating"]
    unit: int
    predicted_seconds: float
    bottleneck: str


class _PipelineExecution(TypedDict):
    mode: Literal["pipelined", "alternating"]
    predicted_seconds: float
    measured_seconds: float
    verified: bool | None


class PipelineDocument(TypedDict):
    """``apples pipeline --json``."""

    schema: Literal["apples.pipeline/1"]
    name: str
    items: int
    mode: Literal["pipelined", "alternating"]
    unit: int
    predicted_seconds: float
    bottleneck: str
    tasks: list[_PipelineTask]
    stages: list[_PipelineStage]
    others: list[_OtherMode]
    unused: list[str]
    assumed: list[str]
    execution: _PipelineExecution | None


class _MasterChoice(TypedDict):
    host: str
    rate: float
    bound: Literal["workers", "links", "master"]
    workers: list[str]


class _FailedUnit(TypedDict):
    unit: int
    reason: str


class _MasterWorkerExecution(TypedDict):
    measured_seconds: float
    measured_rate: float
    service_seconds: float
    hosts: dict[str, int]
    joined: list[str]
    left: list[str]
    lost: dict[str, str]
    verified: int
    failed: list[_FailedUnit]
    result: Any


class MasterWorkerDocument(TypedDict):
    """``apples master-worker --json``."""

    schema: Literal["apples.master-worker/1"]
    name: str
    units: int
    master: str
    workers: dict[str, float]
    predicted_rate: float
    predicted_seconds: float
    bound: Literal["workers", "links", "master"]
    masters: list[_MasterChoice]
    assumed: list[str]
    execution: _MasterWorkerExecution | None


class _ComparedPolicy(_Figures):
    policy: str
    changes: dict[str, _MetricChange]


class _Part(TypedDict):
    until: float
    utilisation: float
    waiting: float
    malleable_starts: int


class _Parts(TypedDict):
    policy: str
    parts: list[_Part]


class _OneJob(TypedDict):
    job: int
    before: float
    after: float


class _Size(TypedDict):
    nodes: str
    jobs: int
    before: float
    after: float
    worst: _OneJob
    best: _OneJob


class _HeatMap(TypedDict):
    of: str
    columns: list[str]
    rows: list[str]
    ratio: list[list[float | None]]
    counts: list[list[int]]


class _Story(TypedDict):
    summary: str
    under: dict[str, list[str]]


class _Against(TypedDict):
    policy: str
    sizes: list[_Size]
    heat_maps: list[_HeatMap]
    single_jobs: list[_Story]


class _Refused(TypedDict):
    policy: str
    reason: str
    jobs: int


class ReportDocument(TypedDict):
    """``apples report --json``: of a run, of a log, or of the results of a sweep."""

    schema: Literal["apples.report/1"]
    page: str
    bytes: int
    record: NotRequired[str]
    timeline: NotRequired[_Timeline | None]
    runs: NotRequired[int]
    pictures: NotRequired[list[str]]
    baseline: NotRequired[str]
    fractions: NotRequired[list[_Fraction]]
    table: NotRequired[list[_SweepRow]]
    log: NotRequired[str]
    jobs: NotRequired[int]
    processors: NotRequired[int]
    explained: NotRequired[bool | None]
    withheld: NotRequired[bool]
    headline: NotRequired[str]
    findings: NotRequired[list[str]]
    policies: NotRequired[list[_ComparedPolicy]]
    over_time: NotRequired[list[_Parts]]
    against: NotRequired[list[_Against]]
    refused: NotRequired[list[_Refused]]


class LogDocument(TypedDict):
    """``apples workloads fetch --json``."""

    schema: Literal["apples.log/1"]
    name: str
    path: str
    sha256: str
    checked: bool


class _KnownLog(TypedDict):
    name: str
    processors: int


class LogsDocument(TypedDict):
    """``apples workloads list --json``."""

    schema: Literal["apples.logs/1"]
    logs: list[_KnownLog]


# ---------------------------------------------------------------- files


class _Problem(TypedDict):
    line: int | None
    field: str
    message: str
    suggestion: str | None


class _CheckedFile(TypedDict):
    file: str
    kind: str | None
    problems: list[_Problem]


class CheckDocument(TypedDict):
    """``hat check --json``, ``apples hosts check --json``."""

    schema: Literal["hat.check/1"]
    files: list[_CheckedFile]


class NewDocument(TypedDict):
    """``hat new --json``."""

    schema: Literal["hat.new/1"]
    files: list[str]


# ---------------------------------------------------------------- weather service


class ForecastDocument(TypedDict):
    """``nws forecast --json``."""

    schema: Literal["nws.forecast/1"]
    forecasts: list[nws.NetworkForecast]


class QueryDocument(nws.SeriesList):
    """``nws query --json``."""

    form: Annotated[Literal["nws.query/1"], Field(alias="schema")]


class ExtractDocument(nws.SeriesRange):
    """``nws extract --json``."""

    form: Annotated[Literal["nws.extract/1"], Field(alias="schema")]


class StatusDocument(nws.ServiceStatus):
    """``nws status --json``."""

    form: Annotated[Literal["nws.status/1"], Field(alias="schema")]
    registrations: list[nws.LeaseAnswer]


class _Latest(nws.NetworkForecast):
    latest: float


class TopDocument(TypedDict):
    """``nws top --json``."""

    schema: Literal["nws.top/1"]
    time: float
    total: int
    series: list[_Latest]


class ServiceCheckDocument(TypedDict):
    """``nws doctor --json``."""

    schema: Literal["nws.doctor/1"]
    checks: list[_Check]


class ImportDocument(TypedDict):
    """``nws import --json``."""

    schema: Literal["nws.import/1"]
    series: int
    stored: int
    duplicates: int
    refused_total: int
    reasons: list[str]
    left_out: int
    left_out_reasons: list[str]


class _Token(TypedDict):
    name: str
    scopes: list[str]
    expires: float | None
    revoked: bool


class TokensDocument(TypedDict):
    """``nws serve --tokens``."""

    schema: Literal["nws.token-list/1"]
    tokens: list[_Token]


class _Errors(TypedDict):
    mae: float | None
    rmse: float | None


class _Horizon(TypedDict):
    mae: float | None
    classic_one_step_mae: float | None
    coverage: float | None


class _Width(TypedDict):
    level: float
    coverage: float | None
    width_ratio: float | None


class _BacktestedSeries(_Errors):
    name: str
    n: int
    classic: _Errors
    last_value: _Errors
    interval: _Width
    horizons: dict[str, _Horizon]
    predictors: dict[str, _Errors]


class BacktestDocument(TypedDict):
    """``nws backtest --json``."""

    schema: Literal["nws.backtest/1"]
    series: list[_BacktestedSeries]


class _LikelyRange(TypedDict):
    lower: float
    upper: float
    level: float
    coverage: float | None


class _Forecast(TypedDict):
    value: float
    error: NotRequired[float | None]
    method: NotRequired[str]
    samples: NotRequired[int]
    time: NotRequired[float | None]
    rmse: NotRequired[float]
    horizon: NotRequired[int]
    over: NotRequired[Seconds]
    interval: NotRequired[_LikelyRange]


_Forecasts = dict[str, _Forecast]


class WeatherDocument(TypedDict):
    """``nws sense --json``, and what ``--weather FILE`` reads: forecasts by host, of links by ``host/peer``."""

    schema: Literal["nws.weather/1"]
    time: float
    cpu: NotRequired[_Forecasts]
    current_cpu: NotRequired[_Forecasts]
    competitors: NotRequired[_Forecasts]
    crowding: NotRequired[_Forecasts]
    spare_cpus: NotRequired[_Forecasts]
    cpu_quota: NotRequired[_Forecasts]
    quota_period: NotRequired[_Forecasts]
    free_memory: NotRequired[_Forecasts]
    latency: NotRequired[_Forecasts]
    bandwidth: NotRequired[_Forecasts]


DOCUMENTS: dict[str, Any] = {
    f"{program}.{name}": document
    for program, documents in {
        "apples": {
            "plan": PlanDocument,
            "run": RunDocument,
            "demo": DemoDocument,
            "job": JobDocument,
            "jobs": JobsDocument,
            "submitted": SubmittedDocument,
            "queue": QueueDocument,
            "scheduled": ScheduledDocument,
            "waiting": WaitingDocument,
            "what-if": WhatIfDocument,
            "history": HistoryDocument,
            "monitor": MonitorDocument,
            "joblog": JobLogDocument,
            "error": ErrorDocument,
            "runs": RunsDocument,
            "compare": CompareDocument,
            "compare-plans": ComparePlansDocument,
            "doctor": DoctorDocument,
            "calibration": CalibrationDocument,
            "learned": LearnedDocument,
            "forgotten": ForgottenDocument,
            "hosts": HostsDocument,
            "lab": LabStatusDocument,
            "topology": TopologyDocument,
            "fit": FitDocument,
            "why": WhyDocument,
            "fences": FencesDocument,
            "topologyd": TopologydDocument,
            "simulation": SimulationDocument,
            "explained_waits": ExplainedWaitsDocument,
            "sweep": SweepDocument,
            "parameter-sweep": ParameterSweepDocument,
            "pipeline": PipelineDocument,
            "master-worker": MasterWorkerDocument,
            "report": ReportDocument,
            "log": LogDocument,
            "logs": LogsDocument,
        },
        "hat": {
            "check": CheckDocument,
            "new": NewDocument,
        },
        "nws": {
            "forecast": ForecastDocument,
            "query": QueryDocument,
            "extract": ExtractDocument,
            "status": StatusDocument,
            "top": TopDocument,
            "doctor": ServiceCheckDocument,
            "import": ImportDocument,
            "token-list": TokensDocument,
            "backtest": BacktestDocument,
            "weather": WeatherDocument,
        },
    }.items()
    for name, document in documents.items()
}
"""By the name of the schema, without its number."""
