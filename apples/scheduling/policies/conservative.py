"""Conservative backfilling: every waiting job holds a reservation that no later job may delay.

`apples.simulation.kernels.conservative` has a compiled form of the pass.
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
    """Promise every job the earliest start that the promises before it leave.

    When nodes come free before their estimated time, or a job is withdrawn, every waiting job, in the order of the
    queue, gives up its reservation and gets the earliest one possible then: never later than promised. The
    policy makes all promises anew, in the order of the queue, in three cases. First, the old promises no longer
    fit: nodes were lost, or a job overran its estimate. Second, a job without a promise is ahead of a job with a
    promise: its run was lost, or it had to wait for a repair. Third, a job of a larger priority arrives in the
    order of priorities. A job of more nodes than are in service has no promise. An evolving job gets the nodes
    that it asks for if that delays no promise.

    Attributes
    ----------
    order
        Order of the queue, one of `QUEUE_ORDERS`.

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
        """Yield the starts and the new promises of this pass."""
        events = cluster.events
        due = None
        if events.ended and events == Events(ended=events.ended) and not requests(cluster):
            due = _due(cluster)
        yield from _plan(cluster, self.order) if due is None else due


def _due(cluster: ClusterState) -> list[Start] | None:
    """Return the starts if the only events are jobs that ended at their estimates: no promise moves.

    None if a full plan is needed: a job has no promise, or its promised nodes are not free.
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
    """Yield the starts and the new promises from a complete profile."""
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
        # With one pass for each event, a promise may be due one pass before its nodes come free.
        if begin <= now and nodes <= free:
            free -= nodes
            yield Start(job.id, nodes)
        elif begin not in (inf, promised.get(job.id)):
            yield Reserve(job.id, begin)
    yield from _grown(asking, profile, free)


def _grown(
    asking: Iterable[tuple[RunningJob, int]], profile: Profile, free: int
) -> Iterator[Decision]:
    """Yield the growths of evolving jobs that fit beside the promises until their estimated ends."""
    for running, more in asking:
        if running.limit <= profile.now:
            continue  # it ends in this instant
        if 0 < more <= min(free, profile.least_between(profile.now, running.limit)):
            free -= more
            profile.reserve(profile.now, running.limit, more)
            yield Resize(running.job.id, running.nodes + more)
