"""Conformal intervals: the errors of past runs set the width of the next interval.

The model's own interval is drawn from the forecasts' errors. It ignores effects that the model leaves out, so
it is never printed. The errors |log(measured / predicted)| of the last runs of the application are kept, by
class of the set of hosts (`set_class`). Their 80 % quantile is the half-width of the next interval, in
logarithms: split conformal prediction, with two additions.

- A run has `FADING` times the weight of the next run (Barber, Candes, Ramdas, Tibshirani 2023). The predicted
  run itself counts with weight 1 and an infinite error, so an interval of few runs is wide.
- The level moves by `STEP` times the misses of past intervals (adaptive conformal inference, Gibbs and Candes
  2021): a series of bad predictions widens the interval faster than their errors alone.

For each past run from the fifth on, the interval is computed from the runs before it, printed or not
(`RunInterval.held`). Misses of these intervals move the level, and a plan shows them as its coverage. An
interval is printed from `MIN_RUNS` runs of a class on: `MIN_MEASURED` of them have then measured the coverage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from apples.agent.models.corrections import NotNegative
from apples.resources import LEAST, MOST, Host

LEVEL = 0.8
"""An interval holds in four runs of five."""
# 0.9, 0.95 and 0.98 gave nearly equal coverage. Under a slow drift only `STEP` kept the level.
FADING = 0.95
MIN_ERRORS = 4
"""The next error exceeds the largest of n errors with probability 1 / (n + 1): with four errors 0.2."""
MIN_MEASURED = 5
"""Runs that measure the coverage before an interval is printed: fewer cannot show four of five."""
MIN_RUNS = MIN_ERRORS + MIN_MEASURED
"""Runs of a class before an interval is printed; the first `MIN_ERRORS` of them have no interval."""
STEP = 0.1
LOWEST_LEVEL, HIGHEST_LEVEL = 0.5, 0.97
BEYOND = 1.2
"""If the level exceeds the quantile of the largest known error, the half-width is this factor times that error."""
KEPT_RUNS, USED_RUNS = 200, 40
"""Number of stored runs of all classes, and of runs used of one class: 0.95 ** 40 is an eighth."""
SHOWN_RUNS = 10
MIN_HALF_WIDTH = 0.002
"""Least half-width: repeated runs differ by at least this."""
MAX_ERROR = math.log(100.0)
"""A single error counts as at most this."""
ERRORS_IN_HALF = 1.2816 * math.sqrt(math.pi / 2.0)
"""Half-width of an 80 % interval of a normal error, in mean absolute errors."""

ALONE, ONE_SITE, SEVERAL_SITES = "alone", "site", "sites"
CLASSES = {ALONE: "on one host alone", ONE_SITE: "on one site", SEVERAL_SITES: "on several sites"}

Seconds = Annotated[float, Field(allow_inf_nan=False, ge=LEAST, le=MOST)]


def set_class(resources: Sequence[Host]) -> str:
    """Return the class of a set of hosts, ``alone``, ``site`` or ``sites``; a class has similar errors."""
    if len(resources) < 2:
        return ALONE
    return ONE_SITE if len({host.site for host in resources}) == 1 else SEVERAL_SITES


@dataclass(frozen=True, slots=True)
class PastRun:
    """A past run: its prediction and its time.

    Attributes
    ----------
    set_class
        The class of its set of hosts.
    predicted
        Predicted seconds of the iteration loop, without the user's caution.
    own
        Half-width of the model's own interval, in logarithms; None until the run is remembered.
    promised
        The printed interval, in seconds; None if the plan printed none.
    measured
        Measured seconds of as many iterations.
    """

    set_class: Annotated[str, Field(pattern="^(alone|site|sites)$")]
    predicted: Seconds
    own: NotNegative | None
    promised: tuple[Seconds, Seconds] | None
    measured: Seconds

    @property
    def error(self) -> float:
        """Return log(measured / predicted), at most `MAX_ERROR` either way."""
        return min(max(math.log(self.measured / self.predicted), -MAX_ERROR), MAX_ERROR)

    @property
    def inside(self) -> bool | None:
        """Whether the run ended inside its printed interval; None without a printed interval."""
        if self.promised is None:
            return None
        low, high = self.promised
        return low <= self.measured <= high


@dataclass(frozen=True, slots=True)
class RunInterval:
    """The next interval of a class of sets.

    Attributes
    ----------
    half_width
        Half-width in logarithms: the interval is the prediction divided and multiplied by its exponential.
    held
        For each past run from the fifth on: whether it ended inside the interval computed from the runs before
        it.
    """

    half_width: float
    held: tuple[bool, ...]


def next_interval(runs: Sequence[PastRun]) -> RunInterval | None:
    """Return the 80 % interval of the next run of a class; None before `MIN_ERRORS` runs.

    Parameters
    ----------
    runs
        Past runs of one class, oldest first.

    Examples
    --------
    >>> def run(measured):
    ...     return PastRun("site", 1.0, 0.1, None, measured)
    >>> next_interval([run(1.1)] * 3)
    >>> round(next_interval([run(1.1), run(1 / 1.1)] * 10).half_width, 3)
    0.095
    """
    errors = np.abs([run.error for run in runs[-KEPT_RUNS:]])
    if len(errors) < MIN_ERRORS:
        return None
    level, held = LEVEL, []
    for k in range(MIN_ERRORS, len(errors)):
        inside = bool(errors[k] <= _half_width(errors[:k], level))
        held.append(inside)
        level = min(max(level + STEP * (LEVEL - inside), LOWEST_LEVEL), HIGHEST_LEVEL)
    return RunInterval(_half_width(errors, level), tuple(held))


def _half_width(errors: np.ndarray[tuple[int], np.dtype[np.float64]], level: float) -> float:
    """Return the weighted quantile of past errors at a level; the next error counts as infinite."""
    used = errors[-USED_RUNS:]
    weights = FADING ** np.arange(len(used) - 1, -1, -1.0)
    order = np.argsort(used)
    reached = np.cumsum(weights[order]) / (weights.sum() + 1.0)
    place = int(np.searchsorted(reached, level))
    if place == len(used):
        return max(MIN_HALF_WIDTH, float(BEYOND * used.max()))
    return max(MIN_HALF_WIDTH, float(used[order[place]]))


def caution(runs: Sequence[PastRun], risk: float) -> float:
    """Return the factor for a user's risk on the predicted seconds of a set, in addition to the model's own risk.

    The model adds `risk` mean absolute errors of the forecasts. If errors of past runs of the class exceed the
    model's own intervals, the difference is an error common to all hosts of the set; the factor adds `risk`
    times this error.

    Parameters
    ----------
    runs
        Past runs of the class of the set.
    risk
        Risk of the user; 0 plans for the mean.
    """
    interval = next_interval(runs) if risk else None
    if interval is None:
        return 1.0
    own = float(np.median([run.own or 0.0 for run in runs[-USED_RUNS:]]))
    return math.exp(risk * max(0.0, interval.half_width - own) / ERRORS_IN_HALF)
