"""The service as an ASGI application: authorisation, routes, and the periodic work beside them."""

import asyncio
import gc
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from nws.errors import CodedError
from nws.forecaster import OneCriterionError
from nws.memory.journal import BusyError, LogError
from nws.service.authorisation import (
    ACCESS,
    Authorisation,
    BodyLimits,
    RefusedRequestError,
    methods_of,
)
from nws.service.database import OverloadError
from nws.service.events import TooManyError
from nws.service.handler import NOTHING_ARCHIVED, RequestHandler
from nws.service.messages import Batch, ErrorAnswer, RequestError, Sample
from nws.service.metrics import SLICE_SECONDS
from nws.service.registry import LeaseError
from nws.service.routes import (
    PLAIN,
    STORE,
    add_forecast_routes,
    add_health_routes,
    add_memory_routes,
    add_naming_routes,
)
from nws.service.tokens import TokenFile

PAUSE_SECONDS: Final = 0.001
BUSY_PAUSE_SECONDS: Final = 0.005
IDLE_SECONDS: Final = 0.05
LOOK_SECONDS: Final = 0.25

_log = logging.getLogger(__name__)


def upkeep(handler: RequestHandler) -> list[Coroutine[Any, Any, None]]:
    """Return what is to run as long as the service does."""
    return [catch_up(handler), save_and_tidy(handler), roll_up(handler), _keep_pages(handler)]


async def catch_up(handler: RequestHandler) -> None:
    """Let the forecasters take in what waits, in slices that no request notices.

    While measurements come in they get a sixth of the time, else half.
    """
    before, frozen = -1, 0
    more = False
    while True:
        if handler.own_process and len(handler.database.columns()) > 1.05 * frozen:
            # What follows a series stays. The collector would look at all of it, 250 ms for 12,000.
            # It freezes all there is, so not where the objects of a program around us are.
            gc.freeze()
            frozen = len(handler.database.columns())
        with handler.going_on("forecasters do not follow"):
            more = handler.database.forecasting.catch_up(SLICE_SECONDS)
        storing, before = handler.asked_to_store != before, handler.asked_to_store
        pause = BUSY_PAUSE_SECONDS if storing else PAUSE_SECONDS
        await asyncio.sleep(pause if more else IDLE_SECONDS)


async def save_and_tidy(handler: RequestHandler) -> None:
    """Save the forecasters' states and drop old measurements, every `handler.save_seconds`."""
    while True:
        await asyncio.sleep(handler.save_seconds)
        with handler.going_on("states are not saved"):
            await save(handler)
        with handler.going_on("what is too old is not let go"):
            await asyncio.to_thread(handler.database.tidy)


def unhurried(
    work: float, rest: float, timer: Callable[[], float] = time.perf_counter
) -> Callable[[], None]:
    """Return what a thread calls now and then so that after `work` seconds it rests, and others go on."""
    stop = timer() + work

    def pause() -> None:
        nonlocal stop
        if timer() > stop:
            time.sleep(rest)
            stop = timer() + work

    return pause


async def save(handler: RequestHandler) -> None:
    """Save the states of all forecasters in a thread that lets requests go on."""
    pause = unhurried(SLICE_SECONDS, PAUSE_SECONDS)  # else it keeps the interpreter for 5 ms
    await asyncio.to_thread(handler.database.save, pause)


async def roll_up(handler: RequestHandler) -> None:
    """Archive the intervals that are over, in a thread that lets requests go on."""
    while True:
        await asyncio.sleep(handler.roll_up_seconds)
        with handler.going_on(NOTHING_ARCHIVED):
            pause = unhurried(SLICE_SECONDS, PAUSE_SECONDS)
            await asyncio.to_thread(handler.database.roll_up, pause)


