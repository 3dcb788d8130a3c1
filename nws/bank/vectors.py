"""One step of many series at once, with NumPy: what the default profile computes, in its order.

A tick: what was forecast of the values meets them (`learn`), the experts take them (`take`), the
history takes them or, where one is missing, the bank's own forecast (`remember`), the two
autoregressions look back (`look_back`), the first rung answers, and the further rungs are scored
on the means that are known by now and answer (`climb`).
"""

import numpy as np

from nws.bank import layout as at
from nws.bank import windows
from nws.bank.scoring import Array, Rungs, answer, regress, score_answers, score_experts, track

GAINS = np.array(at.GAINS)[:, None]
AR_GAINS = np.array([0.02, 0.10])[:, None]
FIRST_LAGS = np.arange(1, at.ORDER + 1)[:, None]
DIRECT = list(at.DIRECT)
DIRECT_PAST = [at.LADDER_EXPERTS.index(expert) for expert in at.DIRECT]
LADDER_EXPERTS = list(at.LADDER_EXPERTS)
ALWAYS = np.array(1.0)


class Series:
    """The fields of N series as views of two blocks of shape (size, N); see `nws.bank.layout`."""

    base: Array
    unit: Array
    least: Array
    greatest: Array
    samples: Array
    age: Array
    low: Array
    high: Array
    mean: Array
    variance: Array
    ar_mean: Array
    ar_variance: Array
    ar_covariance: Array
    tuning: Array
    width: Array
    medians: Array
    recent: Array
    expert: Array
    ar_x: Array
    ar_w: Array
    ar_p: Array
    lag: Array
    lag_x: Array
    lag_w: Array
    lag_p: Array
    history: Array
    valid: Array
    past: Array

    def __init__(self, wide: Array, narrow: Array, ladder: tuple[int, ...]) -> None:
        count = wide.shape[1]
        self.wide, self.narrow, self.ladder = wide, narrow, ladder
        for block, fields in ((wide, at.WIDE), (narrow, at.NARROW)):
            for name, field in fields.items():
                view = block[field.start : field.stop].reshape(*field.shape, count)
                setattr(self, name, view)
        self.step = Rungs(wide[None], at.STEP)
        more = len(ladder) - 1
        self.direct_p = wide[at.MATRICES :].reshape(more, at.D, at.D, count)
        rungs = narrow[at.RUNGS : at.RUNGS + more * at.RUNG_SIZE]
        self.means = Rungs(rungs.reshape(more, at.RUNG_SIZE, count), at.MEAN)
        self.rings = narrow[at.RUNGS + more * at.RUNG_SIZE :].reshape(-1, at.SLOT, count)
        self.rungs = np.array(ladder[1:], dtype=np.intp)
        self.every = np.array([at.stride(rung) for rung in ladder[1:]], dtype=np.intp)
        self.places = np.array([at.slots(rung) for rung in ladder[1:]], dtype=np.intp)
        self.starts = np.concatenate([[0], np.cumsum(self.places)])[:-1].astype(np.intp)


def begin(s: Series, value: Array) -> None:
    """Take in the first values."""
    s.samples[:] = 1.0
    for field in (s.expert, s.low, s.high, s.mean, s.ar_mean, s.tuning[0], s.medians):
        field[...] = value
    s.recent[0] = value


def learn(s: Series, value: Array) -> None:
    """Score what was forecast of `value`, and move the regressions towards it."""
    step, actual = s.step, value[None]
    step.scored += 1.0
    score_experts(step, s.expert[None], step.candidate, actual, at.STEP_DISCOUNT * ALWAYS, None)
    error = score_answers(step, step.candidate, step.chosen, actual, None)
    track(step, error, at.STEP_RATE * ALWAYS, at.SCALE_GAIN * ALWAYS, None, None)
    z = clipped((value - s.mean) * inverse(np.sqrt(s.variance)))
    regress(s.ar_p, s.ar_w, s.ar_x, z)
    regress(s.lag_p, s.lag_w, s.lag_x, z)


