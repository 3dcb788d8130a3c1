"""The HTTP routes: measurements and forecasts; the name service with its leases and cliques."""

import asyncio
from collections.abc import AsyncIterator
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final

from fastapi import FastAPI, Path, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, Field

from nws.errors import coded
from nws.forecaster import Criterion
from nws.measurement import checked_amount
from nws.memory.column import SeriesColumn
from nws.service.events import Subscriber
from nws.service.handler import RequestHandler
from nws.service.messages import (
    BATCH,
    MOST_RANGE,
    NAME,
    Batch,
    CliqueAnswer,
    CliqueList,
    ErrorAnswer,
    Finite,
    ForecastRequest,
    Forecasts,
    LeaseAnswer,
    LeaseList,
    Level,
    ProbingAnswer,
    Receipt,
    Registering,
    RequestError,
    Sample,
    Seconds,
    SeriesEntry,
    SeriesLeague,
    SeriesList,
    SeriesRange,
    SeriesText,
    ServiceStatus,
)
from nws.service.metrics import KIND, in_slices
from nws.service.registry import Registration
from nws.service.tokens import Token

STORE: Final = "/v1/measurements"
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


class LeagueQuery(BaseModel):
    """Of which series, and for what."""

    model_config = {"extra": "forbid"}
    series: SeriesText
    over: Seconds | None = None
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


def add_memory_routes(router: FastAPI, handler: RequestHandler) -> None:
    """Add the routes to what is measured, bound to one service."""

    @router.post(STORE, response_model=Receipt, openapi_extra=BODY, tags=["memory"])
    async def store(request: Request) -> Response:
        """Store a batch. The answer comes when all but the refused ones are on the disk."""
        batch: Batch = BATCH.validate_json(await request.body())
        await in_slices(enumerate(batch.measurements), _check_bounds)
        receipt = await handler.store(
            [(m["series"], m["time"], m["value"]) for m in batch.measurements]
        )
        return _json(receipt.model_dump_json().encode())

    @router.get("/v1/range", response_model=SeriesRange, tags=["memory"])
    async def samples(query: Annotated[RangeQuery, Query()]) -> Response:
        """Return measurements of a series, or with ``step`` a regular grid with null for gaps.

        With ``start`` and ``step`` the grid goes back as far as anything is kept: means, lows and
        highs of five minutes, and of an hour, where there are no single measurements any more.
        ``partial`` names the first and the last place where they are not whole.
        """
        try:
            found = await asyncio.to_thread(
                lambda: handler.kept(**query.model_dump()).model_dump_json()
            )
        except ValueError as error:
            fields = {"field": "step", **coded(error, "value-range")}
            raise RequestError(422, f"step: {error}", **fields) from None
        return _json(found.encode())

    @router.get("/v1/series", response_model=SeriesList, tags=["memory"])
    async def series(query: Annotated[SeriesQuery, Query()]) -> Response:
        """Search the series and see what is kept of each."""
        found = [c for c in handler.database.columns() if fnmatchcase(c.text, query.match)]
        entries = await in_slices(
            found[: query.limit], lambda column: _entry(handler, column).model_dump_json()
        )
        return _json(f'{{"total":{len(found)},"series":[{",".join(entries)}]}}'.encode())

    @router.get("/v1/events", tags=["memory"], response_class=StreamingResponse, responses=EVENTS)
    async def events(query: Annotated[EventsQuery, Query()]) -> StreamingResponse:
        """Push what is stored, as server-sent events, from now on."""
        subscriber = handler.broker.subscribe(query.match)
        return StreamingResponse(_stream(handler, subscriber), media_type="text/event-stream")


def add_forecast_routes(router: FastAPI, handler: RequestHandler) -> None:
    """Add the routes to what is forecast, bound to one service."""

    @router.get("/v1/forecast", response_model=Forecasts, tags=["forecasts"])
    async def forecast(query: Annotated[ForecastQuery, Query()]) -> Response:
        """Forecast one series."""
        return _json(
            await handler.forecasts(
                [query.series], over=query.over, level=query.level, criterion=query.criterion
            )
        )

    @router.get("/v1/league", tags=["forecasts"])
    async def league(query: Annotated[LeagueQuery, Query()]) -> SeriesLeague:
        """Return how wrong each predictor of a series has been, and which answers."""
        return handler.league(query.series, over=query.over, criterion=query.criterion)

    @router.post("/v1/forecasts", response_model=Forecasts, tags=["forecasts"])
    async def forecasts(question: ForecastRequest) -> Response:
        """Forecast many series at one instant, in the order asked."""
        return _json(
            await handler.forecasts(
                question.series,
                over=question.over,
                level=question.level,
                criterion=question.criterion,
            )
        )

    @router.get("/v1/weather", tags=["forecasts"], response_class=Response, responses=WEATHER)
    async def weather(query: Annotated[WeatherQuery, Query()]) -> Response:
        """Return all current forecasts as ``nws.weather/1``, fit for ``apples plan --weather``."""
        pieces = await handler.weather(**query.model_dump())
        return StreamingResponse(_each(pieces), media_type="application/json")


