"""One tick of one series as plain loops, compiled with numba.

The stages are listed in `nws.engine.vectorised`; the classes of `nws.forecasters` name the sources of the
formulas. This form and `nws.engine.single_series` do the same operations on the same numbers in the same order
(no fused or reordered arithmetic), hence agree bit for bit: one of several forms on purpose, see `nws.engine`.

A series is two rows, `wide` of float64 and `narrow` of float32; `nws.engine.layout` says at which
offset each field begins. The functions of scoring take the block `b`, the offset `o` of a horizon
in it and the table `s` of its fields' offsets, so that they serve the one-step horizon (in `wide`)
and the further ones (in `narrow`).
"""

import zlib
from collections.abc import Callable
from math import sqrt
from pathlib import Path
from typing import Final, ParamSpec, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nws.engine import layout as at

P = ParamSpec("P")
R = TypeVar("R")
Wide = NDArray[np.float64]
Narrow = NDArray[np.float32]
Whole = NDArray[np.int32]
Block = Wide | Narrow


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Return `function` compiled, with IEEE arithmetic as it is written."""
    return cast("Callable[P, R]", njit(error_model="numpy")(function))


def _starts(fields: dict[str, at.Field]) -> NDArray[np.int64]:
    return np.array([field.start for field in fields.values()], dtype=np.int64)


C, D, E, K, L, M = at.C, at.D, at.E, at.K, at.L, at.M
OWN_AT, CHOICE_AT, ENDS_AT = at.OWN_AT, at.CHOICE_AT, at.ENDS_AT
LEVELS = np.array(at.LEVELS)
SCORED, EXPERT_ERROR, REGRET, POWER, EXCESS, SPREAD, REACH, CANDIDATE, CANDIDATE_ERROR = range(9)
FINAL, CHOSEN, ERROR, SCALE, QUANTILE, COVERED = range(9, 15)
AGGREGATION, PATIENCE, FAINTEST, SIXTH = at.AGGREGATION, at.PATIENCE, at.FAINTEST, 1.0 / 6.0
STEP_AT = _starts(at.STEP)
MEAN_AT = _starts(at.MEAN)
CLIP, TINY, TRACE, FORGETTING = at.CLIP, at.TINY, at.TRACE, at.FORGETTING
RENEWAL = at.RENEWAL
SCALE_GAIN, CERTIFIED = at.SCALE_GAIN, at.CERTIFIED


@compiled
def clipped(value: float, most: float) -> float:
    """Return `value` within plus and minus `most`."""
    return min(max(value, -most), most)


@compiled
def regress(p: Wide, w: Block, x: Wide, z: float) -> None:
    """Move the weights `w` towards w.x = z (`nws.engine.vectorised.regress`)."""
    order = len(x)
    px = np.zeros(order)
    for j in range(order):
        for i in range(order):
            px[i] += p[j, i] * x[j]
    power = 0.0
    fit = 0.0
    for i in range(order):
        power += x[i] * px[i]
        fit += w[i] * x[i]
    power += FORGETTING
    error = z - fit
    trace = 0.0
    for i in range(order):
        gain = px[i] / power
        w[i] += gain * error
        for j in range(order):
            p[i, j] = (p[i, j] - gain * px[j]) * RENEWAL
        trace += p[i, i]
    # What does not vary must not wind up: P grows by 1 / FORGETTING a step where x is constant.
    if trace > TRACE:
        shrink = TRACE / trace
        for i in range(order):
            for j in range(order):
                p[i, j] *= shrink


@compiled
def score_experts(
    b: Block, o: int, s: NDArray[np.int64], issued: Block, cand: Block, actual: float, gain: float
) -> None:
    """Score the experts' issued forecasts against the actual value (`vectors.score`)."""
    share = 1.0 / float(b[o + s[SCORED]])
    gain = max(gain, share)
    experts = len(issued)
    above = float(cand[1]) - actual
    below = float(cand[2]) - actual
    sign = 0.0
    if below > 0:
        sign = 1.0
    elif below < 0:
        sign = -1.0
    for k in range(experts):
        error = abs(issued[k] - actual)
        i = o + s[EXPERT_ERROR] + k
        b[i] += share * (error - b[i])
        i += experts
        b[i] += gain * (error - b[i])
        regret = above * (cand[1] - issued[k])
        i = o + s[REGRET] + k
        b[i] += regret
        i = o + s[POWER] + k
        b[i] += regret * regret
        regret = sign * (cand[2] - issued[k])
        i = o + s[REGRET] + experts + k
        b[i] += regret
        i = o + s[POWER] + experts + k
        b[i] += regret * regret


