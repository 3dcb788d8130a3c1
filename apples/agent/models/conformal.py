"""Conformal intervals: how far past runs ended from their predictions says how wide the next interval has to be.

The model's own interval is drawn from the forecasts' errors, and knows nothing of what the model leaves out. So
the errors |log(measured / predicted)| of the last runs of the application are kept, by class of the set of hosts
(`set_class`), and their 80 % quantile is the half-width of the next interval, in logarithms: split conformal
prediction, with three additions.

- A run weighs `FADING` as much as the next one (Barber, Candes, Ramdas, Tibshirani 2023), and the next run
  itself counts one with an error without bound: so an interval of few runs is wide.
- Where fewer than `LEAST_RUNS` are known there is no such quantile. The half-width is then that of a normal
  error of which nothing but these n runs is known: Student's t with n degrees of freedom, times their root
  mean square.
- The level that is asked for moves by `STEP` times what the last promises missed (adaptive conformal inference,
  Gibbs and Candes 2021): predictions that go wrong one after the other widen faster than their errors would.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from apples.agent.models.corrections import is_positive, limited
from apples.resources import Host

LEVEL = 0.8
"""What an interval promises: to hold in four runs of five."""
# Of 0.9, 0.95 and 0.98: their coverage was nearly equal. Only `STEP` kept the level under a slow
# drift.
FADING = 0.95
LEAST_RUNS = 4
"""The largest of n errors is exceeded with probability 1 / (n + 1): from four on that is the level."""
STEP = 0.1
LOWEST_LEVEL, HIGHEST_LEVEL = 0.5, 0.97
BEYOND = 1.2
"""Where the level asks for more than the largest error known, the half-width is so many times that error."""
KEPT_RUNS, USED_RUNS = 200, 40
"""Runs that are kept, of all classes; and used, of one: 0.95 ** 40 is an eighth."""
SHOWN_RUNS = 10
LEAST_HALF_WIDTH = 0.002
"""No run repeats itself better than this."""
ERRORS_IN_HALF = 1.2816 * math.sqrt(math.pi / 2.0)
"""Mean absolute errors in half an interval of 80 %, of a normal error."""
STUDENT_90 = (3.0777, 1.8856, 1.6377)
"""90 % quantiles of Student's t with 1, 2 and 3 degrees of freedom."""

ALONE, ONE_SITE, SEVERAL_SITES = "alone", "site", "sites"
CLASSES = {ALONE: "on one host alone", ONE_SITE: "on one site", SEVERAL_SITES: "on several sites"}


def set_class(resources: Sequence[Host]) -> str:
    """Return the class of a set of hosts, whose predictions fail alike: ``alone``, ``site`` or ``sites``."""
    if len(resources) < 2:
        return ALONE
    return ONE_SITE if len({host.site for host in resources}) == 1 else SEVERAL_SITES


@dataclass(frozen=True, slots=True)
class PastRun:
    """What was promised of a run, and what came.

    Attributes
    ----------
    set_class
        The class of its set of hosts.
    predicted
        Predicted seconds of the iteration loop, without the user's caution.
    own
        Half-width of the model's own interval, in logarithms.
    promised
        The interval that stood in the plan, seconds; None where no error was known.
    measured
        Measured seconds of as many iterations.
    """

    set_class: str
    predicted: float
    own: float
    promised: tuple[float, float] | None
    measured: float

    @property
    def error(self) -> float:
        """Return log(measured / predicted), within what one run may teach."""
        return math.log(limited(self.measured / self.predicted))

    @property
    def inside(self) -> bool | None:
        """Whether it ended inside; None where nothing was promised."""
        if self.promised is None:
            return None
        low, high = self.promised
        return low <= self.measured <= high

    def stored(self) -> dict[str, Any]:
        """Return it for a document."""
        return {
            "class": self.set_class,
            "predicted": self.predicted,
            "own": self.own,
            "promised": None if self.promised is None else list(self.promised),
            "measured": self.measured,
        }

    @classmethod
    def recalled(cls, entry: Any) -> PastRun | None:
        """Return what an entry of a document says; None where it makes no sense."""
        entry = entry if isinstance(entry, dict) else {}
        kind, predicted, measured = (entry.get(key) for key in ("class", "predicted", "measured"))
        if (
            not isinstance(kind, str)
            or kind not in CLASSES
            or not (is_positive(predicted) and is_positive(measured))
        ):
            return None
        own = entry.get("own")
        ends = entry.get("promised")
        promised = None
        if isinstance(ends, list) and len(ends) == 2 and all(map(is_positive, ends)):
            promised = (float(ends[0]), float(ends[1]))
        return cls(
            kind,
            float(predicted),
            float(own) if is_positive(own) else 0.0,
            promised,
            float(measured),
        )


def half_width(runs: Sequence[PastRun]) -> float:
    """Return how far from its prediction the next run of these runs' class ends, in four cases of five.

    In logarithms: the interval is the prediction over, and times, its exponential.

    Parameters
    ----------
    runs
        Past runs of one class, oldest first; at least one.

    Examples
    --------
    >>> def run(measured):
    ...     return PastRun("site", 1.0, 0.1, (0.9, 1.1), measured)
    >>> round(half_width([run(1.1)]), 3)  # one run: three times its error
    0.293
    >>> round(half_width([run(1.1), run(1 / 1.1)] * 10), 3)
    0.095
    """
    used = runs[-USED_RUNS:]
    errors = np.abs([run.error for run in used])
    if len(errors) < LEAST_RUNS:
        return max(LEAST_HALF_WIDTH, STUDENT_90[len(errors) - 1] * math.sqrt(np.mean(errors**2)))
    weights = FADING ** np.arange(len(errors) - 1, -1, -1.0)
    order = np.argsort(errors)
    reached = np.cumsum(weights[order]) / (weights.sum() + 1.0)
    place = int(np.searchsorted(reached, asked_level(used)))
    if place == len(errors):
        return max(LEAST_HALF_WIDTH, float(BEYOND * errors.max()))
    return max(LEAST_HALF_WIDTH, float(errors[order[place]]))


def caution(runs: Sequence[PastRun], risk: float) -> float:
    """Return the factor on the predicted seconds of a set that a user's risk asks for beyond the model's own.

    The model takes `risk` mean absolute errors of the forecasts. Where past runs of the class ended further from
    their predictions than their models' own intervals said, the difference is an error common to all hosts
    of the set, and as many of it are taken.

    Parameters
    ----------
    runs
        Past runs of the class of the set.
    risk
        The user's; 0 plans for the mean.
    """
    if not risk or not runs:
        return 1.0
    own = float(np.median([run.own for run in runs[-USED_RUNS:]]))
    return math.exp(risk * max(0.0, half_width(runs) - own) / ERRORS_IN_HALF)


def asked_level(runs: Sequence[PastRun]) -> float:
    """Return the level to ask for, given whether past promises held; `LEVEL` before the first."""
    level = LEVEL
    for run in runs:
        if run.inside is not None:
            level += STEP * (LEVEL - run.inside)
            level = min(max(level, LOWEST_LEVEL), HIGHEST_LEVEL)
    return level