async def _keep_pages(handler: RequestHandler) -> None:
    """Make the forecasts of pages that are scraped anew before the next scrape, a tenth of the time."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        for page in [page for page in handler.pages.values() if page.wanted]:
            columns = iter(handler.database.columns())
            with handler.going_on("pages of metrics are not made anew"):
                while not page.refresh(SLICE_SECONDS, columns):
                    await asyncio.sleep(9 * SLICE_SECONDS)


LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": ErrorAnswer, "description": why}
    for status, why in {
        401: "No token, or one that is wrong, expired or revoked.",
        403: "The token has not the scope.",
        408: "The body was too slow.",
        413: "The body is too large.",
        415: "The body is compressed.",
        421: "The Host is not ours.",
        422: "The request is not as it should be.",
        431: "The head is too large.",
        429: "Too much at once; transient.",
        503: "The disk failed, or the tokens cannot be trusted; transient.",
        507: "The disk is full; transient.",
    }.items()
}


def create_app(
    handler: RequestHandler,
    tokens: TokenFile,
    hosts: Collection[str] = LOOPBACK,
    limits: BodyLimits | None = None,
    *,
    bypass: bool = True,
) -> Authorisation:
    """Return the application, its gate around it.

    Parameters
    ----------
    bypass
        Whether measurements reach their endpoint past FastAPI's layers, which answers the same in less time.

    Raises
    ------
    LookupError
        A route is not in the table of scopes (`nws.service.authorisation`): it would be closed to all.
    """
    app = FastAPI(
        title="Network Weather Service",
        summary="Forecasts of what hosts and links will give next.",
        # The framework's documentation pages load scripts from other servers.
        docs_url=None,
        redoc_url=None,
        responses=REFUSALS,
        lifespan=_lifespan(handler),
    )
    for add in (add_memory_routes, add_forecast_routes, add_health_routes, add_naming_routes):
        add(app, handler)

    @app.get("/healthz", response_class=Response, responses=PLAIN, tags=["service"])
    async def healthz() -> Response:
        """Say that the process answers; no token is needed."""
        return PlainTextResponse("ok\n")

    handlers = _handle_errors(app)
    check_table(app)
    _document_batch(app)
    inner = bypass_fastapi(app, handlers) if bypass else app
    return Authorisation(inner, tokens, hosts, limits)


OnError = Callable[[Request, Exception], Coroutine[Any, Any, Response]]


def bypass_fastapi(app: FastAPI, handlers: Mapping[type[Exception], OnError]) -> ASGIApp:
    """Return the application, measurements handed to their endpoint past FastAPI's layers.

    They are nearly all that a service is asked, and small: twelve layers of the framework, for a
    path and a body that nothing but the endpoint looks at, were a sixth of what a message costs.
    """
    endpoint = next(
        route.endpoint
        for route in app.routes
        if isinstance(route, APIRoute) and route.path == STORE
    )

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != STORE or scope["method"] != "POST":
            await app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            response = await endpoint(request)
        except Exception as error:
            known = next((kind for kind in type(error).__mro__ if kind in handlers), None)
            if known is None:
                raise
            response = await handlers[known](request, error)
        await response(scope, receive, send)

    return application


def paths_of(app: FastAPI) -> set[tuple[str, str]]:
    """Return (method, path) of every route there is."""
    found = set()
    for route in app.routes:
        methods = getattr(route, "methods", None) or {"ANY"}
        path = getattr(route, "path", repr(route))
        found |= {(method, path) for method in methods - {"HEAD"}}
    return found


def check_table(app: FastAPI) -> None:
    """Raise LookupError unless each route has a scope, and each scope a route."""
    missing = paths_of(app) ^ set(ACCESS)
    if missing:
        raise LookupError(f"routes and scopes differ: {sorted(missing)}")


def _lifespan(handler: RequestHandler) -> Callable[[FastAPI], Any]:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        handler.loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            for work in upkeep(handler):
                task = asyncio.create_task(work)
                stack.push_async_callback(_end, task)
            yield
        handler.loop = None

    return lifespan


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _handle_errors(app: FastAPI) -> dict[type[Exception], OnError]:
    """Answer errors with their status and reason, and return what does."""
    statuses: dict[type[Exception], int] = {
        RequestValidationError: 422,
        ValidationError: 422,
        OneCriterionError: 422,
        LeaseError: 409,
        BusyError: 429,
        OverloadError: 429,
        TooManyError: 429,
        LogError: 503,
    }

    async def refuse(_: Request, error: Exception) -> JSONResponse:
        status = statuses[type(error)]
        if isinstance(error, LogError) and error.full:
            status = 507
        return _refusal(status, _coded(error), transient=status in {429, 503, 507})

    async def http(request: Request, error: Exception) -> JSONResponse:
        status = getattr(error, "status_code", 500)
        allowed = {"Allow": ", ".join(methods_of(request.url.path))} if status == 405 else None
        status = 422 if status == 400 else status  # a body that is no JSON
        refused = RefusedRequestError(status, str(getattr(error, "detail", error)))
        return _refusal(status, refused, allowed)

    async def denied(_: Request, error: Exception) -> JSONResponse:
        return _refusal(error.status if isinstance(error, RequestError) else 500, _coded(error))

    async def stopped(_: Request, error: Exception) -> JSONResponse:
        status = error.status if isinstance(error, RefusedRequestError) else 500
        headers = {"Connection": "close"}
        return _refusal(status, _coded(error), headers, transient=status == 408)

    handlers: dict[type[Exception], OnError] = {
        RefusedRequestError: stopped,
        RequestError: denied,
        **dict.fromkeys(statuses, refuse),
        StarletteHTTPException: http,
        HTTPException: http,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)
    return handlers


def _refusal(
    status: int,
    error: CodedError,
    headers: dict[str, str] | None = None,
    *,
    transient: bool = False,
) -> JSONResponse:
    answer = ErrorAnswer(
        reason=str(error), transient=transient, code=error.code, fields={**error.fields}
    )
    body = answer.model_dump()
    if transient:
        headers = {**(headers or {}), "Retry-After": "1"}
    return JSONResponse(body, status, headers)


def _coded(error: Exception) -> CodedError:
    """Return an error with its code; the first problems of a request, without its values.

    A value of a request may be long or hostile.
    """
    if isinstance(error, CodedError):
        return error
    if not isinstance(error, RequestValidationError | ValidationError):
        return CodedError(error, code="request-refused")
    problems = error.errors()[:5]
    places = [".".join(map(str, problem["loc"]))[:80] for problem in problems]
    reasons = [f"{place}: {p['msg'][:120]}" for place, p in zip(places, problems, strict=True)]
    return CodedError("; ".join(reasons), code="request-invalid", field=next(iter(places), None))


def _document_batch(app: FastAPI) -> None:
    """Put the message that is parsed by hand, for speed, into the OpenAPI document."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        document = made()
        schema = Batch.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas = document["components"]["schemas"]
        schemas[Sample.__name__] = schema.pop("$defs")[Sample.__name__]
        schemas[Batch.__name__] = schema
        return document

    app.openapi = openapi  # type: ignore[method-assign]
