"""The messages of the service, strict: unknown fields, NaN and wrong types are refused."""

import ipaddress
from collections.abc import Collection
from dataclasses import asdict
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, field_validator, with_config
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from nws.forecaster import Criterion, LeagueTable
from nws.measurement import AMOUNTS, MAX_MEASUREMENTS, SCHEMA, SHARES

MAX_ASKED: Final = 2_000
MAX_RANGE: Final = 10_000
MAX_REASONS: Final = 100

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
SERIES: Final = rf"^{_PART}/{_PART}(/{_PART})?$"
NAME: Final = rf"^{_PART}$"

SeriesText = Annotated[str, Field(pattern=SERIES, max_length=400, examples=["availableCpu/ada"])]
Name = Annotated[str, Field(pattern=NAME, max_length=128)]
Finite = Annotated[float, Field(allow_inf_nan=False, ge=-1e300, le=1e300)]
Seconds = Annotated[float, Field(ge=0.001, le=1e9, allow_inf_nan=False)]
Level = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
State = Literal["current", "stale", "unknown"]
STRICT: Final = ConfigDict(extra="forbid", strict=True)


def _within(resources: Collection[str], **bounds: float) -> JsonDict:
    """Return the rule of a schema that values of these resources lie within bounds."""
    of_them: JsonDict = {"pattern": rf"^({'|'.join(sorted(resources))})/"}
    return {
        "if": {"properties": {"series": of_them}},
        "then": {"properties": {"value": {**bounds}}},
    }


KINDS: Final[JsonDict] = {
    "allOf": [_within(SHARES, minimum=0, maximum=1), _within(AMOUNTS, minimum=0)]
}
"""The bounds of `nws.measurement.checked_amount`, for the OpenAPI schema."""


@with_config(ConfigDict(**STRICT, json_schema_extra=KINDS))
class Sample(TypedDict):
    """One measurement: which series, when (seconds since the epoch), how much."""

    series: SeriesText
    time: Finite
    value: Finite


class Batch(BaseModel):
    """Measurements to store, as `nws.measurement` writes them. Sending one again changes nothing."""

    model_config = STRICT
    form: Annotated[Literal["nws.measurements/1"], Field(alias="schema")] = SCHEMA
    measurements: Annotated[list[Sample], Field(max_length=MAX_MEASUREMENTS)]


class RefusedSample(BaseModel):
    """A measurement that will never be stored as it is."""

    index: int
    reason: str
    code: str = ""


class Receipt(BaseModel):
    """The outcome of storing a batch: all but the refused samples are on the disk."""

    stored: int
    duplicates: int
    refused: list[RefusedSample]
    refused_total: int
    late: int = Field(0, description="Stored, but after a later one of their series.")
    ahead: int = Field(0, description="Stored, but stamped later than our clock.")


class ForecastRequest(BaseModel):
    """A request to forecast series, all at one instant.

    ``over``: forecast the mean of these next seconds; default: the next value. ``level``: of the interval.
    ``criterion``: the error that the forecast minimises.
    """

    model_config = STRICT
    series: Annotated[list[SeriesText], Field(max_length=MAX_ASKED)]
    over: Seconds | None = None
    level: Level | None = None
    criterion: Criterion | None = None


class NetworkForecast(BaseModel):
    """A forecast, the error of such forecasts, and the age of its last measurement.

    ``value`` is null without a forecast.
    """

    series: str = Field(description="Name of the series.")
    state: State = Field(
        description="Whether measurements are current; stale: none for three periods."
    )
    age: float | None = Field(description="Seconds since the last measurement.")
    period: float | None = Field(description="Usual seconds between two measurements.")
    value: float | None = Field(None, description="The forecast; null: no forecast yet.")
    error: float | None = Field(None, description="Mean absolute error of such forecasts so far.")
    method: str | None = Field(None, description="Forecaster of the value.")
    samples: int = Field(0, description="Measurements behind the forecast.")
    time: float | None = Field(
        None, description="Time of the last measurement, in seconds since the epoch."
    )
    rmse: float | None = Field(
        None, description="Root mean squared error of such forecasts so far."
    )
    lower: float | None = Field(None, description="Lower end of the interval.")
    upper: float | None = Field(None, description="Upper end of the interval.")
    level: float | None = Field(None, description="Share of values that the interval is to hold.")
    coverage: float | None = Field(None, description="Share of past values inside their interval.")
    horizon: int | None = Field(
        None, description="Future samples in the forecast mean; null: the next sample."
    )
    over: float | None = Field(None, description="The horizon in seconds.")
    held: int = Field(
        0, description="Measurements that wait for earlier measurements, in forecasts meanwhile."
    )
    late: int = Field(0, description="Measurements that arrived too late for the forecast.")
    ahead: int = Field(
        0, description="Measurements stamped later than measurements that arrived after them."
    )
    remarks: list[str] = Field(
        [], description="Measurements left out of this answer, with the reason."
    )


