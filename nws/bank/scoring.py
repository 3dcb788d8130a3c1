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


class Rungs:
    """The fields of J rungs as views of a block: ``scored`` (J, N), ``absolute`` (J, E, N), ...

    `nws.bank.layout` says what each one is.
    """

    scored: Array
    absolute: Array
    lately: Array
    regret: Array
    power: Array
    candidate: Array
    candidate_absolute: Array
    candidate_squared: Array
    final: Array
    chosen: Array
    error: Array
    scale: Array
    quantile: Array
    covered: Array
    direct_w: Array

    def __init__(self, block: Array, fields: dict[str, at.Field]) -> None:
        rungs, _, series = block.shape
        for name, field in fields.items():
            view = block[:, field.start : field.stop].reshape(rungs, *field.shape, series)
            setattr(self, name, view)

    def first(self, count: int) -> "Rungs":
        """Return the first `count` rungs."""
        part = object.__new__(Rungs)
        for name, view in vars(self).items():
            setattr(part, name, view[:count])
        return part


def add(target: Array, change: Array, ok: Array | None) -> None:
    """Add `change` to `target`, where it is `ok` (None: everywhere)."""
    target += change if ok is None else np.where(ok, change, 0.0)


def in_order(array: Array, axis: int) -> Array:
    """Return the sum along `axis`, added up from the first to the last."""
    total: Array = np.add.accumulate(array, axis=axis).take(-1, axis=axis)
    return total


def score_experts(
    rungs: Rungs, issued: Array, candidate: Array, actual: Array, gain: Array, ok: Array | None
) -> None:
    """Score the forecasts `issued` (J, E, N) by the experts against `actual` (J, N).

    Keeps the mean and the discounted absolute error of each expert, and of the two mixtures the
    regrets r of ML-Poly (Gaillard, Stoltz, van Erven 2014, "A second-order bound with excess
    losses", algorithm ML-Poly) on the gradient of the loss: ``r = l'(m) (m - f)`` with the
    mixture's forecast m, the expert's f, and l the squared or the absolute error.
    """
    if ok is not None:
        ok = ok[:, None]
    count = np.maximum(rungs.scored, 1.0).astype(np.float64)[:, None]
    error = np.abs(issued - actual[:, None])
    add(rungs.absolute, (error - rungs.absolute) / count, ok)
    add(rungs.lately, np.maximum(gain, 1.0 / count) * (error - rungs.lately), ok)
    mixed = candidate[:, 1:3]
    slope = mixed - actual[:, None]
    slope[:, 1] = np.sign(slope[:, 1])
    regret = slope[:, :, None] * (mixed[:, :, None] - issued[:, None])
    if ok is not None:
        ok = ok[:, None]
    add(rungs.regret, regret, ok)
    add(rungs.power, regret * regret, ok)


def score_answers(
    rungs: Rungs, candidate: Array, chosen: Array, actual: Array, ok: Array | None
) -> Array:
    """Score the candidates (J, C, N) and the two `chosen` ones; return the error of the second."""
    some = None if ok is None else ok[:, None]
    count = np.maximum(rungs.scored, 1.0).astype(np.float64)[:, None]
    error = np.abs(candidate - actual[:, None])
    add(rungs.candidate_absolute, (error - rungs.candidate_absolute) / count, some)
    add(rungs.candidate_squared, (error * error - rungs.candidate_squared) / count, some)
    answers = np.take_along_axis(candidate, chosen.astype(np.intp), axis=1)
    away: Array = actual[:, None] - answers
    away[:, 0] = np.abs(away[:, 0])
    cost = away.copy()
    cost[:, 1] *= away[:, 1]
    add(rungs.error, (cost - rungs.error) / count, some)
    second: Array = away[:, 1]
    return second


def track(
    rungs: Rungs, error: Array, rate: Array, gain: Array, held: Array | None, ok: Array | None
) -> None:
    """Move the quantiles of the errors (J, N), in units of their scale, and count what was held.

    Online quantile regression: a quantile moves by the gradient of the pinball loss, in units of
    an exponentially weighted absolute error: q += eta (tau - 1[e < q s]) (research/nws 3.5).
    `held` (J, N) tells whether intervals as they were issued, of the certified level, held.
    """
    some = None if ok is None else ok[:, None]
    count = np.maximum(rungs.scored, 1.0).astype(np.float64)
    rates = (2.0 * np.maximum(rate, 1.0 / count))[:, None]
    scale = rungs.scale[:, None]
    lower, upper = rungs.quantile[:, :, 0] * scale, rungs.quantile[:, :, 1] * scale
    off = error[:, None]
    inside = (off >= lower) & (off <= upper)
    if held is not None:
        inside[:, at.CERTIFIED] = held
    add(rungs.covered, np.where(inside, 1.0, 0.0), some)
    moving = scale > 0 if some is None else (scale > 0) & some
    below = rungs.quantile[:, :, 0] + rates * (TAILS - np.where(off < lower, 1.0, 0.0))
    above = rungs.quantile[:, :, 1] + rates * ((1.0 - TAILS) - np.where(off <= upper, 1.0, 0.0))
    np.copyto(rungs.quantile[:, :, 0], np.minimum(0.0, below), where=moving, casting="same_kind")
    np.copyto(rungs.quantile[:, :, 1], np.maximum(0.0, above), where=moving, casting="same_kind")
    add(rungs.scale, np.maximum(gain, 1.0 / count) * (np.abs(error) - rungs.scale), ok)


def answer(rungs: Rungs, issued: Array, variance: Array) -> None:
    """Fill in the candidates' forecasts from the experts' (J, E, N), and choose.

    The candidates: the expert of the lowest mean absolute error, the mixtures with the weights of
    ML-Poly, ``w ~ max(R, 0) / (c + sum r^2)`` with c the variance of the series (squared for
    the squared error) in place of 1, so that units do not matter; the expert that erred least
    lately. The answers: the candidate of the lowest mean absolute error, and the one of the second
    to last of the lowest mean squared error.
    """
    best = rungs.absolute.argmin(axis=1)[:, None]
    lately = rungs.lately.argmin(axis=1)[:, None]
    rungs.candidate[:, :1] = lowest = np.take_along_axis(issued, best, axis=1)
    rungs.candidate[:, 3:] = np.take_along_axis(issued, lately, axis=1)
    floor = np.stack([variance * variance, variance])[:, None]
    weight = np.maximum(0.0, rungs.regret) / (rungs.power + floor + at.TINY)
    total = in_order(weight, 2)
    mix = in_order(weight * issued[:, None], 2)
    mixed = np.repeat(lowest, 2, axis=1).astype(np.float64)
    rungs.candidate[:, 1:3] = np.divide(mix, total, out=mixed, where=total > 0)
    choose(rungs)


def choose(rungs: Rungs) -> None:
    """Choose for each criterion the candidate that has been wrong least."""
    first = rungs.candidate_absolute.argmin(axis=1)
    second = rungs.candidate_squared[:, 1:].argmin(axis=1) + 1
    chosen = np.stack([first, second], axis=1)
    rungs.chosen[:] = chosen
    rungs.final[:] = np.take_along_axis(rungs.candidate, chosen, axis=1)


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
