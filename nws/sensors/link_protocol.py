"""The protocol between a prober and the endpoint at the far end of a link, both sides.

    endpoint: nws.endpoint/1 CHALLENGE
    prober:   PROOF CHALLENGE VERB
    endpoint: ok PROOF | busy | no

Both sides prove by challenge and response that they know the same secret, without sending it. A
challenge is 32 random hexadecimal digits; a proof is HMAC-SHA256, keyed with the secret, over the
prover's side, the verb and both challenges, so that it is valid once and for one side only. The
greeting authenticates the connection; the bytes after it carry no data and are neither signed nor encrypted.

An endpoint must not be an open traffic generator: by default it listens on loopback; it
does nothing before the greeting, never sends more than it received, and every connection has a
limit of bytes and of seconds.
"""

import contextlib
import hmac
import secrets
import selectors
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from threading import Lock, Thread, current_thread
from typing import Final, Self

from nws.errors import CodedError, InputError
from nws.sensor import SensorError

MAX_LINE_BYTES: Final = 256
PIECE: Final = 1 << 18


class DeadlineConnection:
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

        It reads byte by byte, so that the bytes after the line stay in the socket.
        """
        line = bytearray()
        while not line.endswith(b"\n"):
            if len(line) == MAX_LINE_BYTES:
                raise ConnectionError(f"a line is longer than {MAX_LINE_BYTES} bytes")
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

    def sent_again(self) -> float:
        """Return the share of segments that the kernel sent again so far (`counts_losses`)."""
        info = self._connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
        again = int.from_bytes(info[TOTAL_RETRANS : TOTAL_RETRANS + 4], sys.byteorder)
        sent = int.from_bytes(info[SEGS_OUT : SEGS_OUT + 4], sys.byteorder)
        return min(1.0, again / sent) if sent else 0.0

    def _ready(self) -> socket.socket:
        """Return the socket, with the remaining time as its timeout."""
        left = self._deadline - self._clock()
        if left <= 0:
            raise TimeoutError("the time for this connection is up")
        self._connection.settimeout(left)
        return self._connection


TCP_INFO_BYTES: Final = 144
TOTAL_RETRANS: Final = 100
SEGS_OUT: Final = 136
"""Where the kernel's struct tcp_info has its counters (linux/tcp.h; since Linux 4.2)."""


def counts_losses() -> bool:
    """Return whether the kernel counts the segments that it sent again."""
    return sys.platform == "linux" and hasattr(socket, "TCP_INFO")


def _some(data: bytes) -> bytes:
    if not data:
        raise ConnectionError("the other side has closed the connection")
    return data


PROTOCOL: Final = "nws.endpoint/1"
ECHO: Final = "echo"
SINK: Final = "sink"
VERBS: Final = frozenset({ECHO, SINK})


class GreetingAnswer(Enum):
    """The endpoint's answer to a prober's greeting."""

    OK = "ok"
    BUSY = "busy"
    NO = "no"


class UnauthenticatedError(CodedError):
    """The other side did not prove that it knows the secret. Permanent."""

    code = "endpoint-unauthenticated"


def prove(secret: str, side: str, verb: str, challenges: tuple[str, str]) -> str:
    """Return the answer to two challenges that proves the knowledge of `secret`."""
    text = " ".join((PROTOCOL, side, verb, *challenges))
    return hmac.new(secret.encode(), text.encode(), "sha256").hexdigest()


class ProberSession:
    """The endpoint's view of one prober: `receive_request` first, then `admit` it or `turn_away`."""

    def __init__(self, channel: DeadlineConnection, secret: str) -> None:
        self._channel = channel
        self._secret = secret
        self._proof = ""

    def receive_request(self) -> str:
        """Return the verb that the prober asks for; reject a prober that does not know the secret.

        Raises
        ------
        UnauthenticatedError
            It does not know the secret, or asks for something that is none of `VERBS`.
        """
        ours = secrets.token_hex(16)
        self._channel.send(f"{PROTOCOL} {ours}\n".encode())
        words = self._channel.receive_line().split(" ")
        proof, theirs, verb = words if len(words) == 3 else ("", "", "")
        if verb not in VERBS or not _same(
            proof, prove(self._secret, "prober", verb, (ours, theirs))
        ):
            self._channel.send(f"{GreetingAnswer.NO.value}\n".encode())
            raise UnauthenticatedError("the greeting does not prove that it knows the secret")
        self._proof = prove(self._secret, "endpoint", verb, (ours, theirs))
        return verb

    def admit(self) -> None:
        """Accept the request, and prove that this endpoint knows the secret."""
        self._channel.send(f"{GreetingAnswer.OK.value} {self._proof}\n".encode())

    def turn_away(self) -> None:
        """Answer that another prober is being served."""
        self._channel.send(f"{GreetingAnswer.BUSY.value}\n".encode())