class Forecasts(BaseModel):
    """Forecasts of many series at one instant, in the order they were asked for."""

    asof: float
    forecasts: list[NetworkForecast]


class PredictorScore(BaseModel):
    """One predictor of a series: its mean absolute errors, null where they are not kept."""

    name: str
    error: float | None
    lately: float | None = Field(description="Error in which older errors count less.")


class CandidateScore(BaseModel):
    """A combination of the predictors: the predictor of lowest error, or a mixture."""

    name: str
    rmse: float | None
    taken: bool = Field(
        description="Whether this combination makes the forecast, or has the largest weight."
    )


class SeriesLeague(BaseModel):
    """How wrong each predictor of a series has been so far, the least wrong first."""

    series: str
    state: State
    age: float | None
    horizon: int | None = Field(
        None, description="Number of values in the forecast mean; null: the next value."
    )
    scored: int | None = Field(
        None, description="Number of forecasts whose value was measured afterwards."
    )
    method: str | None = Field(None, description="The predictor or the mixture that answers.")
    predictors: list[PredictorScore] = []
    candidates: list[CandidateScore] = []

    @classmethod
    def of(cls, series: str, state: str, age: float | None, table: LeagueTable | None) -> Self:
        """Return the answer of a league; without a league it has no predictors."""
        if table is None:
            return cls(series=series, state=state, age=age)
        predictors = [PredictorScore(**asdict(one)) for one in table.predictors]
        return cls(
            series=series,
            state=state,
            age=age,
            horizon=table.horizon,
            scored=table.scored,
            method=table.method,
            predictors=sorted(predictors, key=_wrongness),
            candidates=[CandidateScore(**asdict(one)) for one in table.candidates],
        )


def _wrongness(one: PredictorScore) -> float:
    """Return the sort key of a league: the error of all forecasts, or the recent error."""
    error = one.lately if one.error is None else one.error
    return float("inf") if error is None else error


class SeriesRange(BaseModel):
    """The measurements of a series, oldest first, or with ``step`` a grid with null for gaps.

    On a grid ``values`` are means, and ``lows`` and ``highs`` minima and maxima. If ``resolution`` is
    0, a time is the middle of its slot, else the beginning.
    """

    series: str = Field(description="Name of the series.")
    state: State = Field(
        description="Whether measurements are current; stale: none for three periods."
    )
    age: float | None = Field(
        description="Seconds since the last measurement; null: no measurement."
    )
    times: list[float] = Field(description="Seconds since the epoch, ascending.")
    values: list[float | None] = Field(
        description="Values at these times, on a grid means; null: a gap."
    )
    lows: list[float | None] | None = Field(
        None, description="On a grid the minimum of each slot; null: no grid."
    )
    highs: list[float | None] | None = Field(
        None, description="On a grid the maximum of each slot; null: no grid."
    )
    counts: list[int] | None = Field(
        None, description="On a grid the measurements of each slot; null: no grid."
    )
    partial: list[float] | None = Field(
        None, description="Times of the first and last slot, if measuring began or ended inside."
    )
    resolution: float | None = Field(
        None, description="Seconds of the longest stored slot in the answer; 0: measurements."
    )


