"""Many series side by side under the default profile."""

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nws.engine import layout as at
from nws.engine import vectorised
from nws.engine.vectorised import Array, HorizonScores, SeriesFields, refresh_dominant_lags
from nws.errors import InputError
from nws.forecaster import Criterion
from nws.measurement import LARGEST

Engine = Literal["auto", "numpy", "numba"]
CRITERIA: Final[tuple[Criterion, ...]] = ("absolute", "squared")
REFRESH: Final = 128
"""Ticks between two looks at the periodicity of a series."""
CHUNK: Final = 1024
"""Series per pass of the NumPy engine: their state stays in the cache."""
FAR: Final = 2.0**26
"""A value so many units away makes all before it nothing: the series starts anew.

Squared regrets go with the fourth power of that distance and are kept as float32.
"""


def fresh(count: int, horizons: Sequence[int]) -> tuple[Array, Array]:
    """Return the two blocks of `count` series of which nothing is known yet, the series first."""
    wide, narrow = _unknown(tuple(horizons))
    return np.repeat(wide, count, axis=0), np.repeat(narrow, count, axis=0)


# Building the views of a series takes longer than copying its blocks: the first one is the
# template.
@cache
def _unknown(horizons: tuple[int, ...]) -> tuple[Array, Array]:
    wide_size, narrow_size = at.sizes(horizons)
    wide = np.zeros((1, wide_size))
    narrow = np.zeros((1, narrow_size), dtype=np.float32)
    series = SeriesFields(wide.T, narrow.T, horizons)
    series.tuning[1] = 0.3
    series.width[:] = [[10.0], [30.0]]
    series.lag[:] = np.arange(1.0, at.LAGS + 1.0)[:, None]
    for matrix in (series.ar_p, series.lag_p, series.direct_p):
        matrix[...] = np.eye(matrix.shape[-2])[:, :, None]
    # Quantiles of the normal distribution, in units of its mean absolute error.
    normal = np.array([0.845, 1.606, 2.061, 2.456])
    for scores in (series.step, series.means):
        scores.quantile[:] = np.stack([-normal, normal], axis=1)[:, :, None]
        scores.chosen[:, 1] = 1.0
    return wide, narrow


