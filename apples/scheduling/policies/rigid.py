"""Policies that start rigid jobs and make no promises: FCFS, first-fit, SJF.

`apples.simulation.kernels.backfill` has a compiled form of the pass. `tests/simulation/test_oracles.py` tests that
both are equal, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from apples.scheduling.jobs import Decision, Job, Start
from apples.scheduling.policy import (
    ClusterState,
    OrderedPolicy,
    SchedulingPolicy,
    grant_requests,
    in_order,
)
from apples.scheduling.reservations import Room


@dataclass(frozen=True)
class FirstComeFirstServed(OrderedPolicy):
    """Start jobs in order of submission; no job overtakes another.

    Attributes
    ----------
    order
        Order of the queue, one of `QUEUE_ORDERS`.

    Examples
    --------
    >>> from apples.scheduling.jobs import Job
    >>> queue = [Job(1, 0.0, 3, 9.0, 3, 3), Job(2, 0.0, 2, 9.0, 2, 2), Job(3, 0.0, 1, 9.0, 1, 1)]
    >>> [d.job for d in FirstComeFirstServed().decide(ClusterState(4, free=4, queue=queue))]
    [1]
    """

    def decide(self, cluster: ClusterState) -> Iterator[Decision]:
        """Return the starts of this pass."""
        return _start(cluster, in_order(cluster.queue, self.order))


@dataclass(frozen=True)
class FirstFit(SchedulingPolicy):
    """Start every job that fits, in order of submission; wide jobs may wait for ever.

    Examples
    --------
    >>> from apples.scheduling.jobs import Job
    >>> queue = [Job(1, 0.0, 3, 9.0, 3, 3), Job(2, 0.0, 2, 9.0, 2, 2), Job(3, 0.0, 1, 9.0, 1, 1)]
    >>> [d.job for d in FirstFit().decide(ClusterState(4, free=4, queue=queue))]
    [1, 3]
    """

    looks_at = ("reservations",)

    def decide(self, cluster: ClusterState) -> Iterator[Decision]:
        """Return the starts of this pass."""
        return _start(cluster, cluster.queue, overtaking=True)


@dataclass(frozen=True)
class ShortestJobFirst(SchedulingPolicy):
    """Start the job with the shortest requested time first; no job overtakes the shortest.

    Examples
    --------
    >>> from apples.scheduling.jobs import Job
    >>> queue = [Job(1, 0.0, 3, 9.0, 3, 3), Job(2, 0.0, 2, 5.0, 2, 2)]
    >>> [d.job for d in ShortestJobFirst().decide(ClusterState(4, free=4, queue=queue))]
    [2]
    """

    looks_at = ("reservations",)

    def decide(self, cluster: ClusterState) -> Iterator[Decision]:
        """Return the starts of this pass."""
        queue = sorted(cluster.queue, key=lambda job: (job.requested, job.submit, job.id))
        return _start(cluster, queue)


def _start(
    cluster: ClusterState, queue: Iterable[Job], *, overtaking: bool = False
) -> Iterator[Decision]:
    """Yield the starts in the given order, up to the first job that does not fit; all that fit if `overtaking`."""
    room, cores, now = Room(cluster), cluster.cores_per_node, cluster.time
    yield from grant_requests(cluster, room.take)
    for job in queue:
        nodes = -(-job.processors // cores)  # `nodes_for`, inlined
        if nodes <= room.free and room.take(nodes, now + job.requested):
            yield Start(job.id, nodes)
        elif not overtaking:
            return
