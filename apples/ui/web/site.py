"""The served site: the frame, streams and state of its pages, and the routes that each room adds."""

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
    """What every route needs: the folder, directories of schedulers, streams, shared state, a page's frame.

    Parameters
    ----------
    path
        The folder whose files are shown; the routes that show them reject one that does not exist.
    schedulers
        Directories of live schedulers that have pages besides this user's own.
    streams
        Those of open pages. The server closes them when it ends; otherwise their readers keep it running.
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
        """Return the one object of a class that the routes of all rooms share; the first call makes it."""
        if kind not in self._shared:
            self._shared[kind] = kind()
        return cast("State", self._shared[kind])

    def frame(self, request: Request | None, here: str = "") -> Frame:
        """Return what stands around the page that answers a request."""
        session: Session | None = (
            None if request is None else getattr(request.state, "session", None)
        )
        if session is None or request is None:
            return Frame("", self._folder, socket.gethostname(), None, here)
        # A page that its own script fetches leaves the message to the page that is opened next.
        is_opened = request.headers.get("sec-fetch-dest", "document") == "document"
        token, said = session.token, session.take_said() if is_opened else None
        return Frame(token, self._folder, socket.gethostname(), said, here)

    def page(self, request: Request, here: str, template: str, model: object) -> str:
        """Return the page that answers a request, as `apples.ui.shell.page` makes it."""
        return page(template, model, self.frame(request, here))

    def followed(
        self, request: Request, since: str, name: str, make: Callable[[], LiveStream]
    ) -> Response:
        """Return what happens on a page, from the event on that its reader had last."""
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
    """Return the application, its gate around it.

    Parameters
    ----------
    pages
        Names of the modules with the routes of each room; ``add(app, site)`` of each is called, in order.
    names
        What the Host header may say besides the names of loopback.
    secure
        Whether it is reached by HTTPS alone.
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
