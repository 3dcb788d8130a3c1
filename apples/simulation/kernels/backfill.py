"""The fast core of FCFS, SJF, first-fit and EASY: one event loop over arrays.

What makes it fast, with the schedule unchanged:

* the waiting jobs hang in a tree ordered by priority that knows, for every subtree, the fewest
  processors and the shortest request in it, so that jobs that cannot start are skipped together;
* if nothing ended since the last pass, only jobs submitted since can start, and they are tested
  against the shadow and the spare processors of that pass;
* the estimated ends of running jobs are kept sorted, the real ends in a heap.
"""

from __future__ import annotations

import heapq

from apples.simulation.kernels.compiled import Numbers, close_gap, compiled, open_gap

HEAD_ONLY, FIRST_FIT, EASY = 0, 1, 2
INSTANT, EVENT, PREDICTSIM = 0, 1, 2
FOREVER = 1e300
MANY = 1 << 60


@compiled
def plant(fewest: Numbers, shortest: Numbers, leaf: int, processors: int, seconds: float) -> None:
    """Put a waiting job on its leaf (MANY processors: take it away) and correct its ancestors."""
    fewest[leaf] = processors
    shortest[leaf] = seconds
    node = leaf >> 1
    while node >= 1:
        left, right = 2 * node, 2 * node + 1
        few = min(fewest[left], fewest[right])
        short = min(shortest[left], shortest[right])
        if few == fewest[node] and short == shortest[node]:
            return
        fewest[node] = few
        shortest[node] = short
        node >>= 1


@compiled
def next_start(
    fewest: Numbers,
    shortest: Numbers,
    leaf: int,
    size: int,
    free: int,
    now: float,
    shadow: float,
    spare: int,
) -> int:
    """Return the first rank from `leaf` on whose job may start now, -1 if there is none.

    It may if it fits into the free processors and either ends by the shadow or needs no more
    than the spare processors.
    """
    node = leaf
    while True:
        few = fewest[node]
        if few <= free and (few <= spare or now + shortest[node] <= shadow):
            if node >= size:
                return node - size
            node = 2 * node
        else:
            while node & 1:
                node >>= 1
            if node == 0:
                return -1
            node += 1


@compiled
def position_of(ends: Numbers, count: int, end: float) -> int:
    """Return the first position whose estimated end is not before `end`."""
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if ends[middle] < end:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def backfill(
    submit: Numbers,
    run: Numbers,
    need: Numbers,
    request: Numbers,
    rank: Numbers,
    job_at: Numbers,
    capacity: int,
    mode: int,
    depth: int,
    ties: int,
    fewest: Numbers,
    shortest: Numbers,
    size: int,
    ends: Numbers,
    widths: Numbers,
    began: Numbers,
    start: Numbers,
) -> None:
    """Write the start of every job into `start`.

    Parameters
    ----------
    submit, run, need, request
        Per job, in order of submission: seconds, seconds, units of the machine, seconds.
    rank, job_at
        The order of the queue and its inverse.
    depth
        Waiting jobs behind the head that EASY examines; -1 all.
    ties
        INSTANT: all events of an instant, then one pass. EVENT: one pass an event, submissions
        first. PREDICTSIM: as EVENT, and a job whose estimated end has come counts as gone.
    fewest, shortest, size, ends, widths, began
        Work space: the tree (2 * size entries, empty), and one entry a job.
    """
    jobs = len(submit)
    fcfs = True
    for j in range(jobs):
        if rank[j] != j:
            fcfs = False
            break
    running = [(0.0, 0)]
    running.pop()
    free = capacity
    released = 0  # sorted estimated ends in use
    arrived = 0
    started = 0
    head = -1  # rank of the blocked head
    shadow = FOREVER
    spare = MANY
    while arrived < jobs or len(running) > 0:
        # The next instant, or the next event.
        now = FOREVER
        if len(running) > 0:
            now = running[0][0]
        if arrived < jobs and submit[arrived] <= now:
            now = submit[arrived]
        first_new = arrived
        ended = False
        if ties == INSTANT or (arrived < jobs and submit[arrived] <= now):
            while arrived < jobs and submit[arrived] <= now:
                plant(fewest, shortest, size + rank[arrived], need[arrived], request[arrived])
                arrived += 1
                if ties != INSTANT:
                    break
        if ties == INSTANT or first_new == arrived:
            while len(running) > 0 and running[0][0] <= now:
                j = began[heapq.heappop(running)[1]]
                free += need[j]
                ended = True
                if mode == EASY:
                    k = position_of(ends, released, start[j] + request[j])
                    while widths[k] != need[j]:
                        k += 1
                    close_gap(ends, k, released)
                    close_gap(widths, k, released)
                    released -= 1
                if ties != INSTANT:
                    break
        usable = free
        overdue = 0
        if ties == PREDICTSIM:
            while overdue < released and ends[overdue] <= now:
                usable += widths[overdue]
                overdue += 1
        # One pass.
        only_new = not ended and head >= 0 and fcfs and depth < 0 and ties != PREDICTSIM
        r = first_new if only_new else 0
        examined = 0
        if only_new and mode == HEAD_ONLY:
            continue
        if not only_new:
            head = -1
        while True:
            if mode == FIRST_FIT:
                r = next_start(fewest, shortest, size + r, size, usable, now, FOREVER, MANY)
                head = 0
            elif head < 0:
                r = next_start(fewest, shortest, size, size, MANY - 1, now, FOREVER, MANY - 1)
                if r >= 0 and need[job_at[r]] > usable:
                    head = r
                    if mode == HEAD_ONLY:
                        break
                    short = need[job_at[r]] - usable
                    k = overdue
                    while short > 0:
                        shadow = ends[k]
                        while k < released and ends[k] == shadow:
                            short -= widths[k]
                            k += 1
                    spare = -short
                    r += 1
                    continue
            elif depth < 0:
                if r >= jobs:
                    break
                r = next_start(fewest, shortest, size + r, size, usable, now, shadow, spare)
            else:
                # Bounded depth: every waiting job counts, also those that cannot start.
                found = -1
                while examined < depth and r < jobs:
                    r = next_start(
                        fewest, shortest, size + r, size, MANY - 1, now, FOREVER, MANY - 1
                    )
                    if r < 0:
                        break
                    examined += 1
                    j = job_at[r]
                    if need[j] <= usable and (need[j] <= spare or now + request[j] <= shadow):
                        found = r
                        break
                    r += 1
                r = found
            if r < 0:
                break
            j = job_at[r]
            plant(fewest, shortest, size + r, MANY, FOREVER)
            start[j] = now
            began[started] = j
            heapq.heappush(running, (now + run[j], started))
            started += 1
            free -= need[j]
            usable -= need[j]
            if mode == EASY:
                end = now + request[j]
                k = position_of(ends, released, end)
                open_gap(ends, k, released)
                open_gap(widths, k, released)
                ends[k] = end
                widths[k] = need[j]
                released += 1
                if head >= 0 and end > shadow:
                    spare -= need[j]
            r += 1
            if mode == FIRST_FIT and r >= jobs:
                break
