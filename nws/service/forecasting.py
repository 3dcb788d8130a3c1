"""Forecasters of many series that follow a log: the same forecasts whenever they are asked.

Their states are saved in one file, each line with its own checksum:

    crc32 position series {"order": .., "forecaster": ..}

The position says how much of the log the state has taken in, so each line is right by itself and
the lines may be of different moments. A bad line costs its series the state, which then begins
with what the log still holds, and `SnapshotFile.problems` names it.
"""

import inspect
import json
import time
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from nws.errors import SeriesUnknownError
from nws.forecast import Forecast
from nws.forecaster import LeagueTable
from nws.measurement import Measurement, SeriesName
from nws.memory.column import SeriesColumn
from nws.memory.journal_files import Files, replace_file
from nws.memory.series_shard import StorageListener
from nws.service.arrival_order import ArrivalOrder
from nws.service.state_json import StateError, deserialise, parsed, refill, serialise

SCHEMA: Final = b"nws.snapshot/2"


@dataclass(frozen=True, slots=True)
class Saved:
    """The state of one series' forecaster after the record at `position`."""

    position: int
    state: bytes


class SnapshotFile:
    """Writes and reads the file.

    Parameters
    ----------
    path
        Where it is.
    profile
        Which forecasters the states are of; those of others are not read.
    files
        What reads and writes.

    Examples
    --------
    >>> import tempfile
    >>> file = SnapshotFile(Path(tempfile.mkdtemp(), "states"), "classic")
    >>> file.write([("availableCpu/ada", Saved(64, b"{}"))])
    {'availableCpu/ada': 64}
    >>> file.read()
    {'availableCpu/ada': Saved(position=64, state=b'{}')}
    """

    def __init__(self, path: Path, profile: str, files: Files | None = None) -> None:
        self.path = path
        self.problems: list[str] = []
        self.mended: list[str] = []
        self._writing = Lock()
        self._profile = profile.encode()
        self._files = files or Files()

    def write(self, entries: Iterable[tuple[str, Saved]]) -> dict[str, int]:
        """Put a new file in the place of the old, and return the position of each series in it.

        What is written is at no time in memory as a whole. OSError leaves the old file.
        """
        positions: dict[str, int] = {}

        def lines() -> Iterator[bytes]:
            yield _line(SCHEMA + b" " + self._profile)
            for text, saved in entries:
                yield _line(b"%d %s %s" % (saved.position, text.encode(), saved.state))
                positions[text] = saved.position

        with self._writing:
            replace_file(self._files, self.path, lines())
            self.problems.clear()  # what was bad is gone
        return positions

    def read(self) -> dict[str, Saved]:
        """Return what can be read; never fails."""
        try:
            lines = self._files.read(self.path).split(b"\n")
        except FileNotFoundError:
            return {}
        except OSError as error:
            self.problems.append(f"{self.path}: {error.strerror}")
            return {}
        wanted, head = SCHEMA + b" " + self._profile, _sound(lines[0])
        if head is None:
            self.problems.append(f"{self.path.name}: the first line is bad")
            return {}
        if head != wanted:
            self.mended.append(
                f"{self.path.name}: of {head.decode(errors='replace')[:80]!r}, not of {wanted.decode()!r}: "
                "forecasters begin again with the measurements that are kept"
            )
            return {}
        found = {}
        for number, line in enumerate(lines[1:-1], start=2):
            parts = (_sound(line) or b"").split(b" ", 2)
            if len(parts) == 3 and parts[0].isdigit():
                found[parts[1].decode(errors="replace")] = Saved(int(parts[0]), parts[2])
            else:
                self.problems.append(f"{self.path.name}:{number}: a bad line")
        return found


def _line(content: bytes) -> bytes:
    return b"%08x %s\n" % (zlib.crc32(content), content)


def _sound(line: bytes) -> bytes | None:
    """Return the content of a line whose checksum is right."""
    content = line[9:]
    return content if line[:9] == b"%08x " % zlib.crc32(content) else None


