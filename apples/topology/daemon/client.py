"""Asking the daemon: blocking, with a deadline; used by `apples exec` and by a job's own side."""

from __future__ import annotations

import json
import os
import secrets
import select
import socket
import ssl
import time
from pathlib import Path
from typing import Any, Final

from apples.errors import DeadlineError, LaunchError, UsageError
from apples.topology.daemon.lines import LONGEST_LINE, SOCKET_VARIABLE, error_of

SYSTEM_SOCKET: Final = Path("/run/apples/topologyd.sock")
SECONDS: Final = 70.0
"""More than the longest that a request may ask the daemon to wait."""


def default_socket() -> Path:
    """Return where the daemon of this host is found: named by the environment, the system's, the user's."""
    named = os.environ.get(SOCKET_VARIABLE)
    if named:
        return Path(named)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    own = Path(runtime) / "apples/topologyd.sock" if runtime else SYSTEM_SOCKET
    return SYSTEM_SOCKET if SYSTEM_SOCKET.exists() or not own.exists() else own


def fresh_id() -> str:
    """Return an id for a new request."""
    return secrets.token_hex(12)


class TopologyClient:
    """A connection to a daemon. A context manager.

    Parameters
    ----------
    place
        Path of the socket, or (host, port) for TLS.
    token, authority
        For TLS: the token, and the file of certificates to trust.

    Raises
    ------
    LaunchError
        Nobody is there. Often transient.
    """

    def __init__(
        self,
        place: Path | tuple[str, int] | None = None,
        *,
        token: str = "",
        authority: Path | None = None,
        seconds: float = SECONDS,
    ) -> None:
        self._seconds = seconds
        self._buffer = b""
        place = place or default_socket()
        try:
            self._socket = _connected(place, token, authority, seconds)
        except ssl.SSLError as error:
            raise LaunchError(f"{place}: TLS: {error.reason or error}") from None
        except OSError as error:
            where = place if isinstance(place, Path) else f"{place[0]}:{place[1]}"
            raise LaunchError(
                f"no topology daemon at {where}: {error.strerror or error}; start one with: "
                "apples topologyd"
            ) from None
        self._waiting = select.poll()  # select() can name 1,024 descriptors only
        self._waiting.register(self._socket, select.POLLIN)

    def ask(self, verb: str, **fields: Any) -> dict[str, Any]:
        """Return the answer to a request.

        Raises
        ------
        ApplesError
            The daemon's refusal, with its exit code.
        LaunchError, DeadlineError
            It went away, or did not answer in time: whether it did what was asked is not known; ask again
            with the same request id.
        """
        self.send({"verb": verb, **fields})
        answer = self.receive(self._seconds)
        if answer is None:
            raise DeadlineError(
                f"the topology daemon did not answer {verb} in {self._seconds:g} s"
            )
        if not answer.get("ok"):
            raise error_of(answer)
        return answer

    def send(self, document: dict[str, Any]) -> None:
        """Send a line."""
        line = json.dumps(document).encode() + b"\n"
        if len(line) > LONGEST_LINE:
            raise UsageError(f"a request of {len(line)} bytes is longer than {LONGEST_LINE}")
        try:
            self._socket.sendall(line)
        except OSError as error:
            raise LaunchError(f"the topology daemon went away: {error.strerror}") from None

    def receive(self, seconds: float) -> dict[str, Any] | None:
        """Return the next line, None if there is none within `seconds`."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            left = max(0.0, deadline - time.monotonic())
            pending = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()
            if not pending and not self._waiting.poll(1000 * left):
                return None
            try:
                piece = self._socket.recv(1 << 16)
            except OSError as error:
                raise LaunchError(f"the topology daemon went away: {error.strerror}") from None
            if not piece:
                raise LaunchError("the topology daemon went away")
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        document = json.loads(line)
        if not isinstance(document, dict):
            raise LaunchError("what is there is no topology daemon")
        return document

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._socket.fileno()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def __enter__(self) -> TopologyClient:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Hang up."""
        self.close()


def _connected(
    place: Path | tuple[str, int], token: str, authority: Path | None, seconds: float
) -> socket.socket:
    if isinstance(place, Path):
        local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        local.settimeout(seconds)
        try:
            local.connect(str(place))
        except OSError:
            local.close()
            raise
        return local
    context = ssl.create_default_context(cafile=str(authority) if authority else None)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    plain = socket.create_connection(place, timeout=seconds)
    try:
        remote = context.wrap_socket(plain, server_hostname=place[0])
    except OSError:
        plain.close()
        raise
    remote.sendall(token.encode() + b"\n")
    return remote
