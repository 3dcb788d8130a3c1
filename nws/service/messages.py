"""The messages of the service, strict: unknown fields, NaN and wrong types are refused."""

from collections.abc import Collection
from dataclasses import asdict
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, with_config
from pydantic.config import JsonDict
from typing_extensions import TypedDict

from nws.errors import CodedError
from nws.forecaster import Criterion, LeagueTable
from nws.measurement import AMOUNTS, MOST, SCHEMA, SHARES

MOST_ASKED: Final = 2_000
MOST_RANGE: Final = 10_000
MOST_REASONS: Final = 100

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
"""What `nws.measurement.checked_amount` refuses, for those who read the schema."""


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
    measurements: Annotated[list[Sample], Field(max_length=MOST)]


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
    """Which series to forecast, all at one instant, and for what.

    ``over``: the mean of the next so many seconds; else the next value. ``level``: of the interval.
    ``criterion``: the error that the forecast makes least.
    """

    model_config = STRICT
    series: Annotated[list[SeriesText], Field(max_length=MOST_ASKED)]
    over: Seconds | None = None
    level: Level | None = None
    criterion: Criterion | None = None


class NetworkForecast(BaseModel):
    """A forecast, how wrong such forecasts were, and how fresh what it is made of is.

    ``value`` is null where nothing is known yet; never an old value as if it were new.
    """

    series: str
    state: State
    age: float | None = Field(description="Seconds since the last measurement.")
    period: float | None = Field(description="The usual seconds between two.")
    value: float | None = None
    error: float | None = Field(None, description="Mean absolute error of such forecasts so far.")
    method: str | None = None
    samples: int = 0
    time: float | None = Field(None, description="When the last measurement was taken.")
    rmse: float | None = None
    lower: float | None = None
    upper: float | None = None
    level: float | None = None
    coverage: float | None = Field(None, description="The interval's, as it really was.")
    horizon: int | None = Field(None, description="The mean of so many samples to come.")
    over: float | None = Field(None, description="The same in seconds.")
    held: int = Field(0, description="Measurements that wait for earlier ones; forecast from.")
    late: int = Field(0, description="Measurements that came too late to be forecast from.")
    ahead: int = Field(0, description="Stamps that lay ahead of what came after them.")
    remarks: list[str] = Field([], description="What was left out of this answer, and why.")


class Forecasts(BaseModel):
    """Forecasts of many series at one instant, in the order they were asked for."""

    asof: float
    forecasts: list[NetworkForecast]


class PredictorScore(BaseModel):
    """One predictor of a series: its mean absolute errors, null where they are not kept."""

    name: str
    error: float | None
    lately: float | None = Field(description="With older errors forgotten.")


class CandidateScore(BaseModel):
    """One way to make a forecast of the predictors': the lowest error, or a mixture."""

    name: str
    rmse: float | None
    taken: bool = Field(description="Whether it answers, or weighs most in what does.")


class SeriesLeague(BaseModel):
    """How wrong each predictor of a series has been so far, the least wrong first."""

    series: str
    state: State
    age: float | None
    horizon: int | None = Field(None, description="Errors are of the mean of so many values.")
    scored: int | None = Field(None, description="Forecasts that met what they were made for.")
    method: str | None = Field(None, description="The predictor or the mixture that answers.")
    predictors: list[PredictorScore] = []
    candidates: list[CandidateScore] = []

    @classmethod
    def of(cls, series: str, state: str, age: float | None, table: LeagueTable | None) -> Self:
        """Return the answer that a league is; without one it has no predictors."""
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
    """Return by what a league is in order: the error of all forecasts where that is kept."""
    error = one.lately if one.error is None else one.error
    return float("inf") if error is None else error


class SeriesRange(BaseModel):
    """The measurements of a series, oldest first, or with ``step`` a grid with null for gaps.

    On a grid ``values`` are means, and ``lows`` and ``highs`` what was least and greatest. Where
    ``resolution`` is 0 a time is the middle of its place, else the beginning.
    """

    series: str
    state: State
    age: float | None
    times: list[float]
    values: list[float | None]
    lows: list[float | None] | None = None
    highs: list[float | None] | None = None
    counts: list[int] | None = Field(None, description="Measurements in each place of a grid.")
    partial: list[float] | None = Field(
        None, description="Times of the first and last place, if measuring began or ended within."
    )
    resolution: float | None = Field(
        None, description="Seconds of the longest slot that this is made of; 0: measurements."
    )


class SeriesEntry(BaseModel):
    """A series and what is kept of it."""

    series: str
    state: State
    age: float | None
    period: float | None
    count: int
    oldest: float
    newest: float
    latest: float


class SeriesList(BaseModel):
    """The series that match, sorted; at most ``limit`` of ``total``."""

    total: int
    series: list[SeriesEntry]


class Registering(BaseModel):
    """A registration as a process sends it, again before its lease expires."""

    model_config = STRICT
    kind: Name = "sensor"
    host: Name
    site: Name = "local"
    address: Annotated[
        str, Field(max_length=262, pattern=r"^([0-9A-Za-z.:\[\]-]+:[0-9]{1,5})?$")
    ] = ""
    resources: Annotated[list[Name], Field(max_length=64)] = []
    seconds: Annotated[float, Field(ge=1, le=3600, allow_inf_nan=False)] = 60.0


class LeaseAnswer(BaseModel):
    """A registration that holds for ``expires_in`` seconds more."""

    name: str
    kind: str
    host: str
    site: str
    address: str
    resources: list[str]
    expires_in: float
    alive_for: float


class LeaseList(BaseModel):
    """All registrations that hold."""

    registrations: list[LeaseAnswer]


class CliqueAnswer(BaseModel):
    """A clique: who may probe whom, one at a time."""

    name: str
    period: float
    members: list[LeaseAnswer]


class ProbingAnswer(BaseModel):
    """The secret that endpoints and probers share: only the scope ``probe`` gets it."""

    secret: str


class CliqueList(BaseModel):
    """The cliques there are: one for each site with two hosts or more, one between the sites."""

    cliques: list[str]


class ServiceStatus(BaseModel):
    """The health of the service."""

    status: Literal["ok", "impaired"]
    version: str
    profile: str
    uptime: float
    series: int
    measurements: int
    stored_total: int
    refused_total: int
    backlog: int
    subscribers: int
    retention: dict[str, float | None]
    problems: list[str]
    problems_total: int
    archived_bytes: int = Field(0, description="Of means, lows and highs of slots.")
    mended: list[str] = Field([], description="What was wrong at the start and is so no more.")


class ErrorAnswer(BaseModel):
    """The reason of a refusal. ``transient``: the same request may succeed later.

    ``code``: the error's stable name. ``fields``: the values that the reason contains.
    """

    reason: str
    transient: bool = False
    code: str = ""
    fields: dict[str, Any] = {}


class RequestError(CodedError):
    """A well-formed request that cannot be answered. Permanent.

    Attributes
    ----------
    status
        Of the answer.
    """

    def __init__(self, status: int, message: str, *, code: str, **fields: object) -> None:
        super().__init__(message, code=code, **fields)
        self.status = status


BATCH: Final = TypeAdapter(Batch)
