"""The experts that need no regression, for numba (`nws.bank.vectors.take`, `nws.bank.windows`)."""

import numpy as np
from numpy.typing import NDArray

from nws.bank import layout as at
from nws.bank.parts import E, Wide, clipped, compiled

SAMPLES = at.WIDE["samples"].start
LOW, HIGH = at.WIDE["low"].start, at.WIDE["high"].start
AVERAGE, VARIANCE = at.WIDE["mean"].start, at.WIDE["variance"].start
AR_MEAN, AR_VARIANCE = at.WIDE["ar_mean"].start, at.WIDE["ar_variance"].start
AR_COVARIANCE, TUNING = at.WIDE["ar_covariance"].start, at.WIDE["tuning"].start
WIDTH, MEDIANS = at.WIDE["width"].start, at.WIDE["medians"].start
RECENT, EXPERT = at.WIDE["recent"].start, at.WIDE["expert"].start
WIDEST = at.RECENT
TUNING_RATE, TRIM = at.TUNING_RATE, 0.30
GAINS = np.array(at.GAINS)
SHORTEST_WIDTH, LONGEST_WIDTH = np.array([5, 21]), np.array([21, 51])
WIDTH_OFFSET = np.array([1, 5])
AR_GAINS = np.array([0.02, 0.10])


@compiled
def order_latest(recent: Wide, count: int, ordered: Wide, ages: NDArray[np.int64]) -> None:
    """Write the latest `count` values, in the order of their size, and their ages."""
    for i in range(count):
        value = recent[i]
        j = i
        while j > 0 and ordered[j - 1] > value:
            ordered[j] = ordered[j - 1]
            ages[j] = ages[j - 1]
            j -= 1
        ordered[j] = value
        ages[j] = i


@compiled
def choose_latest(
    ordered: Wide, ages: NDArray[np.int64], count: int, width: int, chosen: Wide
) -> None:
    """Write those of the ordered values that are among the latest `width`, in order."""
    place = 0
    for i in range(count):
        chosen[place] = ordered[i]
        place += 1 if ages[i] < width else 0


@compiled
def middle(ordered: Wide, width: int) -> float:
    """Return the median of the first `width` of ordered values."""
    return float(ordered[(width - 1) // 2] + ordered[width // 2]) / 2.0


@compiled
def average(ordered: Wide, start: int, stop: int) -> float:
    """Return the mean of ``ordered[start:stop]``."""
    total = 0.0
    for i in range(start, stop):
        total += ordered[i]
    return total / float(stop - start)


@compiled
def widths(kind: int, width: int) -> tuple[int, int, int]:
    """Return the present, the shorter and the longer width of an adaptive median."""
    shorter = max(SHORTEST_WIDTH[kind], width - WIDTH_OFFSET[kind])
    return width, shorter, min(LONGEST_WIDTH[kind], width + WIDTH_OFFSET[kind])


@compiled
def adapt(wide: Wide, kind: int, value: float) -> None:
    """Take the width whose median was nearest to `value`."""
    m = MEDIANS + 3 * kind
    options = widths(kind, int(wide[WIDTH + kind]))
    best = 0
    for i in range(1, 3):
        if abs(wide[m + i] - value) < abs(wide[m + best] - value):
            best = i
    wide[WIDTH + kind] = options[best]


@compiled
def look_through_windows(wide: Wide, samples: int) -> None:
    """Fill in the medians and means over the latest values."""
    recent = wide[RECENT : RECENT + WIDEST]
    f = wide[EXPERT : EXPERT + E]
    every, part = np.empty(WIDEST), np.empty(WIDEST + 1)
    ages = np.empty(WIDEST, dtype=np.int64)
    count = min(samples, WIDEST)
    order_latest(recent, count, every, ages)
    cut = int(TRIM * count)
    f[15] = average(every, cut, count - cut)
    w = min(count, 31)
    choose_latest(every, ages, count, w, part)
    cut = int(TRIM * w)
    f[10], f[12], f[14] = middle(part, w), average(part, 0, w), average(part, cut, w - cut)
    w = min(count, 5)
    choose_latest(every, ages, count, w, part)
    f[11], f[13] = middle(part, w), average(part, 0, w)
    for kind in range(2):
        options = widths(kind, int(wide[WIDTH + kind]))
        for i in range(3):
            w = min(count, options[i])
            choose_latest(every, ages, count, w, part)
            wide[MEDIANS + 3 * kind + i] = middle(part, w)
        f[16 + kind] = wide[MEDIANS + 3 * kind]


@compiled
def follow(wide: Wide, value: float, last: float, samples: float) -> None:
    """Move the EW-AR(1) and the self-tuning smoothing by the second or a later value."""
    f = wide[EXPERT : EXPERT + E]
    for i in range(2):
        gain = max(AR_GAINS[i], 1.0 / samples)
        before = last - wide[AR_MEAN + i]
        wide[AR_MEAN + i] += gain * (value - wide[AR_MEAN + i])
        after = value - wide[AR_MEAN + i]
        wide[AR_COVARIANCE + i] += gain * (before * after - wide[AR_COVARIANCE + i])
        wide[AR_VARIANCE + i] += gain * (before * before - wide[AR_VARIANCE + i])
        phi = 0.0
        if wide[AR_VARIANCE + i] > 0:
            phi = clipped(wide[AR_COVARIANCE + i] / wide[AR_VARIANCE + i], 0.999)
        f[18 + i] = wide[AR_MEAN + i] + phi * after
    level, gain, slope, power = wide[TUNING], wide[TUNING + 1], wide[TUNING + 2], wide[TUNING + 3]
    error = value - level
    wide[TUNING] = level + gain * error
    if power > 0:
        step = TUNING_RATE * clipped(error * slope / power, 1.0)
        wide[TUNING + 1] = min(max(gain + step, 0.01), 0.99)
    wide[TUNING + 2] = (1.0 - gain) * slope + error
    wide[TUNING + 3] = power + max(0.02, 1.0 / samples) * (error * error - power)
    f[20] = wide[TUNING]


@compiled
def take(wide: Wide, value: float) -> None:
    """Give `value` to the experts."""
    samples = wide[SAMPLES] + 1.0
    wide[SAMPLES] = samples
    f = wide[EXPERT : EXPERT + E]
    last = f[0]
    if samples == 1.0:
        f[:] = value
        wide[LOW], wide[HIGH], wide[AVERAGE], wide[TUNING] = value, value, value, value
        wide[AR_MEAN], wide[AR_MEAN + 1] = value, value
    else:
        gain = max(0.02, 1.0 / samples)
        away = value - wide[AVERAGE]
        wide[AVERAGE] += gain * away
        wide[VARIANCE] = (1.0 - gain) * (wide[VARIANCE] + gain * away * away)
        wide[LOW], wide[HIGH] = min(wide[LOW], value), max(wide[HIGH], value)
        adapt(wide, 0, value)
        adapt(wide, 1, value)
        follow(wide, value, last, samples)
    f[0] = value
    f[1] += (value - f[1]) / samples
    for i in range(8):
        f[2 + i] += GAINS[i] * (value - f[2 + i])
    for i in range(WIDEST - 1, 0, -1):
        wide[RECENT + i] = wide[RECENT + i - 1]
    wide[RECENT] = value
    look_through_windows(wide, int(samples))
