"""The served site: the frame, streams and state of its pages, and the routes of each package."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path as FilePath
from typing import Annotated, TypeVar, cast

from fastapi import FastAPI, Path, Query, Request
from fastapi.responses import HTMLResponse, Response
from starlette.middleware.gzip import GZipMiddleware

from apples.ui.shell import page
from apples.ui.web.answers import add_assets, handle_errors
from apples.ui.web.event_log import event_response
from apples.ui.web.frame import Frame, said_page
from apples.ui.web.gate import LOOPBACK, Gate, Session, Sessions
from apples.ui.web.streams import PING_SECONDS, SEND_SECONDS, LiveStream, Streams

MIN_COMPRESSED = 4 << 10

# Parameters of routes of several rooms.
HostName = Annotated[str, Path(pattern="^[A-Za-z0-9._-]{1,253}$")]
Since = Annotated[str, Query(max_length=40)]
PageNumber = Annotated[int, Query(ge=1, le=10**6)]

State = TypeVar("State")


class Site:
    """The data that every route needs: folder, directories of schedulers, streams, shared state, page frame.

    Parameters
    ----------
    path
        The folder of the files; routes that need it reject a folder that does not exist.
    schedulers
        Directories of live schedulers that get pages, in addition to this user's.
    streams
        Streams of open pages. The server closes them at its end; otherwise their readers would keep it running.
    """

    def __init__(
        self,
        path: FilePath,
        *,
        schedulers: Sequence[FilePath] = (),
        streams: Streams | None = None,
    ) -> None:
        self.path, self.schedulers = path, schedulers
        self.streams = Streams() if streams is None else streams
        self._folder = str(path.resolve())
        self._shared: dict[type, object] = {}

    def shared(self, kind: type[State]) -> State:
        """Return the one object of a class for the routes of all packages; the first call creates it."""
        if kind not in self._shared:
            self._shared[kind] = kind()
        return cast("State", self._shared[kind])

    def frame(self, request: Request | None, here: str = "") -> Frame:
        """Return the frame of the page for a request."""
        session: Session | None = (
            None if request is None else getattr(request.state, "session", None)
        )
        if session is None or request is None:
            return Frame("", self._folder, socket.gethostname(), None, here)
        # A page that its own script fetches keeps the message for the next opened page.
        is_opened = request.headers.get("sec-fetch-dest", "document") == "document"
        token, said = session.token, session.take_said() if is_opened else None
        return Frame(token, self._folder, socket.gethostname(), said, here)

    def page(self, request: Request, here: str, template: str, model: object) -> str:
        """Return the page for a request, made by `apples.ui.shell.page`."""
        return page(template, model, self.frame(request, here))

    def followed(
        self, request: Request, since: str, name: str, make: Callable[[], LiveStream]
    ) -> Response:
        """Return the events of a page, after the last event of its reader."""
        since = request.headers.get("last-event-id", since)[:40]
        events = self.streams.of(name, make).follow(since)
        return event_response(events, PING_SECONDS, SEND_SECONDS)


def create_app(
    site: Site,
    pages: Sequence[str],
    sessions: Sessions,
    names: tuple[str, ...] = (),
    *,
    secure: bool = False,
) -> Gate:
    """Return the application inside its gate.

    Parameters
    ----------
    pages
        Modules with the routes of each package; ``add(app, site)`` of each is called, in order.
    names
        Allowed Host headers in addition to the names of loopback.
    secure
        Whether the server is reached only by HTTPS.
    """
    app = FastAPI(title="apples", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(GZipMiddleware, minimum_size=MIN_COMPRESSED, compresslevel=4)
    for module in pages:
        import_module(module).add(app, site)
    add_assets(app)
    handle_errors(app, site.frame)

    def refuse(status: int, reason: str) -> Response:
        return HTMLResponse(
            said_page(site.frame(None), f"Not admitted: {status}", [reason]), status
        )

    return Gate(app, sessions, refuse, (*LOOPBACK, *names), secure=secure)
