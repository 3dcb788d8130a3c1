"""Profiles: which forecasters run together, by name."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from nws.forecaster import Criterion, Forecaster, FrameForecaster
from nws.forecasters import (
    AdaptiveMedian,
    LastValue,
    RunningMean,
    SlidingMean,
    SlidingMedian,
    Smoothing,
    TrimmedMean,
    TwoLevel,
)
from nws.measurement import FOLLOW_LOAD


def classic(criterion: Criterion = "absolute") -> TwoLevel:
    """Return the 18 predictors of NWS 2.x under its choice in two levels, fresh.

    Examples
    --------
    >>> forecaster = classic()
    >>> for value in [0.5, 0.5, 0.5]:
    ...     forecaster.update(value)
    >>> forecaster.forecast()
    0.5
    """
    return TwoLevel(classic_primaries(), criterion)


def default(criterion: Criterion = "absolute", **options: Any) -> FrameForecaster:
    """Return a fresh `nws.engine.multi_horizon.MultiHorizonForecaster`, the profile of the lowest errors.

    The 18 of `classic`, two EW-AR(1), self-tuning smoothing, a robust AR(16), an auto-lag AR(8)
    and three analogs, scored on seven horizons, with prediction intervals
    (docs/explanation/forecasting.md). Loads NumPy. `options` are those of `MultiHorizonForecaster`.

    Examples
    --------
    >>> forecaster = default()
    >>> for step in range(100):
    ...     forecaster.update(step % 2)
    >>> forecaster.outlook(30).horizon, round(forecaster.outlook(30).value, 2)
    (30, 0.5)
    """
    make: Callable[..., FrameForecaster] = import_module(
        "nws.engine.multi_horizon"
    ).MultiHorizonForecaster
    return make(criterion, **options)


def default_of(resource: str, **options: Any) -> FrameForecaster:
    """Return the default profile for series of a resource, fresh. For the load of a CPU it follows level shifts.

    Examples
    --------
    >>> forecaster = default_of("availableCpu")
    >>> for value in [1.0] * 30 + [0.5] * 3:
    ...     forecaster.update(value)
    >>> round(forecaster.outlook(30).value, 2)
    0.5
    """
    return default(follow_shifts=resource in FOLLOW_LOAD, **options)


def classic_primaries() -> dict[str, Forecaster]:
    """Return the 18 primary forecasters of NWS 2.x (forecasters.c), fresh, in its order.

    The "Sliding Median" of NWS 2.x is a mean; its name here is ``sliding_mean``.

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


PROFILES: Final[dict[str, Callable[[], Forecaster]]] = {
    "classic": classic,
    "default": default,
}
"""Profile name -> function that makes a fresh forecaster."""
