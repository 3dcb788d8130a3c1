"""What a scheduling policy sees, and the one thing it does: decide.

A policy proposes; the ledger disposes, and says why not. `driver` runs both, simulated or live.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from apples.scheduling.jobs import Decision, Job, JobKind, Resize


@dataclass(slots=True)
class RunningJob:
    """A job on its nodes. A policy reads it and leaves it alone.

    Attributes
    ----------
    nodes
        Whole nodes it runs on, those it shares included.
    limit
        Estimated end, seconds, extensions included; the real end is never later.
    delay
        Estimated increase of its run time so far through sharing, seconds.
    guest
        Id of the job that is guest in its nodes, None if it has them to itself.
    mates
        Ids of the jobs in whose nodes it is guest.
    shared
        Of its nodes, those it shares as a guest.
    wanted
        Nodes an evolving job asks for, None when it is content.
    node_ids
        Numbers of its nodes; empty where the ledger does not track them.
    """

    job: Job
    start: float
    nodes: int
    limit: float
    delay: float = 0.0
    guest: int | None = None
    mates: tuple[int, ...] = ()
    shared: int = 0
    share: float = 1.0
    wanted: int | None = None
    node_ids: frozenset[int] = frozenset()

    @property
    def can_be_mate(self) -> bool:
        """Whether it is malleable and has all its nodes to itself."""
        return self.job.malleable and self.guest is None and self.shared == 0


@dataclass(slots=True)
class ClusterState:
    """A machine of whole nodes with cores inside, at one moment. A policy only reads it.

    A machine whose processors are given out one by one has nodes of one core.

    Attributes
    ----------
    time
        Seconds.
    free
        Nodes on which nothing runs.
    queue
        Waiting jobs in order of (submit, id).
    running
        By id, in the order of their starts.
    reservations
        Waiting job -> time promised by an earlier `Reserve`.
    early_release
        Whether a job left before its estimated end since the last pass.
    free_node_ids
        Numbers of the free nodes, ascending; empty where the ledger does not track them.
    """

    nodes: int
    cores_per_node: int = 1
    time: float = 0.0
    free: int = 0
    queue: Sequence[Job] = ()
    running: Mapping[int, RunningJob] = field(default_factory=dict)
    reservations: Mapping[int, float] = field(default_factory=dict)
    early_release: bool = False
    free_node_ids: Sequence[int] = ()

    def nodes_for(self, processors: int) -> int:
        """Return the whole nodes that so many processors take."""
        return -(-processors // self.cores_per_node)


class SchedulingPolicy(ABC):
    """Decides which jobs of a cluster start, shrink and grow.

    A policy is a value: its fields are its options, and `decide` depends on them and on the state
    alone, so that the same state gives the same decisions in a simulation, in a live scheduler and
    after a restart of either. All decisions of a pass are taken together, in the order they are
    made; the state does not change while the policy decides, and a policy only reads it.

    `apples.testing.policy_checks.check_policy` runs these rules on any policy. The built-in ones exist
    in a second form on purpose, as compiled kernels (`apples.simulation.run.KERNELS`), which are held
    equal to them by one test.
    """

    #: Whether the policy resizes jobs: then all jobs of a log are malleable unless one says else.
    uses_malleable: ClassVar[bool] = False

    @property
    def needs_node_ids(self) -> bool:
        """Whether it must know which nodes jobs have, not only how many."""
        return False

    @abstractmethod
    def decide(self, cluster: ClusterState) -> Iterator[Decision]:
        """Yield the decisions of one pass.

        The ledger refuses a decision that breaks a limit of the machine or of a job, with the reason
        (`apples.scheduling.ledger.Refused`); a simulation then ends with an error that names both.
        """


def grant_requests(cluster: ClusterState) -> Iterator[Resize]:
    """Yield the resizes that evolving jobs asked for and that the free nodes allow."""
    free = cluster.free
    for running in cluster.running.values():
        if running.job.kind is JobKind.EVOLVING and running.wanted is not None:
            more = running.wanted - running.nodes
            if more != 0 and more <= free:
                free -= more
                yield Resize(running.job.id, running.wanted)