class Bank:
    """The default profile for many series that are measured at the same ticks.

    An update costs O(1) a series, however long it is; a series takes under 26 kB with all
    horizons and under 16 kB one step ahead. Each series' forecasts lie within the range of its own
    values so far. The numbers are the same, bit for bit, with both engines.

    Parameters
    ----------
    count
        How many series.
    horizons
        The horizons, numbers of samples whose mean is forecast: 1 and some of
        ``nws.engine.layout.HORIZONS``.
    engine
        ``"numpy"``, ``"numba"`` (compiles for some seconds when first used on a machine), or
        ``"auto"``: numba when it is installed.

    Examples
    --------
    >>> bank = Bank(2, horizons=(1,), engine="numpy")
    >>> for _ in range(50):
    ...     bank.update([0.5, 8.0])
    >>> bank.forecast()
    array([0.5, 8. ])
    >>> bank.update([0.5, float("nan")])
    >>> bank.samples
    array([51, 50])
    """

    def __init__(
        self, count: int, horizons: Sequence[int] = at.HORIZONS, engine: Engine = "auto"
    ) -> None:
        if count < 1:
            raise InputError(
                f"count: must be at least 1 (is {count})",
                code="value-range",
                field="count",
                value=count,
            )
        self.horizons = at.checked_horizons(horizons)
        self.count = count
        self.tick = 0
        self.engine = chosen_engine(engine)
        wide, narrow = fresh(count, self.horizons)
        self._new = fresh(1, self.horizons)
        if self.engine == "numpy":
            wide, narrow = np.ascontiguousarray(wide.T).T, np.ascontiguousarray(narrow.T).T
        self._wide, self._narrow = wide, narrow
        self.series = SeriesFields(wide.T, narrow.T, self.horizons)
        self._horizons = np.array(self.horizons, dtype=np.int64)

    @property
    def samples(self) -> NDArray[np.int64]:
        """How many values each series was given."""
        return self.series.samples.astype(np.int64)

    @property
    def bytes_per_series(self) -> int:
        """Bytes of state of one series."""
        return int(self._wide[0].nbytes + self._narrow[0].nbytes)

    def update(self, values: ArrayLike) -> None:
        """Take in one value a series; NaN where there is none this time.

        Raises
        ------
        ValueError
            Permanent: not one value a series, or one is infinite or larger than 1e300. The state
            is as if the tick had never come.
        """
        given = np.array(values, dtype=np.float64)
        if given.shape != (self.count,):
            raise InputError(
                f"values: must have one a series, {self.count} (has shape {given.shape})",
                code="value-type",
                field="values",
            )
        known = ~np.isnan(given)
        if (np.abs(given[known]) > LARGEST).any():
            raise InputError(
                "values: a value is infinite or larger than 1e300",
                code="value-invalid",
                field="values",
            )
        inner = self._scaled(given, known)
        if self.engine == "numba":
            from nws.engine.tick import step_all  # noqa: PLC0415 - only where numba is wanted

            step_all(self._wide, self._narrow, self._horizons, self.tick, inner)
        else:
            for start in range(0, self.count, CHUNK):
                part = slice(start, start + CHUNK)
                self._step(part, inner[part], known[part])
        for column in range((-self.tick) % REFRESH, self.count, REFRESH):
            if self.series.samples[column] > 0:
                refresh_dominant_lags(self.series, column, self.tick)
        self.tick += 1

    def forecast(self, horizon: int = 1, criterion: Criterion = "absolute") -> NDArray[np.float64]:
        """Return the forecast mean of the next `horizon` values of each series; NaN before a value.

        `criterion` is the error that is to be small: absolute, or squared.
        """
        s = self.series
        final = self.scores(horizon).final[0, CRITERIA.index(criterion)].astype(np.float64)
        value = np.minimum(np.maximum(s.base + s.unit * final, s.least), s.greatest)
        return np.where(s.samples > 0, value, np.nan)

    def interval(
        self, horizon: int = 1, level: float = 0.9
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return lower and upper end of the prediction interval, and the coverage it has reached.

        `level` is one of ``nws.engine.layout.LEVELS``. Coverage is NaN before the first scoring.
        """
        s, r, which = self.series, self.scores(horizon), at.LEVELS.index(level)
        scale = r.scale[0].astype(np.float64) * s.unit
        centre = s.base + s.unit * r.final[0, 1].astype(np.float64)
        ends = centre + r.quantile[0, which].astype(np.float64) * scale
        scored = r.scored[0].astype(np.float64)
        coverage = np.full(self.count, np.nan)
        np.divide(r.covered[0, which], scored, out=coverage, where=scored > 0)
        return ends[0], ends[1], coverage

    def scores(self, horizon: int) -> HorizonScores:
        """Return errors, answers and intervals of one horizon."""
        place = self.horizons.index(horizon)
        if place == 0:
            return self.series.step
        return self.series.means.part(slice(place - 1, place))

    def state(self) -> dict[str, Any]:
        """Return all there is to know, as arrays; `restore` of it goes on with the same bits."""
        return {
            "ladder": np.array(self.horizons),
            "tick": np.array(self.tick),
            "wide": np.array(self._wide, order="C"),
            "narrow": np.array(self._narrow, order="C"),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a `state` of a bank of as many series and the same horizons, of any engine.

        Raises
        ------
        ValueError
            Permanent: it is of another shape.
        """
        wide, narrow = np.asarray(state["wide"]), np.asarray(state["narrow"])
        same = wide.shape == self._wide.shape and narrow.shape == self._narrow.shape
        if not same or tuple(np.asarray(state["ladder"]).tolist()) != self.horizons:
            raise InputError(
                f"not the state of {self.count} series with the horizons {self.horizons}",
                code="state-invalid",
                value=self.count,
            )
        self._wide[...], self._narrow[...] = wide, narrow
        self.tick = int(state["tick"])

    def _scaled(self, given: Array, known: Array) -> Array:
        """Return the values as the engine sees them; note base, unit and range."""
        s = self.series
        first = known & (s.samples == 0)
        for field in (s.base, s.least, s.greatest):
            np.copyto(field, given, where=first)
        np.minimum(s.least, given, out=s.least, where=known)
        np.maximum(s.greatest, given, out=s.greatest, where=known)
        away = np.where(known, given - s.base, np.nan)
        unit = np.where(s.unit > 0, s.unit, np.inf)
        far = known & (np.abs(away) / unit > FAR)
        if far.any():
            for column in np.flatnonzero(far).tolist():
                self._start_anew(column)
        unset = known & (s.unit == 0) & (away != 0)
        if unset.any():
            np.copyto(s.unit, power_of_two(away), where=unset)
        return np.where(known, away / np.where(s.unit > 0, s.unit, 1.0), np.nan)

    def _start_anew(self, column: int) -> None:
        s = self.series
        kept = s.base[column], s.least[column], s.greatest[column]
        self._wide[column], self._narrow[column] = self._new[0][0], self._new[1][0]
        s.base[column], s.least[column], s.greatest[column] = kept

    def _step(self, part: slice, values: Array, known: Array) -> None:
        s = SeriesFields(self.series.wide[:, part], self.series.narrow[:, part], self.horizons)
        started = s.samples > 0
        s.age += started
        for group, again in ((known & started, True), (known & ~started, False)):
            if group.all():
                self._give(s, values, again)
            elif group.any():
                sub = SeriesFields(s.wide[:, group], s.narrow[:, group], self.horizons)
                self._give(sub, values[group], again)
                s.wide[:, group], s.narrow[:, group] = sub.wide, sub.narrow
        vectorised.finish(s, self.tick, np.where(known, values, 0.0), known)

    @staticmethod
    def _give(s: SeriesFields, values: Array, again: bool) -> None:
        if again:
            vectorised.learn(s, values)
            vectorised.take(s, values)
        else:
            vectorised.begin(s, values)


def power_of_two(away: Array) -> Array:
    """Return the power of two above each magnitude, at least the least normal number."""
    magnitude = np.where(np.isfinite(away), np.abs(away), 1.0)
    exponent = np.maximum(np.frexp(magnitude)[1], -1020)
    power: Array = np.ldexp(1.0, exponent)
    return power


def chosen_engine(engine: Engine) -> Literal["numpy", "numba"]:
    """Return the engine to use; ValueError if it is unknown or not installed."""
    installed = find_spec("numba") is not None
    if engine == "auto":
        return "numba" if installed else "numpy"
    if engine not in {"numpy", "numba"} or (engine == "numba" and not installed):
        raise InputError(
            f"engine {engine!r}: must be numba, numpy or auto, and installed",
            code="engine-unavailable",
            field="engine",
            value=engine,
        )
    return engine
