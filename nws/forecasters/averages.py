"""Forecasters that answer with a value of the past, or with a mean or median over a window of it."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from nws.forecaster import Forecaster, NoValueYetError
from nws.measurement import checked_value


class RunningMean(Forecaster):
    """Forecasts the mean of everything so far (NWS 2.x forecasters.c, "Running Mean").

    Examples
    --------
    >>> forecaster = RunningMean()
    >>> for value in [1.0, 2.0, 6.0]:
    ...     forecaster.update(value)
    >>> forecaster.forecast()
    3.0
    """

    STATEFUL: ClassVar[tuple[str, ...]] = ("_count", "_mean")

    def __init__(self) -> None:
        self._count = 0
        self._mean = 0.0

    def update(self, value: float) -> None:
        """Move the mean towards `value` by one share; no sum that could overflow or drift."""
        value = checked_value(value)
        self._count += 1
        self._mean += (value - self._mean) / self._count

    def forecast(self) -> float:
        """Return the mean."""
        if not self._count:
            raise NoValueYetError
        return self._mean


class LastValue(Forecaster):
    """Forecasts that nothing changes (NWS 2.x forecasters.c, "Last Value").

    Examples
    --------
    >>> forecaster = LastValue()
    >>> for value in [0.9, 0.5]:
    ...     forecaster.update(value)
    >>> forecaster.forecast()
    0.5
    """

    STATEFUL: ClassVar[tuple[str, ...]] = ("_last",)

    def __init__(self) -> None:
        self._last: float | None = None

    def update(self, value: float) -> None:
        """Remember `value` in place of the one before."""
        self._last = checked_value(value)

    def forecast(self) -> float:
        """Return the last value."""
        if self._last is None:
            raise NoValueYetError
        return self._last


class SortedWindow:
    """The latest `size` values, kept sorted: a push costs one search and two short moves.

    Examples
    --------
    >>> window = SortedWindow(3, [5.0, 1.0, 9.0, 2.0])
    >>> window.ordered
    [1.0, 2.0, 9.0]
    >>> window.median()
    2.0
    """

    __slots__ = ("_arrived", "ordered", "size")

    def __init__(self, size: int, values: Iterable[float] = ()) -> None:
        if size < 1:
            raise ValueError(f"size: must be at least 1 (is {size})")
        self.size = size
        self._arrived = deque(values, maxlen=size)
        self.ordered = sorted(self._arrived)

    def state(self) -> list[float]:
        """Return the values in the order of their arrival."""
        return list(self._arrived)

    def restore(self, state: list[float]) -> None:
        """Hold the values of a `state`; ValueError unless they are numbers, not too many."""
        numbers = isinstance(state, list) and all(isinstance(each, int | float) for each in state)
        if not numbers or len(state) > self.size:
            raise ValueError(f"a window holds at most {self.size} numbers, not {state!r:.40}")
        self._arrived = deque(map(float, state), maxlen=self.size)
        self.ordered = sorted(self._arrived)

    def push(self, value: float) -> None:
        """Add the newest value; the oldest leaves when there are more than `size`."""
        if len(self.ordered) == self.size:
            del self.ordered[bisect_left(self.ordered, self._arrived[0])]
        self._arrived.append(value)
        insort(self.ordered, value)

    def median(self) -> float:
        """Return the middle value, or the mean of the middle two."""
        count = len(self.ordered)
        if not count:
            raise LookupError("an empty window has no median")
        return (self.ordered[(count - 1) // 2] + self.ordered[count // 2]) / 2


class SlidingMean(Forecaster):
    """Forecasts the mean of the latest `size` values.

    NWS 2.x calls this "Sliding Median", but trims none of the window away before it averages.

    Examples
    --------
    >>> forecaster = SlidingMean(size=2)
    >>> for value in [9.0, 1.0, 2.0]:
    ...     forecaster.update(value)
    >>> forecaster.forecast()
    1.5
    """

    STATEFUL: ClassVar[tuple[str, ...]] = ("_window",)

    def __init__(self, size: int) -> None:
        self._window = SortedWindow(size)

    def update(self, value: float) -> None:
        """Add `value`; the oldest leaves."""
        self._window.push(checked_value(value))

    def forecast(self) -> float:
        """Return the mean, added up afresh: a running sum never forgets one huge value."""
        ordered = self._window.ordered
        if not ordered:
            raise NoValueYetError
        mean = sum(ordered) / len(ordered)
        return min(max(mean, ordered[0]), ordered[-1])  # rounding must not leave the range


class SlidingMedian(Forecaster):
    """Forecasts the median of the latest `size` values (NWS 2.x, "Median Window").

    Examples
    --------
    >>> forecaster = SlidingMedian(size=3)
    >>> for value in [1.0, 2.0, 99.0]:
    ...     forecaster.update(value)
    >>> forecaster.forecast()
    2.0
    """

    STATEFUL: ClassVar[tuple[str, ...]] = ("_window",)

    def __init__(self, size: int) -> None:
        self._window = SortedWindow(size)

    def update(self, value: float) -> None:
        """Add `value`; the oldest leaves."""
        self._window.push(checked_value(value))

    def forecast(self) -> float:
        """Return the median."""
        if not self._window.ordered:
            raise NoValueYetError
        return self._window.median()


class TrimmedMean(Forecaster):
    """Forecasts the alpha-trimmed mean of the latest `size` values.

    Of the n values in the window the floor(alpha n) smallest and as many of the largest are left
    out and the rest averaged (NWS 2.x forecasters.c, "30% Trimmed Median").

    Parameters
    ----------
    size
        Length of the window, in values.
    alpha
        The fraction left out at each end, in [0, 0.5).

    Examples
    --------
    >>> forecaster = TrimmedMean(size=4, alpha=0.25)
    >>> for value in [1.0, 2.0, 4.0, 99.0]:
    ...     forecaster.update(value)
    >>> forecaster.forecast()
    3.0
    """

    STATEFUL: ClassVar[tuple[str, ...]] = ("_window",)

    def __init__(self, size: int, alpha: float = 0.30) -> None:
        if not 0 <= alpha < 0.5:
            raise ValueError(f"alpha: must be in [0, 0.5) (is {alpha})")
        self._window = SortedWindow(size)
        self._alpha = alpha

    def update(self, value: float) -> None:
        """Add `value`; the oldest leaves."""
        self._window.push(checked_value(value))

    def forecast(self) -> float:
        """Return the mean of the middle."""
        ordered = self._window.ordered
        if not ordered:
            raise NoValueYetError
        trim = int(self._alpha * len(ordered))
        middle = ordered[trim : len(ordered) - trim]
        mean = sum(middle) / len(middle)
        return min(max(mean, middle[0]), middle[-1])  # rounding must not leave the range


class AdaptiveMedian(Forecaster):
    """Forecasts the median over a window of adaptive length.

    Each update compares the value with three medians: over the present window, over a window
    `offset` shorter and over a window `offset` longer (never beyond `minimum` and
    `maximum`). The nearest gives the next window; the present window wins a tie.

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
        self._windows = {width: SortedWindow(width) for width in self._neighbours()}

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
        self._windows = {width: SortedWindow(width, self._latest) for width in self._neighbours()}

    def _neighbours(self) -> tuple[int, ...]:
        """Return the lengths to compare, each once; `min` keeps the first of equals: ours."""
        shorter = max(self._minimum, self.width - self._offset)
        longer = min(self._maximum, self.width + self._offset)
        return tuple(dict.fromkeys((self.width, shorter, longer)))

    def _error(self, width: int, value: float) -> float:
        return abs(self._windows[width].median() - value)

    def _grown(self, width: int, value: float) -> SortedWindow:
        window = self._windows.get(width)
        if window is None:
            return SortedWindow(width, self._latest)
        window.push(value)
        return window