@compiled
def aggregate(b: Block, o: int, s: NDArray[np.int64], cand: Block, actual: float) -> None:
    """Move the regrets of the aggregation against the others (`nws.engine.vectorised.aggregate`)."""
    mixed = float(cand[AGGREGATION])
    sign = 0.0
    if mixed > actual:
        sign = 1.0
    elif mixed < actual:
        sign = -1.0
    for c in range(AGGREGATION):
        regret = sign * (mixed - cand[c])
        square = regret * regret
        b[o + s[SPREAD] + c] += square
        b[o + s[REACH] + c] = max(float(b[o + s[REACH] + c]), abs(regret))
        b[o + s[EXCESS] + c] += regret - rate_of(b, o, s, c) * square


@compiled
def rate_of(b: Block, o: int, s: NDArray[np.int64], k: int) -> float:
    """Return the learning rate of a candidate (`nws.engine.vectorised.rates_of`)."""
    spread, reach = float(b[o + s[SPREAD] + k]), float(b[o + s[REACH] + k])
    if spread > 0:
        return min(0.5 / max(reach, TINY), sqrt(PATIENCE / max(spread, TINY)))
    return 0.0


@compiled
def faded(power: float) -> float:
    """Return e to the `power`, at most 0, reproducibly (`nws.engine.vectorised.faded`)."""
    y = max(power, FAINTEST) / 64.0
    y = 1.0 + y * (1.0 + y * (0.5 + y * SIXTH))
    for _ in range(6):
        y *= y
    return y


@compiled
def score_answers(
    b: Block, o: int, s: NDArray[np.int64], cand: Block, second: int, actual: float
) -> float:
    """Score the candidates and the two answers; return the error of the second answer."""
    aggregate(b, o, s, cand, actual)
    share = 1.0 / float(b[o + s[SCORED]])
    for c in range(C):
        error = cand[c] - actual
        i = o + s[CANDIDATE_ERROR] + c
        b[i] += share * (error * error - b[i])
    error = abs(cand[AGGREGATION] - actual)
    i = o + s[ERROR]
    b[i] += share * (error - b[i])
    error = actual - cand[second]
    b[i + 1] += share * (error * error - b[i + 1])
    return float(error)


@compiled
def track(
    b: Block, o: int, s: NDArray[np.int64], error: float, rate: float, gain: float, held: int
) -> None:
    """Move the quantiles and the scale; `held` tells of the certified level, -1: see yourself."""
    share = 1.0 / float(b[o + s[SCORED]])
    rate = 2.0 * max(rate, share)
    scale = b[o + s[SCALE]]
    for i in range(L):
        q = o + s[QUANTILE] + 2 * i
        lower = b[q] * scale
        upper = b[q + 1] * scale
        inside = error >= lower and error <= upper
        if held >= 0 and i == CERTIFIED:
            inside = held == 1
        if inside:
            b[o + s[COVERED] + i] += 1.0
        if scale > 0:
            tail = (1.0 - LEVELS[i]) / 2.0
            b[q] = min(0.0, b[q] + rate * (tail - (1.0 if error < lower else 0.0)))
            b[q + 1] = max(
                0.0, b[q + 1] + rate * ((1.0 - tail) - (1.0 if error <= upper else 0.0))
            )
    b[o + s[SCALE]] += max(gain, share) * (abs(error) - scale)


@compiled
def mix_candidates(b: Block, o: int, s: NDArray[np.int64]) -> None:
    """Fill in the aggregation of the other candidates, and which of them weighs most."""
    cand = o + s[CANDIDATE]
    rate, gain = np.empty(AGGREGATION), np.empty(AGGREGATION)
    top = -np.inf
    for c in range(AGGREGATION):
        rate[c] = rate_of(b, o, s, c)
        gain[c] = rate[c] * b[o + s[EXCESS] + c]
        top = max(top, gain[c])
    total = 0.0
    mix = 0.0
    heaviest = 0.0
    for c in range(AGGREGATION):
        weight = rate[c] * faded(gain[c] - top)
        total += weight
        mix += weight * b[cand + c]
        if c == 0 or weight > heaviest:
            heaviest = weight
            b[o + s[CHOSEN]] = c
    b[cand + AGGREGATION] = mix / total if total > 0 else float(b[cand])


