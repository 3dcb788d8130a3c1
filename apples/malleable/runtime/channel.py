"""A rank's wire to its host's guard: JSON messages over a socket, memory that is to outlive the rank.

Standard library only: a parked rank waits here, in a blocking read, and loads nothing heavy.
"""

from __future__ import annotations

import json
import os
import select
import socket
from typing import Any

ADDRESS = "APPLES_MALLEABLE"
"""Environment variable with the guard's socket; without it a program runs rigid."""
MESSAGE_LIMIT = 1 << 20
ANSWER_SECONDS = 10.0

Message = dict[str, Any]


class SupervisorGoneError(ConnectionError):
    """The guard closed the wire: this job is being ended."""


class SupervisorChannel:
    """The wire of one rank.

    Parameters
    ----------
    address
        Path of the guard's socket.
    rank
        In the group.
    """

    def __init__(self, address: str, rank: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(address)
        self._socket.setblocking(False)
        self._ready = select.poll()
        self._ready.register(self._socket, select.POLLIN)
        self.say("hello", rank=rank, pid=os.getpid())

    def say(self, word: str, **fields: object) -> None:
        """Send a message; the anchor hears all but those for the guard itself."""
        self._send(json.dumps({"say": word, **fields}).encode(), [])

    def keep(self, handle: int, **label: object) -> None:
        """Give the guard memory to keep for a commit."""
        self._send(json.dumps({"say": "keep", **label}).encode(), [handle])

    def memories(self) -> list[tuple[Message, int]]:
        """Return what the guard keeps: labels and handles to be closed."""
        self.say("memories")
        found = []
        for _ in range(int(self.wait(ANSWER_SECONDS)["count"])):
            self._await(ANSWER_SECONDS)
            data, handles, _, _ = socket.recv_fds(self._socket, MESSAGE_LIMIT, 1)
            found.append((json.loads(data), handles[0]))
        return found

    def waiting(self) -> bool:
        """Whether a message is there: half a microsecond, for every safe point asks it."""
        return bool(self._ready.poll(0))

    def wait(self, seconds: float | None = None) -> Message:
        """Return the next message, blocking: no processor time is used meanwhile.

        Raises
        ------
        AnchorGoneError
            The wire was closed, or nothing came in so many seconds.
        """
        self._await(seconds)
        try:
            data = self._socket.recv(MESSAGE_LIMIT)
        except OSError as error:
            raise SupervisorGoneError(f"the guard is gone: {error}") from None
        if not data:
            raise SupervisorGoneError("the guard is gone")
        message: Message = json.loads(data)
        return message

    def _await(self, seconds: float | None) -> None:
        if not self._ready.poll(None if seconds is None else 1000 * seconds):
            raise SupervisorGoneError(f"no answer of the guard in {seconds} s")

    def _send(self, data: bytes, handles: list[int]) -> None:
        self._socket.setblocking(True)
        try:
            if handles:
                socket.send_fds(self._socket, [data], handles)
            else:
                self._socket.send(data)
        except OSError as error:
            raise SupervisorGoneError(f"the guard is gone: {error}") from None
        finally:
            self._socket.setblocking(False)
