"""The routes of measurements and forecasts."""

from collections.abc import AsyncIterator
from fnmatch import fnmatchcase
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import PlainTextResponse, Response, StreamingResponse
from pydantic import BaseModel, Field

from nws.column import Column
from nws.frame import Criterion
from nws.freshness import CURRENT
from nws.measurement import SeriesName
from nws.ticks import on_grid
from nws.weather import Weather
from nws.web.desk import Desk
from nws.web.events import Subscriber
from nws.web.exposition import KIND, exposition
from nws.web.messages import (
    BATCH,
    MOST_RANGE,
    Batch,
    Finite,
    Forecasts,
    Level,
    Question,
    Range,
    Receipt,
    Refusal,
    Seconds,
    SeriesEntry,
    SeriesList,
    SeriesText,
    Status,
)

Match = Annotated[str, Field(max_length=400, pattern=r"^[A-Za-z0-9._/*?-]*$")]

BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Batch"}}},
    }
}


class ForecastQuery(BaseModel):
    """Which series, and for what."""

    model_config = {"extra": "forbid"}
    series: SeriesText
    over: Seconds | None = None
    level: Level | None = None
    criterion: Criterion | None = None


class WeatherQuery(BaseModel):
    """For what."""

    model_config = {"extra": "forbid"}
    over: Seconds | None = None
    level: Level | None = None


class RangeQuery(BaseModel):
    """Which measurements: later than `start`, until `stop`, the latest `count` of them."""

    model_config = {"extra": "forbid"}
    series: SeriesText
    start: Finite | None = None
    stop: Finite | None = None
    count: Annotated[int, Field(ge=1, le=MOST_RANGE)] = 1000
    step: Seconds | None = None


class SeriesQuery(BaseModel):
    """Which series: ``*`` stands for anything, ``?`` for one character."""

    model_config = {"extra": "forbid"}
    match: Match = "*"
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1000


class EventsQuery(BaseModel):
    """Of which series."""

    model_config = {"extra": "forbid"}
    match: Match = "*"


def add_routes(router: FastAPI, desk: Desk) -> None:
    """Add the routes, bound to one service."""

    @router.post("/v1/measurements", response_model=Receipt, openapi_extra=BODY, tags=["memory"])
    async def store(request: Request) -> Receipt:
        """Store a batch. The answer comes when all but the refused ones are on the disk."""
        batch: Batch = BATCH.validate_json(await request.body())
        return await desk.store([(m["series"], m["time"], m["value"]) for m in batch.measurements])

    @router.get("/v1/forecast", tags=["forecasts"])
    async def forecast(query: Annotated[ForecastQuery, Query()]) -> Forecasts:
        """Forecast one series."""
        found = desk.forecasts(
            [query.series], over=query.over, level=query.level, criterion=query.criterion
        )
        return Forecasts(asof=desk.clock(), forecasts=found)

    @router.post("/v1/forecasts", tags=["forecasts"])
    async def forecasts(question: Question) -> Forecasts:
        """Forecast many series at one instant, in the order asked."""
        found = desk.forecasts(
            question.series,
            over=question.over,
            level=question.level,
            criterion=question.criterion,
        )
        return Forecasts(asof=desk.clock(), forecasts=found)

    @router.get("/v1/weather", tags=["forecasts"], response_class=Response, responses=WEATHER)
    async def weather(query: Annotated[WeatherQuery, Query()]) -> Response:
        """Return all current forecasts as ``nws.weather/1``, fit for ``apples plan --weather``."""
        return Response(_weather(desk, query), media_type="application/json")

    @router.get("/v1/range", tags=["memory"])
    async def samples(query: Annotated[RangeQuery, Query()]) -> Range:
        """Return measurements of a series, or with ``step`` a regular grid with null for gaps."""
        return _range(desk, query)

    @router.get("/v1/series", tags=["memory"])
    async def series(query: Annotated[SeriesQuery, Query()]) -> SeriesList:
        """Search the series and see what is kept of each."""
        found = [c for c in desk.station.columns() if fnmatchcase(c.text, query.match)]
        entries = [_entry(desk, column) for column in found[: query.limit]]
        return SeriesList(total=len(found), series=entries)

    @router.get("/v1/events", tags=["memory"], response_class=StreamingResponse, responses=EVENTS)
    async def events(query: Annotated[EventsQuery, Query()]) -> StreamingResponse:
        """Push what is stored, as server-sent events, from now on."""
        subscriber = desk.broker.subscribe(query.match)
        return StreamingResponse(_stream(desk, subscriber), media_type="text/event-stream")

    @router.get("/v1/status", tags=["service"])
    async def status() -> Status:
        """Return how the service is, and what is wrong."""
        return desk.status()

    @router.get("/metrics", tags=["service"], response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        """Return all current forecasts and our own health for a Prometheus server."""
        names = [column.text for column in desk.station.columns()]
        page = exposition(desk.forecasts(names), desk.status())
        return PlainTextResponse(page, media_type=KIND)


WEATHER: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {"schema": {"type": "object"}}}}
}
EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}},
    429: {"model": Refusal},
}


def _weather(desk: Desk, query: WeatherQuery) -> str:
    """Return the weather of what is current: what is stale is not known."""
    question = query.model_dump(exclude_none=True)
    found = {}
    for column in desk.station.columns():
        forecast, fresh = desk.station.forecast(column.text, **question)
        if forecast is not None and fresh.state == CURRENT and forecast.value >= 0:
            found[SeriesName.parse(column.text)] = forecast
    return Weather.of(found, desk.clock()).to_json()


def _range(desk: Desk, query: RangeQuery) -> Range:
    start = float("-inf") if query.start is None else query.start
    stop = float("inf") if query.stop is None else query.stop
    samples = desk.station.memory.samples(query.series, start, stop, query.count)
    grid: list[tuple[float, float | None]] = list(samples)
    if query.step is not None and samples:
        grid = on_grid(samples, query.step, samples[0][0], samples[-1][0])
    fresh = desk.station.freshness(query.series)
    return Range(
        series=query.series,
        state=fresh.state,
        age=fresh.age,
        times=[time for time, _ in grid],
        values=[value for _, value in grid],
    )


def _entry(desk: Desk, column: Column) -> SeriesEntry:
    fresh = desk.station.freshness(column.text)
    return SeriesEntry(
        series=column.text,
        state=fresh.state,
        age=fresh.age,
        period=fresh.period,
        count=len(column),
        oldest=column.oldest,
        newest=column.newest,
        latest=column.latest or 0.0,
    )


async def _stream(desk: Desk, subscriber: Subscriber) -> AsyncIterator[bytes]:
    try:
        async for lines in subscriber.lines():
            yield lines
    finally:
        desk.broker.leave(subscriber)
