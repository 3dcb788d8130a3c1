"""Which forecasters run together: the batteries, by name."""

from nws.forecaster import Forecaster
from nws.forecasters import (
    AdaptiveMedian,
    LastValue,
    LowestError,
    RunningMean,
    SlidingMean,
    SlidingMedian,
    Smoothing,
    TrimmedMean,
)


def classic() -> LowestError:
    """Return the NWS's own battery, fresh, under the choice of the lowest cumulative error.

    Examples
    --------
    >>> forecaster = classic()
    >>> for value in [0.5, 0.5, 0.5]:
    ...     forecaster.update(value)
    >>> forecaster.forecast()
    0.5
    """
    return LowestError(classic_primaries())


def classic_primaries() -> dict[str, Forecaster]:
    """Return the 18 primary forecasters of NWS 2.x (forecasters.c), fresh, in its order.

    What NWS 2.x names "Sliding Median" is a mean and is named so here.

    Examples
    --------
    >>> len(classic_primaries())
    18
    """
    gains = (0.05, 0.10, 0.15, 0.20, 0.30, 0.40, 0.50, 0.75)
    return {
        "last_value": LastValue(),
        "running_mean": RunningMean(),
        **{f"smoothing_{gain:.2f}": Smoothing(gain) for gain in gains},
        "sliding_median_31": SlidingMedian(31),
        "sliding_median_5": SlidingMedian(5),
        "sliding_mean_31": SlidingMean(31),
        "sliding_mean_5": SlidingMean(5),
        "trimmed_mean_31": TrimmedMean(31, alpha=0.30),
        "trimmed_mean_51": TrimmedMean(51, alpha=0.30),
        "adaptive_median_5_21": AdaptiveMedian(start=10, minimum=5, maximum=21, offset=1),
        "adaptive_median_21_51": AdaptiveMedian(start=30, minimum=21, maximum=51, offset=5),
    }