MOST_ANSWERS: Final = 4
"""Answers to different questions that are kept of a series until its next measurement."""
SLICE = 4
"""Measurements taken in before the time is looked at again."""


class SeriesForecaster(Protocol):
    """Forecasts one series from its measurements, as `nws.forecasters.scored.ScoredForecaster` does."""

    @property
    def time(self) -> float:
        """When the last measurement was taken; minus infinity before the first."""

    def update(self, measurement: Measurement) -> None:
        """Take in a later measurement."""

    def set_back(self, time: float) -> None:
        """Let the next measurement be any that is later than `time`."""

    def forecast(self) -> Forecast:
        """Return what to expect."""


MakeSeriesForecaster = Callable[[SeriesName], SeriesForecaster]


@dataclass(slots=True)
class _SeriesProgress:
    """A series, its forecaster once it is wanted, and what that has not yet taken in."""

    column: SeriesColumn
    position: int = -1
    saved: Saved | None = None
    forecaster: SeriesForecaster | None = None
    order: ArrivalOrder = field(default_factory=ArrivalOrder)
    looking_ahead: SeriesForecaster | None = None
    answers: dict[tuple[Any, ...], Forecast] = field(default_factory=dict)
    positions: "array[int]" = field(default_factory=lambda: array("q"))
    times: "array[float]" = field(default_factory=lambda: array("d"))
    values: "array[float]" = field(default_factory=lambda: array("d"))
    done: int = 0
    rewritten: int = -1

    @property
    def backlog(self) -> int:
        return len(self.times) - self.done

    def advance(self, forecaster: SeriesForecaster, count: int) -> int:
        """Take in at most `count` of what waits, each in its turn. Return how many."""
        stop = min(len(self.times), self.done + count)
        series = self.column.series
        for place in range(self.done, stop):
            for turn in self.order.arrive(self.times[place], self.values[place]):
                if turn.after is not None:
                    forecaster.set_back(turn.after)
                forecaster.update(Measurement(series, turn.time, turn.value))
        taken = stop - self.done
        if taken:
            self.position = self.positions[stop - 1]
            self.looking_ahead = None
            self.answers.clear()
        self.done = stop
        if self.done == len(self.times) or self.done > 4096:
            for waiting in (self.positions, self.times, self.values):
                del waiting[: self.done]
            self.done = 0
        return taken

    def state(self) -> Saved:
        """Return the state of the forecaster; an untouched one as it was saved."""
        if self.forecaster is not None:
            self.saved = None
            order = json.dumps(self.order.state(), separators=(",", ":"))
            text = f'{{"order":{order},"forecaster":{serialise(self.forecaster)}}}'
            return Saved(self.position, text.encode())
        return self.saved or Saved(-1, b"")


