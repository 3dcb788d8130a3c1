"""EASY backfilling: jobs may overtake as long as the first in the queue is not delayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf

from apples.errors import UsageError
from apples.scheduling.jobs import Decision, Job, Start
from apples.scheduling.policy import ClusterState, SchedulingPolicy, grant_requests
from apples.scheduling.profile import releases

#: Orders of the queue; ties go by (submit, id).
ORDERS: Mapping[str, Callable[[Job], float]] = {
    "fcfs": lambda job: job.submit,
    "shortest": lambda job: job.requested,
    "longest": lambda job: -job.requested,
    "narrowest": lambda job: job.processors,
    "widest": lambda job: -job.processors,
    "smallest": lambda job: job.requested * job.processors,
    "largest": lambda job: -job.requested * job.processors,
}


def shadow(need: int, free: int, ends: list[tuple[float, int]]) -> tuple[float, int]:
    """Return the first estimated end at which so many nodes are free, and how many are spare then.

    All releases of that instant are counted. Never, where so many nodes are not in service.
    """
    ends = sorted(ends)
    for position, (time, nodes) in enumerate(ends):
        free += nodes
        last_of_instant = position + 1 == len(ends) or ends[position + 1][0] > time
        if free >= need and last_of_instant:
            return time, free - need
    return inf, 0


@dataclass(frozen=True)
class Easy(SchedulingPolicy):
    """Give the first job of the queue a reservation; start others that do not delay it.

    Attributes
    ----------
    order
        Of the queue, a name of `ORDERS`.
    depth
        Waiting jobs behind the first that are examined; -1 all.

    Examples
    --------
    The second job needs three nodes at time 10; the third would hold one of them, the fourth not.

    >>> from apples.scheduling.jobs import Job
    >>> from apples.scheduling.policy import RunningJob
    >>> running = {1: RunningJob(Job(1, 0.0, 2, 10.0, 2, 2), 0.0, 2, 10.0)}
    >>> queue = [Job(2, 0.0, 4, 5.0, 4, 4), Job(3, 0.0, 1, 20.0, 1, 1), Job(4, 0.0, 1, 9.0, 1, 1)]
    >>> state = ClusterState(4, free=2, queue=queue, running=running)
    >>> [d.job for d in Easy().decide(state)]
    [4]

    References
    ----------
    Lifka 1995, "The ANL/IBM SP scheduling system"; Mu'alem and Feitelson 2001.
    """

    order: str = "fcfs"
    depth: int = -1

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise UsageError(f"order {self.order!r}: not one of {', '.join(ORDERS)}")

    def decide(self, cluster: ClusterState) -> Iterator[Decision]:
        """Yield the starts of this pass."""
        free = cluster.free
        ends = releases(cluster)
        for decision in grant_requests(cluster):
            running = cluster.running[decision.job]
            more = decision.nodes - running.nodes
            free -= more
            ends.append((running.limit, more))
            yield decision
        key = ORDERS[self.order]
        queue = sorted(cluster.queue, key=lambda job: (key(job), job.submit, job.id))
        blocked = len(queue)
        for position, job in enumerate(queue):
            nodes = cluster.nodes_for(job.processors)
            if nodes > free:
                blocked = position
                break
            free -= nodes
            ends.append((cluster.time + job.requested, nodes))
            yield Start(job.id, nodes)
        if blocked + 1 >= len(queue):
            return
        head = cluster.nodes_for(queue[blocked].processors)
        reserved, spare = shadow(head, free, ends)
        behind = queue[blocked + 1 :] if self.depth < 0 else queue[blocked + 1 :][: self.depth]
        for job in behind:
            nodes = cluster.nodes_for(job.processors)
            in_time = cluster.time + job.requested <= reserved
            if nodes <= free and (in_time or nodes <= spare):
                free -= nodes
                if not in_time:
                    spare -= nodes
                yield Start(job.id, nodes)
