"""A blocking client of the daemon, with a deadline; `apples exec` and the processes of a job use it."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from pathlib import Path
from typing import Any, Final

from apples.errors import (
    ApplesError,
    DeadlineError,
    Failure,
    InfeasibleError,
    LaunchError,
    UsageError,
)
from apples.io.connection import LineConnection
from apples.io.json_lines import LineError
from apples.io.sockets import socket_name

SOCKET_VARIABLE: Final = "APPLES_TOPOLOGYD_SOCKET"
"""Environment variable with the path of the daemon's socket."""
JOB_VARIABLE: Final = "APPLES_TOPOLOGY_JOB"
"""Environment variable with the name of the job."""
SOCKET: Final = "topologyd.sock"
OPERATOR_SOCKET: Final = "operator.sock"
"""File name in the same directory. Only root and the daemon's user may connect to it."""
SYSTEM_SOCKET: Final = Path("/run/apples") / SOCKET
SECONDS: Final = 70.0
"""Longer than any wait that a request may ask of the daemon."""
ABSENT: Final = frozenset({errno.ENOENT, errno.ECONNREFUSED})
"""Errors of a connection attempt without a listening daemon."""
FORM_ERRORS: Final = frozenset({"field-missing", "field-unknown", "verb-unknown"})
"""Codes by which a daemon rejects a request of another version."""


def default_socket() -> Path:
    """Return the socket of this host's daemon: from the environment, else the system's, else the user's."""
    named = os.environ.get(SOCKET_VARIABLE)
    if named:
        return Path(named)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    own = Path(runtime) / "apples" / SOCKET if runtime else SYSTEM_SOCKET
    return SYSTEM_SOCKET if SYSTEM_SOCKET.exists() or not own.exists() else own


class TopologyClient:
    """A connection to a daemon. A context manager.

    Parameters
    ----------
    place
        Path of the socket; default: that of this host's daemon.
    seconds
        Time limit of each answer.

    Raises
    ------
    LaunchError
        No daemon answers there. Often transient.
    """

    def __init__(
        self,
        place: Path | None = None,
        *,
        seconds: float = SECONDS,
    ) -> None:
        self._seconds = seconds
        place = place or default_socket()
        try:
            self._connection = LineConnection(_connected(place, seconds))
        except OSError as error:
            reason = error.strerror or error
            if error.errno in ABSENT:
                raise LaunchError(
                    f"no topology daemon at {place}: {reason}; start one with: apples topologyd",
                    code="daemon-unreachable",
                    address=str(place),
                ) from None
            raise LaunchError(
                f"cannot connect to the topology daemon at {place}: {reason}",
                code="daemon-unreachable",
                address=str(place),
            ) from None

    def ask(self, verb: str, **fields: Any) -> dict[str, Any]:
        """Return the answer to a request.

        Raises
        ------
        ApplesError
            The daemon's refusal, with its exit code.
        LaunchError, DeadlineError
            The daemon ended, or did not answer in time. It may have carried the request out; repeat the request.
        """
        self.send({"verb": verb, **fields})
        answer = self.receive(self._seconds)
        if answer is None:
            raise DeadlineError(
                f"the topology daemon did not answer {verb} in {self._seconds:g} s",
                code="daemon-timeout",
                verb=verb,
                seconds=self._seconds,
            )
        if not answer.get("ok"):
            refusal = error_of(answer)
            if refusal.code in FORM_ERRORS and verb != "status":
                self._check_version()
            raise refusal
        return _Answer(answer)

    def _check_version(self) -> None:
        """Raise LaunchError if the daemon takes the requests of another version."""
        from apples.topology.daemon.protocol import PROTOCOL  # noqa: PLC0415 - slow to load

        protocol = self.ask("status").get("protocol", 1)
        if protocol != PROTOCOL:
            raise LaunchError(
                f"the topology daemon is of another version (protocol {protocol}, here {PROTOCOL}): restart "
                "apples topologyd",
                code="daemon-outdated",
                value=protocol,
                expected=PROTOCOL,
            )

    def send(self, document: dict[str, Any]) -> None:
        """Send a line."""
        try:
            self._connection.send(document)
        except LineError as error:
            raise UsageError(
                f"the request is too long: {error}",
                code="message-too-long",
                reason=str(error),
            ) from None
        except OSError as error:
            raise LaunchError(
                f"lost the connection to the topology daemon: {error.strerror}",
                code="daemon-lost",
                reason=error.strerror,
            ) from None

    def receive(self, seconds: float) -> dict[str, Any] | None:
        """Return the next line; None if no line arrives within `seconds`."""
        try:
            return self._connection.receive(seconds)
        except LineError as error:
            raise LaunchError(
                f"not the answer of a topology daemon: {error}",
                code="topology-daemon-invalid",
                reason=str(error),
            ) from None
        except OSError as error:
            raise LaunchError(
                f"lost the connection to the topology daemon: {error}",
                code="daemon-lost",
                reason=str(error),
            ) from None

    def fileno(self) -> int:
        """Return the file descriptor to wait on."""
        return self._connection.fileno()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> TopologyClient:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()


def _connected(place: Path, seconds: float) -> socket.socket:
    operators = place.with_name(OPERATOR_SOCKET)
    if os.access(operators, os.W_OK):
        with contextlib.suppress(OSError):  # the daemon was killed, or has no operator socket
            return _over_unix(operators, seconds)
    return _over_unix(place, seconds)


def _over_unix(place: Path, seconds: float) -> socket.socket:
    local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # If the queue of the socket is full, a blocking connect waits for SO_SNDTIMEO. A connect that does not block,
    # as with a timeout of Python, fails at once.
    whole = int(seconds)
    span = struct.pack("ll", whole, int((seconds - whole) * 1e6))
    local.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, span)
    try:
        with socket_name(place) as name:
            local.connect(name)
    except OSError:
        local.close()
        raise
    local.settimeout(seconds)
    return local


class _Answer(dict[str, Any]):
    """An answer of a daemon. An answer without a required field comes from another program."""

    def __missing__(self, name: str) -> Any:
        raise LaunchError(
            f"not the answer of a topology daemon: it lacks {name}",
            code="topology-daemon-invalid",
            field=name,
        )


def error_of(answer: dict[str, Any]) -> ApplesError:
    """Return the error that an answer contains."""
    message = answer.get("error")
    if not isinstance(message, str) or not message:
        return LaunchError(
            "not the answer of a topology daemon: it lacks reason",
            code="topology-daemon-invalid",
        )
    exit_code = answer.get("code")
    known = (
        UsageError.exit_code,
        InfeasibleError.exit_code,
    )  # an answer may contain any JSON value, also a list
    document = {
        "message": message,
        "exit_code": exit_code if exit_code in known else LaunchError.exit_code,
        "code": answer.get("error_code"),
        "fields": answer.get("fields"),
    }
    return Failure.of_document(document).error()
