"""Imaginary machines: from a description such as ``package:2 core:8 pu:2``, or an SGI Origin 3000.

The Origin is the machine of Smith et al. 2001. A memory node has four CPUs, a router joins four nodes, and the
routers are the corners of a hypercube. So nodes of one router are one router apart; others are the number of
edges between their routers plus one apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from apples.errors import UsageError
from apples.topology.cpus import MAX_CPUS
from apples.topology.machine import Topology
from apples.topology.parts import Latencies, MemoryNode, Part

_ATTRIBUTES = r"(?:\((?P<{}>[^()\[\]]*)\))?"
_LEVEL = re.compile(
    rf"\[(?P<attached>numa\w*){_ATTRIBUTES.format('memory')}\]"
    rf"|(?P<kind>[a-z]\w*)(?::(?P<count>\d{{1,6}}))?{_ATTRIBUTES.format('attributes')}",
    re.IGNORECASE | re.ASCII,
)
_WORD = re.compile(r"(?:\([^()]*\)|\S)+")
"""A level; spaces inside its parentheses belong to it."""
_STEP = re.compile(r"([0-9]{1,5})\*([0-9]{1,5})")
_SIZE = re.compile(r"([0-9]{1,18})([kMGT]i?B|B|)")
_KINDS = (
    ("pu", "PU"),
    ("core", "Core"),
    ("die", "Die"),
    ("pack", "Package"),
    ("socket", "Package"),
    ("group", "Group"),
    ("numa", "NUMANode"),
    ("node", "NUMANode"),
)
MAX_LEVELS = 32
_FORM = "it must be levels such as 'package:2 numa:2 l3:1 core:8 pu:2', outermost first, CPUs last"


@dataclass(slots=True)
class _Level:
    kind: str
    count: int
    attached: list[dict[str, str]] = field(default_factory=list)
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Builder:
    levels: list[_Level]
    cpus: list[int]
    next_cpu: int = 0
    nodes: list[MemoryNode] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def build(self, depth: int) -> Part:
        level = self.levels[depth]
        number = self.numbers.get(level.kind, 0)
        self.numbers[level.kind] = number + 1
        if level.kind == "PU":
            self.next_cpu += 1
            cpu = self.cpus[self.next_cpu - 1]
            return Part("PU", cpu, 1 << cpu)
        below = self.levels[depth + 1]
        inside = tuple(self.build(depth + 1) for _ in range(below.count))
        cpus = sum(part.cpus for part in inside)
        for attributes in level.attached:
            self.nodes.append(
                MemoryNode(len(self.nodes), cpus, _bytes(attributes.get("memory", "")))
            )
        # By lowest CPU, as everywhere; with indexes, the description has another order.
        return Part(
            level.kind, number, cpus, tuple(sorted(inside, key=lambda p: p.cpus & -p.cpus))
        )


def synthetic(description: str) -> Topology:
    """Return the machine of a string in the language of hwloc's synthetic topologies.

    A ``numa`` level is a group with a memory node; ``[numa]`` attaches a node to each part of the level
    before. The machine has no latency matrix: distances are heights in the tree. Of hwloc's attributes,
    ``pu:2(indexes=..)`` numbers the CPUs and ``numa(memory=..)`` gives a size; the others are ignored.

    Raises
    ------
    UsageError
        The string is invalid; the message has the invalid word. Permanent.

    Examples
    --------
    >>> machine = synthetic("pack:2 [numa] l3:2 core:4 pu:2")
    >>> len(machine.cpus), len(machine.cores), len(machine.nodes), machine.hops(0, 8)
    (32, 16, 2, 3.0)
    """
    levels = _levels(description)
    if levels[-1].kind != "PU":
        raise UsageError(
            f"topology '{description[:60]}': the last level is not pu: {_FORM}",
            code="topology-invalid",
            value=levels[-1].kind,
        )
    cpus, parts = 1, 0
    for level in levels:
        cpus *= level.count
        parts += cpus
    if not 1 <= cpus <= MAX_CPUS or parts > 4 * MAX_CPUS:
        raise UsageError(
            f"topology '{description[:60]}': {cpus} CPUs in {parts} parts, at most {MAX_CPUS} in "
            f"{4 * MAX_CPUS}",
            code="value-range",
            field="cpus",
            value=cpus,
            bound=MAX_CPUS,
        )
    if not any(level.attached for level in levels):
        levels[0].attached = [{}]
    builder = _Builder(levels, _numbers(levels[-1].attributes.get("indexes", ""), cpus))
    root = builder.build(0)
    return Topology(root, tuple(builder.nodes), name=description)


def _levels(description: str) -> list[_Level]:
    """Return the levels of a description, the machine first."""
    if len(description) > 4096:
        raise UsageError(
            f"topology of {len(description)} characters: at most 4096 are read",
            code="value-too-long",
            value=len(description),
            bound=4096,
        )
    levels = [_Level("Machine", 1)]
    for word in _WORD.findall(description):
        found = _LEVEL.fullmatch(word)
        kind = _kind(found["kind"] or "numa") if found else ""
        count = int(found["count"] or 1) if found else 0
        if not kind or count < 1 or len(levels) > MAX_LEVELS or levels[-1].kind == "PU":
            raise UsageError(
                f"topology '{description[:60]}': '{word[:30]}' is not a level: {_FORM}",
                code="topology-invalid",
                value=word[:30],
            )
        if found and found["attached"]:
            levels[-1].attached.append(_attributes(found["memory"]))
        elif found and kind == "NUMANode":
            levels.append(_Level("Group", count, attached=[_attributes(found["attributes"])]))
        elif found and kind != "Machine":
            levels.append(_Level(kind, count, attributes=_attributes(found["attributes"])))
    return levels


def _attributes(text: str | None) -> dict[str, str]:
    """Return the attributes of a level, as ``size=32768 indexes=0,2,1,3``."""
    pairs = (word.partition("=") for word in (text or "").split())
    return {name: value for name, _, value in pairs}


def _numbers(text: str, count: int) -> list[int]:
    """Return the numbers of the CPUs, in the order of the description: a list, or steps such as ``2*4:1*2``."""
    numbers = list(range(count))
    if not text:
        return numbers
    words = text.split(",")
    if all(word.isascii() and word.isdigit() and len(word) <= 5 for word in words):
        numbers = [int(word) for word in words]
    elif all(steps := [_STEP.fullmatch(word) for word in text.split(":")]):
        numbers, factor = [0] * count, 1
        for step, times in ((int(found[1]), int(found[2])) for found in steps if found):
            for i in range(count) if step and times else ():
                numbers[i] += i // step % times * factor
            factor *= times
    else:
        numbers = []
    if len(set(numbers)) != count or len(numbers) != count or max(numbers) >= MAX_CPUS:
        raise UsageError(
            f"topology: indexes='{text[:40]}' must number {count} CPUs, each once: as 0,2,1,3 or 2*2:1*2",
            code="topology-invalid",
            value=text[:40],
        )
    return numbers


def _bytes(text: str) -> int | None:
    """Return an amount in hwloc's form in bytes; None if it is unreadable. The machine works without it."""
    found = _SIZE.fullmatch(text)
    if not found:
        return None
    power = "BkMGT".index((found[2] or "B")[0])
    base: int = 1024 if "i" in found[2] else 1000
    return int(found[1]) * int(base**power)


