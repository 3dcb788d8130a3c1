"""A thread that lets many writers share one sync (group commit)."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Condition, Thread
from typing import Final, TypeVar

from nws.journal.record import BLOCK
from nws.journal.shard import LogError, Row, Shard

T = TypeVar("T")

MOST_WAITING: Final = 500_000
"""Rows that may wait for the disk; more are refused."""
MOST_AT_ONCE: Final = 50_000
"""Rows that share one sync at most."""


class BusyError(Exception):
    """More is waiting for the disk than is allowed. Transient."""


@dataclass(frozen=True, slots=True)
class _Batch:
    rows: Sequence[Row]
    names: Mapping[int, str]
    stored: Callable[[int], object]
    done: Future[int]


class Writer:
    """Appends batches to a shard, one after the other, as many as wait under one sync.

    Parameters
    ----------
    shard
        What is appended to; this thread's alone from now on.
    """

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self._batches: list[_Batch] = []
        self._waiting = 0
        self._closing = False
        self._changed = Condition()
        self._tasks: list[tuple[Callable[[], object], Future[object]]] = []
        name = f"nws shard {shard.number}"
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(
        self, rows: Sequence[Row], names: Mapping[int, str], stored: Callable[[int], object]
    ) -> "Future[int]":
        """Queue rows; the future gives the first's position once all of them are on the disk.

        ``stored(position)`` is called just before, in the order of the log, in this thread.

        Raises
        ------
        BusyError
            Transient: half a million rows are waiting.
        """
        done: Future[int] = Future()
        with self._changed:
            if self._closing:
                raise BusyError("the log is being closed")
            if self._waiting + len(rows) > MOST_WAITING:
                raise BusyError(f"{self._waiting} rows are waiting for the disk")
            self._batches.append(_Batch(rows, names, stored, done))
            self._waiting += len(rows)
            self._changed.notify()
        return done

    def call(self, task: Callable[[], object]) -> "Future[object]":
        """Queue something to do with the shard between two batches."""
        done: Future[object] = Future()
        with self._changed:
            if self._closing:
                raise BusyError("the log is being closed")
            self._tasks.append((task, done))
            self._changed.notify()
        return done

    def close(self, seconds: float = 30.0) -> None:
        """Write what waits, then end; at most `seconds`."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._batches or self._tasks or self._closing):
                    self._changed.wait()
                batches, tasks = self._take(), self._tasks
                self._tasks = []
                if not batches and not tasks:
                    self.shard.close()
                    return
            if batches:
                self._write(batches)
            for task, done in tasks:
                _fulfil(done, task)

    def _take(self) -> list[_Batch]:
        """Return the batches that go under the next sync."""
        count = rows = 0
        for batch in self._batches:
            rows += len(batch.rows)
            count += 1
            if rows >= MOST_AT_ONCE:
                break
        taken, self._batches = self._batches[:count], self._batches[count:]
        self._waiting -= rows
        return taken

    def _write(self, batches: Sequence[_Batch]) -> None:
        rows = [row for batch in batches for row in batch.rows]
        names = {key: name for batch in batches for key, name in batch.names.items()}
        try:
            position = self.shard.append(rows, names)
        except LogError as error:
            _fail(batches, error)
            return
        except BaseException as error:  # noqa: BLE001 - whoever waits must hear of it
            with self._changed:
                self._closing = True
                rest, self._batches = self._batches, []
            _fail([*batches, *rest], error)
            return
        for batch in batches:
            _fulfil(batch.done, _Stored(batch, position))
            position += BLOCK * len(batch.rows)


@dataclass(frozen=True, slots=True)
class _Stored:
    """What remains to be done for a batch that is on the disk."""

    batch: _Batch
    position: int

    def __call__(self) -> int:
        self.batch.stored(self.position)
        return self.position


def _fail(batches: Sequence[_Batch], error: BaseException) -> None:
    for batch in batches:
        batch.done.set_exception(error)


def _fulfil(done: "Future[T]", task: Callable[[], T]) -> None:
    try:
        done.set_result(task())
    except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for the future
        done.set_exception(error)
