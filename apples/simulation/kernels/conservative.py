"""The kernel of conservative backfilling: every waiting job holds a reservation.

The uncompiled policy: `apples.scheduling.policies.conservative`.

A profile of free units over time (`apples.scheduling.loops.profile`) holds the running jobs up to their estimated
ends and the waiting jobs at their reservations. When a job ends before its estimate, the waiting jobs move up once
(`apples.scheduling.loops.compression`).
"""

from __future__ import annotations

import heapq

from apples.scheduling.loops.compiled import FOREVER, Numbers, compiled, instant
from apples.scheduling.loops.compression import Places, plan, release
from apples.scheduling.loops.profile import BlockedProfile, forget_before
from apples.simulation.kernels.backfill import EVENT


@compiled
def conservative(
    submit: Numbers,
    run: Numbers,
    need: Numbers,
    request: Numbers,
    shape: Numbers,
    ties: int,
    profile: BlockedProfile,
    places: Places,
    waiting: Numbers,
    promise: Numbers,
    began: Numbers,
    start: Numbers,
) -> None:
    """Write the start of every job into `start`; the arguments from `profile` to `began` are work space."""
    jobs = len(submit)
    running = [(0.0, 0)]
    running.pop()
    arrived = 0
    started = 0
    queued = 0
    due = FOREVER  # the earliest reservation
    while arrived < jobs or len(running) > 0 or queued > 0:
        # Stage 1, the time of the next reservation, end or submission.
        now = due
        if len(running) > 0 and running[0][0] < now:
            now = running[0][0]
        if arrived < jobs and submit[arrived] < now:
            now = submit[arrived]
        # Stage 2, the events. A job that ends before its estimate frees the rest of its interval.
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
                    release(places, profile, now, end, need[j])
                    early = True
                if ties == EVENT:
                    break
        forget_before(profile, now)
        # Stage 3, the policy's pass: promises move up, then new jobs get their reservations.
        if early or queued > first_new:
            first = plan(
                places,
                profile,
                now,
                waiting,
                first_new,
                queued,
                early,
                shape,
                need,
                request,
                promise,
            )
            due = first if early else min(due, first)
        # Stage 4: start the jobs with due reservations.
        if due > now:
            continue
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
