"""The two autoregressions of a single series, side by side in one set of small arrays."""

import math

import numpy as np

from nws.bank import layout as at
from nws.bank.scoring import Array
from nws.bank.vectors import Series

ROOM = 4 * at.HISTORY


class Pair:
    """AR(16) and the auto-lag AR(8), the latter filled up with zeros, which change no bit.

    The history is kept once more in a buffer in which the latest values lie side by side.
    """

    def __init__(self, series: Series) -> None:
        self._series = series
        self._p = np.zeros((2, at.ORDER, at.ORDER))
        self._w = np.zeros((2, at.ORDER))
        self._x = np.zeros((2, at.ORDER))
        self._flat = self._x.ravel()[: at.ORDER + at.LAGS]
        self._diagonal = np.einsum("mii->mi", self._p)
        self._product = np.empty_like(self._p)
        self._px = np.empty((2, at.ORDER))
        self._row = np.empty((2, at.ORDER))
        self._gain = np.empty((2, at.ORDER))
        self._two = np.empty((2, 1))
        self._past = np.zeros(ROOM)
        self._latest = at.HISTORY
        self._fits = [0.0, 0.0]
        self._unchecked = 0

    def resume(self, tick: int) -> None:
        """Take over the fields of the series, `tick` being the next."""
        s = self._series
        self._p[0], self._w[0], self._x[0] = s.ar_p[:, :, 0], s.ar_w[:, 0], s.ar_x[:, 0]
        self._p[1, : at.LAGS, : at.LAGS] = s.lag_p[:, :, 0]
        self._w[1, : at.LAGS], self._x[1, : at.LAGS] = s.lag_w[:, 0], s.lag_x[:, 0]
        rows = np.arange(tick - at.HISTORY, tick) % at.HISTORY
        self._past[: at.HISTORY] = s.history[rows, 0]
        self._latest = at.HISTORY - 1
        self._behind = np.concatenate([np.arange(at.ORDER), s.lag[:, 0] - 1]).astype(np.intp)
        self._deepest = int(self._behind.max())
        self._fits = [float(fit) for fit in np.add.accumulate(self._w * self._x, axis=1)[:, -1]]
        self._unchecked = 0

    def save(self) -> None:
        """Write all but the history into the fields of the series."""
        s = self._series
        s.ar_p[:, :, 0], s.ar_w[:, 0], s.ar_x[:, 0] = self._p[0], self._w[0], self._x[0]
        s.lag_p[:, :, 0] = self._p[1, : at.LAGS, : at.LAGS]
        s.lag_w[:, 0], s.lag_x[:, 0] = self._w[1, : at.LAGS], self._x[1, : at.LAGS]

    def latest(self, count: int) -> Array:
        """Return the last `count` values, the newest first."""
        return self._past[self._latest : self._latest - count : -1]

    def learn(self, z: float) -> None:
        """Move the weights of both towards w.x = z (`nws.bank.scoring.regress`)."""
        p, px, product, gain, two = self._p, self._px, self._product, self._gain, self._two
        np.multiply(p, self._x[:, :, None], out=product)
        np.add.reduce(product, axis=1, out=px)
        np.multiply(self._x, px, out=self._row)
        powers = np.add.accumulate(self._row, axis=1)[:, -1:]
        powers += at.FORGETTING
        np.divide(px, powers, out=gain)
        np.multiply(gain[:, :, None], px[:, None, :], out=product)
        p -= product
        p *= at.RENEWAL
        two[0, 0], two[1, 0] = z - self._fits[0], z - self._fits[1]
        gain *= two
        self._w += gain
        self._unchecked -= 1
        if self._unchecked < 0:
            self._check_trace()

    def _check_trace(self) -> None:
        """Shrink what exceeds the cap; without shrinking, a trace grows by 1/lambda at most."""
        traces = np.add.accumulate(self._diagonal, axis=1)[:, -1].tolist()
        for place, trace in enumerate(traces):
            if trace > at.TRACE:
                self._p[place] *= at.TRACE / trace
        greatest = max(traces)
        if 0 < greatest < at.TRACE:
            self._unchecked = int(math.log(at.TRACE / greatest) / math.log(at.RENEWAL) * 0.99) - 1

    def look_back(
        self, tick: int, value: float, age: int, mean: float, inverse: float
    ) -> list[float]:
        """Remember `value`; return what both make of the past, in standard deviations."""
        history = self._series.history
        history[tick % at.HISTORY, 0] = value
        self._latest += 1
        if self._latest == ROOM:
            self._past[: at.HISTORY] = self._past[-at.HISTORY :]
            self._latest = at.HISTORY
        self._past[self._latest] = history[tick % at.HISTORY, 0]
        flat = self._flat
        self._past.take(self._latest - self._behind, out=flat)
        flat -= mean
        flat *= inverse
        np.maximum(flat, -at.CLIP, out=flat)
        np.minimum(flat, at.CLIP, out=flat)
        if age < self._deepest:
            flat[self._behind > age] = 0.0
        np.multiply(self._w, self._x, out=self._row)
        self._fits = np.add.accumulate(self._row, axis=1)[:, -1].tolist()
        return self._fits