class Forecasting(StorageListener):
    """Follows every series of a `nws.JournalMemory`.

    A forecaster takes in the measurements of its series in the order that `ArrivalOrder` makes of
    the log's. So its state depends on nothing but the log: not on when it was asked, and not on
    restarts.

    Parameters
    ----------
    make
        Makes what follows a series.
    saved
        States of an earlier life (`nws.service.forecasting`). Each is read when its series is first asked
        for or goes on, so that a start takes no longer the more a state holds.
    """

    def __init__(
        self,
        make: MakeSeriesForecaster,
        saved: Mapping[str, Saved] | None = None,
    ) -> None:
        self.problems: list[str] = []
        self._make = make
        self._saved = dict(saved or {})
        self._progress: dict[str, _SeriesProgress] = {}
        self._behind: dict[str, None] = {}
        self._lock = Lock()
        self.backlog = 0

    def arrived(self, arrivals: Sequence[tuple[SeriesColumn, int, float, float]]) -> None:
        """Queue what was stored."""
        with self._lock:
            for column, position, at, value in arrivals:
                progress = self._progress.get(column.text) or self._begin_series(column)
                progress.positions.append(position)
                progress.times.append(at)
                progress.values.append(value)
                self._behind[column.text] = None
            self.backlog += len(arrivals)

    def replayed(
        self,
        column: SeriesColumn,
        positions: NDArray[np.int64],
        times: NDArray[np.float64],
        values: NDArray[np.float64],
    ) -> None:
        """Queue what the saved state has not seen."""
        with self._lock:
            progress = self._progress.get(column.text) or self._begin_series(column)
            fresh = positions > progress.position
            progress.positions.frombytes(positions[fresh].astype("<i8").tobytes())
            progress.times.frombytes(times[fresh].tobytes())
            progress.values.frombytes(values[fresh].tobytes())
            self.backlog += int(fresh.sum())
            if progress.backlog:
                self._behind[column.text] = None

    def rewritten(self, column: SeriesColumn, position: int) -> None:
        """Remember how far a compaction wrote measurements of a series again."""
        with self._lock:
            progress = self._progress.get(column.text) or self._begin_series(column)
            progress.rewritten = position

    def begin_from_memory(self) -> None:
        """Queue all that is kept of the series that have no state, but have lost a part of their log.

        Compaction leaves of a log what its saved states have not seen. Where those are not there, or are
        another profile's, or damaged, the log alone would have gaps that nobody hears of.
        """
        with self._lock:
            for text, progress in self._progress.items():
                if progress.position >= 0 or progress.rewritten < 0:
                    continue
                kept = progress.column.slice()
                last = max([progress.rewritten, *progress.positions[-1:]])
                self.backlog += len(kept) - progress.backlog
                # A state of a part of it would be of no position in the log.
                progress.positions = array("q", [-1] * (len(kept) - 1) + [last])
                progress.times = array("d", [at for at, _ in kept])
                progress.values = array("d", [value for _, value in kept])
                self._behind[text] = None

    def forecast(self, text: str, **question: Any) -> Forecast:
        """Return what to expect next of a series, all that was stored of it taken in.

        Of `question` (``over=300.0``, ``level=0.9``, ..) the forecaster is asked what it knows to
        answer; what the forecast is for stands in the forecast.

        Raises
        ------
        LookupError
            Transient: nothing was measured of it yet.
        """
        with self._lock:
            progress = self._followed(text)
            asked = tuple(sorted(question.items()))
            answer = progress.answers.get(asked)
            if answer is None:
                ask = self._looking_ahead(progress).forecast
                answer = ask(**{key: question[key] for key in _answerable(ask) & question.keys()})
                if len(progress.answers) < MOST_ANSWERS:
                    progress.answers[asked] = answer
            return answer

    def league(self, text: str, **question: Any) -> LeagueTable | None:
        """Return how wrong the predictors of a series have been, all that was stored of it taken in.

        None where its profile does not choose between predictors.

        Raises
        ------
        LookupError
            Transient: nothing was measured of it yet.
        """
        with self._lock:
            ask = getattr(self._looking_ahead(self._followed(text)), "league", None)
            found: LeagueTable | None = None if ask is None else ask(**question)
            return found

    def _followed(self, text: str) -> _SeriesProgress:
        """Return a series with all of it taken in; LookupError where nothing was measured of it."""
        progress = self._progress.get(text)
        if progress is None:
            raise SeriesUnknownError(f"nothing was measured of {text} yet", series=text)
        self._advance(progress, progress.backlog)
        return progress

    def order(self, text: str) -> ArrivalOrder | None:
        """Return what was made of the order in which the measurements of a series came."""
        progress = self._progress.get(text)
        return None if progress is None else progress.order

    def catch_up(self, seconds: float, timer: Callable[[], float] = time.perf_counter) -> bool:
        """Take in what waits, for about `seconds`; return whether more waits."""
        stop = timer() + seconds
        while self.backlog and timer() < stop:
            with self._lock:
                text = next(iter(self._behind), None)
                if text is None:
                    break
                try:
                    self._advance(self._progress[text], SLICE)
                except Exception:
                    self._behind[text] = self._behind.pop(text)  # the others first, the next time
                    raise
        return self.backlog > 0

    def states(self) -> Iterator[tuple[str, Saved]]:
        """Yield every series with the state of its forecaster, each right by itself."""
        for text in list(self._progress):
            with self._lock:
                state = self._progress[text].state()
            if state.position >= 0:
                yield text, state

    def latest(self, text: str) -> int:
        """Return the position of the last measurement of a series, taken in or not."""
        progress = self._progress.get(text)
        if progress is None:
            return -1
        return progress.positions[-1] if progress.positions else progress.position

    def position(self, text: str) -> int:
        """Return how much of the log the forecaster of a series has taken in."""
        progress = self._progress.get(text)
        return -1 if progress is None else progress.position

    def _advance(self, progress: _SeriesProgress, count: int) -> None:
        if progress.backlog:
            self.backlog -= progress.advance(self._forecaster_of(progress), count)
        if not progress.backlog:
            self._behind.pop(progress.column.text, None)

    def _begin_series(self, column: SeriesColumn) -> _SeriesProgress:
        saved = self._saved.pop(column.text, None)
        progress = _SeriesProgress(column, -1 if saved is None else saved.position, saved)
        self._progress[column.text] = progress
        return progress

    def _looking_ahead(self, progress: _SeriesProgress) -> SeriesForecaster:
        """Return what forecasts the series, all that waits for its turn taken in by a copy."""
        forecaster = self._forecaster_of(progress)
        if not progress.order.held:
            return forecaster
        if progress.looking_ahead is None:
            progress.looking_ahead = self._make(progress.column.series)
            deserialise(progress.looking_ahead, serialise(forecaster))
            for at, value in progress.order.held:
                progress.looking_ahead.update(Measurement(progress.column.series, at, value))
        return progress.looking_ahead

    def _forecaster_of(self, progress: _SeriesProgress) -> SeriesForecaster:
        """Return what follows the series, read from its saved state if it was not yet wanted."""
        if progress.forecaster is None:
            series = progress.column.series
            progress.forecaster = self._make(series)
            if progress.saved is not None:
                try:
                    _read_state(progress, progress.forecaster, progress.saved.state)
                except StateError as error:
                    self.problems.append(f"the state of {series} is of no use: {error}")
                    self._begin_again(progress)
                progress.saved = None
        return progress.forecaster

    def _begin_again(self, progress: _SeriesProgress) -> None:
        """Follow the series from what is kept of it in memory."""
        progress.forecaster = self._make(progress.column.series)
        progress.order = ArrivalOrder()
        first = progress.times[progress.done] if progress.backlog else float("inf")
        for at, value in progress.column.slice():
            if at < first:
                progress.order.arrive(at, value)
                progress.forecaster.update(Measurement(progress.column.series, at, value))


def _read_state(progress: _SeriesProgress, forecaster: SeriesForecaster, text: bytes) -> None:
    """Put a saved state into a series and its fresh forecaster; StateError if it is none."""
    plain = parsed(text)
    if not (isinstance(plain, dict) and plain.keys() == {"order", "forecaster"}):
        raise StateError("a state has an order and a forecaster")
    progress.order = ArrivalOrder()
    refill(progress.order, {"state": plain["order"]})
    refill(forecaster, plain["forecaster"])


def _answerable(ask: Callable[..., Forecast]) -> set[str]:
    """Return the questions that a forecaster takes; those of a kind are looked at once."""
    function = getattr(ask, "__func__", ask)
    if function not in _QUESTIONS:
        _QUESTIONS[function] = set(inspect.signature(function).parameters) - {"self"}
    return _QUESTIONS[function]


_QUESTIONS: dict[Any, set[str]] = {}
