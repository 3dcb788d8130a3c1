"""The part of a stored series in RAM: its latest value, its count, the spacing of its times."""

from bisect import insort
from itertools import pairwise
from statistics import median

from nws.measurement import SeriesName, bounds_of

MIN_SPACINGS = 3
MAX_SPACINGS = 64


class SeriesSummary:
    """The latest value and the times of one series; its measurements are in the database.

    Attributes
    ----------
    series, text
        Its name, and the name as text.
    key
        Its row in the database.
    bounds
        The least and the greatest value that such a series can have.
    count, oldest, newest
        How many measurements are kept one by one, and the first and the last time of them.
    latest
        The value at `newest`.
    position
        Of the last arrival: each measurement of a database has a larger one than those before it.
    folded
        Measurements before this time are kept as slots only (`nws.memory.slots`).

    Examples
    --------
    >>> summary = SeriesSummary(SeriesName("availableCpu", "ada"), key=1)
    >>> for position, time in enumerate([10.0, 20.0, 30.0, 40.0]):
    ...     summary.add(position, time, 0.5)
    >>> summary.count, summary.newest, summary.spacing()
    (4, 40.0, 10.0)
    """

    __slots__ = (
        "_last_arrival",
        "_recent",
        "_spacing",
        "bounds",
        "count",
        "folded",
        "key",
        "latest",
        "newest",
        "oldest",
        "position",
        "series",
        "text",
    )

    def __init__(self, series: SeriesName, key: int, folded: float | None = None) -> None:
        self.series = series
        self.text = str(series)
        self.key = key
        self.bounds = bounds_of(series.resource)
        self.count = 0
        self.oldest = float("inf")
        self.newest = float("-inf")
        self.latest = 0.0
        self.position = -1
        self.folded = float("-inf") if folded is None else folded
        self._last_arrival = float("-inf")
        self._recent: list[float] = []
        self._spacing: tuple[int, float | None] = (-1, None)

    def add(self, position: int, time: float, value: float) -> None:
        """Take in an arrival that is in the database."""
        self.count += 1
        self._last_arrival = time
        self.oldest = min(self.oldest, time)
        if time > self.newest:
            self.newest, self.latest = time, value
        if len(self._recent) <= MAX_SPACINGS or time > self._recent[0]:
            insort(self._recent, time)
            del self._recent[: -MAX_SPACINGS - 1]
        self.position = position

    def resume(
        self, count: int, position: int, last_arrival: float, recent: list[float], oldest: float
    ) -> None:
        """Take in the figures of the database: `recent` are the latest times, ascending."""
        self.count, self.position, self._last_arrival = count, position, last_arrival
        self.oldest, self.newest, self._recent = oldest, recent[-1], recent

    def seen(self, now: float) -> float:
        """Return the time of the last measurement; a stamp after `now` is believed of the last arrival alone."""
        newest = self.newest
        return newest if newest <= now else self._last_arrival

    def spacing(self) -> float | None:
        """Return the usual seconds from one measurement to the next; None until that is known."""
        position, spacing = self._spacing
        if position != self.position:
            position, times = self.position, list(self._recent)
            known = len(times) > MIN_SPACINGS
            spacing = median(b - a for a, b in pairwise(times)) if known else None
            self._spacing = position, spacing
        return spacing
