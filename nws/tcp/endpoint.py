"""The far end of a link: echoes small messages, swallows large ones."""

import contextlib
import selectors
import socket
import time
from collections.abc import Callable
from threading import Lock, Thread, current_thread
from typing import Final, Self

from nws.tcp.channel import Channel
from nws.tcp.greeting import ECHO, TELL, Guest, StrangerError

MESSAGE: Final = 4
"""Bytes of a message that is echoed (NWS 2.x uses as many for its latency)."""
LENGTH: Final = 8
"""Bytes of a number on the wire, most significant first."""
LONGEST_MESSAGE: Final = 1 << 16
SHORTEST_SECRET: Final = 16
GREETING_SECONDS: Final = 5.0
"""How long a stranger may keep a place."""


class Endpoint:
    """Listens for probers that know the secret, from construction until `close`.

    * echo: every message of 4 bytes comes back.
    * sink: a length of 8 bytes and as many bytes to forget; then the length comes back.
    * tell: a length of 8 bytes, at most 65536, and a message for `told`; then the length comes
      back. An endpoint that nobody listens to forgets it.

    Only one sink is served at a time, for two would measure each other; a second is told so. A
    connection beyond `most_connections` is closed unheard.

    Parameters
    ----------
    secret
        What probers must know; at least 16 characters (``secrets.token_hex()`` makes one).
    address
        Where to listen: host and port; port 0 lets the system choose one (see `address`).
    most_bytes, seconds
        The limits of one connection.
    most_connections
        How many are served at once.
    told
        Called with each message, in the thread of its connection.

    Attributes
    ----------
    address
        Host and port that it listens on.

    Raises
    ------
    ValueError
        The secret is too short.
    OSError
        The address cannot be listened on.
    """

    def __init__(
        self,
        secret: str,
        address: tuple[str, int] = ("127.0.0.1", 0),
        *,
        most_bytes: int = 1 << 28,
        seconds: float = 30.0,
        most_connections: int = 8,
        told: Callable[[bytes], object] | None = None,
    ) -> None:
        if len(secret) < SHORTEST_SECRET:
            raise ValueError(f"a secret has at least {SHORTEST_SECRET} characters")
        self._secret = secret
        self._most_bytes = most_bytes
        self._seconds = seconds
        self._most_connections = most_connections
        self._told = told or bytes
        self._sinking = Lock()
        self._guard = Lock()
        self._serving: dict[Thread, socket.socket] = {}
        self._closed = False
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._listener = socket.create_server(address, family=family)
        self._listener.setblocking(False)  # a caller may have gone before we accept
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._awake, self._wake = socket.socketpair()
        self._acceptor = Thread(target=self._accept, name="nws endpoint", daemon=True)
        self._acceptor.start()

    def close(self, seconds: float = 5.0) -> None:
        """Stop listening, cut all connections, wait up to `seconds` for their threads to end."""
        if self._closed:
            return
        self._closed = True
        deadline = time.monotonic() + seconds
        self._wake.close()
        self._acceptor.join(seconds)
        with self._guard:
            serving = dict(self._serving)
        for thread, connection in serving.items():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            thread.join(max(0.0, deadline - time.monotonic()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        with self._listener, self._awake, selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._awake, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select()]
                if self._awake in ready:
                    return
                with contextlib.suppress(OSError):
                    self._start(self._listener.accept()[0])

    def _start(self, connection: socket.socket) -> None:
        with self._guard:
            if len(self._serving) >= self._most_connections:
                connection.close()
                return
            thread = Thread(target=self._serve, args=(connection,), daemon=True)
            self._serving[thread] = connection
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, StrangerError), connection:
            self._host(connection)
        with self._guard:
            del self._serving[current_thread()]

    def _host(self, connection: socket.socket) -> None:
        """Hear what the prober wants and serve it until it goes or its bounds are reached."""
        guest = Guest(Channel(connection, min(GREETING_SECONDS, self._seconds)), self._secret)
        verb = guest.hear()
        channel = Channel(connection, self._seconds)
        if verb == TELL:
            guest.admit()
            self._hear(channel)
        elif verb == ECHO:
            guest.admit()
            self._echo(channel)
        elif self._sinking.acquire(blocking=False):
            try:
                guest.admit()
                self._sink(channel)
            finally:
                self._sinking.release()
        else:
            guest.turn_away()

    def _echo(self, channel: Channel) -> None:
        for _ in range(self._most_bytes // MESSAGE):
            channel.send(channel.receive(MESSAGE))

    def _hear(self, channel: Channel) -> None:
        length = int.from_bytes(channel.receive(LENGTH))
        if length <= LONGEST_MESSAGE:
            self._told(channel.receive(length))
            channel.send(length.to_bytes(LENGTH))

    def _sink(self, channel: Channel) -> None:
        left = self._most_bytes
        while True:
            length = int.from_bytes(channel.receive(LENGTH))
            left -= length
            if left < 0:
                return
            channel.discard(length)
            channel.send(length.to_bytes(LENGTH))
