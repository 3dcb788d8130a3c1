"""The first rung of a single series: the experts in small arrays, the few answers in plain numbers."""

import numpy as np

from nws.bank import layout as at
from nws.bank.scoring import Array, Rungs

TAILS = tuple((1.0 - level) / 2.0 for level in at.LEVELS)


class FirstRung:
    """Scores and answers one step ahead, as `nws.bank.scoring` does for many."""

    def __init__(self, rungs: Rungs) -> None:
        self._rungs = rungs
        self._erred = rungs.erred[0, :, :, 0]
        self._regret, self._power = rungs.regret[0, :, :, 0], rungs.power[0, :, :, 0]
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
        r = self._rungs
        self._scored = float(r.scored[0, 0])
        self._candidate: list[float] = r.candidate[0, :, 0].tolist()
        costs = r.candidate_error[0, :, :, 0].tolist()
        self._mae: list[float] = costs[0]
        self._mse: list[float] = costs[1]
        self.final = r.final[0, :, 0].tolist()
        self._chosen = [int(each) for each in r.chosen[0, :, 0]]
        self._final_error: list[float] = r.error[0, :, 0].tolist()
        self._scale = float(r.scale[0, 0])
        self._quantile: list[list[float]] = r.quantile[0, :, :, 0].tolist()
        self._covered: list[float] = r.covered[0, :, 0].tolist()

    def save(self) -> None:
        """Write all that is not there into the fields."""
        r = self._rungs
        r.scored[0, 0], r.scale[0, 0] = self._scored, self._scale
        r.candidate[0, :, 0], r.final[0, :, 0] = self._candidate, self.final
        r.candidate_error[0, :, :, 0] = self._mae, self._mse
        r.chosen[0, :, 0], r.error[0, :, 0] = self._chosen, self._final_error
        r.quantile[0, :, :, 0], r.covered[0, :, 0] = self._quantile, self._covered

    def score(self, f: Array, value: float) -> None:
        """Score what was forecast of `value` by the experts `f` and by the answers."""
        self._scored += 1.0
        share = 1.0 / self._scored
        error, two, regret = self._error, self._two, self._weight
        np.subtract(f, value, out=error)
        np.abs(error, out=error)
        np.subtract(error, self._erred, out=two)
        np.multiply(self._mean_row, share, out=self._mean_row)
        np.multiply(self._late_row, max(at.STEP_DISCOUNT, share), out=self._late_row)
        np.add(self._erred, two, out=self._erred)
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
        errors = [abs(candidate - value) for candidate in self._candidate]
        mae, mse, total = self._mae, self._mse, self._final_error
        for place, error in enumerate(errors):
            mae[place] += share * (error - mae[place])
            mse[place] += share * (error * error - mse[place])
        first, second = self._chosen
        total[0] += share * (errors[first] - total[0])
        total[1] += share * (errors[second] * errors[second] - total[1])
        self._track(value - self._candidate[second], share)

    def _track(self, error: float, share: float) -> None:
        scale, covered = self._scale, self._covered
        rate = 2.0 * max(at.STEP_RATE, share)
        for place, quantile in enumerate(self._quantile):
            low, high = quantile
            under, within = error < low * scale, error <= high * scale
            if within and not under:
                covered[place] += 1.0
            if scale > 0:
                tail = TAILS[place]
                low += rate * (tail - under)
                high += rate * ((1.0 - tail) - within)
                quantile[0] = min(0.0, low)
                quantile[1] = max(0.0, high)
        self._scale = scale + max(at.SCALE_GAIN, share) * (abs(error) - scale)

    def answer(self, f: Array, variance: float) -> None:
        """Fill in the candidates' forecasts, and choose."""
        best, lately = self._erred.argmin(axis=1).tolist()
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
        self._candidate = [lowest, *mixed, float(f[lately])]
        first = self._mae.index(min(self._mae))
        second = self._mse.index(min(self._mse[1:]), 1)
        self._chosen = [first, second]
        self.final = [self._candidate[first], self._candidate[second]]
