"""The kernel of SD-Policy (D'Amico et al. 2019, Listings 1 and 2) over EASY on whole nodes.

The same policy as a value: `apples.scheduling.policies.slowdown_driven`; both search for mates by the very
same functions, `apples.scheduling.mates`.

One pass goes through the queue in order. A job starts on free nodes if EASY allows it; if not, and
it is malleable, mates are looked for at once (Listing 1), before the next job has its turn. The
wait it would have otherwise is read from a map of reservations: the estimated ends of the running
jobs and, in order, the reservations of the waiting jobs ahead of it, `depth` of them at most.

What makes it fast, with the result unchanged:

* jobs of the same nodes and request are of one *shape*. A search for mates that failed for a shape fails
  again until something it depends on has changed, and one that found mates finds them again in its instant;
* no step of the map rises while reservations are entered, so a job's place is looked for from that of the
  last job of its shape on; jobs of one shape that follow one another are entered together, as many as fit
  side by side at that place;
* if no job ended and none started since the last pass, the jobs that waited still cannot start: ends come no
  nearer, the penalties stay, and the map is the same. Only jobs submitted since are looked at, and the map
  goes on from where it was.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from apples.scheduling.instants import HALF_INSTANT
from apples.scheduling.loops.compiled import (
    FOREVER,
    Numbers,
    compiled,
    inner,
    instant,
    integers,
    numbers,
    open_gap,
    zeros,
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

AT_ONCE = 16  # searches on the map between two looks at the place of the job that asked for it
#: Indices of ReservationMap.tally.
STEPS, DRAWN, ENTERED, ALIKE, FIRST, ROOM, MANY = range(7)


class SharingOptions(NamedTuple):
    """The options of the policy, as its kernel takes them.

    Attributes
    ----------
    share
        Part of a mate's node that its guest gets (SharingFactor in whole cores).
    max_slowdown
        Cut-off of a mate's penalty; negative: the average slowdown of the running jobs.
    mates
        How many a guest may have.
    guard
        Whether the static end must lie after the malleable one (Listing 1).
    free_nodes
        Whether free nodes may make up what the mates' nodes leave missing.
    worst
        Run times by equation 6 instead of equation 5.
    depth
        Waiting jobs, from the head, that may look for mates.
    protect
        Whether the head keeps its reservation.
    """

    share: float
    max_slowdown: float
    mates: int
    guard: bool
    free_nodes: bool
    worst: bool
    depth: int
    protect: bool


class MateSearch(NamedTuple):
    """What searches for mates write to: the candidates, the tables of `mates`, those chosen; what failed.

    Attributes
    ----------
    nodes, penalties, candidates
        Of each candidate.
    first, second, stamp, cost, last
        Work space of `best_pair` and `best_group`.
    chosen
        The mates found.
    refused, able
        Two entries a shape (without and with a reservation of the head): the `version` of its last search
        that failed, the moment of its last search that did not. A moment ends with every start.
    version, depends
        Without and with a reservation of the head: the number of the last version, and what it is one of,
        five entries each. A failed search fails again until one of them changes.
    """

    nodes: Numbers
    penalties: Numbers
    candidates: Numbers
    first: Numbers
    second: Numbers
    stamp: Numbers
    cost: Numbers
    last: Numbers
    chosen: Numbers
    refused: Numbers
    able: Numbers
    version: Numbers
    depends: Numbers


class ReservationMap(NamedTuple):
    """The map of reservations: free nodes over time if the waiting jobs so far entered start as planned.

    Jobs of one shape that follow one another are gathered, and entered together.

    Attributes
    ----------
    tally
        By the indices STEPS to MANY: steps, 0 if it is to be drawn; how often it was drawn; waiting jobs
        entered or gathered; shape of those gathered, the step at which they fit, how many fit there, how
        many they are.
    time, level
        When a step begins, and its free nodes; the last one lasts for ever.
    shape
        Per job: number of its nodes and request together.
    place, placed
        By shape: where a job of it came to lie, on which drawing.
    """

    tally: Numbers
    time: Numbers
    level: Numbers
    shape: Numbers
    place: Numbers
    placed: Numbers


def mate_search(
    jobs: int, shapes: int, widest: int, mates: int, cells: int, room: int
) -> MateSearch:
    """Return the work space for searches among so many jobs and nodes; `cells` and `room` of `best_group`."""
    return MateSearch(
        nodes=integers(jobs), penalties=zeros(jobs), candidates=integers(jobs),
        first=integers(widest), second=integers(widest), stamp=integers(widest), cost=zeros(cells),
        last=integers(room), chosen=integers(max(mates, 2)), refused=integers(2 * shapes),
        able=integers(2 * shapes), version=integers(3), depends=zeros(10),
    )  # fmt: skip


def reservation_map(shape: Numbers, shapes: int, steps: int) -> ReservationMap:
    """Return a map that is to be drawn, with room for so many steps."""
    return ReservationMap(
        integers(7), numbers(np.full(steps, FOREVER)), integers(steps), shape, zeros(shapes),
        integers(shapes),
    )  # fmt: skip


@inner
def draw_map(m: SharingState, r: ReservationMap, now: float) -> None:
    """Draw the free nodes over time that the estimated ends give."""
    r.time[0] = now
    r.level[0] = m.tally[FREE]
    count = 1
    for k in range(m.tally[RELEASES]):
        if m.release[k] <= r.time[count - 1]:
            r.level[count - 1] += m.width[k]
        else:
            r.time[count] = m.release[k]
            r.level[count] = r.level[count - 1] + m.width[k]
            count += 1
    r.tally[STEPS] = count
    r.tally[DRAWN] += 1
    r.tally[ENTERED] = 0
    r.tally[ALIKE] = -1
    r.tally[MANY] = 0


@inner
def advance_map(r: ReservationMap, now: float) -> None:
    """Let the map begin now."""
    count = r.tally[STEPS]
    past = 0
    while past + 1 < count and r.time[past + 1] <= now:
        past += 1
    if past > 0:
        for k in range(past, count):
            r.time[k - past] = r.time[k]
            r.level[k - past] = r.level[k]
    r.time[0] = now
    r.tally[STEPS] = count - past


@inner
def earliest_step(r: ReservationMap, after: float, seconds: float, units: int) -> tuple[int, int]:
    """Return the first step, from a time on at which one begins, where the units are free for so long.

    And the fewest that are free then: more jobs alike may fit there.
    """
    count = r.tally[STEPS]
    k = position_of(r.time, count, after)
    while True:
        while r.level[k] < units:  # the last step has the whole machine
            k += 1
        end = r.time[k] + seconds - HALF_INSTANT
        least = r.level[k]
        i = k + 1
        while i < count and r.time[i] < end and r.level[i] >= units:
            least = min(least, r.level[i])
            i += 1
        if i == count or r.time[i] >= end:
            return k, least
        k = i + 1


@inner
def place_of(m: SharingState, r: ReservationMap, j: int, now: float) -> tuple[int, int]:
    """Return at which step a job comes to lie, not before the last of its shape, and the fewest free there."""
    shape = r.shape[j]
    after = now
    if r.placed[shape] == r.tally[DRAWN] and r.place[shape] > now:
        after = r.place[shape]
    step, least = earliest_step(r, after, m.request[j], m.need[j])
    r.place[shape] = r.time[step]
    r.placed[shape] = r.tally[DRAWN]
    return step, least


@inner
def enter_gathered(m: SharingState, r: ReservationMap, waiting: Numbers) -> None:
    """Enter the jobs that were gathered."""
    if r.tally[MANY] > 0:
        first, count = r.tally[FIRST], r.tally[STEPS]
        j = waiting[r.tally[ENTERED] - 1]
        end = instant(r.time[first] + m.request[j])
        k = first + position_of(r.time[first:], count - first, end)
        if k == count or r.time[k] > end:
            open_gap(r.time, k, count)
            open_gap(r.level, k, count)
            r.time[k] = end
            r.level[k] = r.level[k - 1]
            r.tally[STEPS] += 1
        for i in range(first, k):
            r.level[i] -= m.need[j] * r.tally[MANY]
        r.tally[MANY] = 0


@inner
def ends_sooner_as_guest(
    m: SharingState,
    r: ReservationMap,
    waiting: Numbers,
    ahead: int,
    j: int,
    now: float,
    share: float,
) -> bool:
    """Return whether a job ends sooner as a guest from now on than by waiting behind so many jobs."""
    if r.tally[STEPS] == 0:
        draw_map(m, r, now)
    end = now + instant(m.request[j] / share) + HALF_INSTANT
    searches = 0
    while r.tally[ENTERED] <= ahead:
        i = waiting[r.tally[ENTERED]] if r.tally[ENTERED] < ahead else j
        if r.shape[i] != r.tally[ALIKE] or r.tally[MANY] == r.tally[ROOM]:
            # As soon as the job's own place is too late, the reservations that are not entered yet
            # cannot change the answer.
            if searches % AT_ONCE == 0 and r.tally[ENTERED] < ahead:
                step, _ = place_of(m, r, j, now)
                if r.time[step] + m.request[j] > end:
                    return True
            searches += 1
            enter_gathered(m, r, waiting)
            step, least = place_of(m, r, i, now)
            r.tally[FIRST] = step
            r.tally[ROOM] = least // m.need[i]
            r.tally[ALIKE] = r.shape[i]
        if r.tally[ENTERED] == ahead:
            break
        r.tally[MANY] += 1
        r.tally[ENTERED] += 1
    return bool(r.place[r.shape[j]] + m.request[j] > end)


pair = inner(best_pair)
group = inner(best_group)


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
        total += instant(m.limit[j] - m.submit[j]) / m.request[j]
    return total / count if count > 0 else 0.0


@inner
def look_for_mates(
    m: SharingState,
    s: MateSearch,
    j: int,
    now: float,
    share: float,
    cut: float,
    most: int,
    wanted: int,
    shadow: float,
    spare: int,
) -> int:
    """Choose the mates for a job out of the pool (Listing 2); return how many, 0 for none.

    No more nodes than are spare are held back beyond the shadow, so that the first job is not delayed.
    """
    request = m.request[j]
    ends = instant(now + instant(request / share))
    count = 0
    for k in range(m.tally[POOL]):
        i = m.pool[k]
        # A mate must last until the newcomer's estimated end, its own extension included.
        if m.need[i] > wanted or m.limit[i] + request < ends - HALF_INSTANT:
            continue
        if most == 1 and m.need[i] != wanted:
            continue
        if m.limit[i] <= shadow < m.limit[i] + request and m.need[i] > spare:
            continue
        # Equation 4: the mate's estimated slowdown, the newcomer's extension included.
        wait = instant(m.start[i] - m.submit[i])
        penalty = (wait + (m.delay[i] + request) + m.request[i]) / m.request[i]
        if penalty < cut:
            s.nodes[count] = m.need[i]
            s.penalties[count] = penalty
            s.candidates[count] = i
            count += 1
    if count == 0:
        return 0
    if most <= 2:
        s.stamp[0] += 1
        found = pair(
            s.nodes, s.penalties, count, wanted, s.first, s.second, s.stamp, s.stamp[0], s.chosen
        )
    else:
        found = group(s.nodes, s.penalties, count, wanted, most, s.cost, s.last, s.chosen)
    late = 0
    for k in range(found):
        i = s.candidates[s.chosen[k]]
        s.chosen[k] = i
        if m.limit[i] <= shadow < m.limit[i] + request:
            late += m.need[i]
    if late > 0:
        if ends > shadow:
            late += m.need[j] - wanted
        if late > spare:
            return 0
    return found


@inner
def choose_mates(
    m: SharingState,
    s: MateSearch,
    options: SharingOptions,
    j: int,
    now: float,
    cut: float,
    shadow: float,
    spare: int,
) -> int:
    """Choose mates, for all nodes of a job or beside free ones; return how many, 0 for none."""
    share, most = options.share, options.mates
    kept = shadow if options.protect else FOREVER
    found = look_for_mates(m, s, j, now, share, cut, most, m.need[j], kept, spare)
    if found == 0 and options.free_nodes:
        # As many free nodes as the head's reservation leaves, and fewer if need be.
        room = min(m.tally[FREE], m.need[j] - 1)
        if now + instant(m.request[j] / share) > shadow:
            room = min(room, spare)
        while found == 0 and room > 0:
            found = look_for_mates(m, s, j, now, share, cut, most, m.need[j] - room, kept, spare)
            room -= 1
    return found


@inner
def version_of(
    s: MateSearch, blocked: int, joined: int, shadow: float, spare: int, cut: float, free: int
) -> int:
    """Return the version of what a search depends on: another one if any of it has changed.

    That is when the pool was last joined, the head's reservation, the cut-off and, if they are used, the
    free nodes.
    """
    k = 5 * blocked
    if (
        s.depends[k] != joined
        or s.depends[k + 1] != shadow
        or s.depends[k + 2] != spare
        or s.depends[k + 3] != cut
        or s.depends[k + 4] != free
        or s.version[blocked] == 0
    ):
        s.depends[k] = joined
        s.depends[k + 1] = shadow
        s.depends[k + 2] = spare
        s.depends[k + 3] = cut
        s.depends[k + 4] = free
        s.version[2] += 1
        s.version[blocked] = s.version[2]
    return int(s.version[blocked])


@inner
def mates_for(
    m: SharingState,
    s: MateSearch,
    r: ReservationMap,
    options: SharingOptions,
    waiting: Numbers,
    ahead: int,
    j: int,
    now: float,
    cut: float,
    blocked: bool,
    shadow: float,
    spare: int,
    moment: int,
) -> int:
    """Choose mates for a job with whom it ends sooner than by waiting (Listing 1); return how many."""
    side = 1 if blocked else 0
    free = m.tally[FREE] if options.free_nodes else 0
    version = version_of(s, side, m.tally[JOINED], shadow, spare, cut, free)
    at = 2 * r.shape[j] + side
    if s.refused[at] == version:
        return 0
    # If mates are known to be found, the map is asked before they are.
    known = options.guard and s.able[at] == moment
    found = 0
    if not known:
        found = choose_mates(m, s, options, j, now, cut, shadow, spare)
        if found == 0:
            s.refused[at] = version
            return 0
        s.able[at] = moment
    if options.guard and not ends_sooner_as_guest(m, r, waiting, ahead, j, now, options.share):
        return 0
    if known:
        found = choose_mates(m, s, options, j, now, cut, shadow, spare)
    return found


@compiled
def slowdown_driven(
    m: SharingState,
    s: MateSearch,
    r: ReservationMap,
    options: SharingOptions,
    run: Numbers,
    ties: int,
    waiting: Numbers,
    active: Numbers,
) -> tuple[float, list[tuple[float, int, float]]]:
    """Run all jobs; the schedule is left in `m`; return node-seconds occupied and changes.

    `waiting` and `active` are work space, an entry a job each.
    """
    jobs = len(run)
    share, most, worst = options.share, options.mates, options.worst
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
    settled = False  # nothing ended or started since the last pass, nor in it
    blocked = False  # the head, the first waiting job, has its reservation
    shadow = FOREVER
    spare = 0
    moment = 0
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
                settled = False
                if ties != INSTANT:
                    break
        if queued == 0:
            continue
        cut = options.max_slowdown
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
            if r.tally[STEPS] > 0:
                enter_gathered(m, r, waiting)
                r.tally[ALIKE] = -1
                advance_map(r, now)
        else:
            blocked = False
            shadow = FOREVER
            spare = 0
            r.tally[STEPS] = 0
        settled = True
        moment += 1
        for q in range(left, queued):
            j = waiting[q]
            fits = m.need[j] <= m.tally[FREE]
            found = 0
            if fits and (not blocked or m.need[j] <= spare or now + m.request[j] <= shadow):
                start_static(m, events, log, j, now, run[j])
                if blocked and now + m.request[j] > shadow:
                    spare -= m.need[j]
            else:
                if m.malleable[j] and left < options.depth:
                    found = mates_for(
                        m,
                        s,
                        r,
                        options,
                        waiting,
                        left,
                        j,
                        now,
                        cut,
                        blocked,
                        shadow,
                        spare,
                        moment,
                    )
                if found == 0:
                    waiting[left] = j
                    left += 1
                    if not blocked:
                        blocked = True
                        shadow, spare = shadow_of(
                            m.release, m.width, m.tally[RELEASES], 0, m.need[j] - m.tally[FREE]
                        )
                    continue
                start_shared(m, events, log, j, now, run[j], s.chosen, found, most, share, worst)
            active[alive] = j
            alive += 1
            r.tally[STEPS] = 0  # the map is to be drawn again
            moment += 1
            settled = False
            if found > 0 and blocked:
                shadow, spare = shadow_of(
                    m.release, m.width, m.tally[RELEASES], 0, m.need[waiting[0]] - m.tally[FREE]
                )
        queued = left
    return held, log
