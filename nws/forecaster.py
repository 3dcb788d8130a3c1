"""The contract of a forecaster: `update` and `forecast`, one number at a time.

A forecaster may add `skip` and `state`/`restore`. Forecasts of means with intervals follow the contract of
`FrameForecaster`. `packed` and `unpacked` convert states to JSON and back. The attributes of a fresh forecaster
guide the conversion, so that a state never names a class to build.
"""

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal
from warnings import warn

from nws.errors import CodedError, InputError
from nws.forecast import Forecast


def packed(value: Any) -> Any:
    """Convert `value` to JSON types; numbers keep their bits, infinities included.

    Examples
    --------
    >>> packed((1.5, None, float("inf")))
    [1.5, None, 'inf']
    """
    if hasattr(value, "restore"):  # a forecaster, a window, a regression
        return value.state()
    if isinstance(value, list | tuple | deque):
        return [packed(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value


def unpacked(present: Any, plain: Any, where: str) -> Any:
    """Convert `plain` from JSON to the type of `present`, the value of a fresh object.

    Raises
    ------
    ValueError
        Permanent: `plain` has another type; the message names `where`.
    """
    if hasattr(present, "restore"):
        present.restore(plain)
        return present
    if isinstance(present, list | tuple | deque):
        return _several(present, plain, where)
    if isinstance(present, bool) and not isinstance(plain, bool):
        raise _invalid(where, f"must be true or false (is {plain!r:.40})")
    return plain if isinstance(present, bool) else _number(plain, where)


def _several(present: Any, plain: Any, where: str) -> Any:
    if not isinstance(plain, list):
        raise _invalid(where, f"must be a list (is {plain!r:.40})")
    if isinstance(present, tuple) and len(plain) != len(present):
        raise _invalid(where, f"must have {len(present)} entries (has {len(plain)})")
    read = [
        unpacked(inner, each, f"{where}[{place}]")
        for place, (inner, each) in enumerate(zip(_patterns(present), plain, strict=False))
    ]
    if isinstance(present, deque):
        return deque(read, present.maxlen)
    return type(present)(read)


def _patterns(present: Any) -> Iterator[Any]:
    """Yield the pattern of each entry: the entries of `present`, then the last entry without end."""
    last: Any = 0.0
    for last in present:
        yield last
    while True:
        yield last


def _number(plain: Any, where: str) -> float | int | None:
    if isinstance(plain, str) and plain in {"inf", "-inf", "nan"}:
        return float(plain)
    if plain is None or (isinstance(plain, int | float) and not isinstance(plain, bool)):
        return plain
    raise _invalid(where, f"must be a number (is {plain!r:.40})")


def _invalid(where: str, why: str) -> InputError:
    return InputError(f"{where}: {why}", code="state-invalid", field=where)


def checked_object(state: Any, names: tuple[str, ...], what: str) -> Mapping[str, Any]:
    """Return `state` if it is an object with exactly these names; ValueError if not."""
    if not isinstance(state, Mapping) or set(state) != set(names):
        raise InputError(
            f"not the state of {what}: must have {', '.join(names)}",
            code="state-invalid",
            known=list(names),
        )
    return state


class Forecaster(ABC):
    """Forecasts the next value of one series from the values so far.

    The values arrive in the order of their times. A forecaster has no access to times, hosts or units.

    * The forecast is a finite number after any measurable values.
    * Equal values give equal forecasts: no clock, no randomness.
    * The forecast of a constant series is that constant.
    * The state is bounded: `update` costs the same after a million values as after a hundred.

    ``nws.checks.FORECASTER_CHECKS`` holds these promises as functions to run on your class.

    A forecaster may add `skip`, for a value that is missing, and `state` with `restore`: after ``restore(state)``,
    a fresh forecaster made with the same arguments gives the same forecasts as the first, bit for bit
    (``nws.checks.STATE_CHECKS``). To have them, name the attributes that change in `STATEFUL`.
    """

    STATEFUL: ClassVar[tuple[str, ...]] = ()
    """The attributes that make up the state. Empty: the state cannot be saved."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # `skip` was `miss` in apples 0.2: a class has both names of the method that is first in its MRO.
        names = next(
            found for each in cls.__mro__ if (found := vars(each).keys() & {"miss", "skip"})
        )
        if names == {"miss"}:
            warn(f"{cls.__name__}.miss moved: name it `skip`", FutureWarning, stacklevel=3)
            cls.skip = cls.miss  # type: ignore[method-assign]
        elif names == {"skip"}:
            cls.miss = cls.skip

    @abstractmethod
    def update(self, value: float) -> None:
        """Take in the next value.

        Raises
        ------
        ValueError
            Permanent: the value is NaN, infinite or larger than 1e300 (see
            ``nws.measurement.checked_value``). The state does not change.
        """

    @abstractmethod
    def forecast(self) -> float:
        """Return the next value to expect; the state does not change.

        Raises
        ------
        LookupError
            Transient: no value yet.
        """

    @property
    def method(self) -> str:
        """The name of the predictor behind `forecast`; for a choice, the name of the chosen predictor."""
        return type(self).__name__

    def league(
        self,
        samples: float = 1.0,  # noqa: ARG002 - of those that forecast a frame
        criterion: "Criterion | None" = None,  # noqa: ARG002
    ) -> "LeagueTable | None":
        """Return the errors of the predictors that it chooses from; None if it does not choose.

        Parameters
        ----------
        samples, criterion
            As of `FrameForecaster.outlook`.
        """
        return None

    def skip(self) -> None:  # noqa: B027 - optional
        """Pass over a missing value; by default the state does not change."""

    miss = skip

    def state(self) -> dict[str, Any]:
        """Return the state as a JSON document: objects, lists, numbers, texts, null.

        Raises
        ------
        TypeError
            Permanent: `STATEFUL` is empty.
        """
        return {name: packed(getattr(self, name)) for name in self._stateful()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the `state` of another forecaster of this class and arguments.

        Raises
        ------
        ValueError
            Permanent: not the state of such a forecaster. Discard this forecaster.
        TypeError
            Permanent: `STATEFUL` is empty.
        """
        names = self._stateful()
        given = checked_object(state, names, f"a {type(self).__name__}")
        for name in names:
            setattr(self, name, unpacked(getattr(self, name), given[name], name))

    def _stateful(self) -> tuple[str, ...]:
        if not self.STATEFUL:
            raise TypeError(
                f"{type(self).__name__}: STATEFUL must name the attributes of the state"
            )
        return self.STATEFUL


class NoValueYetError(CodedError, LookupError):
    """No value yet to forecast from. Transient: update first."""

    code = "no-value-yet"

    def __init__(self) -> None:
        super().__init__("no value yet to forecast from: update first")


Criterion = Literal["absolute", "squared"]


class OneCriterionError(CodedError, ValueError):
    """The forecaster has one criterion; the question names another. Permanent."""

    code = "criterion-unsupported"


@dataclass(frozen=True, slots=True)
class PredictorErrors:
    """The errors of a predictor that a forecaster may choose.

    Attributes
    ----------
    name
        Of the predictor.
    error
        Mean absolute error so far; None if it is not kept, or before the first score.
    lately
        The same over recent values only.
    """

    name: str
    error: float | None
    lately: float | None


@dataclass(frozen=True, slots=True)
class CandidateErrors:
    """The error of a way to combine the predictors' forecasts into one.

    Attributes
    ----------
    name
        Of the candidate: a predictor of lowest error, or a mixture.
    rmse
        Root mean squared error so far; None before the first.
    taken
        Whether it is the answer, or weighs most in the answer.
    """

    name: str
    rmse: float | None
    taken: bool


@dataclass(frozen=True, slots=True)
class LeagueTable:
    """The errors of the predictors, and which predictor or mixture is the answer.

    Attributes
    ----------
    horizon
        The number of values in the mean that was forecast.
    scored
        The number of forecasts of that horizon that were compared with the true mean; None: not counted.
    method
        As of the `Forecast`: the name of a predictor or of a mixture.
    predictors
        In the order of the state.
    candidates
        The choices for the answer; empty if the answer is always a predictor.
    """

    horizon: int
    scored: int | None
    method: str
    predictors: tuple[PredictorErrors, ...]
    candidates: tuple[CandidateErrors, ...] = ()


class FrameForecaster(Forecaster):
    """Forecasts the mean of the next values for its horizons, a few fixed numbers of values.

    * The value lies within the range of the values so far, hence within any physical bounds.
    * The interval has its ends in order, names its level, and reports the coverage so far.
    * `forecast` is the value of ``outlook(1)``.

    ``nws.checks.FRAME_CHECKS`` holds these promises as functions to run on your class.
    """

    def clock(self, time: float, period: float | None) -> None:
        """Note the time of the value that comes next; by default the state does not change.

        Call it before each `update` and `skip` if the times are known. A forecaster with a seasonal memory
        learns from values with a time only.

        Parameters
        ----------
        time
            Seconds.
        period
            Seconds between two values; None: unknown, or the series is not regular.
        """

    @abstractmethod
    def outlook(
        self, samples: float = 1.0, level: float = 0.9, criterion: Criterion | None = None
    ) -> Forecast:
        """Return the forecast for the horizon nearest to `samples`, in ratio; it names the horizon.

        Parameters
        ----------
        samples
            The number of values in the mean.
        level
            The share of means that the interval is to contain, in (0, 1). The answer names the
            level of its interval: the next level that is tracked, or the highest.
        criterion
            The error that the value minimises, in the mean; None: the forecaster's own criterion.

        Raises
        ------
        LookupError
            Transient: no value yet.
        ValueError
            Permanent: `samples` is not positive, or `level` not in (0, 1).
        """
