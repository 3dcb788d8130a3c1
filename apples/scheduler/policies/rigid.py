"""Policies that start rigid jobs and make no promises: FCFS, first-fit, SJF."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from apples.jobs import Decision, Start
from apples.scheduler.policy import ClusterState, SchedulingPolicy, grant_requests


@dataclass(frozen=True)
class FirstComeFirstServed(SchedulingPolicy):
    """Start jobs in order of submission; nobody overtakes.

    Examples
    --------
    >>> from apples.jobs import Job
    >>> queue = [Job(1, 0.0, 3, 9.0, 3, 3), Job(2, 0.0, 2, 9.0, 2, 2), Job(3, 0.0, 1, 9.0, 1, 1)]
    >>> [d.job for d in FirstComeFirstServed().decide(ClusterState(4, free=4, queue=queue))]
    [1]
    """

    def decide(self, cluster: ClusterState) -> Iterator[Decision]:
        """Yield the starts of this pass."""
        free = cluster.free
        for decision in grant_requests(cluster):
            free -= decision.nodes - cluster.running[decision.job].nodes
            yield decision
        for job in cluster.queue:
            nodes = cluster.nodes_for(job.processors)
            if nodes > free:
                return
            free -= nodes
            yield Start(job.id, nodes)


@dataclass(frozen=True)
class FirstFit(SchedulingPolicy):
    """Start every job that fits, in order of submission; wide jobs may wait for ever.

    Examples
    --------
    >>> from apples.jobs import Job
    >>> queue = [Job(1, 0.0, 3, 9.0, 3, 3), Job(2, 0.0, 2, 9.0, 2, 2), Job(3, 0.0, 1, 9.0, 1, 1)]
    >>> [d.job for d in FirstFit().decide(ClusterState(4, free=4, queue=queue))]
    [1, 3]
    """

    def decide(self, cluster: ClusterState) -> Iterator[Decision]:
        """Yield the starts of this pass."""
        free = cluster.free
        for decision in grant_requests(cluster):
            free -= decision.nodes - cluster.running[decision.job].nodes
            yield decision
        for job in cluster.queue:
            nodes = cluster.nodes_for(job.processors)
            if nodes <= free:
                free -= nodes
                yield Start(job.id, nodes)


@dataclass(frozen=True)
class ShortestJobFirst(SchedulingPolicy):
    """Start the job with the shortest requested time first; nobody overtakes the shortest.

    Examples
    --------
    >>> from apples.jobs import Job
    >>> queue = [Job(1, 0.0, 3, 9.0, 3, 3), Job(2, 0.0, 2, 5.0, 2, 2)]
    >>> [d.job for d in ShortestJobFirst().decide(ClusterState(4, free=4, queue=queue))]
    [2]
    """

    def decide(self, cluster: ClusterState) -> Iterator[Decision]:
        """Yield the starts of this pass."""
        free = cluster.free
        for decision in grant_requests(cluster):
            free -= decision.nodes - cluster.running[decision.job].nodes
            yield decision
        for job in sorted(cluster.queue, key=lambda job: (job.requested, job.submit, job.id)):
            nodes = cluster.nodes_for(job.processors)
            if nodes > free:
                return
            free -= nodes
            yield Start(job.id, nodes)