def clipped(array: Array) -> Array:
    """Return `array` within plus and minus `CLIP`."""
    return np.minimum(np.maximum(array, -at.CLIP), at.CLIP)


def inverse(deviation: Array) -> Array:
    """Return 1 / deviation, and 0 where that is 0."""
    return np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)


def take(s: Series, value: Array) -> None:
    """Give `value`, the second or a later one, to the experts."""
    s.samples += 1.0
    samples = s.samples
    gain = np.maximum(0.02, 1.0 / samples)
    away = value - s.mean
    s.mean += gain * away
    s.variance[:] = (1.0 - gain) * (s.variance + gain * away * away)
    np.minimum(s.low, value, out=s.low)
    np.maximum(s.high, value, out=s.high)
    windows.adapt(s.width, s.medians, value)
    follow(s, value)
    f = s.expert
    f[0] = value
    f[1] += (value - f[1]) / samples
    f[2:10] += GAINS * (value - f[2:10])
    s.recent[1:] = s.recent[:-1].copy()
    s.recent[0] = value
    windows.look_through(s.recent, samples, s.width, s.medians, f)


def follow(s: Series, value: Array) -> None:
    """Move the two EW-AR(1) and the self-tuning smoothing.

    EW-AR(1): ``m + phi (x - m)``, phi the exponentially weighted lag-one covariance over the
    variance. Self-tuning: exponential smoothing whose gain g descends the squared error, with
    the slope ``d = (1 - g) d + e`` of the level along g.
    """
    gain = np.maximum(AR_GAINS, 1.0 / s.samples)
    before = s.expert[0] - s.ar_mean
    s.ar_mean += gain * (value - s.ar_mean)
    after = value - s.ar_mean
    s.ar_covariance += gain * (before * after - s.ar_covariance)
    s.ar_variance += gain * (before * before - s.ar_variance)
    phi = np.zeros_like(after)
    np.divide(s.ar_covariance, s.ar_variance, out=phi, where=s.ar_variance > 0)
    s.expert[18:20] = s.ar_mean + np.minimum(np.maximum(phi, -0.999), 0.999) * after
    level, gain, slope, power = s.tuning.copy()
    error = value - level
    s.tuning[0] = s.expert[20] = level + gain * error
    push = np.zeros_like(error)
    np.divide(error * slope, power, out=push, where=power > 0)
    push = at.TUNING_RATE * np.minimum(np.maximum(push, -1.0), 1.0)
    tuned = np.minimum(np.maximum(gain + push, 0.01), 0.99)
    s.tuning[1] = np.where(power > 0, tuned, gain)
    s.tuning[2] = (1.0 - gain) * slope + error
    s.tuning[3] = power + np.maximum(0.02, 1.0 / s.samples) * (error * error - power)


def look_back(s: Series, tick: int, x: Array, w: Array, lags: Array) -> Array:
    """Fill in the regressors `x`, standardised past values, and return what `w` forecasts."""
    deviation = np.sqrt(s.variance)
    rows = (tick + 1 - lags) % at.HISTORY
    past: Array = s.history[rows[:, 0]]
    if rows.shape[1] > 1:
        past = np.take_along_axis(s.history, rows, axis=0)
    known = lags <= s.age + 1.0
    past = np.where(known, past, s.mean)
    x[:] = clipped((past - s.mean) * inverse(deviation))
    total = np.add.accumulate(w * x, axis=0)[-1]
    forecast: Array = s.mean + deviation * clipped(total)
    return np.minimum(np.maximum(forecast, s.low), s.high)


def finish(s: Series, tick: int, value: Array, known: Array) -> None:
    """Do what a tick needs once the values, where `known`, are taken."""
    s.history[tick % at.HISTORY] = np.where(known, value, s.step.final[0, 0])
    s.valid[tick % at.LONGEST] = known
    s.expert[21] = look_back(s, tick, s.ar_x, s.ar_w, FIRST_LAGS)
    s.expert[22] = look_back(s, tick, s.lag_x, s.lag_w, s.lag.astype(np.intp))
    answer(s.step, s.expert[None], s.variance)
    if len(s.ladder) > 1:
        climb(s, tick)


