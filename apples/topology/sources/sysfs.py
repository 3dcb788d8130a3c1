"""Reads a topology from the Linux kernel's files in ``/sys/devices/system``, without other tools or libraries."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from apples.errors import LaunchError, UsageError
from apples.topology.cpus import MAX_CPUS, NO_CPUS, CpuSet
from apples.topology.machine import Topology, restricted
from apples.topology.parts import NO_LATENCIES, CoreKind, Latencies, MemoryNode, Part
from apples.topology.sources.core_kinds import kinds_by_rank
from apples.topology.sources.elements import MAX_DEPTH
from apples.topology.sources.probe import SCHEMA

SYSTEM = Path("/sys/devices/system")
_SHARED = (  # names of Linux 5.3 and later, then older names
    ("Package", ("package_cpus", "core_siblings"), "physical_package_id"),
    ("Die", ("die_cpus",), "die_id"),
    ("Core", ("core_cpus", "thread_siblings"), "core_id"),
)
_CACHES = tuple(f"L{level}{i}Cache" for level in (4, 3, 2, 1) for i in ("", "i"))
_ORDER = ("Package", "Group", "Die", *_CACHES, "Core")
_MAX_CACHES = 16
MAX_CROSSING = 16 * MAX_CPUS
"""Limit of CPUs in groups that cross others, each of which takes a comparison. A kernel with one group of each
kind for a CPU stays below."""


def read_sysfs(system: Path = SYSTEM) -> Topology:
    """Return the machine in the kernel's files: all CPUs that are online.

    Parameters
    ----------
    system
        The folder that contains ``cpu`` and ``node``.

    Raises
    ------
    LaunchError
        The files are missing. Permanent on this machine.
    """
    return described(_FilesBelow(system), str(system))


class _FilesBelow(Mapping[str, str]):
    """The contents of files below a folder, by relative path; unreadable files count as missing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, name: str) -> str:
        try:
            return (self._folder / name).read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError):
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return (str(one.relative_to(self._folder)) for one in self._folder.rglob("*"))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def described(files: Mapping[str, str], name: str) -> Topology:
    """Return the machine of the kernel's files, given by their paths below ``/sys/devices/system``.

    Raises
    ------
    LaunchError
        The files list no CPU, or nest deeper than `MAX_DEPTH`.
    """
    online = _numbered(files, "cpu")
    if not online:
        raise LaunchError(
            f"{name}/cpu names no CPU: /sys of a Linux kernel is required",
            code="kernel-files-missing",
            file=f"{name}/cpu",
        )
    everything = _list(files, "cpu/present") | online
    groups: dict[tuple[str, int], int] = {}
    for cpu in online:
        for kind, number, shared in _groups(files, f"cpu/cpu{cpu}"):
            if kind != "Die" or (
                number >= 0 and ("Package", (shared & online).mask) not in groups
            ):
                groups.setdefault((kind, (shared & online).mask), number)
    nodes = tuple(_nodes(files, online)) or (MemoryNode(0, online.mask),)
    for node in nodes:
        if node.cpus and node.cpus != online.mask:
            groups.setdefault(("Group", node.cpus), node.number)
    root = _nested(online.mask, groups, name)
    latencies = _latencies(files, nodes)
    kinds = _core_kinds(files, online)
    return Topology(root, nodes, latencies, offline=everything - online, name=name, kinds=kinds)


def _core_kinds(files: Mapping[str, str], online: CpuSet) -> Mapping[CoreKind, int]:
    """Return the kinds of cores: by the kernel's performance counters for each kind, else by capacity."""
    units = ((1, "core"), (0, "atom"), (0, "lowpower"))
    ranked = [(rank, (_list(files, f"../cpu_{kind}/cpus") & online).mask) for rank, kind in units]
    if ranked[0][1]:
        return kinds_by_rank(ranked)
    capacities = [(_number(files, f"cpu/cpu{cpu}/cpu_capacity"), 1 << cpu) for cpu in online]
    return kinds_by_rank(capacities) if all(rank > 0 for rank, _ in capacities) else {}


