"""The verbs of jobs for a scheduler's job, and the connection options that they share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

from apples.errors import DeadlineError, LaunchError, UsageError
from apples.io import record_folders
from apples.jobs.scheduler_client import OVER, SchedulerClient, found
from apples.ui.command_line import say, show_answer
from apples.ui.parameters import FILE, option
from apples.ui.settings import from_files

WATCH_SECONDS = 2.0
SCHEDULER_HELP = "Its directory or https://HOST:PORT; $APPLES_SCHEDULER, or the only one."
AWAY_SECONDS = 600.0
"""Time limit for an unreachable scheduler to answer again while a command waits for one of its jobs."""
NAME_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


def is_scheduled(job: str) -> bool:
    """Whether a word is an id of a scheduler's job: NAME.NUMBER."""
    return record_folders.SCHEDULED.fullmatch(job) is not None and not Path(job).exists()


def record_of(job: str) -> str:
    """Return the id of a job's record; for a scheduler's job, the record of its last attempt.

    If the scheduler does not answer, the record is found by its order, which names scheduler and job.

    Raises
    ------
    UsageError
        The scheduler is not this one, has no such job, or has not started it yet.
    LaunchError
        No scheduler exists, or it does not answer and no order names the job. Transient.
    """
    if not is_scheduled(job):
        return job
    client = client_of(job)
    try:
        folder = str(client.ask("GET", f"/v1/jobs/{job}")["record"])
    except LaunchError:
        record = record_folders.of_scheduled(job)
        if record is None:
            raise
        folder = record.name
    if not folder:
        raise UsageError(
            f"{job} has not been started, and has no record; see: apples queue {job}",
            code="job-not-started",
            job=job,
        )
    return folder


def cancel_scheduled(job: str, json: bool) -> int:
    """Cancel a scheduler's job; return when it is over."""
    ask_of(job, "POST", "/cancel")
    document = until_over(job, None)
    show_answer(document, f"{job} is {document['state']}", json)
    return 0


def until_over(job: str, seconds: float | None) -> dict[str, Any]:
    """Wait for the end of a scheduler's job, also through a restart of the scheduler, and return its document.

    Raises
    ------
    DeadlineError
        The job is not over after `seconds`.
    LaunchError
        The scheduler has not answered for `AWAY_SECONDS`.
    """
    deadline, pause = None if seconds is None else time.monotonic() + seconds, 0.05
    away: float | None = None  # time since when the scheduler has not answered
    shown = "not known to be over"
    while True:
        try:
            document = ask_of(job)
        except LaunchError as error:
            if (
                error.code == "scheduler-missing"
            ):  # its directory is missing, so it will not answer again
                raise
            if away is None:
                away = time.monotonic()
                say(f"apples: {error}; its jobs continue; retrying for {AWAY_SECONDS:g} s")
            elif time.monotonic() >= away + AWAY_SECONDS:
                raise
        else:
            away, shown = None, document["state"]
            if shown in OVER:
                if document["reason"]:
                    say(f"apples: {job} {shown}: {document['reason']}")
                return document
        if deadline is not None and time.monotonic() >= deadline:
            raise DeadlineError(
                f"{job} is {shown} after {seconds:g} s",
                code="wait-timeout",
                job=job,
                value=shown,
                seconds=seconds,
            )
        time.sleep(pause)
        pause = min(1.0, 1.3 * pause)


def resize_scheduled(job: str, hosts: Sequence[str], json: bool) -> int:
    """Request from the scheduler that a job moves to these hosts; return when the move succeeded or failed."""
    before = ask_of(job)
    document = ask_of(job, "POST", "/resize", {"hosts": list(hosts)})
    while document["state"] in {"resizing", "unsettled"}:
        time.sleep(0.1)
        document = ask_of(job)
    if document["resizes"] == before["resizes"] and set(document["hosts"]) != set(hosts):
        raise LaunchError(
            f"{job} was not resized, and is {_where(document)}; see: apples queue",
            code="job-not-resized",
            job=job,
            hosts=document["hosts"],
        )
    show_answer(document, f"{job} is {_where(document)}", json)
    return 0


