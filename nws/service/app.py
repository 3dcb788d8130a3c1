"""The service as an ASGI application: middleware, routes, and the periodic work beside them."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware

from nws.errors import CodedError
from nws.forecaster import OneCriterionError
from nws.memory.connection import StorageError
from nws.memory.writer import BusyError
from nws.service.authorisation import (
    BodyLimits,
    RefusedRequestError,
    RequestLimits,
    TokenBackend,
    not_admitted,
    refusal_of,
    refused_request,
    scope,
)
from nws.service.database import OverloadError
from nws.service.events import TooManyError
from nws.service.handler import RequestHandler
from nws.service.messages import ErrorAnswer
from nws.service.registry import LeaseError
from nws.service.routes import (
    PLAIN,
    add_forecast_routes,
    add_health_routes,
    add_memory_routes,
    add_naming_routes,
)
from nws.service.tokens import READ, TokenFile
from nws.service.turns import add_turn_routes

_log = logging.getLogger(__name__)


async def save_and_tidy(handler: RequestHandler) -> None:
    """Save states and let old measurements leave, every `handler.tidy_seconds`."""
    frozen = 0
    while True:
        await asyncio.sleep(handler.tidy_seconds)
        with handler.report_failure("states are not saved"):
            await asyncio.to_thread(handler.database.save)
        with handler.report_failure("old measurements do not leave"):
            await asyncio.to_thread(handler.database.tidy)
        count = len(handler.database.summaries())
        if handler.own_process and count > 1.05 * frozen:
            # The forecasters stay. The collector would visit all of their objects, 250 ms for 12,000
            # series. It freezes all there is, so not where the objects of a program around us are.
            gc.freeze()
            frozen = count


LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": ErrorAnswer, "description": why}
    for status, why in {
        401: "The token is missing, wrong, expired or revoked.",
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
) -> FastAPI:
    """Return the application."""
    app = FastAPI(
        title="Network Weather Service",
        summary="Forecasts of the performance of hosts and links.",
        # The framework's documentation pages load scripts from other servers.
        docs_url=None,
        redoc_url=None,
        openapi_url=None,  # a route of ours, with a scope
        strict_content_type=False,  # clients need not name a type; a token admits them, no cookie
        responses=REFUSALS,
        lifespan=_lifespan(handler),
        middleware=[
            Middleware(RequestLimits, hosts=hosts, limits=limits),
            Middleware(
                AuthenticationMiddleware, backend=TokenBackend(tokens), on_error=not_admitted
            ),
        ],
    )
    for add in (
        add_memory_routes,
        add_forecast_routes,
        add_health_routes,
        add_naming_routes,
        add_turn_routes,
    ):
        add(app, handler)

    @app.get("/healthz", response_class=Response, responses=PLAIN, tags=["service"])
    async def healthz() -> Response:
        """Answer "ok" while the process runs; no token is needed."""
        return PlainTextResponse("ok\n")

    @app.get("/openapi.json", include_in_schema=False, dependencies=[scope(READ)])
    async def openapi() -> JSONResponse:
        """Return the OpenAPI document."""
        return JSONResponse(app.openapi())

    _handle_errors(app)
    return app


def _lifespan(handler: RequestHandler) -> Callable[[FastAPI], Any]:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        handler.loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(_end, asyncio.create_task(save_and_tidy(handler)))
            yield
        handler.loop = None

    return lifespan


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


OnError = Callable[[Request, Exception], Coroutine[Any, Any, Response]]


def _handle_errors(app: FastAPI) -> None:
    """Answer errors with their status and reason."""
    statuses: dict[type[Exception], int] = {
        RequestValidationError: 422,
        ValidationError: 422,
        OneCriterionError: 422,
        LeaseError: 409,
        BusyError: 429,
        OverloadError: 429,
        TooManyError: 429,
        StorageError: 503,
    }

    async def refuse(_: Request, error: Exception) -> Response:
        status = statuses[type(error)]
        if isinstance(error, StorageError) and error.full:
            status = 507
        coded = _coded(error)
        return refusal_of(RefusedRequestError(status, str(coded), code=coded.code, **coded.fields))

    async def http(_: Request, error: Exception) -> Response:
        status = getattr(error, "status_code", 500)
        headers = getattr(error, "headers", None)
        status = 422 if status == 400 else status  # a body that is no JSON
        refused = RefusedRequestError(status, str(getattr(error, "detail", error)))
        return refusal_of(refused, headers)

    handlers: dict[type[Exception], OnError] = {
        RefusedRequestError: refused_request,
        **dict.fromkeys(statuses, refuse),
        StarletteHTTPException: http,
        HTTPException: http,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


def _coded(error: Exception) -> CodedError:
    """Return an error with its code; the first problems of a request, without its values.

    A value of a request may be long or hostile.
    """
    if isinstance(error, CodedError):
        return error
    if not isinstance(error, RequestValidationError | ValidationError):
        return CodedError(error, code="request-refused")
    problems = error.errors()[:5]
    places = [".".join(map(str, _place(problem["loc"])))[:80] for problem in problems]
    reasons = [f"{place}: {p['msg'][:120]}" for place, p in zip(places, problems, strict=True)]
    return CodedError("; ".join(reasons), code="request-invalid", field=next(iter(places), None))


def _place(where: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the place of a problem in the message itself."""
    return where[1:] if where[:1] == ("body",) else where
