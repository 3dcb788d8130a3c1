"""One step of one series, for numba, in the order of `nws.bank.vectors`; and many steps of many."""

import zlib
from collections.abc import Callable
from math import sqrt
from pathlib import Path
from typing import Final, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nws.bank import layout as at
from nws.bank.experts import AVERAGE, EXPERT, HIGH, LOW, SAMPLES, VARIANCE, take
from nws.bank.parts import (
    CANDIDATE,
    CHOSEN,
    CLIP,
    FINAL,
    MEAN_AT,
    QUANTILE,
    SCALE,
    SCALE_GAIN,
    SCORED,
    STEP_AT,
    C,
    D,
    E,
    K,
    Narrow,
    Wide,
    answer,
    clipped,
    compiled,
    regress,
    score_answers,
    score_experts,
    track,
)

Step = Callable[[Wide, Narrow, NDArray[np.int64], int, Wide], int]

AGE = at.WIDE["age"].start
AR_X, AR_W, AR_P = (at.WIDE[name].start for name in ("ar_x", "ar_w", "ar_p"))
LAG, LAG_X, LAG_W, LAG_P = (at.WIDE[name].start for name in ("lag", "lag_x", "lag_w", "lag_p"))
HISTORY, LONGEST, ORDER, LAGS = at.HISTORY, at.LONGEST, at.ORDER, at.LAGS
MATRICES, RUNGS, RUNG_SIZE, SLOT, SLOTS = at.MATRICES, at.RUNGS, at.RUNG_SIZE, at.SLOT, at.SLOTS
VALID, PAST = at.NARROW["valid"].start, at.NARROW["past"].start
DIRECT_W, LEVEL = at.MEAN["direct_w"].start, at.CERTIFIED
STEP_DISCOUNT, MEAN_DISCOUNT = at.STEP_DISCOUNT, at.MEAN_DISCOUNT
STEP_RATE, MEAN_RATE, TRUSTED = at.STEP_RATE, at.MEAN_RATE, at.TRUSTED
LADDER_EXPERTS, DIRECT = np.array(at.LADDER_EXPERTS), np.array(at.DIRECT)
DIRECT_PAST = np.array([at.LADDER_EXPERTS.index(expert) for expert in at.DIRECT])
FIRST_LAGS = np.arange(1.0, ORDER + 1.0)
SOURCES = ("layout.py", "parts.py", "experts.py", "compiled.py")


