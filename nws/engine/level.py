"""The level of a series: whether its newest values contradict all that it held before."""

from typing import Any, Final

from nws.forecaster import checked_object

RUN: Final = 3
"""Values in a row that make a level: single spikes, and pairs of them, make none."""
FEWEST: Final = 12
"""Values of a level before another one can contradict it."""
GAIN: Final = 0.05
NOISE: Final = 6.0
"""Mean absolute steps from one value to the next by which a new level is beyond the old ones."""
WIDER: Final = 2.0
"""Times the range of the levels that were held."""
LEAST: Final = 0.1
"""A new level differs by at least this part of the level before."""


class LevelWatch:
    """Notices a shift to a level that the series never held, from the values one by one.

    A level is held where `RUN` values in a row lie at or beyond it. The newest values contradict the series when
    they all lie above the highest level that was held, or below the lowest, by more than the noise. A series that
    returns to a level of before, such as one of bursts, shifts at its first burst only.

    Examples
    --------
    >>> watch = LevelWatch()
    >>> [watch.shifts(value) for value in [1.0] * 12 + [0.5, 1.0, 0.5, 0.5, 0.5]].index(True)
    16
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all values."""
        self.latest: list[float] = []
        self._count = 0
        self._highest = self._lowest = self._noise = 0.0

    def shifts(self, value: float) -> bool:
        """Take in the next value; return whether it completes a shift.

        `latest` then holds the values of the new level.
        """
        self.latest = [*self.latest[1 - RUN :], value]
        self._count += 1
        if len(self.latest) < RUN:
            return False
        above, below = min(self.latest), max(self.latest)
        if self._count >= FEWEST + RUN:
            beyond = max(above - self._highest, self._lowest - below)
            level = max(abs(self._highest), abs(self._lowest))
            width = self._highest - self._lowest
            if beyond > max(WIDER * width, NOISE * self._noise, LEAST * level):
                return True
        first = self._count == RUN
        self._highest = above if first else max(self._highest, above)
        self._lowest = below if first else min(self._lowest, below)
        step = min(
            abs(self.latest[1] - self.latest[0]),
            max(NOISE * self._noise, LEAST * max(abs(self._highest), abs(self._lowest))),
        )  # a spike is no noise
        self._noise += (step - self._noise) * max(GAIN, 1.0 / (self._count - RUN + 1))
        return False

    def state(self) -> dict[str, Any]:
        """Return what it knows, as plain numbers."""
        return {
            "latest": list(self.latest),
            "count": self._count,
            "range": [self._highest, self._lowest, self._noise],
        }

    def restore(self, state: Any) -> None:
        """Take over a state; ValueError unless it is one."""
        given = checked_object(state, ("latest", "count", "range"), "a level")
        latest, count, numbers = given["latest"], given["count"], given["range"]
        if not (
            isinstance(latest, list)
            and isinstance(numbers, list)
            and type(count) is int
            and len(numbers) == RUN
            and len(latest) == min(count, RUN)
            and all(type(each) is float for each in (*latest, *numbers))
        ):
            raise ValueError(f"a level: {state!r:.80} is none")
        self.latest, self._count = list(latest), count
        self._highest, self._lowest, self._noise = numbers
