"""A forecaster held to account: every forecast meets the value it was made for."""

from nws.forecast import Forecast
from nws.forecaster import Forecaster, NoValueYetError
from nws.measurement import Measurement


class ScoredForecaster:
    """Follows one series with one forecaster and reports a `Forecast` with its own past error.

    For a forecaster that chooses, this is the error of the choice, made before the value was
    known; the winner's own cumulative error would be flattered by hindsight.

    Examples
    --------
    >>> from nws.forecasters import LastValue
    >>> from nws.measurement import SeriesName
    >>> scored = ScoredForecaster(LastValue())
    >>> ada = SeriesName("availableCpu", "ada")
    >>> for time, value in [(0.0, 1.0), (10.0, 0.5), (20.0, 0.75)]:
    ...     scored.update(Measurement(ada, time, value))
    >>> scored.forecast()
    Forecast(value=0.75, error=0.375, method='LastValue', samples=3, time=20.0)
    """

    def __init__(self, forecaster: Forecaster) -> None:
        self._forecaster = forecaster
        self._samples = 0
        self._error = 0.0
        self._time = float("-inf")

    @property
    def time(self) -> float:
        """When the last measurement was taken; minus infinity before the first."""
        return self._time

    def update(self, measurement: Measurement) -> None:
        """Compare the measurement with the forecast made for it, then take it in.

        Raises
        ------
        ValueError
            Permanent: it is not later than the last, or its value is not a measurement. The
            state is as if it had never come.
        """
        if not measurement.time > self._time:
            raise ValueError(
                f"{measurement.series} at {measurement.time} is not later than {self._time}"
            )
        expected = self._forecaster.forecast() if self._samples else None
        self._forecaster.update(measurement.value)
        if expected is not None:
            self._error += (abs(expected - measurement.value) - self._error) / self._samples
        self._samples += 1
        self._time = measurement.time

    def forecast(self) -> Forecast:
        """Return what to expect next, with the mean absolute error so far."""
        if not self._samples:
            raise NoValueYetError
        return Forecast(
            value=self._forecaster.forecast(),
            error=self._error if self._samples > 1 else None,
            method=self._forecaster.method,
            samples=self._samples,
            time=self._time,
        )
