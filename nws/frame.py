"""The contract of a forecaster that looks further than one value, and says how sure it is."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

from nws.forecast import Interval
from nws.forecaster import Forecaster

Criterion = Literal["absolute", "squared"]


class OneCriterionError(ValueError):
    """A forecaster of one criterion was asked for a forecast good by another. Permanent."""


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


class FrameForecaster(Forecaster):
    """Forecasts the mean of the next values, for a few fixed numbers of them: its rungs.

    * The value lies within the range of the values so far, hence within any physical bounds.
    * The interval is in order, names its level, and reports the coverage that was reached.
    * `forecast` is the value of ``outlook(1)``.

    ``nws.checks.FRAME_CHECKS`` holds these promises as functions that run.
    """

    @abstractmethod
    def outlook(
        self, samples: float = 1.0, level: float = 0.9, criterion: Criterion | None = None
    ) -> Outlook:
        """Return the outlook on the rung nearest to `samples`, in ratio; it names the rung.

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
