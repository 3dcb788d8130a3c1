"""Forecasts from the stretches of the history that look most like the latest values, with NumPy.

`nws.forecasters.analog` defines an analog, one series at a time. Here the three patterns, each twice
as long as the one before, and all horizons share their distances. `DistanceRing` moves those of one
series on from value to value, `distances` sums them anew for many; both add in the same order, in
threes and then in pairs, and so do the loops of `nws.engine.tick`: several forms on purpose, see
`nws.engine`. All follows from the history: nothing of it is saved.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nws.engine import layout as at

Array = NDArray[Any]
ROOM: Final = 4 * at.HISTORY


class Analogs:
    """The analogs of N series at a tick.

    Parameters
    ----------
    past
        (N, n) the latest values, the newest first, float32.
    distance
        (patterns, N, lags) how far the latest values are from the stretch that ends 1, 2, ..
        values earlier. The stretch of a lag was followed by ``past[:, lag - 1]``.
    length
        How many values each series has had: (N), or one number for all; n at most.
    """

    def __init__(self, past: Array, distance: Array, length: Array | int) -> None:
        self._past, self._distance, self._length = past, distance, length
        self._lags = distance.shape[2]
        self._total: Array | None = None

    def next_values(self, last: Array) -> Array:
        """Return what each pattern forecasts one step ahead, (patterns, N).

        A series with too few stretches to compare repeats `last` (N).
        """
        patterns, count = self._distance.shape[:2]
        if self._lags < at.COMPARABLE:
            return np.broadcast_to(last, (patterns, count))
        place = _nearest(self._distance.reshape(-1, self._lags), at.NEIGHBOURS)
        followed = _rows_of(self._past, place)
        followed.sort(axis=1)
        median = followed[:, at.NEIGHBOURS // 2].astype(np.float64).reshape(patterns, count)
        return self._where_enough(median, last, at.COMPARABLE)

    def means(self, horizon: int, otherwise: Array) -> Array:
        """Return the forecast mean of the next `horizon` values of each series, (N).

        From the stretches that so many values have followed by now; with too few of them it is
        `otherwise` (N).
        """
        if self._lags < max(at.COMPARABLE, at.FRAME_NEIGHBOURS + horizon - 1):
            return otherwise
        if self._total is None:
            total = np.zeros((len(self._past), self._past.shape[1] + 1))
            np.add.accumulate(self._past, axis=1, dtype=np.float64, out=total[:, 1:])
            self._total = total
        distance = self._distance[at.FRAME_PATTERN, :, horizon - 1 :]
        place = _nearest(distance, at.FRAME_NEIGHBOURS)
        means = _rows_of(self._total, place + horizon)
        means -= _rows_of(self._total, place)
        means /= horizon
        means.sort(axis=1)
        lags = max(at.COMPARABLE, at.FRAME_NEIGHBOURS + horizon - 1)
        return self._where_enough(means[:, at.FRAME_NEIGHBOURS // 2], otherwise, lags)

    def _where_enough(self, forecast: Array, otherwise: Array, lags: int) -> Array:
        if isinstance(self._length, int):
            return forecast
        return np.where(self._length >= at.PATTERN + lags, forecast, otherwise)


def _nearest(distance: Array, count: int) -> Array:
    """Return the places of the `count` least of each row, in their order; of equals the first."""
    rows, lags = distance.shape
    limit = np.partition(distance, count - 1, axis=1)[:, count - 1 : count]
    near = distance <= limit
    place = near.ravel().nonzero()[0]
    if len(place) > rows * count:
        equal = distance == limit
        spare = count - np.count_nonzero(distance < limit, axis=1)
        near &= ~(equal & (np.add.accumulate(equal, axis=1, dtype=np.intp) > spare[:, None]))
        place = near.ravel().nonzero()[0]
    column: Array = place.reshape(rows, count)
    if rows > 1:
        column -= np.arange(0, rows * lags, lags)[:, None]
    return column


def _rows_of(values: Array, place: Array) -> Array:
    """Return ``values[row, place]`` of the rows (N, n) for places (.. x N, k)."""
    count = len(values)
    if count == 1:
        some: Array = values[0].take(place)
        return some
    many: Array = values[np.arange(len(place))[:, None] % count, place]
    return many


class DistanceRing:
    """The latest values of one series, and their distances from all stretches before them.

    A new value changes each distance by one difference. The latest sums over three and over six
    of them are kept, so that a longer pattern is one addition of two sums.
    """

    def __init__(self) -> None:
        self._past = np.zeros((1, ROOM), dtype=np.float32)
        self._newest = ROOM - at.HISTORY
        self._one = np.zeros((3, at.HISTORY), dtype=np.float32)
        self._three = np.zeros((4, at.HISTORY), dtype=np.float32)
        self._six = np.zeros((7, at.HISTORY), dtype=np.float32)
        self._distance = np.zeros((3, 1, at.HISTORY), dtype=np.float32)
        self._count = 0

    def resume(self, history: Array) -> None:
        """Take over the latest values, the oldest first."""
        self._newest = ROOM - at.HISTORY
        self._past[0, self._newest :] = history[::-1]
        newest = self._newest
        for self._newest in range(newest + at.PATTERN - 1, newest - 1, -1):
            self._move()

    def push(self, value: float) -> None:
        """Take in the next value."""
        if self._newest == 0:
            self._past[0, ROOM - at.HISTORY :] = self._past[0, : at.HISTORY]
            self._newest = ROOM - at.HISTORY
        self._newest -= 1
        self._past[0, self._newest] = value
        self._move()

    def analogs(self, length: int) -> Analogs:
        """Return the analogs of the latest values, of `length` in all."""
        past = self._past[:, self._newest : self._newest + length]
        return Analogs(past, self._distance[:, :, : max(0, length - at.PATTERN)], length)

    def _move(self) -> None:
        t = self._count = self._count + 1
        past, newest, distance = self._past[0], self._newest, self._distance
        before = past[newest + 1 : newest + 1 + at.HISTORY]
        lags = len(before)
        one, three, six = self._one, self._three, self._six
        latest, row = one[t % 3, :lags], three[t % 4]
        np.subtract(before, past[newest], out=latest)
        np.abs(latest, out=latest)
        np.add(one[t % 3], one[(t - 1) % 3], out=row)
        np.add(row, one[(t - 2) % 3], out=row)
        distance[0, 0] = row
        np.add(row, three[(t - 3) % 4], out=six[t % 7])
        distance[1, 0] = six[t % 7]
        np.add(six[t % 7], six[(t - 6) % 7], out=distance[2, 0])
