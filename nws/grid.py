"""The grid of a regular series: its period, and how many measurements are missing."""

import math
from collections import deque
from statistics import median
from typing import Any, Final

from nws.state import checked_object, unpacked

ENOUGH: Final = 4
REMEMBERED: Final = 15
MOST_MISSING: Final = 240
"""More than this many missing measurements count as this many: twice the longest horizon."""
TOLERANCE: Final = 0.25


class Grid:
    """The period of a series: given, or the median of the latest distances in time.

    Measurements are missing when a distance is more than one and a half periods and the series is
    regular: of the latest distances more than half are within a quarter of the period.

    Examples
    --------
    >>> grid = Grid()
    >>> for distance in [10.0, 10.1, 9.9, 10.0]:
    ...     grid.update(distance)
    >>> grid.period, grid.missing(30.2), grid.missing(10.5)
    (10.0, 2, 0)
    """

    def __init__(self, period: float | None = None) -> None:
        if period is not None and not 0 < period < math.inf:
            raise ValueError(f"a period of {period} seconds is none")
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