def add_health_routes(router: FastAPI, handler: RequestHandler) -> None:
    """Add the routes to how the service is, bound to one service."""

    @router.get("/v1/status", tags=["service"])
    async def status() -> ServiceStatus:
        """Return how the service is, and what is wrong."""
        return handler.status(sum(await in_slices(handler.database.columns(), len)))

    @router.get("/metrics", tags=["service"], response_class=Response, responses=PLAIN)
    async def metrics(query: Annotated[WeatherQuery, Query()]) -> Response:
        """Return all current forecasts and our own health for a Prometheus server."""
        pieces = await handler.metrics(query.over, query.level)
        return StreamingResponse(_each(pieces), media_type=KIND)


WEATHER: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {"schema": {"type": "object"}}}}
}
PLAIN: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}}
}
"""Not a response class of plain text: then refusals, which are JSON, would be documented as such too."""
EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}},
    429: {"model": ErrorAnswer},
}


def _check_bounds(placed: tuple[int, Sample]) -> None:
    """Refuse a message with a value that a series of its kind cannot have."""
    place, sample = placed
    try:
        checked_amount(sample["series"], sample["value"])
    except ValueError as error:
        fields = {**coded(error, "value-range"), "field": f"measurements.{place}.value"}
        raise RequestError(422, f"measurements.{place}.value: {error}", **fields) from None


async def _each(pieces: list[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces of a long answer, each in a turn of the loop of its own."""
    for piece in pieces:
        yield piece
        await asyncio.sleep(0)


def _json(document: bytes) -> Response:
    return Response(document, media_type="application/json")


def _entry(handler: RequestHandler, column: SeriesColumn) -> SeriesEntry:
    fresh = handler.database.freshness(column.text)
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


async def _stream(handler: RequestHandler, subscriber: Subscriber) -> AsyncIterator[bytes]:
    try:
        async for lines in subscriber.lines():
            yield lines
    finally:
        handler.broker.leave(subscriber)


ABSENT: dict[int | str, dict[str, Any]] = {404: {"model": ErrorAnswer}}
TAKEN: dict[int | str, dict[str, Any]] = {409: {"model": ErrorAnswer}}
PathName = Annotated[str, Path(pattern=NAME, max_length=128)]


def add_naming_routes(router: FastAPI, handler: RequestHandler) -> None:
    """Add the routes, bound to one service."""

    @router.put("/v1/sensors/{name}", tags=["names"], responses=TAKEN)
    async def register(name: PathName, body: Registering, request: Request) -> LeaseAnswer:
        """Register, or renew: do it again before the lease runs out."""
        token: Token = request.state.token
        registration = Registration(
            name,
            body.kind,
            body.host,
            body.site,
            body.address,
            tuple(body.resources),
            owner=token.name,
        )
        now = handler.monotonic()
        return handler.registered(handler.leases.renew(registration, body.seconds, now), now)

    @router.delete(
        "/v1/sensors/{name}",
        tags=["names"],
        responses={404: {"model": ErrorAnswer}, 409: {"model": ErrorAnswer}},
    )
    async def leave(name: PathName, request: Request) -> LeaseList:
        """End a lease before it runs out; the answer is who is left."""
        token: Token = request.state.token
        now = handler.monotonic()
        if not handler.leases.end(name, token.name, now):
            raise RequestError(
                404, f"{name} is not registered", code="registration-unknown", value=name
            )
        return _everyone(handler)

    @router.get("/v1/sensors", tags=["names"])
    async def sensors() -> LeaseList:
        """Return everyone who is there."""
        return _everyone(handler)

    @router.get("/v1/cliques", tags=["names"])
    async def cliques() -> CliqueList:
        """Return the names of the cliques."""
        return CliqueList(cliques=sorted(handler.cliques()))

    @router.get("/v1/cliques/{name}", tags=["names"], responses=ABSENT)
    async def clique(name: PathName) -> CliqueAnswer:
        """Return a clique and its members."""
        found = handler.cliques().get(name)
        if found is None:
            raise RequestError(
                404, f"there is no clique {name}", code="clique-unknown", value=name
            )
        return found

    @router.get("/v1/probing", tags=["names"])
    async def probing() -> ProbingAnswer:
        """Return the secret that a host needs to probe and to be probed."""
        return ProbingAnswer(secret=handler.secret)


def _everyone(handler: RequestHandler) -> LeaseList:
    now = handler.monotonic()
    alive = handler.leases.alive(now)
    return LeaseList(
        registrations=[handler.registered(alive[name], now) for name in sorted(alive)]
    )
