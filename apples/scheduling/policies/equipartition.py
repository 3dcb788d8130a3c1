"""Equipartition: every admitted job gets its minimum; all share the rest of the machine equally."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from apples.scheduling.jobs import Decision, Job, Resize, Start
from apples.scheduling.policy import ClusterState, RunningJob, SchedulingPolicy
from apples.scheduling.reservations import nodes_left
from apples.topology.distribute import distribute


@dataclass(frozen=True)
class Equipartition(SchedulingPolicy):
    """Admit every job with a minimum that fits; divide the machine among the admitted jobs.

    An evolving job gets all nodes that it asks for, before other jobs are admitted, if they fit beside the
    minimums of all jobs. Otherwise it gets none of them, since it may be unable to run on fewer.

    The machine excludes the nodes that advance reservations keep from the job with the last estimated end.

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
    looks_at = ("reservations",)

    def decide(self, cluster: ClusterState) -> Iterator[Decision]:
        """Yield the starts of this pass."""
        running = list(cluster.running.items())
        bounds = [_bounds_of_running(cluster, one) for _, one in running]
        promised = sum(least for least, _ in bounds)
        until = max((one.limit for _, one in running), default=cluster.time)
        size = nodes_left(cluster, until)
        for k, (_, one) in enumerate(running):
            if 0 < one.more_wanted <= size - promised:
                promised += one.more_wanted
                bounds[k] = one.nodes + one.more_wanted, one.nodes + one.more_wanted
        admitted = []
        for job in cluster.queue:
            least = cluster.nodes_for(job.minimum)
            if promised + least > size:
                continue  # even for a short job: a longer time leaves no more
            last = max(until, cluster.time + job.requested)
            left = nodes_left(cluster, last)
            if promised + least <= left:
                promised += least
                until, size = last, left
                admitted.append(job)
                bounds.append((least, cluster.nodes_for(job.maximum)))
        shares = distribute(
            max(size, promised), [least for least, _ in bounds], [most for _, most in bounds]
        )
        resizes = [
            (share - one.nodes, Resize(number, share))
            for (number, one), share in zip(running, shares, strict=False)
            if share != one.nodes
        ]
        # Shrink before any job grows or starts, so that every step fits.
        yield from (resize for more, resize in resizes if more < 0)
        yield from (resize for more, resize in resizes if more > 0)
        for job, share in zip(admitted, shares[len(running) :], strict=True):
            yield Start(job.id, share)


def _bounds(cluster: ClusterState, job: Job) -> tuple[int, int]:
    """Return the minimum and the maximum number of whole nodes of a job."""
    return cluster.nodes_for(job.minimum), cluster.nodes_for(job.maximum)


def _bounds_of_running(cluster: ClusterState, running: RunningJob) -> tuple[int, int]:
    job = running.job
    if job.malleable:
        return _bounds(cluster, job)
    least = running.nodes + min(0, running.more_wanted)
    return least, least
