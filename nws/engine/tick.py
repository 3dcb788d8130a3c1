"""One tick of one series: the only form of the default profile's step.

The interpreter runs these functions as they stand. `compiled_step` has numba compile the same functions; the
inner loops, marked `@compiled_as`, are NumPy calls for the interpreter and plain loops for numba. Both give the
same bits: no arithmetic is fused or reordered, sums run from the first to the last, and no step calls exp, log or
pow, since their last digit differs between libraries.

A tick has five stages:

1. The step scores the forecasts of the value, and the regressions learn.
2. The experts take the value in. If it is missing, stages 1 and 2 are left out.
3. The history takes the value or, if it is missing, the series' own forecast.
4. Both autoregressions and the analogs forecast from the history; then the one-step answer is chosen.
5. Means that are complete by now are scored, and the further horizons answer.

A series is two blocks, `wide` of float64 and `narrow` of float32 (`nws.engine.layout`). The scoring functions take
the fields of one horizon as a float64 block `b` with the table `s` of their offsets. A further horizon is copied
from `narrow`, and `single` rounds intermediate results to float32 as storing them there would.
"""

import logging
import zlib
from collections.abc import Callable
from functools import cache
from math import sqrt
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from nws.engine import layout as at

_log = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])
Wide = NDArray[np.float64]
Narrow = NDArray[np.float32]
Whole = NDArray[np.int64]
Bits = NDArray[np.int32]
Starts = tuple[int, ...]
Step = Callable[[Wide, Narrow, Whole, int, float], object]

_KERNEL: list[tuple[Callable[..., Any], Callable[..., Any]]] = []
"""The marked functions that numba has yet to compile, each with the version that numba compiles in its place."""


def kernel(function: F) -> F:
    """Mark a function that numba compiles as it stands."""
    _KERNEL.append((function, function))
    return function


def compiled_as(loops: Callable[..., Any]) -> Callable[[F], F]:
    """Mark a function of NumPy calls that numba replaces with `loops`, which give the same bits."""

    def marked(function: F) -> F:
        _KERNEL.append((function, loops))
        return function

    return marked


