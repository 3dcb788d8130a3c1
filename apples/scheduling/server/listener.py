"""A live scheduler's HTTP on a UNIX socket for this user's commands and pages: answers, events, figures.

The kernel says who is at the other end: this user, or root. Requests are bounded in size, time and number; one too
many is told so (429) and may come again.
"""

from __future__ import annotations

import json
import os
import re
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

from apples.errors import ApplesError, UsageError
from apples.scheduling.server.events import Event
from apples.scheduling.server.orders import JobExecutor
from apples.scheduling.server.scheduler import CrowdedError
from apples.scheduling.server.service import TEXT, Call, SchedulerService

SOCKET: Final = "socket"
MOST_BODY: Final = 1 << 20
MOST_CONNECTIONS: Final = 64
MOST_STREAMS: Final = 24
"""Of the connections those that may be streams of events."""
REQUEST_SECONDS: Final = 30.0
"""For a request to be read."""
BEAT_SECONDS: Final = 10.0
"""Between two signs of life on a stream on which nothing happens."""
AGAIN_SECONDS: Final = 1
"""After which one who was refused for their number may come again."""
CROWDED: Final = 429
STATUS: Mapping[int, int] = {2: 400, 4: 503, 7: 504}
"""HTTP status by exit code."""

ROUTES: tuple[tuple[str, re.Pattern[str], str], ...] = tuple(
    (method, re.compile(path), name)
    for method, path, name in (
        ("POST", r"/v1/jobs/([A-Za-z0-9._-]{1,80})/resize", "resize"),
        ("POST", r"/v1/whatif", "what_if"),
        ("GET", r"/v1/queue", "queue"),
        ("GET", r"/metrics", "metrics"),
        ("GET", r"/v1/history", "history"),
        ("GET", r"/v1/jobs/([A-Za-z0-9._-]{1,80})", "job"),
        ("GET", r"/v1/jobs/([A-Za-z0-9._-]{1,80})/why", "why"),
        ("POST", r"/v1/jobs/([A-Za-z0-9._-]{1,80})/cancel", "cancel"),
        ("POST", r"/v1/hosts/([A-Za-z0-9._-]{1,80})/drain", "drain"),
        ("POST", r"/v1/hosts/([A-Za-z0-9._-]{1,80})/resume", "resume"),
    )
)
SUBMIT = ("POST", "/v1/jobs")
EVENTS = ("GET", "/v1/events")
WITH_BODY = frozenset({"resize", "what_if"})


def refusal(status: int, reason: str, code: int) -> Mapping[str, Any]:
    """Return the answer to what is refused."""
    transient = status >= 500 or status == CROWDED
    return {"reason": reason, "exit_code": code, "transient": transient}


