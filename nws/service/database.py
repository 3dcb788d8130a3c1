"""The database of ``nws serve``: series and forecasters, consistent after any end of its process."""

import fcntl
import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nws.engine.multi_horizon import Engine
from nws.errors import CodedError, InputError
from nws.forecast import Forecast
from nws.forecasters.profiles import PROFILES, default_of
from nws.forecasters.scored import ScoredForecaster
from nws.measurement import Measurement, SeriesName, bounds_of
from nws.memory.connection import storage_error
from nws.memory.old_format import finish_import, import_old, is_old
from nws.memory.slots import Slot
from nws.memory.sqlite import TASKS_AT_ONCE, Arrival, Retention, SqliteMemory
from nws.memory.summary import SeriesSummary
from nws.memory.writer import Row, StoreResult
from nws.service.forecasting import SAVE_AFTER, Forecasting, MakeSeriesForecaster, SeriesForecaster

CURRENT: Final = "current"
STALE: Final = "stale"
UNKNOWN: Final = "unknown"
PERIODS: Final = 3.0
"""Periods of silence after which a series is stale (NWS 2.x: the time-out of a measurement)."""
FIRST_PERIOD: Final = 60.0
"""The period assumed until a series has shown its own."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """The age of the last measurement of a series, and whether it is current.

    Attributes
    ----------
    state
        ``current``, ``stale`` or ``unknown`` (nothing was ever measured).
    age
        Seconds since the last measurement; None if unknown.
    period
        The usual seconds between two measurements; None until that is known.
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
    limit = PERIODS * (FIRST_PERIOD if period is None else period)
    return Freshness(CURRENT if age <= limit else STALE, age, period)


MAX_BACKLOG: Final = 2_000_000
"""Measurements that may wait for the forecasters; more are refused until they have caught up."""
SLOTS_SECONDS: Final = 3600.0
"""Interval between two times that slots are aged."""

OnStored = Callable[[Sequence[Arrival]], object]


class OverloadError(CodedError):
    """The forecasters are too far behind. Transient."""

    code = "forecasters-behind"


class DirectoryLockedError(CodedError, OSError):
    """Another process uses this directory. Transient: it may end."""

    code = "directory-locked"


