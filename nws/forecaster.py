"""The contract of a forecaster: two methods, one number at a time; and what it may add."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from nws.state import packed, unpacked


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
            raise ValueError(f"not the state of a {type(self).__name__}: {names} are wanted")
        for name in names:
            setattr(self, name, unpacked(getattr(self, name), state[name], name))

    def _stateful(self) -> tuple[str, ...]:
        if not self.STATEFUL:
            raise TypeError(f"{type(self).__name__} does not say what its state is")
        return self.STATEFUL


class NoValueYetError(LookupError):
    """A forecast was asked for before the first value. Transient: update first."""

    def __init__(self) -> None:
        super().__init__("there is nothing to forecast from yet: update first")
