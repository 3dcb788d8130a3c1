"""The further rungs of a single series, in small arrays, where nothing is missing.

`nws.bank.vectors.climb` for one series: the same operations without the axis of the series, in arrays
that lie side by side. Where a value is missing that one is used.
"""

import numpy as np

from nws.bank import layout as at
from nws.bank.scoring import TAILS, Array, RungFields
from nws.bank.vectors import DIRECT, DIRECT_PAST, LADDER_EXPERTS, Series

LOW_TAILS = TAILS[:, 0]
HIGH_TAILS = 1.0 - TAILS[:, 0]
COPIED = (
    *("scored", "erred", "regret", "power", "candidate", "candidate_error", "final", "chosen"),
    *("error", "scale", "quantile", "covered", "direct_w"),
)


class Climber(RungFields):
    """Scores and answers the further rungs; holds their fields between `resume` and `save`."""

    def __init__(self, series: Series) -> None:
        self._series = series
        self._rungs, self._every = series.rungs, series.every
        count = len(self._rungs)
        self._p = series.direct_p[..., 0]
        self._rings, self._past = series.rings[..., 0], series.past[..., 0]
        self._issued = np.empty((count, at.K + 1))
        self._now = np.empty((count, at.K + 1))
        self._x = np.ones((count, at.D))
        self._x_now = np.ones(at.D)
        self._weight = np.empty((count, 2, 1))
        self._products = np.empty((2, count, 2, at.K + 1))
        self._cost = np.empty((count, 2, at.C))
        self._slot = np.empty((count, at.SLOT), dtype=np.float32)
        self._row = np.arange(count)
        cycle = range(int(self._every.max(initial=1)))
        self._due = [int(np.count_nonzero(tick % self._every == 0)) for tick in cycle]
        self._gain = at.MEAN_DISCOUNT * self._every
        share = np.sqrt(self._every / self._rungs)
        self._rate, self._scale_gain = at.MEAN_RATE * share, at.SCALE_GAIN * share
        self.resume()

    def resume(self) -> None:
        """Take over the fields of the series."""
        for name in COPIED:
            setattr(self, name, np.array(getattr(self._series.means, name)[..., 0], order="C"))
        self._young = True

    def save(self) -> None:
        """Write what is kept here into the fields of the series."""
        for name in COPIED:
            getattr(self._series.means, name)[..., 0] = getattr(self, name)

    def climb(self, tick: int, age: int, latest: Array, f: Array, facts: "Facts") -> None:
        """Score what is known by now, and answer anew.

        Parameters
        ----------
        latest
            The last values, the newest first, as many as the highest rung is long.
        f
            What the experts forecast.
        facts
            Mean, deviation, its inverse, variance, low and high of the series; and the final
            answers of the first rung.
        """
        due = self._due[tick % len(self._due)]
        ripe = due
        if age < at.LONGEST:
            ripe = min(due, int(np.count_nonzero(self._rungs <= age)))
        places = (
            self._series.starts[:due] + (tick // self._every[:due]) % self._series.places[:due]
        )
        if ripe:
            totals = np.add.accumulate(latest)[self._rungs[:ripe] - 1]
            self._score(ripe, tick, places[:ripe], totals / self._rungs[:ripe], facts)
        self._answer(due, places, f, facts)
        if self._young:
            young = self.scored * self._every < at.TRUSTED
            self.final[young] = facts.final
            self._young = bool(young.any())
        self._past[tick % at.LONGEST] = f[LADDER_EXPERTS]

    def _score(self, m: int, tick: int, places: Array, actual: Array, facts: "Facts") -> None:
        """Score the experts and the answers of the first `m` rungs."""
        slot = self._rings[places].astype(np.float64)
        issued, column = self._issued[:m], actual[:, None]
        issued[:, : at.K] = self._past[(tick - self._rungs[:m]) % at.LONGEST]
        issued[:, at.K] = slot[:, at.C]
        self.scored[:m] += 1.0
        share = 1.0 / self.scored[:m].astype(np.float64)
        weight = self._weight[:m]
        weight[:, 0, 0] = share
        np.maximum(self._gain[:m], share, out=weight[:, 1, 0])
        error = np.abs(issued - column)
        change = error[:, None] - self.erred[:m]
        change *= weight
        self.erred[:m] += change
        mixed = slot[:, 1:3]
        slope = mixed - column
        slope[:, 1] = np.sign(slope[:, 1])
        regret = mixed[:, :, None] - issued[:, None]
        regret *= slope[:, :, None]
        self.regret[:m] += regret
        regret *= regret
        self.power[:m] += regret
        away = self._score_answers(m, slot, column, share)
        held = (actual >= slot[:, at.C + 2]) & (actual <= slot[:, at.C + 3])
        self._track(m, away, share, held)
        self._learn(m, issued, actual, facts)

    def _score_answers(self, m: int, slot: Array, column: Array, share: Array) -> Array:
        cost, row = self._cost[:m], self._row[:m]
        candidate = slot[:, : at.C]
        np.abs(candidate - column, out=cost[:, 0])
        np.multiply(cost[:, 0], cost[:, 0], out=cost[:, 1])
        both = slot[:, at.C + 1].astype(np.intp)
        first, second = both // at.C, both % at.C
        spent = np.empty((m, 2))
        spent[:, 0], spent[:, 1] = cost[row, 0, first], cost[row, 1, second]
        spent -= self.error[:m]
        spent *= share[:, None]
        self.error[:m] += spent
        cost -= self.candidate_error[:m]
        cost *= share[:, None, None]
        self.candidate_error[:m] += cost
        away: Array = column[:, 0] - candidate[row, second]
        return away

    def _track(self, m: int, away: Array, share: Array, held: Array) -> None:
        scale, quantile = self.scale[:m], self.quantile[:m]
        ends = quantile * scale[:, None, None]
        off = away[:, None]
        under, within = off < ends[:, :, 0], off <= ends[:, :, 1]
        inside = within > under
        inside[:, at.CERTIFIED] = held
        self.covered[:m] += inside
        rates = 2.0 * np.maximum(self._rate[:m], share)
        if not (scale > 0).all():
            rates *= scale > 0
        rates = rates[:, None]
        low = quantile[:, :, 0] + rates * (LOW_TAILS - under)
        high = quantile[:, :, 1] + rates * (HIGH_TAILS - within)
        np.minimum(0.0, low, out=quantile[:, :, 0], casting="same_kind")
        np.maximum(0.0, high, out=quantile[:, :, 1], casting="same_kind")
        scale += np.maximum(self._scale_gain[:m], share) * (np.abs(away) - scale)

    def _learn(self, m: int, issued: Array, actual: Array, facts: "Facts") -> None:
        """Move the direct regressions (`nws.bank.scoring.regress`)."""
        p, w, x = self._p[:m], self.direct_w[:m], self._x[:m]
        x[:, :-1] = facts.standard(issued[:, DIRECT_PAST])
        z = facts.standard(actual)
        px = np.add.accumulate(p * x[:, :, None], axis=1)[:, -1]
        power = np.add.accumulate(x * px, axis=1)[:, -1:] + at.FORGETTING
        error = z[:, None] - np.add.accumulate(w * x, axis=1)[:, -1:]
        gain = px / power
        w += gain * error
        moved = p - gain[:, :, None] * px[:, None]
        moved *= at.RENEWAL
        trace = np.add.accumulate(np.einsum("mii->mi", moved), axis=1)[:, -1]
        if (trace > at.TRACE).any():
            moved *= np.where(trace > at.TRACE, at.TRACE / trace, 1.0)[:, None, None]
        p[...] = moved

    def _answer(self, due: int, places: Array, f: Array, facts: "Facts") -> None:
        """Answer the first `due` rungs, and keep the answers until they can be scored."""
        now, row, candidate = self._now[:due], self._row[:due], self.candidate[:due]
        self._x_now[:-1] = facts.standard(f[DIRECT])
        fits = np.add.accumulate(self.direct_w[:due] * self._x_now, axis=1)[:, -1]
        now[:, : at.K] = f[LADDER_EXPERTS]
        direct = facts.mean + facts.deviation * np.minimum(np.maximum(fits, -at.CLIP), at.CLIP)
        np.minimum(np.maximum(direct, facts.low), facts.high, out=now[:, at.K])
        best = self.erred[:due].argmin(axis=2)
        lowest = now[row, best[:, 0]]
        products = self._products[:, :due]
        np.maximum(0.0, self.regret[:due], out=products[0])
        products[0] /= self.power[:due] + facts.floor
        np.multiply(products[0], now[:, None], out=products[1])
        total, mix = np.add.accumulate(products, axis=3)[:, :, :, -1]
        candidate[:, 0], candidate[:, 3] = lowest, now[row, best[:, 1]]
        if (total > 0).all():
            candidate[:, 1:3] = mix / total
        else:
            mixed = np.repeat(lowest[:, None], 2, axis=1)
            candidate[:, 1:3] = np.divide(mix, total, out=mixed, where=total > 0)
        chosen = self.candidate_error[:due].argmin(axis=2)
        chosen[:, 1] = self.candidate_error[:due, 1, 1:].argmin(axis=1) + 1
        self.chosen[:due] = chosen
        final = self.final[:due]
        final[:] = candidate[row[:, None], chosen]
        slot = self._slot[:due]
        slot[:, : at.C] = candidate
        slot[:, at.C] = now[:, at.K]
        slot[:, at.C + 1] = chosen[:, 0] * at.C + chosen[:, 1]
        ends = self.quantile[:due, at.CERTIFIED] * self.scale[:due, None]
        slot[:, at.C + 2 :] = final[:, 1:] + ends
        self._rings[places] = slot


class Facts:
    """What the rungs need to know of the series at a tick."""

    __slots__ = ("deviation", "final", "floor", "high", "inverse", "low", "mean")

    def __init__(
        self,
        mean: float,
        variance: float,
        deviation: float,
        inverse: float,
        low: float,
        high: float,
    ) -> None:
        self.mean, self.deviation, self.inverse = mean, deviation, inverse
        self.low, self.high = low, high
        self.floor = np.array([[variance * variance], [variance]]) + at.TINY
        self.final: list[float] = []

    def standard(self, values: Array) -> Array:
        """Return `values` in deviations from the mean, within plus and minus `CLIP`."""
        away: Array = (values - self.mean) * self.inverse
        np.maximum(away, -at.CLIP, out=away)
        np.minimum(away, at.CLIP, out=away)
        return away
