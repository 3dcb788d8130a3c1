"""HTTP of a live scheduler on its UNIX socket and, with TLS, on a network address: Starlette, served by uvicorn.

The server runs in a thread of its own. A request waits in another thread for the deciding thread's answer. On the
socket the kernel identifies the peer, over TLS a token does; `access` has the scopes. Every request is bounded in
size, time and number: a client that exceeds its number gets status 429 and may try again.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route as HttpRoute
from starlette.types import Message, Receive, Send
from starlette.types import Scope as HttpScope
from uvicorn.protocols.http.h11_impl import H11Protocol

import nws
from apples.cluster.access import (
    REQUESTS_A_SECOND,
    REQUESTS_AT_ONCE,
    ROUTES,
    ForbiddenError,
    Principal,
    RequestRate,
    Route,
    Scope,
    UnknownCallerError,
    bearer,
    local_principal,
)
from apples.cluster.admission import CrowdedError
from apples.cluster.answers import Document
from apples.cluster.history import JsonText
from apples.cluster.orders import JobExecutor
from apples.cluster.service import TEXT, SchedulerService
from apples.errors import ApplesError, LaunchError, UsageError, failure_of
from apples.io.credentials import peer_credentials
from apples.io.tls import Tls, server_context
from apples.topology.daemon.fairness import ConnectionTable
from apples.topology.daemon.protocol import Caller
from apples.ui.web.event_log import Event, event_response

SOCKET: Final = "socket"
MAX_BODY: Final = 1 << 20
MAX_HEAD: Final = 64 << 10
MAX_CONNECTIONS, MAX_OF_ONE = 64, 32
"""Connections of all users but the operator, and of one user; the operator has the same number in addition."""
MAX_STREAMS: Final = 24
"""Number of the connections that may be streams of events."""
MAX_STREAMS_OF_USER, OPERATOR_STREAMS = 8, 4
"""Streams of one user other than the operator, and streams that are reserved for the operator."""
REQUEST_SECONDS: Final = 30.0
"""Time limit for reading a whole request, and for a client to take a part of an answer."""
BEAT_SECONDS: Final = 10.0
"""Time limit for the end of a stream after its reader's token was revoked or has expired."""
RETRY_SECONDS: Final = 1
"""Time after which a client with status 429 may try again."""
UNKNOWN, CROWDED = 401, 429
STATUS: Mapping[int, int] = {2: 400, 4: 503, 7: 504}
"""HTTP status by exit code."""
STATUS_OF_KIND: Mapping[type[ApplesError], int] = {
    UnknownCallerError: UNKNOWN, ForbiddenError: 403, CrowdedError: CROWDED,
}  # fmt: skip
"""HTTP status by class of error; it takes precedence."""

HANDSHAKE_SECONDS: Final = 10.0
START_SECONDS: Final = 30.0
"""Time limit for the server's thread to start or to end."""
GRACE_SECONDS: Final = 5
"""Time limit at the end for unfinished answers."""
WITH_BODY = frozenset({"resize", "what_if", "history", "submit", "predict", "job_runner_reports"})
BY_USER = frozenset({"submit", "predict", "job_runner_reports", "cancel"})


Result = TypeVar("Result")


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
    beat_seconds
        Interval of heartbeat comments on a stream without events, and of the checks of its reader's token.
    """

    streams: int = MAX_STREAMS
    request_seconds: float = REQUEST_SECONDS
    handshake_seconds: float = HANDSHAKE_SECONDS
    requests_at_once: float = REQUESTS_AT_ONCE
    beat_seconds: float = BEAT_SECONDS


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


class StreamPlaces:
    """The streams of events: their number, and their number for each user."""

    def __init__(self, limit: int = MAX_STREAMS) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    def take(self, principal: Principal) -> None:
        """Take a place; raise `CrowdedError` if none is free for this user."""
        with self._lock:
            taken = self._taken.total()
            if taken >= self._limit:
                most = self._limit
                raise CrowdedError(f"there are {most} streams of events already", bound=most)
            if not principal.is_operator:
                bound = min(MAX_STREAMS_OF_USER, self._limit)
                if self._taken[principal.name] >= bound:
                    raise CrowdedError(
                        f"{principal.name} has {bound} streams of events already",
                        principal=principal.name, bound=bound,
                    )  # fmt: skip
                most = max(1, self._limit - OPERATOR_STREAMS)
                if taken >= most:
                    raise CrowdedError(f"there are {most} streams of events already", bound=most)
            self._taken[principal.name] += 1

    def give_back(self, principal: Principal) -> None:
        """Give a place back."""
        with self._lock:
            self._taken[principal.name] -= 1
            self._taken += Counter()  # removes users with no stream


# ------------------------------------------------------------------------------- connections
@dataclass(eq=False)
class _Peer:
    """The peer of a connection.

    Attributes
    ----------
    uid
        Its user, from the kernel; None: it is on another machine, and presents a token.
    asking
        Its requests without an answer: each occupies a thread, also after the connection is lost.
    is_lost
        Whether the connection is lost.
    """

    caller: Caller
    connection: socket.socket
    uid: int | None = None
    asking: int = 0
    is_lost: bool = False

    def cancel(self) -> None:
        """End the connection."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True)
