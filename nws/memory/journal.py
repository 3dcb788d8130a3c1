"""The append-only log of measurements, by shards: a normal return means that they are on the disk.

A shard is a directory of segments, appended to, synced, repaired and reopened (`JournalShard`); one
thread a shard writes what waits under one sync (`GroupCommitWriter`). The log is a store of its own
and not the line journal of `apples.io`, for it holds a million fixed records a shard
(docs/decisions/0017-forecasts-and-weather-log.md).
"""

import contextlib
import errno
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Thread
from typing import Final, TypeVar

from nws.errors import CodedError
from nws.memory.journal_files import Files, number_in, write_all
from nws.memory.journal_format import (
    BLOCK,
    MEASUREMENT,
    DamagedStretch,
    SegmentHead,
    SegmentScan,
    encode_head,
    encode_measurements,
    encode_name,
    scan,
)

SEGMENT_BYTES: Final = 1 << 26
OFFSET_BITS: Final = 40
RETRY_SECONDS: Final = 0.25
"""How long a shard that failed answers so without touching the disk again."""
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
SUFFIX: Final = ".log"
DIGITS: Final = 8
MOST_SET_ASIDE: Final = 1 << 20

Row = tuple[int, float, float]


class LogError(CodedError):
    """Nothing was acknowledged. Transient: the shard opens itself again when the disk lets it.

    Attributes
    ----------
    full
        Whether the file system is full; the code is then ``disk-full``.
    """

    code = "disk-failed"

    def __init__(self, message: str, *, full: bool, **fields: object) -> None:
        super().__init__(message, code="disk-full" if full else "", **fields)
        self.full = full


