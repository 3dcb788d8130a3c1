"""A forecaster whose forecasts are scored: each is compared with the value it was made for."""

import math
from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Any, Final

from nws.errors import InputError
from nws.forecast import Forecast, Interval
from nws.forecaster import (
    Criterion,
    Forecaster,
    FrameForecaster,
    LeagueTable,
    NoValueYetError,
    OneCriterionError,
    checked_object,
    unpacked,
)
from nws.measurement import Measurement, checked_value

ENOUGH: Final = 4
REMEMBERED: Final = 15
MOST_MISSING: Final = 240
"""More than this many missing measurements count as this many: twice the longest horizon."""
TOLERANCE: Final = 0.25
FEWEST_FOR_INTERVAL: Final = 20
"""Measurements before an interval is given: fewer errors say nothing of how wide it is to be."""


class SamplingGrid:
    """The period of a series: given, or the median of the latest distances in time.

    Measurements are missing when a distance is more than one and a half periods and the series is
    regular: of the latest distances more than half are within a quarter of the period.

    Examples
    --------
    >>> grid = SamplingGrid()
    >>> for distance in [10.0, 10.1, 9.9, 10.0]:
    ...     grid.update(distance)
    >>> grid.period, grid.missing(30.2), grid.missing(10.5)
    (10.0, 2, 0)
    """

    def __init__(self, period: float | None = None) -> None:
        if period is not None and not 0 < period < math.inf:
            raise InputError(
                f"period: must be a positive number of seconds (is {period})",
                code="value-range",
                field="period",
            )
        self._given = period
        self._latest: deque[float] = deque(maxlen=REMEMBERED)

    @property
    def period(self) -> float | None:
        """Seconds between two measurements; None while that is not known."""
        if self._given is not None or len(self._latest) < ENOUGH:
            return self._given
        return median(self._latest)

    def update(self, distance: float) -> None:
        """Note how many seconds lay between two measurements."""
        self._latest.append(distance)

    def missing(self, distance: float) -> int:
        """Return how many measurements should have come in between."""
        period = self.period
        if period is None or distance <= 1.5 * period or not self._regular(period):
            return 0
        return min(round(distance / period) - 1, MOST_MISSING)

    def _regular(self, period: float) -> bool:
        near = sum(abs(each - period) <= TOLERANCE * period for each in self._latest)
        return self._given is not None or 2 * near > len(self._latest)

    def state(self) -> dict[str, Any]:
        """Return the latest distances."""
        return {"latest": list(self._latest)}

    def restore(self, state: Any) -> None:
        """Take over the latest distances; ValueError unless they are numbers."""
        given = checked_object(state, ("latest",), "a grid")
        self._latest = unpacked(deque([0.0], REMEMBERED), given["latest"], "latest")


UNBOUNDED: Final = (-math.inf, math.inf)


