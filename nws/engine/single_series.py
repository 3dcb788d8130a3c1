"""One tick of a single series with NumPy.

The experts and the few answers are plain numbers, and arrays remain where there are many: with arrays
throughout, a tick is some 200 calls of NumPy. That makes 9,200 updates a second one step ahead instead of
800, 1,500 instead of 430 with all horizons. The order of operations is that of `nws.engine.tick`, hence the
bits: one of several forms on purpose, see `nws.engine`.

With numba, `nws.engine.multi_horizon` runs the compiled tick in place of this one.
"""

import math
from abc import ABC, abstractmethod
from operator import mul

import numpy as np

from nws.engine import layout as at
from nws.engine import vectorised
from nws.engine.analogs import Analogs
from nws.engine.single_experts import Autoregressions, WindowExperts, in_order
from nws.engine.vectorised import (
    ANALOG,
    DIRECT,
    DIRECT_PAST,
    HORIZON_EXPERTS,
    TAILS,
    Array,
    HorizonFields,
    HorizonScores,
    SeriesFields,
    refresh_dominant_lags,
)

LOW_TAILS = TAILS[:, 0]
HIGH_TAILS = 1.0 - TAILS[:, 0]
COPIED = (
    *(
        "scored",
        "expert_error",
        "regret",
        "power",
        "excess",
        "spread",
        "reach",
        "candidate",
        "candidate_error",
        "final",
        "chosen",
    ),
    *("error", "scale", "quantile", "covered", "direct_w"),
)


