"""The default profile for a single series: its state, the questions that it answers, and which step it runs."""

import base64
import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from nws.engine import layout as at
from nws.engine.level import LevelWatch
from nws.engine.periods import update_lags
from nws.engine.season import DAY, Season, compiled_season, may_repeat, season_step
from nws.engine.tick import Narrow, Wide, compiled_step, step
from nws.errors import InputError
from nws.forecast import Forecast, Interval
from nws.forecaster import (
    CandidateErrors,
    Criterion,
    FrameForecaster,
    LeagueTable,
    NoValueYetError,
    PredictorErrors,
    checked_object,
)
from nws.measurement import checked_value

Engine = Literal["auto", "numpy", "numba"]
SEASON: Final = "season"
"""The method of a horizon that the season answers."""
CRITERIA: Final[tuple[Criterion, ...]] = ("absolute", "squared")
REFRESH: Final = 128
"""Ticks between two updates of the lags of a series."""
MAX_DISTANCE: Final = 2.0**26
"""A value further away, in units of the series, dwarfs all values before it: the series starts anew.

Squared regrets go with the fourth power of that distance and are kept as float32.
"""


Array = NDArray[Any]


def fresh(horizons: Sequence[int]) -> tuple[Wide, Narrow]:
    """Return the two blocks of a series without values."""
    wide_size, narrow_size = at.sizes(horizons)
    wide, narrow = np.zeros(wide_size), np.zeros(narrow_size, dtype=np.float32)
    at.WIDE["tuning"].of(wide)[1] = 0.3
    at.WIDE["width"].of(wide)[:] = [10.0, 30.0]
    at.WIDE["lag"].of(wide)[:] = np.arange(1.0, at.LAGS + 1.0)
    for name in ("ar_p", "lag_p"):
        at.WIDE[name].of(wide)[:] = np.eye(at.WIDE[name].shape[0])
    wide[at.MATRICES :].reshape(-1, at.D, at.D)[:] = np.eye(at.D)
    # Quantiles of the normal distribution, in units of its mean absolute error.
    normal = np.array([0.845, 1.606, 2.061, 2.456])
    for place in range(len(horizons)):
        scores = scores_of(wide, narrow, place)
        scores["quantile"][:] = np.stack([-normal, normal], axis=1)
        scores["chosen"][1] = 1.0
    return wide, narrow


def scores_of(wide: Wide, narrow: Narrow, place: int) -> dict[str, Array]:
    """Return the fields of the horizon at this place by name, views of the blocks."""
    if place == 0:
        return {name: field.of(wide) for name, field in at.STEP.items()}
    block = narrow[at.FURTHER + (place - 1) * at.FURTHER_SIZE :]
    return {name: field.of(block) for name, field in at.MEAN.items()}


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


SCHEMA = "nws.ladder/4"
"""1 had no analogs, 2 no level, 3 no squared errors of experts. A series with such a state begins again with its
kept measurements."""


