"""The state of a series as two flat blocks, one of float64 and one of float32.

A field is a place in a block and a shape. The rings are float32: they hold values in the engine's own unit, as
deviations from the first one, so that an offset costs no digits.

`E` experts answer one step ahead. For every further horizon H, the `HORIZON_EXPERTS` among them and the horizon's
`OWN` predictors are scored on the mean of the next H samples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from nws.errors import InputError

GAINS: Final = (0.05, 0.10, 0.15, 0.20, 0.30, 0.40, 0.50, 0.75)
EXPERTS: Final = (
    "last_value",
    "running_mean",
    *(f"smoothing_{gain:.2f}" for gain in GAINS),
    "sliding_median_31",
    "sliding_median_5",
    "sliding_mean_31",
    "sliding_mean_5",
    "trimmed_mean_31",
    "trimmed_mean_51",
    "adaptive_median_5_21",
    "adaptive_median_21_51",
    "ew_ar1_0.02",
    "ew_ar1_0.10",
    "self_tuning_smoothing",
    "robust_ar_16",
    "auto_lag_ar_8",
    "analog_3",
    "analog_6",
    "analog_12",
)
"""The 18 of NWS 2.x in its order, and the eight that the default profile adds."""
# Twelve of the experts, and float32 statistics, keep a series at 24 kB; rings for all would need 34
# kB.
HORIZON_EXPERTS: Final = (0, 1, 2, 3, 5, 7, 10, 12, 15, 17, 18, 21)
"""The experts that are scored on means: averages, and predictors of a periodicity."""
DIRECT: Final = (0, 3, 12, 15, 18, 21)
"""Regressors of the direct regression on a mean, all of them `HORIZON_EXPERTS`; last a constant."""
OWN: Final = ("direct_regression", "analog_mean")
"""Predictors of the mean of one horizon alone, in addition to the experts of one step."""
CANDIDATES: Final = (
    "lowest error",
    "mixture squared",
    "mixture absolute",
    "lowest lately",
    "aggregation",
    "lowest squared error",
    "squared aggregation",
)
"""Forecasts made of the experts'. The answers are the aggregation for the absolute error, and the squared
aggregation for the squared error.
"""
LATELY: Final = 3
AGGREGATION: Final = CANDIDATES.index("aggregation")
LOWEST_SQUARE: Final = CANDIDATES.index("lowest squared error")
SQUARED: Final = CANDIDATES.index("squared aggregation")
# Few candidates are aggregated, not all experts: on short series the weights of 26 learn too slowly, those of four
# do not.
MEMBERS: Final = (0, 1, 2, LATELY, 1, AGGREGATION, LOWEST_SQUARE)
"""The candidates that the aggregation mixes, the first four, and those of the squared aggregation."""
HORIZONS: Final = (1, 3, 6, 12, 30, 60, 120)
"""The horizons: numbers of samples in the means to forecast."""
LEVELS: Final = (0.5, 0.8, 0.9, 0.95)
"""Nominal levels of the prediction intervals that are tracked."""
AUDITED_LEVEL: Final = 2
"""The level with the coverage on means counted for the intervals as they were issued."""

PATTERNS: Final = (3, 6, 12)
"""How many of the latest values the analogs compare with every stretch of the history.

