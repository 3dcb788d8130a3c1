"""The predictors of the Network Weather Service, from the simplest to the one that chooses.

1. `LastValue`: what was, will be. The one to beat.
2. `RunningMean`: the mean of everything so far.
3. `Smoothing`: exponential smoothing with a fixed gain.
4. `SlidingMean`, `SlidingMedian`, `TrimmedMean`: the last few values, ever less impressed by
   outliers.
5. `AdaptiveMedian`: a median that tunes the length of its own window.
6. `EwAr1`, `SelfTuningSmoothing`, `RobustAr`: what follows a trend back to the mean, tunes itself,
   regresses on the past. `AutoLagAr` looks for the periodicity first, and `Analog` for the
   stretches of the past that look like the present; both need NumPy and are therefore to be had
   from the front door or their own modules, not from here.
7. `LowestError`: runs others side by side and answers with the one that has been wrong least;
   `TwoLevel`: with the one that was best over the stretch of the past that judges best.

None of them knows another: `nws.forecasters.profiles` puts them together. All keep the contract of
`nws.forecaster`; the averaging ones also never leave the range of the values they were given.

Sources: Wolski, Spring, Hayes 1999, "The Network Weather Service: a distributed resource
performance forecasting service for metacomputing", and the NWS 2.x distribution, forecasters.c.
"""

from nws.forecasters.autoregression import EwAr1, RobustAr
from nws.forecasters.averages import (
    AdaptiveMedian,
    LastValue,
    RunningMean,
    SlidingMean,
    SlidingMedian,
    TrimmedMean,
)
from nws.forecasters.selection import LowestError, TwoLevel
from nws.forecasters.smoothing import SelfTuningSmoothing, Smoothing

__all__ = [
    "AdaptiveMedian",
    "EwAr1",
    "LastValue",
    "LowestError",
    "RobustAr",
    "RunningMean",
    "SelfTuningSmoothing",
    "SlidingMean",
    "SlidingMedian",
    "Smoothing",
    "TrimmedMean",
    "TwoLevel",
]
