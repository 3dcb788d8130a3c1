"""The HTTP server of the service, and the addresses on which it may listen."""

import contextlib
import logging
import os
import re
import secrets
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import uvicorn
from starlette.types import ASGIApp

from nws.errors import NotStartedError
from nws.memory.connection import StorageError
from nws.memory.sqlite import Arrival
from nws.private import check_directory, read_secret
from nws.service.app import LOOPBACK, create_app
from nws.service.authorisation import MAX_HEAD, BodyLimits
from nws.service.database import ForecastDatabase, warm
from nws.service.handler import CLIQUE_PERIOD, RequestHandler
from nws.service.listening import Listen, address_unusable, bound_sockets, check_exposure
from nws.service.tokens import SCOPES, TokenFile, write_secret

_log = logging.getLogger(__name__)

OPERATOR: Final = "operator"
MAX_CONNECTIONS: Final = 512
REQUEST_SECONDS: Final = 10.0
"""How long a new connection may be open without a whole request head."""
SWITCH_SECONDS: Final = 0.0005
"""Maximum time that a thread keeps the interpreter; Python's default of 5 ms is the time of a request."""
SWEEP_TICKS: Final = 10
"""After how many tenths of a second connections are looked through."""
# Sensors report every 10 s; a shorter limit would reset their connections between two reports.
KEPT_SECONDS: Final = 30
NEXT_SECONDS: Final = 60.0
"""The same for the next request; a connection without one byte of it ends after `KEPT_SECONDS`."""


class ServiceManager:
    """The receiver of ``$NOTIFY_SOCKET`` (sd_notify(3)); without the variable nothing is sent.

    No call waits for the receiver. If its queue is full, `alive` sends the state again; the event
    loop calls `alive` ten times a second.

    Parameters
    ----------
    environment
        Where ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID`` are.

    Attributes
    ----------
    every
        Seconds after which `alive` is due, half of the unit's limit; None without a watchdog.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        given = os.environ if environment is None else environment
        place = given.get("NOTIFY_SOCKET", "")
        self._address = "\0" + place[1:] if place.startswith("@") else place
        allowed = given.get("WATCHDOG_USEC", "")
        ours = given.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        watched = bool(self._address) and allowed.isdigit() and int(allowed) > 0 and ours
        self.every = int(allowed) / 2e6 if watched else None
        self._sent_at = float("-inf")
        self._unsent = ""

    def ready(self, status: str) -> None:
        """Report that the service answers requests."""
        state = f"READY=1\nSTATUS={status}"
        self._unsent = "" if self._send(state) else state

    def alive(self, now: float) -> None:
        """Send the heartbeat if it is due, after an unsent state."""
        if self._unsent and self._send(self._unsent):
            self._unsent = ""
        due = self.every is not None and now - self._sent_at >= self.every
        if due and self._send("WATCHDOG=1"):
            self._sent_at = now

    def ending(self) -> None:
        """Report that the service stops."""
        self._send("STOPPING=1")

    def _send(self, state: str) -> bool:
        """Send a state; return False if the receiver's queue is full."""
        if not self._address:
            return True
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        try:
            with socket.socket(socket.AF_UNIX, kind) as out:
                out.sendto(state.encode(), self._address)
        except BlockingIOError:
            return False
        except OSError:  # the supervisor is gone
            return True
        return True


class Serving:
    """A running service, from construction (in a thread of its own) until `close`.

    Parameters
    ----------
    directory
        Directory of the database, the tokens and the operator's own token.
    listen
        The address.
    period
        Of the cliques, in seconds.
    limits
        Of one request.
    database
        Further arguments of `nws.service.database.ForecastDatabase`. Its engine is compiled before the service
        listens.
    own_process
        Whether only the service runs in this process, as under ``nws serve``. Then the garbage
        collector skips existing objects (12,000 series: 250 ms each time), and the
        threads that write to the disk release the interpreter to a request at once.
    pages
        Returns an application that also answers browsers, given the service and its application.
    head_seconds
        Maximum age of a new connection without a whole request head; by default 10.

    Attributes
    ----------
    token
        The operator's.
    handler, tokens
        The state that the routes share, and the valid tokens.
    names, secure
        Valid names in the Host header, and whether it is reached by HTTPS alone.
    """

    def __init__(
        self,
        directory: Path,
        listen: Listen | None = None,
        *,
        period: float = CLIQUE_PERIOD,
        limits: BodyLimits | None = None,
        database: dict[str, Any] | None = None,
        own_process: bool = False,
        pages: "AddPages | None" = None,
        head_seconds: float | None = None,
    ) -> None:
        listen = listen or Listen()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_directory(directory)
        self.tokens = TokenFile(directory / "tokens.json")
        self.token = _operator(directory, self.tokens)
        check_exposure(listen, self.tokens)

        def on_stored(arrivals: Sequence[Arrival]) -> None:
            self.handler.on_stored(arrivals)

        database = database or {}
        self.database = ForecastDatabase(directory, on_stored=on_stored, **database)
        self._sockets: list[socket.socket] = []
        try:
            self._sockets = bound_sockets(listen)
            warm(**{key: database[key] for key in ("profile", "engine") if key in database})
        except BaseException:
            self._put_away()
            raise
        mended: list[str] = []
        secret = _secret(directory, mended)
        self.handler = RequestHandler(self.database, secret, period, own_process=own_process)
        self.handler.mended += mended
        self.names = (*LOOPBACK, *listen.accepted)
        self.secure = listen.certificate is not None
        app: ASGIApp = create_app(self.handler, self.tokens, self.names, limits)
        self._server = HttpServer(app if pages is None else pages(self, app), listen)
        if head_seconds is not None:
            self._server.head_seconds = head_seconds
        if own_process:
            sys.setswitchinterval(SWITCH_SECONDS)
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The URL, with the host of `listen`; valid after the start."""
        return self._server.url

    def run(self, started: Callable[[], None] | None = None) -> None:
        """Serve until a signal asks to stop; then write waiting measurements and states.

        `started` is called when it answers.
        """
        self._server.started_well = started
        try:
            self._server.run(self._sockets)
        finally:
            self._put_away()

    def start(self, seconds: float = 30.0) -> Self:
        """Serve in a thread and return when it answers; TimeoutError if it does not."""
        self._thread = threading.Thread(
            target=self._server.run, args=(self._sockets,), name="nws serve", daemon=True
        )
        self._thread.start()
        self.wait(seconds)
        return self

    def wait(self, seconds: float) -> None:
        """Return when it answers."""
        deadline = time.monotonic() + seconds
        while not self._server.started:
            if time.monotonic() > deadline or (self._thread and not self._thread.is_alive()):
                raise NotStartedError(
                    f"the service did not start within {seconds} s", seconds=seconds
                )
            self._server.changed.wait(0.05)

    def close(self, seconds: float = 30.0) -> None:
        """Stop, and write waiting measurements and states."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(seconds)
        self._put_away()

    def _put_away(self) -> None:
        """Close sockets and database; without room for the states the measurements give the same forecasts."""
        for one in self._sockets:
            one.close()
        try:
            self.database.close()
        except StorageError as error:
            _log.warning("states are not saved: %s", error)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()


