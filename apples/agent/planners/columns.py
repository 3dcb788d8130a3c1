"""A grid cut into rectangles, one a host, in columns of unequal widths that are cut into unequal rows.

The column-based partition of Beaumont, Boudet, Rastello and Robert 2001 ("Matrix multiplication on heterogeneous
platforms"). A host's part of the communication is half the perimeter of its rectangle. Which hosts form a column,
such that the sum of these is least, is found exactly by dynamic programming over the hosts sorted by their shares
(`division`, `divisions`). Given the columns, `cut` finds the whole rows and columns with the least largest time,
exactly too. Both are pure functions of numbers; what the numbers are is the planner's affair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from apples.resources.apportionment import apportion
from apples.resources.schedule import Rectangle

Numbers = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

PRECISION = 1e-12
"""Relative width of the last bracket of a time; of `MANY` hosts or more 1e-6, less than a point of a host."""
MANY = 1000


def division(shares: Sequence[float] | Numbers, rows: float, columns: float) -> list[int]:
    """Return how many hosts each column has, in the order given, such that the sum of half perimeters is least.

    With m hosts in a column that has the part w of the grid's area, the half perimeters in it add up to rows +
    m * w * columns. The best last column never begins earlier when there are more hosts (the costs have the
    Monge property), so each host looks at a few beginnings only.

    Parameters
    ----------
    shares
        Of the grid's area; any scale. No other order than ascending or descending has a better division.

    Examples
    --------
    >>> division([1, 1, 1, 1, 1, 1, 1, 1, 1], 90, 90), division([1, 1, 4], 60, 60)
    ([3, 3, 3], [2, 1])
    """
    until = np.concatenate(([0.0], np.cumsum(shares)))
    area, count = columns * until / until[-1], len(until) - 1
    least, begin = np.zeros(count + 1), np.zeros(count + 1, dtype=np.int64)
    for stop in range(1, count + 1):
        first = begin[stop - 1]
        hosts = stop - np.arange(first, stop)
        costs = least[first:stop] + hosts * (area[stop] - area[first:stop])
        best = int(costs.argmin())
        begin[stop], least[stop] = first + best, costs[best] + rows
    return _sizes(count, lambda stop, _: int(begin[stop]))


def divisions(shares: Sequence[float] | Numbers, columns: float) -> list[list[int]]:
    """Return `division` for every number of columns, one to as many as there are hosts.

    Examples
    --------
    >>> divisions([1, 1, 4], 60)
    [[3], [2, 1], [1, 1, 1]]
    """
    until = np.concatenate(([0.0], np.cumsum(shares)))
    area, count = columns * until / until[-1], len(until) - 1
    hosts = np.arange(count + 1)[:, None] - np.arange(count + 1)
    column = np.where(hosts > 0, hosts * (area[:, None] - area), np.inf)
    least, begins, found = np.where(np.arange(count + 1) == 0, 0.0, np.inf), [], []
    for _ in range(count):
        costs = least + column
        begins.append(costs.argmin(axis=1))
        least = costs.min(axis=1)
        found.append(_sizes(count, lambda stop, left: int(begins[-1 - left][stop])))
    return found


def _sizes(count: int, begin: Callable[[int, int], int]) -> list[int]:
    """Return the sizes of columns, given where the last of the first so many hosts begins."""
    sizes: list[int] = []
    stop = count
    while stop:
        first = begin(stop, len(sizes))
        sizes.append(stop - first)
        stop = first
    return sizes[::-1]


def half_perimeters(rectangles: Sequence[Rectangle]) -> int:
    """Return the sum of rows and columns of all rectangles: the volume of communication, and half the grid's edge.

    Examples
    --------
    >>> half_perimeters([Rectangle(0, 10, 0, 4), Rectangle(0, 10, 4, 6)])
    30
    """
    return sum(one.rows + one.columns for one in rectangles)


@dataclass(frozen=True, slots=True)
class Demands:
    """What each of some hosts takes, shape (hosts,).

    Attributes
    ----------
    point_seconds
        For a point.
    border_seconds
        For its borders, however large it is.
    room
        The most points that its memory holds, a border of one point all around included.
    """

    point_seconds: Numbers
    border_seconds: Numbers
    room: Numbers

    def in_order(self, order: Sequence[int]) -> Demands:
        """Return those of the hosts in another order."""
        places = np.asarray(order, dtype=np.int64)
        return Demands(self.point_seconds[places], self.border_seconds[places], self.room[places])


def proportional(
    sizes: Sequence[int], shares: Sequence[float], rows: int, columns: int
) -> list[Rectangle] | None:
    """Return rectangles as near to the shares as largest remainders come; None where a host would have no point.

    Examples
    --------
    >>> proportional([2, 1], [1.0, 1.0, 4.0], 60, 60)[0]
    Rectangle(first_row=0, rows=30, first_column=0, columns=20)
    """
    if len(sizes) > columns or max(sizes) > rows:
        return None
    parts, begin = [], 0
    for size in sizes:
        parts.append(list(shares[begin : begin + size]))
        begin += size
    widths = apportion(columns, [sum(part) for part in parts], [1] * len(sizes))
    heights = [row for part in parts for row in apportion(rows, part, [1] * len(part))]
    return rectangles_of(sizes, widths, heights)


def rectangles_of(
    sizes: Sequence[int], widths: Sequence[int], heights: Sequence[int]
) -> list[Rectangle]:
    """Return the rectangles of columns of so many hosts and so wide, of hosts that are so high."""
    found, rest, left = [], iter(heights), 0
    for size, width in zip(sizes, widths, strict=True):
        top = 0
        for _ in range(size):
            height = int(next(rest))
            found.append(Rectangle(top, height, left, int(width)))
            top += height
        left += int(width)
    return found


def cut(sizes: Sequence[int], demands: Demands, rows: int, columns: int) -> list[Rectangle] | None:
    """Return whole rows and columns with the least largest time, columns of so many hosts; exact.

    Within a time T a column of some width holds the rows that its hosts compute in T and have room for; it never
    holds more when it is wider. So T is enough where the greatest widths at which every column holds all rows add
    up to the grid: bisection on T, and in it on the widths of all columns at once.

    None where the room of the hosts is too small for any width, or there are fewer rows or columns than hosts.
    """
    if len(sizes) > columns or max(sizes) > rows:
        return None
    task = _Cut(np.asarray(sizes, dtype=np.int64), demands, rows, columns)
    seconds = task.least_seconds()
    if seconds is None:
        return None
    widths = task.widths(seconds)
    return rectangles_of(sizes, widths.tolist(), task.heights(seconds, widths).tolist())


class _Cut:
    """The whole rows and columns of a division into columns."""

    def __init__(self, sizes: Counts, demands: Demands, rows: int, columns: int) -> None:
        self.demands, self.rows, self.columns = demands, rows, columns
        self.sizes, self.begins = sizes, np.cumsum(sizes) - sizes
        self.precision = PRECISION if len(demands.room) < MANY else 1e-6
        self.count = len(sizes)

    def tallest(self, seconds: Numbers, widths: Counts) -> Numbers:
        """Return the most rows of each host, 0 to all, in columns of these widths and times, shape (columns,)."""
        wide = np.repeat(np.maximum(widths, 1), self.sizes).astype(float)
        left = np.repeat(seconds, self.sizes) - self.demands.border_seconds
        rows = np.floor(left / (self.demands.point_seconds * wide) * (1 + 1e-15))
        held = np.floor(self.demands.room / (wide + 2.0)) - 2.0
        return np.asarray(np.clip(np.minimum(rows, held), 0.0, self.rows))

    def holds(self, seconds: Numbers, widths: Counts) -> npt.NDArray[np.bool_]:
        """Whether each column holds all rows within its time, and each of its hosts one at least."""
        tallest = self.tallest(seconds, widths)
        enough = np.add.reduceat(tallest, self.begins) >= self.rows
        return np.asarray(enough & (np.minimum.reduceat(tallest, self.begins) >= 1))

    def widest(self, seconds: float) -> Counts:
        """Return the greatest width at which each column holds all rows; 0 where none does."""
        times = np.full(self.count, seconds)
        points = np.maximum(seconds - self.demands.border_seconds, 0) / self.demands.point_seconds
        points = np.add.reduceat(np.minimum(points, self.demands.room), self.begins)
        high = np.minimum(points / self.rows, self.columns).astype(np.int64)
        low = np.minimum(points / (self.rows + self.sizes), self.columns).astype(np.int64)
        low = np.where((low > 0) & self.holds(times, low), low, 0)
        while np.any(low < high):
            middle = (low + high + 1) // 2
            fits = self.holds(times, middle)
            low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
        return np.asarray(low)

    def enough(self, seconds: float) -> bool:
        """Whether the columns hold the grid within this time."""
        widths = self.widest(seconds)
        return bool(widths.min() >= 1 and widths.sum() >= self.columns)

    def least_seconds(self) -> float | None:
        """Return the least time that is enough, up to `PRECISION`; None where no time is."""
        mine = self.demands
        alone = float((mine.border_seconds + mine.point_seconds * self.rows * self.columns).max())
        high = float(self.columns * self.rows / (1.0 / mine.point_seconds).sum())
        low = 0.0
        while not self.enough(high):
            if high > alone:
                return None  # each of them could do all of it by then: it is room that lacks
            low, high = high, high * 1.5
        while high - low > self.precision * high:
            middle = (low + high) / 2
            if self.enough(middle):
                high = middle
            else:
                low = middle
        return high

    def widths(self, seconds: float) -> Counts:
        """Return widths that add up to the grid, none greater than holds, as even in proportion as can be."""
        most = self.widest(seconds)
        wanted = most * (self.columns / most.sum())
        widths = np.clip(np.floor(wanted), 1, most).astype(np.int64)
        while (missing := self.columns - int(widths.sum())) != 0:
            step = 1 if missing > 0 else -1
            open_ = np.flatnonzero(widths < most if missing > 0 else widths > 1)
            short = step * (wanted - widths)[open_]
            widths[open_[np.argsort(-short, kind="stable")][: abs(missing)]] += step
        return np.asarray(widths)

    def heights(self, seconds: float, widths: Counts) -> Counts:
        """Return heights that add up to the rows in every column, each column done as soon as can be."""
        low, high = np.zeros(self.count), np.full(self.count, seconds)
        while np.any(high - low > self.precision * high):
            middle = (low + high) / 2
            fits = self.holds(middle, widths)
            low, high = np.where(fits, low, middle), np.where(fits, middle, high)
        heights = self.tallest(high, widths).astype(np.int64)
        times = heights * self.demands.point_seconds * np.repeat(widths, self.sizes)
        times += self.demands.border_seconds
        for begin, size in zip(self.begins.tolist(), self.sizes.tolist(), strict=True):
            mine, late = heights[begin : begin + size], times[begin : begin + size]
            while (over := int(mine.sum()) - self.rows) > 0:
                order = np.argsort(-late, kind="stable")
                order = order[mine[order] > 1]
                mine[order[:over]] -= 1
        return heights
