"""Forecasters of many series that follow a database: the same forecasts whenever they are asked.

A forecaster takes in the measurements of its series in the order of their positions, so its state
depends on the database alone: not on when it was asked, and not on restarts. A state is saved with its
position after `SAVE_AFTER` further measurements; a restart takes in again the measurements after it.
"""

import json
import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, Protocol

from nws.errors import CodedError, SeriesUnknownError
from nws.forecast import Forecast
from nws.forecaster import Criterion, LeagueTable, checked_object
from nws.measurement import Measurement, SeriesName
from nws.memory.connection import StorageError
from nws.memory.sqlite import Arrival, SavedState, SqliteMemory
from nws.memory.summary import SeriesSummary
from nws.service.arrival_order import ArrivalOrder
from nws.service.worker import SLICE_SECONDS, Job, SlicedWorker

MAX_ANSWERS: Final = 4
"""Answers to different questions that are kept of a series until its next measurement."""
SAVE_AFTER: Final = 256
"""Measurements of a series after which its state is saved: the maximum that is taken in again after a kill."""
READ_AT_ONCE: Final = 4096


class SeriesForecaster(Protocol):
    """Forecasts one series from its measurements, as `nws.forecasters.scored.ScoredForecaster` does."""

    @property
    def time(self) -> float:
        """When the last measurement was taken; minus infinity before the first."""

    def update(self, measurement: Measurement) -> None:
        """Take in a later measurement."""

    def set_back(self, time: float) -> None:
        """Let the next measurement be any that is later than `time`."""

    def forecast(
        self, over: float | None = None, level: float = 0.9, criterion: Criterion | None = None
    ) -> Forecast:
        """Return the forecast."""

    def league(
        self, over: float | None = None, criterion: Criterion | None = None
    ) -> LeagueTable | None:
        """Return the errors of its predictors; None where it does not choose between predictors."""

    def state(self) -> dict[str, Any]:
        """Return the state as a document of JSON."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`; ValueError if it is not one of such a forecaster."""


MakeSeriesForecaster = Callable[[SeriesName], SeriesForecaster]


class UnfollowedError(CodedError, LookupError):
    """The forecaster of a series failed on a measurement. Permanent until the service starts again."""

    code = "forecaster-failed"


@dataclass(slots=True)
class _Progress:
    """A series, its forecaster once it is wanted, and how far that has got.

    `rows` were read of the database and wait. `since` is the earliest time, and `last` the last position, of the
    measurements that were noted and not read.
    """

    summary: SeriesSummary
    saved: int = -1
    position: int = -1
    since: float = math.inf
    last: int = -1
    noted: int = 0
    taken: int = 0
    rows: deque[tuple[int, float, float]] = field(default_factory=deque)
    forecaster: SeriesForecaster | None = None
    order: ArrivalOrder = field(default_factory=ArrivalOrder)
    looking_ahead: SeriesForecaster | None = None
    answers: dict[tuple[Any, ...], Forecast] = field(default_factory=dict)
    changes: int = 0
    failure: str = ""

    def take_in(self, forecaster: SeriesForecaster) -> None:
        """Take in the first row, or the measurements that come next in the order of time."""
        position, at, value = self.rows.popleft()
        self.position = position
        self.taken += 1
        self.changes += 1
        self.looking_ahead = None
        self.answers.clear()
        for turn in self.order.arrive(at, value):
            if turn.after is not None:
                forecaster.set_back(turn.after)
            forecaster.update(Measurement(self.summary.series, turn.time, turn.value))


