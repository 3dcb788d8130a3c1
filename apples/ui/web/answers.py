"""Responses common to all served pages: the style sheet, the script, and pages for refusals and failures."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from starlette.exceptions import HTTPException

import hat
from apples.errors import ApplesError, failure_of
from apples.ui.web.frame import Frame, said_page, served_script, served_style
from apples.ui.web.gate import HEADERS

STATUSES: Mapping[int, int] = {2: 400, 3: 409, 4: 409, 7: 504}
"""HTTP status of a refusal, by the exit code that the command line would give."""


def form_value(request: Request, name: str) -> str:
    """Return the last value of a field of the request's form, without space around it; empty without the field."""
    form: dict[str, list[str]] = request.state.form
    return form.get(name, [""])[-1].strip()


def add_assets(app: FastAPI) -> None:
    """Add the files that every page loads; each address has a digest of the content, so browsers can cache it."""
    kept = {"cache-control": "private, max-age=31536000, immutable"}

    @app.get("/style.css")
    async def style() -> Response:
        return Response(served_style()[0], media_type="text/css", headers=kept)

    @app.get("/script.js")
    async def script() -> Response:
        return Response(served_script()[0], media_type="text/javascript", headers=kept)


def handle_errors(app: FastAPI, frame: Callable[[Request], Frame]) -> None:
    """Answer refusals and failures with a page that has the message of the command line."""

    def answer(request: Request, status: int, title: str, lines: list[str]) -> Response:
        return HTMLResponse(said_page(frame(request), title, lines), status, dict(HEADERS))

    async def refused(request: Request, error: Exception) -> Response:
        failure = failure_of(error)
        title = f"Refused, exit code {failure.exit_code}"
        status = STATUSES.get(failure.exit_code, 500)
        return answer(request, status, title, failure.line.splitlines())

    async def unfit(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101 - it is registered for no other
        told = [
            f"{'.'.join(map(str, one['loc'][1:]))[:80]}: {one['msg'][:120]}"
            for one in error.errors()[:5]
        ]
        return answer(request, 422, "The address is invalid", told)

    async def http(request: Request, error: Exception) -> Response:
        status = getattr(error, "status_code", 500)
        title = "Page not found" if status == 404 else f"Not done: {status}"
        return answer(request, status, title, [str(getattr(error, "detail", ""))])

    async def broken(request: Request, error: Exception) -> Response:
        failure = failure_of(error)
        return answer(request, 500, f"Failed, exit code {failure.exit_code}", [failure.line])

    app.add_exception_handler(RequestValidationError, unfit)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(ApplesError, refused)
    app.add_exception_handler(hat.DocumentError, refused)
    app.add_exception_handler(OSError, refused)
    app.add_exception_handler(Exception, broken)
