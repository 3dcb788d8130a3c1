"""A topology from what the Linux kernel says in ``/sys/devices/system``, without any tool or library."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from apples.errors import LaunchError, UsageError
from apples.topology.cpus import NO_CPUS, CpuSet
from apples.topology.machine import Topology, restricted
from apples.topology.parts import NO_LATENCIES, Latencies, MemoryNode, Part
from apples.topology.sources.probe import SCHEMA

SYSTEM = Path("/sys/devices/system")
_SHARED = (  # the names of Linux 5.3 and later, then the older ones
    ("Package", ("package_cpus", "core_siblings"), "physical_package_id"),
    ("Die", ("die_cpus",), "die_id"),
    ("Core", ("core_cpus", "thread_siblings"), "core_id"),
)
_CACHES = tuple(f"L{level}{i}Cache" for level in (4, 3, 2, 1) for i in ("", "i"))
_ORDER = ("Package", "Group", "Die", *_CACHES, "Core")
_MOST_CACHES = 16


def read_sysfs(system: Path = SYSTEM) -> Topology:
    """Return the machine the kernel describes: all its CPUs that are online.

    Parameters
    ----------
    system
        The folder with ``cpu`` and ``node``.

    Raises
    ------
    LaunchError
        There is no such description. Permanent on this machine.
    """
    return _described(_FilesBelow(system), str(system))


class _FilesBelow(Mapping[str, str]):
    """The texts of the files below a folder, by their names from there; what cannot be read is not there."""

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


def _described(files: Mapping[str, str], name: str) -> Topology:
    """Return the machine that the kernel's files describe, by their names below ``/sys/devices/system``."""
    online = _numbered(files, "cpu")
    if not online:
        raise LaunchError(
            f"{name}/cpu names no CPU: this is no Linux with /sys",
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
    root = _nested(online.mask, groups)
    latencies = _latencies(files, nodes)
    return Topology(root, nodes, latencies, offline=everything - online, name=name)


def _groups(files: Mapping[str, str], folder: str) -> Iterator[tuple[str, int, CpuSet]]:
    """Yield what one CPU shares with others: kind, number, CPUs."""
    for kind, names, number in _SHARED:
        lists = [cpus for name in names if (cpus := _cpus(files, f"{folder}/topology/{name}"))]
        if lists:
            yield kind, _number(files, f"{folder}/topology/{number}"), lists[0]
    for index in range(_MOST_CACHES):
        cache = f"{folder}/cache/index{index}"
        level = _text(files, f"{cache}/level")
        if not level:
            return
        instruction = "i" if _text(files, f"{cache}/type") == "Instruction" else ""
        kind = f"L{level}{instruction}Cache"
        if kind in _CACHES:
            yield kind, index, _cpus(files, f"{cache}/shared_cpu")


def _nested(online: int, groups: Mapping[tuple[str, int], int]) -> Part:
    """Return the tree of groups that lie within each other; one that cuts across another is left out."""
    inside: list[tuple[int, str, int]] = []
    trusted = ("Package", "Core", "Group")  # where descriptions contradict each other
    for (kind, mask), number in sorted(
        groups.items(), key=lambda group: group[0][0] not in trusted
    ):
        cut = any(mask & m and mask & ~m and m & ~mask for m, _, _ in inside)
        if mask and not cut:
            inside.append((mask, kind, number))
    inside.sort(key=lambda group: (-group[0].bit_count(), _ORDER.index(group[1])))
    return _part("Machine", None, online, inside)


def _part(kind: str, number: int | None, mask: int, groups: list[tuple[int, str, int]]) -> Part:
    children: list[Part] = []
    left = mask
    for i, (inner, name, its) in enumerate(groups):
        if inner & left == inner:
            below = [group for group in groups[i + 1 :] if not group[0] & ~inner]
            children.append(_part(name, its, inner, below))
            left &= ~inner
    if kind == "Core" or not children:
        children = [Part("PU", cpu, 1 << cpu) for cpu in CpuSet(mask)]
    else:
        children += [Part("PU", cpu, 1 << cpu) for cpu in CpuSet(left)]
    children.sort(key=lambda part: part.cpus & -part.cpus)
    return Part(kind, number, mask, tuple(children))


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
    """Return the numbers of the CPUs or nodes that are online; from the folders on an old kernel."""
    online = _list(files, f"{name}/online")
    if online:
        return online
    below = "topology/" if name == "cpu" else ""
    folder = re.compile(rf"{name}/{name}(\d+)/{below}.")
    numbers = {int(found[1]) for file in files if (found := folder.match(file))}
    return CpuSet.of(n for n in numbers if _text(files, f"{name}/{name}{n}/online") != "0")


def _cpus(files: Mapping[str, str], name: str) -> CpuSet:
    """Return a set the kernel writes as a list, or on an old one as a map."""
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
    """Whether a text is a whole number from 0, of no more digits than the kernel writes."""
    return text.isdigit() and len(text) <= 20


def _text(files: Mapping[str, str], name: str) -> str:
    """Return a file of the kernel's; empty where it has none, or none of ASCII."""
    text = files.get(name, "")
    return text.strip(" \t\r\n\0") if text.isascii() else ""


MOST_BYTES = 32 * 2**20
MOST_FILE = 2**16
_NAME = re.compile(
    r"(cpu|node)/(online|present|(cpu|node)\d{1,5}/((topology|cache/index\d{1,2})/)?[a-z_]{1,40})"
)


def read_packed(word: str, host: str) -> Topology:
    """Return a host's topology from what `probe.packed` gave there.

    Raises
    ------
    LaunchError
        As of `read_probe`.
    """
    try:
        text = zlib.decompressobj().decompress(
            base64.b64decode(word, validate=True), MOST_BYTES + 1
        )
    except (ValueError, zlib.error) as error:
        raise LaunchError(
            f"{host}: no answer of the topology probe: {error}",
            code="topology-answer-invalid",
            host=host,
        ) from error
    return read_probe(text, host)


def read_probe(text: str | bytes, host: str) -> Topology:
    """Return a host's topology from what the probe printed there, with what it may use alone.

    Raises
    ------
    LaunchError
        It is no answer of the probe's; names the host.
    """
    if len(text) > MOST_BYTES:
        raise LaunchError(
            f"{host}: its topology takes {len(text)} bytes, at most {MOST_BYTES}",
            code="topology-answer-invalid",
            host=host,
            value=len(text),
            bound=MOST_BYTES,
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
        name for name, held in files.items() if not _NAME.fullmatch(name) or len(held) > MOST_FILE
    ]
    if wrong:
        raise LaunchError(
            f"{host}: the topology probe does not send '{wrong[0][:60]}'",
            code="topology-answer-invalid",
            host=host,
            field="files",
            value=wrong[0][:60],
        )
    return restricted(_described(files, host), cpus, memory or None)
