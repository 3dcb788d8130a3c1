"""The kernel of SD-Policy (D'Amico et al. 2019, Listings 1 and 2) over EASY on whole nodes.

The same policy as a value: `apples.scheduling.policies.slowdown_driven`; both search for mates by the very
same functions, `apples.scheduling.mates`.

One pass goes through the queue in order. A job starts on free nodes if EASY allows it; if not, and
it is malleable, mates are looked for at once (Listing 1), before the next job has its turn. The
wait it would have otherwise is read from a map of reservations: the estimated ends of the running
jobs and, in order, the reservations of the waiting jobs ahead of it, `depth` of them at most.
"""

from __future__ import annotations

import heapq

from apples.scheduling.mates import best_group, best_pair
from apples.simulation.kernels.backfill import FOREVER, INSTANT
from apples.simulation.kernels.compiled import Numbers, compiled, inner, open_gap
from apples.simulation.kernels.conservative import earliest
from apples.simulation.kernels.sharing import (
    FREE,
    JOINED,
    POOL,
    RELEASES,
    RUNNING,
    SharingState,
    finish,
    start_shared,
    start_static,
)


@inner
def draw_map(m: SharingState, now: float, times: Numbers, levels: Numbers) -> int:
    """Write the free nodes over time that the estimated ends give; return the number of steps."""
    k = 0
    while times[k] < FOREVER:
        times[k] = FOREVER
        k += 1
    times[0] = now
    levels[0] = m.tally[FREE]
    count = 1
    for k in range(m.tally[RELEASES]):
        if m.release[k] == times[count - 1]:
            levels[count - 1] += m.width[k]
        else:
            times[count] = m.release[k]
            levels[count] = levels[count - 1] + m.width[k]
            count += 1
    return count


@inner
def reserve(times: Numbers, levels: Numbers, count: int, seconds: float, units: int) -> int:
    """Reserve the earliest time on the map for a job; return the new number of steps."""
    first = -1
    k = 0
    while k < count:
        if levels[k] < units:
            first = -1
        elif first < 0:
            first = k
        if first >= 0 and (k + 1 == count or times[k + 1] >= times[first] + seconds):
            break
        k += 1
    end = times[first] + seconds
    k += 1
    if k == count or times[k] > end:
        open_gap(times, k, count)
        open_gap(levels, k, count)
        times[k] = end
        levels[k] = levels[k - 1]
        count += 1
    for i in range(first, k):
        levels[i] -= units
    return count


pair = inner(best_pair)
group = inner(best_group)


@inner
def shadow_of(m: SharingState, wanted: int) -> tuple[float, int]:
    """Return when so many nodes are estimated to be free, and how many more are free then."""
    short = wanted - m.tally[FREE]
    k = 0
    shadow = FOREVER
    while short > 0 and k < m.tally[RELEASES]:
        shadow = m.release[k]
        while k < m.tally[RELEASES] and m.release[k] == shadow:
            short -= m.width[k]
            k += 1
    return shadow, -short


@inner
def is_stale(m: SharingState, time: float, j: int) -> bool:
    """Whether an end in the heap was overtaken by a change of rate, or is already past."""
    return bool(m.work[j] < 0 or m.end[j] != time)


@inner
def average_slowdown(m: SharingState, active: Numbers, count: int) -> float:
    """Return the mean estimated slowdown of the running jobs (DynAVGSD), 0 if none runs."""
    total = 0.0
    for k in range(count):
        j = active[k]
        total += (m.limit[j] - m.submit[j]) / m.request[j]
    return total / count if count > 0 else 0.0


@inner
def look_for_mates(
    m: SharingState,
    j: int,
    now: float,
    share: float,
    cut: float,
    most: int,
    wanted: int,
    nodes: Numbers,
    penalties: Numbers,
    mates: Numbers,
    first: Numbers,
    second: Numbers,
    stamp: Numbers,
    cost: Numbers,
    last: Numbers,
    chosen: Numbers,
) -> int:
    """Choose the mates for a job out of the pool (Listing 2); return how many, 0 for none."""
    request = m.request[j]
    ends = now + request / share
    count = 0
    for k in range(m.tally[POOL]):
        i = m.pool[k]
        # A mate must last until the newcomer's estimated end, its own extension included.
        if m.need[i] > wanted or m.limit[i] + request < ends:
            continue
        if most == 1 and m.need[i] != wanted:
            continue
        # Equation 4: the mate's estimated slowdown, the newcomer's extension included.
        wait = m.start[i] - m.submit[i]
        penalty = (wait + (m.delay[i] + request) + m.request[i]) / m.request[i]
        if penalty < cut:
            nodes[count] = m.need[i]
            penalties[count] = penalty
            mates[count] = i
            count += 1
    if count == 0:
        return 0
    if most <= 2:
        stamp[0] += 1
        found = pair(nodes, penalties, count, wanted, first, second, stamp, stamp[0], chosen)
    else:
        found = group(nodes, penalties, count, wanted, most, cost, last, chosen)
    for k in range(found):
        chosen[k] = mates[chosen[k]]
    return found


