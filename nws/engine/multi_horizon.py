"""The default profile for a single series, whichever engine computes its ticks."""

import base64
import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, Final, Literal

import numpy as np

from nws.engine import layout as at
from nws.engine.level import LevelWatch
from nws.engine.single_series import SeriesEngine, SingleSeriesEngine
from nws.engine.vectorised import Array, HorizonScores, SeriesFields, refresh_dominant_lags
from nws.errors import InputError
from nws.forecast import Interval
from nws.forecaster import (
    CandidateErrors,
    Criterion,
    FrameForecaster,
    LeagueTable,
    NoValueYetError,
    Outlook,
    PredictorErrors,
    checked_object,
)
from nws.measurement import checked_value

Engine = Literal["auto", "numpy", "numba"]
CRITERIA: Final[tuple[Criterion, ...]] = ("absolute", "squared")
REFRESH: Final = 128
"""Ticks between two looks at the periodicity of a series."""
FAR: Final = 2.0**26
"""A value so many units away makes all before it nothing: the series starts anew.

Squared regrets go with the fourth power of that distance and are kept as float32.
"""


def fresh(horizons: Sequence[int]) -> tuple[Array, Array]:
    """Return the two blocks of a series of which nothing is known yet."""
    wide, narrow = _unknown(tuple(horizons))
    return wide.copy(), narrow.copy()


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


class CompiledEngine(SeriesEngine):
    """Steps in machine code."""

    def __init__(self, series: SeriesFields, wide: Array, narrow: Array) -> None:
        from nws.engine.tick import step_all  # noqa: PLC0415 - numba loads for a second

        self._run = step_all
        self._series = series
        self._wide, self._narrow = wide, narrow
        self._horizons = np.array(series.horizons, dtype=np.int64)
        self._value = np.empty(1)
        self._final = series.step.final[0, :, 0]

    def step(self, tick: int, value: float) -> None:
        """Run the kernel."""
        self._value[0] = value
        self._run(self._wide, self._narrow, self._horizons, tick, self._value)

    def final(self, which: int) -> float:
        """Read the answer."""
        return float(self._final[which])

    def refresh_dominant_lags(self, tick: int) -> None:
        """Give the auto-lag regression new lags."""
        refresh_dominant_lags(self._series, 0, tick)

    def settle(self) -> None:
        """Nothing is kept elsewhere."""

    def resume(self, tick: int) -> None:
        """Nothing is kept elsewhere."""


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


def make_engine(engine: str, series: SeriesFields, wide: Array, narrow: Array) -> SeriesEngine:
    """Return what runs a single series with this engine."""
    return (
        CompiledEngine(series, wide, narrow) if engine == "numba" else SingleSeriesEngine(series)
    )


SCHEMA = "nws.ladder/3"
"""1 knew no analogs, 2 no level: a series with such a state begins again with what is kept of it."""


