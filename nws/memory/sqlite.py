"""A durable memory: an SQLite database that one thread writes and any thread reads.

Acknowledged means committed in WAL mode with ``synchronous=FULL``: it survives kill -9 and a power cut.
"""

import math
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Final

from nws.errors import coded
from nws.measurement import LARGEST, Measurement, SeriesName, checked_amount
from nws.memory.connection import (
    CHECKPOINT_PAGES,
    DATABASE,
    StorageError,
    opened,
    reader,
    storage_error,
)
from nws.memory.contract import Memory, RefusedError, in_future
from nws.memory.slots import SLOT_BYTES, Slot, age_slots, fold, read_slots
from nws.memory.summary import MAX_SPACINGS, SeriesSummary
from nws.memory.writer import Row, StoreResult, Writer

TASKS_AT_ONCE: Final = 64
"""Series per transaction that moves old measurements or writes states."""
SECONDS: Final = 30.0
"""Time limit of a caller that waits for the writer."""

LATE: Final = "measurement-late"

Arrival = tuple[SeriesSummary, int, float, float]
"""A measurement that is on the disk: series, position, time, value."""
OnStored = Callable[[Sequence[Arrival]], object]
OnLeft = Callable[[Sequence[str]], object]


@dataclass(frozen=True, slots=True)
class Retention:
    """The limits of a memory.

    Attributes
    ----------
    capacity
        Measurements that are kept one by one of each series; up to a quarter more are kept for a while.
    age
        Seconds after which a measurement is not kept one by one any more.
    most_series
        Series; one more is refused.
    window
        Seconds by which a measurement may come after a later one of its series.
    skew
        Seconds by which a sender's clock may be ahead of ours.
    size
        Bytes of slots (`nws.memory.slots`); the oldest leave when there are more.
    """

    capacity: int = 2000
    age: float = math.inf
    most_series: int = 100_000
    window: float = 3600.0
    skew: float = 60.0
    size: float = 2e9


@dataclass(frozen=True, slots=True)
class SavedState:
    """The state of a forecaster that has taken in its series up to a position."""

    position: int
    profile: str
    state: bytes


