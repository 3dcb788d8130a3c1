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
"""Largest number of bytes that one call of `LineConnection.arrived` reads; the rest stays in the kernel."""


class LineConnection:
    """Sends and receives JSON objects, one a line.

    Parameters
    ----------
    connected
        A stream socket, plain or TLS. Its timeout bounds each `send`.
    longest
        Largest number of bytes of a line, in either direction.
    """

    def __init__(self, connected: socket.socket, longest: int = MAX_LINE_BYTES) -> None:
        self._socket = connected
        self._longest = longest
        self._lines = LineBuffer(longest)
        self._arrived: deque[bytes] = deque()
        # A TLS socket may hold bytes that it has decrypted already: poll(2) does not report them.
        self._decrypted: Callable[[], int] = getattr(connected, "pending", lambda: 0)
        self._readable = select.poll()  # select(2) can name 1,024 descriptors only
        self._readable.register(connected, select.POLLIN)

    def send(self, document: dict[str, Any]) -> None:
        """Send an object.

        Raises
        ------
        LineError
            The line is longer than allowed; nothing was sent.
        OSError
            The other end is gone, or did not read before the socket's timeout.
        """
        line = encode(document)
        if len(line) > self._longest:
            raise LineError(
                f"{len(line)} bytes, more than {self._longest}",
                code="message-too-long", value=len(line), bound=self._longest,
            )  # fmt: skip
        self._socket.sendall(line)

    def receive(self, seconds: float) -> dict[str, Any] | None:
        """Return the next object; None if none arrives within `seconds`.

        Raises
        ------
        LineError
            The received line is not a JSON object. Permanent.
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
            A received line is not a JSON object. Permanent.
        OSError
            The other end is gone. Earlier calls returned all objects that it sent.
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
        """Close the socket."""
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
    """Wait at most `seconds` until a file is ready, then call the callback of each ready file.

    A callback may close or re-register other files. Their old callbacks are then skipped: the data is gone, or the
    next call reports the file again.

    Parameters
    ----------
    selector
        The data of each registration is its callback, without arguments.
    """
    for key, _ in selector.select(max(0.0, seconds)):
        if selector.get_map().get(key.fd) is key:
            key.data()
