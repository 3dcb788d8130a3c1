"""The host agent that passes requests to the topology daemons of its host. It travels over ssh or srun.

Standard library only. The protocol is that of `apples.launch.hostd`. Order: ``ask`` (number, socket, request,
seconds). Reports: ``answer`` (number, answer: the daemon's line, None if it did not come in time) and ``silent``
(number, reason, absent: whether no daemon listens there).
"""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from typing import Any

from apples.io.connection import LineConnection
from apples.io.sockets import socket_name
from apples.launch.hostd import HostAgent

MAX_REQUESTS = 64
"""Requests that wait for an answer at the same time."""


class DaemonAgent(HostAgent):
    """Asks topology daemons of this host, each request in a thread of its own."""

    beat_seconds = 10.0

    def __init__(self) -> None:
        super().__init__()
        self._places = threading.BoundedSemaphore(MAX_REQUESTS)

    def handle(self, order: dict[str, Any]) -> None:
        """Send the request in a new thread; the end of the agent does not wait for it."""
        if order["order"] != "ask":
            return
        if not self._places.acquire(blocking=False):
            self.report(
                "silent",
                number=order["number"],
                reason="too many requests wait there",
                absent=False,
            )
            return
        threading.Thread(target=self._ask, args=(order,), daemon=True).start()

    def _ask(self, order: dict[str, Any]) -> None:
        number, place = order["number"], str(order["socket"])
        event: str
        fields: dict[str, object]
        try:
            event, fields = (
                "answer",
                {"answer": _answer(place, order["request"], order["seconds"])},
            )
        except (OSError, ValueError) as error:
            why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
            absent = isinstance(error, OSError) and error.errno in {
                errno.ENOENT,
                errno.ECONNREFUSED,
            }
            event, fields = "silent", {"reason": why, "absent": absent}
        self._places.release()
        with contextlib.suppress(
            EOFError
        ):  # the main thread notices the end of the connection as well
            self.report(event, number=number, **fields)


def _answer(place: str, request: dict[str, Any], seconds: float) -> dict[str, Any] | None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(seconds)
        with socket_name(place) as name:
            asking.connect(name)
        connection = LineConnection(asking)
        connection.send(request)
        return connection.receive(seconds)


def serve(_: dict[str, Any]) -> int:
    """Pass on requests until the connection ends."""
    DaemonAgent().run()
    return 0