def compiled(entry: Callable[..., int]) -> Callable[..., int]:
    """Return `entry`, which calls marked functions, in machine code. ImportError: numba is not installed.

    numba keeps the code on disk under the text of `entry` and the values that it encloses. Enclose the
    `edition_of` the marked functions' modules: a change to any function is then noticed.
    """
    from numba import njit  # noqa: PLC0415 - loads for a second
    from numba.extending import overload  # noqa: PLC0415

    def compiles_to(loops: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *_: loops

    while _KERNEL:
        function, loops = _KERNEL.pop()
        overload(function, jit_options={"error_model": "numpy"}, strict=False)(compiles_to(loops))
    try:
        code = njit(cache=True, error_model="numpy")(entry)
    except RuntimeError as error:  # numba found no directory to write to
        _log.warning(
            "numba has nowhere to keep compiled code (%s), so each start compiles for about a minute: "
            "set NUMBA_CACHE_DIR to a directory that can be written",
            error,
        )
        code = njit(error_model="numpy")(entry)
    return cast("Callable[..., int]", code)


def edition_of(*names: str) -> int:
    """Return a checksum of these modules of the engine."""
    sources = (Path(__file__).with_name(name) for name in names)
    return zlib.crc32(b"".join(source.read_bytes() for source in sources))


@cache
def compiled_step() -> Step:
    """Return `step` in machine code. ImportError: numba is not installed.

    The first call on a machine compiles for about a minute.
    """
    edition = edition_of("layout.py", "tick.py")

    def step_once(wide: Wide, narrow: Narrow, horizons: Whole, tick: int, value: float) -> int:
        step(wide, narrow, horizons, tick, value)
        return edition

    return compiled(step_once)


def _starts(fields: dict[str, at.Field], block: int) -> tuple[int, ...]:
    return tuple(field.start - block for field in fields.values())


C, D, E, K, L, M = at.C, at.D, at.E, at.K, at.L, at.M
OWN_AT, ENDS_AT, MEMBERS = at.OWN_AT, at.ENDS_AT, at.MEMBERS
TAILS: Final = tuple((1.0 - level) / 2.0 for level in at.LEVELS)
SCORED, EXPERT_ERROR, REGRET, POWER, MIXED_REGRET, MIXED_POWER, MIXED_MAX = range(7)
CANDIDATE, CANDIDATE_ERROR, FINAL, CHOSEN, ERROR, SCALE, QUANTILE, COVERED = range(7, 15)
EXPERT_SQUARE: Final = 15
AGGREGATION, LOWEST_SQUARE, SQUARED = at.AGGREGATION, at.LOWEST_SQUARE, at.SQUARED
LOG_MEMBERS, MIN_EXPONENT = at.LOG_MEMBERS, at.MIN_EXPONENT
SIXTH: Final = 1.0 / 6.0
STEP_START: Final = at.STEP["scored"].start
STEP_AT = _starts(at.STEP, STEP_START)
MEAN_AT = _starts(at.MEAN, 0)
CLIP, TINY, MAX_TRACE, FORGETTING = at.CLIP, at.TINY, at.MAX_TRACE, at.FORGETTING
INVERSE_FORGETTING, SCALE_GAIN, AUDITED = at.INVERSE_FORGETTING, at.SCALE_GAIN, at.AUDITED_LEVEL


@kernel
def clipped(value: float, bound: float) -> float:
    """Return `value` within plus and minus `bound`."""
    return min(max(value, -bound), bound)


@kernel
def as_stored(value: float, single: bool) -> float:
    """Return `value`, rounded to float32 if `single`."""
    return float(np.float32(value)) if single else float(value)


def _sum_loops(values: Wide) -> float:
    total = values[0]  # not from 0.0: a sum of -0.0 keeps its sign
    for value in values[1:]:
        total += value
    return float(total)


@compiled_as(_sum_loops)
def sequential_sum(values: Wide) -> float:
    """Return the sum from the first value to the last; `np.sum` adds in pairs."""
    return float(np.add.accumulate(values)[-1])


def _dot_loops(w: Wide, x: Wide) -> float:
    total = w[0] * x[0]
    for i in range(1, len(w)):
        total += w[i] * x[i]
    return float(total)


@compiled_as(_dot_loops)
def dot(w: Wide, x: Wide) -> float:
    """Return ``w.x``, added up from the first product to the last."""
    return sequential_sum(w * x)


def _regress_loops(p: Wide, w: Wide, x: Wide, z: float) -> None:
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
            p[i, j] = (p[i, j] - gain * px[j]) * INVERSE_FORGETTING
        trace += p[i, i]
    if trace > MAX_TRACE:
        p *= MAX_TRACE / trace


@compiled_as(_regress_loops)
def regress(p: Wide, w: Wide, x: Wide, z: float) -> None:
    """Move the weights `w` towards ``w.x = z``, by recursive least squares.

    With forgetting lambda: ``g = P x / (lambda + x.P x)``, ``w += g (z - w.x)``, ``P = (P - g x'P) / lambda``
    (Haykin, Adaptive Filter Theory, "RLS algorithm"). P is shrunk when its trace exceeds a cap: it grows by
    1 / lambda a step where x is constant, and must not wind up.
    """
    px = np.add.accumulate(p * x[:, None], axis=0)[-1]
    gain = px / (dot(x, px) + FORGETTING)
    w += gain * (z - dot(w, x))
    p -= gain[:, None] * px
    p *= INVERSE_FORGETTING
    trace = sequential_sum(p.diagonal())
    if trace > MAX_TRACE:
        p *= MAX_TRACE / trace


def _score_experts_loops(
    b: Wide, s: Starts, issued: Wide, cand: Wide, actual: float, discount: float
) -> None:
    share = 1.0 / float(b[s[SCORED]])
    discount = max(discount, share)
    experts = len(issued)
    above = float(cand[1]) - actual
    sign = np.sign(float(cand[2]) - actual)
    for k in range(experts):
        error = abs(issued[k] - actual)
        i = s[EXPERT_ERROR] + k
        b[i] += share * (error - b[i])
        i += experts
        b[i] += discount * (error - b[i])
        i = s[EXPERT_SQUARE] + k
        b[i] += share * (error * error - b[i])
        regret = above * (cand[1] - issued[k])
        i = s[REGRET] + k
        b[i] += regret
        i = s[POWER] + k
        b[i] += regret * regret
        regret = sign * (cand[2] - issued[k])
        i = s[REGRET] + experts + k
        b[i] += regret
        i = s[POWER] + experts + k
        b[i] += regret * regret


@compiled_as(_score_experts_loops)
def score_experts(
    b: Wide, s: Starts, issued: Wide, cand: Wide, actual: float, discount: float
) -> None:
    """Score the forecasts `issued` by the experts.

    Keeps the mean absolute, the discounted absolute and the mean squared error of each expert, and of the two
    mixtures the regrets r of ML-Poly (Gaillard, Stoltz, van Erven 2014, "A second-order bound with excess losses",
    algorithm ML-Poly) on the gradient of the loss: ``r = l'(m) (m - f)`` with the mixture's forecast m, the
    expert's f, and l the squared or the absolute error.
    """
    share = 1.0 / float(b[s[SCORED]])
    experts = len(issued)
    error = np.abs(issued - actual)
    i = s[EXPERT_ERROR]
    b[i : i + experts] += share * (error - b[i : i + experts])
    i += experts
    b[i : i + experts] += max(discount, share) * (error - b[i : i + experts])
    i = s[EXPERT_SQUARE]
    b[i : i + experts] += share * (error * error - b[i : i + experts])
    for c in range(2):
        mixed = float(cand[1 + c])
        slope = mixed - actual
        if c == 1:
            slope = np.sign(slope)
        regret = slope * (mixed - issued)
        i = s[REGRET] + c * experts
        b[i : i + experts] += regret
        i = s[POWER] + c * experts
        b[i : i + experts] += regret * regret


@kernel
def aggregate(b: Wide, s: Starts, cand: Wide, actual: float, single: bool) -> None:
    """Move the regrets of both aggregations against their members.

    Bernstein online aggregation (Wintenberger 2017, "Optimal learning with Bernstein online aggregation") on the
    gradient of the absolute and of the squared error: with the regret r of the aggregation against one of its n
    members, ``R += r - eta r^2`` and ``eta = min(1 / (2 max|r|), sqrt(ln n / sum r^2))``.
    """
    mixed = float(cand[AGGREGATION])
    slope = float(np.sign(mixed - actual))
    for member in range(len(MEMBERS)):
        if member == AGGREGATION:
            mixed = float(cand[SQUARED])
            slope = mixed - actual
        regret = slope * (mixed - float(cand[MEMBERS[member]]))
        square = regret * regret
        i = s[MIXED_POWER] + member
        b[i] = as_stored(float(b[i]) + square, single)
        i = s[MIXED_MAX] + member
        b[i] = as_stored(max(float(b[i]), abs(regret)), single)
        b[s[MIXED_REGRET] + member] += regret - rate_of(b, s, member) * square


@kernel
def rate_of(b: Wide, s: Starts, member: int) -> float:
    """Return the learning rate of a member; 0 if it never differed from its aggregation."""
    power, greatest = float(b[s[MIXED_POWER] + member]), float(b[s[MIXED_MAX] + member])
    if power > 0:
        steady = sqrt(LOG_MEMBERS[member // AGGREGATION] / max(power, TINY))
        return min(0.5 / max(greatest, TINY), steady)
    return 0.0


@kernel
def approx_exp(power: float) -> float:
    """Return e to the `power`, at most 0, as ``(1 + y + y^2/2 + y^3/6)^64`` with y a 64th of it.

    The error is at most 0.1 % down to -8, where weights become negligible. Below -60 the result is as at -60.
    """
    y = max(power, MIN_EXPONENT) / 64.0
    y = 1.0 + y * (1.0 + y * (0.5 + y * SIXTH))
    for _ in range(6):
        y *= y
    return y


@kernel
def score_answers(
    b: Wide,
    s: Starts,
    cand: Wide,
    actual: float,
    single: bool,
) -> float:
    """Score the candidates and the two answers; return the error of the second answer."""
    aggregate(b, s, cand, actual, single)
    share = 1.0 / float(b[s[SCORED]])
    error = cand - actual
    i = s[CANDIDATE_ERROR]
    b[i : i + C] += share * (error * error - b[i : i + C])
    i = s[ERROR]
    b[i] += share * (abs(error[AGGREGATION]) - b[i])
    away = float(-error[SQUARED])
    b[i + 1] += share * (away * away - b[i + 1])
    return away


@kernel
def track(
    b: Wide,
    s: Starts,
    error: float,
    rate: float,
    gain: float,
    held: int,
    single: bool,
) -> None:
    """Move the quantiles and the scale, and count the intervals that held the value.

    Online quantile regression: a quantile moves by the gradient of the pinball loss, in units of an exponentially
    weighted absolute error: ``q += eta (tau - 1[e < q s])``. `held` (0 or 1): whether the issued interval of the
    audited level held; -1: decide here.
    """
    share = 1.0 / float(b[s[SCORED]])
    rate = 2.0 * max(rate, share)
    scale = float(b[s[SCALE]])
    for i in range(L):
        q = s[QUANTILE] + 2 * i
        low, high = float(b[q]), float(b[q + 1])
        lower, upper = as_stored(low * scale, single), as_stored(high * scale, single)
        inside = error >= lower and error <= upper
        if held >= 0 and i == AUDITED:
            inside = held == 1
        if inside:
            b[s[COVERED] + i] += 1.0
        if scale > 0:
            tail = TAILS[i]
            b[q] = min(0.0, low + rate * (tail - (1.0 if error < lower else 0.0)))
            b[q + 1] = max(0.0, high + rate * ((1.0 - tail) - (1.0 if error <= upper else 0.0)))
    b[s[SCALE]] += max(gain, share) * (abs(error) - scale)


@kernel
def mix_members(b: Wide, s: Starts, first: int, stop: int, target: int) -> int:
    """Fill in the aggregation `target` of these members; return the candidate that weighs most in it."""
    cand = s[CANDIDATE]
    rates, gains = np.empty(stop), np.empty(stop)
    top = -np.inf
    for member in range(first, stop):
        rate = rate_of(b, s, member)
        gain = rate * float(b[s[MIXED_REGRET] + member])
        top = max(top, gain)
        rates[member] = rate
        gains[member] = gain
    total = 0.0
    mix = 0.0
    heaviest = 0.0
    chosen = MEMBERS[first]
    for member in range(first, stop):
        weight = float(rates[member]) * approx_exp(float(gains[member]) - top)
        total += weight
        mix += weight * float(b[cand + MEMBERS[member]])
        if weight > heaviest:
            heaviest = weight
            chosen = MEMBERS[member]
    b[cand + target] = mix / total if total > 0 else float(b[cand + MEMBERS[first]])
    return chosen


def _mixture_loops(regret: Wide, power: Wide, issued: Wide, floor: float, default: float) -> float:
    total = 0.0
    mix = 0.0
    for k in range(len(issued)):
        weight = max(0.0, regret[k]) / (power[k] + floor)
        total += weight
        mix += weight * issued[k]
    return mix / total if total > 0 else default


@compiled_as(_mixture_loops)
def mixture(regret: Wide, power: Wide, issued: Wide, floor: float, default: float) -> float:
    """Return the mixture of the forecasts `issued` with the weights of ML-Poly; `default` if all are 0."""
    weight = np.maximum(0.0, regret) / (power + floor)
    total = sequential_sum(weight)
    return dot(weight, issued) / total if total > 0 else default


@kernel
def answer(b: Wide, s: Starts, issued: Wide, variance: float, single: bool) -> None:
    """Fill in the candidates' forecasts from those of the experts, and the answers.

    The candidates: the experts of the lowest mean absolute error, of the lowest error lately and of the lowest
    mean squared error; the mixtures with the weights of ML-Poly, ``w ~ max(R, 0) / (c + sum r^2)`` with c the
    variance of the series (squared for the squared error) in place of 1, so that units do not matter; and two
    aggregations of these (`nws.engine.layout.MEMBERS`), with the weights ``w ~ eta exp(eta R)``. The aggregations
    are the answers.
    """
    experts = len(issued)
    i = s[EXPERT_ERROR]
    best = float(issued[b[i : i + experts].argmin()])
    lately = issued[b[i + experts : i + 2 * experts].argmin()]
    cand = s[CANDIDATE]
    b[cand] = best
    b[cand + 3] = lately
    for c in range(2):
        floor = (variance * variance if c == 0 else variance) + TINY
        i = s[REGRET] + c * experts
        j = s[POWER] + c * experts
        regret, power = b[i : i + experts], b[j : j + experts]
        b[cand + 1 + c] = mixture(regret, power, issued, floor, best)
    i = s[EXPERT_SQUARE]
    b[cand + LOWEST_SQUARE] = issued[b[i : i + experts].argmin()]
    if single:
        b[cand : cand + C] = b[cand : cand + C].astype(np.float32)
    b[s[CHOSEN]] = mix_members(b, s, 0, AGGREGATION, AGGREGATION)
    b[cand + AGGREGATION] = as_stored(b[cand + AGGREGATION], single)
    b[s[CHOSEN] + 1] = mix_members(b, s, AGGREGATION, len(MEMBERS), SQUARED)
    b[s[FINAL]] = b[cand + AGGREGATION]
    b[s[FINAL] + 1] = b[cand + SQUARED]


SAMPLES = at.WIDE["samples"].start
LOW, HIGH = at.WIDE["low"].start, at.WIDE["high"].start
AVERAGE, VARIANCE = at.WIDE["mean"].start, at.WIDE["variance"].start
AR_MEAN, AR_VARIANCE = at.WIDE["ar_mean"].start, at.WIDE["ar_variance"].start
AR_COVARIANCE, TUNING = at.WIDE["ar_covariance"].start, at.WIDE["tuning"].start
WIDTH, MEDIANS = at.WIDE["width"].start, at.WIDE["medians"].start
RECENT, EXPERT = at.WIDE["recent"].start, at.WIDE["expert"].start
MAX_WINDOW = at.RECENT
TUNING_RATE, TRIM = at.TUNING_RATE, 0.30
GAINS = np.array(at.GAINS)
MIN_WIDTH, MAX_WIDTH, WIDTH_OFFSET = (5, 21), (21, 51), (1, 5)
AR_GAINS = (0.02, 0.10)


def _order_loops(recent: Wide) -> tuple[Wide, Whole]:
    # Each value is put at once where it belongs: compiled to vector instructions and without a branch, half the
    # time of an insertion sort.
    count = len(recent)
    ordered, ages = np.empty(count), np.empty(count, dtype=np.int64)
    for i in range(count):
        value = recent[i]
        place = 0
        for j in range(i):
            place += 1 if recent[j] <= value else 0
        for j in range(i + 1, count):
            place += 1 if recent[j] < value else 0
        ordered[place] = value
        ages[place] = i
    return ordered, ages


@compiled_as(_order_loops)
def order_latest(recent: Wide) -> tuple[Wide, Whole]:
    """Return the latest values, newest first, in the order of their size, and their ages."""
    ages = np.argsort(recent, kind="stable")
    return recent[ages], ages


def _latest_loops(ordered: Wide, ages: Whole, width: int) -> Wide:
    chosen = np.empty(len(ordered) + 1)
    place = 0
    for i in range(len(ordered)):
        chosen[place] = ordered[i]
        place += 1 if ages[i] < width else 0
    return chosen[:place]


@compiled_as(_latest_loops)
def choose_latest(ordered: Wide, ages: Whole, width: int) -> Wide:
    """Return those of the ordered values that are among the latest `width`, in order."""
    return ordered[ages < width]


@kernel
def median(ordered: Wide) -> float:
    """Return the median of ordered values."""
    width = len(ordered)
    return float(ordered[(width - 1) // 2] + ordered[width // 2]) / 2.0


@kernel
def trimmed_mean(ordered: Wide, share: float) -> float:
    """Return the mean of ordered values without this share of them at either end."""
    cut = int(share * len(ordered))
    return sequential_sum(ordered[cut : len(ordered) - cut]) / float(len(ordered) - 2 * cut)


@kernel
def widths(kind: int, width: int) -> tuple[int, int, int]:
    """Return the present, the shorter and the longer width of an adaptive median."""
    shorter = max(MIN_WIDTH[kind], width - WIDTH_OFFSET[kind])
    return width, shorter, min(MAX_WIDTH[kind], width + WIDTH_OFFSET[kind])


@kernel
def adapt(wide: Wide, kind: int, value: float) -> None:
    """Take the width with the median nearest to `value`."""
    m = MEDIANS + 3 * kind
    options = widths(kind, int(wide[WIDTH + kind]))
    best = 0
    for i in range(1, 3):
        if abs(wide[m + i] - value) < abs(wide[m + best] - value):
            best = i
    wide[WIDTH + kind] = options[best]


@kernel
def forecast_by_windows(wide: Wide, samples: int) -> None:
    """Fill in the medians and means over the latest values."""
    f = wide[EXPERT : EXPERT + E]
    ordered, ages = order_latest(wide[RECENT : RECENT + min(samples, MAX_WINDOW)])
    f[15] = trimmed_mean(ordered, TRIM)
    part = choose_latest(ordered, ages, 31)
    f[10] = median(part)
    f[12] = trimmed_mean(part, 0.0)
    f[14] = trimmed_mean(part, TRIM)
    part = choose_latest(ordered, ages, 5)
    f[11] = median(part)
    f[13] = trimmed_mean(part, 0.0)
    for kind in range(2):
        options = widths(kind, int(wide[WIDTH + kind]))
        for i in range(3):
            wide[MEDIANS + 3 * kind + i] = median(choose_latest(ordered, ages, options[i]))
        f[16 + kind] = wide[MEDIANS + 3 * kind]


@kernel
def follow(wide: Wide, value: float, last: float, samples: float) -> None:
    """Move the EW-AR(1) and the self-tuning smoothing by the second or a later value."""
    f = wide[EXPERT : EXPERT + E]
    for i in range(2):
        gain = max(AR_GAINS[i], 1.0 / samples)
        mean, covariance = float(wide[AR_MEAN + i]), float(wide[AR_COVARIANCE + i])
        variance = float(wide[AR_VARIANCE + i])
        before = last - mean
        mean += gain * (value - mean)
        after = value - mean
        covariance += gain * (before * after - covariance)
        variance += gain * (before * before - variance)
        phi = 0.0
        if variance > 0:
            phi = clipped(covariance / variance, 0.999)
        f[18 + i] = mean + phi * after
        wide[AR_MEAN + i] = mean
        wide[AR_COVARIANCE + i] = covariance
        wide[AR_VARIANCE + i] = variance
    level, gain = float(wide[TUNING]), float(wide[TUNING + 1])
    slope, power = float(wide[TUNING + 2]), float(wide[TUNING + 3])
    error = value - level
    wide[TUNING] = level + gain * error
    if power > 0:
        change = TUNING_RATE * clipped(error * slope / power, 1.0)
        wide[TUNING + 1] = min(max(gain + change, 0.01), 0.99)
    wide[TUNING + 2] = (1.0 - gain) * slope + error
    wide[TUNING + 3] = power + max(0.02, 1.0 / samples) * (error * error - power)
    f[20] = wide[TUNING]


@kernel
def take(wide: Wide, value: float) -> None:
    """Give `value` to the experts."""
    samples = float(wide[SAMPLES]) + 1.0
    wide[SAMPLES] = samples
    f = wide[EXPERT : EXPERT + E]
    last = float(f[0])
    if samples == 1.0:
        f[:] = value
        wide[LOW] = value
        wide[HIGH] = value
        wide[AVERAGE] = value
        wide[TUNING] = value
        wide[AR_MEAN : AR_MEAN + 2] = value
    else:
        gain = max(0.02, 1.0 / samples)
        away = value - float(wide[AVERAGE])
        wide[AVERAGE] += gain * away
        wide[VARIANCE] = (1.0 - gain) * (float(wide[VARIANCE]) + gain * away * away)
        wide[LOW] = min(float(wide[LOW]), value)
        wide[HIGH] = max(float(wide[HIGH]), value)
        adapt(wide, 0, value)
        adapt(wide, 1, value)
        follow(wide, value, last, samples)
    f[0] = value
    f[1] += (value - f[1]) / samples
    f[2:10] += GAINS * (value - f[2:10])
    wide[RECENT + 1 : RECENT + MAX_WINDOW] = wide[RECENT : RECENT + MAX_WINDOW - 1].copy()
    wide[RECENT] = value
    forecast_by_windows(wide, int(samples))


AGE = at.WIDE["age"].start
AR_X, AR_W, AR_P = (at.WIDE[name].start for name in ("ar_x", "ar_w", "ar_p"))
LAG, LAG_X, LAG_W, LAG_P = (at.WIDE[name].start for name in ("lag", "lag_x", "lag_w", "lag_p"))
HISTORY, MAX_HORIZON, ORDER, LAGS = at.HISTORY, at.MAX_HORIZON, at.ORDER, at.LAGS
MATRICES, FURTHER, FURTHER_SIZE = at.MATRICES, at.FURTHER, at.FURTHER_SIZE
SLOT, MAX_SLOTS = at.SLOT, at.MAX_SLOTS
VALID, PAST = at.NARROW["valid"].start, at.NARROW["past"].start
DIRECT_W = at.MEAN["direct_w"].start
STEP_DISCOUNT, MEAN_DISCOUNT = at.STEP_DISCOUNT, at.MEAN_DISCOUNT
STEP_RATE, MEAN_RATE, MIN_SCORED = at.STEP_RATE, at.MEAN_RATE, at.MIN_SCORED
HORIZON_EXPERTS, DIRECT = np.array(at.HORIZON_EXPERTS), np.array(at.DIRECT)
DIRECT_PAST = np.array([at.HORIZON_EXPERTS.index(expert) for expert in at.DIRECT])
FIRST_LAGS = np.arange(1.0, ORDER + 1.0)
BACKWARDS = np.arange(MAX_HORIZON)
ANALOG, FAR = at.EXPERTS.index("analog_3"), np.int32(2**31 - 1)
STRETCH, PLACE_BITS = 32, 32
PLACE = (1 << PLACE_BITS) - 1
PATTERNS, PATTERN, FRAME_PATTERN = at.PATTERNS, at.PATTERN, at.FRAME_PATTERN
NEIGHBOURS, FRAME_NEIGHBOURS, COMPARABLE = at.NEIGHBOURS, at.FRAME_NEIGHBOURS, at.COMPARABLE


@kernel
def inverse_deviation(wide: Wide) -> float:
    """Return 1 / standard deviation, and 0 where that is 0."""
    sd = sqrt(wide[VARIANCE])
    return 1.0 / sd if sd > 0 else 0.0


def _standardised_loops(values: Wide, wide: Wide) -> Wide:
    mean, inverse = wide[AVERAGE], inverse_deviation(wide)
    within = np.empty(len(values))
    for i in range(len(values)):
        within[i] = clipped((values[i] - mean) * inverse, CLIP)
    return within


@compiled_as(_standardised_loops)
def standardised(values: Wide, wide: Wide) -> Wide:
    """Return values in deviations from the mean, within plus and minus `CLIP`."""
    away = (values - wide[AVERAGE]) * inverse_deviation(wide)
    within: Wide = np.minimum(np.maximum(away, -CLIP), CLIP)
    return within


@kernel
def learn(wide: Wide, value: float) -> None:
    """Score the forecasts of `value`, and move the regressions towards it."""
    b = wide[STEP_START:MATRICES]
    b[0] += 1.0
    c = STEP_AT[CANDIDATE]
    cand = b[c : c + C]
    score_experts(b, STEP_AT, wide[EXPERT : EXPERT + E], cand, value, STEP_DISCOUNT)
    error = score_answers(b, STEP_AT, cand, value, False)
    track(b, STEP_AT, error, STEP_RATE, SCALE_GAIN, -1, False)
    z = clipped((value - float(wide[AVERAGE])) * inverse_deviation(wide), CLIP)
    p = wide[AR_P : AR_P + ORDER * ORDER].reshape(ORDER, ORDER)
    regress(p, wide[AR_W : AR_W + ORDER], wide[AR_X : AR_X + ORDER], z)
    p = wide[LAG_P : LAG_P + LAGS * LAGS].reshape(LAGS, LAGS)
    regress(p, wide[LAG_W : LAG_W + LAGS], wide[LAG_X : LAG_X + LAGS], z)


def _look_back_loops(wide: Wide, narrow: Narrow, tick: int, x: Wide, lags: Wide) -> None:
    mean, inverse = wide[AVERAGE], inverse_deviation(wide)
    for i in range(len(lags)):
        past = mean
        if lags[i] <= wide[AGE] + 1.0:
            past = float(narrow[(tick + 1 - int(lags[i])) % HISTORY])
        x[i] = clipped((past - mean) * inverse, CLIP)


@compiled_as(_look_back_loops)
def look_back(wide: Wide, narrow: Narrow, tick: int, x: Wide, lags: Wide) -> None:
    """Fill in the regressors `x`: the values `lags` steps before the next value, standardised."""
    rows = (tick + 1 - lags.astype(np.int64)) % HISTORY
    past = np.where(lags <= wide[AGE] + 1.0, narrow[rows].astype(np.float64), wide[AVERAGE])
    x[:] = standardised(past, wide)


@kernel
def forecast_of(wide: Wide, w: Wide, x: Wide) -> float:
    """Return the forecast of a regression, within the range of the values so far."""
    deviations = clipped(dot(w, x), CLIP)
    forecast = float(wide[AVERAGE]) + sqrt(wide[VARIANCE]) * deviations
    return min(max(forecast, float(wide[LOW])), float(wide[HIGH]))


def _latest_values_loops(narrow: Narrow, tick: int, count: int) -> Narrow:
    latest = np.empty(count, dtype=np.float32)
    newest = tick % HISTORY
    since = min(count, newest + 1)
    for i in range(since):
        latest[i] = narrow[newest - i]
    for i in range(since, count):
        latest[i] = narrow[newest + HISTORY - i]
    return latest


@compiled_as(_latest_values_loops)
def latest_values(narrow: Narrow, tick: int, count: int) -> Narrow:
    """Return the latest `count` values of the history, the newest first."""
    newest = tick % HISTORY
    since, before = narrow[: newest + 1][::-1], narrow[newest + 1 : HISTORY][::-1]
    latest: Narrow = np.concatenate((since, before))[:count]
    return latest


def _running_sums_loops(values: Narrow) -> Wide:
    sums = np.empty(len(values) + 1)
    sums[0] = 0.0
    total = np.float64(values[0])  # float() of a float32 stays one in numba
    sums[1] = total
    for i in range(1, len(values)):
        total += values[i]
        sums[i + 1] = total
    return sums


@compiled_as(_running_sums_loops)
def running_sums(values: Narrow) -> Wide:
    """Return the sums of the first 0, 1, .. of the values."""
    sums = np.zeros(len(values) + 1)
    np.add.accumulate(values, dtype=np.float64, out=sums[1:])
    return sums


def _add_distance_loops(past: Narrow, first: int, total: Narrow) -> None:
    # Plain loops over slices: numba makes vector instructions of these, but not of an array expression.
    a, b, c = past[first], past[first + 1], past[first + 2]
    of_a, of_b, of_c = past[first + 1 :], past[first + 2 :], past[first + 3 :]
    for i in range(len(total)):
        total[i] += abs(of_a[i] - a) + abs(of_b[i] - b) + abs(of_c[i] - c)


@compiled_as(_add_distance_loops)
def add_distance(past: Narrow, first: int, total: Narrow) -> None:
    """Add to `total` the distance of three values, from the `first` on, for stretches of every lag."""
    lags = len(total)
    total += (
        np.abs(past[first + 1 : first + 1 + lags] - past[first])
        + np.abs(past[first + 2 : first + 2 + lags] - past[first + 1])
        + np.abs(past[first + 3 : first + 3 + lags] - past[first + 2])
    )


@kernel
def _bound_loops(distance: Bits, first: int, stop: int, least: Bits, count: int) -> int:
    """Return an upper bound of `count` distances; fill in the `least` distance of each stretch."""
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
    for i in range(stretches):  # by rank: vector instructions, where a sort has branches
        below, reached = 0, 0
        for j in range(stretches):
            below += 1 if least[j] < least[i] else 0
            reached += 1 if least[j] <= least[i] else 0
        if below < count <= reached:
            return int(least[i])
    return int(FAR)


def _nearest_loops(distance: Bits, first: int, stop: int, nearest: Whole, known: int) -> int:
    count = len(nearest)
    least = np.empty((stop - first) // STRETCH + 1, dtype=np.int32)
    if known == count:
        limit = nearest[count - 1] >> PLACE_BITS
        least[:] = 0
    else:
        limit = _bound_loops(distance, first, stop, least, count)
    for stretch in range((stop - first + STRETCH - 1) // STRETCH):
        if least[stretch] > limit:
            continue
        start = first + stretch * STRETCH
        for i in range(start, min(start + STRETCH, stop)):
            if distance[i] > limit:
                continue
            key = np.int64(distance[i]) << PLACE_BITS | i
            if known == count:
                if key > nearest[count - 1]:
                    continue
                known -= 1
            j = known
            while j > 0 and nearest[j - 1] > key:
                nearest[j] = nearest[j - 1]
                j -= 1
            nearest[j] = key
            known += 1
            if known == count:
                limit = min(limit, nearest[count - 1] >> PLACE_BITS)
    return known


@compiled_as(_nearest_loops)
def add_nearest(distance: Bits, first: int, stop: int, nearest: Whole, known: int) -> int:
    """Take the places from `first` to `stop` into the `nearest`, `known` so far; return how many there are.

    They stand in the order of their distance, of equals the first place first: each is the bits of a distance,
    never negative and so ordered as whole numbers are, before those of its place.
    """
    part, count = distance[first:stop], len(nearest)
    limit = FAR
    if known == count:
        limit = nearest[count - 1] >> PLACE_BITS
    elif len(part) > count:
        limit = np.partition(part, count - 1)[count - 1]
    near = (part <= limit).nonzero()[0]
    keys = (part[near].astype(np.int64) << PLACE_BITS) | (near + first)
    keys = np.sort(np.concatenate((nearest[:known], keys)))[:count]
    nearest[: len(keys)] = keys
    return len(keys)


def _median_loops(values: Wide) -> float:
    for i in range(1, len(values)):
        value = values[i]
        j = i
        while j > 0 and values[j - 1] > value:
            values[j] = values[j - 1]
            j -= 1
        values[j] = value
    return float(values[len(values) // 2])


@compiled_as(_median_loops)
def median_of_odd(values: Wide) -> float:
    """Return the median of an odd number of values, which may be sorted in place."""
    return float(np.sort(values)[len(values) // 2])


def _means_after_loops(sums: Wide, nearest: Whole, horizon: int) -> Wide:
    means = np.empty(len(nearest))
    for i in range(len(nearest)):
        end = (nearest[i] & PLACE) + 1
        means[i] = (sums[end] - sums[end - horizon]) / float(horizon)
    return means


@compiled_as(_means_after_loops)
def means_after(sums: Wide, nearest: Whole, horizon: int) -> Wide:
    """Return the means of the `horizon` values after each of the nearest stretches."""
    ends = (nearest & PLACE) + 1
    means: Wide = (sums[ends] - sums[ends - horizon]) / float(horizon)
    return means


def _values_after_loops(past: Narrow, nearest: Whole) -> Wide:
    values = np.empty(len(nearest))
    for i in range(len(nearest)):
        values[i] = past[nearest[i] & PLACE]
    return values


@compiled_as(_values_after_loops)
def values_after(past: Narrow, nearest: Whole) -> Wide:
    """Return the value after each of the nearest stretches."""
    values: Wide = past[nearest & PLACE].astype(np.float64)
    return values


@kernel
def forecast_by_analogs(
    wide: Wide, narrow: Narrow, tick: int, horizons: Whole, followed: Wide
) -> None:
    """Fill in the forecasts of the analogs, one step ahead and for the further horizons.

    An analog forecasts the median of the values that followed the stretches of the history nearest to the latest
    values: the distance is the sum of the absolute differences, value by value (Lorenz 1969, "Atmospheric
    predictability as revealed by naturally occurring analogues"). With too few stretches to compare it repeats the
    last value.
    """
    f = wide[EXPERT : EXPERT + E]
    f[ANALOG : ANALOG + 3] = f[0]
    followed[:] = f[0]
    count = min(int(wide[AGE]) + 1, HISTORY)
    lags = count - PATTERN
    if lags < COMPARABLE:
        return
    past = latest_values(narrow, tick, count)
    distance = np.zeros((3, lags), dtype=np.float32)
    add_distance(past, 0, distance[0])
    distance[1] = distance[0]
    add_distance(past, 3, distance[1])
    add_distance(past, 6, distance[2])
    add_distance(past, 9, distance[2])
    distance[2] += distance[1]
    bits = distance.view(np.int32)
    most = FRAME_NEIGHBOURS if len(followed) > 0 else NEIGHBOURS
    nearest = np.empty(most, dtype=np.int64)
    sums = running_sums(past)
    known, stop = 0, lags
    # Stretches for a horizon serve all shorter horizons too: start with the longest, then add those of smaller
    # lags.
    for place in range(len(followed) - 1, -1, -1):
        horizon = horizons[place + 1]
        first = min(horizon - 1, stop)
        known = add_nearest(bits[FRAME_PATTERN], first, stop, nearest, known)
        stop = first
        if lags - horizon + 1 >= most:
            followed[place] = median_of_odd(means_after(sums, nearest, horizon))
    add_nearest(bits[FRAME_PATTERN], 0, stop, nearest, known)
    others = np.empty(NEIGHBOURS, dtype=np.int64)
    for row in range(3):
        if row == FRAME_PATTERN:
            others[:] = nearest[:NEIGHBOURS]
        else:
            add_nearest(bits[row], 0, lags, others, 0)
        value = median_of_odd(values_after(past, others))
        f[ANALOG + row] = min(max(value, float(wide[LOW])), float(wide[HIGH]))


def _latest_totals_loops(narrow: Narrow, tick: int) -> tuple[Wide, Wide]:
    totals, counts = np.empty(MAX_HORIZON), np.empty(MAX_HORIZON)
    for back in range(MAX_HORIZON):
        valid = float(narrow[VALID + (tick - back) % MAX_HORIZON])
        value = float(narrow[(tick - back) % HISTORY]) if valid > 0 else 0.0
        totals[back] = totals[back - 1] + value if back else value
        counts[back] = counts[back - 1] + valid if back else valid
    return totals, counts


@compiled_as(_latest_totals_loops)
def latest_totals(narrow: Narrow, tick: int) -> tuple[Wide, Wide]:
    """Return the sums and the counts of the measured values among the latest 1, 2, .. values."""
    valid = narrow[VALID + (tick - BACKWARDS) % MAX_HORIZON].astype(np.float64)
    latest = np.where(valid > 0, narrow[(tick - BACKWARDS) % HISTORY].astype(np.float64), 0.0)
    return np.add.accumulate(latest), np.add.accumulate(valid)


@kernel
def advance_horizons(
    wide: Wide, narrow: Narrow, horizons: Whole, tick: int, followed: Wide
) -> None:
    """Score the means that are complete by now, and answer every further horizon anew."""
    totals, counts = latest_totals(narrow, tick)
    b = np.empty(FURTHER_SIZE)
    ring = FURTHER + (len(horizons) - 1) * FURTHER_SIZE
    for j in range(len(horizons) - 1):
        horizon = int(horizons[j + 1])
        every = max(1, horizon // MAX_SLOTS)
        places = horizon // every
        o = FURTHER + j * FURTHER_SIZE
        b[:] = narrow[o : o + FURTHER_SIZE]
        total, count = float(totals[horizon - 1]), float(counts[horizon - 1])
        # The slot holds the answer of `horizon` ticks ago, which the mean just now completes; it is
        # scored first and then overwritten by the new answer. Between two scorings none is kept.
        slot = ring + SLOT * ((tick // every) % places) if tick % every == 0 else -1
        if slot >= 0 and wide[AGE] >= horizon and 2.0 * count >= horizon:
            m = MATRICES + j * D * D
            p = wide[m : m + D * D].reshape(D, D)
            past = PAST + K * ((tick - horizon) % MAX_HORIZON)
            score_horizon(wide, narrow, b, slot, past, p, horizon, total / count)
            narrow[o : o + FURTHER_SIZE] = b
            b[:] = narrow[o : o + FURTHER_SIZE]
        answer_horizon(wide, narrow, b, slot, followed[j])
        # A horizon that was hardly ever scored repeats the one-step answer.
        if b[0] * every < MIN_SCORED:
            final = STEP_START + STEP_AT[FINAL]
            b[MEAN_AT[FINAL] : MEAN_AT[FINAL] + 2] = wide[final : final + 2]
        narrow[o : o + FURTHER_SIZE] = b
        ring += SLOT * places
    copy_chosen(
        wide[EXPERT : EXPERT + E], HORIZON_EXPERTS, narrow, PAST + K * (tick % MAX_HORIZON)
    )


def _copy_chosen_loops(values: Wide, places: Whole, block: Any, start: int) -> None:
    for i in range(len(places)):
        block[start + i] = values[places[i]]


@compiled_as(_copy_chosen_loops)
def copy_chosen(values: Wide, places: Whole, block: Any, start: int) -> None:
    """Copy the values at these places to a block, from `start` on."""
    block[start : start + len(places)] = values[places]


@kernel
def score_horizon(
    wide: Wide,
    narrow: Narrow,
    b: Wide,
    slot: int,
    past: int,
    p: Wide,
    horizon: int,
    actual: float,
) -> None:
    """Score the forecasts of `actual`, and move the direct regression towards it."""
    kept = narrow[slot : slot + SLOT].astype(np.float64)
    issued = np.empty(M)
    issued[:K] = narrow[past : past + K]
    issued[K:] = kept[OWN_AT:ENDS_AT]
    held = 1 if kept[ENDS_AT] <= actual <= kept[ENDS_AT + 1] else 0
    every = max(1, horizon // MAX_SLOTS)
    # Errors of overlapping means come in runs. At the one-step rate the tracker follows each run,
    # and intervals over 60 samples cover too little.
    share = sqrt(every / horizon)
    b[0] += 1.0
    score_experts(b, MEAN_AT, issued, kept[:C], actual, MEAN_DISCOUNT * every)
    error = score_answers(b, MEAN_AT, kept[:C], actual, True)
    track(b, MEAN_AT, error, MEAN_RATE * share, SCALE_GAIN * share, held, True)
    x = np.ones(D)
    copy_chosen(issued, DIRECT_PAST, x, 0)
    x[: D - 1] = standardised(x[: D - 1], wide)
    z = clipped((actual - float(wide[AVERAGE])) * inverse_deviation(wide), CLIP)
    regress(p, b[DIRECT_W : DIRECT_W + D], x, z)


@kernel
def answer_horizon(wide: Wide, narrow: Narrow, b: Wide, slot: int, followed: float) -> None:
    """Answer a horizon, `followed` being the analogs'; keep the answer in a slot, if there is one."""
    f = wide[EXPERT : EXPERT + E]
    low, high = float(wide[LOW]), float(wide[HIGH])
    issued = np.empty(M)
    copy_chosen(f, HORIZON_EXPERTS, issued, 0)
    w = b[DIRECT_W : DIRECT_W + D]
    x = np.empty(D - 1)
    copy_chosen(f, DIRECT, x, 0)
    z = dot(w[: D - 1], standardised(x, wide)) + float(w[D - 1])
    direct = float(wide[AVERAGE]) + sqrt(wide[VARIANCE]) * clipped(z, CLIP)
    issued[K] = min(max(direct, low), high)
    issued[K + 1] = min(max(float(followed), low), high)
    answer(b, MEAN_AT, issued, float(wide[VARIANCE]), True)
    if slot < 0:
        return
    c = MEAN_AT[CANDIDATE]
    narrow[slot : slot + C] = b[c : c + C]
    narrow[slot + OWN_AT : slot + ENDS_AT] = issued[K:]
    q = MEAN_AT[QUANTILE] + 2 * AUDITED
    scale = np.float32(b[MEAN_AT[SCALE]])
    for end in range(2):
        narrow[slot + ENDS_AT + end] = np.float32(b[c + SQUARED]) + np.float32(b[q + end]) * scale


@kernel
def step(wide: Wide, narrow: Narrow, horizons: Whole, tick: int, value: float) -> None:
    """Take in the value of `tick`, in the engine's unit; NaN: it is missing."""
    known = value == value  # noqa: PLR0124 - NaN is what differs from itself
    if known:
        if wide[SAMPLES] > 0:
            learn(wide, value)
            wide[AGE] += 1.0
        take(wide, value)
    elif wide[SAMPLES] > 0:
        wide[AGE] += 1.0
        value = float(wide[STEP_START + STEP_AT[FINAL]])
    else:
        value = 0.0
    narrow[tick % HISTORY] = value
    narrow[VALID + tick % MAX_HORIZON] = 1.0 if known else 0.0
    f = wide[EXPERT : EXPERT + E]
    x, lags = wide[AR_X : AR_X + ORDER], FIRST_LAGS
    look_back(wide, narrow, tick, x, lags)
    f[21] = forecast_of(wide, wide[AR_W : AR_W + ORDER], x)
    x, lags = wide[LAG_X : LAG_X + LAGS], wide[LAG : LAG + LAGS]
    look_back(wide, narrow, tick, x, lags)
    f[22] = forecast_of(wide, wide[LAG_W : LAG_W + LAGS], x)
    followed = np.empty(len(horizons) - 1)
    forecast_by_analogs(wide, narrow, tick, horizons, followed)
    answer(wide[STEP_START:MATRICES], STEP_AT, f, float(wide[VARIANCE]), False)
    if len(horizons) > 1:
        advance_horizons(wide, narrow, horizons, tick, followed)