class _Listening:
    """A listening socket: a network socket if it has `tls`, else a UNIX socket."""

    listener: socket.socket
    tls: ssl.SSLContext | None = None

    def peer(self, connection: socket.socket, address: Any) -> _Peer:
        """Return the peer of an accepted connection, before it has sent anything.

        Raises
        ------
        OSError
            The kernel does not identify the peer.
        """
        if self.tls is not None:  # connections from one address count as one caller's
            return _Peer(Caller(f"address {address[0]}"), connection)
        _, uid = peer_credentials(connection)
        return _Peer(Caller(f"uid:{uid}", uid in {0, os.geteuid()}), connection, uid)


class _Connection(H11Protocol):
    """One connection. It has `request_seconds` for each request, from the end of the last answer on.

    While the client takes parts of that answer, the time limit starts again with each part. A timeout for each
    read would let a client with one byte every 29 s hold a connection for ever.
    """

    def __init__(self, server: _Server, peer: _Peer) -> None:
        super().__init__(server.config, server.server_state, {"peer": peer})
        self._server, self._peer = server, peer
        self._timer: asyncio.TimerHandle | None = None
        self._buffered: float = math.inf

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._peer.is_lost = True
        self._server.leave(self._peer)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._buffered = math.inf
        super().on_response_complete()
        self._start_timer()

    def _start_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        seconds = self._server.limits.request_seconds
        self._timer = self.loop.call_later(seconds, self._check_time)

    def _check_time(self) -> None:
        """End the connection, unless a whole request has come and its answer is being made, sent or taken."""
        left = self.transport.get_write_buffer_size()
        is_taking = 0 < left < self._buffered  # also of a complete answer, and while it closes
        self._buffered = left
        cycle = self.cycle
        answering = cycle is not None and not (cycle.response_complete or cycle.more_body)
        if is_taking or (answering and not self.transport.is_closing()):
            self._start_timer()
        else:
            self._peer.cancel()