@compiled
def answer(b: Block, o: int, s: NDArray[np.int64], issued: Block, variance: float) -> None:
    """Fill in the candidates' forecasts and which of them is the answer (`vectors.answer`)."""
    experts = len(issued)
    best = 0
    lately = 0
    for k in range(1, experts):
        if b[o + s[EXPERT_ERROR] + k] < b[o + s[EXPERT_ERROR] + best]:
            best = k
        if b[o + s[EXPERT_ERROR] + experts + k] < b[o + s[EXPERT_ERROR] + experts + lately]:
            lately = k
    cand = o + s[CANDIDATE]
    b[cand] = issued[best]
    b[cand + 3] = issued[lately]
    for c in range(2):
        floor = (variance * variance if c == 0 else variance) + TINY
        total = 0.0
        mix = 0.0
        for k in range(experts):
            i = c * experts + k
            weight = max(0.0, b[o + s[REGRET] + i]) / (b[o + s[POWER] + i] + floor)
            total += weight
            mix += weight * issued[k]
        b[cand + 1 + c] = mix / total if total > 0 else issued[best]
    mix_candidates(b, o, s)
    second = 1
    for c in range(2, C):
        if b[o + s[CANDIDATE_ERROR] + c] < b[o + s[CANDIDATE_ERROR] + second]:
            second = c
    b[o + s[CHOSEN] + 1] = second
    b[o + s[FINAL]] = b[cand + AGGREGATION]
    b[o + s[FINAL] + 1] = b[cand + second]


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
    """Write the latest `count` values, in the order of their size, and their ages.

    Each is put at once where it belongs: compiled to vector instructions and without a branch, half
    the time of an insertion sort.
    """
    for i in range(count):
        value = recent[i]
        place = 0
        for j in range(i):
            place += 1 if recent[j] <= value else 0
        for j in range(i + 1, count):
            place += 1 if recent[j] < value else 0
        ordered[place] = value
        ages[place] = i


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


Step = Callable[[Wide, Narrow, NDArray[np.int64], int, Wide], int]

AGE = at.WIDE["age"].start
AR_X, AR_W, AR_P = (at.WIDE[name].start for name in ("ar_x", "ar_w", "ar_p"))
LAG, LAG_X, LAG_W, LAG_P = (at.WIDE[name].start for name in ("lag", "lag_x", "lag_w", "lag_p"))
HISTORY, LONGEST, ORDER, LAGS = at.HISTORY, at.LONGEST, at.ORDER, at.LAGS
MATRICES, FURTHER, FURTHER_SIZE, SLOT, SLOTS = (
    at.MATRICES,
    at.FURTHER,
    at.FURTHER_SIZE,
    at.SLOT,
    at.SLOTS,
)
VALID, PAST = at.NARROW["valid"].start, at.NARROW["past"].start
DIRECT_W, LEVEL = at.MEAN["direct_w"].start, at.CERTIFIED
STEP_DISCOUNT, MEAN_DISCOUNT = at.STEP_DISCOUNT, at.MEAN_DISCOUNT
STEP_RATE, MEAN_RATE, TRUSTED = at.STEP_RATE, at.MEAN_RATE, at.TRUSTED
HORIZON_EXPERTS, DIRECT = np.array(at.HORIZON_EXPERTS), np.array(at.DIRECT)
DIRECT_PAST = np.array([at.HORIZON_EXPERTS.index(expert) for expert in at.DIRECT])
FIRST_LAGS = np.arange(1.0, ORDER + 1.0)
ANALOG, FAR = at.EXPERTS.index("analog_3"), np.int32(2**31 - 1)
STRETCH, PLACE_BITS = 32, 32
PATTERNS, PATTERN, FRAME_PATTERN = np.array(at.PATTERNS), at.PATTERN, at.FRAME_PATTERN
NEIGHBOURS, FRAME_NEIGHBOURS, COMPARABLE = at.NEIGHBOURS, at.FRAME_NEIGHBOURS, at.COMPARABLE
SOURCES = ("layout.py", "tick.py")


