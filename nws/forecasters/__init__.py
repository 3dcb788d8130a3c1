"""The predictors of the Network Weather Service, from the simplest to the dynamic choices.

1. `LastValue`: the baseline.
2. `RunningMean`: the mean of all values so far.
3. `Smoothing`: exponential smoothing with a fixed gain.
4. `SlidingMean`, `SlidingMedian`, `TrimmedMean`: averages of the latest values, in the order of their robustness
   against outliers.
5. `AdaptiveMedian`: a median that tunes the length of its own window.
6. `LowestError`: runs others side by side and answers with the member of the lowest error;
   `TwoLevel`: chooses also the stretch of the past that the errors are taken over.

`nws.forecasters.profiles` combines them. All keep the contract of
`nws.forecaster`; the averages also stay within the range of their values.

Sources: Wolski, Spring, Hayes 1999, "The Network Weather Service: a distributed resource
performance forecasting service for metacomputing", and the NWS 2.x distribution, forecasters.c.
"""

from nws.forecasters.averages import (
    AdaptiveMedian,
    LastValue,
    RunningMean,
    SlidingMean,
    SlidingMedian,
    TrimmedMean,
)
from nws.forecasters.selection import LowestError, TwoLevel
from nws.forecasters.smoothing import Smoothing

__all__ = [
    "AdaptiveMedian",
    "LastValue",
    "LowestError",
    "RunningMean",
    "SlidingMean",
    "SlidingMedian",
    "Smoothing",
    "TrimmedMean",
    "TwoLevel",
]
