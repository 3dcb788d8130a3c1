"""Medians and means over the latest values of many series: sorting columns, with NumPy."""

import numpy as np

from nws.bank.scoring import Array

SHORTEST = np.array([5.0, 21.0])[:, None]
WIDEST = np.array([21.0, 51.0])[:, None]
OFFSET = np.array([1.0, 5.0])[:, None]
TRIM = 0.30


def options(width: Array) -> Array:
    """Return the present, the shorter and the longer of the adaptive widths (2, N): (2, 3, N)."""
    shorter = np.maximum(SHORTEST, width - OFFSET)
    longer = np.minimum(WIDEST, width + OFFSET)
    return np.stack([width, shorter, longer], axis=1)


def adapt(width: Array, medians: Array, value: Array) -> None:
    """Take the width whose median (2, 3, N) was nearest to `value`; of equals the first."""
    best = np.abs(medians - value).argmin(axis=1)[:, None]
    width[:] = np.take_along_axis(options(width), best, axis=1)[:, 0]


def ordered(latest: Array, count: Array) -> Array:
    """Return the first `count` (N) of the rows of `latest` (W, N), sorted; infinity behind them."""
    rows = np.arange(len(latest))
    if (count < len(latest)).any():
        latest = np.where(rows[:, None] < count, latest, np.inf)
    return np.sort(latest.T, axis=1)


def middle(columns: Array, count: Array) -> Array:
    """Return the medians of sorted rows (N, W), of each the first `count`."""
    whole = count.astype(np.intp)
    places = np.stack([(whole - 1) // 2, whole // 2], axis=1)
    two = np.take_along_axis(columns, places, axis=1)
    median: Array = (two[:, 0] + two[:, 1]) / 2.0
    return median


def average(columns: Array, start: Array, stop: Array) -> Array:
    """Return the means of ``columns[i, start:stop]``, added up from the least to the greatest."""
    first, last = int(start.min()), int(stop.max())
    part = columns[:, first:last]
    if int(start.max()) != first or int(stop.min()) != last:
        places = np.arange(first, last)
        part = np.where((places >= start[:, None]) & (places < stop[:, None]), part, 0.0)
    total: Array = np.add.accumulate(part, axis=1)[:, -1] / (stop - start)
    return total


def look_through(recent: Array, samples: Array, width: Array, medians: Array, f: Array) -> None:
    """Fill in the experts (E, N) that look through windows, and the medians of adaptive ones."""
    nothing = np.zeros_like(samples)
    for size, of_all, of_middle in ((31, 12, 14), (5, 13, None), (51, None, 15)):
        count = np.minimum(samples, float(size))
        columns = ordered(recent[:size], count)
        if of_all is not None:
            f[of_all - 2] = middle(columns, count)
            f[of_all] = average(columns, nothing, count)
        if of_middle is not None:
            cut = np.trunc(TRIM * count)
            f[of_middle] = average(columns, cut, count - cut)
    for kind, wanted in enumerate(options(width)):
        for place, each in enumerate(wanted):
            count = np.minimum(samples, each)
            rows = int(count.max())
            medians[kind, place] = middle(ordered(recent[:rows], count), count)
        f[16 + kind] = medians[kind, 0]