class JournalShard:
    """Appends measurements durably and finds them again, whatever happened in between.

    A normal return of `append` means that the records are on the disk. After any error of the
    disk nothing is tried again on the same descriptor: the segment is cut back to what was
    synced and opened anew (a full disk) or a new one is begun (anything else), at the next append
    and at most every 0.25 s. One thread at a time.

    Parameters
    ----------
    directory
        Where the segments are, ``00000001.log`` and so on; made if it is not there.
    number
        Which shard this is.
    files
        What reads and writes (`nws.memory.journal_files`).
    clock, timer
        Seconds since the epoch; seconds that only go forward.
    segment_bytes
        When a segment is followed by the next.

    Attributes
    ----------
    problem
        Why the last append failed; None while all is well.
    damages
        Where segments hold no sound record: (file name, `DamagedStretch`).
    mended
        What was wrong and is not any more, one line each.
    """

    def __init__(
        self,
        directory: Path,
        number: int,
        files: Files,
        *,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self.directory = directory
        self.number = number
        self.problem: LogError | None = None
        self.damages: list[tuple[str, DamagedStretch]] = []
        self.mended: list[str] = []
        self._files = files
        self._clock = clock
        self._timer = timer
        self._segment_bytes = segment_bytes
        self._failed_at = 0.0
        self._segment = 0
        self._length = 0
        self._named: set[int] = set()
        self._descriptor: int | None = None
        self._new_segment = True

    def recover(self) -> Iterator[tuple[int, SegmentScan]]:
        """Yield number and content of every segment, in order; cut the torn tail of the last.

        What is cut is set aside first, under the segment's name with ``.bad-OFFSET``. A segment
        that cannot be read is named in `damages` and left out.
        """
        self._files.make_directory(self.directory)
        numbers = self.segments()
        for number in numbers:
            try:
                data = self._files.read(self.path(number))
            except OSError:
                self.damages.append((self.path(number).name, DamagedStretch(0, 0)))
                self._segment = number
                continue
            found = scan(data)
            self.damages.extend((self.path(number).name, damage) for damage in found.damages)
            self._segment = number
            if number == numbers[-1]:
                self._continue(number, data, found)
            yield number, found

    def append(
        self, rows: Sequence[Row], names: Mapping[int, str], kind: int = MEASUREMENT
    ) -> int:
        """Write rows of (key, time, value) and return the position of the first, once synced.

        The others follow every 32; a position grows with every record ever appended. What a
        compaction writes again is of kind `nws.memory.journal_format.KEPT`.

        Raises
        ------
        LogError
            Transient: the disk is full or failed. None of the rows counts as stored.
        """
        self._open_again()
        try:
            if self._new_segment or self._length >= self._segment_bytes:
                self._begin_segment()
            # Each segment names a key, twice, before its first measurement: so that a segment can
            # be read by itself, and one bad byte in a name orphans no series.
            fresh = {row[0] for row in rows} - self._named
            naming = b"".join(2 * encode_name(names[key]) for key in sorted(fresh))
            data = naming + encode_measurements(rows, kind)
            write_all(self._files, self._opened, data)
            self._files.datasync(self._opened)
        except OSError as error:
            # After a failed fdatasync the kernel may have dropped the dirty pages and report success
            # the next time: the descriptor is never trusted again (see `_open_again`).
            self._fail(error)
            raise self._refusal() from error
        first = position_of(self._segment, self._length + len(naming))
        self._length += len(data)
        self._named |= fresh
        return first

    def segments(self) -> list[int]:
        """Return the numbers of the segments there are."""
        found = (number_in(name, "", SUFFIX, DIGITS) for name in self._files.names(self.directory))
        return sorted(number for number in found if number is not None)

    def path(self, segment: int) -> Path:
        """Return where a segment is."""
        return self.directory / f"{segment:0{DIGITS}d}{SUFFIX}"

    @property
    def end(self) -> int:
        """The position that the next record may get at the earliest."""
        return position_of(self._segment, self._length)

    @property
    def segment(self) -> int:
        """The number of the segment that is written to."""
        return self._segment

    def read(self, segment: int) -> SegmentScan:
        """Return what a segment holds."""
        return scan(self._files.read(self.path(segment)))

    def drop(self, segment: int) -> None:
        """Remove a closed segment, and return when that is on the disk; its damage goes with it."""
        if segment >= self._segment:
            raise ValueError(f"segment {segment} is still written to")
        name = self.path(segment).name
        self.damages = [damage for damage in self.damages if damage[0] != name]
        self._files.remove(self.path(segment))
        self._files.sync_directory(self.directory)

    def close(self) -> None:
        """Give the descriptor back. An append opens it again."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                self._files.close(self._descriptor)
        self._descriptor = None

    def _continue(self, number: int, data: bytes, found: SegmentScan) -> None:
        """Get ready to append to the last segment, its torn tail cut."""
        length = len(data)
        if found.damages and found.damages[-1].stop == length:
            length = found.damages[-1].start
            self._set_aside(number, data[length:], length)
        if length % BLOCK or found.head is None or length == 0:
            return  # leave it as it is and begin another
        try:
            if length < len(data):
                self._files.truncate(self.path(number), length)
                self._tail_is_gone(number, length, len(data))
            self._descriptor = self._files.open_append(self.path(number))
        except OSError as error:
            self._fail(error)
            return
        self._length = length
        self._named = set(found.names)
        self._new_segment = False

    def _tail_is_gone(self, number: int, start: int, stop: int) -> None:
        """Take a torn tail that was cut off from what is wrong."""
        tail = (self.path(number).name, DamagedStretch(start, stop))
        self.damages = [damage for damage in self.damages if damage != tail]
        self.mended.append(
            f"{tail[0]}: the torn tail, bytes {start}-{stop}, is set aside as {tail[0]}.bad-{start}"
        )

    def _set_aside(self, number: int, bad: bytes, offset: int) -> None:
        aside = self.path(number).with_suffix(f"{SUFFIX}.bad-{offset}")
        with contextlib.suppress(OSError):  # evidence, not a promise
            aside.write_bytes(bad[:MOST_SET_ASIDE])

    def _begin_segment(self) -> None:
        self.close()
        self._segment += 1
        self._length = 0
        self._named = set()
        self._new_segment = False
        # On ext4 a new file's sync commits its name too; other file systems need the directory's
        # own.
        head = encode_head(SegmentHead(self.number, self._segment, self._clock()))
        self._descriptor = self._files.open_append(self.path(self._segment))
        write_all(self._files, self._descriptor, head)
        self._files.datasync(self._descriptor)
        self._files.sync_directory(self.directory)
        self._length = len(head)

    def _fail(self, error: OSError) -> None:
        reason = error.strerror or str(error)
        full = error.errno in FULL
        self.problem = LogError(
            f"shard {self.number} in {self.directory}: {reason}",
            full=full,
            shard=self.number,
            directory=str(self.directory),
        )
        self._failed_at = self._timer()
        self.close()

    def _refusal(self) -> LogError:
        """Return a fresh error with the message of the shard's problem."""
        full = self.problem is not None and self.problem.full
        fields = {} if self.problem is None else self.problem.fields
        return LogError(str(self.problem), full=full, **fields)

    @property
    def _opened(self) -> int:
        """The descriptor; an append after `close` opens the segment again."""
        if self._descriptor is None:
            self._descriptor = self._files.open_append(self.path(self._segment))
        return self._descriptor

    def _open_again(self) -> None:
        """Open a failed shard: cut what was not synced; go on behind it or in a new segment."""
        if self.problem is None:
            return
        if self._timer() - self._failed_at < RETRY_SECONDS:
            raise self._refusal()
        path = self.path(self._segment)
        try:
            if path.exists():
                self._files.truncate(path, self._length)
            if self.problem.full and self._length:
                self._descriptor = self._files.open_append(path)
            else:
                self._new_segment = True
        except OSError as error:
            self._fail(error)
            raise self._refusal() from error
        self.problem = None


def position_of(segment: int, offset: int) -> int:
    """Return the position of a record: it orders all records of a shard by their arrival."""
    return segment << OFFSET_BITS | offset


T = TypeVar("T")

MOST_WAITING: Final = 500_000
"""Rows that may wait for the disk; more are refused."""
MOST_AT_ONCE: Final = 50_000
"""Rows that share one sync at most."""


class BusyError(CodedError):
    """More rows wait for the disk than is allowed. Transient."""

    code = "disk-behind"


@dataclass(frozen=True, slots=True)
class _Batch:
    rows: Sequence[Row]
    names: Mapping[int, str]
    stored: Callable[[int], object]
    done: Future[int]


class GroupCommitWriter:
    """Appends batches to a shard, one after the other, as many as wait under one sync.

    Parameters
    ----------
    shard
        What is appended to; this thread's alone from now on.
    """

    def __init__(self, shard: JournalShard) -> None:
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
                raise BusyError("the log is being closed", code="log-closed")
            if self._waiting + len(rows) > MOST_WAITING:
                raise BusyError(
                    f"{self._waiting} rows are waiting for the disk",
                    value=self._waiting,
                    bound=MOST_WAITING,
                )
            self._batches.append(_Batch(rows, names, stored, done))
            self._waiting += len(rows)
            self._changed.notify()
        return done

    def call(self, task: Callable[[], object]) -> "Future[object]":
        """Queue something to do with the shard between two batches."""
        done: Future[object] = Future()
        with self._changed:
            if self._closing:
                raise BusyError("the log is being closed", code="log-closed")
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
                # No wait for further batches: it would save half a commit, and delay every sender
                # that waits for its answer.
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
