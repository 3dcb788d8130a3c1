"""The state of SD-Policy's kernel: the jobs that share nodes, and the steps that change the state.

The uncompiled state: `apples.scheduling.ledger`, `RunningJob.guest` and `RunningJob.mates`, and the rates of
`apples.simulation.engine.rate_of`. Invariants: a job has at most one guest, and a guest has no guest (`pool` holds
the jobs that may become mates). Shared nodes are entered in `release` with the mate; its extended estimate is
never before that of its guest. An event is obsolete if its time is not the job's `end`.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

from apples.scheduling.loops.compiled import (
    Numbers,
    close_gap,
    inner,
    instant,
    integers,
    open_gap,
    zeros,
)
from apples.simulation.kernels.backfill import drop_end, enter_end

FREE, RELEASES, POOL, RUNNING, STARTED, RECORD, JOINED = range(7)  # indices of Machine.tally


class SharingState(NamedTuple):
    """Arrays, by job unless noted; times in seconds, nodes as whole numbers.

    Attributes
    ----------
    tally
        At the indices FREE to JOINED: free nodes; used entries of `release`; used entries of `pool`; running jobs;
        started jobs; whether changes are recorded; number of joins of the pool.
    release, width
        Sorted estimated releases of nodes, and the nodes of each.
    pool
        Jobs that may become mates, in the order of their starts.
    limit
        Estimated end including extensions.
    delay
        Estimated increase of the run time so far.
    guest
        Guest in this job's nodes, -1 without a guest.
    mates, mate
        Number of mates at the start of a guest; `mate[j * most + k]` is the k-th, -1 after its end.
    shared, own
        Nodes that a guest shares with mates, and nodes of its own.
    turn, started
        Position in the order of starts, and the inverse.
    lent
        Number of times that it was a mate.
    work, since, rate, end
        Seconds of work that remain at `since`, rate since then, end if nothing changes.
    """

    tally: Numbers
    need: Numbers
    request: Numbers
    submit: Numbers
    malleable: Numbers
    release: Numbers
    width: Numbers
    pool: Numbers
    limit: Numbers
    delay: Numbers
    guest: Numbers
    mates: Numbers
    mate: Numbers
    shared: Numbers
    own: Numbers
    work: Numbers
    since: Numbers
    rate: Numbers
    start: Numbers
    turn: Numbers
    started: Numbers
    end: Numbers
    resizes: Numbers
    lent: Numbers


def sharing_state(
    submit: Numbers, need: Numbers, request: Numbers, malleable: Numbers, nodes: int, most: int,
    record: bool,
) -> SharingState:  # fmt: skip
    """Return the state of an empty machine of `nodes` nodes for these jobs."""
    jobs = len(submit)
    tally = integers(7)
    tally[FREE] = nodes
    tally[RECORD] = int(record)
    return SharingState(
        tally=tally, need=need, request=request, submit=submit, malleable=malleable,
        release=zeros(2 * jobs + 1), width=integers(2 * jobs + 1), pool=integers(jobs + 1),
        limit=zeros(jobs), delay=zeros(jobs), guest=integers(jobs, -1), mates=integers(jobs),
        mate=integers(jobs * most, -1), shared=integers(jobs), own=integers(jobs),
        work=zeros(jobs), since=zeros(jobs), rate=zeros(jobs), start=zeros(jobs),
        turn=integers(jobs), started=integers(jobs), end=zeros(jobs),
        resizes=integers(jobs), lent=integers(jobs),
    )  # fmt: skip


@inner
def add_release(m: SharingState, time: float, nodes: int) -> None:
    """Insert the estimated release of nodes at a time."""
    enter_end(m.release, m.width, m.tally[RELEASES], time, nodes)
    m.tally[RELEASES] += 1


@inner
def drop_release(m: SharingState, time: float, nodes: int) -> None:
    """Remove an estimated release; any of several equal entries."""
    drop_end(m.release, m.width, m.tally[RELEASES], time, nodes)
    m.tally[RELEASES] -= 1


@inner
def note(
    m: SharingState, log: list[tuple[float, int, float]], j: int, now: float, share: float
) -> None:
    """If changes are recorded, record the cores of a running job from now on, in units of nodes."""
    if m.tally[RECORD]:
        own = m.own[j] * (1.0 - share) if m.guest[j] >= 0 else m.own[j] * 1.0
        log.append((now, j, own + m.shared[j] * share))


@inner
def join_pool(m: SharingState, j: int) -> None:
    """Add a job to the pool of possible mates if it is malleable; it must not share nodes."""
    # The order of the starts is that of the running jobs in a `ClusterState`, so both forms of the policy resolve
    # equal penalties alike.
    if m.malleable[j]:
        m.tally[JOINED] += 1
        k = m.tally[POOL]
        while k > 0 and m.turn[m.pool[k - 1]] > m.turn[j]:
            k -= 1
        open_gap(m.pool, k, m.tally[POOL])
        m.pool[k] = j
        m.tally[POOL] += 1


@inner
def leave_pool(m: SharingState, j: int) -> None:
    """Remove a job from the pool, if it is there."""
    for k in range(m.tally[POOL]):
        if m.pool[k] == j:
            close_gap(m.pool, k, m.tally[POOL])
            m.tally[POOL] -= 1
            return


@inner
def set_rate(
    m: SharingState, events: list[tuple[float, int]], j: int, now: float, rate: float
) -> None:
    """Update the remaining work of a job; continue at another rate."""
    if rate == m.rate[j]:
        return
    m.work[j] = max(0.0, m.work[j] - instant(now - m.since[j]) * m.rate[j])
    m.since[j] = now
    m.rate[j] = rate
    m.end[j] = instant(now + instant(m.work[j] / rate))
    heapq.heappush(events, (m.end[j], m.turn[j]))
    m.resizes[j] += 1


@inner
def begin(
    m: SharingState, events: list[tuple[float, int]], j: int, now: float, run: float, rate: float
) -> None:
    """Set the start, the work, the rate and the end of a job."""
    m.start[j] = now
    m.work[j] = run
    m.since[j] = now
    m.rate[j] = rate
    m.end[j] = instant(now + instant(run / rate))
    m.turn[j] = m.tally[STARTED]
    m.started[m.turn[j]] = j
    m.tally[STARTED] += 1
    m.tally[RUNNING] += 1
    heapq.heappush(events, (m.end[j], m.turn[j]))


@inner
def start_static(
    m: SharingState,
    events: list[tuple[float, int]],
    log: list[tuple[float, int, float]],
    j: int,
    now: float,
    run: float,
) -> None:
    """Start a job on free nodes."""
    m.limit[j] = instant(now + m.request[j])
    m.tally[FREE] -= m.need[j]
    m.own[j] = m.need[j]
    add_release(m, m.limit[j], m.need[j])
    begin(m, events, j, now, run, 1.0)
    join_pool(m, j)
    note(m, log, j, now, 0.0)


@inner
def guest_rate(m: SharingState, j: int, share: float, worst: bool) -> float:
    """Return a guest's rate: by all its cores (equation 5) or by its node with the fewest cores (equation 6)."""
    if m.shared[j] == 0:
        return 1.0
    if worst:
        return share
    return float((m.own[j] + share * m.shared[j]) / m.need[j])


