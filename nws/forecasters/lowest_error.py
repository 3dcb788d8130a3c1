"""The choice: the forecaster that has been wrong least."""

import math
from collections.abc import Callable, Mapping
from operator import add
from typing import ClassVar, Literal

from nws.forecaster import Forecaster
from nws.measurement import checked_value

Criterion = Literal["absolute", "squared"]

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
    >>> from nws.forecasters.last_value import LastValue
    >>> from nws.forecasters.running_mean import RunningMean
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
