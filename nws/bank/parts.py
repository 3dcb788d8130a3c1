"""The parts of a step of one series, for numba: plain loops over the fields of its two blocks.

`nws.bank.vectors` says the same for many series at once; the two do the same operations on the
same numbers in the same order (no fused or reordered arithmetic), hence agree bit for bit.
Formulas and sources stand there.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nws.bank import layout as at

P = ParamSpec("P")
R = TypeVar("R")
Wide = NDArray[np.float64]
Narrow = NDArray[np.float32]
Block = Wide | Narrow


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Return `function` compiled, with IEEE arithmetic as it is written."""
    return cast("Callable[P, R]", njit(error_model="numpy")(function))


def _starts(fields: dict[str, at.Field]) -> NDArray[np.int64]:
    return np.array([field.start for field in fields.values()], dtype=np.int64)


C, D, E, K, L = at.C, at.D, at.E, at.K, at.L
LEVELS = np.array(at.LEVELS)
SCORED, ERRED, REGRET, POWER, CANDIDATE, CANDIDATE_ERROR = range(6)
FINAL, CHOSEN, ERROR, SCALE, QUANTILE, COVERED = range(6, 12)
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
    """Move the weights `w` towards w.x = z (`nws.bank.vectors.regress`)."""
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
        i = o + s[ERRED] + k
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
def score_answers(
    b: Block, o: int, s: NDArray[np.int64], cand: Block, first: int, second: int, actual: float
) -> float:
    """Score the candidates and the two answers; return the error of the second answer."""
    share = 1.0 / float(b[o + s[SCORED]])
    for c in range(C):
        error = abs(cand[c] - actual)
        i = o + s[CANDIDATE_ERROR] + c
        b[i] += share * (error - b[i])
        i += C
        b[i] += share * (error * error - b[i])
    error = abs(cand[first] - actual)
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
def answer(b: Block, o: int, s: NDArray[np.int64], issued: Block, variance: float) -> None:
    """Fill in the candidates' forecasts and which of them is the answer (`vectors.answer`)."""
    experts = len(issued)
    best = 0
    lately = 0
    for k in range(1, experts):
        if b[o + s[ERRED] + k] < b[o + s[ERRED] + best]:
            best = k
        if b[o + s[ERRED] + experts + k] < b[o + s[ERRED] + experts + lately]:
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
    first = 0
    second = 1
    for c in range(1, C):
        if b[o + s[CANDIDATE_ERROR] + c] < b[o + s[CANDIDATE_ERROR] + first]:
            first = c
        if b[o + s[CANDIDATE_ERROR] + C + c] < b[o + s[CANDIDATE_ERROR] + C + second]:
            second = c
    b[o + s[CHOSEN]] = first
    b[o + s[CHOSEN] + 1] = second
    b[o + s[FINAL]] = b[cand + first]
    b[o + s[FINAL] + 1] = b[cand + second]
