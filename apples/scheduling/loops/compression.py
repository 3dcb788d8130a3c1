"""One pass of conservative backfilling: move promises when units come free, and promise new jobs their start.

Each waiting job, in the order of the queue, gives up its reservation and takes the earliest possible one (Mu'alem
and Feitelson 2001). Its old reservation remains possible, so no reservation moves back.

Two shortcuts leave the result unchanged:

* a job can move only if all of it fits before its reservation, or if its units are free just before that;
* the first condition is tested once for all jobs of one *shape* (equal units and request). A shape has no place
  earlier than the one found until units come free, and then only a place that overlaps an interval that came free.
  The same holds for a longer request of as many units.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apples.scheduling.loops.compiled import (
    FOREVER,
    Numbers,
    compiled,
    inlined,
    instant,
    integers,
    zeros,
)
from apples.scheduling.loops.profile import (
    BlockedProfile,
    earliest,
    free_before,
    most_between,
    profile_of,
    run_before,
    steps_of,
    take,
)

__all__ = ["Places", "no_places", "plan", "planned", "release", "shapes_of"]

KEPT = 1024  # last intervals that came free
ALIKE = 32  # shapes of the same units that share their bounds
FREED, CHANGES = range(2)  # indices of Places.tally


class Places(NamedTuple):
    """The first place of each shape of job in a profile, and the intervals that came free since the search.

    Attributes
    ----------
    tally
        Two counters at the indices FREED and CHANGES: releases of units, and changes of the profile.
    units
        By shape: the units of a job. Shapes are in the order of their units, then of their requests.
    found
        By shape: a lower bound of the first place of a job.
    known
        By shape, two numbers: `tally` of FREED and CHANGES at the last search, -1 before any search.
    stretch, most
        The last `KEPT` intervals that came free: start and end, and the most units free in the interval then.
    """

    tally: Numbers
    units: Numbers
    found: Numbers
    known: Numbers
    stretch: Numbers
    most: Numbers


def no_places(units: NDArray[np.int64]) -> Places:
    """Return `Places` without a known place for any shape."""
    return Places(
        integers(2), units, zeros(len(units)), integers(2 * len(units), -1), zeros(2 * KEPT),
        integers(KEPT),
    )  # fmt: skip


@inlined
def reserve(m: Places, p: BlockedProfile, begin: float, end: float, units: int) -> None:
    """Take units from the profile in [begin, end)."""
    take(p, begin, end, units)
    m.tally[CHANGES] += 1


@inlined
def release(m: Places, p: BlockedProfile, begin: float, end: float, units: int) -> None:
    """Give units back to the profile in [begin, end)."""
    take(p, begin, end, -units)
    k = m.tally[FREED] % KEPT
    m.stretch[2 * k] = begin
    m.stretch[2 * k + 1] = end
    m.most[k] = most_between(p, begin, end)
    m.tally[FREED] += 1
    m.tally[CHANGES] += 1


@inlined
def first_place(
    m: Places, p: BlockedProfile, now: float, shape: int, seconds: float, units: int, old: float
) -> float:
    """Return the first time from `now` on from which the units are free for `seconds`.

    If no such place ends before `old`, any lower bound of the first time may be returned.
    """
    found = float(m.found[shape])
    if found >= now and m.known[2 * shape + 1] == m.tally[CHANGES]:
        return found
    if m.known[2 * shape] < 0:
        # The bound of a shorter request holds for this request, too.
        for s in range(shape - 1, max(shape - ALIKE, 0) - 1, -1):
            if m.units[s] != units:
                break
            if m.known[2 * s] >= 0 and m.found[s] > found:
                found = float(m.found[s])
                m.known[2 * shape] = m.known[2 * s]
    found = max(found, now)
    after, until = found, now
    if m.known[2 * shape] < 0 or m.tally[FREED] - m.known[2 * shape] > KEPT:
        after, until = now, FOREVER
    else:
        # A new place overlaps an interval that came free since; one second allows for rounding.
        for i in range(m.known[2 * shape], m.tally[FREED]):
            k = i % KEPT
            if units <= m.most[k]:
                after = min(after, m.stretch[2 * k] - seconds - 1.0)
                until = max(until, m.stretch[2 * k + 1])
    m.known[2 * shape] = m.tally[FREED]
    if after < found or found + seconds <= old:
        found = earliest(p, now, after, until, found, seconds, units, old)
        m.known[2 * shape + 1] = m.tally[CHANGES] if found + seconds <= old else -1
    m.found[shape] = found
    return found


@compiled
def compress(
    m: Places,
    p: BlockedProfile,
    now: float,
    waiting: Numbers,
    count: int,
    shape: Numbers,
    need: Numbers,
    request: Numbers,
    promise: Numbers,
) -> float:
    """Move the promises of the first `count` waiting jobs; return the earliest promise.

    `waiting` holds the jobs in the order of the queue; `shape`, `need`, `request` and `promise` are indexed by
    job.
    """
    due = FOREVER
    # Units free just before the last promise examined, that promise, and the tally of CHANGES then.
    before, last, looked = 0, now, -1
    for q in range(count):
        j = waiting[q]
        old = promise[j]
        if old > now:
            s = shape[j]
            begin = m.found[s]
            if begin < now or m.known[2 * s] != m.tally[FREED] or begin + request[j] <= old:
                begin = first_place(m, p, now, s, request[j], need[j], old)
            if begin + request[j] > old:
                # All of it does not fit before: it may still begin before and overlap its own reservation.
                if old != last or looked != m.tally[CHANGES]:
                    before, last, looked = free_before(p, old), old, m.tally[CHANGES]
                begin = run_before(p, now, old, need[j]) if need[j] <= before else old
            if begin < old:
                end, last_end = instant(begin + request[j]), instant(old + request[j])
                reserve(m, p, begin, min(old, end), need[j])
                if max(old, end) < last_end:
                    release(m, p, max(old, end), last_end, need[j])
                promise[j] = begin
        due = min(due, float(promise[j]))
    return due


@compiled
def plan(
    m: Places,
    p: BlockedProfile,
    now: float,
    waiting: Numbers,
    kept: int,
    count: int,
    moves: bool,
    shape: Numbers,
    need: Numbers,
    request: Numbers,
    promise: Numbers,
) -> float:
    """Decide one pass of conservative backfilling; return the earliest of the promises that it made or moved.

    The first `kept` of the `count` waiting jobs have promises, which the profile holds; with `moves` they move up.
    Each other job is promised the earliest place that the jobs before it leave. The same for short queues, without
    numba: `apples.scheduling.profile.Profile.plan`; `tests/scheduling/test_profile.py` tests that both are equal.
    """
    due = FOREVER
    if moves:
        due = compress(m, p, now, waiting, kept, shape, need, request, promise)
    for q in range(kept, count):
        j = waiting[q]
        begin = first_place(m, p, now, shape[j], request[j], need[j], FOREVER)
        promise[j] = begin
        if begin < FOREVER:
            reserve(m, p, begin, instant(begin + request[j]), need[j])
            due = min(due, begin)
    return due


def shapes_of(
    need: NDArray[np.int64], request: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the shape (need and request) of each job as a number, and the need of each shape."""
    order = np.lexsort((request, need))
    differs = np.zeros(len(need), dtype=np.bool_)
    differs[1:] = (np.diff(need[order]) != 0) | (np.diff(request[order]) != 0)
    shape = np.empty(len(need), dtype=np.int64)
    shape[order] = differs.cumsum()
    differs[0] = True
    return shape, need[order][differs]


def planned(
    times: NDArray[np.float64],
    levels: NDArray[np.int64],
    promises: Sequence[float],
    jobs: Sequence[tuple[float, int]],
    moves: bool,
) -> tuple[list[float], NDArray[np.float64], NDArray[np.int64]]:
    """Return the start of each job after one pass, inf if never, and the profile after the pass.

    Parameters
    ----------
    times, levels
        The steps of the profile that holds the promises; the first step is now.
    promises
        The promised starts of the first jobs.
    jobs
        Seconds and nodes of each, in the order of the queue.
    moves
        Whether the promises move up.
    """
    seconds, nodes = zip(*jobs, strict=True)
    need, request = np.array(nodes, dtype=np.int64), np.array(seconds, dtype=np.float64)
    shape, units = shapes_of(need, request)
    profile = profile_of(times, levels, 2 * len(need))
    promise = np.full(len(need), np.inf)
    promise[: len(promises)] = promises
    plan(
        no_places(units), profile, float(times[0]), np.arange(len(need)), len(promises), len(need),
        moves, shape, need, request, promise,
    )  # fmt: skip
    promise[promise >= FOREVER] = np.inf
    return promise.tolist(), *steps_of(profile)