def _groups(files: Mapping[str, str], folder: str) -> Iterator[tuple[str, int, CpuSet]]:
    """Yield the groups that a CPU shares with others: kind, number, CPUs."""
    for kind, names, number in _SHARED:
        lists = [cpus for name in names if (cpus := _cpus(files, f"{folder}/topology/{name}"))]
        if lists:
            yield kind, _number(files, f"{folder}/topology/{number}"), lists[0]
    for index in range(_MAX_CACHES):
        cache = f"{folder}/cache/index{index}"
        level = _text(files, f"{cache}/level")
        if not level:
            return
        instruction = "i" if _text(files, f"{cache}/type") == "Instruction" else ""
        kind = f"L{level}{instruction}Cache"
        if kind in _CACHES:
            yield kind, index, _cpus(files, f"{cache}/shared_cpu")


def _nested(online: int, groups: Mapping[tuple[str, int], int], name: str) -> Part:
    """Return the tree of nested groups; a group that crosses an earlier group is left out.

    If groups cross, packages, cores and memory nodes come first.
    """
    chains: dict[int, list[int]] = {
        cpu: [] for cpu in CpuSet(online)
    }  # for each CPU, the groups that contain it
    inside: list[tuple[int, str, int]] = []
    crossing = 0
    trusted = ("Package", "Core", "Group")
    for (kind, mask), number in sorted(groups.items(), key=lambda g: g[0][0] not in trusted):
        if any(mask & ~m and m & ~mask for cpu in CpuSet(mask) for m in chains[cpu]):
            crossing += mask.bit_count()
            if crossing > MAX_CROSSING:
                raise LaunchError(
                    f"{name}: its cpu folders name groups that cross others, with over {MAX_CROSSING} CPUs",
                    code="kernel-files-crossing",
                    file=name,
                    bound=MAX_CROSSING,
                )
            continue
        for cpu in CpuSet(mask):
            chains[cpu].append(mask)
            if len(chains[cpu]) >= MAX_DEPTH:
                raise LaunchError(
                    f"{name}: its cpu folders name parts nested deeper than {MAX_DEPTH}",
                    code="kernel-files-too-deep",
                    file=name,
                    bound=MAX_DEPTH,
                )
        if mask:
            inside.append((mask, kind, number))
    inside.sort(key=lambda group: (-group[0].bit_count(), _ORDER.index(group[1])))
    root = _Group("Machine", None, online)
    innermost = dict.fromkeys(CpuSet(online), root)
    for mask, kind, number in inside:
        outer = innermost[(mask & -mask).bit_length() - 1]
        if outer.kind != "Core":  # a core contains only CPUs
            group = _Group(kind, number, mask)
            outer.inside.append(group)
            innermost.update(dict.fromkeys(CpuSet(mask), group))
    return root.part()


@dataclass(slots=True)
class _Group:
    """A part during the collection of the parts inside it."""

    kind: str
    number: int | None
    cpus: int
    inside: list[_Group] = field(default_factory=list)

    def part(self) -> Part:
        """Return the part, with the CPUs outside all parts inside it."""
        left = self.cpus & ~sum(group.cpus for group in self.inside)
        parts = [group.part() for group in self.inside]
        parts += [Part("PU", cpu, 1 << cpu) for cpu in CpuSet(left)]
        parts.sort(key=lambda part: part.cpus & -part.cpus)
        return Part(self.kind, self.number, self.cpus, tuple(parts))


def _nodes(files: Mapping[str, str], online: CpuSet) -> Iterator[MemoryNode]:
    for number in _numbered(files, "node"):
        place = f"node/node{number}"
        lines = _text(files, f"{place}/meminfo").splitlines()
        kib = [line.split() for line in lines if "MemTotal" in line]
        size = int(kib[0][-2]) * 1024 if kib and kib[0][-2:-1] and _whole(kib[0][-2]) else None
        yield MemoryNode(number, (_cpus(files, f"{place}/cpu") & online).mask, size)


def _latencies(files: Mapping[str, str], nodes: tuple[MemoryNode, ...]) -> Latencies:
    if len(nodes) < 2:
        return NO_LATENCIES
    rows = [_text(files, f"node/node{node.number}/distance").split() for node in nodes]
    if any(len(row) != len(nodes) or not all(map(_whole, row)) for row in rows):
        return NO_LATENCIES
    return Latencies(
        tuple(node.number for node in nodes), tuple(tuple(int(w) for w in row) for row in rows)
    )