@inner
def start_shared(
    m: SharingState,
    events: list[tuple[float, int]],
    log: list[tuple[float, int, float]],
    j: int,
    now: float,
    run: float,
    chosen: Numbers,
    found: int,
    most: int,
    share: float,
    worst: bool,
) -> None:
    """Start a job inside the nodes of its mates and, for the rest, on free nodes."""
    m.limit[j] = instant(now + instant(m.request[j] / share))
    m.delay[j] = instant(m.request[j] / share) - m.request[j]
    m.shared[j] = 0
    for k in range(found):
        i = chosen[k]
        m.mate[j * most + k] = i
        m.guest[i] = j
        m.lent[i] += 1
        m.shared[j] += m.need[i]
        drop_release(m, m.limit[i], m.need[i])
        m.limit[i] = instant(m.limit[i] + m.request[j])
        m.delay[i] += m.request[j]
        add_release(m, m.limit[i], m.need[i])
        leave_pool(m, i)
        set_rate(m, events, i, now, 1.0 - share)
        note(m, log, i, now, share)
    m.mates[j] = found
    m.own[j] = m.need[j] - m.shared[j]
    if m.own[j] > 0:
        m.tally[FREE] -= m.own[j]
        add_release(m, m.limit[j], m.own[j])
    begin(m, events, j, now, run, guest_rate(m, j, share, worst))
    note(m, log, j, now, share)


@inner
def finish(
    m: SharingState,
    events: list[tuple[float, int]],
    log: list[tuple[float, int, float]],
    j: int,
    now: float,
    most: int,
    share: float,
    worst: bool,
) -> None:
    """End a job: its guest takes over its nodes, or its mates get their cores back."""
    m.tally[RUNNING] -= 1
    if m.tally[RECORD]:
        log.append((now, j, 0.0))
    g = m.guest[j]
    if g >= 0:
        # The mate ended before its guest: the guest no longer shares these nodes.
        drop_release(m, m.limit[j], m.need[j])
        m.guest[j] = -1
        for k in range(m.mates[g]):
            if m.mate[g * most + k] == j:
                m.mate[g * most + k] = -1
        if m.own[g] > 0:
            drop_release(m, m.limit[g], m.own[g])
        m.own[g] += m.need[j]
        m.shared[g] -= m.need[j]
        add_release(m, m.limit[g], m.own[g])
        if m.shared[g] == 0:
            join_pool(m, g)
        set_rate(m, events, g, now, guest_rate(m, g, share, worst))
        note(m, log, g, now, share)
        return
    if m.shared[j] > 0:
        for k in range(m.mates[j]):
            i = m.mate[j * most + k]
            if i >= 0:
                m.guest[i] = -1
                set_rate(m, events, i, now, 1.0)
                note(m, log, i, now, share)
                join_pool(m, i)
    else:
        leave_pool(m, j)
    if m.own[j] > 0:
        drop_release(m, m.limit[j], m.own[j])
        m.tally[FREE] += m.own[j]