class MultiHorizonForecaster(FrameForecaster):
    """Forecasts one series under the default profile.

    The 18 predictors of NWS 2.x, two EW-AR(1), self-tuning smoothing, a robust AR(16), an
    auto-lag AR(8) and three analogs, answered by the choice among the expert of the lowest error
    so far, of the lowest error lately, two ML-Poly mixtures and Bernstein online aggregation.
    Each horizon H has its own choice, by the error on the mean of the next H values.

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
        Whether to forget all values before a shift of level (`LevelWatch`). This improves the forecasts of CPU
        shares, since load comes and goes; it worsens those of traffic and disk times, which return to earlier
        levels.

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
        self._run = compiled_step() if self.engine == "numba" else step
        self._repeat = compiled_season() if self.engine == "numba" else season_step
        self._lengths = np.array(self.horizons, dtype=np.int64)
        self._level = LevelWatch()
        self._clock: tuple[float, float] | None = None
        self._start()

    def _start(self) -> None:
        self._wide, self._narrow = fresh(self.horizons)
        self._tick = 0
        self._base = self._unit = self._least = self._greatest = 0.0
        self._samples = 0
        self._season: Season | None = None
        self._seasonal = True

    def clock(self, time: float, period: float | None) -> None:
        """Note the time of the next value, measured or skipped, and the period of the series if it is regular."""
        self._clock = (time, period) if period is not None and may_repeat(period) else None

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
        if self._unit and abs(away) / self._unit > MAX_DISTANCE:
            self._start_anew()
        if not self._unit and away:
            self._unit = math.ldexp(1.0, max(math.frexp(away)[1], -1020))
        self._samples += 1
        self._step(away / self._unit if self._unit else away)

    def skip(self) -> None:
        """Continue from the forecast: the history takes it, without scores and without learning."""
        if self._samples:
            self._step(math.nan)

    def forecast(self) -> float:
        """Return the value to expect next."""
        if not self._samples:
            raise NoValueYetError
        return self._out(float(at.STEP["final"].of(self._wide)[self._which]))

    @property
    def method(self) -> str:
        """The predictor, or the mixture, that weighs most in `forecast`."""
        return self._method(0, self._which) if self._samples else "nothing yet"

    def outlook(
        self, samples: float = 1.0, level: float = 0.9, criterion: Criterion | None = None
    ) -> Forecast:
        """Return the forecast for the nearest horizon."""
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
        scores = self._answers(place, asked)
        scored = float(scores["scored"])
        unit = self._unit or 1.0
        error = unit * float(scores["error"][0]) if scored else None
        rmse = unit * math.sqrt(float(scores["error"][1])) if scored else None
        which = next((i for i, each in enumerate(at.LEVELS) if level <= each + 1e-12), at.L - 1)
        scale = float(scores["scale"])
        centre = float(scores["final"][1])
        lower, upper = (centre + float(q) * scale for q in scores["quantile"][which])
        interval = Interval(
            self._base + unit * lower,
            self._base + unit * upper,
            at.LEVELS[which],
            float(scores["covered"][which]) / scored if scored else None,
        )
        method = self._method(place, asked)
        value = self._out(float(scores["final"][asked]))
        return Forecast(
            value, error, method, rmse=rmse, horizon=self.horizons[place], interval=interval
        )

    def league(self, samples: float = 1.0, criterion: Criterion | None = None) -> LeagueTable:
        """Return the errors of predictors and candidates for the nearest horizon that answers for itself.

        Raises
        ------
        LookupError
            Transient: no value yet.
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
        place, scores = self._answering(nearest(self.horizons, samples))
        scored, unit = float(scores["scored"]), self._unit or 1.0
        means = scores["expert_error"].tolist()
        predictors = [
            PredictorErrors(
                name, unit * error if scored else None, unit * lately if scored else None
            )
            for name, error, lately in zip(_predictors(place), *means, strict=True)
        ]
        method, chosen = self._method(place, asked), int(scores["chosen"][asked])
        squares = scores["candidate_error"].tolist()
        candidates = [
            CandidateErrors(
                name,
                unit * math.sqrt(square) if scored else None,
                which == chosen and method != SEASON,
            )
            for which, (name, square) in enumerate(zip(at.CANDIDATES, squares, strict=True))
        ]
        if method == SEASON:
            square = float(self._answers(place, asked)["error"][1])
            candidates.append(CandidateErrors(SEASON, unit * math.sqrt(square), True))
        return LeagueTable(
            self.horizons[place], int(scored), method, tuple(predictors), tuple(candidates)
        )

    def all_outlooks(self, level: float = 0.9) -> tuple[Array, Array, Array, Array, Array]:
        """Return for every horizon the forecasts absolute and squared, and the ends; and the experts.

        `level` is one of ``nws.engine.layout.LEVELS``.
        """
        which, unit = at.LEVELS.index(level), self._unit or 1.0
        places = range(len(self.horizons))
        scores = [self._answers(place, 0) for place in places]
        squared = [float(self._answers(place, 1)["final"][1]) for place in places]
        final = np.array([[float(each["final"][0]) for each in scores], squared])
        centre = np.array([float(each["final"][1]) for each in scores])
        scale = np.array([float(each["scale"]) for each in scores])
        ends = np.array([each["quantile"][which].tolist() for each in scores]).T * scale + centre
        values = np.minimum(np.maximum(self._base + unit * final, self._least), self._greatest)
        experts = self._base + unit * at.WIDE["expert"].of(self._wide)
        lower, upper = self._base + unit * ends
        return values[0], values[1], lower, upper, experts

    @property
    def lags(self) -> tuple[int, ...]:
        """How many values back the auto-lag regression looks."""
        return tuple(int(lag) for lag in at.WIDE["lag"].of(self._wide))

    def state(self) -> dict[str, Any]:
        """Return the two blocks as base64 of little-endian numbers, with the tick."""
        for name in ("base", "unit", "least", "greatest"):
            at.WIDE[name].of(self._wide)[()] = getattr(self, f"_{name}")
        state = {
            "schema": SCHEMA,
            "ladder": list(self.horizons),
            "tick": self._tick,
            "values": self._samples,
            "level": self._level.state(),
            "wide": _text(self._wide, "<f8"),
            "narrow": _text(self._narrow, "<f4"),
        }
        if self._season:
            blocks = {
                "wide": _text(self._season.deep, "<f8"),
                "narrow": _text(self._season.slim, "<f4"),
            }
            return state | {"season": blocks}
        return state if self._seasonal else state | {"season": None}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of either engine."""
        names: tuple[str, ...] = ("schema", "ladder", "tick", "values", "level", "wide", "narrow")
        if isinstance(state, Mapping) and "season" in state:  # a series without a season has none
            names = (*names, "season")
        given = checked_object(state, names, "a forecaster of several horizons")
        if given["schema"] != SCHEMA or given["ladder"] != list(self.horizons):
            held = f"{given['schema']!r:.40} and the horizons {given['ladder']!r:.60}"
            raise InputError(
                f"the state has schema {held}: must have {SCHEMA!r} and the horizons {list(self.horizons)}",
                code="state-invalid",
                value=str(given["schema"])[:40],
                known=[SCHEMA],
            )
        tick, values = given["tick"], given["values"]
        if not (isinstance(tick, int) and isinstance(values, int) and 0 <= values <= tick):
            raise ValueError(f"tick: must be a count of at least {values!r:.40} (is {tick!r:.40})")
        wide = _numbers(given["wide"], "<f8", self._wide.size)
        narrow = _numbers(given["narrow"], "<f4", self._narrow.size)
        level = LevelWatch()
        level.restore(given["level"])
        season = self._season_of(given["season"]) if given.get("season") is not None else None
        self._level = level
        self._start()
        self._season, self._seasonal = season, "season" not in given or season is not None
        self._wide[:], self._narrow[:] = wide, narrow
        self._tick, self._samples = tick, values
        for name in ("base", "unit", "least", "greatest"):
            setattr(self, f"_{name}", float(at.WIDE[name].of(self._wide)))

    def _season_of(self, state: object) -> Season:
        blocks = checked_object(state, ("wide", "narrow"), "a season")
        season = Season(self.horizons, 0.0, DAY, 0)
        season.deep[:] = _numbers(blocks["wide"], "<f8", season.deep.size)
        season.slim[:] = _numbers(blocks["narrow"], "<f4", season.slim.size)
        if not season.is_sound:
            raise InputError(
                "season: not the state of a season", code="state-invalid", field="season"
            )
        return season

    def _step(self, value: float) -> None:
        self._run(self._wide, self._narrow, self._lengths, self._tick, value)
        if self._tick % REFRESH == 0:
            update_lags(self._wide, self._narrow, self._tick)
        if self._clock or self._season:
            self._follow_season(known=not math.isnan(value))
        self._tick += 1

    def _follow_season(self, *, known: bool) -> None:
        clock, self._clock = self._clock, None
        if clock is None:
            if self._season:
                self._season.pause(self._tick + 1)
            return
        if not self._seasonal or len(self.horizons) == 1:
            return
        if self._season is None or not self._season.continues(*clock):
            self._season = Season(self.horizons, *clock, self._tick)
        season = self._season
        seconds = season.advance(clock[0])
        self._repeat(
            self._wide,
            self._narrow,
            season.deep,
            season.slim,
            self._lengths,
            self._tick,
            seconds,
            known,
        )
        if season.useless:
            self._season, self._seasonal = None, False

    def _start_anew(self) -> None:
        kept = self._base, self._least, self._greatest, self._samples, self._tick
        self._start()
        self._base, self._least, self._greatest, self._samples, self._tick = kept

    def _out(self, final: float) -> float:
        value = self._base + (self._unit or 1.0) * final
        return min(max(value, self._least), self._greatest)

    def _answers(self, place: int, which: int) -> dict[str, Array]:
        """Return the fields behind an answer: those of the season where that helps, else those of the horizon."""
        if place and self._season:
            fields = self._season.of(place)
            if fields["helps"][which]:
                value = float(fields["value"])
                return fields | {"final": np.array([value, value]), "error": fields["mean_error"]}
        return scores_of(self._wide, self._narrow, place)

    def _method(self, place: int, which: int) -> str:
        if place and self._season and self._season.of(place)["helps"][which]:
            return SEASON
        place, scores = self._answering(place)
        chosen = int(scores["chosen"][which])
        errors = {
            0: scores["expert_error"][0],
            at.LATELY: scores["expert_error"][1],
            at.LOWEST_SQUARE: scores["expert_square"],
        }.get(chosen)
        return (
            at.CANDIDATES[chosen] if errors is None else _predictors(place)[int(errors.argmin())]
        )

    def _answering(self, place: int) -> tuple[int, dict[str, Array]]:
        """Return the horizon that answers for the one asked for, which is the first until that is trusted."""
        if place:
            scores = scores_of(self._wide, self._narrow, place)
            if float(scores["scored"]) * at.stride(self.horizons[place]) >= at.MIN_SCORED:
                return place, scores
        return 0, scores_of(self._wide, self._narrow, 0)


def _predictors(place: int) -> tuple[str, ...]:
    """Return the names of the predictors that a horizon scores, in the order of its fields."""
    if place == 0:
        return at.EXPERTS
    return (*(at.EXPERTS[expert] for expert in at.HORIZON_EXPERTS), *at.OWN)


def nearest(horizons: Sequence[int], samples: float) -> int:
    """Return the place of the horizon nearest to `samples`, in ratio."""
    return min(range(len(horizons)), key=lambda place: abs(math.log(horizons[place] / samples)))


def _place_of(criterion: str) -> int:
    if criterion not in CRITERIA:
        raise ValueError(f"criterion: must be 'absolute' or 'squared' (is {criterion!r})")
    return CRITERIA.index(criterion)


def _text(block: Array, kind: str) -> str:
    return base64.b64encode(block.astype(kind).tobytes()).decode()


def _numbers(text: object, kind: str, size: int) -> Any:
    if not isinstance(text, str):
        raise ValueError(f"must be numbers in base64 (is {text!r:.40})")
    try:
        numbers = np.frombuffer(base64.b64decode(text, validate=True), dtype=kind)
    except ValueError as error:
        raise ValueError(f"not numbers in base64: {error}") from error
    if len(numbers) != size or not np.isfinite(numbers).all():
        raise ValueError(f"must be {size} finite numbers (are {len(numbers)})")
    return numbers
