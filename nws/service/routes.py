"""The HTTP routes: measurements and forecasts; the name service with its leases."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Path, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, Field
from starlette.types import Message, Send

from nws.errors import coded
from nws.forecaster import Criterion
from nws.measurement import checked_amount
from nws.service.authorisation import RefusedRequestError, TokenUser, scope
from nws.service.events import Subscriber
from nws.service.handler import RequestHandler
from nws.service.messages import (
    MAX_RANGE,
    NAME,
    Batch,
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
    Sample,
    Seconds,
    SeriesLeague,
    SeriesList,
    SeriesRange,
    SeriesText,
    ServiceStatus,
)
from nws.service.metrics import KIND
from nws.service.registry import Registration
from nws.service.tokens import PROBE, READ, WRITE

Match = Annotated[str, Field(max_length=400, pattern=r"^[A-Za-z0-9._/*?-]*$")]


def router(name: str) -> APIRouter:
    """Return a router of routes that need a scope."""
    return APIRouter(dependencies=[scope(name)])


class StrictQuery(BaseModel):
    """A query; unknown keys are refused."""

    model_config = {"extra": "forbid"}


class LeagueQuery(StrictQuery):
    """A series, the time ahead and the criterion."""

    series: SeriesText
    over: Seconds | None = None
    criterion: Criterion | None = None


class ForecastQuery(LeagueQuery):
    """A series, the time ahead, the criterion and the level of the interval."""

    level: Level | None = None


class WeatherQuery(StrictQuery):
    """The time ahead and the level of the intervals."""

    over: Seconds | None = None
    level: Level | None = None


class RangeQuery(StrictQuery):
    """Measurements later than `start`, until `stop`, the latest `count` of them."""

    series: SeriesText
    start: Finite | None = None
    stop: Finite | None = None
    count: Annotated[int, Field(ge=1, le=MAX_RANGE)] = 1000
    step: Seconds | None = None


class SeriesQuery(StrictQuery):
    """A pattern of series names: ``*`` stands for anything, ``?`` for one character."""

    match: Match = "*"
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1000


class EventsQuery(StrictQuery):
    """A pattern of series names."""

    match: Match = "*"


def add_memory_routes(app: FastAPI, handler: RequestHandler) -> None:
    """Add the routes of the measurements, bound to one service."""
    reading, writing = router(READ), router(WRITE)

    @writing.post("/v1/measurements", tags=["memory"])
    async def store(batch: Batch) -> Receipt:
        """Store a batch. The answer comes when all measurements but the refused are on the disk."""
        await asyncio.to_thread(_check_bounds, batch.measurements)
        return await handler.store(
            [(m["series"], m["time"], m["value"]) for m in batch.measurements]
        )

    @reading.get("/v1/range", tags=["memory"])
    async def samples(query: Annotated[RangeQuery, Query()]) -> SeriesRange:
        """Return measurements of a series, or with ``step`` a regular grid with null for gaps.

        With ``start`` and ``step`` the grid contains all stored data: single measurements, and before them
        means, lows and highs of five minutes and of an hour. ``partial`` names the first and the last
        slot if measuring began or ended inside.
        """
        try:
            return await asyncio.to_thread(handler.kept, **query.model_dump())
        except ValueError as error:
            fields = {"field": "step", **coded(error, "value-range")}
            raise RefusedRequestError(422, f"step: {error}", **fields) from None

    @reading.get("/v1/series", tags=["memory"])
    async def series(query: Annotated[SeriesQuery, Query()]) -> SeriesList:
        """Search the series."""
        matches = partial(fnmatchcase, pat=query.match)
        return await asyncio.to_thread(handler.entries, matches, query.limit)

    @reading.get("/v1/events", tags=["memory"], response_class=StreamingResponse, responses=EVENTS)
    async def events(
        query: Annotated[EventsQuery, Query()], request: Request
    ) -> StreamingResponse:
        """Push stored measurements as server-sent events, from now on, until the token is revoked or expires."""
        subscriber = handler.broker.subscribe(query.match)
        lines = _stream(handler, subscriber, request.user)
        return _EventResponse(lines, handler.stall_seconds)

    app.include_router(reading)
    app.include_router(writing)


def add_forecast_routes(app: FastAPI, handler: RequestHandler) -> None:
    """Add the routes of the forecasts, bound to one service."""
    reading = router(READ)

    @reading.get("/v1/forecast", tags=["forecasts"])
    async def forecast(query: Annotated[ForecastQuery, Query()]) -> Forecasts:
        """Forecast one series."""
        return await handler.forecasts([query.series], **query.model_dump(exclude={"series"}))

    @reading.get("/v1/league", tags=["forecasts"])
    async def league(query: Annotated[LeagueQuery, Query()]) -> SeriesLeague:
        """Return the errors of the predictors of a series, and the method of its forecasts."""
        return await handler.league(query.series, over=query.over, criterion=query.criterion)

    @reading.post("/v1/forecasts", tags=["forecasts"])
    async def forecasts(question: ForecastRequest) -> Forecasts:
        """Forecast many series at one instant, in the order asked."""
        return await handler.forecasts(question.series, **question.model_dump(exclude={"series"}))

    @reading.get("/v1/weather", tags=["forecasts"], response_class=Response, responses=WEATHER)
    async def weather(query: Annotated[WeatherQuery, Query()]) -> Response:
        """Return all current forecasts as ``nws.weather/1``, fit for ``apples plan --weather``."""
        text = await handler.weather(**query.model_dump())
        return Response(text, media_type="application/json")

    app.include_router(reading)


def add_health_routes(app: FastAPI, handler: RequestHandler) -> None:
    """Add the routes of the service's health, bound to one service."""
    reading = router(READ)

    @reading.get("/v1/status", tags=["service"])
    async def status() -> ServiceStatus:
        """Return the health of the service, and its problems."""
        return await asyncio.to_thread(handler.status)

    @reading.get("/metrics", tags=["service"], response_class=Response, responses=PLAIN)
    async def metrics(query: Annotated[WeatherQuery, Query()]) -> Response:
        """Return all current forecasts and our own health for a Prometheus server."""
        page = await handler.metrics(query.over, query.level)
        return Response(page, media_type=KIND)

    app.include_router(reading)