class ScoredForecaster:
    """Follows one series with one forecaster and reports a `Forecast` with its own past error.

    For a forecaster that chooses, this is the error of the choice, made before the value was
    known; the winner's own cumulative error would be flattered by hindsight.

    Measurements that are missing from a regular series are told to the forecaster as missed
    (`Forecaster.miss`): it may go on from its own forecast, which is not scored.

    Parameters
    ----------
    forecaster
        What forecasts; fresh.
    bounds
        The least and the greatest value that the quantity can have: intervals end there.
    period
        Seconds between two measurements, if known; else it is taken from their times.

    Examples
    --------
    >>> from nws.forecasters import LastValue
    >>> from nws.measurement import SeriesName
    >>> scored = ScoredForecaster(LastValue())
    >>> ada = SeriesName("availableCpu", "ada")
    >>> for time, value in [(0.0, 1.0), (10.0, 0.5), (20.0, 0.75)]:
    ...     scored.update(Measurement(ada, time, value))
    >>> scored.forecast().value, scored.forecast().error
    (0.75, 0.375)
    """

    def __init__(
        self,
        forecaster: Forecaster,
        bounds: tuple[float, float] = UNBOUNDED,
        period: float | None = None,
    ) -> None:
        self._forecaster = forecaster
        self._bounds = bounds
        self._grid = SamplingGrid(period)
        self._samples = 0
        self._error = 0.0
        self._time = float("-inf")

    @property
    def time(self) -> float:
        """When the last measurement was taken; minus infinity before the first."""
        return self._time

    @property
    def period(self) -> float | None:
        """Seconds between two measurements; None while that is not known."""
        return self._grid.period

    def update(self, measurement: Measurement) -> None:
        """Compare the measurement with the forecast made for it, then take it in.

        Raises
        ------
        ValueError
            Permanent: it is not later than the last, or its value is not a measurement. The
            state is as if it had never come.
        """
        if not measurement.time > self._time:
            raise InputError(
                f"{measurement.series} at {measurement.time} is not later than {self._time}",
                code="measurement-late",
                series=str(measurement.series),
                value=repr(measurement.time),
                bound=self._time,
            )
        checked_value(measurement.value)  # before anything is missed
        expected = self._expected(measurement.time) if self._samples else None
        self._forecaster.update(measurement.value)
        if expected is not None:
            self._error += (abs(expected - measurement.value) - self._error) / self._samples
        self._samples += 1
        self._time = measurement.time

    def set_back(self, time: float) -> None:
        """Let the next measurement be any that is later than `time`: the last stamp was wrong."""
        if self._samples:
            self._time = time

    def forecast(
        self, over: float | None = None, level: float = 0.9, criterion: Criterion | None = None
    ) -> Forecast:
        """Return what to expect next, with the errors so far.

        Parameters
        ----------
        over
            Seconds from now whose mean is wanted, None: the next measurement. Answered from the
            forecaster's nearest horizon that was ever scored, which the forecast names; one that
            has no horizons, or a series whose period is not known yet, answers for the next
            measurement.
        level
            The share of values that the interval is to hold. There is none before 20 measurements.
        criterion
            The error that the value is to make least; None: the one the forecaster was made for.

        Raises
        ------
        LookupError
            Transient: there has been no measurement yet.
        ValueError
            Permanent: `over` is not positive, `level` not in (0, 1), or the forecaster knows no
            other criterion than its own.
        """
        if over is not None and not 0 < over < math.inf:
            raise InputError(
                f"over: must be a positive number of seconds (is {over})",
                code="value-range",
                field="over",
            )
        if not self._samples:
            raise NoValueYetError
        error = self._error if self._samples > 1 else None
        if not isinstance(self._forecaster, FrameForecaster):
            if criterion is not None:
                raise OneCriterionError("this profile forecasts for one criterion: name none")
            method = self._forecaster.method
            value = self._forecaster.forecast()
            return Forecast(value, error, method, self._samples, self._time, over=self.period)
        period = self.period
        samples = over / period if over and period else 1.0
        outlook = self._forecaster.outlook(samples, level, criterion)
        while outlook.error is None and outlook.horizon > 1:  # nearest among those ever scored
            outlook = self._forecaster.outlook(outlook.horizon / 2, level, criterion)
        return Forecast(
            value=outlook.value,
            error=error if outlook.horizon == 1 and criterion is None else outlook.error,
            method=outlook.method,
            samples=self._samples,
            time=self._time,
            rmse=outlook.rmse,
            horizon=outlook.horizon,
            over=period * outlook.horizon if period else None,
            interval=(
                self._bounded(outlook.interval) if self._samples >= FEWEST_FOR_INTERVAL else None
            ),
        )

    def league(
        self, over: float | None = None, criterion: Criterion | None = None
    ) -> LeagueTable | None:
        """Return how wrong the forecaster's predictors have been; None where it does not choose.

        Parameters
        ----------
        over, criterion
            As of `forecast`: the league is of the horizon that answers it.
        """
        period = self.period
        return self._forecaster.league(over / period if over and period else 1.0, criterion)

    def state(self) -> dict[str, Any]:
        """Return all there is to know, as a document of JSON; TypeError if a part cannot say."""
        return {
            "forecaster": self._forecaster.state(),
            "grid": self._grid.state(),
            "samples": self._samples,
            "error": self._error,
            "time": self._time if self._samples else None,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`, with a forecaster made with the same arguments, bit for bit.

        Raises
        ------
        ValueError
            Permanent: it is not such a state. This object is of no more use.
        """
        names = ("forecaster", "grid", "samples", "error", "time")
        given = checked_object(state, names, "a scored forecaster")
        samples, error, time = given["samples"], given["error"], given["time"]
        if not (isinstance(samples, int) and samples >= 0 and isinstance(error, int | float)):
            raise InputError(
                f"samples and error: must be counts (are {samples!r:.40} and {error!r:.40})",
                code="state-invalid",
                field="samples",
            )
        if (time is None) != (samples == 0) or not isinstance(time, int | float | None):
            raise InputError(
                f"time: must be the time of the last measurement (is {time!r:.40})",
                code="state-invalid",
                field="time",
            )
        self._forecaster.restore(given["forecaster"])
        self._grid.restore(given["grid"])
        self._samples, self._error = samples, float(error)
        self._time = float("-inf") if time is None else float(time)

    def _expected(self, time: float) -> float:
        """Return the forecast for `time`, once what is missing before it was missed."""
        since = time - self._time
        for _ in range(self._grid.missing(since)):
            self._forecaster.miss()
        self._grid.update(since)
        return self._forecaster.forecast()

    def _bounded(self, interval: Interval) -> Interval:
        least, greatest = self._bounds
        lower, upper = (min(max(end, least), greatest) for end in (interval.lower, interval.upper))
        return Interval(lower, upper, interval.level, interval.coverage)
