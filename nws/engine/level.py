"""Detection of level shifts: the newest values contradict all earlier levels of the series."""

from typing import Any, Final

from nws.forecaster import checked_object

LEVEL_VALUES: Final = 3
"""Values in a row that make a level; single spikes and pairs of spikes make none."""
MIN_COUNT: Final = 12
"""Values of a level before another one can contradict it."""
GAIN: Final = 0.05
MIN_STEPS: Final = 6.0
"""Distance of a new level from the earlier levels, in mean absolute steps from one value to the next."""
MIN_WIDTHS: Final = 2.0
"""Distance of a new level from the earlier levels, in ranges of these levels."""
MIN_CHANGE: Final = 0.1
"""A new level differs by at least this part of the level before."""


class LevelWatch:
    """Notices a shift to a level that the series never held, from the values one by one.

    A series holds a level if `LEVEL_VALUES` values in a row lie at or beyond it. A shift is complete when the
    newest values all lie above the highest level held so far, or below the lowest, by more than the noise. A
    series that returns to an earlier level, for example a series of bursts, shifts at its first burst only.

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
        self.latest = [*self.latest[1 - LEVEL_VALUES :], value]
        self._count += 1
        if len(self.latest) < LEVEL_VALUES:
            return False
        above, below = min(self.latest), max(self.latest)
        if self._count >= MIN_COUNT + LEVEL_VALUES:
            beyond = max(above - self._highest, self._lowest - below)
            level = max(abs(self._highest), abs(self._lowest))
            width = self._highest - self._lowest
            if beyond > max(MIN_WIDTHS * width, MIN_STEPS * self._noise, MIN_CHANGE * level):
                return True
        first = self._count == LEVEL_VALUES
        self._highest = above if first else max(self._highest, above)
        self._lowest = below if first else min(self._lowest, below)
        step = min(
            abs(self.latest[1] - self.latest[0]),
            max(MIN_STEPS * self._noise, MIN_CHANGE * max(abs(self._highest), abs(self._lowest))),
        )  # do not count a spike as noise
        self._noise += (step - self._noise) * max(GAIN, 1.0 / (self._count - LEVEL_VALUES + 1))
        return False

    def state(self) -> dict[str, Any]:
        """Return the state as plain numbers."""
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
            and len(numbers) == LEVEL_VALUES
            and len(latest) == min(count, LEVEL_VALUES)
            and all(type(each) is float for each in (*latest, *numbers))
        ):
            raise ValueError(f"level: not a state of a level ({state!r:.80})")
        self.latest, self._count = list(latest), count
        self._highest, self._lowest, self._noise = numbers
