"""Reads what ``lstopo --of xml`` writes, formats 2 and 3, into a `Topology`.

What the file says may not be used is left out as hwloc leaves it out: CPUs, then the parts of which
nothing remains; a package keeps its place when its memory may be used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import NoReturn
from xml.parsers import expat

from apples.errors import UsageError
from apples.topology.cpus import MOST_CPUS, CpuSet, hwloc_bitmap
from apples.topology.machine import Topology
from apples.topology.parts import Device, DeviceKind, Latencies, MemoryNode, Part

MOST_BYTES = 32 * 2**20
MOST_DEPTH = 32
"""Of elements: packages, caches, cores and devices behind bridges are a dozen levels or two."""
MOST_ELEMENTS = 200_000
MOST_TEXT = 8 * 2**20


class TopologyFileError(UsageError):
    """A topology that cannot be read: names file, line and what would be right. Permanent."""

    code = "file-invalid"


@dataclass(slots=True)
class Element:
    """One element, with the line it begins in."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = field(default_factory=list)
    text: str = ""


def read_elements(data: bytes, name: str) -> Element:
    """Return the outermost element of an XML document.

    Raises
    ------
    TopologyFileError
        Not well-formed, or beyond the bounds; with the line.
    """
    if len(data) > MOST_BYTES:
        raise TopologyFileError(
            f"{name}: {len(data)} bytes, at most {MOST_BYTES} are read",
            code="file-too-large",
            file=name,
            value=len(data),
            bound=MOST_BYTES,
        )
    return _Reader(name).read(data)


class _Reader:
    """Builds elements from the parser's events."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._open: list[Element] = []
        self._outermost: Element | None = None
        self._elements = 0
        self._text = 0
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = self._entity
        self._parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)

    def read(self, data: bytes) -> Element:
        """Parse everything."""
        try:
            self._parser.Parse(data, True)
        except expat.ExpatError as error:
            what = expat.ErrorString(error.code)
            self._refuse(f"not well-formed XML: {what}", error.lineno, code="xml-invalid")
        except (ValueError, LookupError) as error:  # an unknown encoding
            self._refuse(f"not readable as XML: {error}", 1, code="xml-invalid")
        if self._outermost is None:
            self._refuse("holds no element", 1, code="file-empty")
        return self._outermost

    def _refuse(
        self, what: str, line: int | None = None, *, code: str = "file-invalid"
    ) -> NoReturn:
        number = self._parser.CurrentLineNumber if line is None else line
        raise TopologyFileError(
            f"{self._name}: line {number}: {what}", code=code, file=self._name, line=number
        )

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        if self._elements > MOST_ELEMENTS:
            self._refuse(f"more than {MOST_ELEMENTS} elements", code="file-too-large")
        if len(self._open) >= MOST_DEPTH:
            self._refuse(f"elements nested deeper than {MOST_DEPTH}", code="file-too-deep")
        element = Element(tag, attributes, self._parser.CurrentLineNumber)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._outermost = element
        self._open.append(element)

    def _end(self, _: str) -> None:
        self._open.pop()

    def _characters(self, text: str) -> None:
        if not text.isspace():
            self._text += len(text)
            if self._text > MOST_TEXT:
                self._refuse(f"more than {MOST_TEXT} characters of text", code="file-too-large")
            self._open[-1].text += text

    def _entity(self, *_: object) -> None:
        self._refuse("declares an entity, which no hwloc file does", code="xml-entity")


MOST_NODES = 4096
_MEMORY = ("NUMANode", "MemCache", "MemorySideCache")
_DEVICES = ("Bridge", "PCIDev", "OSDev")
_NO_PARTS = (*_DEVICES, "Misc")
_COMPUTES = re.compile(r"(cuda|rsmi|ze|opencl|nvml)[0-9]")
"""Names that runtimes for computing on GPUs give; a display's ``card0`` is none."""
_DISPLAY = re.compile(r"03[0-9a-f]{2} \[(10de|1002):")
"""PCI class and vendor of a GPU that no runtime was asked about; a board's own display is no GPU."""
_MEMORY_SIZES = (
    "CUDAGlobalMemorySize",
    "RSMIVRAMSize",
    "LevelZeroHBMSize",
    "OpenCLGlobalMemorySize",
)
"""Infos of a GPU's memory, in KiB."""
_MODELS = ("GPUModel", "PCIDevice")
_NETWORKS = ("2", "3")
"""``osdev_type`` of format 2: network and OpenFabrics."""
# Format 3 numbers the types of devices otherwise than format 2, so a network interface is also
# recognised by its addresses.
_ADDRESSES = frozenset({"Address", "NodeGUID"})
"""Infos that network interfaces have."""
_FROM_LATENCY = 4
"""The bit of a matrix's `kind` that says its values are latencies."""


def read_hwloc_xml(data: bytes, name: str) -> Topology:
    """Return the topology in an hwloc XML document.

    Raises
    ------
    TopologyFileError
        It is not one; with file, line and what would be right.
    """
    return _Document(read_elements(data, name), name).topology()


def _kind(element: Element) -> str:
    return element.attributes.get("type", "") if element.tag == "object" else ""


