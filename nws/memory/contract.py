"""The contract of a memory: stored measurements can be fetched, once, in order."""

from abc import ABC, abstractmethod

from nws.errors import CodedError
from nws.measurement import Measurement, SeriesName


class RefusedError(CodedError, ValueError):
    """A measurement that a memory refuses.

    Permanent, except for a time in the future.
    """

    code = "measurement-refused"


def in_future(series: object, at: float, now: float, skew: float) -> RefusedError:
    """Return the error of a measurement further in the future than clocks may differ."""
    return RefusedError(
        f"{series} at {at} lies {at - now:.0f} s in the future, more than the {skew:.0f} s that "
        "clocks may differ",
        code="measurement-in-future",
        series=str(series),
        value=at,
        seconds=at - now,
        bound=skew,
    )


class Memory(ABC):
    """Keeps the latest measurements of many series.

    * A normal return of `store` means the measurement can be fetched.
    * A (series, time) has one value: the first stored. Storing it again changes nothing, so a
      sender that is not sure may send again.
    * Measurements may come in any order and are fetched in the order of their times.
    * A memory is bounded; the implementation decides which measurements leave first.
    * Its methods may be called from several threads.

    ``nws.checks.MEMORY_CHECKS`` holds these promises as functions that run.
    """

    @abstractmethod
    def store(self, measurement: Measurement) -> bool:
        """Keep `measurement`; return whether it is new (False: that time is taken already).

        Raises
        ------
        RefusedError
            The value or the time is NaN, infinite or too large; a series of this kind cannot have
            the value (`nws.measurement.bounds_of`); the time lies before 1970, where seconds
            since the epoch begin, or further in the future than clocks may differ; or the memory is
            full for a measurement of this age or for one more series. Nothing was changed.
        """

    @abstractmethod
    def series(self) -> tuple[SeriesName, ...]:
        """Return the names of all series kept, in the order of their text."""

    @abstractmethod
    def fetch(
        self, series: SeriesName, after: float = float("-inf"), count: int | None = None
    ) -> tuple[Measurement, ...]:
        """Return the measurements later than `after`, oldest first; of those the latest `count`.

        A series that is not kept has none.

        Raises
        ------
        ValueError
            `count` is negative.
        """
