"""One end of a stream socket that carries JSON lines, and one turn of an event loop over several."""

from __future__ import annotations

import select
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from apples.io.json_lines import MAX_LINE_BYTES, LineBuffer, LineError, decode, encode

PIECE: Final = 1 << 16
MAX_READ_BYTES: Final = 1 << 20
"""Bytes that one look at what has arrived takes in; the others wait in the kernel."""


class LineConnection:
    """Sends and receives JSON objects, one a line.

    Parameters
    ----------
    connected
        A stream socket, plain or TLS. Its time-out bounds what is sent.
    longest
        Bytes of a line in either direction.
    """

    def __init__(self, connected: socket.socket, longest: int = MAX_LINE_BYTES) -> None:
        self._socket = connected
        self._longest = longest
        self._lines = LineBuffer(longest)
        self._arrived: deque[bytes] = deque()
        # A TLS socket may hold bytes that were decrypted already: poll(2) does not know of them.
        self._decrypted: Callable[[], int] = getattr(connected, "pending", lambda: 0)
        self._readable = select.poll()  # select(2) can name 1,024 descriptors only
        self._readable.register(connected, select.POLLIN)

    def send(self, document: dict[str, Any]) -> None:
        """Send an object.

        Raises
        ------
        LineError
            It is longer than a line may be; nothing was sent.
        OSError
            The other end is gone, or takes nothing.
        """
        line = encode(document)
        if len(line) > self._longest:
            raise LineError(
                f"{len(line)} bytes, more than {self._longest}",
                code="message-too-long", value=len(line), bound=self._longest,
            )  # fmt: skip
        self._socket.sendall(line)

    def receive(self, seconds: float) -> dict[str, Any] | None:
        """Return the next object, None if there is none within `seconds`.

        Raises
        ------
        LineError
            What came is none. Permanent.
        OSError
            The other end is gone.
        """
        deadline = time.monotonic() + seconds
        while not self._arrived:
            if not self._wait(deadline - time.monotonic()):
                return None
            self._read()
        return decode(self._arrived.popleft(), self._longest)

    def arrived(self) -> list[dict[str, Any]]:
        """Return the objects that have arrived; never waits.

        Raises
        ------
        LineError
            What came is none. Permanent.
        OSError
            The other end is gone, and everything that it sent was returned before.
        """
        taken = 0
        try:
            while taken < MAX_READ_BYTES and self._wait(0.0):
                taken += self._read()
        except OSError:
            if not self._arrived:
                raise
        found = [decode(line, self._longest) for line in self._arrived]
        self._arrived.clear()
        return found

    def fileno(self) -> int:
        """Return the descriptor to wait on; -1 once closed."""
        return self._socket.fileno()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _wait(self, seconds: float) -> bool:
        return bool(self._decrypted() or self._readable.poll(max(0.0, 1000 * seconds)))

    def _read(self) -> int:
        piece = self._socket.recv(PIECE)
        if not piece:
            raise ConnectionResetError("the other end hung up")
        self._arrived.extend(self._lines.feed(piece))
        return len(piece)


def call_ready(selector: selectors.BaseSelector, seconds: float) -> None:
    """Wait at most so long until something can be read, and call back what is registered for it.

    One that was closed or registered anew by a call before it is not called: what it was to read is gone, or comes
    with the next turn.

    Parameters
    ----------
    selector
        The data of each registration is what to call.
    """
    for key, _ in selector.select(max(0.0, seconds)):
        if selector.get_map().get(key.fd) is key:
            key.data()
