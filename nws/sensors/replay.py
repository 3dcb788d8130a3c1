"""Measurements made elsewhere, or made up."""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from nws.measurement import Measurement, SeriesName
from nws.sensor import Sensor, SensorError


class ReplaySensor(Sensor):
    """Measures what it was told to: the next of `samples` at each call.

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

    @classmethod
    def from_csv(cls, series: SeriesName, path: Path) -> Self:
        """Return a sensor that replays a file of ``time,value`` lines; ``#`` starts a comment.

        Raises
        ------
        ValueError
            A line is not two numbers; the message names it.
        """
        with path.open(newline="") as file:
            rows = csv.reader(file)
            samples = [
                _sample(row, f"{path}:{rows.line_num}")
                for row in rows
                if row and not row[0].startswith("#")
            ]
        return cls(series, samples)

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
            )
        self._done += 1
        return (self._samples[self._done - 1],)


def _sample(row: list[str], where: str) -> tuple[float, float]:
    try:
        time, value = row
        return float(time), float(value)
    except ValueError as error:
        raise ValueError(f"{where}: 'time,value' is wanted, not {','.join(row)!r}") from error
