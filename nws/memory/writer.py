"""The one thread that writes to the database: all batches that wait in one transaction, then tasks."""

import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Condition, Thread
from typing import Any, Final

from nws.errors import CodedError
from nws.memory.connection import (
    REPLACED,
    StorageError,
    check_identities,
    identities,
    opened,
    storage_error,
)
from nws.memory.contract import RefusedError

MAX_WAITING: Final = 500_000
"""Rows that may wait for the disk; more are refused."""
MAX_AT_ONCE: Final = 50_000
"""Rows that share one commit at most."""

Row = tuple[str, float, float]


class BusyError(CodedError):
    """More rows wait for the disk than is allowed. Transient."""

    code = "disk-behind"


@dataclass(slots=True)
class StoreResult:
    """The outcome of one batch: all but the refused rows are on the disk.

    Attributes
    ----------
    refused
        Rows that will never be stored as they are: index in the batch, and reason.
    stored, duplicates
        How many are new, and how many were stored before.
    late, ahead
        Number of new rows that came after a later row of their series, or have a time after our clock's.
    """

    refused: list[tuple[int, RefusedError]] = field(default_factory=list)
    stored: int = 0
    duplicates: int = 0
    late: int = 0
    ahead: int = 0


Work = Callable[[sqlite3.Connection], Any]
Store = Callable[..., tuple[list[StoreResult], Callable[[], object]]]


class Writer:
    """The thread that writes: batches, as many as wait in one transaction, and tasks between them."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        store: Store,
        report: Callable[[StorageError | None], None],
    ) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = connection
        self._files = identities(path)
        self._store, self._report = store, report
        self._batches: list[tuple[Sequence[Row], Future[StoreResult]]] = []
        self._tasks: list[tuple[Work, bool, Future[Any]]] = []
        self._waiting = 0
        self._closing = False
        self._changed = Condition()
        self._thread = Thread(target=self._run, name="nws writer", daemon=True)
        self._thread.start()

    def submit(self, rows: Sequence[Row]) -> "Future[StoreResult]":
        """Queue a batch."""
        future: Future[StoreResult] = Future()
        future.set_running_or_notify_cancel()  # the sender's end does not take it back
        with self._changed:
            self._check_open()
            if self._waiting + len(rows) > MAX_WAITING:
                raise BusyError(
                    f"{self._waiting} rows are waiting for the disk",
                    value=self._waiting,
                    bound=MAX_WAITING,
                )
            self._batches.append((rows, future))
            self._waiting += len(rows)
            self._changed.notify()
        return future

    def call(self, work: Work, *, transaction: bool = True) -> "Future[Any]":
        """Queue work with the connection between two batches."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        with self._changed:
            self._check_open()
            self._tasks.append((work, transaction, future))
            self._changed.notify()
        return future

    def close(self) -> None:
        """Write waiting rows, then end."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _check_open(self) -> None:
        if self._closing:
            raise BusyError("the database is being closed", code="database-closed")

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._batches or self._tasks or self._closing):
                    self._changed.wait()
                batches, tasks, self._tasks = self._take(), self._tasks[:1], self._tasks[1:]
            if not batches and not tasks:
                if self._connection is not None:
                    self._connection.close()
                return
            if batches:
                rows = [each for each, _ in batches]
                futures = [future for _, future in batches]
                results = self._perform(partial(self._store, batches=rows), futures)
                for future, result in zip(futures, results or (), strict=False):
                    future.set_result(result)
            for work, transaction, future in tasks:
                result = self._perform(work, [future], transaction=transaction)
                if not future.done():
                    future.set_result(result)

    def _take(self) -> list[tuple[Sequence[Row], "Future[StoreResult]"]]:
        """Return the batches of the next transaction."""
        # No wait for further batches: it would save half a commit, and delay every sender that waits.
        count = rows = 0
        for batch, _ in self._batches:
            rows += len(batch)
            count += 1
            if rows >= MAX_AT_ONCE:
                break
        taken, self._batches = self._batches[:count], self._batches[count:]
        self._waiting -= rows
        return taken

    def _perform(
        self, work: Work, futures: Sequence["Future[Any]"], *, transaction: bool = True
    ) -> Any:
        """Return the result of work once it is committed; None where it failed: the futures get the error.

        Work returns its result and, in a transaction, the function to call after the commit.
        """
        try:
            if self._connection is None:
                self._connection = opened(self._path)
                self._files = identities(self._path)
            else:
                check_identities(self._path, self._files)
            if not transaction:
                result = work(self._connection)
            else:
                self._connection.execute("BEGIN IMMEDIATE")
                result, committed = work(self._connection)
                self._connection.execute("COMMIT")
                committed()
        except BaseException as error:  # noqa: BLE001 - the waiting senders get it
            if getattr(error, "code", "") != REPLACED:  # closed at the end, to save waiting rows
                self._discard()  # a connection that failed is never trusted again
            if isinstance(error, OSError | sqlite3.Error | StorageError):
                error = storage_error(self._path, error)
                self._report(error)
            for future in futures:
                future.set_exception(error)
            return None
        self._report(None)
        return result

    def _discard(self) -> None:
        """Roll back and close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()  # which rolls back
            except sqlite3.Error as error:
                self._report(storage_error(self._path, error))
