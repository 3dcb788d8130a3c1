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

ADDRESS = "APPLES_MALLEABLE"
"""Environment variable with the supervisor's socket; without it a program runs rigid."""
BESIDE = "APPLES_BESIDE"
"""Environment variable with the process that stays beside this rank, where that is not its parent."""
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
        In the group.
    """

    def __init__(self, address: str, rank: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(address)
        self._socket.setblocking(False)
        self._sending = threading.Lock()
        self._heard: dict[int, str] = {}
        self._ready = select.poll()
        self._ready.register(self._socket, select.POLLIN)
        self.send("hello", rank=rank, pid=os.getpid(), beside=int(os.environ.get(BESIDE, "0")))

    def send(self, event: str, **fields: object) -> None:
        """Send a message; the job manager gets all but the few that concern the supervisor itself."""
        self._send(json.dumps({"event": event, **fields}).encode(), [])

    def keep(self, handle: int, **label: object) -> None:
        """Give the supervisor memory to keep, for a commit or for the process that follows this one."""
        self._send(json.dumps({"event": "keep", **label}).encode(), [handle])

    def memories(self, saved: int | None = None) -> list[tuple[Message, int]]:
        """Return the memory that the supervisor keeps: labels, and file descriptors for the caller to close.

        Parameters
        ----------
        saved
            That of the state which this rank of the host saved; None: that of commits.
        """
        self.send("memories", saved=saved)
        found = []
        for _ in range(int(self.wait(ANSWER_SECONDS)["count"])):
            self._demand_readable(ANSWER_SECONDS)
            data, handles, _, _ = socket.recv_fds(self._socket, MESSAGE_LIMIT, 1)
            found.append((json.loads(data), handles[0]))
        return found

    def tell(self, place: int, word: str) -> None:
        """Have the job manager say a word to the first rank of the group at this place among those that meet."""
        self.send("tell", place=place, word=word)

    def hear(self, place: int) -> str:
        """Return the next word from the group at this place, blocking; those of others wait."""
        while place not in self._heard:
            message = self.wait()
            self._heard[message["place"]] = message["word"]
        return self._heard.pop(place)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def waiting(self) -> bool:
        """Whether a message is there: half a microsecond, for every safe point asks it."""
        return bool(self._ready.poll(0))

    def wait(self, seconds: float | None = None) -> Message:
        """Return the next message, blocking: no processor time is used meanwhile.

        Raises
        ------
        SupervisorGoneError
            The connection was closed, or nothing came in so many seconds.
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
        with self._sending:  # a change has a thread of its own that listens, and may send
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
