"""Partition of a grid into rectangles, one per host: columns of unequal widths, cut into unequal rows.

The column-based partition of Beaumont, Boudet, Rastello and Robert 2001 ("Matrix multiplication on
heterogeneous platforms"). A host's part of the communication is half the perimeter of its rectangle. Dynamic
programming over the hosts, sorted by their shares, exactly finds the columns with the least sum of these
(`division`, `divisions`). For given columns, `cut` finds the whole rows and columns with the least maximal
time, also exactly. Both are pure functions of numbers from the planner.
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
"""Relative precision of a time; with `MANY` hosts or more 1e-6, which is less than a point of a host."""
MANY = 1000


def division(shares: Sequence[float] | Numbers, rows: float, columns: float) -> list[int]:
    """Return the number of hosts of each column, in the given order, with the least sum of half perimeters.

    In a column with m hosts and the part w of the grid's area, the half perimeters add up to rows + m * w *
    columns. With more hosts, the best last column never begins earlier (the costs have the Monge property), so
    only a few beginnings are tried for each host.

    Parameters
    ----------
    shares
        Shares of the grid's area, in any scale. An ascending or descending order has the best division.

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
    """Return `division` for every number of columns, from one to the number of hosts.

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
    """Return the sizes of columns; `begin` returns the first host of the last column of the first n hosts."""
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
    """Time and memory of each host, shape (hosts,).

    Attributes
    ----------
    point_seconds
        Seconds per point.
    border_seconds
        Seconds at its borders, independent of the size.
    room
        Largest number of points in its memory, including a border of one point all around.
    """

    point_seconds: Numbers
    border_seconds: Numbers
    room: Numbers

    def in_order(self, order: Sequence[int]) -> Demands:
        """Return the demands with the hosts in another order."""
        places = np.asarray(order, dtype=np.int64)
        return Demands(self.point_seconds[places], self.border_seconds[places], self.room[places])


def proportional(
    sizes: Sequence[int], shares: Sequence[float], rows: int, columns: int
) -> list[Rectangle] | None:
    """Return rectangles nearest to the shares by largest remainders; None if a host would have no point.

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
    """Return the rectangles of columns with these numbers of hosts and widths, and these heights of hosts."""
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
    """Return the rectangles with the least maximal time, for columns with `sizes` hosts; exact.

    Within a time T, a column of a given width holds the rows that its hosts compute in T and have memory for; a
    wider column never holds more. So T suffices if the largest widths at which each column holds all rows add
    up to the grid. Bisection on T contains a bisection on the widths of all columns at once.

    The result is None if the memory of the hosts is too small for any width, or if rows or columns are too few.
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
        """Return the most rows of each host, 0 to all; `seconds` and `widths` have the shape (columns,)."""
        wide = np.repeat(np.maximum(widths, 1), self.sizes).astype(float)
        left = np.repeat(seconds, self.sizes) - self.demands.border_seconds
        rows = np.floor(left / (self.demands.point_seconds * wide) * (1 + 1e-15))
        held = np.floor(self.demands.room / (wide + 2.0)) - 2.0
        return np.asarray(np.clip(np.minimum(rows, held), 0.0, self.rows))

    def holds(self, seconds: Numbers, widths: Counts) -> npt.NDArray[np.bool_]:
        """Return whether each column holds all rows within its time, with at least one row for each host."""
        tallest = self.tallest(seconds, widths)
        enough = np.add.reduceat(tallest, self.begins) >= self.rows
        return np.asarray(enough & (np.minimum.reduceat(tallest, self.begins) >= 1))

    def widest(self, seconds: float) -> Counts:
        """Return the largest width at which each column holds all rows; 0 if no width does."""
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
        """Return whether the columns hold the grid within this time."""
        widths = self.widest(seconds)
        return bool(widths.min() >= 1 and widths.sum() >= self.columns)

    def least_seconds(self) -> float | None:
        """Return the least sufficient time, up to `PRECISION`; None if no time suffices."""
        mine = self.demands
        alone = float((mine.border_seconds + mine.point_seconds * self.rows * self.columns).max())
        high = float(self.columns * self.rows / (1.0 / mine.point_seconds).sum())
        low = 0.0
        while not self.enough(high):
            if high > alone:
                return None  # each host alone would be fast enough: memory is missing
            low, high = high, high * 1.5
        while high - low > self.precision * high:
            middle = (low + high) / 2
            if self.enough(middle):
                high = middle
            else:
                low = middle
        return high

    def widths(self, seconds: float) -> Counts:
        """Return widths that add up to the grid, each at most the largest width and nearly proportional to it."""
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
        """Return heights that add up to the rows in every column, with the least time of each column."""
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
