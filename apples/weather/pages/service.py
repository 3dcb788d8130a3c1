"""The pages of ``nws serve``: the list of series, a page per series, and the form for a reader's token.

They share the process and the event loop of the service. Requests for ``text/html`` at their addresses go to the
pages, all others to the service, with refusals in JSON. A page is made in short slices: the service has other
callers.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

import nws
from apples.ui.shell import page as page_of
from apples.ui.shell import page_pieces
from apples.ui.web.answers import add_assets, handle_errors
from apples.ui.web.frame import Frame, served_style
from apples.ui.web.gate import ENTER, Gate, Session, Sessions
from apples.weather.pages.series import longer, row_of, series_view
from nws import RefusedRequestError

ADMITTED_SECONDS = 12 * 3600.0
"""Lifetime of a browser session."""
SLICE_SECONDS = 0.001
"""Time limit of a slice of page making, after which other requests run."""
READ = "read"
FOR_BROWSERS = frozenset({ENTER, "/style.css"})
"""Paths of the pages alone; at a path of `NEGOTIATED`, the Accept header selects page or service."""
NEGOTIATED = frozenset({"/", "/series"})

Order = Literal["series", "value", "age"]
Over = Literal["", "60", "300", "3600"]
Back = Literal["1", "6", "24", "168"]

PAGES: Mapping[str, str] = {"/": "Series"}
FRAMES: Mapping[str, str] = {
    "": "the next value", "60": "the next minute", "300": "the next 5 min", "3600": "the next hour",
}  # fmt: skip
"""Time ahead of the forecasts in the list: seconds, and in words."""
HOURS: Mapping[str, str] = {"1": "hour", "6": "6 hours", "24": "day", "168": "week"}
"""Choices for the past shown on the page of a series: hours, and in words."""
PLACES = 240
"""Points of the chart."""


class WeatherPages:
    """The pages of a weather service, and their sessions.

    Parameters
    ----------
    on_link
        Called with the address of each one-time link that admits a browser.
    """

    def __init__(self, on_link: Callable[[str], None]) -> None:
        self._on_link = on_link

    def add(self, serving: nws.Serving, application: ASGIApp) -> ASGIApp:
        """Return the application of a service with these pages beside its own routes.

        Parameters
        ----------
        application
            Its own routes, their gate around them.
        """
        self._serving = serving
        self._sessions = Sessions(
            lambda key: self._on_link(f"{serving.url}{ENTER}?key={key}"),
            ADMITTED_SECONDS,
            lambda: self._token_of(serving.token) is not None,
        )
        gate = Gate(
            self._routes(), self._sessions, self._refused, serving.names,
            secure=serving.secure, command="nws serve", sign_in=self._sign_in,
        )  # fmt: skip
        served_style()  # loads the templates before the first request

        async def either(scope: Scope, receive: Receive, send: Send) -> None:
            theirs = scope["type"] == "http" and _for_browser(scope)
            await (gate if theirs else application)(scope, receive, send)

        return either

    def announce(self) -> None:
        """Pass the address of the valid link to `on_link`."""
        self._sessions.announce()

    # ------------------------------------------------------------------ sessions
    def _token_of(self, secret: str) -> nws.Token | None:
        """Return the valid token of a secret; None without one, or if the token file is unreadable."""
        try:
            return self._serving.tokens.find(secret)
        except nws.TokenFileError:
            return None

    def _sign_in(self, secret: str) -> str:
        """Open a session for a token that may read, for as long as it is good."""
        try:
            token = self._serving.tokens.find(secret)
        except nws.TokenFileError as error:
            raise RefusedRequestError(503, str(error)) from error
        if token is None:
            raise RefusedRequestError(
                401, "This token is not of this service, or it has expired or was revoked."
            )
        if READ not in token.scopes:
            raise RefusedRequestError(
                403,
                f"This token has the scopes {', '.join(token.scopes)}; these pages need {READ}.",
                scopes=list(token.scopes),
                needed=READ,
            )
        return self._sessions.open(lambda: self._still_good(token))

    def _still_good(self, token: nws.Token) -> bool:
        try:
            return self._serving.tokens.still_good(token)
        except nws.TokenFileError:
            return False

    def _refused(self, status: int, reason: str) -> Response:
        title = "A token is wanted" if status == 401 else f"Not admitted: {status}"
        model = {"title": title, "reason": reason}
        return HTMLResponse(page_of("sign_in.html.j2", model, _frame()), status)

    # ---------------------------------------------------------------------------- pages
    def _routes(self) -> FastAPI:
        handler = self._serving.handler
        app = FastAPI(title="weather", docs_url=None, redoc_url=None, openapi_url=None)

        @app.get("/", response_class=HTMLResponse)
        async def series_list(
            request: Request,
            words: Annotated[str, Query(max_length=200)] = "",
            order: Order = "series",
            descending: bool = False,
            page: Annotated[int, Query(ge=1, le=10**6)] = 1,
            over: Over = "",
        ) -> Response:
            query = nws.ListingQuery(words, order, descending, page)
            found = await handler.listing(query, over=float(over) if over else None)
            asked = ListAddress(words, order, descending, page, over)
            rows = [
                {**row_of(one), "address": series_address(one["series"])}
                for one in found["series"]
            ]
            model = {
                "asked": asked, "frames": FRAMES, "list": found, "rows": rows,
                "problems": handler.status().problems,
            }  # fmt: skip
            return await _sliced(
                page_pieces("series_list.html.j2", model, _frame(request, "Series"))
            )

        @app.get("/series", response_class=HTMLResponse)
        async def series(
            request: Request, name: Annotated[str, Query(max_length=400)], back: Back = "6"
        ) -> Response:
            forecasts = await _forecasts(handler, name)
            if forecasts[0]["state"] == "unknown":
                raise HTTPException(404, "Nothing was measured under that name.")
            now = time.time()
            span = 3600.0 * float(back)
            step = max(span / PLACES, forecasts[0]["period"] or 0.0)
            kept = await asyncio.to_thread(
                lambda: handler.kept(name, start=now - span, step=step).model_dump()
            )
            league = (await handler.league(name)).model_dump()
            model = {
                "one": await asyncio.to_thread(series_view, kept, forecasts, league, now - span, now),
                "back": back, "choices": HOURS, "problems": handler.status().problems,
                "address": lambda **changes: series_address(name, **{"back": back, **changes}),
            }  # fmt: skip
            return await _sliced(page_pieces("series.html.j2", model, _frame(request, "Series")))

        add_assets(app)
        handle_errors(app, _frame)
        return app


def _for_browser(scope: Scope) -> bool:
    """Return whether a request is for a page, and not for the service itself."""
    if scope["path"] in FOR_BROWSERS:
        return True
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept")
    return scope["path"] in NEGOTIATED and b"text/html" in accepted.lower()


async def _forecasts(handler: Any, name: str) -> list[Mapping[str, Any]]:
    """Return the forecasts of a series: of the next value with the last measured one, then of longer horizons."""
    first = await handler.forecast(name)
    found: list[Mapping[str, Any]] = [{**first.model_dump(), "latest": handler.latest(name)}]
    for horizon in nws.HORIZONS[1:] if first.period else ():
        longer_frame = await handler.forecast(name, over=horizon * (first.period or 0.0))
        found.append(longer_frame.model_dump())
    return longer(found)


async def _sliced(pieces: Iterator[str]) -> Response:
    """Return the page of these pieces, made in slices so that other requests run between them."""
    made, stop = [], time.perf_counter() + SLICE_SECONDS
    for piece in pieces:
        made.append(piece)
        if time.perf_counter() > stop:
            await asyncio.sleep(0)
            stop = time.perf_counter() + SLICE_SECONDS
    return HTMLResponse("".join(made))


def _frame(request: Request | None = None, here: str = "") -> Frame:
    session: Session | None = None if request is None else getattr(request.state, "session", None)
    token = session.token if session else ""
    return Frame(token, "", socket.gethostname(), None, here, PAGES, scripted=False)


@dataclass(frozen=True, slots=True)
class ListAddress:
    """The query of the list of series, and its address."""

    words: str
    order: str
    descending: bool
    page: int
    over: str

    def but(self, changes: Mapping[str, object]) -> str:
        """Return the address of the same list with changes."""
        return f"/?{urlencode({**asdict(self), **changes})}"


def series_address(series: str, **more: object) -> str:
    """Return the address of the page of a series.

    Examples
    --------
    >>> series_address("availableCpu/ada", back=6)
    '/series?name=availableCpu%2Fada&back=6'
    """
    return f"/series?{urlencode({'name': series, **more})}"