@compiled
def learn(wide: Wide, value: float) -> None:
    """Score what was forecast of `value`, and move the regressions towards it."""
    wide[STEP_AT[SCORED]] += 1.0
    issued = wide[EXPERT : EXPERT + E]
    c = STEP_AT[CANDIDATE]
    cand = wide[c : c + C]
    second = int(wide[STEP_AT[CHOSEN] + 1])
    score_experts(wide, 0, STEP_AT, issued, cand, value, STEP_DISCOUNT)
    error = score_answers(wide, 0, STEP_AT, cand, second, value)
    track(wide, 0, STEP_AT, error, STEP_RATE, SCALE_GAIN, -1)
    sd = sqrt(wide[VARIANCE])
    inverse = 1.0 / sd if sd > 0 else 0.0
    z = clipped((value - wide[AVERAGE]) * inverse, CLIP)
    p = wide[AR_P : AR_P + ORDER * ORDER].reshape(ORDER, ORDER)
    regress(p, wide[AR_W : AR_W + ORDER], wide[AR_X : AR_X + ORDER], z)
    p = wide[LAG_P : LAG_P + LAGS * LAGS].reshape(LAGS, LAGS)
    regress(p, wide[LAG_W : LAG_W + LAGS], wide[LAG_X : LAG_X + LAGS], z)


@compiled
def look_back(wide: Wide, narrow: Narrow, tick: int, x: Wide, w: Wide, lags: Wide) -> float:
    """Fill in the regressors `x`, standardised, and return the forecast of the regression `w`."""
    sd = sqrt(wide[VARIANCE])
    inverse = 1.0 / sd if sd > 0 else 0.0
    total = 0.0
    for i in range(len(x)):
        lag = int(lags[i])
        past = narrow[(tick + 1 - lag) % HISTORY] if lag <= wide[AGE] + 1.0 else wide[AVERAGE]
        x[i] = clipped((past - wide[AVERAGE]) * inverse, CLIP)
        total += w[i] * x[i]
    forecast = wide[AVERAGE] + sd * clipped(total, CLIP)
    return float(min(max(forecast, wide[LOW]), wide[HIGH]))


@compiled
def latest_values(wide: Wide, narrow: Narrow, tick: int, past: Narrow) -> int:
    """Write the values that the history holds of the series, the newest first; return how many."""
    count = min(int(wide[AGE]) + 1, HISTORY)
    newest = tick % HISTORY
    since = narrow[: newest + 1][::-1]
    before = narrow[newest + 1 : HISTORY][::-1]
    first = min(count, newest + 1)
    for i in range(first):
        past[i] = since[i]
    for i in range(count - first):
        past[first + i] = before[i]
    return count


@compiled
def measure_distances(past: Narrow, lags: int, distance: Narrow) -> None:
    """Fill in how far the latest values are from the stretch of every lag (`nws.engine.analogs`)."""
    # Summed anew at each tick: vector instructions make that cheaper than moving kept distances
    # along, as `DistanceRing` does for NumPy.
    three, six, twelve = distance[0], distance[1], distance[2]
    for part in range(4):
        j = 3 * part
        a, b, c = past[j], past[j + 1], past[j + 2]
        of_a, of_b, of_c = past[j + 1 :], past[j + 2 :], past[j + 3 :]
        for i in range(lags):
            apart = abs(of_a[i] - a) + abs(of_b[i] - b) + abs(of_c[i] - c)
            if part == 0:
                three[i] = apart
            elif part == 1:
                six[i] = three[i] + apart
            elif part == 2:
                twelve[i] = apart
            else:
                twelve[i] = six[i] + (twelve[i] + apart)


