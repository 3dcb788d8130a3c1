"""The kernel of FCFS, SJF, first-fit and EASY (Lifka 1995): one event loop over arrays.

The uncompiled policies: `apples.scheduling.policies.rigid` and `apples.scheduling.policies.easy`.

Three shortcuts leave the result unchanged:

* the waiting jobs are the leaves of a segment tree in the order of the queue. Every node holds the fewest
  processors and the shortest request below it, so the search skips jobs that cannot start together. (The two
  minima may belong to different jobs: the search may enter a subtree in vain but misses none);
* if no job ended since the last pass, only jobs submitted since then can start, and the kernel tests them against
  the shadow time and the spare processors of that pass;
* the estimated ends of running jobs are kept sorted, the real ends in a heap.

A job's *rank* is its position in the order of the queue, its number its position in the workload; under FCFS the
two are equal. The *head* is the first job that does not fit. The *shadow* is the instant of its estimated start,
stored as the end of the instant (`HALF_INSTANT`), so that sums of times can be compared with it. *Spare*
processors are those left over then.
"""

from __future__ import annotations

import heapq

from apples.scheduling.instants import HALF_INSTANT
from apples.scheduling.loops.compiled import (
    FOREVER,
    Numbers,
    close_gap,
    compiled,
    inner,
    instant,
    open_gap,
)

HEAD_ONLY, FIRST_FIT, EASY = 0, 1, 2
INSTANT, EVENT, PREDICTSIM = 0, 1, 2


@compiled
def plant(fewest: Numbers, shortest: Numbers, leaf: int, processors: int, seconds: float) -> None:
    """Write a waiting job into its leaf and the minima of its ancestors; `fewest[0]` processors remove it."""
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
    """Return the first rank from `leaf` on of a job that may start now, -1 if none.

    A job may start if it fits into the free processors and either ends by the shadow or needs no more than the
    spare processors.
    """
    # Descend to the left child if a job below may start. Otherwise continue with the next subtree on the right: up
    # while the node is a right child, then to its sibling.
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
    """Return the first position with an estimated end that is not before `end`."""
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if ends[middle] < end:
            low = middle + 1
        else:
            high = middle
    return low


@inner
def enter_end(ends: Numbers, widths: Numbers, count: int, end: float, width: int) -> None:
    """Insert an estimated end into the `count` sorted ends, and the processors that it frees into `widths`."""
    k = position_of(ends, count, end)
    open_gap(ends, k, count)
    open_gap(widths, k, count)
    ends[k] = end
    widths[k] = width


@inner
def drop_end(ends: Numbers, widths: Numbers, count: int, end: float, width: int) -> None:
    """Remove an entry; any of several equal entries."""
    k = position_of(ends, count, end)
    while widths[k] != width:
        k += 1
    close_gap(ends, k, count)
    close_gap(widths, k, count)


@inner
def shadow_of(
    ends: Numbers, widths: Numbers, count: int, first: int, short: int
) -> tuple[float, int]:
    """Return the time at which `short` more processors are free, from the end `first` on, and the surplus.

    The time is the end of the instant, since all releases of the instant count.
    """
    k = first
    shadow = FOREVER
    while short > 0 and k < count:
        shadow = ends[k]
        while k < count and ends[k] == shadow:
            short -= widths[k]
            k += 1
    return shadow + HALF_INSTANT, -short


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
        By job, in order of submission: seconds, seconds, units of the machine, seconds.
    rank, job_at
        The order of the queue and its inverse.
    depth
        Number of waiting jobs after the head that EASY examines; -1: all.
    ties
        INSTANT: all events of an instant, then one pass. EVENT: one pass for each event, submissions first.
        PREDICTSIM: as EVENT, and a job counts as gone from its estimated end on.
    fewest, shortest, size
        Work space: the tree (2 * size entries; an empty `fewest` is filled with a number above any capacity).
    ends, widths, began
        Work space. `ends`, `widths`: one entry for each job that may run at the same time; `began`: one for each
        job.
    """
    jobs = len(submit)
    many = int(fewest[0])
    fcfs = True
    for j in range(jobs):
        if rank[j] != j:
            fcfs = False
            break
    running = [(0.0, 0)]
    running.pop()
    free = capacity
    released = 0  # used entries of `ends` and `widths`, sorted by estimated end
    arrived = 0  # jobs submitted so far
    started = 0  # jobs started so far; their order in `began` breaks ties of ends
    head = -1  # rank of the first job that did not fit in the last pass, -1: none
    shadow = FOREVER
    spare = many
    while arrived < jobs or len(running) > 0:
        # Stage 1, the time of the next end or submission; a submission comes first.
        now = FOREVER
        if len(running) > 0:
            now = running[0][0]
        if arrived < jobs and submit[arrived] <= now:
            now = submit[arrived]
        # Stage 2, the events: all submissions and ends of this instant, or only the first of them.
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
                    drop_end(ends, widths, released, instant(start[j] + request[j]), need[j])
                    released -= 1
                if ties != INSTANT:
                    break
        usable = free
        overdue = 0
        if ties == PREDICTSIM:
            while overdue < released and ends[overdue] <= now:
                usable += widths[overdue]
                overdue += 1
        # Stage 3, one pass. If no job ended, the jobs that waited still cannot start: fewer processors are free,
        # and the shadow is the same. So the pass examines only the new jobs. It examines all jobs if another order
        # or a depth may put a new job before an old job, or if ends are overdue.
        only_new = not ended and head >= 0 and fcfs and depth < 0 and ties != PREDICTSIM
        r = first_new if only_new else 0
        examined = 0
        if only_new and mode == HEAD_ONLY:
            continue
        if not only_new:
            head = -1
        while True:
            if mode == FIRST_FIT:
                r = next_start(fewest, shortest, size + r, size, usable, now, FOREVER, many)
                head = 0
            elif head < 0:
                # EASY, step 1: start jobs in order until one, the head, does not fit.
                r = next_start(fewest, shortest, size, size, many - 1, now, FOREVER, many - 1)
                if r >= 0 and need[job_at[r]] > usable:
                    head = r
                    if mode == HEAD_ONLY:
                        break
                    # Step 2: the shadow.
                    shadow, spare = shadow_of(
                        ends, widths, released, overdue, need[job_at[r]] - usable
                    )
                    r += 1
                    continue
            elif depth < 0:
                # Step 3: backfill the jobs after the head that end by the shadow or fit the spare processors.
                if r >= jobs:
                    break
                r = next_start(fewest, shortest, size + r, size, usable, now, shadow, spare)
            else:
                # Step 3 with a bounded depth: every waiting job counts, even if it cannot start.
                found = -1
                while examined < depth and r < jobs:
                    r = next_start(
                        fewest, shortest, size + r, size, many - 1, now, FOREVER, many - 1
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
            # Start the job of rank r: remove it from the tree and insert its end.
            j = job_at[r]
            plant(fewest, shortest, size + r, many, FOREVER)
            start[j] = now
            began[started] = j
            heapq.heappush(running, (instant(now + run[j]), started))
            started += 1
            free -= need[j]
            usable -= need[j]
            if mode == EASY:
                end = instant(now + request[j])
                enter_end(ends, widths, released, end, need[j])
                released += 1
                if head >= 0 and end > shadow:
                    spare -= need[j]
            r += 1
            if mode == FIRST_FIT and r >= jobs:
                break
