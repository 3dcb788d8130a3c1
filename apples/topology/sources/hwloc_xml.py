"""Reads the output of ``lstopo --of xml``, formats 1 to 3, into a `Topology`.

Disallowed CPUs are left out as in hwloc, then parts without any CPU. A package stays if its memory is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import NoReturn
from xml.etree import ElementTree

from apples.errors import UsageError
from apples.topology.cpus import MAX_CPUS, CpuSet, hwloc_bitmap
from apples.topology.machine import Topology
from apples.topology.parts import CoreKind, Device, Latencies, MemoryNode, Part
from apples.topology.sources.core_kinds import kinds_of_infos
from apples.topology.sources.elements import Element, TopologyFileError, read_elements
from apples.topology.sources.format_1 import modernise
from apples.topology.sources.hwloc_devices import DEVICES, devices_below, infos

MAX_NODES = 4096
_MEMORY = ("NUMANode", "MemCache", "MemorySideCache")
_NO_PARTS = (*DEVICES, "Misc")
_FROM_LATENCY = 4
"""The bit of a matrix's `kind` for latencies."""


def read_hwloc_xml(data: bytes, name: str) -> Topology:
    """Return the topology in an hwloc XML document.

    Raises
    ------
    TopologyFileError
        The document is not a topology; with file, line and the expected form.
    """
    return _Document(read_elements(data, name), name).topology()


def _kind(element: ElementTree.Element) -> str:
    return element.get("type", "") if element.tag == "object" else ""


def _whole(text: str) -> bool:
    """Whether a text is an integer from 0 with at most 20 digits."""
    return text.isascii() and text.isdigit() and len(text) <= 20


