"""The kernel of equipartition (Kale, Kumar and DeSouza 2002, section 4.1).

The same policy as a value: `apples.scheduling.policies.equipartition`; both share the machine by the very
same function, `apples.topology.distribute.divide`.

A job's rate is the speed-up on what it has over the speed-up on what it asked for; work is kept in
seconds on what it asked for, and is brought up to date only when the job is resized.
"""

from __future__ import annotations

from apples.scheduling.loops.compiled import FOREVER, Numbers, compiled, instant
from apples.simulation.kernels.backfill import INSTANT
from apples.topology.distribute import divide

fill = compiled(divide)


@compiled
def equipartition(
    submit: Numbers,
    run: Numbers,
    need: Numbers,
    minimum: Numbers,
    maximum: Numbers,
    speedup: Numbers,
    capacity: int,
    ties: int,
    shrink_seconds: float,
    expand_seconds: float,
    move_seconds: float,
    record: bool,
    waiting: Numbers,
    active: Numbers,
    least: Numbers,
    most: Numbers,
    shares: Numbers,
    units: Numbers,
    work: Numbers,
    since: Numbers,
    rate: Numbers,
    start: Numbers,
    end: Numbers,
    resizes: Numbers,
) -> tuple[float, list[tuple[float, int, int]]]:
    """Write start, end and number of resizes of every job; return the unit-seconds held.

    Parameters
    ----------
    speedup
        By units, `capacity` + 1 entries.
    shrink_seconds, expand_seconds, move_seconds
        A resize stalls the job for the first or second, and for the third times the part of its
        data that moves, |new - old| / max(new, old).
    record
        Whether to return (time, job, units) for every change, else an empty list.
    waiting, active, ...
        Work space, one entry a job.
    """
    jobs = len(submit)
    arrived = 0
    queued = 0
    count = 0
    promised = 0  # sum of the minimums of running jobs
    held = 0.0
    in_use = 0
    before = submit[0]
    changes = [(0.0, 0, 0)]
    changes.pop()
    while arrived < jobs or count > 0:
        # Stage 1, the time. There are few running jobs and every pass changes most of their ends: the
        # next end is searched for, not kept in a heap.
        now = FOREVER
        for i in range(count):
            now = min(now, end[active[i]])
        if arrived < jobs and submit[arrived] <= now:
            now = submit[arrived]
        held += in_use * (now - before)
        before = now
        # Stage 2, the events: submissions, then ends.
        first_new = queued
        while arrived < jobs and submit[arrived] <= now:
            waiting[queued] = arrived
            queued += 1
            arrived += 1
            if ties != INSTANT:
                break
        ended = False
        if ties == INSTANT or first_new == queued:
            left = 0
            for i in range(count):
                j = active[i]
                if end[j] <= now and (ties == INSTANT or not ended):
                    ended = True
                    promised -= minimum[j]
                    if record:
                        changes.append((now, j, 0))
                else:
                    active[left] = j
                    left += 1
            count = left
        # Stage 3, admission: a job is admitted if its minimum fits beside the minimums of all admitted
        # jobs, in the order of the queue. If no job ended, those refused before are refused again.
        left = 0 if ended else first_new
        admitted = False
        for q in range(left, queued):
            j = waiting[q]
            if promised + minimum[j] <= capacity:
                promised += minimum[j]
                active[count] = j
                count += 1
                start[j] = now
                units[j] = 0
                work[j] = run[j]
                admitted = True
            else:
                waiting[left] = j
                left += 1
        queued = left
        if not (ended or admitted):
            continue
        # Stage 4, division: everybody's minimum, the rest in equal parts under each maximum; the jobs
        # whose share changed stall and go on at their new rate.
        for i in range(count):
            least[i] = minimum[active[i]]
            most[i] = maximum[active[i]]
        fill(capacity, least, most, count, shares)
        in_use = 0
        for i in range(count):
            j = active[i]
            new = shares[i]
            in_use += new
            old = units[j]
            if new == old:
                continue
            stall = 0.0
            if old > 0:
                work[j] = max(0.0, work[j] - instant(max(0.0, now - since[j])) * rate[j])
                moved = abs(new - old) / max(new, old)
                stall = (shrink_seconds if new < old else expand_seconds) + move_seconds * moved
                resizes[j] += 1
            units[j] = new
            since[j] = instant(now + stall)
            rate[j] = speedup[new] / speedup[need[j]]
            end[j] = instant(since[j] + instant(work[j] / rate[j]))
            if record:
                changes.append((now, j, new))
    return held, changes
