"""Conservative backfilling: every waiting job holds a reservation that no later job may delay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from apples.scheduling.jobs import Decision, Reserve, Start
from apples.scheduling.policy import ClusterState, SchedulingPolicy
from apples.scheduling.profile import Profile, releases


@dataclass(frozen=True)
class Conservative(SchedulingPolicy):
    """Promise every job the earliest time that the promises before it leave.

    When a job leaves before its estimated end, every waiting job, in the order of the queue, is
    moved to the earliest time that taking it out leaves open: never later than promised.

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
        """Yield the starts of this pass."""
        free = cluster.free
        profile = Profile(cluster.time, cluster.free, releases(cluster))
        promises = dict(cluster.reservations)
        need = {job.id: cluster.nodes_for(job.processors) for job in cluster.queue}
        for job in cluster.queue:
            if job.id in promises:
                begin = promises[job.id]
                profile.reserve(begin, begin + job.requested, need[job.id])
        if cluster.early_release:
            for job in cluster.queue:
                begin = promises.get(job.id, cluster.time)
                if begin > cluster.time:
                    profile.reserve(begin, begin + job.requested, -need[job.id])
                    begin = promises[job.id] = profile.earliest(need[job.id], job.requested)
                    profile.reserve(begin, begin + job.requested, need[job.id])
        for job in cluster.queue:
            if job.id not in promises:
                begin = promises[job.id] = profile.earliest(need[job.id], job.requested)
                profile.reserve(begin, begin + job.requested, need[job.id])
            # With a pass an event, a promise may be due a pass before its nodes are left.
            if promises[job.id] <= cluster.time and need[job.id] <= free:
                free -= need[job.id]
                yield Start(job.id, need[job.id])
            elif promises[job.id] not in (inf, cluster.reservations.get(job.id)):
                yield Reserve(job.id, promises[job.id])
