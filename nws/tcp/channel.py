"""A connection on which all waiting together has one deadline."""

import socket
import time
from collections.abc import Callable
from typing import Final

LONGEST_LINE: Final = 256
PIECE: Final = 1 << 18


class Channel:
    """Sends and receives whole pieces over a connected socket, until its time is up.

    Every method raises TimeoutError when the time is up and ConnectionError when the other side
    has gone.

    Parameters
    ----------
    connection
        A connected stream socket. It stays the caller's to close.
    seconds
        How long everything together may take, from now.
    clock
        Seconds that only go forward.
    """

    def __init__(
        self,
        connection: socket.socket,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._deadline = clock() + seconds
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes | memoryview) -> None:
        """Send all of `data`."""
        self._ready().sendall(data)

    def receive(self, count: int) -> bytes:
        """Return exactly `count` bytes."""
        data = bytearray()
        while len(data) < count:
            data += _some(self._ready().recv(count - len(data)))
        return bytes(data)

    def receive_line(self) -> str:
        """Return the next line without its end; ConnectionError if it is longer than 256 bytes.

        Byte by byte, so that nothing of what follows the line is taken.
        """
        line = bytearray()
        while not line.endswith(b"\n"):
            if len(line) == LONGEST_LINE:
                raise ConnectionError(f"a line is longer than {LONGEST_LINE} bytes")
            line += self.receive(1)
        return line[:-1].decode("ascii", errors="replace")

    def discard(self, count: int) -> None:
        """Receive `count` bytes and forget them."""
        buffer = memoryview(bytearray(min(count, PIECE)))
        while count:
            received = self._ready().recv_into(buffer, min(count, PIECE))
            if not received:
                raise ConnectionError("the other side has closed the connection")
            count -= received

    def _ready(self) -> socket.socket:
        """Return the socket, set to wait no longer than what is left of the time."""
        left = self._deadline - self._clock()
        if left <= 0:
            raise TimeoutError("the time for this connection is up")
        self._connection.settimeout(left)
        return self._connection


def _some(data: bytes) -> bytes:
    if not data:
        raise ConnectionError("the other side has closed the connection")
    return data
