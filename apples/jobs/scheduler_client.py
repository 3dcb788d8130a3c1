"""The client of a live scheduler: finds it, sends requests over its socket or TLS, and raises its errors."""

from __future__ import annotations

import json
import os
import re
import select
import socket
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Self

from apples.errors import Failure, LaunchError, UsageError
from apples.io import state
from apples.io.credentials import peer_credentials
from apples.io.sockets import socket_name

VARIABLE = "APPLES_SCHEDULER"
TOKEN_FILE_VARIABLE = "APPLES_TOKEN_FILE"  # noqa: S105 - a name
CA_VARIABLE = "APPLES_CA"
URL = re.compile(r"(https?)://(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+)(?::([0-9]{1,5}))?/?")
SOCKET = "socket"
ANSWER_SECONDS = 60.0
CHECK_SECONDS = 1.0
"""Interval at which a client that waits for an answer checks whether the scheduler's process is stopped."""
STOPPED = frozenset("TtZX")
"""States of a process in ``/proc`` in which it cannot answer: stopped, traced, zombie, dead."""
OVER = frozenset({"finished", "failed", "cancelled", "lost"})
"""Final states of a job."""


def home() -> Path:
    """Return the directory of this user's schedulers, by their names."""
    return state.directory() / "schedulers"


def found(asked: str | Path | None = None, *, job: str = "") -> Path | str:
    """Return the directory or the URL of the scheduler to use.

    It is, in this order: `asked`, the environment variable, the scheduler named in the job's id, the only
    scheduler.

    Raises
    ------
    LaunchError
        No scheduler was found. Transient.
    UsageError
        Several schedulers were found. Permanent.
    """
    named = asked or os.environ.get(VARIABLE)
    if named:
        if URL.match(str(named)):
            return str(named)
        place = Path(named)
        if not place.is_dir():
            raise missing(place)
        return place
    known = sorted(each for each in home().glob("*") if (each / "journal").exists())
    own = home() / job.rpartition(".")[0]
    if job and own in known:
        return own
    if len(known) == 1:
        return known[0]
    if known:
        names = ", ".join(each.name for each in known)
        raise UsageError(
            f"several schedulers ({names}): set ${VARIABLE} to the directory of one, under {home()}",
            code="scheduler-ambiguous", known=[each.name for each in known], file=home(),
        )  # fmt: skip
    raise LaunchError(
        "no scheduler; start one: apples scheduler --hosts hosts.toml",
        code="scheduler-missing",
        file=home(),
    )


def scheduler_directories(named: Sequence[Path]) -> dict[str, Path]:
    """Return the directories of schedulers, by the names of their pages.

    This user's schedulers come first, in the order of their names, then the directories in `named`. A repeated
    name gets a number.
    """
    own = sorted(each for each in home().glob("*") if (each / "journal").exists())
    names: dict[str, Path] = {}
    for place in [*own, *named]:
        if place not in names.values():
            count = sum(each.name == place.name for each in names.values())
            names[f"{place.name}-{count + 1}" if count else place.name] = place
    return names


def missing(place: Path) -> LaunchError:
    """Return the error for a scheduler's directory that does not exist."""
    return LaunchError(
        f"{place}: no scheduler runs here; start one: apples scheduler --directory {place}",
        code="scheduler-missing",
        file=place,
    )


MAX_ANSWER_BYTES = 1 << 28


class _Answer(dict[str, Any]):
    """An answer of a scheduler; a missing key raises `LaunchError`: the server is not a scheduler."""

    place: object = ""

    @classmethod
    def of_text(cls, text: bytes, place: object) -> Self:
        """Return the JSON object in a text; raise `LaunchError` for anything else, also for NaN or infinity."""
        try:
            document = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise LaunchError(
                f"{place}: the answer is not that of a scheduler: no JSON object",
                code="answer-invalid",
                place=place,
            )
        answer = cls(document)
        answer.place = place
        return answer

    def __missing__(self, name: str) -> Any:
        raise LaunchError(
            f"{self.place}: not the answer of a scheduler: it lacks {name}",
            code="answer-invalid",
            place=self.place,
            field=name,
        )


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


