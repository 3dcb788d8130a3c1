"""The user's own objective: a metric of an `Estimate`, in place of execution time, cost and speedup.

A metric is a plain callable that the user names as ``module:name`` or ``file.py:name``, together with the
better direction. It is called for every candidate of a decision. Before that, the search calls it for the sets
that it compares, with fractional rows and without an interval.
"""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Real
from typing import Any, NoReturn

from apples.errors import UsageError, place_in_users_code, place_of_function, repr_of, text_of
from apples.io.plugins import resolve
from apples.resources.schedule import Estimate
from hat import MEASURES, Objective

MAX_SECONDS = 10.0
"""Time limit of one call of a metric, only in the main thread (a limit of SIGALRM); usual calls take 1 us."""


class MetricTimeoutError(Exception):
    """A metric took longer than its time limit."""


def users_metric(
    objective: Objective, seconds: float = MAX_SECONDS
) -> Callable[[Estimate], float] | None:
    """Return the user's metric as a function to minimise; None for a built-in objective.

    Raises
    ------
    UsageError
        The callable does not exist. During a call: it raised, took more than `seconds`, or did not return a
        finite number; the message names the user's line. Permanent.

    Examples
    --------
    >>> users_metric(Objective(measure="cost")) is None
    True
    """
    reference = objective.measure
    if reference in MEASURES:
        return None
    metric: Callable[[Estimate], Any] = resolve(reference, {}, "objective", ("estimate",))
    sign = -1.0 if objective.better == "higher" else 1.0

    def value(estimate: Estimate) -> float:
        try:
            with _time_limit(seconds):
                returned = metric(estimate)
            if not isinstance(returned, bool) and isinstance(returned, Real):
                number = sign * float(returned)
                if math.isfinite(number):
                    return number
        except (Exception, SystemExit) as error:
            late = isinstance(error, MetricTimeoutError)
            place = place_in_users_code(error) or place_of_function(metric)
            raise UsageError(
                f"objective '{reference}'{_at(place)}: {type(error).__name__}: {text_of(error)}",
                code="user-code-timeout" if late else "user-code-failed",
                objective=reference,
                kind=type(error).__name__,
                seconds=seconds if late else None,
                **place,
            ) from error
        place, shown = place_of_function(metric), repr_of(returned)
        raise UsageError(
            f"objective '{reference}'{_at(place)}: must return a finite number (got {shown})",
            code="objective-invalid",
            objective=reference,
            value=shown,
            hosts=list(estimate.names),
            **place,
        )

    return value


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise `MetricTimeoutError` in the user's code after the time limit; only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> NoReturn:
        del number, frame
        raise MetricTimeoutError(
            f"no number within {seconds:g} s; the search calls it for every set"
        )

    handler, timer = (
        signal.signal(signal.SIGALRM, stop),
        signal.setitimer(signal.ITIMER_REAL, seconds),
    )
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *timer)  # restore the caller's timer


def _at(place: dict[str, Any]) -> str:
    """Return ` at FILE:LINE`; empty if no line of the user's code is known."""
    return f" at {place['file']}:{place['line']}" if place else ""