class Forecasting:
    """Follows every series of a memory, in the thread of a `SlicedWorker`.

    Parameters
    ----------
    memory
        The memory with the series.
    make
        Makes the forecaster of a series.
    profile
        Name of the forecasters of `make`: states of other profiles are not read.

    Attributes
    ----------
    problems
        Problems of single series, one line each.
    """

    def __init__(self, memory: SqliteMemory, make: MakeSeriesForecaster, profile: str) -> None:
        self.problems: dict[str, str] = {}
        self._memory = memory
        self._make = make
        self._profile = profile
        self._lock = Lock()
        self._progress: dict[str, _Progress] = {}
        self._behind: dict[str, None] = {}
        self._noted = self._taken = 0
        saved = memory.state_positions(profile)
        for summary in memory.summaries():
            position = saved.get(summary.text, -1)
            progress = _Progress(summary, position, position)
            self._progress[summary.text] = progress
            if summary.position > position:
                progress.since, progress.noted = -math.inf, 1
                progress.last = summary.position
                self._noted += 1
                self._behind[summary.text] = None
        self.worker = SlicedWorker(self._catch_up)

    @property
    def backlog(self) -> int:
        """Number of waiting measurements; right after a start a series counts as one until it is read."""
        return max(0, self._noted - self._taken)

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Note stored measurements; in the writer's thread."""
        with self._lock:
            for summary, position, at, _ in arrivals:
                progress = self._progress.get(summary.text)
                if progress is None:
                    progress = self._progress[summary.text] = _Progress(summary)
                progress.since = min(progress.since, at)
                progress.last = max(progress.last, position)
                progress.noted += 1
                self._noted += 1
                self._behind[summary.text] = None
        self.worker.wake()

    def forget(self, series: Iterable[str]) -> None:
        """Remove the forecasters of series that left the memory; in the writer's thread."""
        with self._lock:
            for text in series:
                progress = self._progress.pop(text, None)
                if progress is not None:
                    self._noted -= progress.noted
                    self._taken -= progress.taken
                self._behind.pop(text, None)
                self.problems.pop(text, None)

    def needed(self, text: str) -> float:
        """Return the position up to which the measurements of a series are in a saved state."""
        progress = self._progress.get(text)
        return float("inf") if progress is None or progress.failure else progress.saved

    # ------------------------------------------------- jobs of the worker, and its background
    def forecast(self, text: str, question: Mapping[str, Any]) -> Job[Forecast]:
        """Return the forecast of a series, once all that was stored of it is taken in.

        `question` are arguments of `SeriesForecaster.forecast`, such as ``over=300.0``.

        Raises
        ------
        LookupError
            Nothing was measured of it yet, or its forecaster failed.
        """
        progress = yield from self._followed(text)
        return self._answer(progress, question)

    def forecasts(
        self, names: Iterable[str], question: Mapping[str, Any]
    ) -> Job[list[Forecast | None]]:
        """Return the forecasts of several series, as `forecast` does; None if a series has none."""
        found: list[Forecast | None] = []
        for text in names:
            try:
                found.append((yield from self.forecast(text, question)))
            except LookupError:
                found.append(None)
            yield
        return found

    def answers_now(
        self, names: Iterable[str], question: Mapping[str, Any]
    ) -> Job[list[Forecast | None]]:
        """Return the forecasts of several series without waiting measurements; None if a series has none."""
        found = []
        for text in names:
            found.append(self._answer_now(text, question))
            yield
        return found

    def _answer_now(self, text: str, question: Mapping[str, Any]) -> Forecast | None:
        """Return the forecast of a series without waiting measurements; None before the first measurement."""
        progress = self._progress.get(text)
        if progress is None or progress.failure:
            return None
        try:
            return self._answer(progress, question)
        except LookupError:
            return None

    def league(self, text: str, question: Mapping[str, Any]) -> Job[LeagueTable | None]:
        """Return the errors of the predictors of a series, with all its measurements taken in.

        None if its profile does not choose between predictors. Raises as `forecast`.
        """
        progress = yield from self._followed(text)
        return self._looking_ahead(progress).league(**question)

    def order(self, text: str) -> ArrivalOrder | None:
        """Return the order of arrival of a series; None if the series is unknown."""
        progress = self._progress.get(text)
        return None if progress is None else progress.order

    def settle(self) -> Job[None]:
        """Take in all that waits."""
        while self._catch_up():
            yield

    def changed(self, after: int) -> Job[list[str]]:
        """Return the series that have taken in at least `after` measurements since they were saved.

        Series that began again are among them as soon as they have caught up.
        """
        yield
        found = []
        for text, progress in list(self._progress.items()):
            again = text in self.problems and not progress.failure and text not in self._behind
            if progress.forecaster is not None and (again or progress.changes >= after):
                found.append(text)
        return found

    def states(self, names: Iterable[str]) -> Job[dict[SeriesSummary, SavedState]]:
        """Return the states of the series that are still in the memory."""
        found = {}
        for text in names:
            progress = self._progress.get(text)
            if progress is not None and progress.forecaster is not None:
                state = {
                    "order": progress.order.state(),
                    "forecaster": progress.forecaster.state(),
                }
                blob = json.dumps(state, separators=(",", ":")).encode()
                found[progress.summary] = SavedState(progress.position, self._profile, blob)
                yield
        return found

    def saved(self, states: Mapping[SeriesSummary, SavedState]) -> Job[None]:
        """Note that states are on the disk."""
        yield
        for summary, state in states.items():
            progress = self._progress.get(summary.text)
            if progress is not None and progress.summary is summary:
                progress.saved = state.position
                if progress.position == state.position:
                    progress.changes = 0
                if not progress.failure:  # a series that was begun again has a state now
                    self.problems.pop(summary.text, None)

    def _catch_up(self) -> bool:
        """Take in measurements of one series for a slice; return whether more wait."""
        with self._lock:
            text = next(iter(self._behind), None)
            if text is None:
                return False
            self._behind[text] = self._behind.pop(text)  # the others first, the next time
            progress = self._progress[text]
        stop = time.perf_counter() + SLICE_SECONDS
        try:
            while self._step(progress) and time.perf_counter() < stop:
                pass
        except StorageError:  # the memory names it; the next arrival tries again
            return False
        return True

    def _followed(self, text: str) -> Generator[None, None, _Progress]:
        """Return a series with all of it taken in."""
        progress = self._progress.get(text)
        if progress is None:
            raise SeriesUnknownError(f"nothing was measured of {text} yet", series=text)
        while self._step(progress):
            yield
        if progress.failure:
            raise UnfollowedError(f"{progress.failure}", series=text)
        return progress

    def _step(self, progress: _Progress) -> bool:
        """Take in one measurement of a series; return whether more may wait."""
        forecaster = self._forecaster_of(progress)
        if not progress.rows and not self._read(progress):
            return False
        try:
            progress.take_in(forecaster)
        except Exception as error:  # noqa: BLE001 - a forecaster may fail in any way; the others go on
            series = progress.summary.text
            progress.failure = (
                f"{series}: its forecaster failed ({error!r}); start the service again"
            )
            self.problems[series] = progress.failure
            progress.rows.clear()
        self._taken += 1
        return True

    def _read(self, progress: _Progress) -> bool:
        """Read the stored measurements after the position; return whether there are any."""
        with self._lock:
            since, progress.since = progress.since, math.inf
            # Behind it may be measurements that were not noted, before `since` too.
            last = progress.last
            if since == math.inf or progress.failure:
                if self._is_followed(progress):
                    self._behind.pop(progress.summary.text, None)
                self._count(progress, progress.taken)
                return False
        try:
            rows = self._memory.arrivals(
                progress.summary, since, progress.position, last, READ_AT_ONCE
            )
        except StorageError:
            with self._lock:
                progress.since = min(progress.since, since)
            raise
        progress.rows.extend(rows)
        with self._lock:
            self._count(progress, max(progress.noted, progress.taken + len(rows)))
            if len(rows) == READ_AT_ONCE:
                progress.since = min(progress.since, since)
        return bool(rows) or self._read(progress)

    def _count(self, progress: _Progress, noted: int) -> None:
        """Correct the number of measurements of a series. Hold the lock."""
        if self._is_followed(progress):
            self._noted += noted - progress.noted
            progress.noted = noted

    def _is_followed(self, progress: _Progress) -> bool:
        """Return whether a series has not left, nor begun again under its name. Hold the lock."""
        return self._progress.get(progress.summary.text) is progress

    def _answer(self, progress: _Progress, question: Mapping[str, Any]) -> Forecast:
        asked = tuple(sorted(question.items()))
        answer = progress.answers.get(asked)
        if answer is None:
            answer = self._looking_ahead(progress).forecast(**question)
            if len(progress.answers) < MAX_ANSWERS:
                progress.answers[asked] = answer
        return answer

    def _looking_ahead(self, progress: _Progress) -> SeriesForecaster:
        """Return the forecaster of a series, or a copy that has taken in the measurements of the buffer too."""
        forecaster = self._forecaster_of(progress)
        if not progress.order.held:
            return forecaster
        if progress.looking_ahead is None:
            progress.looking_ahead = self._make(progress.summary.series)
            progress.looking_ahead.restore(forecaster.state())
            for at, value in progress.order.held:
                progress.looking_ahead.update(Measurement(progress.summary.series, at, value))
        return progress.looking_ahead

    def _forecaster_of(self, progress: _Progress) -> SeriesForecaster:
        """Return the forecaster of a series, from its saved state if it has one."""
        if progress.forecaster is not None:
            return progress.forecaster
        saved = self._memory.state(progress.summary) if progress.saved >= 0 else None
        progress.forecaster = self._make(progress.summary.series)
        if saved is not None:
            try:
                _restore(progress, progress.forecaster, saved.state)
            except INVALID as error:
                series = progress.summary.text
                self.problems[series] = (
                    f"{series}: its saved state is invalid ({error}); its forecaster begins again "
                    "with the measurements that are kept"
                )
                self._begin_again(progress)
        return progress.forecaster

    def _begin_again(self, progress: _Progress) -> None:
        """Begin again with the stored measurements of a series."""
        progress.forecaster = self._make(progress.summary.series)
        progress.order = ArrivalOrder()
        progress.saved = progress.position = -1
        with self._lock:
            progress.since, progress.last = -math.inf, progress.summary.position
            self._behind[progress.summary.text] = None


INVALID: Final = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError)
"""Errors that reading a damaged state may raise."""


def _restore(progress: _Progress, forecaster: SeriesForecaster, text: bytes) -> None:
    """Put a saved state into a series and its new forecaster; one of `INVALID` if it is damaged."""
    state = checked_object(json.loads(text), ("order", "forecaster"), "a series")
    progress.order.restore(state["order"])
    forecaster.restore(state["forecaster"])