class SchedulerClient:
    """Sends requests to the scheduler in a directory or at a URL.

    Parameters
    ----------
    place
        The directory, or ``https://HOST:PORT``.
    token_file, ca
        For a URL: files of the token, and of the certificates to trust. None: the files that the environment
        names, else the system's certificates.
    seconds
        Time limit of each step of a request: connect, send, receive.
    """

    def __init__(
        self,
        place: Path | str,
        token_file: Path | None = None,
        ca: Path | None = None,
        *,
        seconds: float = ANSWER_SECONDS,
    ) -> None:
        self.place, self._seconds = place, seconds
        self._token_file, self._ca = token_file, ca

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a request and return the answer, a JSON document.

        Raises
        ------
        LaunchError
            No process listens there, the scheduler is stopped, or it does not answer. Transient.
        ApplesError
            The scheduler rejected the request; the error has its code and message.
        """
        from http.client import HTTPException  # noqa: PLC0415 - loads ssl, only for a request

        try:
            status, text = self._exchanged(method, path, body)
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            if isinstance(error, TimeoutError):
                reason = f"not within {self._seconds:g} s"
                if method != "GET":
                    reason += "; it may still carry out the request: see apples queue"
            if untrusted := getattr(error, "verify_message", ""):
                reason = f"{untrusted}; --ca names its authority"
            gone = isinstance(error, ConnectionRefusedError | FileNotFoundError)
            if gone and isinstance(self.place, Path):
                reason += f"; start it again: apples scheduler --directory {self.place} --hosts hosts.toml"
            raise LaunchError(
                f"{self.place}: no scheduler answers ({reason})",
                code="scheduler-unreachable",
                place=self.place,
            ) from None
        answer = _Answer.of_text(text, self.place)
        if status != 200:
            raise Failure.of_document({**answer, "message": answer.get("reason")}).error()
        if method == "GET":
            _ = answer["schema"]  # each answer to GET is a document with a schema
        return answer

    def _exchanged(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> tuple[int, bytes]:
        from http.client import HTTPConnection, HTTPSConnection  # noqa: PLC0415 - as above

        headers = {}
        if isinstance(self.place, Path):
            connection = HTTPConnection("scheduler", timeout=self._seconds)
            connection.sock = _over_unix(self.place, self._seconds)
        else:
            from apples.io.tls import client_context  # noqa: PLC0415 - as above

            host, port = _address(self.place)
            headers = self._authorization()
            context = client_context(self._ca or _named_file(CA_VARIABLE))
            connection = HTTPSConnection(host, port, timeout=self._seconds, context=context)
        with closing(connection):
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, headers)
            if isinstance(self.place, Path):
                self._await_local(connection.sock)
            answer = connection.getresponse()
            text = answer.read(MAX_ANSWER_BYTES)
            if not answer.isclosed():
                raise ValueError("the answer is too long")
            return answer.status, text

    def _await_local(self, connection: socket.socket) -> None:
        """Wait for the first bytes of an answer; raise at once if the scheduler's process is stopped."""
        waited, answer = 0.0, select.poll()
        answer.register(connection, select.POLLIN)
        step = min(CHECK_SECONDS, self._seconds)
        while waited < self._seconds and not answer.poll(1e3 * step):
            waited += step
            process, _ = peer_credentials(connection)
            if _state_of(process) in STOPPED:
                raise LaunchError(
                    f"{self.place}: the scheduler (process {process}) is stopped and does not answer; "
                    f"to continue it: kill -CONT {process}",
                    code="scheduler-stopped", place=self.place, process=process,
                )  # fmt: skip

    def _authorization(self) -> dict[str, str]:
        file = self._token_file or _named_file(TOKEN_FILE_VARIABLE)
        if file is None:
            raise UsageError(
                f"{self.place}: a token is required (--token-file)",
                code="token-missing", place=self.place, option="--token-file",
            )  # fmt: skip
        from apples.io.tls import authorization  # noqa: PLC0415 - for who asks over TLS only

        return authorization(file)


def _address(url: str) -> tuple[str, int]:
    """Return host and port of a scheduler's URL."""
    where = URL.fullmatch(url)
    if where is None or where[1] != "https":
        raise UsageError(
            f"--scheduler {url[:80]}: must be https://HOST:PORT",
            code="address-invalid", option="--scheduler", value=url[:80],
        )  # fmt: skip
    return where[2].strip("[]"), int(where[3] or 443)


def _named_file(variable: str) -> Path | None:
    named = os.environ.get(variable)
    return Path(named) if named else None


def _state_of(process: int) -> str:
    """Return the state of a process, a letter of proc_pid_stat(5); empty if it is not visible."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return ""


def _over_unix(directory: Path, seconds: float) -> socket.socket:
    """Return a connection to the socket in a directory."""
    there = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        there.settimeout(seconds)
        with socket_name(directory / SOCKET) as name:
            there.connect(name)
    except OSError:
        there.close()
        raise
    return there
