"""Dynamic selection: run several forecasters and answer with the forecaster of the lowest error."""

import math
from collections import deque
from collections.abc import Callable, Mapping
from itertools import chain
from operator import add, sub
from typing import ClassVar, Final

from nws.forecaster import (
    Criterion,
    Forecaster,
    LeagueTable,
    NoValueYetError,
    PredictorErrors,
)
from nws.measurement import checked_value

STRETCHES: Final = (1, 5, 10, 20, 30, 50, 100)
"""The numbers of latest errors that the derived forecasters compare; a further derived forecaster compares all."""
MAX_ERROR: Final = 1e150
"""Larger errors count as this, so that their squares can be added up."""


class TwoLevel(Forecaster):
    """Forecasts with a member chosen in two levels.

    Sixteen *derived* forecasters each answer with the member of the lowest error, absolute or squared,
    over all of the past or over the latest 1, 5, 10, 20, 30, 50 or 100 values. The
    forecast is that of the derived forecaster with the lowest cumulative error of the criterion.
    Of equals the first wins. Every update costs the same: an error over a stretch is the
    difference of two cumulative errors.

    Source: NWS 2.x forecasters.c, without its divisor that stops at 100 and without its window that a short series
    shrinks for all the others.

    Parameters
    ----------
    forecasters
        Name -> member. At least one, all fresh; the chooser owns them from now on.
    criterion
        The errors that the final choice adds up: ``"absolute"`` or ``"squared"``.

    Examples
    --------
    >>> from nws.forecasters.averages import LastValue
    >>> from nws.forecasters.averages import RunningMean
    >>> forecaster = TwoLevel({"last": LastValue(), "mean": RunningMean()})
    >>> for value in [0.0, 1.0, 0.0, 1.0, 0.0, 1.0]:
    ...     forecaster.update(value)
    >>> forecaster.method, forecaster.forecast()
    ('mean', 0.5)
    """

    STATEFUL: ClassVar[tuple[str, ...]] = (
        "_members",
        "_sums",
        "_past",
        "_picks",
        "_judged",
        "_answers",
        "_chosen",
    )

    def __init__(
        self, forecasters: Mapping[str, Forecaster], criterion: Criterion = "absolute"
    ) -> None:
        if not forecasters:
            raise ValueError("forecasters: must have at least one member")
        if criterion not in {"absolute", "squared"}:
            raise ValueError(f"criterion: must be 'absolute' or 'squared' (is {criterion!r})")
        self._names = tuple(forecasters)
        self._members = tuple(forecasters.values())
        self._criterion: Criterion = criterion
        zeros = [0.0] * len(self._names)
        self._sums = [zeros, zeros]
        past = max(STRETCHES)
        self._past = [deque([zeros], past), deque([zeros], past)]  # sums, the newest first
        self._picks = [0] * (2 * (1 + len(STRETCHES)))
        self._judged = [0.0] * len(self._picks)
        self._answers: list[float] = []
        self._chosen = 0

    def update(self, value: float) -> None:
        """Score members and derived forecasters, give `value` to all members, choose anew."""
        value = checked_value(value)
        if self._answers:
            self._score(value)
        for member in self._members:
            member.update(value)
        self._answers = [member.forecast() for member in self._members]

    def skip(self) -> None:
        """Skip the value in all members, and take their new forecasts."""
        for member in self._members:
            member.skip()
        if self._answers:
            self._answers = [member.forecast() for member in self._members]

    def forecast(self) -> float:
        """Return the forecast of the member that the best judge picked."""
        if not self._answers:
            raise NoValueYetError
        return self._answers[self._picks[self._chosen]]

    @property
    def method(self) -> str:
        """The name of the member chosen."""
        return self._names[self._picks[self._chosen]]

    def league(self, samples: float = 1.0, criterion: Criterion | None = None) -> LeagueTable:  # noqa: ARG002
        """Return the mean errors of its members over the latest 100 values."""
        past = self._past[0]
        before, scored = past[-1], len(past) - 1
        lately = [
            (total - old) / scored if scored else None
            for total, old in zip(self._sums[0], before, strict=True)
        ]
        rows = map(PredictorErrors, self._names, [None] * len(lately), lately)
        return LeagueTable(1, None, self.method, tuple(rows))

    def _score(self, value: float) -> None:
        errors = [_countable(answer - value) for answer in self._answers]
        squares = [error * error for error in errors]
        costs = errors if self._criterion == "absolute" else squares
        self._judged = [
            judged + costs[pick] for judged, pick in zip(self._judged, self._picks, strict=True)
        ]
        self._picks = list(
            chain.from_iterable(self._best(kind, of) for kind, of in enumerate((errors, squares)))
        )
        self._chosen = self._judged.index(min(self._judged))

    def _best(self, kind: int, costs: list[float]) -> list[int]:
        """Add `costs` up and return the best member over all of the past and every stretch."""
        past = self._past[kind]
        sums = self._sums[kind] = [a + b for a, b in zip(self._sums[kind], costs, strict=True)]
        picks = [sums.index(min(sums))]
        for stretch in STRETCHES:
            before = past[min(stretch, len(past)) - 1]
            recent = list(map(sub, sums, before))
            picks.append(recent.index(min(recent)))
        past.appendleft(sums)
        return picks


