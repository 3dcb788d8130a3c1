"""Waiting for others: quick when they are near, and the CPU is theirs when they are not."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

SPIN_SECONDS = 80e-6
YIELD_SECONDS = 5e-3
SHARE = 0.05
LONGEST_SECONDS = 1e-3
SLOW = 1e8
"""Bytes a second: slower links keep a socket's buffers full while we sleep."""


def wait(done: Callable[[], bool], moving: int = 0) -> None:
    """Return when `done()` is true: spin, then yield, then sleep a twentieth of the wait so far.

    Parameters
    ----------
    moving
        Bytes that MPI moves meanwhile. Over TCP it moves them in the calls of `done` alone, so no sleep
        comes between for as long as a link that a sleep would slow down needs for them.

    There is no limit here: a rank that is gone or stopped is noticed by its guard, which ends this one too.
    """
    if done():
        return
    start = time.perf_counter()
    patient = YIELD_SECONDS + moving / SLOW
    while not done():
        waited = time.perf_counter() - start
        if waited > patient:
            time.sleep(min(SHARE * waited, LONGEST_SECONDS))
        elif waited > SPIN_SECONDS:
            os.sched_yield()
