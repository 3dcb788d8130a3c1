"""A live scheduler's HTTP, on a UNIX socket and where asked for over TLS: answers, events, figures.

On the socket the kernel says who is at the other end, over TLS a token; `access` has who may ask for what. Every
request is bounded in size, time and number; one too many is told so (429) and may come again.
"""

from __future__ import annotations

import io
import json
import os
import re
import socket
import socketserver
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from email.message import Message
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

import nws
from apples.cluster.access import (
    REQUESTS_A_SECOND,
    REQUESTS_AT_ONCE,
    ForbiddenError,
    Principal,
    RequestRate,
    Scope,
    UnknownCallerError,
    bearer,
    local_principal,
    route_of,
)
from apples.cluster.events import Event
from apples.cluster.orders import JobExecutor
from apples.cluster.scheduler import CrowdedError
from apples.cluster.service import TEXT, Call, SchedulerService
from apples.errors import ApplesError, LaunchError, UsageError
from apples.io.credentials import peer_credentials
from apples.io.tls import Tls, server_context
from apples.topology.daemon.fairness import ConnectionTable
from apples.topology.daemon.protocol import Caller

SOCKET: Final = "socket"
MOST_BODY: Final = 1 << 20
MOST_CONNECTIONS, MOST_OF_ONE = 64, 32
"""Of all but the operator together, and of one of them; the operator has as many beside them."""
MOST_STREAMS: Final = 24
"""Of the connections those that may be streams of events."""
# For the whole request. A timeout for each read would let one byte every 29 s hold a connection
# and its thread for ever.
REQUEST_SECONDS: Final = 30.0
"""For a request to be read."""
BEAT_SECONDS: Final = 10.0
"""Between two signs of life on a stream on which nothing happens."""
AGAIN_SECONDS: Final = 1
"""After which one who was refused for their number may come again."""
UNKNOWN, CROWDED = 401, 429
STATUS: Mapping[int, int] = {2: 400, 4: 503, 7: 504}
"""HTTP status by exit code."""

