"""Types of the JSON documents of forecasts and loads."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from apples.launch.documents import CheckEntry


class MonitoredJob(TypedDict):
    """Use of a host's processors by one job."""

    job: str
    """Tag of the job's processes."""
    wanted: float
    """Mean number of runnable processes."""
    processes: int
    """Processes."""
    cpu_seconds: float
    """CPU seconds used."""
    memory: int
    """Bytes of memory used."""


class MonitoredRank(TypedDict):
    """Use of a host by one rank of a job."""

    job: str
    """Tag of the job's processes."""
    rank: int
    """Number of the rank."""
    processes: int
    """Processes."""
    cpu_seconds: float
    """CPU seconds used."""
    memory: int
    """Bytes of memory used."""


class MonitoredHost(TypedDict):
    """Load of a host."""

    host: str
    """Name of the host."""
    time: float
    """Time by the host's clock."""
    cpus: int
    """Processors."""
    wanted: float
    """Mean number of runnable processes."""
    others: float
    """Those that belong to no job."""
    available: dict[str, float]
    """Free share of `cpu`, `memory`, `swap`, `disk` and `network`, as far as measured. A `cpu` of 0.5 has
    one process on each processor."""
    capacity: float
    """Capacity C of the processors."""
    load: float
    """Load L = 1 - C of the processors."""
    jobs: list[MonitoredJob]
    """Use by job."""
    ranks: list[MonitoredRank]
    """Use by rank, if the launcher names the ranks."""


class MonitorProblem(TypedDict):
    """A machine without a measurement."""

    machine: str
    """The machine, or the address of the service."""
    text: str
    """The problem."""


class MonitorDocument(TypedDict):
    """``nws load --json`` prints this document."""

    schema: Literal["apples.monitor/1"]
    time: float
    """Time of the answer."""
    window: int
    """Most snapshots behind a mean."""
    every: float
    """Seconds between two snapshots."""
    hosts: list[MonitoredHost]
    """Load of each host."""
    problems: list[MonitorProblem]
    """Machines without a measurement."""


class ForecastInterval(TypedDict):
    """The interval of a forecast."""

    lower: float
    """Lower end."""
    upper: float
    """Upper end."""
    level: float
    """Share of values that it is to hold."""
    coverage: float | None
    """Share of past values inside it; null: not scored."""


class ForecastEntry(TypedDict):
    """A forecast. A file written by hand needs only the value."""

    value: float
    """The forecast."""
    error: NotRequired[float | None]
    """Mean absolute error so far; null: not scored."""
    method: NotRequired[str]
    """Forecaster."""
    samples: NotRequired[int]
    """Measurements behind the forecast."""
    time: NotRequired[float | None]
    """Time of the last measurement; null: none."""
    rmse: NotRequired[float]
    """Root mean squared error so far."""
    horizon: NotRequired[int]
    """Future samples in the forecast mean; absent: the next sample."""
    over: NotRequired[float]
    """The horizon in seconds."""
    interval: NotRequired[ForecastInterval]
    """Interval of the value."""


class WeatherDocument(TypedDict):
    """``nws sense --json`` prints this document, and ``--weather FILE`` reads it.

    A key is a host, or `host/peer` for a link.
    """

    schema: Literal["nws.weather/1"]
    time: float
    """Time of the forecasts."""
    cpu: NotRequired[dict[str, ForecastEntry]]
    """Share of one CPU that a new process gets, 0 to 1."""
    current_cpu: NotRequired[dict[str, ForecastEntry]]
    """Share of one CPU that a running process gets, 0 to 1."""
    competitors: NotRequired[dict[str, ForecastEntry]]
    """Runnable processes of other users, weighted by their effect on a process of ours."""
    crowding: NotRequired[dict[str, ForecastEntry]]
    """Growth of `competitors` with each further process of ours beyond the spare CPUs."""
    spare_cpus: NotRequired[dict[str, ForecastEntry]]
    """CPUs that processes of ours may use before `competitors` grows."""
    cpu_quota: NotRequired[dict[str, ForecastEntry]]
    """CPUs' worth of time that all processes of ours may use together."""
    quota_period: NotRequired[dict[str, ForecastEntry]]
    """Seconds between two renewals of the quota; 0: no quota."""
    free_memory: NotRequired[dict[str, ForecastEntry]]
    """Free memory, in bytes."""
    latency: NotRequired[dict[str, ForecastEntry]]
    """Latency one way, in seconds."""
    bandwidth: NotRequired[dict[str, ForecastEntry]]
    """Bandwidth, in bytes a second."""


class ServiceCheckDocument(TypedDict):
    """``nws doctor --json`` prints this document."""

    schema: Literal["nws.doctor/1"]
    checks: list[CheckEntry]
    """Checks of this machine, as in `apples.doctor/1`."""


class ImportDocument(TypedDict):
    """``nws import --json`` prints this document."""

    schema: Literal["nws.import/1"]
    series: int
    """Series in the file."""
    stored: int
    """Stored measurements."""
    duplicates: int
    """Measurements that the service had already."""
    refused_total: int
    """Rejected measurements."""
    reasons: list[str]
    """Reasons of rejections, at most five."""
    left_out: int
    """Lines, and values of lines, that are no measurements."""
    left_out_reasons: list[str]
    """Reasons of the first five, each with its line."""


class TokenEntry(TypedDict):
    """An access token."""

    name: str
    """Name of the token."""
    scopes: list[str]
    """Permitted actions."""
    expires: float | None
    """Time of expiry; null: never."""
    revoked: bool
    """Whether it is revoked."""


class TokensDocument(TypedDict):
    """``nws serve --list-tokens`` prints this document."""

    schema: Literal["nws.token-list/1"]
    tokens: list[TokenEntry]
    """The tokens."""


class ForecastErrors(TypedDict):
    """Errors of a forecaster, from sample 64 on."""

    mae: float | None
    """Mean absolute error; null: too few samples."""
    rmse: float | None
    """Root mean squared error; null: too few samples."""


class HorizonErrors(TypedDict):
    """Errors of forecasts of a mean over several samples."""

    mae: float | None
    """Mean absolute error; null: too few samples."""
    classic_one_step_mae: float | None
    """Mean absolute error of the classic profile's one-step forecast; null: too few samples."""
    coverage: float | None
    """Share of means inside their interval; null: too few samples."""


class IntervalScore(TypedDict):
    """Intervals of one-step forecasts."""

    level: float
    """Share of values that the interval is to hold."""
    coverage: float | None
    """Share of values inside their interval; null: too few samples."""
    width_ratio: float | None
    """Width over the width of the classic profile's normal interval; null: too few samples."""


class BacktestedSeries(ForecastErrors):
    """Errors of the forecasts of one series."""

    name: str
    """Name of the series."""
    n: int
    """Samples."""
    classic: ForecastErrors
    """Errors of the profile `classic`."""
    last_value: ForecastErrors
    """Errors of the last value as the forecast."""
    interval: IntervalScore
    """Intervals of one-step forecasts."""
    horizons: dict[str, HorizonErrors]
    """Errors by horizon in samples."""
    predictors: dict[str, ForecastErrors]
    """Errors by predictor."""


class BacktestDocument(TypedDict):
    """``nws backtest --json`` prints this document."""

    schema: Literal["nws.backtest/1"]
    series: list[BacktestedSeries]
    """Errors of each series."""
    left_out: int
    """Rows of the file without a sample: missing values, repeated times, damaged rows."""
    left_out_reasons: list[str]
    """Line and reason of the first of these rows."""
    notes: list[str]
    """Other remarks, for example on ignored columns."""