class _Server(uvicorn.Server):
    """The server of all sockets of a scheduler.

    It accepts connections itself: it counts them before a handshake, and the kernel identifies their peers.
    """

    def __init__(self, app: _Bounded, listening: list[_Listening], limits: ListenerLimits) -> None:
        super().__init__(uvicorn.Config(
            self._asked, interface="asgi3", http="h11", loop="asyncio", ws="none", lifespan="off", log_config=None,
            log_level="critical", access_log=False, server_header=False, proxy_headers=False,
            timeout_keep_alive=math.ceil(limits.request_seconds), timeout_graceful_shutdown=GRACE_SECONDS,
            h11_max_incomplete_event_size=MAX_HEAD,
        ))  # fmt: skip
        self._app, self.limits = app, limits
        self.table = ConnectionTable[_Peer](MAX_CONNECTIONS, MAX_OF_ONE, 0)
        self.is_up = threading.Event()
        self._listening = listening
        self._tasks: set[asyncio.Task[None]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 - it has its own
        """Accept connections from now on."""
        self.servers = []
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(2 * MAX_CONNECTIONS, "request"))
        for each in self._listening:
            self._start(self._accept(each))
        self.started = True
        self.is_up.set()

    def wait(self, thread: threading.Thread) -> None:
        """Wait until the server's thread accepts connections.

        Raises
        ------
        LaunchError
            The server does not start. Transient.
        """
        deadline = time.monotonic() + START_SECONDS
        while not self.is_up.wait(0.1):
            if time.monotonic() > deadline or not thread.is_alive():
                raise LaunchError("the HTTP server did not start", code="server-not-started")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and let unfinished answers complete."""
        for task in self._tasks:
            task.cancel()
        await super().shutdown(sockets)

    async def _asked(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        """Answer a request; its peer keeps its place until then."""
        peer: _Peer = scope["state"]["peer"]
        peer.asking += 1
        try:
            await self._app(scope, receive, send)
        finally:
            peer.asking -= 1
            self.leave(peer)

    def leave(self, peer: _Peer) -> None:
        """Free the place of a lost connection, once none of its requests occupies a thread."""
        if peer.is_lost and not peer.asking:
            self.table.leave(peer.caller, peer)

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: _Listening) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listening.listener)
            except OSError:  # too many open files, or the peer has gone
                await asyncio.sleep(0.1)
                continue
            try:
                peer = listening.peer(connection, address)
            except OSError:
                connection.close()
                continue
            if refused := self.table.admit(peer.caller, peer):
                with suppress(OSError):
                    connection.send(_too_many(refused))
                connection.close()
            else:
                self._start(self._connect(peer, listening.tls))

    async def _connect(self, peer: _Peer, tls: ssl.SSLContext | None) -> None:
        """Serve an accepted connection; with TLS, after the handshake."""
        seconds = None if tls is None else self.limits.handshake_seconds
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: _Connection(self, peer), peer.connection, ssl=tls,
                ssl_handshake_timeout=seconds, ssl_shutdown_timeout=seconds,
            )  # fmt: skip
        except (OSError, EOFError):
            self.table.leave(peer.caller, peer)
            peer.connection.close()


def _too_many(reason: str) -> bytes:
    """Return the answer on a connection that is not admitted."""
    error = LaunchError(reason, code="too-many-requests")
    data = json.dumps(refusal(CROWDED, error)).encode()
    head = (
        f"HTTP/1.1 {CROWDED} Too Many Requests\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\nRetry-After: {RETRY_SECONDS}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + data


# ---------------------------------------------------------------------------------- requests
@dataclass
class _Bounded:
    """The application; a client that takes no data for `request_seconds` loses its connection."""

    app: Starlette
    limits: ListenerLimits

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            try:
                async with asyncio.timeout(self.limits.request_seconds):
                    await send(message)
            except TimeoutError:
                scope["state"]["peer"].cancel()
                raise

        await self.app(scope, receive, sent)


@dataclass
class _Requests:
    """Answers requests.

    Attributes
    ----------
    tokens
        Tokens of peers on other machines; None: only the UNIX socket is open.
    """

    service: SchedulerService
    tokens: nws.TokenFile | None
    limits: ListenerLimits
    streams: StreamPlaces = field(init=False)
    rate: RequestRate = field(init=False)

    def __post_init__(self) -> None:
        self.streams = StreamPlaces(self.limits.streams)
        self.rate = RequestRate(time.monotonic, self.limits.requests_at_once)

    def application(self) -> Starlette:
        """Return the application: the table of routes, and a refusal of all others."""
        routes = [
            HttpRoute(route.path, self._endpoint(route), methods=[route.method])
            for route in ROUTES
        ]
        every = [*{route.method for route in ROUTES}, "DELETE", "HEAD", "OPTIONS", "PATCH", "PUT"]
        return Starlette(
            routes=[*routes, HttpRoute("/{path:path}", self._endpoint(None), methods=every)]
        )

    def _endpoint(self, route: Route | None) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            try:
                principal = await _in_thread(self._principal, request)
                if route is None:
                    raise _unknown_route(request)  # noqa: TRY301 - one place makes the answer
                principal.check(route.scope)
                body = (
                    {**request.query_params} if route.call == "history" else await _body(request)
                )
                if route.call == "events":
                    return self._stream(request, principal)
                names = tuple(request.path_params.values())
                return await _in_thread(self._answer, route, names, body, principal)
            except ClientDisconnect:
                raise
            except Exception as error:  # noqa: BLE001 - an error of one request must not end the others
                return _refused(
                    failure_of(error).error() if not isinstance(error, ApplesError) else error
                )

        return answer

    def _principal(self, request: Request) -> Principal:
        """Return the caller after a check of its request rate, which has no limit for the operator.

        An unknown caller counts by its address.
        """
        peer: _Peer = request.state.peer
        shared = self.service.job_runners is not None
        if peer.uid is not None:
            principal = local_principal(peer.uid, shared)
        else:
            assert self.tokens is not None  # noqa: S101 - for the type checker: TLS has a token file
            try:
                principal = bearer(request.headers.get("authorization", ""), self.tokens)
            except UnknownCallerError:
                self._count(peer.caller.principal)
                raise
            if shared:  # a token is no user of this machine, so no job runner would run its jobs
                principal = replace(principal, scopes=principal.scopes - {Scope.SUBMIT})
        if not principal.is_operator:
            self._count(principal.name)
        return principal

    def _count(self, name: str) -> None:
        if not self.rate.admits(name):
            raise CrowdedError(
                f"{name} asks more often than {REQUESTS_A_SECOND:g} times a second",
                principal=name, bound=REQUESTS_A_SECOND,
            )  # fmt: skip

    def _answer(
        self,
        route: Route,
        names: tuple[str, ...],
        body: Mapping[str, Any],
        principal: Principal,
    ) -> Response:
        """Return the answer to a request after waiting for it."""
        service = self.service
        if route.call == "job_runner_orders":
            return _answered(service.job_runner_orders(body, principal.name))
        if route.call == "what_if":
            principal.check_policy(str(body.get("policy", "")))
        method = getattr(service, route.call)
        words: list[Any] = [*names]
        words += [body] if route.call in WITH_BODY else []
        call = method(*words, *([principal] if route.call in BY_USER else []))
        if route.scope is Scope.OWN:
            call = service.owned(names[0], principal, call)
        return _answered(service.ask(call))

    def _stream(self, request: Request, principal: Principal) -> Response:
        """Return the stream of events after the reader's last."""
        service = self.service

        def queue() -> Event:
            whole = service.ask(service.queue_event())
            return Event(int(whole["number"]), "queue", json.dumps(whole["data"]))

        async def anew() -> Event:
            return await _in_thread(queue)

        async def allowed() -> bool:
            return await _in_thread(self._may_still_read, request)

        async def events() -> AsyncIterator[bytes]:
            since = request.headers.get("last-event-id", "")
            followed = service.events.follow(since, anew, allowed, self.limits.beat_seconds)
            with suppress(
                ApplesError
            ):  # raised here, it would reach the caller in an exception group
                async for event in followed:
                    yield event

        self.streams.take(principal)
        return _Stream(events(), self.limits, lambda: self.streams.give_back(principal))

    def _may_still_read(self, request: Request) -> bool:
        """Return whether the token of a request is still valid for reading; peers of the socket need none."""
        peer: _Peer = request.state.peer
        if self.tokens is None or peer.uid is not None:
            return True
        try:
            bearer(request.headers.get("authorization", ""), self.tokens).check(Scope.READ)
        except (UnknownCallerError, ForbiddenError):
            return False
        return True