@compiled
def slowdown_driven(
    m: SharingState,
    run: Numbers,
    ties: int,
    share: float,
    max_slowdown: float,
    most: int,
    guard: bool,
    mix: bool,
    worst: bool,
    depth: int,
    waiting: Numbers,
    active: Numbers,
    times: Numbers,
    levels: Numbers,
    nodes: Numbers,
    penalties: Numbers,
    mates: Numbers,
    first: Numbers,
    second: Numbers,
    stamp: Numbers,
    cost: Numbers,
    last: Numbers,
    chosen: Numbers,
) -> tuple[float, list[tuple[float, int, float]]]:
    """Run all jobs; the schedule is left in `m`; return node-seconds occupied and changes.

    Parameters
    ----------
    share
        Part of a mate's node that its guest gets (SharingFactor in whole cores).
    max_slowdown
        Cut-off of a mate's penalty; negative: the average slowdown of the running jobs.
    most
        Mates a guest may have.
    guard
        Whether the static end must lie after the malleable one (Listing 1).
    mix
        Whether free nodes may make up what the mates' nodes leave missing.
    worst
        Run times by equation 6 instead of equation 5.
    depth
        Waiting jobs, from the head, that may look for mates.
    """
    jobs = len(run)
    events = [(0.0, 0)]
    events.pop()
    log = [(0.0, 0, 0.0)]
    log.pop()
    arrived = 0
    queued = 0
    alive = 0
    held = 0.0
    before = m.submit[0]
    nodes_in_all = m.tally[FREE]
    while arrived < jobs or m.tally[RUNNING] > 0:
        while len(events) > 0 and is_stale(m, events[0][0], m.started[events[0][1]]):
            heapq.heappop(events)
        # Stage 1, the time: of the next submission or the next end that was not overtaken.
        now = FOREVER
        if len(events) > 0:
            now = events[0][0]
        if arrived < jobs and m.submit[arrived] <= now:
            now = m.submit[arrived]
        held += (nodes_in_all - m.tally[FREE]) * (now - before)
        before = now
        # Stage 2, the events: submissions, then ends in the order of the starts.
        first_new = arrived
        while arrived < jobs and m.submit[arrived] <= now:
            waiting[queued] = arrived
            queued += 1
            arrived += 1
            if ties != INSTANT:
                break
        if ties == INSTANT or first_new == arrived:
            while len(events) > 0 and events[0][0] <= now:
                at, turn = heapq.heappop(events)
                j = m.started[turn]
                if is_stale(m, at, j):
                    continue
                finish(m, events, log, j, at, most, share, worst)
                m.end[j] = at
                m.work[j] = -1.0
                if ties != INSTANT:
                    break
        if queued == 0:
            continue
        cut = max_slowdown
        if cut < 0:
            left = 0
            for k in range(alive):
                if m.work[active[k]] >= 0:
                    active[left] = active[k]
                    left += 1
            alive = left
            cut = average_slowdown(m, active, alive)
        # Stage 3, one pass over the queue (Listing 1). `blocked`: the head has its reservation.
        blocked = False
        shadow = FOREVER
        spare = 0
        steps = 0  # of the map; 0: to be drawn
        mapped = 0
        left = 0
        for q in range(queued):
            j = waiting[q]
            fits = m.need[j] <= m.tally[FREE]
            if fits and (not blocked or m.need[j] <= spare or now + m.request[j] <= shadow):
                start_static(m, events, log, j, now, run[j])
                if blocked and now + m.request[j] > shadow:
                    spare -= m.need[j]
                active[alive] = j
                alive += 1
                steps = 0
                continue
            found = 0
            # Without a new candidate a search that failed would fail again: ends come nearer, the
            # penalties stay.
            again = mix or max_slowdown < 0 or m.refused[j] != m.tally[JOINED]
            if m.malleable[j] and left < depth and again:
                found = look_for_mates(
                    m, j, now, share, cut, most, m.need[j],
                    nodes, penalties, mates, first, second, stamp, cost, last, chosen,
                )  # fmt: skip
                if found == 0 and mix:
                    # As many free nodes as the head's reservation leaves, and fewer if need be.
                    room = min(m.tally[FREE], m.need[j] - 1)
                    if blocked and now + m.request[j] / share > shadow:
                        room = min(room, spare)
                    while found == 0 and room > 0:
                        found = look_for_mates(
                            m, j, now, share, cut, most, m.need[j] - room,
                            nodes, penalties, mates, first, second, stamp, cost, last, chosen,
                        )  # fmt: skip
                        room -= 1
                if found == 0:
                    m.refused[j] = m.tally[JOINED]
            # Listing 1, line of the comparison: share nodes only if the job is estimated to end sooner
            # than by waiting. The map is drawn once a pass and again after a start has changed it; the
            # reservations of the jobs ahead are entered when the first job behind them asks.
            if found > 0 and guard:
                if steps == 0:
                    steps = draw_map(m, now, times, levels)
                    mapped = 0
                while mapped < left:
                    i = waiting[mapped]
                    steps = reserve(times, levels, steps, m.request[i], m.need[i])
                    mapped += 1
                at = earliest(times, levels, steps, now, m.request[j], m.need[j])
                if at + m.request[j] <= now + m.request[j] / share:
                    found = 0
            if found > 0:
                start_shared(m, events, log, j, now, run[j], chosen, found, most, share, worst)
                active[alive] = j
                alive += 1
                steps = 0
                if blocked:
                    shadow, spare = shadow_of(m, m.need[waiting[0]])
                continue
            waiting[left] = j
            left += 1
            if not blocked:
                blocked = True
                shadow, spare = shadow_of(m, m.need[j])
        queued = left
    return held, log