def _countable(error: float) -> float:
    """Return the magnitude of an error, at most `MAX_ERROR`; NaN counts as `MAX_ERROR`."""
    return MAX_ERROR if math.isnan(error) else min(abs(error), MAX_ERROR)


_ACCUMULATE: dict[Criterion, Callable[[float, float], float]] = {
    "absolute": add,
    "squared": math.hypot,  # the root of a sum of squares orders them alike and never overflows
}


class LowestError(Forecaster):
    """Forecasts with the member of the lowest cumulative error.

    All members forecast every value before they take it; the errors of each member are added up
    (Wolski, Spring, Hayes 1999, section 4; Berman et al. 1996, section 3.2: "the predictor with
    the lowest cumulative error"). Of equals the first wins; before the first error
    that is the first member.

    Parameters
    ----------
    forecasters
        Name -> member. At least one, all fresh; they belong to the chooser from now on.
    criterion
        The errors to add up: ``"absolute"`` (lowest mean absolute error) or ``"squared"``.

    Examples
    --------
    >>> from nws.forecasters.averages import LastValue
    >>> from nws.forecasters.averages import RunningMean
    >>> forecaster = LowestError({"last": LastValue(), "mean": RunningMean()})
    >>> for value in [0.0, 1.0, 0.0, 1.0, 0.0, 1.0]:
    ...     forecaster.update(value)
    >>> forecaster.method, forecaster.forecast()
    ('mean', 0.5)
    """

    STATEFUL: ClassVar[tuple[str, ...]] = ("_members", "_errors", "_started", "_best")

    def __init__(
        self, forecasters: Mapping[str, Forecaster], criterion: Criterion = "absolute"
    ) -> None:
        if not forecasters:
            raise ValueError("forecasters: must have at least one member")
        self._names = tuple(forecasters)
        self._members = tuple(forecasters.values())
        self._updates = tuple(member.update for member in forecasters.values())
        self._forecasts = tuple(member.forecast for member in forecasters.values())
        self._accumulate = _ACCUMULATE[criterion]
        self._errors = [0.0] * len(self._names)
        self._started = False
        self._best = 0

    def update(self, value: float) -> None:
        """Add up the error of each member, give `value` to all, choose anew."""
        value = checked_value(value)  # before any member has it, so that they stay in step
        if self._started:
            self._score(value)
        for update in self._updates:
            update(value)
        self._started = True

    def skip(self) -> None:
        """Skip the value in all members."""
        for member in self._members:
            member.skip()

    def forecast(self) -> float:
        """Return the forecast of the member chosen."""
        return self._forecasts[self._best]()

    @property
    def method(self) -> str:
        """The name of the member chosen."""
        return self._names[self._best]

    @property
    def errors(self) -> Mapping[str, float]:
        """Cumulative error by member: the sum of absolute errors, or the root of the sum of squared errors."""
        return dict(zip(self._names, self._errors, strict=True))

    def _score(self, value: float) -> None:
        errors = [abs(forecast() - value) for forecast in self._forecasts]
        if math.isnan(sum(errors)):  # a member that answers NaN is out, not unbeatable
            errors = [math.inf if math.isnan(error) else error for error in errors]
        self._errors = list(map(self._accumulate, self._errors, errors))
        self._best = self._errors.index(min(self._errors))
