"""A memory whose measurements survive: a log on the disk, the latest of each series in memory."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from nws.errors import coded
from nws.measurement import LARGEST, Measurement, SeriesName, checked_amount
from nws.memory.column import SeriesColumn
from nws.memory.contract import Memory, RefusedError
from nws.memory.journal import SEGMENT_BYTES, BusyError, JournalShard, LogError
from nws.memory.journal_files import Files, number_in
from nws.memory.journal_format import key_of
from nws.memory.series_shard import Arrival, SeriesShard, StorageListener


@dataclass(frozen=True, slots=True)
class Retention:
    """The limits of a memory: what it keeps and accepts.

    Attributes
    ----------
    capacity
        Measurements per series.
    age
        Seconds after which a measurement is let go.
    most_series
        Series; one more is refused.
    window
        Seconds by which a measurement may come after a later one of its series.
    skew
        Seconds by which a sender's clock may be ahead of ours.
    size
        Bytes of what is kept downsampled (`nws.memory.archive`); the oldest goes when there are more.
    """

    capacity: int = 2000
    age: float = math.inf
    most_series: int = 100_000
    window: float = 3600.0
    skew: float = 60.0
    size: float = 2e9


@dataclass(slots=True)
class Submission:
    """A batch on its way to the disk.

    Attributes
    ----------
    refused
        The measurements that will never be stored as they are: place in the batch, and why.
    duplicates
        How many were stored before.
    late
        How many of the accepted came after a later one of their series.
    ahead
        How many of the accepted are stamped later than our clock.
    futures
        Done when all else is on the disk; one that failed says why (`LogError`).
    """

    refused: list[tuple[int, RefusedError]] = field(default_factory=list)
    duplicates: int = 0
    late: int = 0
    ahead: int = 0
    futures: "list[Future[int]]" = field(default_factory=list)
    accepted: int = 0
    new: list[int] = field(default_factory=list)

    @property
    def stored(self) -> int:
        """How many are new; right once all futures are done."""
        return sum(self.new)


DEADLINE: Final = 30.0
Row = tuple[str, float, float]


class JournalMemory(Memory):
    """Keeps the latest measurements of each series in memory and all of them in a log.

    A normal return of `store`, or a done future of a `Submission`, means that the measurement is
    on the disk and survives kill -9 and a power cut. A bad record in the log costs itself.

    Parameters
    ----------
    directory
        Where the shards are; made, readable by the owner only.
    retention
        What is kept and taken.
    shards
        How many logs there are; the first opening decides, later ones follow it.
    listener
        Who hears of what is stored and of what the log holds.
    files, clock
        What reads and writes; seconds since the epoch.
    segment_bytes
        How long a file of the log becomes.

    Examples
    --------
    >>> import tempfile
    >>> ada = SeriesName("availableCpu", "ada")
    >>> directory = Path(tempfile.mkdtemp())
    >>> memory = JournalMemory(directory)
    >>> memory.store(Measurement(ada, 10.0, 0.5))
    True
    >>> memory.close()
    >>> JournalMemory(directory).fetch(ada)[0].value
    0.5
    """

    def __init__(
        self,
        directory: Path,
        retention: Retention | None = None,
        *,
        shards: int = 1,
        listener: StorageListener | None = None,
        files: Files | None = None,
        clock: Callable[[], float] = time.time,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self.directory = directory
        self.retention = retention or Retention()
        self._clock = clock
        self._sorted: tuple[tuple[int, ...], list[SeriesColumn]] = ((), [])
        files = files or Files()
        files.make_directory(directory)
        found = (number_in(name, "shard-") for name in files.names(directory))
        existing = [number for number in found if number is not None]
        count = max(existing, default=shards - 1) + 1
        make = self._make_column
        self.partitions = [
            SeriesShard(
                JournalShard(
                    directory / f"shard-{number}",
                    number,
                    files,
                    clock=clock,
                    segment_bytes=segment_bytes,
                ),
                make,
                listener,
            )
            for number in range(count)
        ]

    def store(self, measurement: Measurement) -> bool:
        """Keep one measurement; on the disk when this returns.

        Raises
        ------
        RefusedError
            As the contract says.
        LogError, BusyError
            Transient: the disk is full or failed, or too much waits for it. Nothing was stored.
        """
        row = (str(measurement.series), measurement.time, measurement.value)
        submission = self.submit([row])
        if submission.refused:
            raise submission.refused[0][1]
        wait(submission.futures, timeout=DEADLINE)
        for future in submission.futures:
            future.result(timeout=0)
        return submission.stored == 1

    def submit(self, rows: Sequence[Row]) -> Submission:
        """Check (series, time, value) rows and send the good ones to the disk; do not wait.

        Raises
        ------
        BusyError
            Transient: too much waits for the disk already. Some rows may have been sent.
        """
        submission = Submission()
        now = self._clock()
        parts: list[list[Arrival]] = [[] for _ in self.partitions]
        by_part: list[list[tuple[int, Row]]] = [[] for _ in self.partitions]
        count = len(by_part)
        for index, row in enumerate(rows):
            by_part[key_of(row[0]) % count].append((index, row))
        for partition, offered, part in zip(self.partitions, by_part, parts, strict=True):
            with partition.lock:
                self._check(partition, offered, now, submission, part)
        for partition, part in zip(self.partitions, parts, strict=True):
            if part:
                submission.accepted += len(part)
                future = partition.submit(part, submission.new.append)
                future.add_done_callback(_Forget(partition, part))
                submission.futures.append(future)
        return submission

    def series(self) -> tuple[SeriesName, ...]:
        """Return the names, sorted."""
        return tuple(column.series for column in self.columns())

    def columns(self) -> Sequence[SeriesColumn]:
        """Return every series' column that holds something, in the order of their text."""
        version = tuple(partition.version for partition in self.partitions)
        known, found = self._sorted  # of one moment, whichever thread made it
        if version != known:
            found = []
            for partition in self.partitions:
                with partition.lock:
                    found.extend(column for column in partition.columns.values() if len(column))
            # Made anew where a series came or went, for it takes 10 ms with 12,000 of them.
            found.sort(key=_text)
            self._sorted = version, found
        return found

    def fetch(
        self, series: SeriesName, after: float = float("-inf"), count: int | None = None
    ) -> tuple[Measurement, ...]:
        """Return a slice of the ring."""
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
        """Return (time, value) of a series by its text, oldest first."""
        partition = self._partition(text)
        after = max(after, math.nextafter(self._clock() - self.retention.age, -math.inf))
        with partition.lock:
            column = partition.columns.get(text)
            return [] if column is None else column.slice(after, until, count)

    def column(self, text: str) -> SeriesColumn | None:
        """Return the column of a series, or None."""
        partition = self._partition(text)
        with partition.lock:
            column = partition.columns.get(text)
            return column if column is not None and len(column) else None

    def forget_old(self) -> None:
        """Let go of what is older than the retention's age."""
        before = self._clock() - self.retention.age
        for partition in self.partitions:
            with partition.lock:
                for column in partition.columns.values():
                    column.forget(before)
                partition.version += 1

    def problems(self) -> list[str]:
        """Return what is wrong, one line each: shards that fail, damage, nameless records."""
        lines = []
        for partition in self.partitions:
            shard = partition.shard
            where = f"{shard.directory.name}"
            if shard.problem is not None:
                lines.append(str(shard.problem))
            lines += [f"{where}/{n}: bytes {d.start}-{d.stop} are bad" for n, d in shard.damages]
            if partition.unnamed:
                lines.append(f"{where}: {partition.unnamed} records of series without a name")
        return lines

    def close(self) -> None:
        """Write what waits and close the log. Nothing can be stored afterwards."""
        for partition in self.partitions:
            partition.writer.close()

    def _check(
        self,
        partition: SeriesShard,
        offered: Iterable[tuple[int, Row]],
        now: float,
        submission: Submission,
        part: list[Arrival],
    ) -> None:
        latest = min(now + self.retention.skew, LARGEST)
        earliest = max(now - self.retention.age, 0.0)
        window = self.retention.window
        for index, (text, at, value) in offered:
            column = partition.columns.get(text)
            newest = -math.inf if column is None else column.newest
            try:
                if not (earliest <= at <= latest and at >= newest - window):
                    raise self._untimely(text, at, newest, now)
                if not (-LARGEST <= value <= LARGEST):
                    raise RefusedError(
                        f"{text}: {value!r} is not a measurement",
                        code="value-invalid",
                        series=text,
                        value=repr(value),
                    )
                if column is None:
                    checked_amount(text, value)
                    column = self._new_column(partition, text)
                elif not (column.bounds[0] <= value <= column.bounds[1]):
                    checked_amount(text, value)
                if at > newest:
                    submission.ahead += at > now
                    part.append((column, at, value))
                elif column.holds(at):
                    submission.duplicates += 1
                elif len(column) >= column.capacity and at < column.oldest:
                    raise RefusedError(
                        f"{text} at {at} is older than the {column.capacity} measurements kept",
                        code="measurement-too-old",
                        series=text,
                        value=at,
                        bound=column.oldest,
                    )
                else:
                    submission.late += 1
                    part.append((column, at, value))
            except ValueError as error:
                # A fresh error: one that was raised refers to its frame, and so to this batch.
                fields = {"series": text, **coded(error)}
                submission.refused.append((index, RefusedError(str(error), **fields)))

    def _untimely(self, text: str, at: float, newest: float, now: float) -> RefusedError:
        """Return the error of a measurement with an invalid time, or outside the time that is kept."""
        if not math.isfinite(at) or abs(at) > LARGEST:
            return RefusedError(
                f"{text}: the time {at!r} is not a number", code="time-invalid", value=repr(at)
            )
        if at < 0:
            reason = f"{text} at {at} lies before 1970; give seconds since the epoch"
            return RefusedError(reason, code="time-invalid", value=at)
        if at > now + self.retention.skew:
            return RefusedError(
                f"{text} at {at} lies {at - now:.0f} s in the future, more than the "
                f"{self.retention.skew:.0f} s that clocks may differ",
                code="measurement-in-future",
                value=at,
                seconds=at - now,
                bound=self.retention.skew,
            )
        if at < now - self.retention.age:
            return RefusedError(
                f"{text} at {at} is older than the {self.retention.age:.0f} s that are kept",
                code="measurement-too-old",
                value=at,
                seconds=now - at,
                bound=self.retention.age,
            )
        return RefusedError(
            f"{text} at {at} comes {newest - at:.0f} s after a later one, more than the "
            f"{self.retention.window:.0f} s that senders may be late",
            code="measurement-late",
            value=at,
            seconds=newest - at,
            bound=self.retention.window,
        )

    def _new_column(self, partition: SeriesShard, text: str) -> SeriesColumn:
        if sum(len(p.columns) for p in self.partitions) >= self.retention.most_series:
            raise RefusedError(
                f"{text} would be one more than {self.retention.most_series} series",
                code="too-many-series",
                series=text,
                bound=self.retention.most_series,
            )
        return partition.column(text)

    def _make_column(self, series: SeriesName) -> SeriesColumn:
        return SeriesColumn(series, self.retention.capacity)

    def _partition(self, text: str) -> SeriesShard:
        return self.partitions[key_of(text) % len(self.partitions)]


@dataclass(frozen=True, slots=True)
class _Forget:
    """Forgets new series of a batch that did not reach the disk."""

    partition: SeriesShard
    rows: Sequence[Arrival]

    def __call__(self, done: "Future[Any]") -> None:
        if done.exception() is not None:
            self.partition.drop_empty([row[0].text for row in self.rows])


def _text(column: SeriesColumn) -> str:
    return column.text


__all__ = ["BusyError", "JournalMemory", "LogError", "Retention", "Submission"]
