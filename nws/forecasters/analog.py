"""Forecasts from the stretches of the past that look most like the present. Needs NumPy."""

from collections import deque
from typing import ClassVar, Final

import numpy as np

from nws.forecaster import Forecaster, NoValueYetError
from nws.measurement import checked_value

HISTORY: Final = 896
NEIGHBOURS: Final = 9
COMPARABLE: Final = 32
LONGEST: Final = 12


class Analog(Forecaster):
    """Forecasts the median of the values that followed the 9 nearest analogs of the latest values.

    An analog is a stretch of the history as long as the pattern, the latest values; its distance
    is the sum of the absolute differences, value by value, and of equally near ones the more recent
    counts (Lorenz 1969, "Atmospheric predictability as revealed by naturally occurring analogues",
    with the median of nearest-neighbour regression). Knows what recurs at no fixed distance, such
    as the shape of a job's load, where an autoregression needs a period. With fewer than 32
    stretches to compare it answers with the last value. A value that is missing is taken to be as
    forecast.

    Parameters
    ----------
    pattern
        How many of the latest values are compared; at most 12.

    Examples
    --------
    >>> forecaster = Analog(pattern=3)
    >>> for value in [0.0, 0.0, 1.0, 5.0] * 30:
    ...     forecaster.update(value)
    >>> forecaster.forecast()
    0.0
    """

    STATEFUL: ClassVar[tuple[str, ...]] = ("_past",)

    def __init__(self, pattern: int) -> None:
        if not 1 <= pattern <= LONGEST:
            raise ValueError(
                f"a pattern of 1 to {LONGEST} values is wanted, not {pattern}: no window"
            )
        self._pattern = pattern
        self._past: deque[float] = deque(maxlen=HISTORY)  # newest first

    def update(self, value: float) -> None:
        """Remember `value`."""
        self._past.appendleft(checked_value(value))

    def miss(self) -> None:
        """Go on from the forecast."""
        if self._past:
            self._past.appendleft(self.forecast())

    def forecast(self) -> float:
        """Return the median of what followed."""
        if not self._past:
            raise NoValueYetError
        past = np.array(self._past)
        # Stretches that begin within the oldest 12 values are left out, whatever the pattern.
        count = len(past) - LONGEST
        if count < COMPARABLE:
            return self._past[0]
        distance = np.zeros(count)
        for place in range(self._pattern):
            distance += np.abs(past[place + 1 : place + 1 + count] - past[place])
        nearest = np.argsort(distance, kind="stable")[:NEIGHBOURS]
        return float(np.median(past[nearest]))