HANDSHAKE_SECONDS: Final = 10.0
# The kernel resets a connection that is closed with unread data, and the client loses the refusal.
# So the rest of the body is read for this long first.
LINGER_SECONDS: Final = 2.0
WITH_BODY = frozenset({"resize", "what_if"})
BY_USER = frozenset({"submit", "shepherd_reports"})


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Limits of the sockets of a scheduler.

    Attributes
    ----------
    streams
        Connections that may be streams of events.
    request_seconds, handshake_seconds
        Time-outs of one whole request, and of the TLS handshake before it.
    requests_at_once
        Requests of one principal at once; after that `REQUESTS_A_SECOND`.
    """

    streams: int = MOST_STREAMS
    request_seconds: float = REQUEST_SECONDS
    handshake_seconds: float = HANDSHAKE_SECONDS
    requests_at_once: float = REQUESTS_AT_ONCE


def refusal(status: int, error: ApplesError) -> Mapping[str, Any]:
    """Return the answer to a refused request."""
    transient = status >= 500 or status == CROWDED
    return {
        "reason": str(error),
        "exit_code": error.exit_code,
        "code": error.code,
        "fields": {**error.fields},
        "transient": transient,
    }


class _TimedReader(io.RawIOBase):
    """Reads a connection until a moment: who sends byte by byte gets no more time than who sends nothing."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.until = 0.0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Return how many bytes were read; TimeoutError when it is too late."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request did not come in time")
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    """One connection: requests one after the other, each bounded in size and time."""

    protocol_version = "HTTP/1.1"
    server: _Listener  # type: ignore[mutable-override]
    client_address: _Place  # type: ignore[assignment]

    def setup(self) -> None:
        """Limit the time to read a request, however many parts it comes in."""
        self._seconds = self.server.bounds.limits.request_seconds
        super().setup()
        self.connection.settimeout(self._seconds)
        self._reader = _TimedReader(self.connection)
        self.rfile.close()
        self.rfile = io.BufferedReader(self._reader)

    def handle_one_request(self) -> None:
        """Serve the next request."""
        self._reader.until = time.monotonic() + self._seconds
        super().handle_one_request()

    def address_string(self) -> str:
        return "socket"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as it is named there
        """Log nothing: what was asked is in the log of the scheduler."""

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def _serve(self, method: str) -> None:
        self._unread = self.headers.get("Content-Length", "0") != "0"
        try:
            principal = self._principal()
            route, names = route_of(method, self.path)
            principal.check(route.scope)
            body = self._body()
            self._unread = False
            if route.call == "events":
                self._stream()
                return
            if route.call == "shepherd_orders":
                orders = self.server.service.shepherd_orders(body, principal.name)
                self._answer(200, orders)
                return
            call = self._call(route.call, names, body, principal)
            if route.scope is Scope.OWN:
                call = self.server.service.owned(names[0], principal, call)
            self._answer(200, self.server.service.ask(call))
        except UnknownCallerError as error:
            self._refuse(401, error)
        except ForbiddenError as error:
            self._refuse(403, error)
        except LookupError:
            self._refuse(
                404,
                UsageError(
                    f"{method} {self.path[:80]}: there is no such thing",
                    code="route-unknown",
                    method=method,
                    path=self.path[:80],
                ),
            )
        except CrowdedError as error:
            self._refuse(429, error)
        except ApplesError as error:
            self._refuse(STATUS.get(error.exit_code, 500), error)

    def _principal(self) -> Principal:
        """Return who asks, if that is not too often: the operator may always, who is unknown counts by address."""
        try:
            principal = self.server.principal(self.connection, self.headers)
        except UnknownCallerError:
            self._count(self.client_address.caller.principal)
            raise
        if not principal.is_operator:
            self._count(principal.name)
        return principal

    def _count(self, name: str) -> None:
        if not self.server.bounds.rate.admits(name):
            raise CrowdedError(
                f"{name} asks more often than {REQUESTS_A_SECOND:g} times a second",
                principal=name, bound=REQUESTS_A_SECOND,
            )  # fmt: skip

    def _call(
        self, name: str, names: tuple[str, ...], body: Mapping[str, Any], principal: Principal
    ) -> Call:
        service = self.server.service
        if name in BY_USER:
            by_user: Call = getattr(service, name)(body, principal)
            return by_user
        if name == "what_if":
            principal.check_policy(str(body.get("policy", "")))
        call: Call = getattr(service, name)(*names, *((body,) if name in WITH_BODY else ()))
        return call

    def _body(self) -> Mapping[str, Any]:
        length = self.headers.get("Content-Length", "0")
        unmeasured = "Transfer-Encoding" in self.headers
        if unmeasured or not re.fullmatch(r"[0-9]{1,9}", length) or int(length) > MOST_BODY:
            self.close_connection = True
            raise UsageError(
                f"a request has at most {MOST_BODY} bytes, and a Content-Length",
                code="message-too-long", value=length[:20], bound=MOST_BODY,
            )  # fmt: skip
        if not int(length):
            return {}
        try:
            found = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            raise UsageError("a request is one JSON object", code="request-invalid") from None
        if not isinstance(found, dict):
            raise UsageError("a request is one JSON object", code="request-invalid")
        return found

    def _refuse(self, status: int, error: ApplesError) -> None:
        if self._unread:
            self.close_connection = True
        self._answer(status, refusal(status, error))

    def _answer(self, status: int, document: Mapping[str, Any]) -> None:
        text = document.get(TEXT)
        data = (json.dumps(document) if text is None else str(text)).encode()
        kind = "application/json" if text is None else "text/plain; version=0.0.4"
        with suppress(OSError):
            self.connection.settimeout(self._seconds)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            if status == CROWDED:
                self.send_header("Retry-After", str(AGAIN_SECONDS))
            if status == UNKNOWN:
                self.send_header("WWW-Authenticate", "Bearer")
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(data)

    # ------------------------------------------------------------------------------ events
    def _stream(self) -> None:
        """Say what happens until the other end is gone, or too slow, or the scheduler ends."""
        if not self.server.bounds.streams.acquire(blocking=False):
            most = self.server.bounds.limits.streams
            raise CrowdedError(f"there are {most} streams of events already", bound=most)
        try:
            with suppress(OSError, ApplesError):
                self._say_events(self.headers.get("Last-Event-ID", ""))
        finally:
            self.close_connection = True
            self.server.bounds.streams.release()

    def _say_events(self, identifier: str) -> None:
        log = self.server.service.events
        last = log.number_of(identifier)
        self.connection.settimeout(self._seconds)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        while not log.closed:
            events = None if last is None else log.after(last, BEAT_SECONDS)
            if events is None:
                whole = self.server.service.ask(self.server.service.queue_event())
                events = [Event(int(whole["number"]), "queue", json.dumps(whole["data"]))]
            for one in events:
                last = one.number
                text = f"id: {log.life}-{one.number}\nevent: {one.kind}\ndata: {one.data}\n\n"
                self.wfile.write(text.encode())
            if not events:
                self.wfile.write(b": nothing has happened\n\n")


