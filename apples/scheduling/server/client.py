"""The client of a live scheduler: finds it, asks it over its socket, and raises what it refuses."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from apples.errors import LaunchError, UsageError
from apples.refusals import error_of
from apples.scheduling.server.live_job import LiveJob
from apples.scheduling.server.log import read_history, read_state
from apples.storage import state
from apples.storage.folder import Folder

VARIABLE = "APPLES_SCHEDULER"
SOCKET = "socket"
ANSWER_SECONDS = 60.0


def home() -> Path:
    """Return the directory of this user's schedulers, by their names."""
    return state.directory() / "schedulers"


def found(asked: str | Path | None = None, *, job: str = "") -> Path:
    """Return the directory of the scheduler to ask.

    It is the one named, that of the environment, the one whose name a job's id begins with, or the only one.

    Raises
    ------
    UsageError
        There is none, or several.
    """
    named = asked or os.environ.get(VARIABLE)
    if named:
        place = Path(named)
        if not place.is_dir():
            raise UsageError(f"{place}: there is no scheduler's directory")
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
            f"several schedulers ({names}): set ${VARIABLE} to the directory of one, under {home()}"
        )
    raise UsageError("no scheduler; start one: apples scheduler --hosts hosts.toml")


def recorded_job(directory: Path, number: int) -> LiveJob:
    """Return a job as the log in a scheduler's directory has it, whether or not a scheduler works there.

    Raises
    ------
    UsageError
        There is none of this number.
    LaunchError
        The log cannot be read.
    """
    try:
        folder = Folder.open(directory)
    except OSError as error:
        raise LaunchError(f"{directory}: {error.strerror}") from None
    try:
        jobs = read_state(folder).jobs | {job.number: job for job in read_history(folder)}
    finally:
        folder.close()
    if number not in jobs:
        raise UsageError(f"job {directory.name}.{number}: there is none of this number")
    return jobs[number]


class SchedulerClient:
    """Asks the scheduler that works in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer to a request.

        Raises
        ------
        LaunchError
            Nothing listens there, or it does not answer. Transient.
        ApplesError
            What it refuses, as it says.
        """
        from http.client import HTTPException  # noqa: PLC0415 - it loads ssl, for who asks only

        try:
            status, data = self._exchanged(method, path, body)
            answer = json.loads(data)
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise LaunchError(f"{self.directory}: no scheduler answers ({reason})") from None
        if status != 200:
            raise error_of(str(answer.get("reason")), int(answer.get("exit_code") or 4))
        return dict(answer)

    def _exchanged(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> tuple[int, bytes]:
        from http.client import HTTPConnection  # noqa: PLC0415 - as above

        place = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        connection = HTTPConnection("scheduler", timeout=ANSWER_SECONDS)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as there:
                there.settimeout(ANSWER_SECONDS)
                there.connect(f"/proc/self/fd/{place}/{SOCKET}")
                connection.sock = there
                data = None if body is None else json.dumps(body).encode()
                connection.request(method, path, data)
                answer = connection.getresponse()
                return answer.status, answer.read()
        finally:
            os.close(place)