class _Document:
    """A document during its conversion into a topology."""

    def __init__(self, outermost: ElementTree.Element, name: str) -> None:
        self.name = name
        self.nodes: dict[int, MemoryNode] = {}
        self.devices: list[Device] = []
        self.cpus = 0
        self.kept_cpus = self.kept_nodes = -1
        self.any_device = False
        self.outermost = outermost
        self.version = self._format(outermost)
        machines = outermost.findall("object")
        if len(machines) != 1:
            self.refuse(
                outermost,
                f"holds {len(machines)} outermost objects, must be 1 Machine",
                code="topology-invalid",
            )
        self.machine = machines[0]
        if self.version == "1":
            modernise(outermost, self.machine)

    def topology(self) -> Topology:
        """Return the topology of the document."""
        machine = self.machine
        self.kept_cpus = self.bitmap(machine, "allowed_cpuset", -1)
        self.kept_nodes = self.bitmap(machine, "allowed_nodeset", -1)
        online = self.bitmap(machine, "cpuset", -1)
        everything = self.bitmap(machine, "complete_cpuset", online)
        root = self.part(machine)
        if root is None or not root.cpus:
            self.refuse(machine, "holds no PU that may be used", code="cpus-missing")
        disallowed = online & ~self.kept_cpus if online > 0 else 0
        return Topology(
            root,
            tuple(
                replace(node, cpus=node.cpus & root.cpus) for _, node in sorted(self.nodes.items())
            ),
            self.latencies(),
            CpuSet(disallowed),
            CpuSet(everything & ~online if everything > 0 and online > 0 else 0),
            self.name,
            # hwloc lists the buses of a machine whenever it looks for devices; lstopo --no-io does not.
            tuple(self.devices) if self.any_device else None,
            self.core_kinds(),
        )

    def core_kinds(self) -> Mapping[CoreKind, int]:
        """Return the CPUs of performance and of efficiency cores."""
        kinds = self.outermost.findall("cpukind")
        return kinds_of_infos(
            [(max(0, self.bitmap(e, "cpuset", 0)), {**e.attrib, **infos(e)}) for e in kinds]
        )

    def refuse(
        self, element: ElementTree.Element, what: str, *, code: str = "file-invalid"
    ) -> NoReturn:
        """Raise the error of an element, with its file and line."""
        label = element.get("type", "") or element.tag
        number = element.get("os_index")
        label += f" {number[:20]}" if number else ""
        line = element.line if isinstance(element, Element) else 0
        raise TopologyFileError(
            f"{self.name}: line {line}: {label[:60]}: {what}",
            code=code,
            file=self.name,
            line=line,
            element=label[:60],
        )

    def part(self, element: ElementTree.Element) -> Part | None:
        """Return a part with the parts inside; None if all of it is disallowed."""
        kind = element.get("type", "")
        if not kind:
            self.refuse(element, "an object needs a type", code="field-missing")
        if kind == "PU":
            return self.unit(element)
        devices = [child for child in element.iterfind("object") if _kind(child) in DEVICES]
        held = bool(devices)
        inside: list[Part] = []
        for child in element:
            inner = _kind(child)
            if inner in _MEMORY:
                held |= self.memory(child)
            elif child.tag == "object" and inner not in _NO_PARTS and (found := self.part(child)):
                inside.append(found)
        if not inside and not held and kind != "Machine":
            return None
        inside.sort(key=lambda part: (part.cpus & -part.cpus) or 1 << MAX_CPUS)
        cpus = reduce(or_, (each.cpus for each in inside), 0)
        self.any_device |= bool(devices)
        self.devices += devices_below(devices, cpus, self.version != "3")
        text = element.get("os_index")
        number = None if text is None else self.integer(element, text)
        return Part(kind, number, cpus, tuple(inside))

    def unit(self, element: ElementTree.Element) -> Part | None:
        """Return a CPU; None if it is disallowed."""
        number = self.number(element)
        bit = 1 << number
        if not self.bitmap(element, "cpuset", bit) & self.kept_cpus & bit:
            return None
        if self.cpus & bit:
            self.refuse(element, f"there are two PUs of os_index {number}", code="index-repeated")
        self.cpus |= bit
        return Part("PU", number, bit)

    def memory(self, element: ElementTree.Element) -> bool:
        """Store a memory node, or the nodes behind a cache; return whether any is allowed."""
        if element.get("type") != "NUMANode":
            behind = [c for c in element if c.get("type") in _MEMORY]
            return sum(self.memory(child) for child in behind) > 0
        number = self.number(element)
        if not self.bitmap(element, "nodeset", 1 << number) & self.kept_nodes & 1 << number:
            return False
        if number in self.nodes:
            self.refuse(
                element, f"there are two memory nodes of os_index {number}", code="index-repeated"
            )
        if len(self.nodes) >= MAX_NODES:
            self.refuse(element, f"more than {MAX_NODES} memory nodes", code="value-range")
        cpus = self.bitmap(element, "cpuset", 0)
        self.nodes[number] = MemoryNode(
            number, cpus, self.bytes_of(element), element.get("subtype", "")
        )
        return True

    def latencies(self) -> Latencies:
        """Return the latency matrix between memory nodes, without disallowed nodes."""
        for block in self.outermost.iterfind("distances2"):
            if block.get("type") != "NUMANode":
                continue
            meaning = self.integer(block, block.get("kind", "0"))
            named = block.get("name", "")
            if named == "NUMALatency" or (not named and meaning & _FROM_LATENCY):
                return self.matrix(block)
        return Latencies()

    def matrix(self, block: ElementTree.Element) -> Latencies:
        """Return a block of distances as a matrix."""
        count = self.integer(block, block.get("nbobjs", ""))
        if not 1 <= count <= MAX_NODES:
            self.refuse(block, f"nbobjs is {count}, must be 1 to {MAX_NODES}", code="value-range")
        numbers = self.words(block, "indexes", count)
        values = self.words(block, "u64values", count * count)
        if len(set(numbers)) < count:
            self.refuse(block, "indexes name a node twice", code="index-repeated")
        if block.get("indexing", "os") != "os":
            numbers = self.by_identity(block, numbers)
        rows = tuple(tuple(values[i * count : (i + 1) * count]) for i in range(count))
        return Latencies(tuple(numbers), rows).among(self.nodes)

    def by_identity(self, block: ElementTree.Element, identities: list[int]) -> list[int]:
        """Return the numbers of the memory nodes that a matrix lists by gp_index."""
        known: dict[int, int] = {}
        waiting = [self.machine]
        while waiting:
            element = waiting.pop()
            if element.get("type") == "NUMANode":
                identity = self.integer(element, element.get("gp_index", "-"))
                known[identity] = self.number(element)
            waiting.extend(element.iterfind("object"))
        unknown = [identity for identity in identities if identity not in known]
        if unknown:
            self.refuse(
                block,
                f"indexes name gp_index {unknown[0]}, which no memory node has",
                code="value-unknown",
            )
        return [known[identity] for identity in identities]

    def words(self, block: ElementTree.Element, tag: str, count: int) -> list[int]:
        """Return the numbers in a block's elements of one tag; there must be `count`."""
        texts = [child.text or "" for child in block.iterfind(tag)]
        found = [self.integer(block, word) for text in texts for word in text.split()]
        if len(found) != count:
            self.refuse(
                block,
                f"{tag} hold {len(found)} numbers, must be {count}",
                code="matrix-size-invalid",
            )
        return found

    def number(self, element: ElementTree.Element) -> int:
        """Return the os_index of a CPU or memory node."""
        text = element.get("os_index")
        if text is None:
            self.refuse(element, "needs an os_index", code="field-missing")
        number = self.integer(element, text)
        if number >= MAX_CPUS:
            self.refuse(
                element, f"os_index is {number}, must be below {MAX_CPUS}", code="value-range"
            )
        return number

    def bytes_of(self, element: ElementTree.Element) -> int | None:
        """Return a memory node's bytes; None if the file has no valid number."""
        text = element.get("local_memory", "")
        return int(text) if _whole(text) else None

    def integer(self, element: ElementTree.Element, text: str) -> int:
        """Return a whole number of at most 64 bits."""
        if not _whole(text):
            self.refuse(element, f"'{text[:30]}' is not a whole number", code="value-type")
        return int(text)

    def bitmap(self, element: ElementTree.Element, attribute: str, default: int) -> int:
        """Return the bitmap of an attribute; the default if the attribute is missing."""
        text = element.get(attribute)
        if text is None:
            return default
        try:
            return hwloc_bitmap(text)
        except UsageError as error:
            self.refuse(element, f"{attribute}: {error}", code=error.code)

    def _format(self, outermost: ElementTree.Element) -> str:
        """Return the number of the document's format: 1, 2 or 3."""
        if outermost.tag != "topology":
            self.refuse(
                outermost, "is not an hwloc topology: expected a file of 'lstopo --of xml'"
            )
        version = outermost.get("version", "1")
        number = version.split(".")[0]
        if number not in {"1", "2", "3"}:
            raise TopologyFileError(
                f"{self.name}: hwloc format {version[:20]}: formats 1 to 3 are read",
                code="format-unsupported",
                file=self.name,
                line=1,
                value=version[:20],
            )
        return number
