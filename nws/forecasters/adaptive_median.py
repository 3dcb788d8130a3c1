"""A median that tunes the length of its window."""

from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar

from nws.forecaster import Forecaster, NoValueYetError
from nws.measurement import checked_value
from nws.window import Window


class AdaptiveMedian(Forecaster):
    """Forecasts the median over a window whose length follows the error.

    With every value three medians are compared with it: over the present window, over one that
    is `offset` shorter and over one that is `offset` longer (never beyond `minimum` and
    `maximum`). The nearest gives the next window; the present one wins a tie.

    NWS 2.x forecasters.c, "Adaptive Median". The original takes the offset itself as the
    neighbours' length, which reads one or five values; here they are the present length less and
    plus the offset.

    Parameters
    ----------
    start, minimum, maximum, offset
        Lengths in values, ``1 <= minimum <= start <= maximum``, ``offset >= 1``.

    Examples
    --------
    >>> forecaster = AdaptiveMedian(start=3, minimum=1, maximum=5, offset=2)
    >>> for value in [1.0, 1.0, 1.0, 8.0, 8.0]:
    ...     forecaster.update(value)
    >>> forecaster.width, forecaster.forecast()
    (1, 8.0)
    """

    STATEFUL: ClassVar[tuple[str, ...]] = ("_latest", "width")

    def __init__(self, start: int, minimum: int, maximum: int, offset: int) -> None:
        if not (1 <= minimum <= start <= maximum and offset >= 1):
            raise ValueError(
                "an adaptive window needs 1 <= minimum <= start <= maximum and offset >= 1, not "
                f"start {start}, minimum {minimum}, maximum {maximum}, offset {offset}"
            )
        self._minimum, self._maximum, self._offset = minimum, maximum, offset
        self._latest: deque[float] = deque(maxlen=maximum)
        self.width = start
        self._windows = {width: Window(width) for width in self._neighbours()}

    def update(self, value: float) -> None:
        """Choose the length that would have forecast `value` best, then add it."""
        value = checked_value(value)
        if self._latest:
            self.width = min(self._windows, key=lambda width: self._error(width, value))
        self._latest.append(value)
        self._windows = {width: self._grown(width, value) for width in self._neighbours()}

    def forecast(self) -> float:
        """Return the median over the present window."""
        if not self._latest:
            raise NoValueYetError
        return self._windows[self.width].median()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the latest values and the width, and fill the windows."""
        super().restore(state)
        if not self._minimum <= self.width <= self._maximum:
            raise ValueError(f"width: {self._minimum} to {self._maximum} values, not {self.width}")
        self._windows = {width: Window(width, self._latest) for width in self._neighbours()}

    def _neighbours(self) -> tuple[int, ...]:
        """Return the lengths to compare, each once; `min` keeps the first of equals: ours."""
        shorter = max(self._minimum, self.width - self._offset)
        longer = min(self._maximum, self.width + self._offset)
        return tuple(dict.fromkeys((self.width, shorter, longer)))

    def _error(self, width: int, value: float) -> float:
        return abs(self._windows[width].median() - value)

    def _grown(self, width: int, value: float) -> Window:
        window = self._windows.get(width)
        if window is None:
            return Window(width, self._latest)
        window.push(value)
        return window