class _Handler(BaseHTTPRequestHandler):
    """One connection: requests one after the other, each bounded in size and time."""

    protocol_version = "HTTP/1.1"
    timeout = REQUEST_SECONDS  # type: ignore[mutable-override]
    server: _Server  # type: ignore[mutable-override]

    def address_string(self) -> str:
        return "socket"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as it is named there
        """Log nothing: what was asked is in the log of the scheduler."""

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def _serve(self, method: str) -> None:
        try:
            user = self._user()
            body = self._body()
            if (method, self.path) == EVENTS:
                self._stream()
                return
            self._answer(200, self.server.service.ask(self._call(method, body, user)))
        except PermissionError as error:
            self._refuse(403, str(error), 2)
        except LookupError:
            self._refuse(404, f"{method} {self.path[:80]}: there is no such thing", 2)
        except CrowdedError as error:
            self._refuse(429, str(error), error.exit_code)
        except ApplesError as error:
            self._refuse(STATUS.get(error.exit_code, 500), str(error), error.exit_code)

    def _call(self, method: str, body: Mapping[str, Any], user: str) -> Call:
        service = self.server.service
        if (method, self.path) == SUBMIT:
            return service.submit(body, user)
        for verb, path, name in ROUTES:
            found = path.fullmatch(self.path)
            if found and verb == method:
                more = (body,) if name in WITH_BODY else ()
                call: Call = getattr(service, name)(*found.groups(), *more)
                return call
        raise LookupError

    def _user(self) -> str:
        """Return who is at the other end, by the kernel's word."""
        found = self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        uid = struct.unpack("3i", found)[1]
        if uid not in {0, os.geteuid()}:
            raise PermissionError(f"this scheduler is of uid {os.geteuid()}, not of {uid}")
        return f"uid:{uid}"

    def _body(self) -> Mapping[str, Any]:
        length = self.headers.get("Content-Length", "0")
        if not re.fullmatch(r"[0-9]{1,9}", length) or int(length) > MOST_BODY:
            self.close_connection = True
            raise UsageError(f"a request has at most {MOST_BODY} bytes, and says how many")
        if not int(length):
            return {}
        try:
            found = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            raise UsageError("a request is one JSON object") from None
        if not isinstance(found, dict):
            raise UsageError("a request is one JSON object")
        return found

    def _refuse(self, status: int, reason: str, code: int) -> None:
        self._answer(status, refusal(status, reason, code))

    def _answer(self, status: int, document: Mapping[str, Any]) -> None:
        text = document.get(TEXT)
        data = (json.dumps(document) if text is None else str(text)).encode()
        kind = "application/json" if text is None else "text/plain; version=0.0.4"
        with suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            if status == CROWDED:
                self.send_header("Retry-After", str(AGAIN_SECONDS))
            self.end_headers()
            self.wfile.write(data)

    # ------------------------------------------------------------------------------ events
    def _stream(self) -> None:
        """Say what happens until the other end is gone, or too slow, or the scheduler ends."""
        if not self.server.streams.acquire(blocking=False):
            raise CrowdedError(f"there are {MOST_STREAMS} streams of events already")
        try:
            with suppress(OSError, ApplesError):
                self._say_events(self.headers.get("Last-Event-ID", ""))
        finally:
            self.close_connection = True
            self.server.streams.release()

    def _say_events(self, identifier: str) -> None:
        log = self.server.service.events
        last = log.number_of(identifier)
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


def _too_many() -> bytes:
    """Return what is said on a connection that there is no thread for."""
    reason = f"there are {MOST_CONNECTIONS} connections already"
    data = json.dumps(refusal(CROWDED, reason, 4)).encode()
    head = (
        f"HTTP/1.1 {CROWDED} Too Many Requests\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\nRetry-After: {AGAIN_SECONDS}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + data


TOO_MANY: Final = _too_many()


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Listens in a directory, reached by its descriptor: its path may be longer than a socket's may be."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, directory: Path, service: SchedulerService) -> None:
        self.service = service
        self._open = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self.streams = threading.BoundedSemaphore(MOST_STREAMS)
        (directory / SOCKET).unlink(missing_ok=True)
        self._directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        before = os.umask(0o177)
        try:
            super().__init__(f"/proc/self/fd/{self._directory}/{SOCKET}", _Handler)
        finally:
            os.umask(before)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own, if there are not too many."""
        if not self._open.acquire(blocking=False):
            with suppress(OSError):
                request.setblocking(False)
                request.send(TOO_MANY)
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that is gone."""

    def server_close(self) -> None:
        """Stop listening."""
        super().server_close()
        os.close(self._directory)


def serve(
    service: SchedulerService, executor: JobExecutor, directory: Path, ready: Callable[[], None]
) -> None:
    """Serve until `SchedulerService.stop`; jobs go on when this returns.

    Parameters
    ----------
    directory
        Where the socket is made.
    ready
        Called when it listens.
    """
    server = _Server(directory, service)
    listening = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.2}, name="listen", daemon=True
    )
    listening.start()
    try:
        ready()
        service.run(executor)
    finally:
        server.shutdown()
        server.server_close()
        with suppress(FileNotFoundError):
            (directory / SOCKET).unlink()
        executor.close()
        service.close()
