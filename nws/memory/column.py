"""One series in memory: its latest times and values, sorted by time, in flat arrays."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import numpy as np
from numpy.typing import NDArray

from nws.measurement import SeriesName, bounds_of

FEWEST_SPACINGS = 3
MOST_SPACINGS = 64


class SeriesColumn:
    """The latest `capacity` measurements of one series, 16 bytes each.

    Parameters
    ----------
    series
        Whose they are.
    capacity
        How many are kept.

    Attributes
    ----------
    bounds
        The least and the greatest value that such a series can have.

    Examples
    --------
    >>> column = SeriesColumn(SeriesName("availableCpu", "ada"), capacity=2)
    >>> [column.insert(time, 0.5) for time in (10.0, 30.0, 20.0, 30.0)]
    [True, True, True, False]
    >>> column.slice()
    [(20.0, 0.5), (30.0, 0.5)]
    """

    __slots__ = (
        "_changes",
        "_latest_arrival",
        "_spacing",
        "_spacing_of",
        "_times",
        "_values",
        "bounds",
        "capacity",
        "series",
        "text",
    )

    def __init__(self, series: SeriesName, capacity: int) -> None:
        self.series = series
        self.text = str(series)
        self.capacity = capacity
        self.bounds = bounds_of(series.resource)
        self._latest_arrival = float("-inf")
        self._spacing: float | None = None
        self._spacing_of = 0
        self._changes = 0
        self._times = array("d")
        self._values = array("d")

    def __len__(self) -> int:
        return min(len(self._times), self.capacity)

    @property
    def newest(self) -> float:
        """The latest time; minus infinity without any."""
        return self._times[-1] if self._times else float("-inf")

    @property
    def oldest(self) -> float:
        """The earliest time that is kept; infinity without any."""
        return self._times[self._first] if self._times else float("inf")

    def seen(self, now: float) -> float:
        """Return when the series was last measured: a stamp after `now` is believed of the last arrival alone."""
        newest = self.newest
        return newest if newest <= now else self._latest_arrival

    @property
    def latest(self) -> float | None:
        """The value at `newest`."""
        return self._values[-1] if self._values else None

    @property
    def _first(self) -> int:
        return max(0, len(self._times) - self.capacity)

    def insert(self, time: float, value: float) -> bool:
        """Put a measurement where its time belongs; False if that is taken or too long ago."""
        times = self._times
        if not times or time > times[-1]:
            self._latest_arrival = time
            self._changes += 1
            times.append(time)
            self._values.append(value)
            if len(times) > self.capacity + self.capacity // 4 + 16:
                self._trim(len(times) - self.capacity)
            return True
        if self.holds(time) or (len(self) == self.capacity and time < self.oldest):
            return False
        self._latest_arrival = time
        self._changes += 1
        place = bisect_left(times, time)
        times.insert(place, time)
        self._values.insert(place, value)
        return True

    def extend(self, times: Sequence[float], values: Sequence[float]) -> list[bool]:
        """Insert many, in any order; return which were new: the first of a time stays."""
        return [self.insert(*sample) for sample in zip(times, values, strict=True)]

    def extend_with_later(self, times: bytes, values: bytes) -> None:
        """Insert many doubles that are known to be in order and later than all here."""
        self._times.frombytes(times)
        self._values.frombytes(values)
        self._latest_arrival = self.newest
        self._changes += 1
        self._trim(len(self._times) - self.capacity)

    def holds(self, time: float) -> bool:
        """Return whether there is a measurement at `time`."""
        place = bisect_left(self._times, time, self._first)
        return place < len(self._times) and self._times[place] == time

    def value_at(self, time: float) -> float | None:
        """Return the value at exactly `time`, if there is one."""
        place = bisect_left(self._times, time, self._first)
        found = place < len(self._times) and self._times[place] == time
        return self._values[place] if found else None

    def forget(self, before: float) -> None:
        """Let go of what is older than `before`."""
        self._trim(bisect_left(self._times, before))

    def slice(
        self,
        after: float = float("-inf"),
        until: float = float("inf"),
        count: int | None = None,
    ) -> list[tuple[float, float]]:
        """Return (time, value) pairs later than `after`, not later than `until`, the latest."""
        start = max(self._first, bisect_right(self._times, after))
        stop = bisect_right(self._times, until)
        if count is not None:
            start = max(start, stop - count)
        return list(zip(self._times[start:stop], self._values[start:stop], strict=True))

    def arrays(self, since: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return copies of the times from `since` on, and of their values; from any thread."""
        while True:
            before = self._changes
            start = max(self._first, bisect_left(self._times, since))
            times, values = np.array(self._times[start:]), np.array(self._values[start:])
            if self._changes == before and len(times) == len(values):
                return times, values  # nothing was inserted in between

    def spacing(self) -> float | None:
        """Return the usual seconds from one measurement to the next; None until that is known."""
        if self._spacing_of != self._changes:
            times = self._times[-MOST_SPACINGS - 1 :]
            known = len(times) > FEWEST_SPACINGS
            self._spacing = median(b - a for a, b in pairwise(times)) if known else None
            self._spacing_of = self._changes
        return self._spacing

    def _trim(self, count: int) -> None:
        if count > 0:
            self._changes += 1
            del self._times[:count]
            del self._values[:count]
            self._changes += 1  # twice: else `arrays` could begin before and end after it