WEATHER: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {"schema": {"type": "object"}}}}
}
PLAIN: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}}
}
"""With a response class of plain text, refusals, which are JSON, would be documented as plain text too."""
EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}},
    429: {"model": ErrorAnswer},
}


def _check_bounds(samples: Sequence[Sample]) -> None:
    """Refuse a message with a value that a series of its kind cannot have."""
    for place, sample in enumerate(samples):
        try:
            checked_amount(sample["series"], sample["value"])
        except ValueError as error:
            field = f"measurements.{place}.value"
            fields = {**coded(error, "value-range"), "field": field}
            raise RefusedRequestError(422, f"{field}: {error}", **fields) from None


class _EventResponse(StreamingResponse):
    """Streams events; ends if the reader takes none for some seconds."""

    def __init__(self, lines: AsyncGenerator[bytes, None], seconds: float) -> None:
        super().__init__(lines, media_type="text/event-stream")
        self._lines, self._seconds = lines, seconds

    async def stream_response(self, send: Send) -> None:
        """Send the generator's events, and close it at any end."""

        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(self._seconds):
                await send(message)

        try:
            with suppress(TimeoutError):
                await super().stream_response(send_in_time)
        finally:
            await self._lines.aclose()


async def _stream(
    handler: RequestHandler, subscriber: Subscriber, caller: TokenUser
) -> AsyncGenerator[bytes, None]:
    try:
        async for lines in subscriber.lines():
            if not caller.is_authenticated:
                return
            yield lines
    finally:
        handler.broker.leave(subscriber)


TAKEN: dict[int | str, dict[str, Any]] = {409: {"model": ErrorAnswer}}
PathName = Annotated[str, Path(pattern=NAME, max_length=128)]


def add_naming_routes(app: FastAPI, handler: RequestHandler) -> None:
    """Add the routes of the name service, bound to one service."""
    reading, writing, probers = router(READ), router(WRITE), router(PROBE)

    @writing.put("/v1/sensors/{name}", tags=["names"], responses=TAKEN)
    async def register(name: PathName, body: Registering, request: Request) -> LeaseAnswer:
        """Register, or renew: repeat it before the lease expires."""
        token = request.user.token
        registration = Registration(
            name,
            body.kind,
            body.host,
            body.site,
            body.address,
            tuple(body.resources),
            owner=token.name,
            machine=body.machine,
        )
        now = handler.monotonic()
        return handler.registered(handler.leases.renew(registration, body.seconds, now), now)

    @writing.delete(
        "/v1/sensors/{name}",
        tags=["names"],
        responses={404: {"model": ErrorAnswer}, 409: {"model": ErrorAnswer}},
    )
    async def leave(name: PathName, request: Request) -> LeaseList:
        """End a lease before it expires; the answer lists the remaining leases."""
        token = request.user.token
        now = handler.monotonic()
        if not handler.leases.end(name, token.name, now):
            raise RefusedRequestError(
                404, f"{name} is not registered", code="registration-unknown", value=name
            )
        return _registrations(handler)

    @reading.get("/v1/sensors", tags=["names"])
    async def sensors() -> LeaseList:
        """Return the registered processes."""
        return _registrations(handler)

    @probers.get("/v1/probing", tags=["names"])
    async def probing() -> ProbingAnswer:
        """Return the secret that a host needs to probe and to be probed."""
        return ProbingAnswer(secret=handler.secret)

    for each in (reading, writing, probers):
        app.include_router(each)


def _registrations(handler: RequestHandler) -> LeaseList:
    now = handler.monotonic()
    alive = handler.leases.alive(now)
    return LeaseList(
        registrations=[handler.registered(alive[name], now) for name in sorted(alive)]
    )
