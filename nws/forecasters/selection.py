"""Dynamic selection: run several forecasters and answer with the one that has been wrong least."""

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
"""How many of the latest errors a derived forecaster compares; one more compares all of them."""
LARGEST_ERROR: Final = 1e150
"""Larger errors count as this, so that their squares can be added up."""


class TwoLevel(Forecaster):
    """Forecasts with the member that was best over the stretch that has been the best judge.

    Sixteen *derived* forecasters each answer with the member whose error, absolute or squared,
    over all of the past or over its latest 1, 5, 10, 20, 30, 50 or 100 values was least. The
    forecast is that of the derived forecaster with the lowest cumulative error of the criterion.
    Of equals the first wins. Costs the same at every update: an error over a stretch is the
    difference of two cumulative errors.

    NWS 2.x forecasters.c; its divisor that stops at 100 and its window that a short series shrinks
    for all the others are not repeated.

    Parameters
    ----------
    forecasters
        Name -> member. At least one, all fresh; they belong to the chooser from now on.
    criterion
        What the final choice adds up: ``"absolute"`` or ``"squared"`` errors.

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
            raise ValueError("there is nothing to choose from")
        if criterion not in {"absolute", "squared"}:
            raise ValueError(f"a criterion is 'absolute' or 'squared', not {criterion!r}")
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

    def miss(self) -> None:
        """Tell all members, and ask them anew."""
        for member in self._members:
            member.miss()
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
        """Return the mean errors of its members over the latest 100 values; older ones are not counted."""
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
    """Return the magnitude of an error, at most `LARGEST_ERROR`; of no number that as well."""
    return LARGEST_ERROR if math.isnan(error) else min(abs(error), LARGEST_ERROR)


_ACCUMULATE: dict[Criterion, Callable[[float, float], float]] = {
    "absolute": add,
    "squared": math.hypot,  # the root of a sum of squares orders them alike and never overflows
}


class LowestError(Forecaster):
    """Forecasts with the one of its members whose cumulative error is least.

    All members forecast every value before they are given it; each one's errors are added up
    (Wolski, Spring, Hayes 1999, section 4; Berman et al. 1996, section 3.2: "the predictor with
    the lowest cumulative error"). Of equals the first wins; before there is any error to compare
    that is the first member.

    Parameters
    ----------
    forecasters
        Name -> member. At least one, all fresh; they belong to the chooser from now on.
    criterion
        What is added up: ``"absolute"`` errors (lowest mean absolute error) or ``"squared"``.

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
            raise ValueError("there is nothing to choose from")
        self._names = tuple(forecasters)
        self._members = tuple(forecasters.values())
        self._updates = tuple(member.update for member in forecasters.values())
        self._forecasts = tuple(member.forecast for member in forecasters.values())
        self._accumulate = _ACCUMULATE[criterion]
        self._errors = [0.0] * len(self._names)
        self._started = False
        self._best = 0

    def update(self, value: float) -> None:
        """Add up what each member got wrong, give `value` to all, choose anew."""
        value = checked_value(value)  # before any member has it, so that they stay in step
        if self._started:
            self._score(value)
        for update in self._updates:
            update(value)
        self._started = True

    def miss(self) -> None:
        """Tell all members."""
        for member in self._members:
            member.miss()

    def forecast(self) -> float:
        """Return the forecast of the member chosen."""
        return self._forecasts[self._best]()

    @property
    def method(self) -> str:
        """The name of the member chosen."""
        return self._names[self._best]

    @property
    def errors(self) -> Mapping[str, float]:
        """Cumulative error by member: the sum of absolute errors, or the root of squared ones."""
        return dict(zip(self._names, self._errors, strict=True))

    def _score(self, value: float) -> None:
        errors = [abs(forecast() - value) for forecast in self._forecasts]
        if math.isnan(sum(errors)):  # a member that answers NaN is out, not unbeatable
            errors = [math.inf if math.isnan(error) else error for error in errors]
        self._errors = list(map(self._accumulate, self._errors, errors))
        self._best = self._errors.index(min(self._errors))