class _Stream(Response):
    """A stream of events that frees its place at its end."""

    def __init__(
        self, events: AsyncIterator[bytes], limits: ListenerLimits, over: Callable[[], None]
    ) -> None:
        super().__init__()
        self._response = event_response(events, limits.beat_seconds, 2 * limits.request_seconds)
        self._over = over

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        try:
            with suppress(TimeoutError):
                await self._response(scope, receive, send)
        finally:
            self._over()


async def _in_thread(work: Callable[..., Result], *words: Any) -> Result:
    return await asyncio.get_running_loop().run_in_executor(None, work, *words)


async def _body(request: Request) -> Mapping[str, Any]:
    """Return the JSON object of a request's body; the server has limited the time for it."""
    length = request.headers.get("content-length", "0")
    unmeasured = "transfer-encoding" in request.headers
    if unmeasured or not re.fullmatch(r"[0-9]{1,9}", length) or int(length) > MAX_BODY:
        raise UsageError(
            f"a request has at most {MAX_BODY} bytes, and a Content-Length",
            code="message-too-long", value=length[:20], bound=MAX_BODY,
        )  # fmt: skip
    if not int(length):
        return {}
    try:
        found = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise UsageError("expected a request of one JSON object", code="request-invalid") from None
    if not isinstance(found, dict):
        raise UsageError("expected a request of one JSON object", code="request-invalid")
    return found


