"""The contract of a forecaster: `update` and `forecast`, one number at a time.

A forecaster may add `miss` and `state`/`restore`; one that looks further than the next value and
says how sure it is keeps the contract of a `FrameForecaster`. `packed` and `unpacked` turn states
into JSON and back, guided by what a fresh forecaster holds, so that a state never says which class
to build.
"""

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from nws.errors import CodedError, InputError
from nws.forecast import Interval


def packed(value: Any) -> Any:
    """Return `value` as JSON can hold it; numbers come back the same, infinities included.

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
    """Return what `plain` stands for in the place of `present`, what a fresh object holds there.

    Raises
    ------
    ValueError
        Permanent: it is of another kind; the message says `where`.
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
    """Yield what each entry looks like: the entries that there are, then the last one for ever."""
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
    """Return `state` if it is an object with just these names; ValueError if not."""
    if not isinstance(state, Mapping) or set(state) != set(names):
        raise InputError(
            f"not the state of {what}: must have {', '.join(names)}",
            code="state-invalid",
            known=list(names),
        )
    return state


class Forecaster(ABC):
    """Forecasts the next value of one series from the values so far.

    The values come in the order of their times; a forecaster knows no times, hosts or units.

    * The forecast is a finite number, whatever measurable values came.
    * Equal values in give an equal forecast out: no clock, no randomness.
    * A series that has always been the same is forecast to stay so.
    * The state is bounded: `update` costs the same after a million values as after a hundred.

    ``nws.checks.FORECASTER_CHECKS`` holds these promises as functions that run; run them on
    yours.

    Two things a forecaster may add. `miss`: a value that was due did not come. `state` and
    `restore`: a fresh forecaster, made with the same arguments, that is given the state of another
    forecasts the same from then on, bit for bit (``nws.checks.STATE_CHECKS``). For these it is
    enough to name the attributes that change in `STATEFUL`.
    """

    STATEFUL: ClassVar[tuple[str, ...]] = ()
    """The attributes that make up the state; none: it cannot be saved, only fed again."""

    @abstractmethod
    def update(self, value: float) -> None:
        """Take in the next value.

        Raises
        ------
        ValueError
            Permanent: the value is NaN, infinite or larger than 1e300 (see
            ``nws.measurement.checked_value``). The state is as if it had never come.
        """

    @abstractmethod
    def forecast(self) -> float:
        """Return the value to expect next. Asking changes nothing.

        Raises
        ------
        LookupError
            Transient: there has been no value yet.
        """

    @property
    def method(self) -> str:
        """The name of the predictor behind `forecast`; one that chooses gives its choice."""
        return type(self).__name__

    def league(
        self,
        samples: float = 1.0,  # noqa: ARG002 - of those that forecast a frame
        criterion: "Criterion | None" = None,  # noqa: ARG002
    ) -> "LeagueTable | None":
        """Return how wrong the predictors that it chooses from have been; None where it does not choose.

        Parameters
        ----------
        samples, criterion
            As of `FrameForecaster.outlook`.
        """
        return None

    def miss(self) -> None:  # noqa: B027 - what has no use for it need not say so
        """Note that the value that was due now did not come; by default nothing is changed."""

    def state(self) -> dict[str, Any]:
        """Return the state as a document of JSON: objects, lists, numbers, texts, null.

        Raises
        ------
        TypeError
            Permanent: this forecaster does not say what its state is.
        """
        return {name: packed(getattr(self, name)) for name in self._stateful()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where the forecaster whose `state` this is had got to.

        Raises
        ------
        ValueError
            Permanent: it is not the state of such a forecaster. This one is of no more use.
        TypeError
            Permanent: this forecaster does not say what its state is.
        """
        names = self._stateful()
        if not isinstance(state, Mapping) or set(state) != set(names):
            raise InputError(
                f"not the state of a {type(self).__name__}: must have {', '.join(names)}",
                code="state-invalid",
                known=list(names),
            )
        for name in names:
            setattr(self, name, unpacked(getattr(self, name), state[name], name))

    def _stateful(self) -> tuple[str, ...]:
        if not self.STATEFUL:
            raise TypeError(f"{type(self).__name__} does not say what its state is")
        return self.STATEFUL


class NoValueYetError(CodedError, LookupError):
    """A forecast was asked for before the first value. Transient: update first."""

    code = "no-value-yet"

    def __init__(self) -> None:
        super().__init__("there is nothing to forecast from yet: update first")


Criterion = Literal["absolute", "squared"]


class OneCriterionError(CodedError, ValueError):
    """A forecaster of one criterion was asked for a forecast good by another. Permanent."""

    code = "criterion-unsupported"


@dataclass(frozen=True, slots=True)
class Outlook:
    """The mean of the next values of a series, before it has a time and seconds.

    Attributes
    ----------
    value
        The forecast.
    error, rmse
        Mean absolute and root mean squared error of such forecasts so far; None before the first.
    horizon
        How many values it is the mean of.
    method
        The predictor, or mixture of predictors, that it comes from.
    interval
        Where the mean will lie. It holds the forecast for the squared error; one for the absolute
        error, which is nearer to a median, may lie outside where the series is very skewed.
    """

    value: float
    error: float | None
    rmse: float | None
    horizon: int
    method: str
    interval: Interval


@dataclass(frozen=True, slots=True)
class PredictorErrors:
    """How wrong one of the predictors between which a forecaster chooses has been.

    Attributes
    ----------
    name
        Of the predictor.
    error
        Mean absolute error so far; None where it is not kept, or nothing was scored yet.
    lately
        The same with older errors forgotten.
    """

    name: str
    error: float | None
    lately: float | None


@dataclass(frozen=True, slots=True)
class CandidateErrors:
    """How wrong one of the ways to make one forecast of many predictors' has been.

    Attributes
    ----------
    name
        Of the candidate: a predictor of lowest error, or a mixture.
    rmse
        Root mean squared error so far; None before the first.
    taken
        Whether it is what answers, or weighs most in it.
    """

    name: str
    rmse: float | None
    taken: bool


@dataclass(frozen=True, slots=True)
class LeagueTable:
    """Which predictor has been how wrong, and which of them, or which mixture, answers.

    Attributes
    ----------
    horizon
        How many values the errors are of the mean of.
    scored
        How many forecasts of that horizon have met what they were made for; None: not counted.
    method
        As of the `Forecast`: a predictor's name, or that of a mixture.
    predictors
        In the order in which they are kept.
    candidates
        What the answer is chosen from; empty where it is one of the predictors.
    """

    horizon: int
    scored: int | None
    method: str
    predictors: tuple[PredictorErrors, ...]
    candidates: tuple[CandidateErrors, ...] = ()


class FrameForecaster(Forecaster):
    """Forecasts the mean of the next values, for a few fixed numbers of them, its horizons.

    * The value lies within the range of the values so far, hence within any physical bounds.
    * The interval is in order, names its level, and reports the coverage that was reached.
    * `forecast` is the value of ``outlook(1)``.

    ``nws.checks.FRAME_CHECKS`` holds these promises as functions that run.
    """

    @abstractmethod
    def outlook(
        self, samples: float = 1.0, level: float = 0.9, criterion: Criterion | None = None
    ) -> Outlook:
        """Return the outlook on the horizon nearest to `samples`, in ratio; it names the horizon.

        Parameters
        ----------
        samples
            How many values the frame holds.
        level
            The share of means that the interval is to hold, in (0, 1). The answer names the
            level it is for: the next one that is tracked, or the highest.
        criterion
            The error that the value is to make least, in the mean; None: the one it was made for.

        Raises
        ------
        LookupError
            Transient: there has been no value yet.
        ValueError
            Permanent: `samples` is not positive, or `level` not in (0, 1).
        """
