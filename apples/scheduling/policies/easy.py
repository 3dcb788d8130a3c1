"""EASY backfilling: a job may overtake if it does not delay the first job of the queue.

`apples.simulation.kernels.backfill` has a compiled form of the pass. `tests/simulation/test_oracles.py` tests that
both are equal, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from apples.scheduling.instants import HALF_INSTANT, instant
from apples.scheduling.jobs import Decision, Job, Resize, Start
from apples.scheduling.policy import ClusterState, OrderedPolicy, requests
from apples.scheduling.profile import Profile, releases
from apples.scheduling.reservations import Room, blocks

#: Orders of the queue; (submit, id) breaks ties.
ORDERS: Mapping[str, Callable[[Job], float]] = {
    "fcfs": lambda job: job.submit,
    "priority": lambda job: -job.priority,
    "shortest": lambda job: job.requested,
    "longest": lambda job: -job.requested,
    "narrowest": lambda job: job.processors,
    "widest": lambda job: -job.processors,
    "smallest": lambda job: job.requested * job.processors,
    "largest": lambda job: -job.requested * job.processors,
}


class HeadReservation(Room):
    """The nodes of a pass, and those that the first waiting job leaves to others.

    Attributes
    ----------
    shadow
        First estimated end at which the first job's nodes are free, as the end of that instant; inf without a
        waiting job, and if it needs more nodes than are in service.
    spare
        Nodes left over then, after all releases of that instant. If an advance reservation begins before the first
        job's estimated end: the nodes left over at any time while it runs.
    until
        Time up to which `spare` holds: the shadow, or the first job's estimated end if there is such a
        reservation.
    """

    def __init__(self, cluster: ClusterState) -> None:
        super().__init__(cluster)
        self.blocks = blocks(cluster)
        self.shadow = self.until = inf
        self.spare = 0

    def hold(self, need: int, seconds: float, ends: Collection[tuple[float, int]]) -> None:
        """Reserve `need` nodes for `seconds`, from the first estimated end at which they are free.

        If an advance reservation begins before the job's end, they must be free until that end.
        """
        self.shadow = self.until = inf
        self.spare = 0
        left, time = self.free, inf
        for end, nodes in sorted(ends):
            if left >= need and end > time:
                break
            left, time = left + nodes, end
        first = min((begin for begin, _, _ in self.blocks), default=inf)
        if first < instant(time + seconds):
            profile = Profile(self.now, self.free, list(ends), blocked=self.blocks)
            begin = profile.earliest(need, seconds)
            if begin < inf:
                end = instant(begin + seconds)
                self.shadow, self.until = begin + HALF_INSTANT, end + HALF_INSTANT
                self.spare = profile.least_between(begin, end) - need
        elif left >= need:
            self.shadow = self.until = time + HALF_INSTANT
            self.spare = left - need

    def take(self, nodes: int, end: float) -> bool:
        """Take free nodes as a `Room` does, unless that would delay the first job."""
        if end > self.shadow and nodes > self.spare:
            return False
        if not super().take(nodes, end):
            return False
        if end > self.shadow:
            self.spare -= nodes
        return True


@dataclass(frozen=True)
class Easy(OrderedPolicy):
    """Give the first job of the queue a reservation; start others that do not delay it.

    Attributes
    ----------
    order
        Order of the queue, a name of `ORDERS`.
    depth
        Number of waiting jobs after the first that are examined; -1: all.

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

    orders: ClassVar[Collection[str]] = ORDERS

    depth: int = -1

    def decide(self, cluster: ClusterState) -> Iterator[Decision]:
        """Yield the starts of this pass, and the growths of evolving jobs without delay for the first."""
        room = HeadReservation(cluster)
        ends = releases(cluster)
        growing = []
        for running, more in requests(cluster):
            if more > 0:
                growing.append((running, more))
                continue
            room.take(more, running.limit)
            ends.append((running.limit, more))
            yield Resize(running.job.id, running.nodes + more)
        key = ORDERS[self.order]
        queue = sorted(cluster.queue, key=lambda job: (key(job), job.submit, job.id))
        blocked = len(queue)
        for position, job in enumerate(queue):
            nodes, end = cluster.nodes_for(job.processors), cluster.time + job.requested
            if not room.take(nodes, end):
                blocked = position
                break
            ends.append((instant(end), nodes))
            yield Start(job.id, nodes)
        behind = queue[blocked + 1 :] if self.depth < 0 else queue[blocked + 1 :][: self.depth]
        if blocked < len(queue) and (growing or behind):
            head = queue[blocked]
            room.hold(cluster.nodes_for(head.processors), head.requested, ends)
        for running, more in growing:
            if room.take(more, running.limit):
                yield Resize(running.job.id, running.nodes + more)
        for job in behind:
            nodes = cluster.nodes_for(job.processors)
            if room.take(nodes, cluster.time + job.requested):
                yield Start(job.id, nodes)
