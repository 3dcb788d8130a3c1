"""The kernel of conservative backfilling: every waiting job holds a reservation.

The same policy as a value: `apples.scheduling.policies.conservative`.

A step function of free units over time (`times`, `levels`; the last level lasts for ever) holds
the running jobs up to their estimated ends and the waiting jobs at their reservations. When a job
ends before its estimate, the waiting jobs are moved once, in the order of the queue, each to the
earliest time that its own removal leaves open: never later (Mu'alem and Feitelson 2001,
"compression").
"""

from __future__ import annotations

import heapq

from apples.scheduling.instants import HALF_INSTANT
from apples.simulation.kernels.backfill import EVENT, FOREVER, position_of
from apples.simulation.kernels.compiled import Numbers, close_gap, compiled, instant, open_gap


@compiled
def breakpoint_at(times: Numbers, levels: Numbers, count: int, time: float) -> int:
    """Make sure that a step begins at `time`; return its position."""
    k = position_of(times, count, time)
    if k < count and times[k] == time:
        return k
    open_gap(times, k, count)
    open_gap(levels, k, count)
    times[k] = time
    levels[k] = levels[k - 1]
    return k


@compiled
def occupy(
    times: Numbers, levels: Numbers, count: int, begin: float, end: float, units: int
) -> int:
    """Take units from [begin, end) (negative: give back); return the new number of steps."""
    first = breakpoint_at(times, levels, count, begin)
    if count < len(times) and times[count] < FOREVER:
        count += 1
    last = breakpoint_at(times, levels, count, end)
    if count < len(times) and times[count] < FOREVER:
        count += 1
    for k in range(first, last):
        levels[k] -= units
    # Steps that no longer step are taken out, so that the table stays as short as it can be.
    if levels[last] == levels[last - 1]:
        close_gap(times, last, count)
        close_gap(levels, last, count)
        count -= 1
        times[count] = FOREVER
    if first > 0 and levels[first] == levels[first - 1]:
        close_gap(times, first, count)
        close_gap(levels, first, count)
        count -= 1
        times[count] = FOREVER
    return count


@compiled
def earliest(
    times: Numbers, levels: Numbers, count: int, now: float, seconds: float, units: int
) -> float:
    """Return the first time from `now` on at which the units are free for so long."""
    k = position_of(times, count, now)
    if k == count or times[k] > now:
        k -= 1
    begin = now
    fits = False
    while k < count:
        if levels[k] < units:
            fits = False
        elif not fits:
            fits = True
            begin = max(now, times[k])
        if fits and (k + 1 == count or times[k + 1] >= begin + seconds - HALF_INSTANT):
            return begin
        k += 1
    return FOREVER


@compiled
def conservative(
    submit: Numbers,
    run: Numbers,
    need: Numbers,
    request: Numbers,
    capacity: int,
    ties: int,
    times: Numbers,
    levels: Numbers,
    waiting: Numbers,
    promise: Numbers,
    began: Numbers,
    start: Numbers,
) -> None:
    """Write the start of every job into `start`; the work space `times` holds FOREVER."""
    jobs = len(submit)
    running = [(0.0, 0)]
    running.pop()
    arrived = 0
    started = 0
    queued = 0
    count = 1
    times[0] = -FOREVER
    levels[0] = capacity
    due = FOREVER  # the earliest reservation
    while arrived < jobs or len(running) > 0 or queued > 0:
        # Stage 1, the time: of the next reservation, end or submission.
        now = due
        if len(running) > 0 and running[0][0] < now:
            now = running[0][0]
        if arrived < jobs and submit[arrived] < now:
            now = submit[arrived]
        # Stage 2, the events. A job that ends before its estimate leaves a hole behind it.
        first_new = queued
        submitted = False
        while arrived < jobs and submit[arrived] <= now:
            waiting[queued] = arrived
            queued += 1
            arrived += 1
            submitted = True
            if ties == EVENT:
                break
        early = False
        if not (ties == EVENT and submitted):
            while len(running) > 0 and running[0][0] <= now:
                j = began[heapq.heappop(running)[1]]
                end = instant(start[j] + request[j])
                if end > now:
                    count = occupy(times, levels, count, now, end, -need[j])
                    early = True
                if ties == EVENT:
                    break
        # Steps that are past are dropped, several at a time: moving the table costs its length.
        past = 0
        while past + 1 < count and times[past + 1] <= now:
            past += 1
        if past > 32:
            for k in range(past, count):
                times[k - past] = times[k]
                levels[k - past] = levels[k]
            for k in range(count - past, count):
                times[k] = FOREVER
            count -= past
        # Stage 3, compression: each waiting job, in the order of the queue, gives its reservation up and
        # takes the earliest one then open. Its old one is open, so no reservation moves back.
        if early:
            for q in range(first_new):
                j = waiting[q]
                if promise[j] > now:
                    count = occupy(
                        times,
                        levels,
                        count,
                        promise[j],
                        instant(promise[j] + request[j]),
                        -need[j],
                    )
                    promise[j] = earliest(times, levels, count, now, request[j], need[j])
                    count = occupy(
                        times, levels, count, promise[j], instant(promise[j] + request[j]), need[j]
                    )
        # Stage 4: the new jobs reserve behind all others; stage 5: reservations that are due start.
        for q in range(first_new, queued):
            j = waiting[q]
            promise[j] = earliest(times, levels, count, now, request[j], need[j])
            end = instant(promise[j] + request[j])
            count = occupy(times, levels, count, promise[j], end, need[j])
        due = FOREVER
        left = 0
        for q in range(queued):
            j = waiting[q]
            if promise[j] <= now:
                start[j] = now
                began[started] = j
                heapq.heappush(running, (instant(now + run[j]), started))
                started += 1
            else:
                due = min(due, promise[j])
                waiting[left] = j
                left += 1
        queued = left
