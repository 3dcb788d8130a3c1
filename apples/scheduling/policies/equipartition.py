"""Equipartition: every admitted job gets its minimum, the rest of the machine is shared equally."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from apples.scheduling.jobs import Decision, Job, Resize, Start
from apples.scheduling.policy import ClusterState, RunningJob, SchedulingPolicy
from apples.topology.distribute import distribute


@dataclass(frozen=True)
class Equipartition(SchedulingPolicy):
    """Let in every job whose minimum fits; divide the machine among those let in.

    Examples
    --------
    The machine of Kale et al., section 1: 100 processors, a job on 64 of them shrinks to 60, so
    that a job of 40 can start.

    >>> from apples.scheduling.jobs import JobKind
    >>> first = Job(1, 0.0, 64, 9.0, 8, 64, JobKind.MALLEABLE)
    >>> state = ClusterState(100, time=1.0, free=36, queue=[Job(2, 1.0, 40, 9.0, 40, 40)],
    ...     running={1: RunningJob(first, 0.0, 64, 9.0)})
    >>> list(Equipartition().decide(state))
    [Resize(job=1, nodes=60), Start(job=2, nodes=40, mates=(), share=1.0)]

    References
    ----------
    Kale, Kumar and DeSouza 2002, "An adaptive job scheduler for timeshared parallel machines",
    section 4.1.
    """

    uses_malleable: ClassVar[bool] = True

    def decide(self, cluster: ClusterState) -> Iterator[Decision]:
        """Yield the starts of this pass."""
        running = list(cluster.running.values())
        bounds = [_bounds_of_running(cluster, one) for one in running]
        promised = sum(least for least, _ in bounds)
        admitted = []
        for job in cluster.queue:
            least, most = _bounds(cluster, job)
            if promised + least <= cluster.nodes:
                promised += least
                admitted.append(job)
                bounds.append((least, most))
        shares = distribute(
            cluster.nodes, [least for least, _ in bounds], [most for _, most in bounds]
        )
        resizes = [
            Resize(one.job.id, share)
            for one, share in zip(running, shares, strict=False)
            if share != one.nodes
        ]
        # Shrink before any job grows or starts, so that every step fits.
        yield from (r for r in resizes if r.nodes < cluster.running[r.job].nodes)
        yield from (r for r in resizes if r.nodes > cluster.running[r.job].nodes)
        for job, share in zip(admitted, shares[len(running) :], strict=True):
            yield Start(job.id, share)


def _bounds(cluster: ClusterState, job: Job) -> tuple[int, int]:
    """Return the whole nodes a job needs at least and can use at most."""
    return cluster.nodes_for(job.minimum), cluster.nodes_for(job.maximum)


def _bounds_of_running(cluster: ClusterState, running: RunningJob) -> tuple[int, int]:
    if running.job.malleable:
        return _bounds(cluster, running.job)
    wanted = running.nodes if running.wanted is None else running.wanted
    return min(running.nodes, wanted), wanted