def _kind(name: str) -> str:
    word = name.lower()
    if word.startswith("machine"):
        return "Machine"
    cache = re.fullmatch(r"l([1-5])([di]?)(cache)?", word)
    if cache:
        return f"L{cache[1]}{cache[2]}Cache"
    return next((kind for start, kind in _KINDS if word.startswith(start)), "")


CPUS_PER_NODE = 4
NODES_PER_ROUTER = 4
LOCAL, PER_ROUTER = 10, 6
"""Relative latency inside a node, and the increment of each router (10, 16, 22, ...)."""


def origin(cpus: int = 128) -> Topology:
    """Return an Origin with `cpus` CPUs: a power of two, at least 16.

    Examples
    --------
    >>> machine = origin(128)
    >>> len(machine.cpus), len(machine.nodes), machine.latencies.distinct
    (128, 32, (10, 16, 22, 28, 34))
    >>> machine.hops(0, 4), machine.hops(0, 127)
    (1.0, 4.0)
    """
    if cpus < CPUS_PER_NODE * NODES_PER_ROUTER or cpus & (cpus - 1) or cpus > 4096:
        raise UsageError(
            f"an Origin of {cpus} CPUs: must be a power of two from 16 to 4096",
            code="value-range",
            field="cpus",
            value=cpus,
            bound=[16, 4096],
        )
    count = cpus // CPUS_PER_NODE
    nodes = tuple(MemoryNode(i, _mask(i)) for i in range(count))
    values = tuple(tuple(_latency(a, b) for b in range(count)) for a in range(count))
    parts = tuple(Part("Group", i, _mask(i), _cores(i)) for i in range(count))
    root = Part("Machine", 0, (1 << cpus) - 1, parts)
    return Topology(root, nodes, Latencies(tuple(range(count)), values), name=f"origin {cpus}")


def _mask(node: int) -> int:
    return ((1 << CPUS_PER_NODE) - 1) << node * CPUS_PER_NODE


def _cores(node: int) -> tuple[Part, ...]:
    first = node * CPUS_PER_NODE
    return tuple(
        Part("Core", cpu, 1 << cpu, (Part("PU", cpu, 1 << cpu),))
        for cpu in range(first, first + CPUS_PER_NODE)
    )


def _latency(a: int, b: int) -> int:
    if a == b:
        return LOCAL
    edges = (a // NODES_PER_ROUTER ^ b // NODES_PER_ROUTER).bit_count()
    return LOCAL + PER_ROUTER * (1 + edges)