class ForecastDatabase:
    """Series and forecasters of ``nws serve``, consistent after any end of the process.

    Parameters
    ----------
    directory
        Directory of the database; locked until `close`. A log of apples 0.2 in it is imported once.
    retention
        The limits of the memory.
    profile, engine
        The forecasters of each series (`nws.forecasters.profiles.PROFILES`), and the engine of the default
        profile: ``"numpy"``, ``"numba"``, or ``"auto"``, numba if it is installed. Each engine reads the
        states of the other. States of another profile are not read; then a series begins with its stored
        measurements.
    make
        Makes the forecaster of a series in place of `profile`, which is then only a name.
    on_stored
        Called with stored measurements, in the writer's thread.
    clock
        Seconds since the epoch.

    Raises
    ------
    DirectoryLockedError
        Another process uses this directory.
    StorageError
        The database is damaged, of a newer version, or cannot be written.
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
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._on_stored = on_stored
        self._slots_aged = 0.0
        self._closed = False
        self.profile = profile
        self.mended: list[str] = []
        make = make or makes(profile, engine)
        retention = retention or Retention()
        self._lock = _locked(directory)
        try:
            if is_old(directory):
                self.mended.append(import_old(directory, retention.capacity))
            elif line := finish_import(directory):
                self.mended.append(line)
            self.memory = SqliteMemory(
                directory, retention, on_stored=self._stored, on_left=self._left, clock=clock
            )
        except OSError as error:
            os.close(self._lock)
            raise storage_error(directory, error) from error
        except BaseException:
            os.close(self._lock)
            raise
        for other in self.memory.other_profiles(profile):
            self.mended.append(
                f"saved states are of the profile {other}, not {profile}: forecasters begin again with "
                "the measurements that are kept"
            )
        self.forecasting = Forecasting(self.memory, make, profile)

    def submit(self, rows: Sequence[Row]) -> "Future[StoreResult]":
        """Queue rows to be stored (`SqliteMemory.submit`).

        Raises
        ------
        OverloadError, BusyError
            Transient: forecasters or disk are too far behind.
        """
        backlog = self.forecasting.backlog
        if backlog > MAX_BACKLOG:
            raise OverloadError(
                f"{backlog} measurements wait for the forecasters",
                value=backlog,
                bound=MAX_BACKLOG,
            )
        return self.memory.submit(rows)

    def store(self, measurement: Measurement) -> bool:
        """Store one measurement and wait for the disk (`SqliteMemory.store`)."""
        return self.memory.store(measurement)

    def forecast(self, text: str, **question: Any) -> tuple[Forecast | None, Freshness]:
        """Return the forecast of a series, None before the first measurement, and its freshness."""
        fresh = self.freshness(text)
        with suppress(LookupError):
            return self.forecasting.worker.run(self.forecasting.forecast(text, question)), fresh
        return None, fresh

    def slots(self, text: str, start: float, stop: float) -> list[Slot]:
        """Return the stored data of a series from `start` to `stop`.

        Slots of old measurements; of the others each measurement as a slot of its own.
        """
        samples = self.memory.samples(text, math.nextafter(start, -math.inf), stop)
        slots = self.memory.slots(text, start, stop)
        return [*slots, *(Slot(at, 0.0, 1, value, value, value) for at, value in samples)]

    def freshness(self, text: str) -> Freshness:
        """Return the freshness of a series."""
        summary = self.memory.summary(text)
        now = self._clock()
        if summary is None:
            return freshness(None, None, now)
        return freshness(summary.seen(now), summary.spacing(), now)

    def summaries(self) -> Sequence[SeriesSummary]:
        """Return the summaries of all series, in the order of their names."""
        return self.memory.summaries()

    def series(self) -> tuple[SeriesName, ...]:
        """Return the names of all series."""
        return self.memory.series()

    def save(self, after: int = SAVE_AFTER) -> int:
        """Write the states with `after` new measurements since they were written; return their number.

        Raises
        ------
        StorageError
            States that were not yet written keep their old version.
        """
        worker = self.forecasting.worker
        names = worker.run(self.forecasting.changed(after))
        for start in range(0, len(names), TASKS_AT_ONCE):
            part = names[start : start + TASKS_AT_ONCE]
            states = worker.run(self.forecasting.states(part))
            self.memory.write_states(states)
            worker.run(self.forecasting.saved(states))
        return len(names)

    def tidy(self) -> None:
        """Move old measurements into slots; delete series and slots that are too old."""
        self.memory.tidy(self.forecasting.needed)
        if self._clock() - self._slots_aged > SLOTS_SECONDS:
            self._slots_aged = self._clock()
            self.memory.age_slots()

    def problems(self) -> list[str]:
        """Return the problems, one line each."""
        return [*self.memory.problems(), *self.forecasting.problems.values()]

    def close(self, *, save: bool = True) -> None:
        """Write waiting measurements and states, and unlock the directory; only the first call does."""
        if self._closed:
            return
        self._closed = True
        try:
            if save:
                self.save(after=1)
        finally:
            self.forecasting.worker.close()
            self.memory.close()
            os.close(self._lock)

    def _stored(self, arrivals: Sequence[Arrival]) -> None:
        self.forecasting.arrived(arrivals)
        if self._on_stored is not None:
            self._on_stored(arrivals)

    def _left(self, series: Sequence[str]) -> None:
        self.forecasting.forget(series)


def makes(profile: str, engine: Engine = "numpy") -> MakeSeriesForecaster:
    """Return the function that makes a forecaster of a profile; ValueError if the profile is unknown."""
    if profile not in PROFILES:
        raise InputError(
            f"unknown profile {profile!r}: use one of {', '.join(PROFILES)}",
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
    """Load the forecasters of a profile; numba compiles once on a machine, for about a minute."""
    forecaster = makes(profile, engine)(SeriesName("warm", "up"))
    for minute in range(8):  # a regular series of a minute may have a season
        forecaster.update(Measurement(SeriesName("warm", "up"), 60.0 * minute, 0.5))


def is_in_use(directory: Path) -> bool:
    """Return whether a service uses a directory, or starts there."""
    try:
        descriptor = os.open(directory / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _locked(directory: Path) -> int:
    """Return the descriptor of the lock of a directory, which is made if need be."""
    path = directory / "lock"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise storage_error(path, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise DirectoryLockedError(
            f"{directory}: another process uses this directory; end it, or give --directory",
            directory=str(directory),
        ) from error
    return descriptor