def _too_many(reason: str) -> bytes:
    """Return what is said on a connection that there is no thread for."""
    error = LaunchError(reason, code="too-many-requests")
    data = json.dumps(refusal(CROWDED, error)).encode()
    head = (
        f"HTTP/1.1 {CROWDED} Too Many Requests\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\nRetry-After: {AGAIN_SECONDS}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + data


@dataclass(eq=False)
class _Place:
    """Who has a connection, and the connection."""

    caller: Caller
    connection: socket.socket

    def cancel(self) -> None:
        """Have the connection end: its place is another's."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


class _Bounds:
    """What there is room for on all sockets of a scheduler together."""

    def __init__(self, limits: ListenerLimits) -> None:
        self.limits = limits
        self.streams = threading.BoundedSemaphore(limits.streams)
        self.rate = RequestRate(time.monotonic, limits.requests_at_once)
        self._table = ConnectionTable[_Place](MOST_CONNECTIONS, MOST_OF_ONE, 0)
        self._lock = threading.Lock()

    def admit(self, place: _Place) -> str:
        """Take a connection in; return why not, or nothing."""
        with self._lock:
            return self._table.admit(place.caller, place)

    def leave(self, place: _Place) -> None:
        """Let a connection go."""
        with self._lock:
            self._table.leave(place.caller, place)


class _Listener(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """What the sockets have in common: a thread a connection, and so many of them.

    Parameters
    ----------
    bounds
        Of all sockets together.
    """

    daemon_threads = True
    request_queue_size = 128
    allow_reuse_address = True

    def __init__(self, address: Any, service: SchedulerService, bounds: _Bounds) -> None:
        self.service, self.bounds = service, bounds
        super().__init__(address, _Handler)

    @abstractmethod
    def principal(self, connection: socket.socket, headers: Message) -> Principal:
        """Return who asks.

        Raises
        ------
        UnknownCallerError, ForbiddenError
            Nobody who may ask for anything.
        """

    @abstractmethod
    def caller(self, connection: socket.socket, client_address: Any) -> Caller:
        """Return whose a connection is, before anything was said on it.

        Raises
        ------
        OSError
            Nobody's.
        """

    def listen(self) -> None:
        """Accept connections in a thread of its own, until `shutdown`."""
        threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.2}, name="listen", daemon=True
        ).start()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own, if there are not too many."""
        try:
            place = _Place(self.caller(request, client_address), request)
        except OSError:
            self.shutdown_request(request)
            return
        if refused := self.bounds.admit(place):
            with suppress(OSError):
                request.setblocking(False)
                request.send(_too_many(refused))
            self.shutdown_request(request)
            return
        super().process_request(request, place)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection to its end; its address is its `_Place` by now."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.bounds.leave(client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that is gone."""


class _LocalListener(_Listener):
    """Listens in a directory, reached by its descriptor: its path may be longer than a socket's may be."""

    address_family = socket.AF_UNIX  # type: ignore[mutable-override]

    def __init__(self, directory: Path, service: SchedulerService, bounds: _Bounds) -> None:
        (directory / SOCKET).unlink(missing_ok=True)
        self._directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        before = os.umask(0o111 if service.shepherds else 0o177)
        try:
            super().__init__(f"/proc/self/fd/{self._directory}/{SOCKET}", service, bounds)
        finally:
            os.umask(before)

    def principal(self, connection: socket.socket, headers: Message) -> Principal:  # noqa: ARG002 - the kernel's word alone
        """Return who asks, by the kernel's word."""
        return local_principal(connection, self.service.shepherds is not None)

    def caller(self, connection: socket.socket, client_address: Any) -> Caller:  # noqa: ARG002 - it has none
        """Return whose a connection is, by the kernel's word."""
        _, uid = peer_credentials(connection)
        return Caller(f"uid:{uid}", uid in {0, os.geteuid()})

    def server_close(self) -> None:
        """Stop listening."""
        super().server_close()
        os.close(self._directory)


class _NetworkListener(_Listener):
    """Listens for who shows a token, over TLS."""

    def __init__(self, tls: Tls, service: SchedulerService, bounds: _Bounds) -> None:
        self._context = server_context(tls.certificate, tls.key)
        self._tokens = nws.TokenFile(tls.tokens)
        self._host = tls.host
        self.address_family = socket.AF_INET6 if ":" in tls.host else socket.AF_INET
        try:
            super().__init__((tls.host, tls.port), service, bounds)
        except OSError as error:
            raise LaunchError(
                f"{tls.host}:{tls.port}: {error.strerror or error}",
                code="address-unusable", address=f"{tls.host}:{tls.port}", reason=error.strerror or str(error),
            ) from None  # fmt: skip

    @property
    def url(self) -> str:
        """Where it answers."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"https://{host}:{self.server_address[1]}"

    def principal(self, connection: socket.socket, headers: Message) -> Principal:  # noqa: ARG002 - the token's word alone
        """Return who asks, by its token."""
        principal = bearer(headers.get("Authorization", ""), self._tokens)
        if (
            self.service.shepherds is not None
        ):  # a token is no user of this machine: nobody would run its jobs
            return replace(principal, scopes=principal.scopes - {Scope.SUBMIT})
        return principal

    def caller(self, connection: socket.socket, client_address: Any) -> Caller:  # noqa: ARG002 - nothing was said on it
        """Return whose a connection is: all of one address are one's, until a token is shown."""
        return Caller(f"address {client_address[0]}")

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection when both ends have agreed on a key."""
        request.settimeout(self.bounds.limits.handshake_seconds)
        with self._context.wrap_socket(request, server_side=True) as secured:
            client_address.connection = secured
            super().finish_request(secured, client_address)
            with suppress(OSError):
                _linger(secured)


def _linger(connection: socket.socket) -> None:
    """Say that nothing more comes, and take what is still sent: closed at once, the last answer might be lost."""
    connection.shutdown(socket.SHUT_WR)
    reader = _TimedReader(connection)
    reader.until, left = time.monotonic() + LINGER_SECONDS, MOST_BODY
    while left > 0 and (count := len(reader.read(1 << 16) or b"")):
        left -= count


def serve(
    service: SchedulerService,
    executor: JobExecutor,
    directory: Path,
    ready: Callable[[str], None],
    tls: Tls | None = None,
    limits: ListenerLimits = ListenerLimits(),
) -> None:
    """Serve until `SchedulerService.stop`; jobs go on when this returns.

    Parameters
    ----------
    directory
        Where the socket is made.
    ready
        Called when it listens, with the URL for others; empty without `tls`.
    tls
        Where else to listen.
    limits
        Of all sockets together.

    Raises
    ------
    LaunchError
        It cannot listen there.
    """
    bounds = _Bounds(limits)
    network = None if tls is None else _NetworkListener(tls, service, bounds)
    listeners = [_LocalListener(directory, service, bounds), *filter(None, [network])]
    for one in listeners:
        one.listen()
    try:
        ready(network.url if network else "")
        service.run(executor)
    finally:
        for one in listeners:
            one.shutdown()
            one.server_close()
        with suppress(FileNotFoundError):
            (directory / SOCKET).unlink()
        executor.close()
        service.close()