@compiled
def bound_of(distance: Whole, first: int, stop: int, least: Whole, count: int) -> int:
    """Return what at least `count` of the distances do not exceed; fill in the `least` of each stretch.

    So many stretches have one that small. It is little more than the distance of the last one wanted.
    """
    stretches = 0
    for start in range(first, stop, STRETCH):
        nearest = FAR
        part = distance[start : min(start + STRETCH, stop)]
        # The least of every 32 distances bounds the search first: a scan against the greatest
        # distance so far starts with a bound that excludes almost nothing.
        for i in range(len(part)):  # compiled to a few vector instructions
            nearest = min(nearest, part[i])
        least[stretches] = nearest
        stretches += 1
    if stretches < count:
        return int(FAR)
    ordered = np.empty(count, dtype=np.int32)
    found = 0
    for i in range(stretches):
        value = least[i]
        if found == count:
            if value >= ordered[count - 1]:
                continue
            found -= 1
        j = found
        while j > 0 and ordered[j - 1] > value:
            ordered[j] = ordered[j - 1]
            j -= 1
        ordered[j] = value
        found += 1
    return int(ordered[count - 1])


@compiled
def scan(distance: Whole, first: int, stop: int, nearest: NDArray[np.int64], found: int) -> int:
    """Take the places from `first` to `stop` into the `nearest`; return how many are found.

    They stand in the order of their distance, of equals the first place first: each is the bits of a
    distance, never negative and so ordered as whole numbers are, before those of its place.
    """
    count = len(nearest)
    least = np.empty((stop - first) // STRETCH + 1, dtype=np.int32)
    if found == count:
        limit = nearest[count - 1] >> PLACE_BITS
        least[:] = 0
    else:
        limit = bound_of(distance, first, stop, least, count)
    for stretch in range((stop - first + STRETCH - 1) // STRETCH):
        if least[stretch] > limit:
            continue
        start = first + stretch * STRETCH
        for i in range(start, min(start + STRETCH, stop)):
            if distance[i] > limit:
                continue
            key = np.int64(distance[i]) << PLACE_BITS | i
            if found == count:
                if key > nearest[count - 1]:
                    continue
                found -= 1
            j = found
            while j > 0 and nearest[j - 1] > key:
                nearest[j] = nearest[j - 1]
                j -= 1
            nearest[j] = key
            found += 1
            if found == count:
                limit = min(limit, nearest[count - 1] >> PLACE_BITS)
    return found


@compiled
def place_of(key: int) -> int:
    """Return the place that an entry of the nearest stands for."""
    return int(key & (1 << PLACE_BITS) - 1)


@compiled
def median_of(values: Wide) -> float:
    """Return the median of an odd number of values, which it sorts."""
    for i in range(1, len(values)):
        value = values[i]
        j = i
        while j > 0 and values[j - 1] > value:
            values[j] = values[j - 1]
            j -= 1
        values[j] = value
    return float(values[len(values) // 2])


@compiled
def forecast_by_analogs(
    wide: Wide,
    past: Narrow,
    distance: Narrow,
    lags: int,
    horizons: NDArray[np.int64],
    followed: Wide,
) -> None:
    """Fill in the experts that look for analogs, and what they forecast for the further horizons.

    Without enough stretches to compare both repeat the last value. The stretches that serve a
    horizon serve all shorter ones: from the longest on, those of smaller lags are added.
    """
    f = wide[EXPERT : EXPERT + E]
    f[ANALOG : ANALOG + len(PATTERNS)] = f[0]
    followed[:] = f[0]
    if lags < COMPARABLE:
        return
    most = FRAME_NEIGHBOURS if len(followed) > 0 else NEIGHBOURS
    nearest = np.empty(most, dtype=np.int64)
    values = np.empty(NEIGHBOURS)
    bits = distance.view(np.int32)
    frame = bits[FRAME_PATTERN]
    sums = np.zeros(len(past) + 1 if len(followed) > 0 else 1)
    for i in range(len(sums) - 1):
        sums[i + 1] = sums[i] + past[i]
    means = np.empty(most)
    found, stop = 0, lags
    for place in range(len(followed) - 1, -1, -1):
        horizon = horizons[place + 1]
        first = min(horizon - 1, stop)
        found = scan(frame, first, stop, nearest, found)
        stop = first
        if lags - horizon + 1 >= most:
            for i in range(most):
                end = place_of(nearest[i]) + 1
                means[i] = (sums[end] - sums[end - horizon]) / float(horizon)
            followed[place] = median_of(means)
    scan(frame, 0, stop, nearest, found)
    others = np.empty(NEIGHBOURS, dtype=np.int64)
    for row in range(len(PATTERNS)):
        if row == FRAME_PATTERN:
            others[:] = nearest[:NEIGHBOURS]
        else:
            scan(bits[row], 0, lags, others, 0)
        for i in range(NEIGHBOURS):
            values[i] = past[place_of(others[i])]
        f[ANALOG + row] = min(max(median_of(values), wide[LOW]), wide[HIGH])


@compiled
def advance_horizons(
    wide: Wide,
    narrow: Narrow,
    horizons: NDArray[np.int64],
    tick: int,
    followed: Wide,
) -> None:
    """Score what is known by now of every further horizon, and answer anew."""
    ring = FURTHER + (len(horizons) - 1) * FURTHER_SIZE
    total, count, upto = 0.0, 0.0, 0
    for j in range(len(horizons) - 1):
        horizon = horizons[j + 1]
        every = max(1, horizon // SLOTS)
        places = horizon // every
        o = FURTHER + j * FURTHER_SIZE
        # The sum over the latest `horizon` ticks extends that of the shorter horizon before it.
        while upto < horizon:
            if narrow[VALID + (tick - upto) % LONGEST] > 0:
                total += narrow[(tick - upto) % HISTORY]
                count += 1.0
            upto += 1
        # The slot holds the answer of `horizon` ticks ago, which the mean just now completes; it is
        # scored first and then overwritten by the new answer. Between two scorings none is kept.
        slot = ring + SLOT * ((tick // every) % places) if tick % every == 0 else -1
        if slot >= 0 and wide[AGE] >= horizon and 2.0 * count >= horizon:
            m = MATRICES + j * D * D
            p = wide[m : m + D * D].reshape(D, D)
            past = PAST + K * ((tick - horizon) % LONGEST)
            score_horizon(wide, narrow, o, slot, past, p, horizon, total / count)
        answer_horizon(wide, narrow, o, slot, followed[j])
        # A horizon that was hardly ever scored repeats the one-step answer.
        if narrow[o] * every < TRUSTED:
            narrow[o + MEAN_AT[FINAL]] = wide[STEP_AT[FINAL]]
            narrow[o + MEAN_AT[FINAL] + 1] = wide[STEP_AT[FINAL] + 1]
        ring += SLOT * places
    for k in range(K):
        narrow[PAST + K * (tick % LONGEST) + k] = wide[EXPERT + HORIZON_EXPERTS[k]]


@compiled
def score_horizon(
    wide: Wide, narrow: Narrow, o: int, slot: int, past: int, p: Wide, horizon: int, actual: float
) -> None:
    """Score what was forecast of `actual`, and move the direct regression towards it."""
    issued, cand, x = np.empty(M), np.empty(C), np.ones(D)
    issued[:K] = narrow[past : past + K]
    issued[K:] = narrow[slot + OWN_AT : slot + CHOICE_AT]
    cand[:] = narrow[slot : slot + C]
    second = int(narrow[slot + CHOICE_AT])
    held = 1 if narrow[slot + ENDS_AT] <= actual <= narrow[slot + ENDS_AT + 1] else 0
    every = max(1, horizon // SLOTS)
    share = sqrt(every / horizon)
    narrow[o] += 1.0
    score_experts(narrow, o, MEAN_AT, issued, cand, actual, MEAN_DISCOUNT * every)
    error = score_answers(narrow, o, MEAN_AT, cand, second, actual)
    track(narrow, o, MEAN_AT, error, MEAN_RATE * share, SCALE_GAIN * share, held)
    sd = sqrt(wide[VARIANCE])
    inverse = 1.0 / sd if sd > 0 else 0.0
    for i in range(D - 1):
        x[i] = clipped((issued[DIRECT_PAST[i]] - wide[AVERAGE]) * inverse, CLIP)
    w = narrow[o + DIRECT_W : o + DIRECT_W + D]
    regress(p, w, x, clipped((actual - wide[AVERAGE]) * inverse, CLIP))


@compiled
def answer_horizon(wide: Wide, narrow: Narrow, o: int, slot: int, followed: float) -> None:
    """Answer a horizon, `followed` being the analogs'; keep the answer in a slot, if there is one."""
    sd = sqrt(wide[VARIANCE])
    inverse = 1.0 / sd if sd > 0 else 0.0
    issued = np.empty(M)
    z = 0.0
    for i in range(D - 1):
        away = wide[EXPERT + DIRECT[i]] - wide[AVERAGE]
        z += narrow[o + DIRECT_W + i] * clipped(away * inverse, CLIP)
    z += narrow[o + DIRECT_W + D - 1]
    for k in range(K):
        issued[k] = wide[EXPERT + HORIZON_EXPERTS[k]]
    direct = wide[AVERAGE] + sd * clipped(z, CLIP)
    issued[K] = min(max(direct, wide[LOW]), wide[HIGH])
    issued[K + 1] = min(max(followed, wide[LOW]), wide[HIGH])
    answer(narrow, o, MEAN_AT, issued, wide[VARIANCE])
    if slot < 0:
        return
    for c in range(C):
        narrow[slot + c] = narrow[o + MEAN_AT[CANDIDATE] + c]
    second = narrow[o + MEAN_AT[CHOSEN] + 1]
    centre = narrow[slot + int(second)]
    scale = narrow[o + MEAN_AT[SCALE]]
    q = o + MEAN_AT[QUANTILE] + 2 * LEVEL
    narrow[slot + OWN_AT : slot + CHOICE_AT] = issued[K:]
    narrow[slot + CHOICE_AT] = second
    narrow[slot + ENDS_AT] = centre + narrow[q] * scale
    narrow[slot + ENDS_AT + 1] = centre + narrow[q + 1] * scale


@compiled
def step(wide: Wide, narrow: Narrow, horizons: NDArray[np.int64], tick: int, value: float) -> None:
    """Take in the value of `tick`, in the engine's unit; NaN: there is none."""
    known = value == value  # noqa: PLR0124 - NaN is what differs from itself
    # Stages 1 and 2: score the last forecasts and learn from them, then give the experts the value.
    if known:
        if wide[SAMPLES] > 0:
            learn(wide, value)
        if wide[SAMPLES] > 0:
            wide[AGE] += 1.0
        take(wide, value)
    elif wide[SAMPLES] > 0:
        wide[AGE] += 1.0
        value = wide[STEP_AT[FINAL]]
    else:
        value = 0.0
    # Stage 3: the history, where a missing value is the forecast that was made of it.
    narrow[tick % HISTORY] = value
    narrow[VALID + tick % LONGEST] = 1.0 if known else 0.0
    # Stage 4: both autoregressions, experts 21 and 22, and the analogs; then the one-step answer.
    f = wide[EXPERT : EXPERT + E]
    x, w = wide[AR_X : AR_X + ORDER], wide[AR_W : AR_W + ORDER]
    f[21] = look_back(wide, narrow, tick, x, w, FIRST_LAGS)
    x, w = wide[LAG_X : LAG_X + LAGS], wide[LAG_W : LAG_W + LAGS]
    f[22] = look_back(wide, narrow, tick, x, w, wide[LAG : LAG + LAGS])
    past = np.empty(HISTORY, dtype=np.float32)
    distance = np.empty((len(PATTERNS), HISTORY), dtype=np.float32)
    count = latest_values(wide, narrow, tick, past)
    lags = max(0, count - PATTERN)
    if lags >= COMPARABLE:
        measure_distances(past, lags, distance)
    followed = np.empty(len(horizons) - 1)
    forecast_by_analogs(wide, past[:count], distance, lags, horizons, followed)
    answer(wide, 0, STEP_AT, f, wide[VARIANCE])
    # Stage 5: the further horizons.
    if len(horizons) > 1:
        advance_horizons(wide, narrow, horizons, tick, followed)


def _edition() -> int:
    """Return a number that changes with the source of the kernel."""
    folder = Path(__file__).parent
    return zlib.crc32(b"".join((folder / name).read_bytes() for name in SOURCES))


def _kernel(edition: int) -> Step:
    def step_all(
        wide: Wide, narrow: Narrow, horizons: NDArray[np.int64], tick: int, values: Wide
    ) -> int:
        for i in range(len(values)):
            step(wide[i], narrow[i], horizons, tick, values[i])
        return edition

    return cast("Step", njit(cache=True, error_model="numpy")(step_all))


step_all: Final = _kernel(_edition())
"""Takes in the values of one tick, one a series; returns the edition.

numba keeps the machine code on disk under the text of this one function and what it encloses: the
edition is enclosed, so that a change to any part of the kernel is never missed.
"""
