"""Converts an hwloc document of format 1 (hwloc 1.x) into format 2, in place.

In format 1 a memory node is a part of the tree with its CPUs inside, the level of a cache is an attribute, and a
matrix of latencies is below the part with its nodes, relative to a base.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

from apples.topology.sources.elements import Element
from apples.topology.sources.hwloc_devices import DEVICES

_RENAMED = {"Socket": "Package", "System": "Machine"}
_BESIDE = (*DEVICES, "Misc")


def modernise(outermost: ElementTree.Element, machine: ElementTree.Element) -> None:
    """Rewrite the machine of a document; its latencies between memory nodes become a matrix of format 2."""
    parts = list(_parts(machine))
    nodes = [part for part in parts if part.get("type") == "NUMANode"]
    # hwloc 2 writes relative_depth for its own tree, without memory nodes, so it does not give the level here.
    blocks = [block for part in parts for block in part.iterfind("distances")]
    blocks = [block for block in blocks if block.get("nbobjs") == str(len(nodes))]
    outermost.extend(_matrix(block, nodes) for block in blocks[:1] if len(nodes) > 1)
    for part in parts:
        _rename(part)
    _lift(machine)
    if not nodes:  # all memory of the machine is one node
        _beside(machine, {**machine.attrib, "os_index": "0", "nodeset": "0x1"})


def _parts(element: ElementTree.Element) -> Iterator[ElementTree.Element]:
    yield element
    for child in element.iterfind("object"):
        if child.get("type") not in _BESIDE:
            yield from _parts(child)


def _rename(element: ElementTree.Element) -> None:
    kind = element.get("type", "")
    if kind == "Cache":
        instruction = "i" if element.get("cache_type") == "2" else ""
        kind = f"L{element.get('depth', '')[:2]}{instruction}Cache"
    if kind:
        element.set("type", _RENAMED.get(kind, kind))
    if online := element.get("online_cpuset"):
        element.set("cpuset", online)


def _lift(element: ElementTree.Element) -> None:
    """Move each memory node beside its parts: into the lowest part with the same CPUs."""
    for child in list(element.iterfind("object")):
        _lift(child)
    parts = [e for e in element.iterfind("object") if e.get("type") not in _BESIDE]
    for node in [part for part in parts if part.get("type") == "NUMANode"]:
        inside = [
            e for e in node.iterfind("object") if e.get("type") not in (*_BESIDE, "NUMANode")
        ]
        at = list(element).index(node)
        if not inside:  # a node without CPUs
            continue
        attributes = dict(node.attrib)
        if len(inside) == 1:
            inside[0].extend(e for e in node.iterfind("object") if e is not inside[0])
            element[at] = inside[0]
            _beside(inside[0], attributes)
        elif len(parts) == 1:
            element[at : at + 1] = list(node.iterfind("object"))
            _beside(element, attributes)
        else:
            node.attrib.clear()
            node.attrib.update({"type": "Group", "cpuset": attributes.get("cpuset", "0x0")})
            _beside(node, attributes)


def _beside(element: ElementTree.Element, attributes: dict[str, str]) -> None:
    node = Element("object", {**attributes, "type": "NUMANode"})
    node.line = getattr(element, "line", 0)
    element.insert(0, node)


def _matrix(block: ElementTree.Element, nodes: list[ElementTree.Element]) -> Element:
    """Return a matrix of format 2; an invalid number stays as written, so that the reader rejects it."""
    matrix = Element(
        "distances2",
        {"type": "NUMANode", "nbobjs": str(len(nodes)), "kind": "5", "name": "NUMALatency"},
    )
    matrix.line = getattr(block, "line", 0)
    numbers = ElementTree.SubElement(matrix, "indexes")
    numbers.text = " ".join(node.get("os_index", "-") for node in nodes)
    values = ElementTree.SubElement(matrix, "u64values")
    base = block.get("latency_base", "1")
    values.text = " ".join(
        _whole(latency.get("value", "-"), base) for latency in block.iterfind("latency")
    )
    return matrix


def _whole(value: str, base: str) -> str:
    try:
        return str(round(float(value) * float(base)))
    except (ValueError, OverflowError):
        return value[:40].replace(" ", "_") or "-"