def _answered(document: Document) -> Response:
    text = document.get(TEXT)
    if text is not None:
        return Response(str(text), media_type="text/plain; version=0.0.4")
    return Response(_encoded(document), media_type="application/json")


def _text(value: Any) -> str:
    return value if isinstance(value, JsonText) else json.dumps(value)


def _encoded(document: Document) -> bytes:
    """Return a document as JSON."""
    # Elements of lists one by one: encoding a long list at once would keep the deciding thread from running.
    parts = []
    for key, value in document.items():
        text = (
            f"[{', '.join(map(_text, value))}]" if isinstance(value, list) else json.dumps(value)
        )
        parts.append(f"{json.dumps(key)}: {text}")
    return f"{{{', '.join(parts)}}}".encode()


def _unknown_route(request: Request) -> UsageError:
    path = request.url.path[:80]
    return UsageError(
        f"{request.method} {path}: no such route",
        code="route-unknown", method=request.method, path=path,
    )  # fmt: skip


def _refused(error: ApplesError) -> Response:
    status = next(
        (status for kind, status in STATUS_OF_KIND.items() if isinstance(error, kind)),
        404 if error.code == "route-unknown" else STATUS.get(error.exit_code, 500),
    )
    headers = {}
    if status == CROWDED:
        headers["Retry-After"] = str(RETRY_SECONDS)
    if status == UNKNOWN:
        headers["WWW-Authenticate"] = "Bearer"
    text = json.dumps(refusal(status, error))
    return Response(text, status, headers, media_type="application/json")


# ----------------------------------------------------------------------------------- sockets
def _local(directory: Path, shared: bool) -> _Listening:
    """Listen in a directory through its descriptor, because its path may be too long for a socket's name."""
    (directory / SOCKET).unlink(missing_ok=True)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    before = os.umask(0o111 if shared else 0o177)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(f"/proc/self/fd/{descriptor}/{SOCKET}")
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
        os.close(descriptor)
    return _Listening(_listens(listener))


def _network(tls: Tls) -> _Listening:
    """Listen on a network address.

    Raises
    ------
    LaunchError
        The address cannot be used.
    """
    context = server_context(tls.certificate, tls.key)
    family = socket.AF_INET6 if ":" in tls.host else socket.AF_INET
    try:
        listener = socket.create_server((tls.host, tls.port), family=family)
        # Without it, an answer's body waits for the acknowledgement of its head.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return _Listening(_listens(listener), context)
    except OSError as error:
        reason = error.strerror or str(error)
        raise LaunchError(
            f"{tls.host}:{tls.port}: {reason}",
            code="address-unusable", address=f"{tls.host}:{tls.port}", reason=reason,
        ) from None  # fmt: skip


def _listens(listener: socket.socket) -> socket.socket:
    listener.listen(128)
    listener.setblocking(False)
    return listener


def _url(tls: Tls, listening: _Listening) -> str:
    host = f"[{tls.host}]" if ":" in tls.host else tls.host
    return f"https://{host}:{listening.listener.getsockname()[1]}"


def serve(
    service: SchedulerService,
    executor: JobExecutor,
    directory: Path,
    ready: Callable[[str], None],
    tls: Tls | None = None,
    limits: ListenerLimits = ListenerLimits(),
) -> None:
    """Serve until `SchedulerService.stop`; jobs continue when this returns.

    Parameters
    ----------
    directory
        The directory of the socket.
    ready
        Called when the sockets listen, with the URL for other machines; empty without `tls`.
    tls
        Network address to listen on as well.
    limits
        Limits of all sockets together.

    Raises
    ------
    LaunchError
        A socket cannot listen.
    """
    network = None if tls is None else _network(tls)
    listening = [_local(directory, service.job_runners is not None)]
    listening += [] if network is None else [network]
    tokens = None if tls is None else nws.TokenFile(tls.tokens)
    requests = _Requests(service, tokens, limits)
    server = _Server(_Bounded(requests.application(), limits), listening, limits)
    thread = threading.Thread(target=server.run, name="listen", daemon=True)
    thread.start()
    try:
        server.wait(thread)
        ready("" if tls is None or network is None else _url(tls, network))
        service.run(executor)
    finally:
        service.end()
        executor.close()
        server.should_exit = True
        thread.join(START_SECONDS)
        for each in listening:
            each.listener.close()
        with suppress(FileNotFoundError):
            (directory / SOCKET).unlink()
        service.close()
