"""The user's own objective: a metric of an `Estimate`, in place of execution time, cost and speedup.

A metric is a plain callable that the user names as ``module:name`` or ``file.py:name``, with which way is
better. It is asked about every candidate of a decision, and about the sets that the search weighs before
them: those have strips that are no whole rows yet, and no interval.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Real
from typing import Any, NoReturn

from apples.errors import UsageError, place_in_users_code, where_in_users_code
from apples.io.plugins import resolve
from apples.resources.schedule import Estimate
from hat import MEASURES, Objective

MOST_SECONDS = 10.0
"""Time limit of one call of a metric, in the main thread (SIGALRM interrupts that only); usual calls take 1 us."""


def users_metric(
    objective: Objective, seconds: float = MOST_SECONDS
) -> Callable[[Estimate], float] | None:
    """Return the user's metric as a number that is the lower the better; None where the objective is one of ours.

    Raises
    ------
    UsageError
        There is no such callable; or, when it is called: it raised, took more than `seconds`, or gave no
        finite number. Permanent.
    """
    reference = objective.measure
    if reference in MEASURES:
        return None
    metric: Callable[[Estimate], Any] = resolve(reference, {}, "objective", ("estimate",))
    sign = -1.0 if objective.better == "higher" else 1.0

    def value(estimate: Estimate) -> float:
        try:
            with _limited(seconds):
                found = metric(estimate)
        except _TakesForeverError:
            raise UsageError(
                f"objective '{reference}'{_place(metric)}: gave nothing for {_hosts(estimate)} within "
                f"{seconds:g} s, and is asked about thousands of sets",
                code="user-code-timeout",
                objective=reference,
                seconds=seconds,
                **_begins(metric),
            ) from None
        except (Exception, SystemExit) as error:
            where = where_in_users_code(error) or f"objective '{reference}' failed"
            raise UsageError(
                f"{where}: {type(error).__name__}: {_one_line(error)}",
                code="user-code-failed",
                objective=reference,
                kind=type(error).__name__,
                **place_in_users_code(error),
            ) from error
        if _is_number(found):
            return sign * float(found)
        raise UsageError(
            f"objective '{reference}'{_place(metric)}: gave {_one_line(repr(found))} for {_hosts(estimate)}, "
            "must be a finite number",
            code="objective-invalid",
            objective=reference,
            value=_one_line(repr(found)),
            hosts=list(estimate.names[:MOST_NAMED]),
            **_begins(metric),
        )

    return value


MOST_NAMED = 5
"""Hosts of a set that a message names."""
MOST_SAID = 200
"""Characters of what the user's code says."""


class _TakesForeverError(BaseException):
    """The time is up; no `Exception`, which the user's code may catch."""


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise `_TakesForeverError` in what takes longer, where this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(number: int, frame: object) -> NoReturn:
        del number, frame
        raise _TakesForeverError

    before = signal.signal(signal.SIGALRM, late)
    begun, others = time.monotonic(), signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        if others[0]:  # the alarm of whoever calls goes on, late by nothing
            left = max(1e-6, others[0] - (time.monotonic() - begun))
            signal.setitimer(signal.ITIMER_REAL, left, others[1])


def _one_line(said: object) -> str:
    """Return what the user's code said, on one line and not longer than a message may be."""
    return " ".join(str(said).split())[:MOST_SAID]


def _hosts(estimate: Estimate) -> str:
    """Return the first hosts of a set, for a message."""
    more = " and others" if len(estimate.names) > MOST_NAMED else ""
    return ", ".join(estimate.names[:MOST_NAMED]) + more


def _is_number(found: object) -> bool:
    if isinstance(found, bool) or not isinstance(found, Real):
        return False
    try:
        return math.isfinite(found)
    except OverflowError:  # an integer that no float holds
        return False


def _place(metric: object) -> str:
    """Return ` at FILE:LINE`, where a function of the user begins; empty where it is no function."""
    begins = _begins(metric)
    return f" at {begins['file']}:{begins['line']}" if begins else ""


def _begins(metric: object) -> dict[str, Any]:
    """Return `file` and `line` where a function of the user begins; empty where it is no function."""
    code = getattr(metric, "__code__", None)
    return {"file": code.co_filename, "line": code.co_firstlineno} if code else {}
