"""A memory in this process: a ring of the latest measurements of each series."""

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from threading import Lock

from nws.errors import coded
from nws.measurement import Measurement, SeriesName, checked_amount, checked_time
from nws.memory.contract import Memory, RefusedError, in_future


class RingMemory(Memory):
    """Keeps the latest `capacity` measurements of each series in lists sorted by time.

    The oldest of a full series leaves for a newer one; a measurement older than all of a full
    series is refused, since it could not be fetched.

    Parameters
    ----------
    capacity
        Measurements per series, at least 1 (NWS 2.x: 2000).
    most_series
        Series, at least 1; one more is refused.
    skew
        Seconds by which a sender's clock may be ahead of ours.
    clock
        Seconds since the epoch.

    Examples
    --------
    >>> memory = RingMemory(capacity=2, clock=lambda: 100.0)
    >>> ada = SeriesName("availableCpu", "ada")
    >>> [memory.store(Measurement(ada, time, 0.5)) for time in (10.0, 30.0, 20.0, 30.0)]
    [True, True, True, False]
    >>> [measurement.time for measurement in memory.fetch(ada)]
    [20.0, 30.0]
    """

    def __init__(
        self,
        capacity: int = 2000,
        most_series: int = 10_000,
        skew: float = 60.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._capacity = capacity
        self._most_series = most_series
        self._skew = skew
        self._clock = clock
        self._rings: dict[SeriesName, list[Measurement]] = {}
        self._lock = Lock()

    def store(self, measurement: Measurement) -> bool:
        """Insert in the order of time; a full ring lets its oldest go."""
        self._check(measurement)
        with self._lock:
            ring = self._ring(measurement.series)
            place = bisect_left(ring, measurement.time, key=_time)
            if place < len(ring) and ring[place].time == measurement.time:
                return False
            if place == 0 and len(ring) == self._capacity:
                raise RefusedError(
                    f"{measurement.series} at {measurement.time} is older than the "
                    f"{self._capacity} measurements kept, from {ring[0].time} on",
                    code="measurement-too-old",
                    series=str(measurement.series),
                    value=measurement.time,
                    bound=ring[0].time,
                )
            ring.insert(place, measurement)
            del ring[: -self._capacity]
            self._rings[measurement.series] = ring
        return True

    def series(self) -> tuple[SeriesName, ...]:
        """Return the names, sorted."""
        with self._lock:
            return tuple(sorted(self._rings, key=str))

    def fetch(
        self, series: SeriesName, after: float = float("-inf"), count: int | None = None
    ) -> tuple[Measurement, ...]:
        """Return a slice of the ring."""
        if count is not None and count < 0:
            raise ValueError(f"a count of {count} measurements")
        with self._lock:
            ring = self._rings.get(series, [])
            start = bisect_right(ring, after, key=_time)
            if count is not None:
                start = max(start, len(ring) - count)
            return tuple(ring[start:])

    def _ring(self, series: SeriesName) -> list[Measurement]:
        ring = self._rings.get(series, [])
        if not ring and len(self._rings) >= self._most_series:
            raise RefusedError(
                f"{series} would be one more than {self._most_series} series",
                code="too-many-series",
                series=str(series),
                bound=self._most_series,
            )
        return ring

    def _check(self, measurement: Measurement) -> None:
        """Raise RefusedError unless the measurement can be stored."""
        try:
            checked_time(measurement.time)
            checked_amount(str(measurement.series), measurement.value)
        except ValueError as error:
            fields = {"series": str(measurement.series), **coded(error)}
            raise RefusedError(str(error), **fields) from error
        now = self._clock()
        if measurement.time - now > self._skew:
            raise in_future(measurement.series, measurement.time, now, self._skew)


def _time(measurement: Measurement) -> float:
    return measurement.time
