"""Conservative backfilling: every waiting job holds a reservation that no later job may delay.

The pass exists in a second form, compiled: `apples.simulation.kernels.conservative`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf

from apples.scheduling.instants import instant
from apples.scheduling.jobs import Decision, Reserve, Resize, Start
from apples.scheduling.policy import (
    ClusterState,
    Events,
    OrderedPolicy,
    RunningJob,
    in_order,
    requests,
)
from apples.scheduling.profile import Profile, releases
from apples.scheduling.reservations import Room, blocks


@dataclass(frozen=True)
class Conservative(OrderedPolicy):
    """Promise every job the earliest time that the promises before it leave.

    When nodes come free before their estimated time, or a job is withdrawn, every waiting job, in the
    order of the queue, is moved to the earliest time that taking it out leaves open: never later than
    promised. Promises last as long as the machine they were made for. Where they no longer fit (nodes
    were lost, a job overran its estimate) or a job without one stands ahead of one that has one (its run
    was lost, or it is so wide that it had to wait for a repair), all are made anew in the order of the
    queue. A job of more nodes than are in service has no promise. In the order of priorities a job with a
    larger one that comes takes precedence over the promises there are: all are made anew. An evolving job
    gets the nodes that it asks for where that delays no promise.

    Attributes
    ----------
    order
        Of the queue, one of `QUEUE_ORDERS`.

    Examples
    --------
    >>> from apples.scheduling.jobs import Job
    >>> queue = [Job(1, 0.0, 3, 9.0, 3, 3), Job(2, 0.0, 2, 5.0, 2, 2), Job(3, 0.0, 1, 9.0, 1, 1)]
    >>> for decision in Conservative().decide(ClusterState(4, free=4, queue=queue)):
    ...     print(decision)
    Start(job=1, nodes=3, mates=(), share=1.0)
    Reserve(job=2, time=9.0)
    Start(job=3, nodes=1, mates=(), share=1.0)

    References
    ----------
    Mu'alem and Feitelson 2001, section 2.
    """

    def decide(self, cluster: ClusterState) -> Iterator[Decision]:
        """Yield the starts of this pass, and the promises that are new."""
        events = cluster.events
        due = None
        if events.ended and events == Events(ended=events.ended) and not requests(cluster):
            due = _due(cluster)
        yield from _plan(cluster, self.order) if due is None else due


def _due(cluster: ClusterState) -> list[Start] | None:
    """Return the starts where jobs did nothing but end when they were estimated to: no promise moves.

    None if it is not so simple: a job has no promise, or not the nodes that it was promised.
    """
    promises = cluster.reservations
    if len(promises) < len(cluster.queue):
        return None
    room, starts = Room(cluster), []
    for job in cluster.queue:
        if promises[job.id] <= cluster.time:
            nodes = cluster.nodes_for(job.processors)
            if not room.take(nodes, cluster.time + job.requested):
                return None
            starts.append(Start(job.id, nodes))
    return starts


def _plan(cluster: ClusterState, order: str) -> Iterator[Decision]:
    """Yield the starts, and the promises that are new, with the whole profile drawn."""
    now, free = cluster.time, cluster.free
    nodes_for, in_service = cluster.nodes_for, cluster.nodes
    wide = [(job, nodes_for(job.processors)) for job in in_order(cluster.queue, order)]
    queue = [(job, nodes) for job, nodes in wide if nodes <= in_service]
    promised = cluster.reservations
    kept = [(job, nodes) for job, nodes in queue if job.id in promised]
    promises = {job.id: max(promised[job.id], now) for job, _ in kept}
    ends, reserved = releases(cluster), blocks(cluster)
    asking = requests(cluster)
    for running, more in asking:
        if more < 0:
            free -= more
            ends.append((running.limit, more))
            yield Resize(running.job.id, running.nodes + more)
    profile = Profile(
        now,
        free,
        ends,
        [
            (promises[job.id], instant(promises[job.id] + job.requested), nodes)
            for job, nodes in kept
        ],
        reserved,
    )
    if kept != queue[: len(kept)] or profile.least < 0:
        promises = {}
        profile = Profile(now, free, ends, blocked=reserved)
    moves = (
        cluster.early_release
        or bool(cluster.events.repaired or cluster.events.withdrawn)
        or any(more < 0 for _, more in asking)
    )
    begins = profile.plan(
        list(promises.values()), [(job.requested, nodes) for job, nodes in queue], moves=moves
    )
    for (job, nodes), begin in zip(queue, begins, strict=True):
        # With a pass an event, a promise may be due a pass before its nodes are left.
        if begin <= now and nodes <= free:
            free -= nodes
            yield Start(job.id, nodes)
        elif begin not in (inf, promised.get(job.id)):
            yield Reserve(job.id, begin)
    yield from _grown(asking, profile, free)


def _grown(
    asking: Iterable[tuple[RunningJob, int]], profile: Profile, free: int
) -> Iterator[Decision]:
    """Yield the growths of evolving jobs for which the promises leave room until their estimated ends."""
    for running, more in asking:
        if running.limit <= profile.now:
            continue  # it is due in this instant
        if 0 < more <= min(free, profile.least_between(profile.now, running.limit)):
            free -= more
            profile.reserve(profile.now, running.limit, more)
            yield Resize(running.job.id, running.nodes + more)