class SqliteMemory(Memory):
    """Keeps measurements in ``weather.db``; a summary of each series is in memory.

    Parameters
    ----------
    directory
        Directory of the database; made, readable by the owner only.
    retention
        The limits.
    on_stored
        Called with the new rows of each commit, in the order of their positions, in the writer's thread.
    on_left
        Called with the names of series that left, in the writer's thread.
    clock
        Seconds since the epoch.

    Raises
    ------
    StorageError
        The database is damaged, of a newer version, or cannot be opened or written.

    Examples
    --------
    >>> import tempfile
    >>> ada = SeriesName("availableCpu", "ada")
    >>> directory = Path(tempfile.mkdtemp())
    >>> memory = SqliteMemory(directory)
    >>> memory.store(Measurement(ada, 10.0, 0.5))
    True
    >>> memory.close()
    >>> SqliteMemory(directory).fetch(ada)[0].value
    0.5
    """

    def __init__(
        self,
        directory: Path,
        retention: Retention | None = None,
        *,
        on_stored: OnStored | None = None,
        on_left: OnLeft | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = directory / DATABASE
        self.retention = retention or Retention()
        self.problem: StorageError | None = None
        self._clock = clock
        self._on_stored, self._on_left = on_stored, on_left
        self._lock = Lock()
        self._idle: list[sqlite3.Connection] = []
        self._summaries: dict[str, SeriesSummary] = {}
        self._sorted: list[SeriesSummary] | None = None
        self._position = 0
        self._slots = 0
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            connection = opened(self.path)
        except (OSError, sqlite3.Error, UnicodeError) as error:
            raise storage_error(self.path, error) from error
        try:
            self._resume(connection)
        except (sqlite3.Error, ValueError, TypeError) as error:
            connection.close()
            raise storage_error(self.path, error) from error
        self._writer = Writer(self.path, connection, self._store, self._report)

    # ---------------------------------------------------------------------------- writing
    def store(self, measurement: Measurement) -> bool:
        """Keep one measurement; on the disk when this returns.

        Raises
        ------
        RefusedError
            As in the contract.
        StorageError, BusyError
            Nothing was stored.
        """
        row = (str(measurement.series), measurement.time, measurement.value)
        result = self.submit([row]).result(SECONDS)
        if result.refused:
            raise result.refused[0][1]
        return result.stored == 1

    def submit(self, rows: Sequence[Row]) -> "Future[StoreResult]":
        """Queue (series, time, value) rows; the future is done when the valid rows are on the disk.

        It fails with a `StorageError` if none of them is stored.

        Raises
        ------
        BusyError
            Transient: too much waits for the disk already.
        """
        return self._writer.submit(rows)

    def write_states(self, states: Mapping[SeriesSummary, SavedState]) -> None:
        """Replace the states of some series in one transaction; StorageError leaves the old states.

        The state of a series that has left meanwhile is not written, even if its name has begun again.
        """
        self._writer.call(partial(self._write_states, states=states)).result(SECONDS)

    def tidy(self, needed: Callable[[str], float]) -> tuple[str, ...]:
        """Move old measurements into slots, age the slots, and return the series that left.

        A series leaves when all its measurements are older than the retention's age, saved or not.

        Parameters
        ----------
        needed
            The position of a series up to which its measurements may be moved: its forecaster begins
            behind it after a restart.
        """
        due = [summary for summary in self.summaries() if self._is_due(summary)]
        left: list[str] = []
        for start in range(0, len(due), TASKS_AT_ONCE):
            part = due[start : start + TASKS_AT_ONCE]
            work = partial(self._fold, summaries=part, needed=needed)
            left += self._writer.call(work).result(SECONDS)
        return tuple(left)

    def age_slots(self) -> None:
        """Make hours of old slots, delete the oldest, and give free pages back to the file system."""
        now, size = self._clock(), self.retention.size
        with self.reading() as connection:
            keys = [key for (key,) in connection.execute("SELECT id FROM series")]

        for start in range(0, len(keys), TASKS_AT_ONCE):
            work = partial(_age_slots, keys=keys[start : start + TASKS_AT_ONCE], now=now)
            self._writer.call(work).result(SECONDS)
        while self._count_slots() * SLOT_BYTES > size:
            self._writer.call(_drop_oldest_slots).result(SECONDS)
        self._writer.call(_drop_unused_series).result(SECONDS)
        self._writer.call(_shrink, transaction=False).result(SECONDS)

    def close(self) -> None:
        """Write waiting rows and close the database. Nothing can be stored afterwards."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:  # first: the last one to close empties the write-ahead log
            connection.close()
        self._writer.close()

    # ---------------------------------------------------------------------------- reading
    def series(self) -> tuple[SeriesName, ...]:
        """Return the names, sorted."""
        return tuple(summary.series for summary in self.summaries())

    def summaries(self) -> Sequence[SeriesSummary]:
        """Return the summary of every series, in the order of their names."""
        found = self._sorted
        if found is None:
            with self._lock:
                found = self._sorted = sorted(self._summaries.values(), key=_text)
        return found

    def summary(self, text: str) -> SeriesSummary | None:
        """Return the summary of a series, or None."""
        return self._summaries.get(text)

    def fetch(
        self, series: SeriesName, after: float = float("-inf"), count: int | None = None
    ) -> tuple[Measurement, ...]:
        """Return rows of the database."""
        if count is not None and count < 0:
            raise ValueError(f"a count of {count} measurements")
        samples = self.samples(str(series), after=after, count=count)
        return tuple(Measurement(series, time, value) for time, value in samples)

    def samples(
        self,
        text: str,
        after: float = float("-inf"),
        until: float = float("inf"),
        count: int | None = None,
    ) -> list[tuple[float, float]]:
        """Return (time, value) in (`after`, `until`] of a series, oldest first; the latest `count`."""
        summary = self._summaries.get(text)
        if summary is None:
            return []
        after = max(after, math.nextafter(self._clock() - self.retention.age, -math.inf))
        with self.reading() as connection:
            rows = connection.execute(
                "SELECT time, value FROM samples WHERE series = ? AND time > ? AND time <= ? "
                "ORDER BY time DESC LIMIT ?",
                (summary.key, after, until, -1 if count is None else count),
            ).fetchall()
        return rows[::-1]

    def arrivals(
        self, summary: SeriesSummary, since: float, position: int, last: int, limit: int
    ) -> list[tuple[int, float, float]]:
        """Return (position, time, value) behind `position` up to `last`, and not before `since`, in order."""
        with self.reading() as connection:
            return connection.execute(
                "SELECT position, time, value FROM samples "
                "WHERE series = ? AND time >= ? AND position > ? AND position <= ? "
                "ORDER BY position LIMIT ?",
                (summary.key, since, position, last, limit),
            ).fetchall()

    def slots(self, text: str, start: float, stop: float) -> list[Slot]:
        """Return the slots of a series that begin from `start` to before `stop`, oldest first."""
        with self.reading() as connection:
            return read_slots(connection, text, start, stop)

    def slot_bytes(self) -> int:
        """Return about how many bytes the slots take, as of the last time that they were counted."""
        return self._slots * SLOT_BYTES

    def state_positions(self, profile: str) -> dict[str, int]:
        """Return the position of the state of each series that has one of this profile."""
        with self.reading() as connection:
            return dict(
                connection.execute(
                    "SELECT name, position FROM states JOIN series ON series.id = states.series "
                    "WHERE profile = ?",
                    (profile,),
                )
            )

    def other_profiles(self, profile: str) -> list[str]:
        """Return the other profiles with saved states."""
        with self.reading() as connection:
            rows = connection.execute(
                "SELECT DISTINCT profile FROM states WHERE profile <> ?", (profile,)
            )
            return [name for (name,) in rows]

    def state(self, summary: SeriesSummary) -> SavedState | None:
        """Return the saved state of a series, or None."""
        with self.reading() as connection:
            row = connection.execute(
                "SELECT position, profile, state FROM states WHERE series = ?", (summary.key,)
            ).fetchone()
        return None if row is None else SavedState(*row)

    def problems(self) -> list[str]:
        """Return the problems, one line each."""
        return [] if self.problem is None else [str(self.problem)]

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection that reads; StorageError if the database cannot be read."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        try:
            if connection is None:
                connection = reader(self.path)
            yield connection
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, sqlite3.Error | UnicodeError):
                raise storage_error(self.path, error) from error
            raise
        with self._lock:
            self._idle.append(connection)

    # ----------------------------------------------------------------- in the writer's thread
    def _resume(self, connection: sqlite3.Connection) -> None:
        """Make the summaries of the stored series."""
        # SQLite takes the bare column `time` from the row that has the largest position.
        counts = {
            key: (count, position, at)
            for key, count, position, at in connection.execute(
                "SELECT series, count(*), max(position), time FROM samples GROUP BY series"
            )
        }
        for key, name, folded in connection.execute("SELECT id, name, folded FROM series"):
            if key not in counts:
                continue
            summary = SeriesSummary(SeriesName.parse(name), key, folded)
            latest = connection.execute(
                "SELECT time, value FROM samples WHERE series = ? ORDER BY time DESC LIMIT ?",
                (key, MAX_SPACINGS + 1),
            ).fetchall()
            (oldest,) = connection.execute(
                "SELECT min(time) FROM samples WHERE series = ?", (key,)
            ).fetchone()
            summary.resume(*counts[key], [at for at, _ in reversed(latest)], oldest)
            summary.latest = latest[0][1]
            self._summaries[name] = summary
        (last,) = connection.execute("SELECT max(position) FROM states").fetchone()
        positions = [position for _, position, _ in counts.values()]
        self._position = 1 + max([-1 if last is None else last, *positions])
        (self._slots,) = connection.execute("SELECT count(*) FROM slots").fetchone()

    def _store(
        self, connection: sqlite3.Connection, batches: Sequence[Sequence[Row]]
    ) -> "tuple[list[StoreResult], Callable[[], None]]":
        """Insert batches, and return their results and the function to call after the commit."""
        insertion = _Insertion(connection, self._position)
        fresh: dict[str, SeriesSummary] = {}
        newest: dict[str, float] = {}
        results = [self._insert(rows, insertion, fresh, newest) for rows in batches]
        insertion.flush()

        def committed() -> None:
            with self._lock:
                self._summaries.update(
                    (arrival[0].text, arrival[0]) for arrival in insertion.arrivals
                )
                if fresh:
                    self._sorted = None
            for summary, position, at, value in insertion.arrivals:
                summary.add(position, at, value)
            self._position = insertion.position
            if self._on_stored is not None and insertion.arrivals:
                self._on_stored(insertion.arrivals)

        return results, committed

    def _insert(
        self,
        rows: Sequence[Row],
        insertion: "_Insertion",
        fresh: dict[str, SeriesSummary],
        newest: dict[str, float],
    ) -> StoreResult:
        """Insert one batch; `fresh` and `newest` are the new series and latest times of the transaction."""
        result = StoreResult()
        now = self._clock()
        for index, (text, at, value) in enumerate(rows):
            summary = self._summaries.get(text) or fresh.get(text)
            last = newest.get(text, -math.inf if summary is None else summary.newest)
            try:
                self._check(text, at, value, summary, last, now)
                if summary is None:
                    summary = fresh[text] = self._begin_series(insertion, text, at, len(fresh))
            except ValueError as error:
                # A new error: a raised error refers to its frame, and so to this batch.
                refusal = RefusedError(str(error), **{"series": text, **coded(error)})
                if refusal.code == LATE and insertion.has(summary, at):
                    result.duplicates += 1
                else:
                    result.refused.append((index, refusal))
                continue
            late = at <= last
            if not insertion.add(summary, at, value, late=late):
                result.duplicates += 1
                continue
            newest[text] = max(at, last)
            result.stored += 1
            result.late += late
            result.ahead += at > now
        return result

    def _begin_series(
        self, insertion: "_Insertion", text: str, at: float, fresh: int
    ) -> SeriesSummary:
        """Return the summary of a series that is not kept yet; `fresh`: others of this transaction."""
        if len(self._summaries) + fresh >= self.retention.most_series:
            raise RefusedError(
                f"{text} would be one more than {self.retention.most_series} series",
                code="too-many-series",
                series=text,
                bound=self.retention.most_series,
            )
        series = SeriesName.parse(text)
        execute = insertion.connection.execute
        execute(
            "INSERT OR IGNORE INTO series (name, created) VALUES (?, ?)", (text, self._clock())
        )
        key, folded = execute("SELECT id, folded FROM series WHERE name = ?", (text,)).fetchone()
        summary = SeriesSummary(series, key, folded)
        if at < summary.folded:  # its slots are still there
            raise self._untimely(text, at, summary, -math.inf, self._clock())
        return summary

    def _check(
        self,
        text: str,
        at: float,
        value: float,
        summary: SeriesSummary | None,
        newest: float,
        now: float,
    ) -> None:
        """Raise RefusedError unless a row can be stored."""
        retention = self.retention
        timely = max(now - retention.age, 0.0) <= at <= min(now + retention.skew, LARGEST)
        if not (timely and at >= newest - retention.window) or (
            summary is not None and at < summary.folded
        ):
            raise self._untimely(text, at, summary, newest, now)
        if not (-LARGEST <= value <= LARGEST) or (
            summary is None or not (summary.bounds[0] <= value <= summary.bounds[1])
        ):
            checked_amount(text, value)

    def _untimely(
        self, text: str, at: float, summary: SeriesSummary | None, newest: float, now: float
    ) -> RefusedError:
        """Return the error of a measurement with an invalid time, or outside the time that is kept."""
        retention = self.retention
        if not math.isfinite(at) or abs(at) > LARGEST:
            return RefusedError(
                f"{text}: the time {at!r} is not a number", code="time-invalid", value=repr(at)
            )
        if at < 0:
            reason = f"{text} at {at} lies before 1970; give seconds since the epoch"
            return RefusedError(reason, code="time-invalid", value=at)
        if at > now + retention.skew:
            return in_future(text, at, now, retention.skew)
        if at < now - retention.age:
            return RefusedError(
                f"{text} at {at} is older than the {retention.age:.0f} s that are kept",
                code="measurement-too-old",
                value=at,
                seconds=now - at,
                bound=retention.age,
            )
        if summary is not None and at < summary.folded:
            return RefusedError(
                f"{text} at {at} is older than the measurements that are kept one by one, "
                f"from {summary.folded} on",
                code="measurement-too-old",
                value=at,
                bound=summary.folded,
            )
        return RefusedError(
            f"{text} at {at} comes {newest - at:.0f} s after a later one, more than the "
            f"{retention.window:.0f} s that senders may be late",
            code=LATE,
            value=at,
            seconds=newest - at,
            bound=retention.window,
        )

    def _write_states(
        self, connection: sqlite3.Connection, states: Mapping[SeriesSummary, SavedState]
    ) -> "Done":
        now = self._clock()
        rows = [
            (summary.key, saved.position, saved.profile, now, saved.state)
            for summary, saved in states.items()
            if self._summaries.get(summary.text) is summary
        ]
        connection.executemany("INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?, ?)", rows)
        return DONE

    def _is_due(self, summary: SeriesSummary) -> bool:
        slack = max(self.retention.capacity // 4, 16)
        too_many = summary.count > self.retention.capacity + slack
        return too_many or summary.oldest < self._clock() - self.retention.age

    def _fold(
        self,
        connection: sqlite3.Connection,
        summaries: Iterable[SeriesSummary],
        needed: Callable[[str], float],
    ) -> "tuple[list[str], Callable[[], None]]":
        """Move excess and old measurements of some series into slots; return the series that left."""
        moved: list[tuple[SeriesSummary, int, float, float | None]] = []
        for summary in summaries:
            before = self._folded_before(connection, summary, needed)
            count = fold(connection, summary.key, before)
            if not count:
                continue
            (oldest,) = connection.execute(
                "SELECT min(time) FROM samples WHERE series = ?", (summary.key,)
            ).fetchone()
            if oldest is None:
                connection.execute("DELETE FROM states WHERE series = ?", (summary.key,))
            moved.append((summary, count, before, oldest))
        left = [summary.text for summary, *_, oldest in moved if oldest is None]

        def committed() -> None:
            for summary, count, before, oldest in moved:
                summary.count -= count
                summary.folded = before
                summary.oldest = math.inf if oldest is None else oldest
            if left:
                with self._lock:
                    for text in left:
                        del self._summaries[text]
                    self._sorted = None
                if self._on_left is not None:
                    self._on_left(left)

        return left, committed

    def _folded_before(
        self,
        connection: sqlite3.Connection,
        summary: SeriesSummary,
        needed: Callable[[str], float],
    ) -> float:
        """Return the time before which the measurements of a series become part of slots."""
        before = max(self._clock() - self.retention.age, 0.0)
        if summary.newest < before:  # it leaves, and its forecaster with it
            return before
        kept = connection.execute(
            "SELECT time FROM samples WHERE series = ? ORDER BY time DESC LIMIT 1 OFFSET ?",
            (summary.key, self.retention.capacity - 1),
        ).fetchone()
        if kept is not None:
            before = max(before, kept[0])
        (open_since,) = connection.execute(
            "SELECT min(time) FROM samples WHERE series = ? AND time < ? AND position > ?",
            (summary.key, before, needed(summary.text)),
        ).fetchone()
        return before if open_since is None else float(open_since)

    def _count_slots(self) -> int:
        with self.reading() as connection:
            (self._slots,) = connection.execute("SELECT count(*) FROM slots").fetchone()
        return self._slots

    def _report(self, problem: StorageError | None) -> None:
        self.problem = problem


class _Insertion:
    """The rows of one transaction, with their positions; those in order are inserted together."""

    def __init__(self, connection: sqlite3.Connection, position: int) -> None:
        self.position = position
        self.arrivals: list[Arrival] = []
        self.connection = connection
        self._rows: list[tuple[int, float, float, int]] = []

    def add(self, summary: SeriesSummary, at: float, value: float, *, late: bool) -> bool:
        """Insert a row, or have it inserted; return False if a late one was stored before."""
        row = (summary.key, at, value, self.position)
        if late:
            self.flush()
            cursor = self.connection.execute(
                "INSERT OR IGNORE INTO samples (series, time, value, position) VALUES (?, ?, ?, ?)",
                row,
            )
            if not cursor.rowcount:
                return False
        else:
            self._rows.append(row)
        self.arrivals.append((summary, self.position, at, value))
        self.position += 1
        return True

    def has(self, summary: SeriesSummary | None, at: float) -> bool:
        """Return whether a series has a measurement of this time, in the database or in this transaction."""
        if summary is None:
            return False
        self.flush()
        row = self.connection.execute(
            "SELECT 1 FROM samples WHERE series = ? AND time = ?", (summary.key, at)
        ).fetchone()
        return row is not None

    def flush(self) -> None:
        """Insert the rows that are later than all of their series."""
        # Replace: after a failed commit the row of a sender that tries again may be there already.
        self.connection.executemany(
            "INSERT OR REPLACE INTO samples (series, time, value, position) VALUES (?, ?, ?, ?)",
            self._rows,
        )
        self._rows.clear()


def _nothing() -> None:
    """Do nothing after a commit."""


Done = tuple[None, Callable[[], object]]
DONE: Final[Done] = (None, _nothing)
"""The result of work that has none."""


def _age_slots(connection: sqlite3.Connection, keys: Sequence[int], now: float) -> Done:
    for key in keys:
        age_slots(connection, key, now)
    return DONE


def _drop_oldest_slots(connection: sqlite3.Connection) -> Done:
    connection.execute(
        "DELETE FROM slots WHERE (series, step, start) IN "
        "(SELECT series, step, start FROM slots ORDER BY start LIMIT max(1, "
        "(SELECT count(*) / 20 FROM slots)))"
    )
    return DONE


def _drop_unused_series(connection: sqlite3.Connection) -> Done:
    connection.execute(
        "DELETE FROM series WHERE NOT EXISTS (SELECT 1 FROM samples WHERE samples.series = id) "
        "AND NOT EXISTS (SELECT 1 FROM slots WHERE slots.series = id)"
    )
    return DONE


def _shrink(connection: sqlite3.Connection) -> None:
    """Give pages back once a quarter of the file is free."""
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    if free > max(pages // 4, CHECKPOINT_PAGES):
        connection.execute(f"PRAGMA incremental_vacuum({free // 2})").fetchall()


def _text(summary: SeriesSummary) -> str:
    return summary.text
