"""Scoring of a forecaster: the comparison of each forecast with the value that followed."""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
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

MIN_DISTANCES: Final = 4
MAX_DISTANCES: Final = 15
MAX_MISSING: Final = 240
"""More than this many missing measurements count as this many: twice the longest horizon."""
TOLERANCE: Final = 0.25
MIN_FOR_INTERVAL: Final = 20
"""Measurements before the first interval: fewer errors do not determine its width."""


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
        self._latest: deque[float] = deque(maxlen=MAX_DISTANCES)

    @property
    def period(self) -> float | None:
        """Seconds between two measurements; None while that is not known."""
        if self._given is not None or len(self._latest) < MIN_DISTANCES:
            return self._given
        return median(self._latest)

    def update(self, distance: float) -> None:
        """Note how many seconds lay between two measurements."""
        self._latest.append(distance)

    @property
    def regular_period(self) -> float | None:
        """The period if the series is regular, else None."""
        period = self.period
        return period if period is not None and self._regular(period) else None

    def missing(self, distance: float) -> int:
        """Return the number of measurements that are missing in between."""
        period = self.period
        if period is None or distance <= 1.5 * period or not self._regular(period):
            return 0
        return min(round(distance / period) - 1, MAX_MISSING)

    def _regular(self, period: float) -> bool:
        near = sum(abs(each - period) <= TOLERANCE * period for each in self._latest)
        return self._given is not None or 2 * near > len(self._latest)

    def state(self) -> dict[str, Any]:
        """Return the latest distances."""
        return {"latest": list(self._latest)}

    def restore(self, state: Any) -> None:
        """Take over the latest distances; ValueError unless they are numbers."""
        given = checked_object(state, ("latest",), "a grid")
        self._latest = unpacked(deque([0.0], MAX_DISTANCES), given["latest"], "latest")


UNBOUNDED: Final = (-math.inf, math.inf)


class ScoredForecaster:
    """Follows one series with one forecaster and reports a `Forecast` with its own past error.

    For a forecaster that chooses, this is the error of the choice, made before the value was
    known. The winner's own cumulative error would be too low, by hindsight.

    For each measurement that a regular series lacks, the forecaster skips a value (`Forecaster.skip`): it may
    continue from its own forecast, which is not scored.

    Parameters
    ----------
    forecaster
        A fresh forecaster.
    bounds
        The least and the greatest value of the quantity: intervals end there.
    period
        Seconds between two measurements; None: estimated from their times.

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
            state does not change.
        """
        if not measurement.time > self._time:
            raise InputError(
                f"{measurement.series} at {measurement.time} is not later than {self._time}",
                code="measurement-late",
                series=str(measurement.series),
                value=repr(measurement.time),
                bound=self._time,
            )
        checked_value(measurement.value)  # before any value is skipped
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
        """Return the forecast, with the errors so far.

        Parameters
        ----------
        over
            Seconds of the mean to forecast; None: the next measurement. The answer is for the
            forecaster's nearest horizon with a score, and names it. Without horizons, or before the period of the
            series is known, the answer is for the next measurement.
        level
            The share of values that the interval is to contain. The first 20 measurements give no interval.
        criterion
            The error that the value minimises; None: the forecaster's own criterion.

        Raises
        ------
        LookupError
            Transient: no measurement yet.
        ValueError
            Permanent: `over` is not positive, `level` not in (0, 1), or the forecaster has only its own
            criterion.
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
                raise OneCriterionError(
                    "criterion: this profile has one criterion only; omit the field"
                )
            value, method = self._forecaster.forecast(), self._forecaster.method
            return Forecast(value, error, method, self._samples, self._time, over=self.period)
        period = self.period
        samples = over / period if over and period else 1.0
        forecast = self._forecaster.outlook(samples, level, criterion)
        while forecast.error is None and forecast.horizon > 1:  # nearest among those ever scored
            forecast = self._forecaster.outlook(forecast.horizon / 2, level, criterion)
        own = forecast.horizon == 1 and criterion is None
        return replace(
            forecast,
            error=error if own else forecast.error,
            samples=self._samples,
            time=self._time,
            over=period * forecast.horizon if period else None,
            interval=self._bounded(forecast.interval),
        )

    def league(
        self, over: float | None = None, criterion: Criterion | None = None
    ) -> LeagueTable | None:
        """Return the errors of the forecaster's predictors; None if it does not choose.

        Parameters
        ----------
        over, criterion
            As of `forecast`: the league is of the horizon that answers it.
        """
        period = self.period
        return self._forecaster.league(over / period if over and period else 1.0, criterion)

    def state(self) -> dict[str, Any]:
        """Return the state as a JSON document; TypeError if the forecaster has none."""
        return {
            "forecaster": self._forecaster.state(),
            "grid": self._grid.state(),
            "samples": self._samples,
            "error": self._error,
            "time": self._time if self._samples else None,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state`, with a forecaster made with the same arguments, bit for bit.

        Raises
        ------
        ValueError
            Permanent: not such a state. Discard this object.
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
        """Return the forecast for `time`, after skipping the values that are missing before it."""
        since = time - self._time
        missing = self._grid.missing(since)
        self._grid.update(since)
        framed = self._forecaster if isinstance(self._forecaster, FrameForecaster) else None
        period = self._grid.regular_period if framed else None
        for place in range(1, missing + 1):
            if framed:
                framed.clock(self._time + since * place / (missing + 1), period)
            self._forecaster.skip()
        if framed:
            framed.clock(time, period)
        return self._forecaster.forecast()

    def _bounded(self, interval: Interval | None) -> Interval | None:
        """Return an interval within the bounds; None before `MIN_FOR_INTERVAL` measurements."""
        if interval is None or self._samples < MIN_FOR_INTERVAL:
            return None
        least, greatest = self._bounds
        lower, upper = (min(max(end, least), greatest) for end in (interval.lower, interval.upper))
        return replace(interval, lower=lower, upper=upper)
