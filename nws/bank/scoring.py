"""Scoring and choosing, for many rungs of many series at once, with NumPy.

Arrays have the series last and the rungs first; J rungs, E experts, C candidates, N series. Sums over
experts run in order (`accumulate`), so that numba's loops give the same bits.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nws.bank import layout as at

Array = NDArray[Any]
"""float64, or float32 where it is a view of the narrow block."""
LEVELS = np.array(at.LEVELS)[:, None]
TAILS = (1.0 - LEVELS) / 2.0


class RungFields:
    """The fields of a block of rungs, by the names of `nws.bank.layout`."""

    scored: Array
    erred: Array
    regret: Array
    power: Array
    candidate: Array
    candidate_error: Array
    final: Array
    chosen: Array
    error: Array
    scale: Array
    quantile: Array
    covered: Array
    direct_w: Array


class Rungs(RungFields):
    """The fields of J rungs as views of a block: ``scored`` (J, N), ``erred`` (J, 2, E, N), ...

    `nws.bank.layout` says what each one is.
    """

    def __init__(self, block: Array, fields: dict[str, at.Field]) -> None:
        rungs, _, series = block.shape
        for name, field in fields.items():
            view = block[:, field.start : field.stop].reshape(rungs, *field.shape, series)
            setattr(self, name, view)
        self.row = np.arange(rungs)[:, None]
        self.column = np.arange(series)

    def part(self, which: slice) -> "Rungs":
        """Return some of the rungs."""
        some = object.__new__(Rungs)
        for name, view in vars(self).items():
            setattr(some, name, view[which])
        some.row = np.arange(len(some.scored))[:, None]
        some.column = self.column
        return some


def add(target: Array, change: Array, ok: Array | None) -> None:
    """Add `change` to `target`, where it is `ok` (None: everywhere)."""
    target += change if ok is None else np.where(ok, change, 0.0)


def in_order(array: Array, axis: int) -> Array:
    """Return the sum along `axis`, added up from the first to the last."""
    total: Array = np.add.accumulate(array, axis=axis).take(-1, axis=axis)
    return total


def shares(rungs: Rungs) -> Array:
    """Return what the newest scoring counts in a mean, 1 / count, (J, N)."""
    return 1.0 / np.maximum(rungs.scored, 1.0).astype(np.float64)


def score_experts(
    rungs: Rungs, issued: Array, candidate: Array, actual: Array, gain: Array, ok: Array | None
) -> None:
    """Score the forecasts `issued` (J, E, N) by the experts against `actual` (J, N).

    Keeps the mean and the discounted absolute error of each expert, and of the two mixtures the
    regrets r of ML-Poly (Gaillard, Stoltz, van Erven 2014, "A second-order bound with excess
    losses", algorithm ML-Poly) on the gradient of the loss: ``r = l'(m) (m - f)`` with the
    mixture's forecast m, the expert's f, and l the squared or the absolute error.
    """
    ok = None if ok is None else ok[:, None, None]
    share = shares(rungs)
    error = np.abs(issued - actual[:, None])
    weight = np.stack([share, np.maximum(gain, share)], axis=1)[:, :, None]
    add(rungs.erred, weight * (error[:, None] - rungs.erred), ok)
    mixed = candidate[:, 1:3]
    slope = mixed - actual[:, None]
    slope[:, 1] = np.sign(slope[:, 1])
    regret = slope[:, :, None] * (mixed[:, :, None] - issued[:, None])
    add(rungs.regret, regret, ok)
    add(rungs.power, regret * regret, ok)


def score_answers(
    rungs: Rungs, candidate: Array, chosen: Array, actual: Array, ok: Array | None
) -> Array:
    """Score the candidates (J, C, N) and the two `chosen` ones; return the error of the second."""
    share = shares(rungs)[:, None]
    cost = np.empty(rungs.candidate_error.shape)
    np.abs(candidate - actual[:, None], out=cost[:, 0])
    np.multiply(cost[:, 0], cost[:, 0], out=cost[:, 1])
    some = None if ok is None else ok[:, None]
    more = None if ok is None else ok[:, None, None]
    add(rungs.candidate_error, share[:, None] * (cost - rungs.candidate_error), more)
    places = chosen.astype(np.intp)
    second = places[:, 1]
    spent = np.stack(
        [
            cost[rungs.row, 0, places[:, 0], rungs.column],
            cost[rungs.row, 1, second, rungs.column],
        ],
        axis=1,
    )
    add(rungs.error, share * (spent - rungs.error), some)
    error: Array = actual - candidate[rungs.row, second, rungs.column]
    return error


def track(
    rungs: Rungs, error: Array, rate: Array, gain: Array, held: Array | None, ok: Array | None
) -> None:
    """Move the quantiles of the errors (J, N), in units of their scale, and count what was held.

    Online quantile regression: a quantile moves by the gradient of the pinball loss, in units of
    an exponentially weighted absolute error: q += eta (tau - 1[e < q s]).
    `held` (J, N) tells whether intervals as they were issued, of the certified level, held.
    """
    some = None if ok is None else ok[:, None]
    share = shares(rungs)
    rates = (2.0 * np.maximum(rate, share))[:, None]
    scale = rungs.scale[:, None]
    lower, upper = rungs.quantile[:, :, 0] * scale, rungs.quantile[:, :, 1] * scale
    off = error[:, None]
    under, within = off < lower, off <= upper
    inside = within > under
    if held is not None:
        inside[:, at.CERTIFIED] = held
    add(rungs.covered, inside, some)
    moving = scale > 0 if some is None else (scale > 0) & some
    below = np.minimum(0.0, rungs.quantile[:, :, 0] + rates * (TAILS - under))
    above = np.maximum(0.0, rungs.quantile[:, :, 1] + rates * ((1.0 - TAILS) - within))
    np.copyto(rungs.quantile[:, :, 0], below, where=moving, casting="same_kind")
    np.copyto(rungs.quantile[:, :, 1], above, where=moving, casting="same_kind")
    add(rungs.scale, np.maximum(gain, share) * (np.abs(error) - rungs.scale), ok)


def answer(rungs: Rungs, issued: Array, variance: Array) -> None:
    """Fill in the candidates' forecasts from the experts' (J, E, N), and choose.

    The candidates: the expert of the lowest mean absolute error, the mixtures with the weights of
    ML-Poly, ``w ~ max(R, 0) / (c + sum r^2)`` with c the variance of the series (squared for
    the squared error) in place of 1, so that units do not matter; the expert that erred least
    lately. The answers: the candidate of the lowest mean absolute error, and the one of the second
    to last of the lowest mean squared error.
    """
    best = rungs.erred.argmin(axis=2)
    row, column = rungs.row, rungs.column
    rungs.candidate[:, 0] = lowest = issued[row, best[:, 0], column]
    rungs.candidate[:, 3] = issued[row, best[:, 1], column]
    floor = np.stack([variance * variance, variance])[:, None] + at.TINY
    weight = np.empty((2, *rungs.regret.shape))
    np.divide(np.maximum(0.0, rungs.regret), rungs.power + floor, out=weight[0])
    np.multiply(weight[0], issued[:, None], out=weight[1])
    total, mix = np.add.accumulate(weight, axis=3)[:, :, :, -1]
    mixed = np.empty(mix.shape)
    mixed[...] = lowest[:, None]
    rungs.candidate[:, 1:3] = np.divide(mix, total, out=mixed, where=total > 0)
    chosen = rungs.candidate_error.argmin(axis=2)
    chosen[:, 1] = rungs.candidate_error[:, 1, 1:].argmin(axis=1) + 1
    rungs.chosen[:] = chosen
    rungs.final[:] = rungs.candidate[row[:, None], chosen, column]


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