@compiled
def learn(wide: Wide, value: float) -> None:
    """Score what was forecast of `value`, and move the regressions towards it."""
    wide[STEP_AT[SCORED]] += 1.0
    issued = wide[EXPERT : EXPERT + E]
    c = STEP_AT[CANDIDATE]
    cand = wide[c : c + C]
    first = int(wide[STEP_AT[CHOSEN]])
    second = int(wide[STEP_AT[CHOSEN] + 1])
    score_experts(wide, 0, STEP_AT, issued, cand, value, STEP_DISCOUNT)
    error = score_answers(wide, 0, STEP_AT, cand, first, second, value)
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
def climb(wide: Wide, narrow: Narrow, rungs: NDArray[np.int64], tick: int) -> None:
    """Score what is known by now of every further rung, and answer anew."""
    ring = RUNGS + (len(rungs) - 1) * RUNG_SIZE
    total, count, upto = 0.0, 0.0, 0
    for j in range(len(rungs) - 1):
        rung = rungs[j + 1]
        every = max(1, rung // SLOTS)
        places = rung // every
        o = RUNGS + j * RUNG_SIZE
        while upto < rung:
            if narrow[VALID + (tick - upto) % LONGEST] > 0:
                total += narrow[(tick - upto) % HISTORY]
                count += 1.0
            upto += 1
        if tick % every == 0:
            m = MATRICES + j * D * D
            p = wide[m : m + D * D].reshape(D, D)
            slot = ring + SLOT * ((tick // every) % places)
            if wide[AGE] >= rung and 2.0 * count >= rung:
                past = PAST + K * ((tick - rung) % LONGEST)
                score_rung(wide, narrow, o, slot, past, p, rung, total / count)
            answer_rung(wide, narrow, o, slot)
        if narrow[o] * every < TRUSTED:
            narrow[o + MEAN_AT[FINAL]] = wide[STEP_AT[FINAL]]
            narrow[o + MEAN_AT[FINAL] + 1] = wide[STEP_AT[FINAL] + 1]
        ring += SLOT * places
    for k in range(K):
        narrow[PAST + K * (tick % LONGEST) + k] = wide[EXPERT + LADDER_EXPERTS[k]]


@compiled
def score_rung(
    wide: Wide, narrow: Narrow, o: int, slot: int, past: int, p: Wide, rung: int, actual: float
) -> None:
    """Score what was forecast of `actual`, and move the direct regression towards it."""
    issued, cand, x = np.empty(K + 1), np.empty(C), np.ones(D)
    for k in range(K):
        issued[k] = narrow[past + k]
    issued[K] = narrow[slot + C]
    cand[:] = narrow[slot : slot + C]
    first, second = int(narrow[slot + C + 1]) // C, int(narrow[slot + C + 1]) % C
    held = 1 if narrow[slot + C + 2] <= actual <= narrow[slot + C + 3] else 0
    every = max(1, rung // SLOTS)
    share = sqrt(every / rung)
    narrow[o] += 1.0
    score_experts(narrow, o, MEAN_AT, issued, cand, actual, MEAN_DISCOUNT * every)
    error = score_answers(narrow, o, MEAN_AT, cand, first, second, actual)
    track(narrow, o, MEAN_AT, error, MEAN_RATE * share, SCALE_GAIN * share, held)
    sd = sqrt(wide[VARIANCE])
    inverse = 1.0 / sd if sd > 0 else 0.0
    for i in range(D - 1):
        x[i] = clipped((issued[DIRECT_PAST[i]] - wide[AVERAGE]) * inverse, CLIP)
    w = narrow[o + DIRECT_W : o + DIRECT_W + D]
    regress(p, w, x, clipped((actual - wide[AVERAGE]) * inverse, CLIP))


@compiled
def answer_rung(wide: Wide, narrow: Narrow, o: int, slot: int) -> None:
    """Answer a rung, and keep the answer until it can be scored."""
    sd = sqrt(wide[VARIANCE])
    inverse = 1.0 / sd if sd > 0 else 0.0
    issued = np.empty(K + 1)
    z = 0.0
    for i in range(D - 1):
        away = wide[EXPERT + DIRECT[i]] - wide[AVERAGE]
        z += narrow[o + DIRECT_W + i] * clipped(away * inverse, CLIP)
    z += narrow[o + DIRECT_W + D - 1]
    for k in range(K):
        issued[k] = wide[EXPERT + LADDER_EXPERTS[k]]
    direct = wide[AVERAGE] + sd * clipped(z, CLIP)
    issued[K] = min(max(direct, wide[LOW]), wide[HIGH])
    answer(narrow, o, MEAN_AT, issued, wide[VARIANCE])
    for c in range(C):
        narrow[slot + c] = narrow[o + MEAN_AT[CANDIDATE] + c]
    first, second = narrow[o + MEAN_AT[CHOSEN]], narrow[o + MEAN_AT[CHOSEN] + 1]
    centre = narrow[slot + int(second)]
    scale = narrow[o + MEAN_AT[SCALE]]
    q = o + MEAN_AT[QUANTILE] + 2 * LEVEL
    narrow[slot + C] = issued[K]
    narrow[slot + C + 1] = first * C + second
    narrow[slot + C + 2] = centre + narrow[q] * scale
    narrow[slot + C + 3] = centre + narrow[q + 1] * scale


@compiled
def step(wide: Wide, narrow: Narrow, rungs: NDArray[np.int64], tick: int, value: float) -> None:
    """Take in the value of `tick`, in the engine's unit; NaN: there is none."""
    known = value == value  # noqa: PLR0124 - NaN is what differs from itself
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
    narrow[tick % HISTORY] = value
    narrow[VALID + tick % LONGEST] = 1.0 if known else 0.0
    f = wide[EXPERT : EXPERT + E]
    x, w = wide[AR_X : AR_X + ORDER], wide[AR_W : AR_W + ORDER]
    f[21] = look_back(wide, narrow, tick, x, w, FIRST_LAGS)
    x, w = wide[LAG_X : LAG_X + LAGS], wide[LAG_W : LAG_W + LAGS]
    f[22] = look_back(wide, narrow, tick, x, w, wide[LAG : LAG + LAGS])
    answer(wide, 0, STEP_AT, f, wide[VARIANCE])
    if len(rungs) > 1:
        climb(wide, narrow, rungs, tick)


def _edition() -> int:
    """Return a number that changes with the source of the kernel."""
    folder = Path(__file__).parent
    return zlib.crc32(b"".join((folder / name).read_bytes() for name in SOURCES))


def _kernel(edition: int) -> Step:
    def step_all(
        wide: Wide, narrow: Narrow, rungs: NDArray[np.int64], tick: int, values: Wide
    ) -> int:
        for i in range(len(values)):
            step(wide[i], narrow[i], rungs, tick, values[i])
        return edition

    return cast("Step", njit(cache=True, error_model="numpy")(step_all))


step_all: Final = _kernel(_edition())
"""Takes in the values of one tick, one a series; returns the edition.

numba keeps the machine code on disk under the text of this one function and what it encloses: the
edition is enclosed, so that a change to any part of the kernel is never missed.
"""
