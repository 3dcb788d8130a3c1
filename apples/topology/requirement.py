"""`Requirement`: what a job asks of one host's CPUs, checked; and what the allocator answers.

A field of a `Requirement` also says by which key of ``CPUSET[KEY=value]`` it is written (`RequirementKey`), so a
new key is one field here, and its effect an entry of `FILTERS` in `apples.topology.selection`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeVar

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


S = TypeVar("S", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class RequirementKey:
    """How a field of a `Requirement` stands in ``CPUSET[KEY=value]``.

    Attributes
    ----------
    name
        The key.
    read
        Text -> value; ValueError, with what the text must be, where it is none.
    """

    name: str
    read: Callable[[str], Any]


def _key(name: str, read: Callable[[str], Any]) -> dict[str, RequirementKey]:
    """Return the metadata of a field that is written by a key."""
    return {"key": RequirementKey(name, read)}


def _word(kind: type[S]) -> Callable[[str], S]:
    def read(text: str) -> S:
        for member in kind:
            if text.lower() == member.value.lower():
                return member
        raise ValueError(f"must be one of {', '.join(kind)}")

    return read


def _options(text: str) -> frozenset[CpusetOption]:
    read = _word(CpusetOption)
    return frozenset(read(word.strip()) for word in text.split("|") if word.strip())


def _yes(text: str) -> bool:
    if text.upper() not in {"Y", "N"}:
        raise ValueError("must be Y or N")
    return text.upper() == "Y"


def _count(text: str) -> int:
    if not (text.isdigit() and len(text) <= 5 and 1 <= int(text) <= MOST_CPUS):
        raise ValueError(f"must be a whole number from 1 to {MOST_CPUS}")
    return int(text)


def _hops(text: str) -> float:
    try:
        hops = float(text)
    except ValueError:
        hops = -1.0
    if not 0 <= hops <= MOST_CPUS or "_" in text:
        raise ValueError("must be a number of hops, 0 or more")
    return hops


def _resume(text: str) -> bool:
    if text.upper() != "ORIG_CPUS":
        raise ValueError("must be ORIG_CPUS")
    return True


@dataclass(frozen=True, slots=True)
class HostCondition:
    """One comparison of ``select[..]``: ``ngpus>=1``, ``maxmem>=64GB``."""

    name: str
    comparison: str
    amount: int
    written: str = field(compare=False)

    def holds(self, have: int) -> bool:
        """Whether a host that has so much will do."""
        return bool(COMPARISONS[self.comparison](have, self.amount))


COMPARISONS: Final = {
    ">=": operator.ge, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt,
    "<": operator.lt, "=": operator.eq,
}  # fmt: skip
AMOUNTS: Final = ("ngpus", "nnics", "ncpus", "ncores", "maxmem", "hbm")
"""What can be compared; `Topology.amounts` says how much of each a machine has."""
UNITS: Final = {"": 1, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_CONDITION = re.compile(r"([a-z]+)\s*(>=|<=|==|!=|>|<|=)\s*([0-9]{1,15})\s*(MB|GB|TB|)")


def _conditions(text: str) -> tuple[HostCondition, ...]:
    """Return the comparisons of ``select[..]``, which must all hold."""
    found = []
    for part in text.split("&&"):
        match = _CONDITION.fullmatch(part.strip())
        if match is None or match[1] not in AMOUNTS:
            raise ValueError(
                f"must be comparisons such as ngpus>=1 or maxmem>=64GB, joined by &&, of {', '.join(AMOUNTS)}"
            )
        written = "".join(match.groups())
        found.append(HostCondition(match[1], match[2], int(match[3]) * UNITS[match[4]], written))
    return tuple(found)


def _name(text: str) -> str:
    if len(text) > 64 or not all(c.isalnum() or c in "._-" for c in text) or not text[0].isalnum():
        raise ValueError("must be at most 64 letters, digits, '.', '_' or '-'")
    return text


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
    select
        ``select[..]``: what the host as a whole must have.
    near
        NEAR: the name of a device, or ``gpu`` or ``nic``: only CPUs local to it.

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
    cpus: CpuSet | None = field(default=None, metadata=_key("CPU_LIST", CpuSet.parse))
    max_radius: float | None = field(default=None, metadata=_key("MAX_RADIUS", _hops))
    max_cpus_per_node: int | None = field(default=None, metadata=_key("MAX_CPU_PER_NODE", _count))
    whole_cores: bool = field(default=False, metadata=_key("WHOLE_CORES", _yes))
    placement: Placement = field(
        default=Placement.BEST, metadata=_key("PLACEMENT", _word(Placement))
    )
    memory: CpuSet | None = field(default=None, metadata=_key("MEM_LIST", CpuSet.parse))
    options: frozenset[CpusetOption] = field(
        default=frozenset(), metadata=_key("CPUSET_OPTIONS", _options)
    )
    kind: CpusetType = field(
        default=CpusetType.DYNAMIC, metadata=_key("CPUSET_TYPE", _word(CpusetType))
    )
    name: str = field(default="", metadata=_key("CPUSET_NAME", _name))
    same_cpus_on_resume: bool = field(default=False, metadata=_key("RESUME_OPTION", _resume))

    select: tuple[HostCondition, ...] = field(default=(), metadata=_key("SELECT", _conditions))
    near: str = field(default="", metadata=_key("NEAR", _name))

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_CPUS:
            raise UsageError(
                f"-n asks {self.count} CPUs, it must be 1 to {MOST_CPUS}",
                code="value-range",
                field="-n",
                value=self.count,
                bound=MOST_CPUS,
            )
        if self.cpus is not None and len(self.cpus) < self.count:
            raise UsageError(
                f"CPU_LIST holds {len(self.cpus)} CPUs, -n asks {self.count}",
                code="cpu-list-too-short",
                field="CPU_LIST",
                value=len(self.cpus),
                needed=self.count,
            )
        if self.max_radius is not None and not 0 <= self.max_radius < float("inf"):
            raise UsageError(
                f"MAX_RADIUS is {self.max_radius}, it must be 0 or more hops",
                code="value-range",
                field="MAX_RADIUS",
                value=self.max_radius,
                bound=0,
            )
        if self.max_cpus_per_node is not None and self.max_cpus_per_node < 1:
            raise UsageError(
                f"MAX_CPU_PER_NODE is {self.max_cpus_per_node}, it must be at least 1",
                code="value-range",
                field="MAX_CPU_PER_NODE",
                value=self.max_cpus_per_node,
                bound=1,
            )
        if self.name and self.kind is not CpusetType.STATIC:
            raise UsageError(
                f"CPUSET_NAME={self.name} needs CPUSET_TYPE=static, not {self.kind}",
                code="field-conflict",
                field="CPUSET_NAME",
                value=self.name,
            )
        if self.kind is CpusetType.STATIC and not self.name:
            raise UsageError(
                "CPUSET_TYPE=static needs CPUSET_NAME", code="field-missing", field="CPUSET_NAME"
            )


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
    devices
        Names of the GPUs and network interfaces that are local to a CPU among them.
    """

    cpus: CpuSet
    radius: float
    centre: int
    total: float
    memory: CpuSet = NO_CPUS
    devices: tuple[str, ...] = ()


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
