"""`Requirement`: the CPUs that a job asks of one host, checked; and the result of the allocator.

A field of a `Requirement` names its key in ``CPUSET[KEY=value]`` and the functions that read and write its value
(`RequirementKey`). So a new key is one field here, and an entry of `FILTERS` in `apples.topology.selection` for
its effect. `apples.topology.language` parses the text.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final, TypeVar

from apples.errors import UsageError
from apples.topology.cpus import MAX_CPUS, NO_CPUS, CpuSet
from apples.topology.parts import CoreKind


class CpusetType(StrEnum):
    """CPUSET_TYPE: a set of CPUs for the job, or none."""

    DYNAMIC = "dynamic"
    NONE = "none"


class Placement(StrEnum):
    """Order of preference among usable CPUs: nearest to each other, lowest numbers, or most spread out."""

    BEST = "best"
    FIRST = "first"
    SPREAD = "spread"


class CpusetOption(StrEnum):
    """CPUSET_OPTIONS: rules that the host enforces while the job runs."""

    EXCLUSIVE = "CPUSET_CPU_EXCLUSIVE"
    MEMORY_LOCAL = "CPUSET_MEMORY_LOCAL"
    MEMORY_MANDATORY = "CPUSET_MEMORY_MANDATORY"


S = TypeVar("S", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class RequirementKey:
    """The text form of a field of a `Requirement`, in ``CPUSET[KEY=value]``.

    Attributes
    ----------
    name
        The key.
    read
        Text -> value. It raises ValueError with the condition on the text, if the text is invalid.
    write
        Value -> text that `read` turns into the same value; empty for an unset value.
    """

    name: str
    read: Callable[[str], Any]
    write: Callable[[Any], str]


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _key(
    name: str, read: Callable[[str], Any], write: Callable[[Any], str] = _text
) -> dict[str, RequirementKey]:
    """Return the metadata of a field that has a key."""
    return {"key": RequirementKey(name, read, write)}


def _word(kind: type[S], hint: str = "") -> Callable[[str], S]:
    def read(text: str) -> S:
        for member in kind:
            if text.lower() == member.value.lower():
                return member
        raise ValueError(f"must be one of {', '.join(kind)}{hint}")

    return read


def _options(text: str) -> frozenset[CpusetOption]:
    read = _word(CpusetOption)
    return frozenset(read(word.strip()) for word in text.split("|") if word.strip())


def _yes(text: str) -> bool:
    if text.upper() not in {"Y", "N"}:
        raise ValueError("must be Y or N")
    return text.upper() == "Y"


def _count(text: str) -> int:
    if not (text.isdigit() and len(text) <= 5 and 1 <= int(text) <= MAX_CPUS):
        raise ValueError(f"must be a whole number from 1 to {MAX_CPUS}")
    return int(text)


def _hops(text: str) -> float:
    try:
        hops = float(text)
    except ValueError:
        hops = -1.0
    if not 0 <= hops <= MAX_CPUS or "_" in text:
        raise ValueError("must be a number of hops, 0 or more")
    return hops


def _resume(text: str) -> bool:
    if text.upper() != "ORIG_CPUS":
        raise ValueError("must be ORIG_CPUS")
    return True


@dataclass(frozen=True, slots=True)
class HostCondition:
    """One comparison of ``select[..]``: ``ngpus>=1``, ``maxmem>=64GB``; or ``kind=performance``."""

    name: str
    comparison: str
    amount: int
    written: str = field(compare=False)
    core_kind: CoreKind | None = None

    def holds(self, have: int) -> bool:
        """Whether a host with this amount meets the condition."""
        return bool(COMPARISONS[self.comparison](have, self.amount))


COMPARISONS: Final = {
    ">=": operator.ge, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt,
    "<": operator.lt, "=": operator.eq,
}  # fmt: skip
AMOUNTS: Final = ("ngpus", "nnics", "ncpus", "ncores", "maxmem", "hbm")
"""Amounts that a condition can compare; `Topology.amounts` returns those of a machine."""
UNITS: Final = {"": 1, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_KIND = re.compile(rf"kind\s*==?\s*({'|'.join(CoreKind)})")
_CONDITION = re.compile(r"([a-z]+)\s*(>=|<=|==|!=|>|<|=)\s*([0-9]{1,15})\s*(MB|GB|TB|)")


def _conditions(text: str) -> tuple[HostCondition, ...]:
    """Return the comparisons of ``select[..]``; all must hold."""
    conditions = []
    for part in text.split("&&"):
        if kind := _KIND.fullmatch(part.strip()):
            conditions.append(HostCondition("kind", "=", 0, f"kind={kind[1]}", CoreKind(kind[1])))
            continue
        match = _CONDITION.fullmatch(part.strip())
        if match is None or match[1] not in AMOUNTS:
            raise ValueError(
                "must be comparisons such as ngpus>=1 or maxmem>=64GB, joined by &&, of "
                f"{', '.join(AMOUNTS)}, or kind={' or kind='.join(CoreKind)}"
            )
        written = "".join(match.groups())
        conditions.append(
            HostCondition(match[1], match[2], int(match[3]) * UNITS[match[4]], written)
        )
    if len({condition.core_kind for condition in conditions if condition.core_kind}) > 1:
        raise ValueError("must name one kind of core at most")
    return tuple(conditions)


_STATIC = "; enter the set of an administrator with its own tools (cgexec, systemd)"
"""Remedy of CPUSET_TYPE=static, which Smith et al. 2001 define."""


def _name(text: str) -> str:
    if len(text) > 64 or not all(c.isalnum() or c in "._-" for c in text) or not text[0].isalnum():
        raise ValueError("must be at most 64 letters, digits, '.', '_' or '-'")
    return text


CPUSET: Final = "CPUSET"
"""The name before the bracket of requirements that this package judges."""
SELECT: Final = "SELECT"
"""The key of the conditions on the whole host; written ``select[..]`` before the other keys, as in LSF."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """The CPUs that a job asks of one host. Its validity depends on no host.

    `apples.topology.parse` makes it from text. ``str`` returns text that parses to an equal requirement, without
    its `count`.

    Attributes
    ----------
    count
        CPUs asked for (``-n``); with `whole_cores` rounded up to whole cores.
    cpus
        CPU_LIST: the CPUs to choose from; None: any.
    max_radius
        MAX_RADIUS: hops; the job waits for CPUs within them. None: no limit.
    max_cpus_per_node
        MAX_CPU_PER_NODE: the most CPUs of each memory node; None: no limit.
    whole_cores
        WHOLE_CORES: use only cores that are entirely free, and all of their CPUs.
    placement
        PLACEMENT.
    memory
        MEM_LIST: the memory nodes the job uses; None: those local to its CPUs.
    options
        CPUSET_OPTIONS.
    kind
        CPUSET_TYPE.
    same_cpus_on_resume
        RESUME_OPTION=ORIG_CPUS: a suspended job returns to its earlier CPUs, or waits for them.
    select
        ``select[..]``: conditions on the whole host; with ``kind``, only CPUs of cores of that kind.
    near
        NEAR: the name of a device, or ``gpu`` or ``nic``: only CPUs local to it.
    broker
        The name before the bracket.
    foreign
        The keys and values of a broker other than ``CPUSET``; that broker parses them.
    named
        The keys that the text names, also with an empty value: they take precedence over later layers of `merge`.

    Raises
    ------
    UsageError
        The fields contradict each other on every host. Permanent.

    Examples
    --------
    >>> str(Requirement(8, cpus=CpuSet.parse("24-39,48-53"), whole_cores=True))
    'CPUSET[CPU_LIST=24-39,48-53;WHOLE_CORES=Y]'
    >>> Requirement(32, cpus=CpuSet.parse("24-39,48-53"))
    Traceback (most recent call last):
    apples.errors.UsageError: CPU_LIST holds 22 CPUs, -n asks 32
    """

    count: int = 1
    cpus: CpuSet | None = field(default=None, metadata=_key("CPU_LIST", CpuSet.parse))
    max_radius: float | None = field(default=None, metadata=_key("MAX_RADIUS", _hops))
    max_cpus_per_node: int | None = field(default=None, metadata=_key("MAX_CPU_PER_NODE", _count))
    whole_cores: bool = field(
        default=False, metadata=_key("WHOLE_CORES", _yes, lambda yes: "Y" if yes else "N")
    )
    placement: Placement = field(
        default=Placement.BEST, metadata=_key("PLACEMENT", _word(Placement))
    )
    memory: CpuSet | None = field(default=None, metadata=_key("MEM_LIST", CpuSet.parse))
    options: frozenset[CpusetOption] = field(
        default=frozenset(),
        metadata=_key("CPUSET_OPTIONS", _options, lambda options: "|".join(sorted(options))),
    )
    kind: CpusetType = field(
        default=CpusetType.DYNAMIC, metadata=_key("CPUSET_TYPE", _word(CpusetType, _STATIC))
    )
    same_cpus_on_resume: bool = field(
        default=False,
        metadata=_key("RESUME_OPTION", _resume, lambda same: "ORIG_CPUS" if same else ""),
    )
    select: tuple[HostCondition, ...] = field(
        default=(),
        metadata=_key(SELECT, _conditions, lambda select: " && ".join(c.written for c in select)),
    )
    near: str = field(default="", metadata=_key("NEAR", _name))
    broker: str = CPUSET
    foreign: tuple[tuple[str, str], ...] = ()
    named: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def core_kind(self) -> CoreKind | None:
        """The kind of core that ``select[kind=..]`` names."""
        kinds = (condition.core_kind for condition in self.select)
        return next((kind for kind in kinds if kind), None)

    @property
    def keys(self) -> dict[str, str]:
        """The keys that are set, with the text of their values."""
        return {key: text for key, text in self._texts() if text}

    @property
    def named_keys(self) -> set[str]:
        """The keys of ``CPUSET[...]`` that are named or set."""
        return {
            key
            for key, (name, _) in KEYS.items()
            if key in self.named or getattr(self, name) != DEFAULTS[name]
        }

    def _texts(self) -> Iterator[tuple[str, str]]:
        """Yield each key that is named or set, with the text of its value."""
        yield from self.foreign
        named = self.named_keys
        for key, (name, form) in KEYS.items():
            if key in named:
                yield key, form.write(getattr(self, name))

    def __str__(self) -> str:
        """Return the text that `apples.topology.parse` reads as this requirement."""
        texts = dict(self._texts())
        select = f"select[{texts.pop(SELECT)}] " if SELECT in texts else ""
        return f"{select}{self.broker}[{';'.join(f'{key}={text}' for key, text in texts.items())}]"

    def __post_init__(self) -> None:
        for key, value, low, high in (
            ("-n", self.count, 1, MAX_CPUS),
            ("MAX_RADIUS", self.max_radius, 0, MAX_CPUS),
            ("MAX_CPU_PER_NODE", self.max_cpus_per_node, 1, MAX_CPUS),
        ):
            if value is not None and not low <= value <= high:
                raise UsageError(
                    f"{key} must be {low} to {high} (got {value})",
                    code="value-range",
                    field=key,
                    value=value,
                    bound=[low, high],
                )
        if self.cpus is not None and len(self.cpus) < self.count:
            raise UsageError(
                f"CPU_LIST holds {len(self.cpus)} CPUs, -n asks {self.count}",
                code="cpu-list-too-short",
                field="CPU_LIST",
                value=len(self.cpus),
                needed=self.count,
            )


KEYS: Final[Mapping[str, tuple[str, RequirementKey]]] = {
    attribute.metadata["key"].name: (attribute.name, attribute.metadata["key"])
    for attribute in fields(Requirement)
    if "key" in attribute.metadata
}
"""Key -> the field of a `Requirement` that it becomes, and its text form."""
DEFAULTS: Final = {attribute.name: attribute.default for attribute in fields(Requirement)}


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
        As many CPUs as requested, or more with whole cores.
    radius
        Hops from the centre to the farthest of the CPUs.
    centre
        The CPU among them that has this radius.
    total
        Sum of hops over all pairs.
    memory
        Memory nodes: the requested nodes, else those local to the CPUs.
    devices
        Names of the GPUs and network interfaces that are local to one of the CPUs.
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
        Not now, or never: no end of a job makes this host suitable.
    reason
        A clause that includes both numbers.
    found, needed
        The numbers compared.
    key
        The key of the requirement that is not met; ``-n`` for the count alone.
    """

    verdict: Satisfiability
    reason: str
    found: float
    needed: float
    key: str
