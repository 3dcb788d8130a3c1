"""Jobs as a scheduler sees them, and what a scheduling policy may decide about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class JobKind(StrEnum):
    """Who may change a job's processors, and when (Feitelson and Rudolph 1996).

    Rigid: nobody. Moldable: the scheduler, at the start. Malleable: the scheduler, at any time.
    Evolving: the job asks, the scheduler grants.
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
        Asked for.
    requested
        The user's estimate of the run time on `processors`, seconds.
    minimum, maximum
        Processors it can run on; both `processors` for a rigid job.
    kind
        Who may change its processors.
    """

    id: int
    submit: float
    processors: int
    requested: float
    minimum: int
    maximum: int
    kind: JobKind = JobKind.RIGID

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
    places
        Numbers of the free nodes it gets, where that matters; empty: any.
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
    """Move a running job to other nodes, as many as it has."""

    job: int
    nodes: frozenset[int]


@dataclass(frozen=True, slots=True)
class Reserve:
    """Promise a waiting job its nodes from a time on; the cluster's state keeps the promise."""

    job: int
    time: float


@dataclass(frozen=True, slots=True)
class Reject:
    """Never run a waiting job, for a reason."""

    job: int
    reason: str


Decision = Start | Resize | Migrate | Reserve | Reject