class SeriesEntry(BaseModel):
    """A series and its stored measurements."""

    series: str = Field(description="Name of the series.")
    state: State = Field(
        description="Whether measurements are current; stale: none for three periods."
    )
    age: float | None = Field(
        description="Seconds since the last measurement; null: no measurement."
    )
    period: float | None = Field(
        description="Usual seconds between two measurements; null: unknown."
    )
    count: int = Field(description="Stored measurements.")
    oldest: float = Field(
        description="Time of the first stored measurement, in seconds since the epoch."
    )
    newest: float = Field(description="Time of the last measurement, in seconds since the epoch.")
    latest: float = Field(description="Value of the last measurement.")


class SeriesList(BaseModel):
    """The series that match, sorted; at most ``limit`` of ``total``."""

    total: int = Field(description="Series that match.")
    series: list[SeriesEntry] = Field(description="The series, sorted by name.")


class Registering(BaseModel):
    """A registration as a process sends it, again before its lease expires."""

    model_config = STRICT
    kind: Name = "sensor"
    host: Name
    site: Name = "local"
    address: Annotated[
        str, Field(max_length=262, pattern=r"^([0-9A-Za-z.:\[\]-]+:[0-9]{1,5})?$")
    ] = ""
    machine: Annotated[str, Field(max_length=64, pattern=r"^[0-9a-f]*$")] = ""
    resources: Annotated[list[Name], Field(max_length=64)] = []
    seconds: Annotated[float, Field(ge=1, le=3600, allow_inf_nan=False)] = 60.0

    @field_validator("address")
    @classmethod
    def no_wildcard(cls, address: str) -> str:
        """Reject an address that leads each peer to itself."""
        try:
            host = ipaddress.ip_address(address.rpartition(":")[0].strip("[]"))
        except ValueError:  # a name
            return address
        if host.is_unspecified:
            raise PydanticCustomError(
                "address_wildcard",
                "a wildcard cannot be dialled; register the address at which other hosts reach this one",
            )
        return address


class LeaseAnswer(BaseModel):
    """A registration that holds for ``expires_in`` seconds more."""

    name: str = Field(description="Name of the registered process.")
    kind: str = Field(description="Kind of the process, for example sensor.")
    host: str = Field(description="Host of the process.")
    site: str = Field(description="Site of the host.")
    address: str = Field(description="Address and port; empty: none.")
    resources: list[str] = Field(description="Resources that it measures.")
    expires_in: float = Field(description="Seconds until the lease expires.")
    alive_for: float = Field(description="Seconds since the first registration.")


class LeaseList(BaseModel):
    """All registrations that hold."""

    registrations: list[LeaseAnswer]


class ProbingAnswer(BaseModel):
    """The secret that endpoints and probers share: only the scope ``probe`` gets it."""

    secret: str


class ServiceStatus(BaseModel):
    """The health of the service."""

    status: Literal["ok", "impaired"] = Field(description="Whether all parts work.")
    version: str = Field(description="Version of the service.")
    profile: str = Field(description="Forecasting profile.")
    uptime: float = Field(description="Seconds since the start.")
    series: int = Field(description="Stored series.")
    measurements: int = Field(description="Measurements that are kept.")
    stored_total: int = Field(description="Measurements stored since the start.")
    refused_total: int = Field(description="Measurements rejected since the start.")
    backlog: int = Field(description="Measurements that wait for the forecasters.")
    subscribers: int = Field(description="Open event streams.")
    retention: dict[str, float | None] = Field(
        description="Limits of the memory, for example capacity and age; null: unlimited."
    )
    problems: list[str] = Field(description="Problems now, one line each.")
    problems_total: int = Field(description="Problems now; `problems` lists the first of them.")
    archived_bytes: int = Field(0, description="Bytes of archived means, minima and maxima.")
    mended: list[str] = Field([], description="Problems at the start that have ended.")


class ErrorAnswer(BaseModel):
    """The reason of a refusal. ``transient``: the same request may succeed later.

    ``code``: the error's stable name. ``fields``: the values that the reason contains.
    """

    reason: str
    transient: bool = False
    code: str = ""
    fields: dict[str, Any] = {}


BATCH: Final = TypeAdapter(Batch)
