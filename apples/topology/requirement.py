"""`Requirement`: what a job asks of one host's CPUs, checked; what the allocator answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from apples.errors import UsageError
from apples.topology.cpus import MOST_CPUS, NO_CPUS, CpuSet


class CpusetType(StrEnum):
    """CPUSET_TYPE: a set made for the job, one the administrator made, or none at all."""

    DYNAMIC = "dynamic"
    STATIC = "static"
    NONE = "none"


class Placement(StrEnum):
    """Which of the CPUs that would do: the nearest to each other, the first, or the most spread out."""

    BEST = "best"
    FIRST = "first"
    SPREAD = "spread"


class CpusetOption(StrEnum):
    """CPUSET_OPTIONS: what the execution plug-in is to enforce."""

    EXCLUSIVE = "CPUSET_CPU_EXCLUSIVE"
    MEMORY_LOCAL = "CPUSET_MEMORY_LOCAL"
    MEMORY_MANDATORY = "CPUSET_MEMORY_MANDATORY"


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a job asks for on one host. A value; makes sense without knowing any host.

    Attributes
    ----------
    count
        CPUs asked for (``-n``); with `whole_cores` rounded up to whole cores.
    cpus
        CPU_LIST: the CPUs to choose from; None: any.
    max_radius
        MAX_RADIUS: hops; rather wait than exceed it. None: any.
    max_cpus_per_node
        MAX_CPU_PER_NODE: of each memory node; None: any number.
    whole_cores
        WHOLE_CORES: only cores that are free as a whole, and those entirely.
    placement
        PLACEMENT.
    memory
        MEM_LIST: the memory nodes the job is to use; None: those local to its CPUs.
    options
        CPUSET_OPTIONS.
    kind, name
        CPUSET_TYPE and CPUSET_NAME: the name of the set to run in, if it is a static one.
    same_cpus_on_resume
        RESUME_OPTION=ORIG_CPUS: a suspended job comes back to the CPUs it had, or waits.

    Raises
    ------
    UsageError
        It contradicts itself on every host. Permanent.

    Examples
    --------
    >>> Requirement(32, cpus=CpuSet.parse("24-39,48-53"))
    Traceback (most recent call last):
    apples.errors.UsageError: CPU_LIST holds 22 CPUs, -n asks 32
    """

    count: int = 1
    cpus: CpuSet | None = None
    max_radius: float | None = None
    max_cpus_per_node: int | None = None
    whole_cores: bool = False
    placement: Placement = Placement.BEST
    memory: CpuSet | None = None
    options: frozenset[CpusetOption] = frozenset()
    kind: CpusetType = CpusetType.DYNAMIC
    name: str = ""
    same_cpus_on_resume: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_CPUS:
            raise UsageError(f"-n asks {self.count} CPUs, it must be 1 to {MOST_CPUS}")
        if self.cpus is not None and len(self.cpus) < self.count:
            raise UsageError(f"CPU_LIST holds {len(self.cpus)} CPUs, -n asks {self.count}")
        if self.max_radius is not None and not 0 <= self.max_radius < float("inf"):
            raise UsageError(f"MAX_RADIUS is {self.max_radius}, it must be 0 or more hops")
        if self.max_cpus_per_node is not None and self.max_cpus_per_node < 1:
            raise UsageError(
                f"MAX_CPU_PER_NODE is {self.max_cpus_per_node}, it must be at least 1"
            )
        if self.name and self.kind is not CpusetType.STATIC:
            raise UsageError(f"CPUSET_NAME={self.name} needs CPUSET_TYPE=static, not {self.kind}")
        if self.kind is CpusetType.STATIC and not self.name:
            raise UsageError("CPUSET_TYPE=static needs CPUSET_NAME")


class Satisfiability(StrEnum):
    """Whether a host can satisfy a requirement."""

    YES = "yes"
    NOT_NOW = "not now"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Fit:
    """The CPUs a job gets.

    Attributes
    ----------
    cpus
        As many as asked, or more where whole cores are asked.
    radius
        Hops from the centre to the farthest.
    centre
        The CPU among them from which that holds.
    total
        Sum of hops over all pairs.
    memory
        Memory nodes: those asked for, else those local to the CPUs.
    """

    cpus: CpuSet
    radius: float
    centre: int
    total: float
    memory: CpuSet = NO_CPUS


@dataclass(frozen=True, slots=True)
class Unsatisfied:
    """Why a host cannot satisfy a requirement: one primary reason.

    Attributes
    ----------
    verdict
        Not now, or never: whatever ends, this host as it is will not do.
    reason
        A clause with both numbers in it.
    found, needed
        The numbers compared.
    key
        The key of the requirement that stands in the way; ``-n`` for the count alone.
    """

    verdict: Satisfiability
    reason: str
    found: float
    needed: float
    key: str