def migrate_scheduled(job: str, source: str, target: str, json: bool) -> int:
    """Request from the scheduler that a job moves from one host to another."""
    hosts = ask_of(job)["hosts"]
    if source not in hosts:
        raise UsageError(
            f"--from {source}: the job is not there (it is on {', '.join(hosts)})",
            code="host-unknown",
            option="--from",
            host=source,
            known=list(hosts),
        )
    if target in hosts:
        raise UsageError(
            f"--to {target}: the job is there already",
            code="host-in-use",
            option="--to",
            host=target,
        )
    return resize_scheduled(job, [target if host == source else host for host in hosts], json)


def _where(document: Mapping[str, Any]) -> str:
    on = f" on {', '.join(document['hosts'])}" if document["hosts"] else ""
    return f"{document['state']}{on}"


@dataclass(frozen=True, slots=True)
class SchedulerConnection:
    """The connection to a scheduler: its directory or URL, and for a URL the files of token and authority."""

    scheduler: str | None = None
    token_file: Path | None = None
    ca: Path | None = None


_connection: ContextVar[SchedulerConnection | None] = ContextVar("_connection", default=None)
"""The connection that the options of the running command select."""


def scheduler_options(function: Callable[..., int | None]) -> Any:
    """Add the options that select a scheduler to a command; `client_of` and `ask_of` use them."""

    @option("--scheduler", metavar="FOLDER|URL", help=SCHEDULER_HELP)
    @option("--token-file", type=FILE, help="For a URL: file of the token; $APPLES_TOKEN_FILE.")
    @option("--ca", type=FILE, help="For a URL: the authority to trust; $APPLES_CA.")
    @wraps(function)
    def called(
        *, scheduler: str | None, token_file: Path | None, ca: Path | None, **options: Any
    ) -> int | None:
        with _selected(SchedulerConnection(scheduler, token_file, ca)):
            return function(**options)

    return called


def job_scheduler_options(function: Callable[..., int]) -> Any:
    """Add `scheduler_options` to a verb of any job; they apply only to a scheduler's job: NAME.NUMBER.

    The verb has an argument ``job``.
    """

    @scheduler_options
    @wraps(function)
    def called(**options: Any) -> int:
        job = options["job"]
        if connection_given() and (job is None or not is_scheduled(job)):
            raise not_scheduled(job or "all jobs")
        return function(**options)

    return called


def not_scheduled(subject: str) -> UsageError:
    """Return the error for connection options with a job or file that is not a scheduler's."""
    return UsageError(
        f"{subject}: --scheduler, --token-file and --ca apply only to a scheduler's job (NAME.NUMBER)",
        code="option-not-applicable",
        option="--scheduler",
        value=subject,
    )


def connection_given() -> bool:
    """Return whether the running command has an option of a scheduler's connection."""
    return _connection.get() not in {None, SchedulerConnection()}


@contextmanager
def _selected(connection: SchedulerConnection) -> Iterator[None]:
    token = _connection.set(connection)
    try:
        yield
    finally:
        _connection.reset(token)


def client_of(job: str = "") -> SchedulerClient:
    """Return the client of the scheduler that the options select, or else of a job's scheduler."""
    given = _connection.get() or SchedulerConnection()
    place = found(given.scheduler or from_files("scheduler"), job=job)
    for name, file in (("--token-file", given.token_file), ("--ca", given.ca)):
        if file is not None and isinstance(place, Path):
            raise UsageError(
                f"{name} does not apply to {place}: only a scheduler's URL takes a token",
                code="option-not-applicable",
                option=name,
                value=str(place),
            )
    if isinstance(place, Path):
        return SchedulerClient(place)
    token_file, ca = (
        file or (Path(default) if (default := from_files(name)) else None)
        for name, file in (("token_file", given.token_file), ("ca", given.ca))
    )
    return SchedulerClient(place, token_file, ca)


def ask_of(
    job: str, method: str = "GET", path: str = "", body: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the answer of a job's scheduler to a request about the job."""
    answer: dict[str, Any] = client_of(job).ask(
        method, f"/v1/jobs/{checked_name(job)}{path}", body
    )
    return answer


def checked_name(word: str) -> str:
    """Return a word if it may stand in the path of a URL; else raise UsageError."""
    if not word or len(word) > 80 or set(word) - NAME_LETTERS:
        raise UsageError(
            f"'{word[:80]}': not a name of a job or host", code="name-invalid", value=word[:80]
        )
    return word