Each is twice as long as the one before, so that its distances are sums of two of that one's.
"""
PATTERN: Final = PATTERNS[-1]
FRAME_PATTERN: Final = 1
"""The pattern that finds the stretches for forecasts of means."""
NEIGHBOURS: Final = 9
FRAME_NEIGHBOURS: Final = 15
"""Stretches that analogs forecast the next value and a mean from: the median of the values that followed."""
COMPARABLE: Final = 32
"""Fewer stretches than this to compare with, and an analog repeats the last value."""

RECENT: Final = 51
# Distances of analogs are not part of a state: they follow from this history.
HISTORY: Final = 896
MAX_HORIZON: Final = 120
ORDER: Final = 16
LAGS: Final = 8
E: Final = len(EXPERTS)
K: Final = len(HORIZON_EXPERTS)
C: Final = len(CANDIDATES)
D: Final = len(DIRECT) + 1
L: Final = len(LEVELS)
M: Final = K + len(OWN)
SLOT: Final = C + len(OWN) + 2
"""Numbers of an answer that are kept until it is scored: candidates, own, lower, upper."""
OWN_AT: Final = C
ENDS_AT: Final = C + len(OWN)
MAX_SLOTS: Final = 30
"""Longer horizons are scored every second or fourth sample, so that no ring is longer than this."""

# The results hardly depend on these constants; none was chosen for its last digit. The faster
# discount one step ahead follows a level that jumps.
STEP_DISCOUNT: Final = 0.05
MEAN_DISCOUNT: Final = 0.02
"""How fast errors are forgotten, one step ahead and, per sample, on means."""
# A cron job every 37 samples stands 6 deviations tall; a clip of 4 misses a third of it.
CLIP: Final = 6.0
"""Bound of the regressors, targets and answers of the regressions, in standard deviations."""
FORGETTING: Final = 0.999
INVERSE_FORGETTING: Final = 1.0 / FORGETTING
MAX_TRACE: Final = 1000.0
SCALE_GAIN: Final = 0.05
STEP_RATE: Final = 0.05
MEAN_RATE: Final = 0.075
TUNING_RATE: Final = 0.05
MIN_SCORED: Final = 10.0
"""Scored samples after which a horizon answers for itself and no longer with the first horizon."""
LOG_MEMBERS: Final = (1.386, 1.099)
"""ln 4 and ln 3: the logarithms of how many candidates either aggregation mixes, in its rates of learning."""
MIN_EXPONENT: Final = -60.0
"""Weights fade no further than e to this."""
TINY: Final = 1e-300


@dataclass(frozen=True, slots=True)
class Field:
    """A named array in a block: where it starts, and its shape."""

    start: int
    shape: tuple[int, ...]

    @property
    def stop(self) -> int:
        """The start of the next field."""
        return self.start + prod(self.shape)

    def of(self, block: Any) -> Any:
        """Return the field of a block, a view."""
        return block[self.start : self.stop].reshape(self.shape)


def placed(shapes: Mapping[str, tuple[int, ...]], start: int = 0) -> dict[str, Field]:
    """Return fields of these shapes, one after the other from `start` on."""
    fields: dict[str, Field] = {}
    for name, shape in shapes.items():
        fields[name] = Field(start, shape)
        start = fields[name].stop
    return fields


def _score_fields(experts: int) -> dict[str, tuple[int, ...]]:
    return {
        "scored": (),  # how often
        "expert_error": (2, experts),  # mean absolute error, and exponentially discounted
        "regret": (2, experts),  # of ML-Poly, on squared and on absolute error
        "power": (2, experts),
        "mixed_regret": (
            len(MEMBERS),
        ),  # of an aggregation against a member, less its second order
        "mixed_power": (len(MEMBERS),),  # sums of their squares
        "mixed_max": (len(MEMBERS),),  # the greatest of each
        "candidate": (C,),  # their forecasts
        "candidate_error": (C,),  # mean squared error
        "final": (2,),  # the forecast for the criterion absolute, squared
        "chosen": (2,),  # the candidate that weighs most in either
        "error": (2,),  # mean absolute error of the first, mean squared error of the second
        "scale": (),  # exponentially weighted absolute error of the second
        "quantile": (L, 2),  # of the error of the second, in units of the scale
        "covered": (L,),  # how often the interval held the value
        "expert_square": (experts,),  # mean squared error
    }


WIDE: Final = placed(
    {
        "base": (),  # the first value: the engine sees (value - base) / unit
        "unit": (),  # a power of two, set by the first change; 0 until then
        "least": (),  # of the values themselves
        "greatest": (),
        "samples": (),  # measured values
        "age": (),  # ticks since the first value
        "low": (),  # in the engine's unit
        "high": (),
        "mean": (),  # exponentially weighted
        "variance": (),
        "ar_mean": (2,),
        "ar_variance": (2,),
        "ar_covariance": (2,),
        "tuning": (4,),  # level, gain, slope of the level along the gain, squared error
        "width": (2,),
        "medians": (2, 3),  # over the present, the shorter and the longer window
        "recent": (RECENT,),  # newest first
        "expert": (E,),  # forecasts of the next value
        "ar_x": (ORDER,),
        "ar_w": (ORDER,),
        "ar_p": (ORDER, ORDER),
        "lag": (LAGS,),
        "lag_x": (LAGS,),
        "lag_w": (LAGS,),
        "lag_p": (LAGS, LAGS),
    }
)
"""Fields at the start of the float64 block."""
STEP: Final = placed(_score_fields(E), WIDE["lag_p"].stop)
"""Fields of the first horizon, behind them; then one matrix D x D for every further horizon."""
MATRICES: Final = STEP["expert_square"].stop

NARROW: Final = placed({"history": (HISTORY,), "valid": (MAX_HORIZON,), "past": (MAX_HORIZON, K)})
"""Fields at the start of the float32 block: values, whether measured, forecasts of the experts."""
FURTHER: Final = NARROW["past"].stop
MEAN: Final = placed(_score_fields(M) | {"direct_w": (D,)})
"""Fields of every further horizon, one after the other behind them; then the rings of answers."""
FURTHER_SIZE: Final = MEAN["direct_w"].stop


def checked_horizons(horizons: Sequence[int]) -> tuple[int, ...]:
    """Return the horizons; ValueError unless they are 1 and, ascending, some of `HORIZONS`."""
    asked = tuple(horizons)
    if asked[:1] != (1,) or asked != tuple(horizon for horizon in HORIZONS if horizon in asked):
        raise InputError(
            f"horizons: must be 1 and, ascending, some of {HORIZONS[1:]} (are {asked})",
            code="value-range",
            field="horizons",
            value=list(asked),
            known=list(HORIZONS),
        )
    return asked


def stride(horizon: int) -> int:
    """Return how many samples lie between two scorings of a horizon."""
    return max(1, horizon // MAX_SLOTS)


def slots(horizon: int) -> int:
    """Return how many answers of a horizon wait to be scored."""
    return horizon // stride(horizon)


def sizes(horizons: Sequence[int]) -> tuple[int, int]:
    """Return the lengths of the two blocks of one series."""
    more = horizons[1:]
    rings = SLOT * sum(slots(horizon) for horizon in more)
    return MATRICES + len(more) * D * D, FURTHER + len(more) * FURTHER_SIZE + rings
