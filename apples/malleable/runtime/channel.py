"""A rank's connection to its node supervisor: JSON messages over a local socket, and memory for commits.

Standard library only: a parked rank waits here, in a blocking read, and loads nothing heavy.
"""

from __future__ import annotations

import json
import os
import select
import socket
import threading
from typing import Any

from apples.io.sockets import socket_name

ADDRESS = "APPLES_MALLEABLE"
"""Environment variable with the supervisor's socket; without it a program runs rigid."""
MESSAGE_LIMIT = 1 << 20
ANSWER_SECONDS = 10.0

Message = dict[str, Any]


class SupervisorGoneError(ConnectionError):
    """The supervisor closed the connection: this job is being ended."""


class RankChannel:
    """The connection of one rank.

    Parameters
    ----------
    address
        Path of the supervisor's socket.
    rank
        Number of this rank in its group.
    """

    def __init__(self, address: str, rank: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with socket_name(address) as name:
            self._socket.connect(name)
        self._socket.setblocking(False)
        self._sending = threading.Lock()
        self._texts: dict[int, str] = {}
        self._ready = select.poll()
        self._ready.register(self._socket, select.POLLIN)
        self.send("hello", rank=rank, pid=os.getpid())

    def send(self, event: str, **fields: object) -> None:
        """Send a message to the job manager; a few are for the supervisor itself."""
        self._send(json.dumps({"event": event, **fields}).encode(), [])

    def keep(self, handle: int, **label: object) -> None:
        """Pass memory to the supervisor, for a commit or for the process that replaces this rank."""
        self._send(json.dumps({"event": "keep", **label}).encode(), [handle])

    def memories(self, saved: int | None = None) -> list[tuple[Message, int]]:
        """Return the memory that the supervisor keeps: labels, and file descriptors for the caller to close.

        Parameters
        ----------
        saved
            Rank of this host for which to return the saved state; None: return the commits.
        """
        self.send("memories", saved=saved)
        memories = []
        for _ in range(int(self.wait(ANSWER_SECONDS)["count"])):
            self._demand_readable(ANSWER_SECONDS)
            data, handles, _, _ = socket.recv_fds(self._socket, MESSAGE_LIMIT, 1)
            memories.append((json.loads(data), handles[0]))
        return memories

    def send_to(self, place: int, text: str) -> None:
        """Send a text through the job manager to the first rank of the group at this place."""
        self.send("relay", place=place, text=text)

    def receive_from(self, place: int) -> str:
        """Wait for the next text from the group at this place; texts of other groups are queued."""
        while place not in self._texts:
            message = self.wait()
            self._texts[message["place"]] = message["text"]
        return self._texts.pop(place)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def waiting(self) -> bool:
        """Whether a message has arrived. Takes half a microsecond, because every safe point calls it."""
        return bool(self._ready.poll(0))

    def wait(self, seconds: float | None = None) -> Message:
        """Wait for the next message, without CPU time, and return it.

        Raises
        ------
        SupervisorGoneError
            The connection was closed, or no message came within `seconds`.
        """
        self._demand_readable(seconds)
        try:
            data = self._socket.recv(MESSAGE_LIMIT)
        except OSError as error:
            raise SupervisorGoneError(f"the node supervisor is gone: {error}") from None
        if not data:
            raise SupervisorGoneError("the node supervisor is gone")
        message: Message = json.loads(data)
        return message

    def _demand_readable(self, seconds: float | None) -> None:
        if not self._ready.poll(None if seconds is None else 1000 * seconds):
            raise SupervisorGoneError(f"no answer of the node supervisor in {seconds} s")

    def _send(self, data: bytes, handles: list[int]) -> None:
        with self._sending:  # the thread of a change may send as well
            self._socket.setblocking(True)
            try:
                if handles:
                    socket.send_fds(self._socket, [data], handles)
                else:
                    self._socket.send(data)
            except OSError as error:
                raise SupervisorGoneError(f"the node supervisor is gone: {error}") from None
            finally:
                self._socket.setblocking(False)