def _name(element: Element) -> str:
    return element.attributes.get("name", "")[:64]


def _infos(element: Element) -> dict[str, str]:
    """Return what an object says of itself beside its attributes."""
    pairs = (child.attributes for child in element.children if child.tag == "info")
    return {pair.get("name", ""): pair.get("value", "") for pair in pairs}


class _Document:
    """One document while it is turned into a topology."""

    def __init__(self, outermost: Element, name: str) -> None:
        self.name = name
        self.nodes: dict[int, MemoryNode] = {}
        self.devices: list[Device] = []
        self.cpus = 0
        self.kept_cpus = self.kept_nodes = -1
        self.outermost = outermost
        self._check_format(outermost)
        machines = [e for e in outermost.children if e.tag == "object"]
        if len(machines) != 1:
            self.refuse(
                outermost,
                f"holds {len(machines)} outermost objects, must be 1 Machine",
                code="topology-invalid",
            )
        self.machine = machines[0]

    def topology(self) -> Topology:
        """Return what the document describes."""
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
            tuple(self.devices),
        )

    def refuse(self, element: Element, what: str, *, code: str = "file-invalid") -> NoReturn:
        """Raise the error of an element, with its file and line."""
        label = element.attributes.get("type", "") or element.tag
        number = element.attributes.get("os_index")
        label += f" {number[:20]}" if number else ""
        raise TopologyFileError(
            f"{self.name}: line {element.line}: {label[:60]}: {what}",
            code=code,
            file=self.name,
            line=element.line,
            element=label[:60],
        )

    def part(self, element: Element) -> Part | None:
        """Return a part with what is inside, None when nothing of it may be used."""
        kind = element.attributes.get("type", "")
        if not kind:
            self.refuse(element, "an object needs a type", code="field-missing")
        if kind == "PU":
            return self.unit(element)
        devices = [child for child in element.children if _kind(child) in _DEVICES]
        held = bool(devices)
        inside: list[Part] = []
        for child in element.children:
            inner = _kind(child)
            if inner in _MEMORY:
                held |= self.memory(child)
            elif child.tag == "object" and inner not in _NO_PARTS and (found := self.part(child)):
                inside.append(found)
        if not inside and not held and kind != "Machine":
            return None
        inside.sort(key=lambda part: (part.cpus & -part.cpus) or 1 << MOST_CPUS)
        cpus = reduce(or_, (each.cpus for each in inside), 0)
        for child in devices:
            self.devices += self.devices_in(child, cpus)
        text = element.attributes.get("os_index")
        number = None if text is None else self.integer(element, text)
        return Part(kind, number, cpus, tuple(inside))

    def devices_in(self, element: Element, cpus: int) -> Iterator[Device]:
        """Yield the GPUs and network interfaces in a bridge or device; `cpus` are local to all of them."""
        inside = [child for child in element.children if child.tag == "object"]
        if _kind(element) == "OSDev":
            inside.append(element)
        systems = sorted((child for child in inside if _kind(child) == "OSDev"), key=_name)
        gpus = [child for child in systems if _COMPUTES.match(_name(child))]
        if gpus or _DISPLAY.match(element.attributes.get("pci_type", "")):
            yield self.gpu(element, gpus, cpus)
        model = _infos(element).get("PCIDevice", "")[:80]
        for child in systems:
            if self.is_nic(child):
                yield Device(_name(child), DeviceKind.NIC, cpus, None, model)
        for child in inside:
            if _kind(child) in ("Bridge", "PCIDev"):
                yield from self.devices_in(child, cpus)

    def gpu(self, element: Element, sides: list[Element], cpus: int) -> Device:
        """Return the GPU that a PCI device is, with what runtimes say of it."""
        said = [pair for each in (*sides, element) for pair in _infos(each).items()]
        memory = next((size for key, size in said if key in _MEMORY_SIZES), "")
        return Device(
            _name(sides[0]) if sides else element.attributes.get("pci_busid", "")[:64],
            DeviceKind.GPU,
            cpus,
            self.integer(element, memory) * 1024 if memory else None,
            next((text for key, text in said if key in _MODELS), "")[:80],
        )

    def is_nic(self, device: Element) -> bool:
        """Whether it is a network interface: by its type in format 2, by its address in any."""
        typed = self.outermost.attributes.get("version", "").startswith("2")
        kind = device.attributes.get("osdev_type", "")
        return (typed and kind in _NETWORKS) or not _ADDRESSES.isdisjoint(_infos(device))

    def unit(self, element: Element) -> Part | None:
        """Return one CPU, None when it may not be used."""
        number = self.number(element)
        bit = 1 << number
        if not self.bitmap(element, "cpuset", bit) & self.kept_cpus & bit:
            return None
        if self.cpus & bit:
            self.refuse(element, f"there are two PUs of os_index {number}", code="index-repeated")
        self.cpus |= bit
        return Part("PU", number, bit)

    def memory(self, element: Element) -> bool:
        """Take note of a memory node or of those behind a cache; return whether any may be used."""
        if element.attributes.get("type") != "NUMANode":
            behind = [c for c in element.children if c.attributes.get("type") in _MEMORY]
            return sum(self.memory(child) for child in behind) > 0
        number = self.number(element)
        if not self.bitmap(element, "nodeset", 1 << number) & self.kept_nodes & 1 << number:
            return False
        if number in self.nodes:
            self.refuse(
                element, f"there are two memory nodes of os_index {number}", code="index-repeated"
            )
        if len(self.nodes) >= MOST_NODES:
            self.refuse(element, f"more than {MOST_NODES} memory nodes", code="value-range")
        cpus = self.bitmap(element, "cpuset", 0)
        self.nodes[number] = MemoryNode(
            number, cpus, self.bytes_of(element), element.attributes.get("subtype", "")
        )
        return True

    def latencies(self) -> Latencies:
        """Return the latency matrix between memory nodes, without those that may not be used."""
        for block in self.outermost.children:
            says = block.attributes
            if block.tag != "distances2" or says.get("type") != "NUMANode":
                continue
            meaning = self.integer(block, says.get("kind", "0"))
            named = says.get("name", "")
            if named == "NUMALatency" or (not named and meaning & _FROM_LATENCY):
                return self.matrix(block)
        return Latencies()

    def matrix(self, block: Element) -> Latencies:
        """Return one block of distances as a matrix."""
        count = self.integer(block, block.attributes.get("nbobjs", ""))
        if not 1 <= count <= MOST_NODES:
            self.refuse(block, f"nbobjs is {count}, must be 1 to {MOST_NODES}", code="value-range")
        numbers = self.words(block, "indexes", count)
        values = self.words(block, "u64values", count * count)
        if len(set(numbers)) < count:
            self.refuse(block, "indexes name a node twice", code="index-repeated")
        if block.attributes.get("indexing", "os") != "os":
            numbers = self.by_identity(block, numbers)
        rows = tuple(tuple(values[i * count : (i + 1) * count]) for i in range(count))
        return Latencies(tuple(numbers), rows).among(self.nodes)

    def by_identity(self, block: Element, identities: list[int]) -> list[int]:
        """Return the numbers of the memory nodes that a matrix names by gp_index."""
        known: dict[int, int] = {}
        waiting = [self.machine]
        while waiting:
            element = waiting.pop()
            if element.attributes.get("type") == "NUMANode":
                identity = self.integer(element, element.attributes.get("gp_index", "-"))
                known[identity] = self.number(element)
            waiting.extend(child for child in element.children if child.tag == "object")
        unknown = [identity for identity in identities if identity not in known]
        if unknown:
            self.refuse(
                block,
                f"indexes name gp_index {unknown[0]}, which no memory node has",
                code="value-unknown",
            )
        return [known[identity] for identity in identities]

    def words(self, block: Element, tag: str, count: int) -> list[int]:
        """Return the numbers in a block's elements of one tag; there must be `count`."""
        texts = [child.text for child in block.children if child.tag == tag]
        found = [self.integer(block, word) for text in texts for word in text.split()]
        if len(found) != count:
            self.refuse(
                block,
                f"{tag} hold {len(found)} numbers, must be {count}",
                code="matrix-size-invalid",
            )
        return found

    def number(self, element: Element) -> int:
        """Return the os_index of a CPU or memory node."""
        text = element.attributes.get("os_index")
        if text is None:
            self.refuse(element, "needs an os_index", code="field-missing")
        number = self.integer(element, text)
        if number >= MOST_CPUS:
            self.refuse(
                element, f"os_index is {number}, must be below {MOST_CPUS}", code="value-range"
            )
        return number

    def bytes_of(self, element: Element) -> int | None:
        """Return a memory node's bytes, None where the file does not say."""
        text = element.attributes.get("local_memory")
        return None if text is None else self.integer(element, text)

    def integer(self, element: Element, text: str) -> int:
        """Return a whole number of at most 64 bits."""
        if not (text.isascii() and text.isdigit() and len(text) <= 20):
            self.refuse(element, f"'{text[:30]}' is no whole number", code="value-type")
        return int(text)

    def bitmap(self, element: Element, attribute: str, default: int) -> int:
        """Return a bitmap; what is not given is the default."""
        text = element.attributes.get(attribute)
        if text is None:
            return default
        try:
            return hwloc_bitmap(text)
        except UsageError as error:
            self.refuse(element, f"{attribute}: {error}", code=error.code)

    def _check_format(self, outermost: Element) -> None:
        if outermost.tag != "topology":
            raise TopologyFileError(
                f"{self.name}: line {outermost.line}: <{outermost.tag[:40]}> is no hwloc topology: "
                "expected what 'lstopo --of xml' writes",
                code="file-invalid",
                file=self.name,
                line=outermost.line,
                element=outermost.tag[:40],
            )
        version = outermost.attributes.get("version", "1")
        if version.split(".")[0] not in {"2", "3"}:
            raise TopologyFileError(
                f"{self.name}: line {outermost.line}: hwloc format {version[:20]}: formats 2 and 3 are "
                "read; write the file again with 'lstopo --of xml' of hwloc 2 or later",
                code="format-unsupported",
                file=self.name,
                line=outermost.line,
                value=version[:20],
            )
