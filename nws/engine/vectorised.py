"""The fields of series as arrays, and what is computed on them: further horizons, and dominant lags.

A tick of the default profile has five stages. The first four are in `nws.engine.single_series` and
`nws.engine.tick`, the last one also here:

1. The forecasts that were made of the value are scored, and the regressions learn.
2. The experts take the value in. Where it is missing, stages 1 and 2 are left out.
3. The history takes the value or, where it is missing, the series' own forecast.
4. Both autoregressions forecast from the history, and so do the analogs (`nws.engine.analogs`); then
   the one-step answer is chosen.
5. `advance_horizons`: means that are known by now are scored, and further horizons answer.

Arrays have the series last and the horizons first: J horizons, E experts, C candidates, N series.
Sums over experts and lags run from the first to the last (`np.add.accumulate`, since `np.sum` adds
in pairs), so that the loops of `nws.engine.tick` and the small arrays of
`nws.engine.single_series` give the same bits. No step uses exp, log or pow, whose last digit differs
between libraries. This is one of several forms on purpose: see `nws.engine`.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nws.engine import layout as at
from nws.engine.analogs import Analogs
from nws.forecasters.auto_lag_ar import dominant_lags

Array = NDArray[Any]
"""float64, or float32 where it is a view of the narrow block."""
LEVELS = np.array(at.LEVELS)[:, None]
TAILS = (1.0 - LEVELS) / 2.0


class HorizonFields:
    """The fields of a block of horizons, by the names of `nws.engine.layout`."""

    scored: Array
    expert_error: Array
    regret: Array
    power: Array
    excess: Array
    spread: Array
    reach: Array
    candidate: Array
    candidate_error: Array
    final: Array
    chosen: Array
    error: Array
    scale: Array
    quantile: Array
    covered: Array
    direct_w: Array


class HorizonScores(HorizonFields):
    """The fields of J horizons as views of a block: ``scored`` (J, N), ``expert_error`` (J, 2, E, N), ...

    `nws.engine.layout` says what each one is. A view is made when it is first asked for.
    """

    def __init__(self, block: Array, fields: Mapping[str, at.Field]) -> None:
        self._block, self._fields = block, fields

    def __getattr__(self, name: str) -> Array:
        if name not in HorizonFields.__annotations__ or name not in self._fields:
            raise AttributeError(name)
        field, (horizons, _, series) = self._fields[name], self._block.shape
        view = self._block[:, field.start : field.stop].reshape(horizons, *field.shape, series)
        setattr(self, name, view)
        return view

    @cached_property
    def row(self) -> Array:
        """The number of each horizon, (J, 1)."""
        return np.arange(len(self._block))[:, None]

    @cached_property
    def column(self) -> Array:
        """The number of each series, (N)."""
        return np.arange(self._block.shape[2])

    def part(self, which: slice) -> "HorizonScores":
        """Return some of the horizons."""
        return HorizonScores(self._block[which], self._fields)


def add(target: Array, change: Array, ok: Array | None) -> None:
    """Add `change` to `target`, where it is `ok` (None: everywhere)."""
    target += change if ok is None else np.where(ok, change, 0.0)


def in_order(array: Array, axis: int) -> Array:
    """Return the sum along `axis`, added up from the first to the last."""
    total: Array = np.add.accumulate(array, axis=axis).take(-1, axis=axis)
    return total


def shares(scores: HorizonScores) -> Array:
    """Return what the newest scoring counts in a mean, 1 / count, (J, N)."""
    return 1.0 / np.maximum(scores.scored, 1.0).astype(np.float64)


def score_experts(
    scores: HorizonScores,
    issued: Array,
    candidate: Array,
    actual: Array,
    gain: Array,
    ok: Array | None,
) -> None:
    """Score the forecasts `issued` (J, E, N) by the experts against `actual` (J, N).

    Keeps the mean and the discounted absolute error of each expert, and of the two mixtures the
    regrets r of ML-Poly (Gaillard, Stoltz, van Erven 2014, "A second-order bound with excess
    losses", algorithm ML-Poly) on the gradient of the loss: ``r = l'(m) (m - f)`` with the
    mixture's forecast m, the expert's f, and l the squared or the absolute error.
    """
    ok = None if ok is None else ok[:, None, None]
    share = shares(scores)
    error = np.abs(issued - actual[:, None])
    weight = np.stack([share, np.maximum(gain, share)], axis=1)[:, :, None]
    add(scores.expert_error, weight * (error[:, None] - scores.expert_error), ok)
    mixed = candidate[:, 1:3]
    slope = mixed - actual[:, None]
    slope[:, 1] = np.sign(slope[:, 1])
    regret = slope[:, :, None] * (mixed[:, :, None] - issued[:, None])
    add(scores.regret, regret, ok)
    add(scores.power, regret * regret, ok)


def aggregate(scores: HorizonScores, candidate: Array, actual: Array, ok: Array | None) -> None:
    """Move the regrets of the aggregation, the last of `candidate` (J, C, N), against the others.

    Bernstein online aggregation (Wintenberger 2017, "Optimal learning with Bernstein online
    aggregation") on the gradient of the absolute error: with the regret r of the mixture against a
    candidate, ``R += r - eta r^2`` and ``eta = min(1 / (2 max|r|), sqrt(ln 4 / sum r^2))``.
    """
    mixed = candidate[:, at.AGGREGATION :]
    regret = np.sign(mixed - actual[:, None]) * (mixed - candidate[:, : at.AGGREGATION])
    square = regret * regret
    ok = None if ok is None else ok[:, None]
    add(scores.spread, square, ok)
    reach = np.maximum(scores.reach, np.abs(regret))
    np.copyto(scores.reach, reach, where=True if ok is None else ok, casting="same_kind")
    add(scores.excess, regret - rates_of(scores.spread, scores.reach) * square, ok)


def rates_of(spread: Array, reach: Array) -> Array:
    """Return the learning rate of each candidate, 0 of one that never differed from the mixture."""
    wide = np.maximum(spread.astype(np.float64), at.TINY)
    rate = np.sqrt(at.PATIENCE / wide)
    np.minimum(rate, 0.5 / np.maximum(reach.astype(np.float64), at.TINY), out=rate)
    rate *= spread > 0
    return rate


def faded(power: Array) -> Array:
    """Return e to the `power`, at most 0, as ``(1 + y + y^2/2 + y^3/6)^64`` with y a 64th of it.

    The same bits with every library, which `exp` does not promise; right within 0.1 % down to -8,
    where weights begin to be nothing. Below -60 it is as at -60.
    """
    y = np.maximum(power, at.FAINTEST) / 64.0
    y = 1.0 + y * (1.0 + y * (0.5 + y * SIXTH))
    for _ in range(6):
        y *= y
    result: Array = y
    return result


def score_answers(
    scores: HorizonScores, candidate: Array, second: Array, actual: Array, ok: Array | None
) -> Array:
    """Score the candidates (J, C, N) and both answers; return the error of the `second`, as chosen."""
    share = shares(scores)[:, None]
    error = candidate - actual[:, None]
    cost = error * error
    some = None if ok is None else ok[:, None]
    aggregate(scores, candidate, actual, ok)
    add(scores.candidate_error, share * (cost - scores.candidate_error), some)
    row, column, place = scores.row, scores.column, second.astype(np.intp)
    spent = np.stack([np.abs(error[:, at.AGGREGATION]), cost[row, place, column]], axis=1)
    add(scores.error, share * (spent - scores.error), some)
    away: Array = actual - candidate[row, place, column]
    return away


def track(
    scores: HorizonScores,
    error: Array,
    rate: Array,
    gain: Array,
    held: Array | None,
    ok: Array | None,
) -> None:
    """Move the quantiles of the errors (J, N), in units of their scale, and count what was held.

    Online quantile regression: a quantile moves by the gradient of the pinball loss, in units of
    an exponentially weighted absolute error: q += eta (tau - 1[e < q s]).
    `held` (J, N) tells whether intervals as they were issued, of the certified level, held.
    """
    some = None if ok is None else ok[:, None]
    share = shares(scores)
    rates = (2.0 * np.maximum(rate, share))[:, None]
    scale = scores.scale[:, None]
    lower, upper = scores.quantile[:, :, 0] * scale, scores.quantile[:, :, 1] * scale
    off = error[:, None]
    under, within = off < lower, off <= upper
    inside = within > under
    if held is not None:
        inside[:, at.CERTIFIED] = held
    add(scores.covered, inside, some)
    moving = scale > 0 if some is None else (scale > 0) & some
    below = np.minimum(0.0, scores.quantile[:, :, 0] + rates * (TAILS - under))
    above = np.maximum(0.0, scores.quantile[:, :, 1] + rates * ((1.0 - TAILS) - within))
    np.copyto(scores.quantile[:, :, 0], below, where=moving, casting="same_kind")
    np.copyto(scores.quantile[:, :, 1], above, where=moving, casting="same_kind")
    add(scores.scale, np.maximum(gain, share) * (np.abs(error) - scores.scale), ok)


def answer(scores: HorizonScores, issued: Array, variance: Array) -> None:
    """Fill in the candidates' forecasts from the experts' (J, E, N), and choose.

    The candidates: the expert of the lowest mean absolute error, the mixtures with the weights of
    ML-Poly, ``w ~ max(R, 0) / (c + sum r^2)`` with c the variance of the series (squared for
    the squared error) in place of 1, so that units do not matter; the expert that erred least
    lately; and the aggregation of these, with the weights ``w ~ eta exp(eta R)``. The answers: the
    aggregation, and the one from the second on of the lowest mean squared error.
    """
    best = scores.expert_error.argmin(axis=2)
    row, column = scores.row, scores.column
    scores.candidate[:, 0] = lowest = issued[row, best[:, 0], column]
    scores.candidate[:, 3] = issued[row, best[:, 1], column]
    floor = np.stack([variance * variance, variance])[:, None] + at.TINY
    weight = np.empty((2, *scores.regret.shape))
    np.divide(np.maximum(0.0, scores.regret), scores.power + floor, out=weight[0])
    np.multiply(weight[0], issued[:, None], out=weight[1])
    total, mix = np.add.accumulate(weight, axis=3)[:, :, :, -1]
    mixed = np.empty(mix.shape)
    mixed[...] = lowest[:, None]
    scores.candidate[:, 1:3] = np.divide(mix, total, out=mixed, where=total > 0)
    members = scores.candidate[:, : at.AGGREGATION]
    rate = rates_of(scores.spread, scores.reach)
    gain = rate * scores.excess
    share = rate * faded(gain - gain.max(axis=1, keepdims=True))
    total, mix = in_order(share, 1), in_order(share * members, 1)
    scores.candidate[:, at.AGGREGATION] = np.divide(mix, total, out=lowest.copy(), where=total > 0)
    scores.chosen[:, 0] = share.argmax(axis=1)
    second = scores.candidate_error[:, 1:].argmin(axis=1) + 1
    scores.chosen[:, 1] = second
    scores.final[:, 0] = scores.candidate[:, at.AGGREGATION]
    scores.final[:, 1] = scores.candidate[row, second, column]


def regress(p: Array, w: Array, x: Array, z: Array, ok: Array | None = None) -> None:
    """Move the weights `w` (..., n, N) towards ``w.x = z``, by recursive least squares.

    With forgetting lambda: ``g = P x / (lambda + x.P x)``, ``w += g (z - w.x)``,
    ``P = (P - g x'P) / lambda`` (Haykin, Adaptive Filter Theory, "RLS algorithm"), and P shrunk
    when its trace exceeds a cap: what does not vary must not wind up.
    """
    px = in_order(p * x[..., :, None, :], -3)
    power = in_order(x * px, -2) + at.FORGETTING
    error = z - in_order(w * x, -2)
    gain = px / power[..., None, :]
    add(w, gain * error[..., None, :], None if ok is None else ok[..., None, :])
    moved = (p - gain[..., :, None, :] * px[..., None, :, :]) * at.RENEWAL
    trace = in_order(np.einsum("...iin->...in", moved), -2)
    if (trace > at.TRACE).any():
        moved *= np.where(trace > at.TRACE, at.TRACE / trace, 1.0)[..., None, None, :]
    if ok is None:
        p[...] = moved
    else:
        np.copyto(p, moved, where=ok[..., None, None, :])


SIXTH = 1.0 / 6.0


DIRECT = list(at.DIRECT)
DIRECT_PAST = [at.HORIZON_EXPERTS.index(expert) for expert in at.DIRECT]
HORIZON_EXPERTS = list(at.HORIZON_EXPERTS)
ANALOG = at.EXPERTS.index("analog_3")


class SeriesFields:
    """The fields of N series as views of two blocks of shape (size, N); see `nws.engine.layout`.

    A view is made when it is first asked for.
    """

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

    def __init__(self, wide: Array, narrow: Array, horizons: tuple[int, ...]) -> None:
        self.wide, self.narrow, self.horizons = wide, narrow, horizons

    def __getattr__(self, name: str) -> Array:
        if name in at.WIDE:
            block, field = self.wide, at.WIDE[name]
        elif name in at.NARROW:
            block, field = self.narrow, at.NARROW[name]
        else:
            raise AttributeError(name)
        view = block[field.start : field.stop].reshape(*field.shape, block.shape[1])
        setattr(self, name, view)
        return view

    @cached_property
    def step(self) -> HorizonScores:
        """The first horizon."""
        return HorizonScores(self.wide[None], at.STEP)

    @cached_property
    def means(self) -> HorizonScores:
        """The further horizons."""
        more, count = len(self.horizons) - 1, self.narrow.shape[1]
        further = self.narrow[at.FURTHER : at.FURTHER + more * at.FURTHER_SIZE]
        return HorizonScores(further.reshape(more, at.FURTHER_SIZE, count), at.MEAN)

    @cached_property
    def direct_p(self) -> Array:
        """The matrices of the direct regressions, (J, D, D, N)."""
        more, count = len(self.horizons) - 1, self.wide.shape[1]
        return self.wide[at.MATRICES :].reshape(more, at.D, at.D, count)

    @cached_property
    def rings(self) -> Array:
        """The answers that wait to be scored, (slots, SLOT, N)."""
        more, count = len(self.horizons) - 1, self.narrow.shape[1]
        return self.narrow[at.FURTHER + more * at.FURTHER_SIZE :].reshape(-1, at.SLOT, count)

    @cached_property
    def further(self) -> Array:
        """The further horizons' lengths, (J)."""
        return np.array(self.horizons[1:], dtype=np.intp)

    @cached_property
    def every(self) -> Array:
        """After how many samples each is scored, (J)."""
        return np.array([at.stride(horizon) for horizon in self.horizons[1:]], dtype=np.intp)

    @cached_property
    def places(self) -> Array:
        """How many answers of each wait, (J)."""
        return np.array([at.slots(horizon) for horizon in self.horizons[1:]], dtype=np.intp)

    @cached_property
    def starts(self) -> Array:
        """Where they begin in the rings, (J)."""
        return (np.cumsum(self.places) - self.places).astype(np.intp)


def clipped(array: Array) -> Array:
    """Return `array` within plus and minus `CLIP`."""
    return np.minimum(np.maximum(array, -at.CLIP), at.CLIP)


def inverse(deviation: Array) -> Array:
    """Return 1 / deviation, and 0 where that is 0."""
    return np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)


def look_back(s: SeriesFields, tick: int, x: Array, w: Array, lags: Array) -> Array:
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


def known_means(s: SeriesFields, tick: int, horizons: Array) -> tuple[Array, Array]:
    """Return the means of the latest values, (J, N), and whether at least half are measured."""
    back = np.arange(horizons[-1])
    valid = s.valid[(tick - back) % at.LONGEST] > 0
    latest = np.where(valid, s.history[(tick - back) % at.HISTORY], 0.0)
    total = np.add.accumulate(latest, axis=0, dtype=np.float64)[horizons - 1]
    count = np.add.accumulate(valid, axis=0, dtype=np.float64)[horizons - 1]
    enough = 2.0 * count >= horizons[:, None]
    return total / np.maximum(count, 1.0), enough & (s.age >= horizons[:, None])


def advance_horizons(s: SeriesFields, tick: int, analogs: Analogs) -> None:
    """Score what is known by now of the further horizons that are due, and answer all anew."""
    due = int(np.count_nonzero(tick % s.every == 0))
    horizons, every = s.further[:due], s.every[:due]
    means = s.means.part(slice(0, due))
    places = s.starts[:due] + (tick // every) % s.places[:due]
    deviation = np.sqrt(s.variance)
    by = inverse(deviation)
    actual, ok = known_means(s, tick, horizons)
    # Score the answers that the means known by now complete; `whole` None spares the masks.
    if ok.any():
        whole = None if ok.all() else ok
        slot = s.rings[places].astype(np.float64)
        past = s.past[(tick - horizons) % at.LONGEST]
        issued = np.concatenate([past, slot[:, at.OWN_AT : at.CHOICE_AT]], axis=1)
        score_horizons(means, issued, slot, actual, horizons, every, whole)
        x = np.ones((due, at.D, len(s.mean)))
        x[:, :-1] = clipped((issued[:, DIRECT_PAST] - s.mean) * by)
        z = clipped((actual - s.mean) * by)
        regress(s.direct_p[:due], means.direct_w, x, z, whole)
    # Answer anew: the direct regression on the mean, and what followed the analogs, are experts
    # beside the one-step ones.
    x = clipped((s.expert[DIRECT] - s.mean) * by)
    w = s.means.direct_w
    z = np.add.accumulate(w[:, :-1] * x, axis=1)[:, -1] + w[:, -1]
    followed = [analogs.means(int(horizon), s.expert[0]) for horizon in s.further]
    own = np.stack([s.mean + deviation * clipped(z), np.stack(followed)], axis=1)
    own = np.minimum(np.maximum(own, s.low), s.high)
    experts = np.broadcast_to(s.expert[HORIZON_EXPERTS], (len(s.further), at.K, len(s.mean)))
    answer(s.means, np.concatenate([experts, own], axis=1), s.variance)
    keep(s, means, places, own[:due])
    # A horizon that was hardly ever scored repeats the one-step answer.
    young = s.means.scored * s.every[:, None] < at.TRUSTED
    np.copyto(s.means.final, s.step.final, where=young[:, None], casting="same_kind")
    s.past[tick % at.LONGEST] = s.expert[HORIZON_EXPERTS]


def score_horizons(
    means: HorizonScores,
    issued: Array,
    slot: Array,
    actual: Array,
    horizons: Array,
    every: Array,
    ok: Array | None,
) -> None:
    """Score the experts (J, M, N) and the answers in `slot` (J, SLOT, N) of some horizons."""
    means.scored += 1.0 if ok is None else ok
    candidate = slot[:, : at.C]
    held = (actual >= slot[:, at.ENDS_AT]) & (actual <= slot[:, at.ENDS_AT + 1])
    # Errors of overlapping means come in runs. At the one-step rate the tracker follows each run,
    # and intervals over 60 samples cover too little.
    share = np.sqrt(every / horizons)[:, None]
    gain = (at.MEAN_DISCOUNT * every)[:, None]
    score_experts(means, issued, candidate, actual, gain, ok)
    error = score_answers(means, candidate, slot[:, at.CHOICE_AT], actual, ok)
    track(means, error, at.MEAN_RATE * share, at.SCALE_GAIN * share, held, ok)


def keep(s: SeriesFields, means: HorizonScores, places: Array, own: Array) -> None:
    """Keep what the horizons have answered until it can be scored."""
    scale = means.scale[:, None]
    centre = means.final[:, 1:]
    slot = [
        means.candidate,
        own.astype(np.float32),
        means.chosen[:, 1:],
        centre + means.quantile[:, at.CERTIFIED] * scale,
    ]
    s.rings[places] = np.concatenate(slot, axis=1)


def refresh_dominant_lags(series: SeriesFields, column: int, tick: int) -> None:
    """Give the auto-lag regression of a series the lags at which it resembles itself."""
    size = int(min(series.age[column] + 1.0, at.HISTORY))
    rows = np.arange(tick + 1 - size, tick + 1) % at.HISTORY
    lags = np.array(dominant_lags(series.history[rows, column], at.LAGS), dtype=np.float64)
    old = series.lag[:, column]
    if np.array_equal(old, lags):
        return
    weights = dict(zip(old.tolist(), series.lag_w[:, column].tolist(), strict=True))
    series.lag_w[:, column] = [weights.get(lag, 0.0) for lag in lags.tolist()]
    series.lag_p[:, :, column] = np.eye(at.LAGS)
    series.lag[:, column] = lags
    part = SeriesFields(
        series.wide[:, column : column + 1], series.narrow[:, column : column + 1], series.horizons
    )
    look_back(part, tick, part.lag_x, part.lag_w, part.lag.astype(np.intp))
