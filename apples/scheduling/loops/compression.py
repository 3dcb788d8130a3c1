"""One pass of conservative backfilling: which promises move when units come free, and what new jobs are promised.

Each waiting job, in the order of the queue, gives its reservation up and takes the earliest one then open
(Mu'alem and Feitelson 2001). Its old one is open, so no reservation moves back.

What makes it fast, with the result unchanged:

* a job can move only if there is room for all of it before its reservation, or if its units are free just
  before that;
* the first is asked once for all jobs of one *shape* (units and request alike): before a place that was found
  there is none until units come free, and then only one that reaches into what came free. Nor is there one
  for a longer request of as many units.
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

KEPT = 1024  # stretches that came free lately and are kept
ALIKE = 32  # shapes of the same units that are asked for what they know
FREED, CHANGES = range(2)  # indices of Places.tally


class Places(NamedTuple):
    """The first place of each shape of job in a profile, and what came free since it was found.

    Attributes
    ----------
    tally
        By the indices FREED and CHANGES: how often units came free, how often the profile changed.
    units
        By shape: those that a job of it needs. Shapes are in the order of their units, then of their requests.
    found
        By shape: before this time there was no place for a job of it.
    known
        By shape, two numbers: `tally` of FREED and CHANGES then, -1 if no place was looked for.
    stretch, most
        The last `KEPT` stretches that came free: from when to when, the most units free there then.
    """

    tally: Numbers
    units: Numbers
    found: Numbers
    known: Numbers
    stretch: Numbers
    most: Numbers


def no_places(units: NDArray[np.int64]) -> Places:
    """Return that of no shape a place is known."""
    return Places(
        integers(2), units, zeros(len(units)), integers(2 * len(units), -1), zeros(2 * KEPT),
        integers(KEPT),
    )  # fmt: skip


@inlined
def reserve(m: Places, p: BlockedProfile, begin: float, end: float, units: int) -> None:
    """Take units from the profile from one time to another."""
    take(p, begin, end, units)
    m.tally[CHANGES] += 1


@inlined
def release(m: Places, p: BlockedProfile, begin: float, end: float, units: int) -> None:
    """Give units back to the profile from one time to another."""
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
    """Return the first time from `now` on from which the units are free for so long.

    Or any before which there is none, if there is none that ends before `old`.
    """
    found = float(m.found[shape])
    if found >= now and m.known[2 * shape + 1] == m.tally[CHANGES]:
        return found
    if m.known[2 * shape] < 0:
        # What is known of a shorter request holds for this one, too.
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
        # There is no new place but those that reach into what came free since; a second for rounding.
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
    """Move the promises of so many waiting jobs; return the earliest promise.

    `waiting` are the jobs in the order of the queue; the arrays behind are by job.
    """
    due = FOREVER
    # The units free just before the last promise that was looked at, and what the tally of CHANGES was then.
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
                # No room for all of it before: it may still begin before and reach into its own.
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

    The first `kept` of so many waiting jobs have promises, which the profile holds; with `moves` they are moved
    up. The others are promised the earliest place behind all before them. The same for short queues, without
    numba: `apples.scheduling.profile.Profile.plan`; `tests/scheduling/test_profile.py` holds both equal.
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
    """Return for each job the number of its shape, need and request together, and the need of each shape."""
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
    """Return when each job begins after one pass, inf if never, and the profile then.

    Parameters
    ----------
    times, levels
        The steps of the profile that holds the promises; the first step is now.
    promises
        Of the first jobs.
    jobs
        Seconds and nodes of each, in the order of the queue.
    moves
        Whether the promises are moved up.
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
