"""The contract of a forecaster: two methods, one number at a time."""

from abc import ABC, abstractmethod


class Forecaster(ABC):
    """Forecasts the next value of one series from the values so far.

    The values come in the order of their times; a forecaster knows no times, hosts or units.

    * The forecast is a finite number, whatever measurable values came.
    * Equal values in give an equal forecast out: no clock, no randomness.
    * A series that has always been the same is forecast to stay so.
    * The state is bounded: `update` costs the same after a million values as after a hundred.

    ``nws.checks.FORECASTER_CHECKS`` holds these promises as functions that run; run them on
    yours.
    """

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


class NoValueYetError(LookupError):
    """A forecast was asked for before the first value. Transient: update first."""

    def __init__(self) -> None:
        super().__init__("there is nothing to forecast from yet: update first")
