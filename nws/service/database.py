"""The database of ``nws serve``: log, series and forecasters, consistent after any end of its process."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nws.engine.multi_horizon import Engine
from nws.errors import CodedError, InputError
from nws.forecast import Forecast
from nws.forecasters.profiles import PROFILES, default_of
from nws.forecasters.scored import ScoredForecaster
from nws.measurement import Measurement, SeriesName, bounds_of
from nws.memory.archive import Archive, Slot
from nws.memory.column import SeriesColumn
from nws.memory.journal import SEGMENT_BYTES
from nws.memory.journal_files import Files
from nws.memory.journalled import JournalMemory, Retention, Row, Submission
from nws.memory.series_shard import StorageListener
from nws.service.forecasting import (
    Forecasting,
    MakeSeriesForecaster,
    Saved,
    SeriesForecaster,
    SnapshotFile,
)

CURRENT: Final = "current"
STALE: Final = "stale"
UNKNOWN: Final = "unknown"
PERIODS: Final = 3.0
"""Periods of silence after which a series is stale (NWS 2.x: the time-out of a measurement)."""
FIRST_PERIOD: Final = 60.0
"""The period assumed until a series has shown its own."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """How old the last measurement is and what that means.

    Attributes
    ----------
    state
        ``current``, ``stale`` or ``unknown`` (nothing was ever measured).
    age
        Seconds since the last measurement; None if unknown.
    period
        The usual seconds between two; None until that is known.
    """

    state: str
    age: float | None
    period: float | None


def freshness(newest: float | None, period: float | None, now: float) -> Freshness:
    """Judge a series by the time of its newest measurement.

    Examples
    --------
    >>> freshness(100.0, 10.0, 125.0).state, freshness(100.0, 10.0, 131.0).state
    ('current', 'stale')
    >>> freshness(None, None, 0.0)
    Freshness(state='unknown', age=None, period=None)
    """
    if newest is None:
        return Freshness(UNKNOWN, None, period)
    age = max(0.0, now - newest)
    return Freshness(CURRENT if is_current(age, period) else STALE, age, period)


def is_current(age: float, period: float | None) -> bool:
    """Judge a series by the age of its newest measurement and the usual seconds between two."""
    return age <= PERIODS * (FIRST_PERIOD if period is None else period)


MOST_BACKLOG: Final = 2_000_000
"""Measurements that may wait for the forecasters; more are refused until they have caught up."""
LOG_SLACK: Final = 1 << 26
"""Bytes that the log may be longer than what is kept of it before it is compacted."""
RECORD: Final = 32


Arrivals = Sequence[tuple[SeriesColumn, int, float, float]]
OnStored = Callable[[Arrivals], object]


class OverloadError(CodedError):
    """The forecasters are too far behind. Transient."""

    code = "forecasters-behind"


class DirectoryLockedError(CodedError, OSError):
    """Another process uses this directory. Transient: it may end."""

    code = "directory-locked"


class ForecastDatabase:
    """Log, series and forecasters of ``nws serve``, consistent after any end of the process.

    Parameters
    ----------
    directory
        Where log and states are; locked while this lives.
    retention
        What is kept and taken.
    profile, engine
        Which forecasters follow each series (`nws.forecasters.profiles.PROFILES`), and what the default one
        computes with: ``"numpy"``, ``"numba"``, or ``"auto"``, numba where it is installed. The
        states of one engine are read back by the other; those of another profile are not, and its
        series begin with the measurements that are kept of them.
    make
        Makes what follows a series, if not `profile`; that is then only its name.
    on_stored
        Called with what was stored, in the thread of its shard.
    files, clock
        What reads and writes; seconds since the epoch.
    segment_bytes, log_slack
        Of the log: how long a file of it becomes, and how much longer than the kept measurements the log may be
        before it is compacted.

    Raises
    ------
    DirectoryLockedError
        Another process keeps this directory.
    """

    def __init__(
        self,
        directory: Path,
        retention: Retention | None = None,
        *,
        profile: str = "default",
        engine: Engine = "numpy",
        make: MakeSeriesForecaster | None = None,
        on_stored: OnStored | None = None,
        files: Files | None = None,
        clock: Callable[[], float] = time.time,
        segment_bytes: int = SEGMENT_BYTES,
        log_slack: int = LOG_SLACK,
    ) -> None:
        self._clock = clock
        self._log_slack = log_slack
        self.profile = profile
        files = files or Files()
        files.make_directory(directory)
        self._lock = _locked(directory / "lock")
        self._snapshots = SnapshotFile(directory / "states", profile, files)
        retention = retention or Retention()
        self.archive = Archive(directory / "archive", size=retention.size, files=files)
        saved = self._snapshots.read()
        self._covered = {text: state.position for text, state in saved.items()}
        self.forecasting = Forecasting(make or makes(profile, engine), saved)
        self._listener = _StoredListener(
            self.forecasting, on_stored or _ignore, retention.capacity // 2
        )
        self.memory = JournalMemory(
            directory,
            retention,
            listener=self._listener,
            files=files,
            clock=clock,
            segment_bytes=segment_bytes,
        )
        self.forecasting.begin_from_memory()

    def submit(self, rows: Sequence[Row]) -> Submission:
        """Check rows and send the good ones to the disk (`JournalMemory.submit`).

        Raises
        ------
        OverloadError, BusyError
            Transient: forecasters or disk are too far behind.
        """
        if self.forecasting.backlog > MOST_BACKLOG:
            raise OverloadError(
                f"{self.forecasting.backlog} measurements wait for the forecasters",
                value=self.forecasting.backlog,
                bound=MOST_BACKLOG,
            )
        return self.memory.submit(rows)

    def store(self, measurement: Measurement) -> bool:
        """Store one measurement and wait for the disk (`JournalMemory.store`)."""
        return self.memory.store(measurement)

    def forecast(self, text: str, **question: Any) -> tuple[Forecast | None, Freshness]:
        """Return the forecast of a series, None if there is none yet, and how fresh it is."""
        fresh = self.freshness(text)
        try:
            return self.forecasting.forecast(text, **question), fresh
        except LookupError:
            return None, fresh

    def slots(self, text: str, start: float, stop: float, step: float) -> list[Slot]:
        """Return what is known of a series from `start` to `stop` for a grid of `step` seconds.

        Slots of the archive as far as measurements are no longer kept one by one, the one
        included within which those that are kept begin; then these, each a slot of its own.
        """
        samples = self.memory.samples(text, until=stop)
        first = samples[0][0] if samples else stop
        older = self.archive.read(text, start, first, step) if first > start else []
        begin = older[-1].start + older[-1].step if older else start
        return [
            *older,
            *(Slot(at, 0.0, 1, value, value, value) for at, value in samples if at >= begin),
        ]

    def freshness(self, text: str) -> Freshness:
        """Return how fresh what is known of a series is."""
        column = self.memory.column(text)
        if column is None:
            return freshness(None, None, self._clock())
        now = self._clock()
        return freshness(column.seen(now), column.spacing(), now)

    def columns(self) -> Sequence[SeriesColumn]:
        """Return all series that hold something, in the order of their text."""
        return self.memory.columns()

    def series(self) -> tuple[SeriesName, ...]:
        """Return the names of all series."""
        return self.memory.series()

    def save(self, pause: Callable[[], object] | None = None) -> int:
        """Write the states of all forecasters; return how many. OSError leaves the old ones.

        `pause` is called after each, by whoever lets others go on meanwhile.
        """

        def states() -> Iterator[tuple[str, Saved]]:
            for state in self.forecasting.states():
                yield state
                if pause is not None:
                    pause()

        self._covered = self._snapshots.write(states())
        self.forecasting.problems.clear()  # of what was begun again there is a state now
        return len(self._covered)

    def roll_up(self, pause: Callable[[], object] | None = None) -> int:
        """Archive the slots that are over; return how many. OSError: tried again the next time."""
        self._listener.begin_count()
        return self.archive.add(self.memory.columns(), self._clock(), pause)

    @property
    def roll_up_due(self) -> bool:
        """Whether a series holds so much that was not archived that it may be let go before the next round.

        A history that is imported comes thousands of times as fast as it was measured.
        """
        return self._listener.full

    def tidy(self) -> int:
        """Drop measurements that are too old and compact a log that is too long; return the files removed."""
        self.memory.forget_old()
        removed = self.archive.tidy(self._clock())
        for partition in self.memory.partitions:
            live = sum(len(column) for column in partition.columns.values()) * RECORD
            while _bytes(partition.shard.directory) > 2 * live + self._log_slack:
                done = partition.writer.call(lambda p=partition: p.compact(self._covering))  # type: ignore[misc]
                if not done.result(timeout=60):
                    break
                removed += 1
        return removed

    def problems(self) -> list[str]:
        """Return what is wrong, one line each."""
        return [
            *self.memory.problems(),
            *self._snapshots.problems,
            *self.forecasting.problems,
        ]

    def mended(self) -> list[str]:
        """Return what was found wrong and set aside, one line each: nothing of it is wrong any more."""
        shards = [partition.shard for partition in self.memory.partitions]
        cut = [f"{shard.directory.name}: {line}" for shard in shards for line in shard.mended]
        return [*self._snapshots.mended, *cut]

    def close(self, *, save: bool = True) -> None:
        """Write what waits and the states, and give the directory back."""
        self.memory.close()
        try:
            if save:
                self.save()
        finally:
            os.close(self._lock)

    def _covering(self, text: str) -> int:
        return self._covered.get(text, -1)


def makes(profile: str, engine: Engine = "numpy") -> MakeSeriesForecaster:
    """Return what makes the forecaster of a series by a profile; ValueError if there is none."""
    if profile not in PROFILES:
        raise InputError(
            f"there is no profile {profile!r}: use one of {', '.join(PROFILES)}",
            code="profile-unknown",
            value=profile,
            known=list(PROFILES),
        )

    def make(series: SeriesName) -> SeriesForecaster:
        whole = profile == "default"
        fresh = default_of(series.resource, engine=engine) if whole else PROFILES[profile]()
        return ScoredForecaster(fresh, bounds_of(series.resource))

    return make


def warm(profile: str = "default", engine: Engine = "numpy") -> None:
    """Load, and compile if need be, what forecasts by a profile: once on a machine 15 s for numba."""
    forecaster = makes(profile, engine)(SeriesName("warm", "up"))
    forecaster.update(Measurement(SeriesName("warm", "up"), 0.0, 0.5))


class _StoredListener(StorageListener):
    """Passes what was stored to the forecasters first, then to `on_stored`; counts it by series.

    Attributes
    ----------
    full
        Whether more than `most` of a series were stored since the count was begun.
    """

    def __init__(self, forecasting: Forecasting, on_stored: OnStored, most: int) -> None:
        self.full = False
        self._most = most
        self._counts: dict[str, int] = {}
        self._on_stored = on_stored
        self._forecasting = forecasting

    def arrived(self, arrivals: Arrivals) -> None:
        for column, *_ in arrivals:
            count = self._counts[column.text] = self._counts.get(column.text, 0) + 1
            self.full |= count > self._most
        self._forecasting.arrived(arrivals)
        self._on_stored(arrivals)

    def begin_count(self) -> None:
        """Count from 0 again."""
        self._counts.clear()
        self.full = False

    def replayed(
        self,
        column: SeriesColumn,
        positions: NDArray[np.int64],
        times: NDArray[np.float64],
        values: NDArray[np.float64],
    ) -> None:
        self._forecasting.replayed(column, positions, times, values)

    def rewritten(self, column: SeriesColumn, position: int) -> None:
        self._forecasting.rewritten(column, position)


def _ignore(_: Arrivals) -> None:
    """Hear nothing."""


def _locked(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise DirectoryLockedError(
            f"{path.parent}: another process uses this directory; end it, or give --directory",
            directory=str(path.parent),
        ) from error
    return descriptor


def _bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.log"))
