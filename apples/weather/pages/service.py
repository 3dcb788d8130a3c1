"""The pages of ``nws serve``: its series, one of them with its league, and the form for a token that may read.

They stand beside the routes of the service, in its process and its event loop: what is asked for ``text/html`` at
their addresses is theirs, all else the service's own, whose refusals stay JSON. Nothing is made in one piece that
takes long: the service has other callers.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

import nws
from apples.ui.page import pieces, render
from apples.ui.web.answers import add_assets, handle_errors
from apples.ui.web.frame import Frame, served_style
from apples.ui.web.gate import ENTER, Gate, Session, Sessions
from apples.weather.pages.series import longer, row_of, series_view
from nws import RefusedRequestError

ADMITTED_SECONDS = 12 * 3600.0
"""For how long a browser stays admitted."""
SLICE_SECONDS = 0.001
"""How long a page is made before other callers get a turn, as in the service itself."""
READ = "read"
FOR_BROWSERS = frozenset({ENTER, "/style.css"})
"""Addresses that the service itself does not have; at those of `NEGOTIATED` what is accepted decides."""
NEGOTIATED = frozenset({"/", "/series"})

Order = Literal["series", "value", "age"]
Over = Literal["", "60", "300", "3600"]
Back = Literal["1", "6", "24", "168"]
Document = Mapping[str, Any]
TEMPLATES = "apples.weather"

PAGES: Mapping[str, str] = {"/": "Series"}
FRAMES: Mapping[str, str] = {
    "": "the next value", "60": "the next minute", "300": "the next 5 min", "3600": "the next hour",
}  # fmt: skip
"""What the list can be asked to forecast: seconds, and in words."""
HOURS: Mapping[str, str] = {"1": "hour", "6": "6 hours", "24": "day", "168": "week"}
"""How far back the page of a series can look."""
PLACES = 240
"""Of the drawing, across what was measured."""


class WeatherPages:
    """The pages of a weather service, and what admits a browser to them.

    Parameters
    ----------
    on_link
        Is told the address of each one-time link that admits a browser.
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
        served_style()  # templates are loaded before anybody waits for a page

        async def either(scope: Scope, receive: Receive, send: Send) -> None:
            theirs = scope["type"] == "http" and _for_browser(scope)
            await (gate if theirs else application)(scope, receive, send)

        return either

    def announce(self) -> None:
        """Tell the address of the link that works now."""
        self._sessions.announce()

    # ------------------------------------------------------------------ who is admitted
    def _token_of(self, secret: str) -> nws.Token | None:
        """Return the token that a secret is; None: none that is good now, or nobody can tell."""
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
                f"This token is good for {', '.join(token.scopes)}; these pages need one that may {READ}.",
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
        return HTMLResponse(sign_in_page(_frame(), title, reason), status)

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
            problems = handler.status(0).problems
            return await _sliced(list_page(_frame(request, "Series"), asked, found, problems))

        @app.get("/series", response_class=HTMLResponse)
        async def series(
            request: Request,
            name: Annotated[str, Query(max_length=400)],
            back: Back = "6",
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
            league = handler.league(name).model_dump()
            problems = handler.status(0).problems
            made = await asyncio.to_thread(
                series_page,
                _frame(request, "Series"),
                kept,
                forecasts,
                league,
                problems,
                back,
                now,
            )
            return await _sliced(made)

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
    """Return the forecasts of a series: of its next value with the last measured one, then of longer frames."""
    first = handler.forecast(name)
    found: list[Mapping[str, Any]] = [{**first, "latest": handler.latest(name)}]
    period = first["period"]
    for horizon in nws.HORIZONS[1:] if period else ():
        await asyncio.sleep(0)
        found.append(handler.forecast(name, over=horizon * period))
    return longer(found)


async def _sliced(pieces: Iterator[str]) -> Response:
    """Return the page that these are, others served while it is made."""
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
    """What the list of series was asked for, which is its address."""

    words: str
    order: str
    descending: bool
    page: int
    over: str

    def but(self, **changes: object) -> str:
        """Return the address of the same list with changes."""
        asked = {name: getattr(self, name) for name in self.__slots__}
        return f"/?{urlencode({**asked, **changes})}"


def sign_in_page(frame: Frame, title: str, reason: str) -> str:
    """Return the form for a token, and why it is shown."""
    return render("sign_in.html.j2", TEMPLATES, frame=frame, title=title, reason=reason)


def list_page(
    frame: Frame, asked: ListAddress, found: Document, problems: Sequence[str]
) -> Iterator[str]:
    """Yield the list of series piece by piece.

    Parameters
    ----------
    found
        As of `nws.service.handler.RequestHandler.listing`.
    problems
        What is wrong with the service.
    """
    return pieces(
        "series_list.html.j2", TEMPLATES, frame=frame, asked=asked, frames=FRAMES, list=found, problems=problems,
        rows=[{**row_of(one), "address": series_address(one["series"])} for one in found["series"]],
    )  # fmt: skip


def series_page(
    frame: Frame,
    kept: Document,
    forecasts: Sequence[Document],
    league: Document,
    problems: Sequence[str],
    back: str,
    now: float,
) -> Iterator[str]:
    """Yield the page of a series piece by piece.

    Parameters
    ----------
    kept
        As ``/v1/range`` on a grid, of the latest hours.
    forecasts
        As ``nws.forecast/1``: of the next value, then over more and more seconds.
    league
        As ``/v1/league``.
    """
    series = kept["series"]
    return pieces(
        "series.html.j2", TEMPLATES, frame=frame,
        one=series_view(kept, forecasts, league, now - 3600 * float(back), now),
        back=back, choices=HOURS, problems=problems,
        address=lambda **changes: series_address(series, **{"back": back, **changes}),
    )  # fmt: skip


def series_address(series: str, **more: object) -> str:
    """Return the address of the page of a series.

    Examples
    --------
    >>> series_address("availableCpu/ada", back=6)
    '/series?name=availableCpu%2Fada&back=6'
    """
    return f"/series?{urlencode({'name': series, **more})}"
