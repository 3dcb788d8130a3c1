"""The user's own objective: a metric of an `Estimate`, in place of execution time, cost and speedup.

A metric is a plain callable that the user names as ``module:name`` or ``file.py:name``, with which way is
better. It is asked about every candidate of a decision, and about the sets that the search weighs before
them: those have strips that are no whole rows yet, and no interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

from apples.errors import UsageError
from apples.plugins import resolve, where_in_users_code
from apples.schedule import Estimate
from hat import MEASURES, Objective


def users_metric(objective: Objective) -> Callable[[Estimate], float] | None:
    """Return the user's metric as a number that is the lower the better; None where the objective is one of ours.

    Raises
    ------
    UsageError
        There is no such callable; or, when it is called: it raised, or gave no finite number. Permanent.
    """
    reference = objective.measure
    if reference in MEASURES:
        return None
    metric: Callable[[Estimate], Any] = resolve(reference, {}, "objective", ("estimate",))
    sign = -1.0 if objective.better == "higher" else 1.0

    def value(estimate: Estimate) -> float:
        try:
            found = metric(estimate)
        except Exception as error:
            where = where_in_users_code(error) or f"objective '{reference}' failed"
            raise UsageError(f"{where}: {type(error).__name__}: {error}") from error
        if _is_number(found):
            return sign * float(found)
        hosts = ", ".join(estimate.names[:MOST_NAMED])
        raise UsageError(
            f"objective '{reference}'{_place(metric)}: gave {found!r} for {hosts}"
            f"{' and others' if len(estimate.names) > MOST_NAMED else ''}, must be a finite number"
        )

    return value


MOST_NAMED = 5
"""Hosts of a set that a message names."""


def _is_number(found: object) -> bool:
    if isinstance(found, bool) or not isinstance(found, Real):
        return False
    try:
        return math.isfinite(found)
    except OverflowError:  # a whole number that no float holds
        return False


def _place(metric: object) -> str:
    """Return ` at FILE:LINE`, where a function of the user begins; empty where it is no function."""
    code = getattr(metric, "__code__", None)
    return f" at {code.co_filename}:{code.co_firstlineno}" if code else ""
