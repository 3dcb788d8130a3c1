"""The kernel of SD-Policy (D'Amico et al. 2019, Listings 1 and 2) over EASY on whole nodes.

The uncompiled policy: `apples.scheduling.policies.slowdown_driven`. Both search for mates with the functions of
`apples.scheduling.mates`.

One pass goes through the queue in order. A job starts on free nodes if EASY allows it. If not, and it is
malleable, the pass searches mates for it at once (Listing 1), before it examines the next job. A map of
reservations gives the wait without mates: the estimated ends of the running jobs and, in order, the reservations
of at most `depth` waiting jobs ahead of it.

Three shortcuts leave the result unchanged:

* jobs with equal nodes and request have one *shape*. A failed search for mates of a shape fails again until a
  value that it depends on changes; a successful search finds the same mates again until a job starts or the pass
  ends;
* no step of the map rises while reservations are entered, so the search for a job's place begins at that of the
  last job of its shape. Consecutive jobs of one shape are entered together, as many as fit at that place;
* if no job ended and none started since the last pass, the jobs that waited still cannot start: the ends, the
  penalties and the map are unchanged. The pass examines only jobs submitted since, and continues the map.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from apples.scheduling.instants import HALF_INSTANT
from apples.scheduling.loops.compiled import (
    FOREVER,
    Numbers,
    compiled,
    inner,
    instant,
    open_gap,
)
from apples.scheduling.mates import best_group, best_pair
from apples.simulation.kernels.backfill import INSTANT, position_of, shadow_of
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

AT_ONCE = 16  # searches on the map between two checks of the place of the examined job


@inner
def draw_map(m: SharingState, now: float, times: Numbers, levels: Numbers) -> int:
    """Write the free nodes over time by the estimated ends; return the number of steps."""
    times[0] = now
    levels[0] = m.tally[FREE]
    count = 1
    for k in range(m.tally[RELEASES]):
        if m.release[k] <= times[count - 1]:
            levels[count - 1] += m.width[k]
        else:
            times[count] = m.release[k]
            levels[count] = levels[count - 1] + m.width[k]
            count += 1
    return count


@inner
def advance_map(times: Numbers, levels: Numbers, count: int, now: float) -> int:
    """Remove the past steps of the map; return the number of steps."""
    past = 0
    while past + 1 < count and times[past + 1] <= now:
        past += 1
    if past > 0:
        for k in range(past, count):
            times[k - past] = times[k]
            levels[k - past] = levels[k]
    times[0] = now
    return count - past


@inner
def earliest_step(
    times: Numbers, levels: Numbers, count: int, after: float, seconds: float, units: int
) -> tuple[int, int]:
    """Return the first step from `after` on at which the units are free for `seconds`, and the least level.

    `after` is the start of a step. The least level is that of the interval: further equal jobs may fit there.
    """
    k = position_of(times, count, after)
    while True:
        while levels[k] < units:  # the last step has the whole machine
            k += 1
        end = times[k] + seconds - HALF_INSTANT
        least = levels[k]
        i = k + 1
        while i < count and times[i] < end and levels[i] >= units:
            least = min(least, levels[i])
            i += 1
        if i == count or times[i] >= end:
            return k, least
        k = i + 1


@inner
def reserve(
    times: Numbers, levels: Numbers, count: int, first: int, seconds: float, units: int
) -> int:
    """Reserve units for `seconds` from a step on; return the new number of steps."""
    end = instant(times[first] + seconds)
    k = first + position_of(times[first:], count - first, end)
    if k == count or times[k] > end:
        open_gap(times, k, count)
        open_gap(levels, k, count)
        times[k] = end
        levels[k] = levels[k - 1]
        count += 1
    for i in range(first, k):
        levels[i] -= units
    return count


pair: Callable[..., Any] = inner(best_pair)
group: Callable[..., Any] = inner(best_group)


@inner
def is_stale(m: SharingState, time: float, j: int) -> bool:
    """Whether an end in the heap is obsolete after a change of rate, or already processed."""
    return bool(m.work[j] < 0 or m.end[j] != time)


@inner
def average_slowdown(m: SharingState, active: Numbers, count: int) -> float:
    """Return the mean estimated slowdown of the running jobs (DynAVGSD), 0 if none runs."""
    total = 0.0
    for k in range(count):
        j = active[k]
        total += instant(m.limit[j] - m.submit[j]) / m.request[j]
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
    shadow: float,
    spare: int,
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
    """Choose the mates for a job from the pool (Listing 2); return their number, 0 for none.

    The mates hold at most `spare` nodes beyond the shadow, so that they do not delay the first job.
    """
    request = m.request[j]
    ends = instant(now + instant(request / share))
    count = 0
    for k in range(m.tally[POOL]):
        i = m.pool[k]
        # A mate must last until the newcomer's estimated end, including its own extension.
        if m.need[i] > wanted or m.limit[i] + request < ends - HALF_INSTANT:
            continue
        if most == 1 and m.need[i] != wanted:
            continue
        if m.limit[i] <= shadow < m.limit[i] + request and m.need[i] > spare:
            continue
        # Equation 4: the mate's estimated slowdown, including the extension by the newcomer.
        wait = instant(m.start[i] - m.submit[i])
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
    late = 0
    for k in range(found):
        i = mates[chosen[k]]
        chosen[k] = i
        if m.limit[i] <= shadow < m.limit[i] + request:
            late += m.need[i]
    if late > 0:
        if ends > shadow:
            late += m.need[j] - wanted
        if late > spare:
            return 0
    return int(found)


@inner
def choose_mates(
    m: SharingState,
    j: int,
    now: float,
    share: float,
    cut: float,
    most: int,
    mix: bool,
    shadow: float,
    kept: float,
    spare: int,
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
    """Choose mates for all nodes of a job, or for the rest beside free nodes; `kept` is the shadow to respect."""
    found = look_for_mates(
        m, j, now, share, cut, most, m.need[j], kept, spare,
        nodes, penalties, mates, first, second, stamp, cost, last, chosen,
    )  # fmt: skip
    if found == 0 and mix:
        # Use as many free nodes as the head's reservation leaves, or fewer if no mates match.
        room = min(m.tally[FREE], m.need[j] - 1)
        if now + instant(m.request[j] / share) > shadow:
            room = min(room, spare)
        while found == 0 and room > 0:
            found = look_for_mates(
                m, j, now, share, cut, most, m.need[j] - room, kept, spare,
                nodes, penalties, mates, first, second, stamp, cost, last, chosen,
            )  # fmt: skip
            room -= 1
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
    protect: bool,
    shape: Numbers,
    refused: Numbers,
    able: Numbers,
    place: Numbers,
    placed: Numbers,
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
    """Run all jobs and leave the schedule in `m`; return the occupied node-seconds and the changes.

    Parameters
    ----------
    share
        Fraction of a mate's node that its guest gets (SharingFactor in whole cores).
    max_slowdown
        Cut-off of a mate's penalty; negative: the average slowdown of the running jobs.
    most
        Maximum number of mates of a guest.
    guard
        Whether a job shares nodes only if that ends it sooner than waiting (Listing 1).
    mix
        Whether free nodes may complete the mates' nodes.
    worst
        Whether run times follow equation 6 instead of equation 5.
    depth
        Number of waiting jobs, from the head, that may look for mates.
    protect
        Whether the head keeps its reservation.
    shape
        By job: number of its shape (nodes and request).
    refused, able, place, placed
        Work space, two entries for each shape (without and with a reservation of the head): `version` of its last
        failed search, `moment` of a successful search, place of its last job on the map, and number of that map.
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
    settled = False  # no job ended or started since the last pass or in it
    blocked = False  # the head, the first waiting job, has its reservation
    shadow = FOREVER
    spare = 0
    steps = 0  # steps of the map; 0: not built yet
    mapped = 0
    drawn = 0
    # Jobs of one shape at one step of the map that are not entered yet, and the number that fits there.
    alike = -1
    first_step = 0
    many = 0
    room = 0
    # A moment ends with every start. A version counts changes of the values that a failed search depends on, by
    # `blocked`: joins of the pool, the head's reservation, the cut-off and, if they are used, the free nodes.
    moment = 0
    versions = 0
    version = [0, 0]
    joined = [-1, -1]
    shadows = [0.0, 0.0]
    spares = [0, 0]
    cuts = [0.0, 0.0]
    frees = [0, 0]
    while arrived < jobs or m.tally[RUNNING] > 0:
        while len(events) > 0 and is_stale(m, events[0][0], m.started[events[0][1]]):
            heapq.heappop(events)
        # Stage 1, the time of the next submission or the next valid end.
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
                settled = False
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
        # Stage 3, one pass over the queue (Listing 1), or over its new jobs.
        left = 0
        if settled:
            left = queued - (arrived - first_new)
            if steps > 0:
                if many > 0:
                    i = waiting[mapped - 1]
                    steps = reserve(
                        times, levels, steps, first_step, m.request[i], m.need[i] * many
                    )
                alike = -1
                many = 0
                steps = advance_map(times, levels, steps, now)
        else:
            blocked = False
            shadow = FOREVER
            spare = 0
            steps = 0
        settled = True
        moment += 1
        for q in range(left, queued):
            j = waiting[q]
            fits = m.need[j] <= m.tally[FREE]
            if fits and (not blocked or m.need[j] <= spare or now + m.request[j] <= shadow):
                start_static(m, events, log, j, now, run[j])
                if blocked and now + m.request[j] > shadow:
                    spare -= m.need[j]
                active[alive] = j
                alive += 1
                steps = 0
                moment += 1
                settled = False
                continue
            found = 0
            if m.malleable[j] and left < depth:
                b = 1 if blocked else 0
                kept = shadow if protect else FOREVER
                free = m.tally[FREE] if mix else 0
                if (
                    joined[b] != m.tally[JOINED]
                    or shadows[b] != shadow
                    or spares[b] != spare
                    or cuts[b] != cut
                    or frees[b] != free
                ):
                    joined[b] = m.tally[JOINED]
                    shadows[b] = shadow
                    spares[b] = spare
                    cuts[b] = cut
                    frees[b] = free
                    versions += 1
                    version[b] = versions
                at = 2 * shape[j] + b
                # Comparison of Listing 1: share nodes only if the job is estimated to end sooner than by waiting.
                # If a search is known to succeed, the comparison comes before the search.
                known = guard and able[at] == moment
                if refused[at] != version[b] and not known:
                    found = choose_mates(
                        m, j, now, share, cut, most, mix, shadow, kept, spare,
                        nodes, penalties, mates, first, second, stamp, cost, last, chosen,
                    )  # fmt: skip
                    if found == 0:
                        refused[at] = version[b]
                    else:
                        able[at] = moment
                if guard and (found > 0 or known):
                    # The first job that needs the map builds it; a start invalidates it.
                    if steps == 0:
                        steps = draw_map(m, now, times, levels)
                        mapped = 0
                        drawn += 1
                        alike = -1
                        many = 0
                    sooner = False
                    searches = 0
                    while mapped <= left:
                        i = waiting[mapped] if mapped < left else j
                        s = shape[i]
                        if s != alike or many == room:
                            # Once the job's own place is too late, the reservations that are not entered yet
                            # cannot change the answer.
                            if searches % AT_ONCE == 0 and mapped < left:
                                own = shape[j]
                                after = now
                                if placed[own] == drawn and place[own] > now:
                                    after = place[own]
                                step, _ = earliest_step(
                                    times, levels, steps, after, m.request[j], m.need[j]
                                )
                                place[own] = times[step]
                                placed[own] = drawn
                                if (
                                    times[step] + m.request[j]
                                    > now + instant(m.request[j] / share) + HALF_INSTANT
                                ):
                                    sooner = True
                                    break
                            searches += 1
                            if many > 0:
                                i = waiting[mapped - 1]
                                steps = reserve(
                                    times,
                                    levels,
                                    steps,
                                    first_step,
                                    m.request[i],
                                    m.need[i] * many,
                                )
                                i = waiting[mapped] if mapped < left else j
                            after = now
                            if placed[s] == drawn and place[s] > now:
                                after = place[s]
                            first_step, room = earliest_step(
                                times, levels, steps, after, m.request[i], m.need[i]
                            )
                            room //= m.need[i]
                            place[s] = times[first_step]
                            placed[s] = drawn
                            alike = s
                            many = 0
                        if mapped == left:
                            break
                        many += 1
                        mapped += 1
                    if not sooner and (
                        place[shape[j]] + m.request[j]
                        <= now + instant(m.request[j] / share) + HALF_INSTANT
                    ):
                        found = 0
                    elif known:
                        found = choose_mates(
                            m, j, now, share, cut, most, mix, shadow, kept, spare,
                            nodes, penalties, mates, first, second, stamp, cost, last, chosen,
                        )  # fmt: skip
            if found > 0:
                start_shared(m, events, log, j, now, run[j], chosen, found, most, share, worst)
                active[alive] = j
                alive += 1
                steps = 0
                moment += 1
                settled = False
                if blocked:
                    shadow, spare = shadow_of(
                        m.release,
                        m.width,
                        m.tally[RELEASES],
                        0,
                        m.need[waiting[0]] - m.tally[FREE],
                    )
                continue
            waiting[left] = j
            left += 1
            if not blocked:
                blocked = True
                shadow, spare = shadow_of(
                    m.release, m.width, m.tally[RELEASES], 0, m.need[j] - m.tally[FREE]
                )
        queued = left
    return held, log