class MultiHorizonForecaster(FrameForecaster):
    """Forecasts one series under the default profile.

    The 18 predictors of NWS 2.x, two EW-AR(1), self-tuning smoothing, a robust AR(16), an
    auto-lag AR(8) and three analogs, answered by the choice among the expert of the lowest error
    so far, of the lowest error lately, two ML-Poly mixtures and Bernstein online aggregation;
    chosen anew for every horizon, by the error on the mean of the next so many values.

    Parameters
    ----------
    criterion
        The error that is to be small: ``"absolute"`` or ``"squared"``.
    horizons
        The horizons: 1 and, ascending, some of 3, 6, 12, 30, 60, 120.
    engine
        ``"numpy"``, ``"numba"``, or ``"auto"``: numba when it is installed. Both give the same
        numbers; numba takes a second to load.
    follow_shifts
        Whether all before a shift of level is forgotten (`LevelWatch`): right for shares of a CPU, whose load
        comes and goes; traffic and disk times return to levels of before, and lose by it.

    Examples
    --------
    >>> forecaster = MultiHorizonForecaster(engine="numpy")
    >>> for step in range(200):
    ...     forecaster.update(step % 4)
    >>> round(forecaster.forecast(), 1), forecaster.outlook(12).horizon
    (0.0, 12)
    >>> round(forecaster.outlook(12).value, 1)
    1.5
    """

    def __init__(
        self,
        criterion: Criterion = "absolute",
        horizons: Sequence[int] = at.HORIZONS,
        engine: Engine = "numpy",
        *,
        follow_shifts: bool = False,
    ) -> None:
        self._which = _place_of(criterion)
        self._follow_shifts = follow_shifts
        self.horizons = at.checked_horizons(horizons)
        self.engine = chosen_engine(engine)
        self._level = LevelWatch()
        self._start()

    def _start(self) -> None:
        self._wide, self._narrow = fresh(self.horizons)
        self._series = SeriesFields(self._wide.T, self._narrow.T, self.horizons)
        self._tick = 0
        self._base = self._unit = self._least = self._greatest = 0.0
        self._samples = 0
        self._engine = make_engine(self.engine, self._series, self._wide, self._narrow)

    def update(self, value: float) -> None:
        """Take in the next value; with `follow_shifts`, forget all before a shift of level that it completes."""
        value = checked_value(value)
        if self._follow_shifts and self._level.shifts(value):
            latest = self._level.latest
            self._level.clear()
            self._start_anew()
            for each in latest:
                self._level.shifts(each)
                self._take(each)
        else:
            self._take(value)

    def _take(self, value: float) -> None:
        if not self._samples:
            self._base = self._least = self._greatest = value
        elif value < self._least:
            self._least = value
        elif value > self._greatest:
            self._greatest = value
        away = value - self._base
        if self._unit and abs(away) / self._unit > FAR:
            self._start_anew()
        if not self._unit and away:
            self._unit = math.ldexp(1.0, max(math.frexp(away)[1], -1020))
        self._samples += 1
        self._step(away / self._unit if self._unit else away)

    def miss(self) -> None:
        """Go on from the forecast: it is remembered, but neither scored nor learnt from."""
        if self._samples:
            self._step(math.nan)

    def forecast(self) -> float:
        """Return the value to expect next."""
        if not self._samples:
            raise NoValueYetError
        return self._out(self._engine.final(self._which))

    @property
    def method(self) -> str:
        """The predictor, or the mixture, that weighs most in `forecast`."""
        return self._method(0, self._which) if self._samples else "nothing yet"

    def outlook(
        self, samples: float = 1.0, level: float = 0.9, criterion: Criterion | None = None
    ) -> Outlook:
        """Return the outlook on the nearest horizon."""
        asked = self._which if criterion is None else _place_of(criterion)
        if not (samples > 0 and 0 < level < 1):
            raise InputError(
                f"a frame of {samples} samples at level {level} cannot be forecast",
                code="value-range",
                field="samples",
            )
        if not self._samples:
            raise NoValueYetError
        place = nearest(self.horizons, samples)
        self._engine.settle()
        scores = (
            self._series.step if place == 0 else self._series.means.part(slice(place - 1, place))
        )
        final = [self._out(float(each)) for each in scores.final[0, :, 0]]
        scored = float(scores.scored[0, 0])
        unit = self._unit or 1.0
        error = unit * float(scores.error[0, 0, 0]) if scored else None
        rmse = unit * math.sqrt(float(scores.error[0, 1, 0])) if scored else None
        which = next((i for i, each in enumerate(at.LEVELS) if level <= each + 1e-12), at.L - 1)
        scale = float(scores.scale[0, 0])
        centre = float(scores.final[0, 1, 0])
        lower, upper = (centre + float(q) * scale for q in scores.quantile[0, which, :, 0])
        interval = Interval(
            self._base + unit * lower,
            self._base + unit * upper,
            at.LEVELS[which],
            float(scores.covered[0, which, 0]) / scored if scored else None,
        )
        method = self._method(place, asked)
        return Outlook(final[asked], error, rmse, self.horizons[place], method, interval)

    def league(self, samples: float = 1.0, criterion: Criterion | None = None) -> LeagueTable:
        """Return how wrong predictors and candidates were on the nearest horizon that answers for itself.

        Raises
        ------
        LookupError
            Transient: there has been no value yet.
        """
        asked = self._which if criterion is None else _place_of(criterion)
        if not samples > 0:
            raise InputError(
                f"a frame of {samples} samples cannot be forecast",
                code="value-range",
                field="samples",
            )
        if not self._samples:
            raise NoValueYetError
        self._engine.settle()
        place, scores = self._answering(nearest(self.horizons, samples))
        scored, unit = float(scores.scored[0, 0]), self._unit or 1.0
        means = scores.expert_error[0, :, :, 0].tolist()
        predictors = [
            PredictorErrors(
                name, unit * error if scored else None, unit * lately if scored else None
            )
            for name, error, lately in zip(_predictors(place), *means, strict=True)
        ]
        chosen = int(scores.chosen[0, asked, 0])
        squares = scores.candidate_error[0, :, 0].tolist()
        candidates = [
            CandidateErrors(name, unit * math.sqrt(square) if scored else None, which == chosen)
            for which, (name, square) in enumerate(zip(at.CANDIDATES, squares, strict=True))
        ]
        return LeagueTable(
            self.horizons[place], int(scored), self._method(place, asked), tuple(predictors), tuple(candidates)
        )  # fmt: skip

    def all_outlooks(self, level: float = 0.9) -> tuple[Array, Array, Array, Array, Array]:
        """Return for every horizon the forecasts absolute and squared, and the ends; and the experts.

        `level` is one of ``nws.engine.layout.LEVELS``.
        """
        self._engine.settle()
        s, which, unit = self._series, at.LEVELS.index(level), self._unit or 1.0
        final, scale, quantile = s.step.final, s.step.scale, s.step.quantile
        if len(self.horizons) > 1:
            final = np.concatenate([final, s.means.final])
            scale = np.concatenate([scale, s.means.scale])
            quantile = np.concatenate([quantile, s.means.quantile])
        final = final[:, :, 0].T
        ends = final[1] + quantile[:, which, :, 0].T * scale[:, 0]
        values = np.minimum(np.maximum(self._base + unit * final, self._least), self._greatest)
        experts = self._base + unit * s.expert[:, 0]
        lower, upper = self._base + unit * ends
        return values[0], values[1], lower, upper, experts

    @property
    def fields(self) -> SeriesFields:
        """The arrays of this series by their names."""
        return self._series

    def state(self) -> dict[str, Any]:
        """Return the two blocks as base64 of little-endian numbers, with the tick."""
        self._engine.settle()
        s = self._series
        for name in ("base", "unit", "least", "greatest"):
            getattr(s, name)[0] = getattr(self, f"_{name}")
        return {
            "schema": SCHEMA,
            "ladder": list(self.horizons),
            "tick": self._tick,
            "values": self._samples,
            "level": self._level.state(),
            "wide": base64.b64encode(self._wide.astype("<f8").tobytes()).decode(),
            "narrow": base64.b64encode(self._narrow.astype("<f4").tobytes()).decode(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, of either engine."""
        names = ("schema", "ladder", "tick", "values", "level", "wide", "narrow")
        given = checked_object(state, names, "a forecaster of several horizons")
        if given["schema"] != SCHEMA or given["ladder"] != list(self.horizons):
            held = f"{given['schema']!r:.40} of the horizons {given['ladder']!r:.60}"
            raise InputError(
                f"a state {held}: must be one of {SCHEMA!r} of {list(self.horizons)}",
                code="state-invalid",
                value=str(given["schema"])[:40],
                known=[SCHEMA],
            )
        tick, values = given["tick"], given["values"]
        if not (isinstance(tick, int) and isinstance(values, int) and 0 <= values <= tick):
            raise ValueError(f"tick {tick!r:.40}: a count is wanted, not below {values!r:.40}")
        wide = _numbers(given["wide"], "<f8", self._wide.size)
        narrow = _numbers(given["narrow"], "<f4", self._narrow.size)
        level = LevelWatch()
        level.restore(given["level"])
        self._level = level
        self._start()
        self._wide[0], self._narrow[0] = wide, narrow
        self._tick, self._samples = tick, values
        for name in ("base", "unit", "least", "greatest"):
            setattr(self, f"_{name}", float(getattr(self._series, name)[0]))
        self._engine.resume(self._tick)

    def _step(self, value: float) -> None:
        self._engine.step(self._tick, value)
        if self._tick % REFRESH == 0:
            self._engine.refresh_dominant_lags(self._tick)
        self._tick += 1

    def _start_anew(self) -> None:
        kept = self._base, self._least, self._greatest, self._samples, self._tick
        self._start()
        self._base, self._least, self._greatest, self._samples, self._tick = kept

    def _out(self, final: float) -> float:
        value = self._base + (self._unit or 1.0) * final
        return min(max(value, self._least), self._greatest)

    def _method(self, place: int, which: int) -> str:
        self._engine.settle()
        place, scores = self._answering(place)
        chosen = int(scores.chosen[0, which, 0])
        if chosen not in {0, at.LATELY}:
            return at.CANDIDATES[chosen]
        expert = int(scores.expert_error[0, 0 if chosen == 0 else 1, :, 0].argmin())
        return _predictors(place)[expert]

    def _answering(self, place: int) -> tuple[int, HorizonScores]:
        """Return the horizon that answers for the one asked for, which is the first until that is trusted."""
        if place:
            scores = self._series.means.part(slice(place - 1, place))
            if float(scores.scored[0, 0]) * at.stride(self.horizons[place]) >= at.TRUSTED:
                return place, scores
        return 0, self._series.step


def _predictors(place: int) -> tuple[str, ...]:
    """Return the names of what is scored at a horizon's place, in its order."""
    if place == 0:
        return at.EXPERTS
    return (*(at.EXPERTS[expert] for expert in at.HORIZON_EXPERTS), *at.OWN)


def nearest(horizons: Sequence[int], samples: float) -> int:
    """Return the place of the horizon nearest to `samples`, in ratio."""
    return min(range(len(horizons)), key=lambda place: abs(math.log(horizons[place] / samples)))


def _place_of(criterion: str) -> int:
    if criterion not in CRITERIA:
        raise ValueError(f"a criterion is 'absolute' or 'squared', not {criterion!r}")
    return CRITERIA.index(criterion)


def _numbers(text: object, kind: str, size: int) -> Any:
    if not isinstance(text, str):
        raise ValueError(f"numbers in base64 are wanted, not {text!r:.40}")
    try:
        numbers = np.frombuffer(base64.b64decode(text, validate=True), dtype=kind)
    except ValueError as error:
        raise ValueError(f"not numbers in base64: {error}") from error
    if len(numbers) != size or not np.isfinite(numbers).all():
        raise ValueError(f"{size} finite numbers are wanted, not {len(numbers)}")
    return numbers