class FurtherHorizons(HorizonFields):
    """Scores and answers the further horizons; holds their fields between `resume` and `save`."""

    def __init__(self, series: SeriesFields) -> None:
        self._series = series
        self._further, self._every = series.further, series.every
        self._lengths = self._further.tolist()
        count = len(self._further)
        self._p = series.direct_p[..., 0]
        self._rings, self._past = series.rings[..., 0], series.past[..., 0]
        self._issued = np.empty((count, at.M))
        self._now = np.empty((count, at.M))
        self._x = np.ones((count, at.D))
        self._x_now = np.ones(at.D)
        self._weight = np.empty((count, 2, 1))
        self._products = np.empty((2, count, 2, at.M))
        self._slot = np.empty((count, at.SLOT), dtype=np.float32)
        self._row = np.arange(count)
        cycle = range(int(self._every.max(initial=1)))
        self._due = [int(np.count_nonzero(tick % self._every == 0)) for tick in cycle]
        self._gain = at.MEAN_DISCOUNT * self._every
        share = np.sqrt(self._every / self._further)
        # As `nws.engine.vectorised`: errors of overlapping means come in runs, so the tracker learns
        # slower.
        self._rate, self._scale_gain = at.MEAN_RATE * share, at.SCALE_GAIN * share
        self.resume()

    def resume(self) -> None:
        """Take over the fields of the series."""
        for name in COPIED:
            setattr(self, name, np.array(getattr(self._series.means, name)[..., 0], order="C"))
        self._rates = vectorised.rates_of(self.spread, self.reach)
        self._young = True

    def save(self) -> None:
        """Write what is kept here into the fields of the series."""
        for name in COPIED:
            getattr(self._series.means, name)[..., 0] = getattr(self, name)

    def advance_horizons(
        self,
        tick: int,
        age: int,
        latest: Array,
        analogs: Analogs,
        f: Array,
        moments: "SeriesMoments",
    ) -> None:
        """Score what is known by now, and answer anew.

        Parameters
        ----------
        latest
            The last values, the newest first, as many as the highest horizon is long.
        analogs
            The analogs of the latest of them.
        f
            What the experts forecast.
        moments
            Mean, deviation, its inverse, variance, low and high of the series; and the final
            answers of the first horizon.
        """
        due = self._due[tick % len(self._due)]
        ripe = due
        if age < at.LONGEST:
            ripe = min(due, int(np.count_nonzero(self._further <= age)))
        places = (
            self._series.starts[:due] + (tick // self._every[:due]) % self._series.places[:due]
        )
        if ripe:
            totals = np.add.accumulate(latest)[self._further[:ripe] - 1]
            self._score(ripe, tick, places[:ripe], totals / self._further[:ripe], moments)
        self._answer(due, places, analogs, f, moments)
        if self._young:
            young = self.scored * self._every < at.TRUSTED
            self.final[young] = moments.final
            self._young = bool(young.any())
        self._past[tick % at.LONGEST] = f[HORIZON_EXPERTS]

    def _score(
        self, m: int, tick: int, places: Array, actual: Array, moments: "SeriesMoments"
    ) -> None:
        """Score the experts and the answers of the first `m` horizons."""
        slot = self._rings[places].astype(np.float64)
        issued, column = self._issued[:m], actual[:, None]
        issued[:, : at.K] = self._past[(tick - self._further[:m]) % at.LONGEST]
        issued[:, at.K :] = slot[:, at.OWN_AT : at.CHOICE_AT]
        self.scored[:m] += 1.0
        share = 1.0 / self.scored[:m].astype(np.float64)
        weight = self._weight[:m]
        weight[:, 0, 0] = share
        np.maximum(self._gain[:m], share, out=weight[:, 1, 0])
        error = np.abs(issued - column)
        change = error[:, None] - self.expert_error[:m]
        change *= weight
        self.expert_error[:m] += change
        mixed = slot[:, 1:3]
        slope = mixed - column
        slope[:, 1] = np.sign(slope[:, 1])
        regret = mixed[:, :, None] - issued[:, None]
        regret *= slope[:, :, None]
        self.regret[:m] += regret
        regret *= regret
        self.power[:m] += regret
        away = self._score_answers(m, slot, column, share)
        held = (actual >= slot[:, at.ENDS_AT]) & (actual <= slot[:, at.ENDS_AT + 1])
        self._track(m, away, share, held)
        self._learn(m, issued, actual, moments)

    def _score_answers(self, m: int, slot: Array, column: Array, share: Array) -> Array:
        row, candidate = self._row[:m], slot[:, : at.C]
        error = candidate - column
        self._aggregate(m, candidate, error)
        cost = error * error
        second = slot[:, at.CHOICE_AT].astype(np.intp)
        spent = np.empty((m, 2))
        np.abs(error[:, at.AGGREGATION], out=spent[:, 0])
        spent[:, 1] = cost[row, second]
        spent -= self.error[:m]
        spent *= share[:, None]
        self.error[:m] += spent
        cost -= self.candidate_error[:m]
        cost *= share[:, None]
        self.candidate_error[:m] += cost
        away: Array = column[:, 0] - candidate[row, second]
        return away

    def _aggregate(self, m: int, candidate: Array, error: Array) -> None:
        """Move the regrets of the aggregation (`nws.engine.vectorised.aggregate`)."""
        regret = candidate[:, at.AGGREGATION :] - candidate[:, : at.AGGREGATION]
        regret *= np.sign(error[:, at.AGGREGATION :])
        reach, spread = self.reach[:m], self.spread[:m]
        np.maximum(reach, np.abs(regret), out=reach, casting="same_kind")
        square = regret * regret
        spread += square
        self._rates[:m] = vectorised.rates_of(spread, reach)
        square *= self._rates[:m]
        regret -= square
        self.excess[:m] += regret

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

    def _learn(self, m: int, issued: Array, actual: Array, moments: "SeriesMoments") -> None:
        """Move the direct regressions (`nws.engine.vectorised.regress`)."""
        p, w, x = self._p[:m], self.direct_w[:m], self._x[:m]
        x[:, :-1] = moments.standard(issued[:, DIRECT_PAST])
        z = moments.standard(actual)
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

    def _answer(
        self, due: int, places: Array, analogs: Analogs, f: Array, moments: "SeriesMoments"
    ) -> None:
        """Answer all horizons, and keep the answers of the first `due` until they can be scored."""
        now, row, candidate = self._now, self._row, self.candidate
        self._x_now[:-1] = moments.standard(f[DIRECT])
        fits = np.add.accumulate(self.direct_w * self._x_now, axis=1)[:, -1]
        now[:, : at.K] = f[HORIZON_EXPERTS]
        own = now[:, at.K :]
        np.minimum(np.maximum(fits, -at.CLIP), at.CLIP, out=own[:, 0])
        own[:, 0] *= moments.deviation
        own[:, 0] += moments.mean
        for place, horizon in enumerate(self._lengths):
            own[place, 1] = analogs.means(horizon, f[:1])[0]
        np.minimum(np.maximum(own, moments.low), moments.high, out=own)
        best = self.expert_error.argmin(axis=2)
        lowest = now[row, best[:, 0]]
        products = self._products
        np.maximum(0.0, self.regret, out=products[0])
        products[0] /= self.power + moments.floor
        np.multiply(products[0], now[:, None], out=products[1])
        total, mix = np.add.accumulate(products, axis=3)[:, :, :, -1]
        candidate[:, 0], candidate[:, 3] = lowest, now[row, best[:, 1]]
        if (total > 0).all():
            candidate[:, 1:3] = mix / total
        else:
            mixed = np.repeat(lowest[:, None], 2, axis=1)
            candidate[:, 1:3] = np.divide(mix, total, out=mixed, where=total > 0)
        gain = self._rates * self.excess
        gain -= gain.max(axis=1, keepdims=True)
        share = vectorised.faded(gain)
        share *= self._rates
        self.chosen[:, 0] = share.argmax(axis=1)
        total = np.add.accumulate(share, axis=1)[:, -1]
        share *= candidate[:, : at.AGGREGATION]
        mix = np.add.accumulate(share, axis=1)[:, -1]
        candidate[:, at.AGGREGATION] = np.divide(mix, total, out=lowest.copy(), where=total > 0)
        second = self.candidate_error[:, 1:].argmin(axis=1) + 1
        self.chosen[:, 1] = second
        final = self.final
        final[:, 0] = candidate[:, at.AGGREGATION]
        final[:, 1] = candidate[row, second]
        slot = self._slot[:due]
        slot[:, : at.C] = candidate[:due]
        slot[:, at.OWN_AT : at.CHOICE_AT] = own[:due]
        slot[:, at.CHOICE_AT] = second[:due]
        ends = self.quantile[:due, at.CERTIFIED] * self.scale[:due, None]
        slot[:, at.ENDS_AT :] = final[:due, 1:] + ends
        self._rings[places] = slot


class SeriesMoments:
    """The moments and the range of the series at a tick, which the further horizons need."""

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


TAIL_SHARES = tuple((1.0 - level) / 2.0 for level in at.LEVELS)


class OneStepHorizon:
    """Scores and answers one step ahead, as `nws.engine.vectorised` does for many."""

    def __init__(self, scores: HorizonScores) -> None:
        self._scores = scores
        self._expert_error = scores.expert_error[0, :, :, 0]
        self._regret, self._power = scores.regret[0, :, :, 0], scores.power[0, :, :, 0]
        self._error = np.empty(at.E)
        self._two = np.empty((2, at.E))
        self._mean_row, self._late_row = self._two
        self._weight = np.empty((2, at.E))
        self._mixed = np.empty((2, 1))
        self._slope = np.empty((2, 1))
        self._floor = np.empty((2, 1))
        self._products = np.empty((2, 2, at.E))
        self.final = [0.0, 0.0]
        self.resume()

    def resume(self) -> None:
        """Take over the fields."""
        r = self._scores
        self._scored = float(r.scored[0, 0])
        self._candidate: list[float] = r.candidate[0, :, 0].tolist()
        self._mse: list[float] = r.candidate_error[0, :, 0].tolist()
        self._excess: list[float] = r.excess[0, :, 0].tolist()
        self._spread: list[float] = r.spread[0, :, 0].tolist()
        self._reach: list[float] = r.reach[0, :, 0].tolist()
        self.final = r.final[0, :, 0].tolist()
        self._chosen = [int(each) for each in r.chosen[0, :, 0]]
        self._final_error: list[float] = r.error[0, :, 0].tolist()
        self._scale = float(r.scale[0, 0])
        self._quantile: list[list[float]] = r.quantile[0, :, :, 0].tolist()
        self._covered: list[float] = r.covered[0, :, 0].tolist()

    def save(self) -> None:
        """Write all that is not there into the fields."""
        r = self._scores
        r.scored[0, 0], r.scale[0, 0] = self._scored, self._scale
        r.candidate[0, :, 0], r.final[0, :, 0] = self._candidate, self.final
        r.candidate_error[0, :, 0] = self._mse
        r.excess[0, :, 0], r.spread[0, :, 0] = self._excess, self._spread
        r.reach[0, :, 0] = self._reach
        r.chosen[0, :, 0], r.error[0, :, 0] = self._chosen, self._final_error
        r.quantile[0, :, :, 0], r.covered[0, :, 0] = self._quantile, self._covered

    def score(self, f: Array, value: float) -> None:
        """Score what was forecast of `value` by the experts `f` and by the answers."""
        self._scored += 1.0
        share = 1.0 / self._scored
        error, two, regret = self._error, self._two, self._weight
        np.subtract(f, value, out=error)
        np.abs(error, out=error)
        np.subtract(error, self._expert_error, out=two)
        np.multiply(self._mean_row, share, out=self._mean_row)
        np.multiply(self._late_row, max(at.STEP_DISCOUNT, share), out=self._late_row)
        np.add(self._expert_error, two, out=self._expert_error)
        first, second = self._candidate[1], self._candidate[2]
        self._mixed[0, 0], self._mixed[1, 0] = first, second
        self._slope[0, 0] = first - value
        self._slope[1, 0] = float(second > value) - float(second < value)
        np.subtract(self._mixed, f, out=regret)
        np.multiply(self._slope, regret, out=regret)
        np.add(self._regret, regret, out=self._regret)
        np.multiply(regret, regret, out=regret)
        np.add(self._power, regret, out=self._power)
        self._score_answers(value, share)

    def _score_answers(self, value: float, share: float) -> None:
        mse, total = self._mse, self._final_error
        self._aggregate(value)
        for place, candidate in enumerate(self._candidate):
            error = candidate - value
            mse[place] += share * (error * error - mse[place])
        total[0] += share * (abs(self._candidate[at.AGGREGATION] - value) - total[0])
        error = value - self._candidate[self._chosen[1]]
        total[1] += share * (error * error - total[1])
        self._track(error, share)

    def _aggregate(self, value: float) -> None:
        """Move the regrets of the aggregation (`nws.engine.vectorised.aggregate`)."""
        *others, mixed = self._candidate
        sign = float(mixed > value) - float(mixed < value)
        spread, reach = self._spread, self._reach
        for place, candidate in enumerate(others):
            regret = sign * (mixed - candidate)
            square = regret * regret
            spread[place] += square
            reach[place] = max(reach[place], abs(regret))
            self._excess[place] += regret - rate_of(spread[place], reach[place]) * square

    def _aggregated(self, candidate: list[float]) -> float:
        """Return the aggregation of the candidates, and note which of them weighs most."""
        rates = list(map(rate_of, self._spread, self._reach))
        gains = list(map(mul, rates, self._excess))
        top = max(gains)
        weights = [rate * faded(gain - top) for rate, gain in zip(rates, gains, strict=True)]
        total = in_order(weights)
        self._chosen[0] = weights.index(max(weights))
        mix = in_order(list(map(mul, weights, candidate)))
        return mix / total if total > 0 else candidate[0]

    def _track(self, error: float, share: float) -> None:
        scale, covered = self._scale, self._covered
        rate = 2.0 * max(at.STEP_RATE, share)
        for place, quantile in enumerate(self._quantile):
            low, high = quantile
            under, within = error < low * scale, error <= high * scale
            if within and not under:
                covered[place] += 1.0
            if scale > 0:
                tail = TAIL_SHARES[place]
                low += rate * (tail - under)
                high += rate * ((1.0 - tail) - within)
                quantile[0] = min(0.0, low)
                quantile[1] = max(0.0, high)
        self._scale = scale + max(at.SCALE_GAIN, share) * (abs(error) - scale)

    def answer(self, f: Array, variance: float) -> None:
        """Fill in the candidates' forecasts, and choose."""
        best, lately = self._expert_error.argmin(axis=1).tolist()
        lowest = float(f[best])
        floor, products = self._floor, self._products
        floor[0, 0], floor[1, 0] = variance * variance + at.TINY, variance + at.TINY
        np.add(self._power, floor, out=self._two)
        np.maximum(self._regret, 0.0, out=self._weight)
        np.divide(self._weight, self._two, out=products[0])
        np.multiply(products[0], f, out=products[1])
        totals, mixes = np.add.accumulate(products, axis=2)[:, :, -1].tolist()
        mixed = [
            mix / total if total > 0 else lowest for mix, total in zip(mixes, totals, strict=True)
        ]
        candidate = [lowest, *mixed, float(f[lately])]
        aggregation = self._aggregated(candidate)
        self._candidate = [*candidate, aggregation]
        second = self._mse.index(min(self._mse[1:]), 1)
        self._chosen[1] = second
        self.final = [aggregation, self._candidate[second]]


class SeriesEngine(ABC):
    """Computes the ticks of one series, whose fields others may read after `settle`."""

    @abstractmethod
    def step(self, tick: int, value: float) -> None:
        """Take in the value of `tick`, in the engine's unit; NaN: it is missing."""

    @abstractmethod
    def final(self, which: int) -> float:
        """Return the one-step answer for a criterion, in the engine's unit."""

    @abstractmethod
    def refresh_dominant_lags(self, tick: int) -> None:
        """Give the auto-lag regression the lags that the history shows, `tick` being the latest."""

    @abstractmethod
    def settle(self) -> None:
        """Write all that the engine knows into the fields of the series."""

    @abstractmethod
    def resume(self, tick: int) -> None:
        """Take over the fields of the series after a change, `tick` being the next."""


class SingleSeriesEngine(SeriesEngine):
    """Computes the ticks with plain numbers and small arrays."""

    def __init__(self, series: SeriesFields) -> None:
        self._series = series
        self._experts = WindowExperts()
        self._first = OneStepHorizon(series.step)
        self._autoregressions = Autoregressions(series)
        self._f = np.zeros(at.E)
        self._age = 0
        self._whole = 0
        self._further = FurtherHorizons(series) if len(series.horizons) > 1 else None
        self.resume(0)

    def step(self, tick: int, value: float) -> None:
        """Take in the value of `tick`, in the engine's unit; NaN: there is none."""
        experts, first, f = self._experts, self._first, self._f
        known = value == value  # noqa: PLR0124 - NaN is what differs from itself
        if not known:
            value = first.final[0]
            self._age += 1
        elif experts.samples:
            self._age += 1
            first.score(f, value)
            self._autoregressions.learn(
                clipped((value - experts.mean) * inverse(experts.variance))
            )
            f[:21] = experts.take(value)
        else:
            f[:21] = experts.begin(value)
        mean, deviation, by = experts.mean, math.sqrt(experts.variance), inverse(experts.variance)
        fits = self._autoregressions.look_back(tick, value, self._age, mean, by)
        low, high = experts.low, experts.high
        f[21] = min(max(mean + deviation * clipped(fits[0]), low), high)
        f[22] = min(max(mean + deviation * clipped(fits[1]), low), high)
        analogs = self._autoregressions.ring.analogs(min(self._age + 1, at.HISTORY))
        followed = analogs.next_values(f[:1])[:, 0]
        np.minimum(np.maximum(followed, low), high, out=f[ANALOG:])
        first.answer(f, experts.variance)
        self._series.valid[tick % at.LONGEST, 0] = known
        self._whole = self._whole + 1 if known else 0
        if self._further is not None:
            self._advance_horizons(tick, analogs, mean, deviation, by)

    def _advance_horizons(
        self, tick: int, analogs: Analogs, mean: float, deviation: float, by: float
    ) -> None:
        further, experts, s = self._further, self._experts, self._series
        assert further is not None  # noqa: S101 - for the type checker
        # Without a missing value within the longest horizon the small arrays do; else the
        # vectorised code, which knows of gaps, takes the series over for this tick.
        if self._whole > min(self._age, at.LONGEST):
            moments = SeriesMoments(
                mean, experts.variance, deviation, by, experts.low, experts.high
            )
            moments.final = self._first.final
            latest = self._autoregressions.latest(at.LONGEST)
            further.advance_horizons(tick, self._age, latest, analogs, self._f, moments)
            return
        further.save()
        s.mean[0], s.variance[0] = experts.mean, experts.variance
        s.low[0], s.high[0], s.age[0] = experts.low, experts.high, self._age
        s.expert[:, 0] = self._f
        s.step.final[0, :, 0] = self._first.final
        vectorised.advance_horizons(s, tick, analogs)
        further.resume()

    def final(self, which: int) -> float:
        """Return the answer of the first horizon."""
        return self._first.final[which]

    def refresh_dominant_lags(self, tick: int) -> None:
        """Give the auto-lag regression new lags."""
        s, experts = self._series, self._experts
        s.mean[0], s.variance[0], s.age[0] = experts.mean, experts.variance, self._age
        s.low[0], s.high[0] = experts.low, experts.high
        self._autoregressions.save()
        refresh_dominant_lags(s, 0, tick)
        self._autoregressions.resume(tick + 1)

    def settle(self) -> None:
        """Write what is kept here into the fields of the series."""
        self._experts.save(self._series)
        self._first.save()
        self._autoregressions.save()
        if self._further is not None:
            self._further.save()
        self._series.age[0] = self._age
        self._series.expert[:, 0] = self._f

    def resume(self, tick: int) -> None:
        """Take over the fields of the series, `tick` being the next."""
        self._experts.load(self._series)
        self._first.resume()
        self._autoregressions.resume(tick)
        if self._further is not None:
            self._further.resume()
        self._age = int(self._series.age[0])
        self._whole = self._unbroken(tick)
        self._f[:] = self._series.expert[:, 0]

    def _unbroken(self, tick: int) -> int:
        """Return how many of the ticks before `tick`, at most the longest horizon, had a value."""
        backwards = (tick - 1 - np.arange(at.LONGEST)) % at.LONGEST
        missing = np.flatnonzero(self._series.valid[backwards, 0] == 0)
        return int(missing[0]) if len(missing) else at.LONGEST


def rate_of(spread: float, reach: float) -> float:
    """Return the learning rate of a candidate (`nws.engine.vectorised.rates_of`)."""
    if spread > 0:
        steady = math.sqrt(at.PATIENCE / max(spread, at.TINY))
        return min(steady, 0.5 / max(reach, at.TINY))
    return 0.0


def faded(power: float) -> float:
    """Return e to the `power`, at most 0 (`nws.engine.vectorised.faded`)."""
    y = max(power, at.FAINTEST) / 64.0
    y = 1.0 + y * (1.0 + y * (0.5 + y * vectorised.SIXTH))
    for _ in range(6):
        y *= y
    return y


def clipped(value: float) -> float:
    """Return `value` within plus and minus `CLIP`."""
    return min(max(value, -at.CLIP), at.CLIP)


def inverse(variance: float) -> float:
    """Return one over the deviation, and 0 where that is 0."""
    return 1.0 / math.sqrt(variance) if variance > 0 else 0.0