def _numbered(files: Mapping[str, str], name: str) -> CpuSet:
    """Return the numbers of the CPUs or nodes that are online; on an old kernel, from the folders."""
    online = _list(files, f"{name}/online")
    if online:
        return online
    below = "topology/" if name == "cpu" else ""
    folder = re.compile(rf"{name}/{name}([0-9]{{1,5}})/{below}.")
    numbers = {int(found[1]) for file in files if (found := folder.match(file))}
    return CpuSet.of(n for n in numbers if _text(files, f"{name}/{name}{n}/online") != "0")


def _cpus(files: Mapping[str, str], name: str) -> CpuSet:
    """Return a set of CPUs that the kernel writes as a list, or in old versions as a bitmap."""
    for each in (f"{name}_list", f"{name}list"):
        if found := _list(files, each):
            return found
    texts = (_text(files, each) for each in (name, f"{name}_map", f"{name}map"))
    words = next((text for text in texts if text), "").split(",")
    try:
        return CpuSet(int("".join(word.rjust(8, "0") for word in words) or "0", 16))
    except (ValueError, UsageError):
        return NO_CPUS


def _list(files: Mapping[str, str], name: str) -> CpuSet:
    try:
        return CpuSet.parse(_text(files, name))
    except UsageError:
        return NO_CPUS


def _number(files: Mapping[str, str], name: str) -> int:
    text = _text(files, name)
    return int(text) if _whole(text) else -1


def _whole(text: str) -> bool:
    """Whether a text is an integer from 0, with no more digits than the kernel writes."""
    return text.isdigit() and len(text) <= 20


def _text(files: Mapping[str, str], name: str) -> str:
    """Return the contents of a kernel file; empty if it is missing or not ASCII."""
    text = files.get(name, "")
    return text.strip(" \t\r\n\0") if text.isascii() else ""


MAX_BYTES = 32 * 2**20
MAX_FILE = 2**16
NAME = re.compile(
    r"(cpu|node)/(online|present|(cpu|node)[0-9]{1,5}/((topology|cache/index[0-9]{1,2})/)?[a-z_]{1,40})"
    r"|\.\./cpu_(core|atom|lowpower)/cpus"
)
"""Paths of the kernel's files that are read."""


def read_packed(word: str, host: str) -> Topology:
    """Return a host's topology from the output of `probe.packed` there.

    Raises
    ------
    LaunchError
        As of `read_probe`.
    """
    try:
        text = zlib.decompressobj().decompress(
            base64.b64decode(word, validate=True), MAX_BYTES + 1
        )
    except (ValueError, zlib.error) as error:
        raise LaunchError(
            f"{host}: no answer of the topology probe: {error}",
            code="topology-answer-invalid",
            host=host,
        ) from error
    return read_probe(text, host)


def read_probe(text: str | bytes, host: str) -> Topology:
    """Return a host's topology from the probe's output there, restricted to the CPUs and memory it may use.

    Raises
    ------
    LaunchError
        The text is no output of the probe; the message names the host.
    """
    if len(text) > MAX_BYTES:
        raise LaunchError(
            f"{host}: its topology takes {len(text)} bytes, at most {MAX_BYTES}",
            code="topology-answer-invalid",
            host=host,
            value=len(text),
            bound=MAX_BYTES,
        )
    try:
        document = json.loads(text)
        schema = document["schema"]
        cpus, memory = CpuSet.of(document["cpus"]), CpuSet.parse(document["memory"])
        files = {str(name): str(held) for name, held in document["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, UsageError) as error:
        raise LaunchError(
            f"{host}: no answer of the topology probe: {error}",
            code="topology-answer-invalid",
            host=host,
        ) from error
    if schema != SCHEMA:
        raise LaunchError(
            f"{host}: the topology probe answers {SCHEMA}, not '{str(schema)[:30]}'",
            code="topology-answer-invalid",
            host=host,
            field="schema",
            value=str(schema)[:30],
        )
    wrong = [
        name for name, held in files.items() if not NAME.fullmatch(name) or len(held) > MAX_FILE
    ]
    if wrong:
        raise LaunchError(
            f"{host}: the topology probe does not send '{wrong[0][:60]}'",
            code="topology-answer-invalid",
            host=host,
            field="files",
            value=wrong[0][:60],
        )
    return restricted(described(files, host), cpus, memory or None)
