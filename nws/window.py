"""The latest values of a series, in the order of their size."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable


class Window:
    """The latest `size` values, kept sorted: a push costs one search and two short moves.

    Examples
    --------
    >>> window = Window(3, [5.0, 1.0, 9.0, 2.0])
    >>> window.ordered
    [1.0, 2.0, 9.0]
    >>> window.median()
    2.0
    """

    __slots__ = ("_arrived", "ordered", "size")

    def __init__(self, size: int, values: Iterable[float] = ()) -> None:
        if size < 1:
            raise ValueError(f"a window of {size} values holds nothing")
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
