"""Jobs as a scheduler sees them, and what a scheduling policy may decide about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class JobKind(StrEnum):
    """Flexibility of a job's processors (Feitelson and Rudolph 1996).

    A rigid job runs on what it asked for. A moldable job's processors are chosen by the scheduler at the
    start, a malleable job's at any time. An evolving job asks for others while it runs, and the scheduler
    grants them or not.
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
        Whose it is, which part of the machine it asks for and the quality of service it is submitted under;
        empty where its log does not say, or where nobody asked for it (`SchedulingPolicy.looks_at`).
    priority
        The larger, the more urgent, for a policy that looks at `priority`; else 0.
    exclusive
        Whether it shares its nodes with no other job: it leaves too little of their memory or GPUs.
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
        Running jobs into whose nodes it moves (SD-Policy). Each keeps its nodes and gives up
        `share` of the cores of every one of them until the guest ends.
    share
        Part of every shared node that the guest gets, in (0, 1).
    node_ids
        Numbers of the free nodes it gets; empty: any.
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
    """Move a running job to other nodes, as many as it has, and say why."""

    job: int
    nodes: frozenset[int]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Reserve:
    """Promise a waiting job its nodes from a time on.

    The state keeps the promise (`ClusterState.reservations`) and there is a pass at that time; the job has
    to be started then by a decision of its own.
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
    """Let there be a pass at a time, for whatever the policy expects then."""

    time: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Say why a job waits, and until when it will at the latest guess; nothing follows from it.

    Attributes
    ----------
    until
        Seconds; None: the policy cannot tell.
    """

    job: int
    reason: str
    until: float | None = None


Decision = Start | Resize | Migrate | Reserve | Reject | Requeue | Hold | Wake | Wait
