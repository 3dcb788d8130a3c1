"""Measurements made elsewhere, or made up."""

from collections.abc import Iterable

from nws.measurement import Measurement, SeriesName
from nws.sensor import Sensor, SensorError


class ReplaySensor(Sensor):
    """Returns the next of `samples` at each measurement.

    Parameters
    ----------
    series
        The series the samples belong to.
    samples
        (time, value) pairs in the order of time.

    Examples
    --------
    >>> sensor = ReplaySensor(SeriesName("availableCpu", "ada"), [(0.0, 1.0), (10.0, 0.5)])
    >>> [sensor.measure()[0].value for _ in range(2)]
    [1.0, 0.5]
    """

    def __init__(self, series: SeriesName, samples: Iterable[tuple[float, float]]) -> None:
        self._series = series
        self._samples = tuple(Measurement(series, time, value) for time, value in samples)
        self._done = 0

    @property
    def series(self) -> tuple[SeriesName, ...]:
        """The one series."""
        return (self._series,)

    def measure(self) -> tuple[Measurement, ...]:
        """Return the next sample.

        Raises
        ------
        SensorError
            Permanent: all samples have been replayed.
        """
        if self._done == len(self._samples):
            raise SensorError(
                f"the replay of {self._series} is over after {self._done} measurements",
                transient=False,
                code="replay-ended",
                series=str(self._series),
            )
        self._done += 1
        return (self._samples[self._done - 1],)
