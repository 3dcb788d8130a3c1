"""Jobs as a scheduler sees them, and the decisions of a scheduling policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class JobKind(StrEnum):
    """Flexibility of a job's processors (Feitelson and Rudolph 1996).

    A rigid job runs on the processors that it asked for. The scheduler chooses the processors of a moldable job at
    its start, those of a malleable job at any time. An evolving job asks for other processors while it runs, and
    the scheduler grants or refuses them.
    """

    RIGID = "rigid"
    MOLDABLE = "moldable"
    MALLEABLE = "malleable"
    EVOLVING = "evolving"


@dataclass(frozen=True, slots=True)
class Job:
    """One submitted job.

    Attributes
    ----------
    id
        Number of the job in its log.
    submit
        Time of submission, seconds.
    processors
        The processors asked for.
    requested
        The user's estimate of the run time on `processors`, seconds.
    minimum, maximum
        Processors it can run on; both `processors` for a rigid job.
    kind
        Its flexibility.
    user, partition, qos
        Its owner, the part of the machine that it asks for and its quality of service; empty if its log lacks the
        field or the policy does not read it (`SchedulingPolicy.looks_at`).
    priority
        A larger number is more urgent; 0 unless the policy reads `priority`.
    exclusive
        Whether it shares its nodes with no other job, since it leaves too little of their memory or GPUs.
    """

    id: int
    submit: float
    processors: int
    requested: float
    minimum: int
    maximum: int
    kind: JobKind = JobKind.RIGID
    user: str = ""
    partition: str = ""
    qos: str = ""
    priority: float = 0.0
    exclusive: bool = False

    @property
    def malleable(self) -> bool:
        """Whether the scheduler may resize it while it runs."""
        return self.kind is JobKind.MALLEABLE


@dataclass(frozen=True, slots=True)
class Start:
    """Start a waiting job now.

    Attributes
    ----------
    job
        Its id.
    nodes
        Whole nodes it gets; those of its mates included.
    mates
        Running jobs that share their nodes with it (SD-Policy). Each mate keeps its nodes and gives up `share` of
        the cores of every node until the guest ends.
    share
        Fraction of every shared node that the guest gets, in (0, 1).
    node_ids
        Numbers of the free nodes it gets; empty for any nodes.
    """

    job: int
    nodes: int
    mates: tuple[int, ...] = ()
    share: float = 1.0
    node_ids: frozenset[int] = field(default=frozenset(), repr=False)


@dataclass(frozen=True, slots=True)
class Resize:
    """Give a running malleable or evolving job another number of whole nodes."""

    job: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Migrate:
    """Move a running job to other nodes, as many as it has, with the reason."""

    job: int
    nodes: frozenset[int]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Reserve:
    """Promise a waiting job its nodes from a time on.

    The state keeps the promise (`ClusterState.reservations`) and a pass runs at that time. Only a `Start` decision
    starts the job then.
    """

    job: int
    time: float


@dataclass(frozen=True, slots=True)
class Reject:
    """Never run a waiting job: it leaves the queue, and the reason is kept with the result."""

    job: int
    reason: str


@dataclass(frozen=True, slots=True)
class Requeue:
    """Stop a running job and put it back into the queue, in its old place; its work is lost."""

    job: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Take a waiting job out of the queue until it is released (`Driver.release`) or started."""

    job: int
    reason: str


@dataclass(frozen=True, slots=True)
class Wake:
    """Request a pass at a time, for example when the policy expects a change."""

    time: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Record why a job waits, and the estimated time of its start; it has no other effect.

    Attributes
    ----------
    until
        Seconds; None if the policy has no estimate.
    """

    job: int
    reason: str
    until: float | None = None


Decision = Start | Resize | Migrate | Reserve | Reject | Requeue | Hold | Wake | Wait
