"""Jobs that ended long ago, in an SQLite database: the deciding thread writes it, other threads read it.

A row has the finished answer about a job and the request id that submitted it. The journal forgets a job only
after its row is durable (WAL, ``synchronous=FULL``), so a job is in one of the two at every moment, or in both.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from apples.cluster.documents import EstimateSource, ScheduledJob
from apples.cluster.live_job import LiveJob
from apples.errors import LaunchError, system_code
from apples.io.journal import JournalError

FILE: Final = "history.db"
READ_SECONDS: Final = 5.0
"""Time limit of a reader that waits for a lock of the database."""
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS jobs (
  number INTEGER PRIMARY KEY, state TEXT NOT NULL, document TEXT NOT NULL, request TEXT, digest TEXT
);
CREATE INDEX IF NOT EXISTS requests ON jobs (request) WHERE request IS NOT NULL;
"""
Requests = Mapping[int, tuple[str, str]]
"""Job -> the request id that submitted it, and the digest of its submission."""


def job_fields(job: LiveJob, name: str, wall: float) -> ScheduledJob:
    """Return the answer about a job, as far as its record determines it.

    Parameters
    ----------
    name
        Name of the scheduler.
    wall
        Time since the epoch at second 0 of the scheduler's clock.
    """
    submission = job.submission
    return {
        "job": f"{name}.{job.number}",
        "state": job.state.value,
        "name": submission.name,
        "user": submission.user,
        "kind": submission.kind.value,
        "hosts": list(job.hosts),
        "started_on": list(job.started_on) if job.started is not None else [],
        "after": [f"{name}.{number}" for number in submission.after],
        "minimum": submission.minimum,
        "maximum": submission.maximum,
        "submitted": wall + job.submitted,
        "started": None if job.started is None else wall + job.started,
        "ended": None if job.ended is None else wall + job.ended,
        "start": None,
        "requested": job.requested,
        "estimated_by": estimated_by(job),
        "mean_hosts": mean_hosts(job),
        "iteration": None,
        "iterations": None,
        "expected_end": None,
        "asks": None if job.asks is None else list(job.asks),
        "resizes": job.resizes,
        "attempt": job.attempt,
        "record": job.folder,
        "reason": job.reason,
        "require": job.requirement,
        "exit_code": job.exit_code,
    }


def estimated_by(job: LiveJob) -> EstimateSource:
    """Return the source of a job's estimated run time."""
    if not job.submission.modelled:
        return "user"
    return "model" if job.estimate else "nobody"


def mean_hosts(job: LiveJob) -> float | None:
    """Return the mean number of hosts of an ended job's last attempt over its time, or None."""
    if not job.is_over or job.started is None or job.ended is None:
        return None
    seconds = job.ended - job.started
    return job.host_seconds / seconds if seconds > 0 and job.host_seconds > 0 else None


class JsonText(str):
    """A JSON document as text; answers contain it unchanged."""

    __slots__ = ()


class JobHistory:
    """The database in a scheduler's directory; the first `add` makes it.

    Parameters
    ----------
    directory
        The scheduler's directory.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE
        self._writer: sqlite3.Connection | None = None

    def add(self, jobs: Iterable[LiveJob], name: str, wall: float, requests: Requests) -> None:
        """Store ended jobs; all of them are durable when this returns, or none is. Never waits for a lock.

        Raises
        ------
        JournalError
            They are not stored. Transient.
        """
        rows = [
            (
                job.number, job.state.value, json.dumps(job_fields(job, name, wall)),
                *requests.get(job.number, (None, None)),
            )
            for job in jobs
        ]  # fmt: skip
        try:
            if self._writer is None:
                self._writer = self._opened()
            with self._writer:
                self._writer.executemany(
                    "INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, ?, ?)", rows
                )
        except (OSError, sqlite3.Error) as error:
            self.close()
            reason = getattr(error, "strerror", None) or str(error)
            code = system_code(error) if isinstance(error, OSError) else "log-unwritable"
            raise JournalError(f"{self.path}: {reason}", code=code, file=self.path) from error

    def _opened(self) -> sqlite3.Connection:
        """Return a connection for writing, to a file that only its owner can read."""
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        writer = sqlite3.connect(self.path, timeout=0.0, check_same_thread=False)
        try:
            writer.execute("PRAGMA journal_mode=WAL")
            writer.execute("PRAGMA synchronous=FULL")
            writer.executescript(SCHEMA)
        except sqlite3.Error:
            writer.close()
            raise
        return writer

    def close(self) -> None:
        """Close the writer's connection."""
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    # ----------------------------------------------------------------------------- reading
    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection | None]:
        """Yield a connection for reading; None: the history does not exist yet, or has no table."""
        if not self.path.exists():
            yield None
            return
        try:
            with closing(
                sqlite3.connect(f"{self.path.as_uri()}?mode=ro", timeout=READ_SECONDS, uri=True)
            ) as reader:
                made = reader.execute("SELECT 1 FROM sqlite_master WHERE name = 'jobs'").fetchone()
                yield reader if made else None
        except sqlite3.Error as error:
            raise LaunchError(
                f"{self.path}: {error}; move the file aside to go on without the jobs in it",
                code="history-unreadable", file=self.path,
            ) from error  # fmt: skip

    def documents(self, after: int = 0, limit: int = -1) -> dict[int, JsonText]:
        """Return the documents of the first `limit` jobs above a number, in their order; -1: of all jobs.

        Raises
        ------
        LaunchError
            The database cannot be read. Transient.
        """
        with self._reader() as reader:
            if reader is None:
                return {}
            query = "SELECT number, document FROM jobs WHERE number > ? ORDER BY number LIMIT ?"
            rows = reader.execute(query, (after, limit))
            return {number: JsonText(document) for number, document in rows}

    def document(self, number: int) -> ScheduledJob | None:
        """Return the document of a job, or None; raises as `documents`."""
        with self._reader() as reader:
            rows = [] if reader is None else [
                *reader.execute("SELECT document FROM jobs WHERE number = ?", (number,))
            ]  # fmt: skip
        return json.loads(rows[0][0]) if rows else None

    def states(self, numbers: Iterable[int]) -> dict[int, str]:
        """Return the final states of those jobs that are in the history; raises as `documents`."""
        query = "SELECT state FROM jobs WHERE number = ?"
        with self._reader() as reader:
            if reader is None:
                return {}
            return {
                number: state
                for number in numbers
                for (state,) in reader.execute(query, (number,))
            }

    def requested(self, request: str) -> tuple[int, str] | None:
        """Return the job that a request id submitted, and the digest of its submission; raises as `documents`."""
        query = "SELECT number, digest FROM jobs WHERE request = ?"
        with self._reader() as reader:
            rows = [] if reader is None else [*reader.execute(query, (request,))]
        return (int(rows[0][0]), str(rows[0][1])) if rows else None