def known_means(s: Series, tick: int, rungs: Array) -> tuple[Array, Array]:
    """Return the means of the latest values, (J, N), and whether at least half are measured."""
    back = np.arange(rungs[-1])
    valid = s.valid[(tick - back) % at.LONGEST] > 0
    latest = np.where(valid, s.history[(tick - back) % at.HISTORY], 0.0)
    total = np.add.accumulate(latest, axis=0, dtype=np.float64)[rungs - 1]
    count = np.add.accumulate(valid, axis=0, dtype=np.float64)[rungs - 1]
    enough = 2.0 * count >= rungs[:, None]
    return total / np.maximum(count, 1.0), enough & (s.age >= rungs[:, None])


def climb(s: Series, tick: int) -> None:
    """Score what is known by now of the further rungs that are due, and answer anew."""
    due = int(np.count_nonzero(tick % s.every == 0))
    rungs, every = s.rungs[:due], s.every[:due]
    means = s.means.part(slice(0, due))
    places = s.starts[:due] + (tick // every) % s.places[:due]
    deviation = np.sqrt(s.variance)
    by = inverse(deviation)
    actual, ok = known_means(s, tick, rungs)
    if ok.any():
        whole = None if ok.all() else ok
        slot = s.rings[places].astype(np.float64)
        past = s.past[(tick - rungs) % at.LONGEST]
        issued = np.concatenate([past, slot[:, at.C : at.C + 1]], axis=1)
        score_rungs(means, issued, slot, actual, rungs, every, whole)
        x = np.ones((due, at.D, len(s.mean)))
        x[:, :-1] = clipped((issued[:, DIRECT_PAST] - s.mean) * by)
        z = clipped((actual - s.mean) * by)
        regress(s.direct_p[:due], means.direct_w, x, z, whole)
    x = clipped((s.expert[DIRECT] - s.mean) * by)
    z = np.add.accumulate(means.direct_w[:, :-1] * x, axis=1)[:, -1] + means.direct_w[:, -1]
    direct = np.minimum(np.maximum(s.mean + deviation * clipped(z), s.low), s.high)
    experts = np.broadcast_to(s.expert[LADDER_EXPERTS], (due, at.K, len(s.mean)))
    answer(means, np.concatenate([experts, direct[:, None]], axis=1), s.variance)
    keep(s, means, places, direct)
    young = s.means.scored * s.every[:, None] < at.TRUSTED
    np.copyto(s.means.final, s.step.final, where=young[:, None], casting="same_kind")
    s.past[tick % at.LONGEST] = s.expert[LADDER_EXPERTS]


def score_rungs(
    means: Rungs,
    issued: Array,
    slot: Array,
    actual: Array,
    rungs: Array,
    every: Array,
    ok: Array | None,
) -> None:
    """Score the experts (J, K + 1, N) and the answers in `slot` (J, SLOT, N) of some rungs."""
    means.scored += 1.0 if ok is None else ok
    candidate = slot[:, : at.C]
    chosen = np.stack(np.divmod(slot[:, at.C + 1], at.C), axis=1)
    held = (actual >= slot[:, at.C + 2]) & (actual <= slot[:, at.C + 3])
    share = np.sqrt(every / rungs)[:, None]
    gain = (at.MEAN_DISCOUNT * every)[:, None]
    score_experts(means, issued, candidate, actual, gain, ok)
    error = score_answers(means, candidate, chosen, actual, ok)
    track(means, error, at.MEAN_RATE * share, at.SCALE_GAIN * share, held, ok)


def keep(s: Series, means: Rungs, places: Array, direct: Array) -> None:
    """Keep what the rungs have answered until it can be scored."""
    scale = means.scale[:, None]
    centre = means.final[:, 1:]
    slot = [
        means.candidate,
        direct[:, None].astype(np.float32),
        means.chosen[:, :1] * np.float32(at.C) + means.chosen[:, 1:],
        centre + means.quantile[:, at.CERTIFIED] * scale,
    ]
    s.rings[places] = np.concatenate(slot, axis=1)