def greet(channel: DeadlineConnection, secret: str, verb: str) -> GreetingAnswer:
    """Ask the endpoint for `verb` and return its answer.

    Raises
    ------
    UnauthenticatedError
        The other side is no endpoint, or does not know the secret, or thinks that of us.
    ConnectionError, TimeoutError
        Transient.
    """
    protocol, _, theirs = channel.receive_line().partition(" ")
    if protocol != PROTOCOL:
        raise UnauthenticatedError(
            f"the protocol is {protocol!r}, not {PROTOCOL!r}",
            code="protocol-invalid",
            value=protocol,
        )
    ours = secrets.token_hex(16)
    proof = prove(secret, "prober", verb, (theirs, ours))
    channel.send(f"{proof} {ours} {verb}\n".encode())
    answer, _, proof = channel.receive_line().partition(" ")
    if answer == GreetingAnswer.BUSY.value:
        return GreetingAnswer.BUSY
    if answer == GreetingAnswer.NO.value:
        raise UnauthenticatedError("it rejects our secret", code="secret-rejected")
    if not _same(proof, prove(secret, "endpoint", verb, (theirs, ours))):
        raise UnauthenticatedError("it does not prove that it knows our secret")
    return GreetingAnswer.OK


def _same(proof: str, wanted: str) -> bool:
    return hmac.compare_digest(proof.encode(), wanted.encode())


MESSAGE: Final = 4
"""Bytes of a message that is echoed (NWS 2.x uses as many for its latency)."""
LENGTH: Final = 8
"""Bytes of a number on the wire, most significant first."""
MIN_SECRET_LENGTH: Final = 16
GREETING_SECONDS: Final = 5.0
"""Seconds that a connection may last before it has authenticated."""


class Endpoint:
    """Listens for probers that know the secret, from construction until `close`.

    * echo: every message of 4 bytes comes back.
    * sink: a length of 8 bytes and as many bytes to forget; then the length comes back.

    Only one sink is served at a time, for two would measure each other; the answer to a second is ``busy``. A
    connection beyond `most_connections` is closed without an answer.

    Parameters
    ----------
    secret
        The secret of the probers; at least 16 characters (``secrets.token_hex()`` makes one).
    address
        Where to listen: host and port; port 0 lets the system choose one (see `address`).
    most_bytes, seconds
        The limits of one connection.
    most_connections
        How many are served at once.

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
    ) -> None:
        if len(secret) < MIN_SECRET_LENGTH:
            raise InputError(
                f"a secret has at least {MIN_SECRET_LENGTH} characters",
                code="secret-too-short",
                bound=MIN_SECRET_LENGTH,
            )
        self._secret = secret
        self._most_bytes = most_bytes
        self._seconds = seconds
        self._most_connections = most_connections
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
        with contextlib.suppress(OSError, UnauthenticatedError), connection:
            self._host(connection)
        with self._guard:
            del self._serving[current_thread()]

    def _host(self, connection: socket.socket) -> None:
        """Serve a prober until it closes the connection or reaches its limits."""
        session = ProberSession(
            DeadlineConnection(connection, min(GREETING_SECONDS, self._seconds)), self._secret
        )
        verb = session.receive_request()
        channel = DeadlineConnection(connection, self._seconds)
        if verb == ECHO:
            session.admit()
            self._echo(channel)
        elif self._sinking.acquire(blocking=False):
            try:
                session.admit()
                self._sink(channel)
            finally:
                self._sinking.release()
        else:
            session.turn_away()

    def _echo(self, channel: DeadlineConnection) -> None:
        for _ in range(self._most_bytes // MESSAGE):
            channel.send(channel.receive(MESSAGE))

    def _sink(self, channel: DeadlineConnection) -> None:
        left = self._most_bytes
        while True:
            length = int.from_bytes(channel.receive(LENGTH))
            left -= length
            if left < 0:
                return
            channel.discard(length)
            channel.send(length.to_bytes(LENGTH))


@contextmanager
def probing(
    address: tuple[str, int],
    secret: str,
    verb: str,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[DeadlineConnection]:
    """Connect to the endpoint at `address`, greet it, and give the channel to the body.

    Raises
    ------
    SensorError
        Permanent: endpoint and prober do not know the same secret. Transient: nothing answers,
        the connection breaks, another prober is being served, or all this together with the body
        was not done after `seconds`.
    """
    where = f"{address[0]}:{address[1]}"
    place = f"the endpoint at {where}"
    begun = clock()
    try:
        with socket.create_connection(address, timeout=seconds) as connection:
            channel = DeadlineConnection(connection, seconds - (clock() - begun), clock)
            if greet(channel, secret, verb) is GreetingAnswer.BUSY:
                raise SensorError(
                    f"{place} serves another prober",
                    transient=True,
                    code="endpoint-busy",
                    address=where,
                )
            yield channel
    except UnauthenticatedError as error:
        raise SensorError(
            f"{place} did not authenticate: {error}",
            transient=False,
            code=error.code,
            address=where,
            **error.fields,
        ) from error
    except TimeoutError as error:
        raise SensorError(
            f"{place} did not finish in {seconds} s",
            transient=True,
            code="endpoint-timeout",
            address=where,
            seconds=seconds,
        ) from error
    except OSError as error:
        raise SensorError(
            f"{place} cannot be probed: {error}",
            transient=True,
            code="endpoint-unreachable",
            address=where,
        ) from error