AddPages = Callable[[Serving, ASGIApp], ASGIApp]


class HttpServer(uvicorn.Server):
    """An ASGI application behind HTTP: heads are bounded in bytes and time, TLS is 1.2 at least.

    Parameters
    ----------
    app
        The application.
    listen
        The address, checked by `check_exposure`.

    Attributes
    ----------
    started_well
        Is called once it answers.
    ending
        Is called when it stops, before it waits for open requests: to end streams without an end.
    """

    def __init__(self, app: Any, listen: Listen) -> None:
        super().__init__(_config(app, listen))
        self._listen = listen
        self._host, self._scheme = listen.host, "https" if listen.certificate else "http"
        self.changed = threading.Event()
        self._manager = ServiceManager()
        self.started_well: Callable[[], None] | None = None
        self.ending: Callable[[], None] | None = None
        self.head_seconds = REQUEST_SECONDS
        self._silent: dict[int, tuple[object, float]] = {}

    @property
    def port(self) -> int:
        """The port on which it listens, once it has started."""
        return int(self.servers[0].sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """The URL, with the host of `listen`; valid after the start."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{self._scheme}://{host}:{self.port}"

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at SIGTERM and SIGINT, and write waiting measurements first."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        ends = (signal.SIGTERM, signal.SIGINT)
        before = {each: signal.signal(each, self.handle_exit) for each in ends}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    async def startup(self, sockets: Any = None) -> None:
        """Listen, and report that the service answers."""
        try:
            await super().startup(sockets)
        except OSError as error:  # bound to the same port, another began to listen first
            raise address_unusable(self._listen, error) from error
        self.changed.set()
        if self.started:
            self._manager.ready("answers")
            if self.started_well is not None:
                self.started_well()

    async def shutdown(self, sockets: Any = None) -> None:
        """Stop listening, and wait for open requests."""
        self._manager.ending()
        if self.ending is not None:
            self.ending()
        await super().shutdown(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Close silent connections, ten times a second; return whether to stop."""
        now = time.monotonic()
        self._manager.alive(now)
        if counter % SWEEP_TICKS == 0:
            self._sweep(now)
        return await super().on_tick(counter)

    def _sweep(self, now: float) -> None:
        silent: dict[int, tuple[object, float]] = {}
        for connection in list(self.server_state.connections):
            cycle = getattr(connection, "cycle", None)
            if cycle is not None and not cycle.response_complete:
                continue
            known = self._silent.get(id(connection))
            since = known[1] if known is not None and known[0] is cycle else now
            if now - since > (self.head_seconds if cycle is None else NEXT_SECONDS):
                transport = getattr(connection, "transport", None)
                if transport is not None:
                    transport.abort()
            else:
                silent[id(connection)] = cycle, since
        self._silent = silent


def _config(app: Any, listen: Listen) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        host=listen.host,
        port=listen.port,
        http="h11",
        loop="asyncio",
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEPT_SECONDS,
        timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=MAX_HEAD,
        ssl_certfile=listen.certificate,
        ssl_keyfile=listen.key,
    )
    if listen.certificate is not None:
        config.load()
        if config.ssl is not None:
            config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
    return config


def _operator(directory: Path, tokens: TokenFile) -> str:
    """Return the operator's own token, made at the first start, in a file only the user reads."""
    path = directory / "token"
    if path.exists() or path.is_symlink():
        secret = read_secret(path).decode(errors="replace").strip()
        if tokens.find(secret) is not None:
            return secret
    secret = tokens.issue(OPERATOR, SCOPES)
    write_secret(path, secret + "\n")
    return secret


def _secret(directory: Path, mended: list[str]) -> str:
    """Return the secret of the link probes; move a damaged file aside, and report it."""
    path = directory / "probing"
    if path.exists() or path.is_symlink():
        found = read_secret(path).strip()
        if SECRET.fullmatch(found):
            return found.decode()
        aside = path.with_name(f"{path.name}.bad-{secrets.token_hex(4)}")
        path.replace(aside)
        mended.append(
            f"{path}: was damaged and is set aside as {aside.name}; sensors that were started before "
            "cannot probe those started after: start them again"
        )
    write_secret(path, secrets.token_hex(32) + "\n")
    return read_secret(path).decode().strip()


SECRET: Final = re.compile(rb"[0-9a-f]{16,256}")
