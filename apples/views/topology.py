"""A machine as text: what lies in what, its cores, and who has which CPU."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from apples.topology.cpus import CpuSet
from apples.topology.machine import Topology
from apples.topology.parts import MemoryNode, Part
from apples.units import amount

WIDTH = 80
FEW_CORES = 4
"""A part of no more cores is one line, whatever is inside."""
_SHOWN = ("Package", "Die", "Group", "L3Cache", "L4Cache")
MOST_NODES = 24
"""A larger latency matrix is left out: `--json` and the file have it."""
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def draw(topology: Topology, holders: Mapping[str, CpuSet] | None = None) -> str:
    """Return a map of a machine.

    Cores stand in brackets with the numbers of their CPUs; a CPU that somebody has is shown as a letter
    that the legend explains.

    Parameters
    ----------
    holders
        Name of a job -> its CPUs.

    Examples
    --------
    >>> from apples.topology import synthetic
    >>> print(draw(synthetic("package:2 core:2 pu:2"), {"job 7": CpuSet.parse("0-2")}))
    8 CPUs, 4 cores, 2 packages, 1 memory node
    package 0  [a a] [a 3]
    package 1  [4 5] [6 7]
    a = job 7 (0-2)
    """
    marks, legend = _marks(holders or {})
    lines = [summary(topology), *_Map(topology, marks).lines(topology.root)]
    lines += [f"{_node(node)}, no CPUs" for node in topology.nodes if not node.cpus]
    lines += _matrix(topology)
    for what, cpus in (("not ours", topology.disallowed), ("offline", topology.offline)):
        if cpus:
            lines.append(f"{what}: CPUs {cpus}")
    return "\n".join([*lines, *legend])


def summary(topology: Topology) -> str:
    """Return the counts in one line."""
    counts = (
        (len(topology.cpus), "CPU"),
        (len(topology.cores), "core"),
        (len(topology.packages), "package"),
        (len(topology.nodes), "memory node"),
    )
    text = ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for count, name in counts)
    distinct = topology.latencies.distinct
    return f"{text}; latencies {' '.join(map(str, distinct))}" if distinct else text


def _marks(holders: Mapping[str, CpuSet]) -> tuple[dict[int, str], list[str]]:
    marks: dict[int, str] = {}
    legend = []
    for i, (name, cpus) in enumerate(holders.items()):
        letter = LETTERS[i % len(LETTERS)]
        legend.append(f"{letter} = {name} ({cpus})")
        marks.update(dict.fromkeys(cpus, letter))
    return marks, legend


class _Map:
    """The lines of one machine's parts."""

    def __init__(self, topology: Topology, marks: Mapping[int, str]) -> None:
        self._marks = marks
        self._units = topology.units
        self._nodes: dict[int, list[str]] = {}
        if len(topology.nodes) > 1:
            for node in topology.nodes:
                self._nodes.setdefault(node.cpus, []).append(_node(node))
        outer: dict[int, Part] = {}
        for part in topology.root.walk():
            if part.kind in _SHOWN:
                outer.setdefault(part.cpus, part)
        self._beside = {id(part): self._nodes.get(cpus, []) for cpus, part in outer.items()}

    def lines(self, part: Part, indent: str = "", outermost: bool = True) -> Iterator[str]:
        """Yield the lines of a part: its own, and those of the parts inside, further in."""
        words = self._words(part)
        inside = list(self._sections(part))
        while len(inside) == 1 and inside[0].cpus == part.cpus:
            part = inside[0]
            words += self._words(part)
            inside = list(self._sections(part))
        label = ", ".join(words)
        cores = [unit for unit in self._units if not unit & ~part.cpus]
        held = sum(section.cpus for section in inside)
        loose = [unit for unit in cores if not unit & held]
        if not inside or (len(cores) <= FEW_CORES and not outermost):
            groups = [[unit for unit in cores if not unit & ~each.cpus] for each in inside]
            yield from _line(label, indent, [*groups, loose], self._marks)
            return
        if label:
            yield f"{indent}{label}"
            indent += "  "
        if loose:
            yield from _line("", indent, [loose], self._marks)
        for section in inside:
            yield from self.lines(section, indent, outermost=False)

    def _sections(self, part: Part) -> Iterator[Part]:
        """Yield the nearest parts inside that are worth a line."""
        for child in part.children:
            if child.cpus and self._words(child):
                yield child
            elif child.cpus:
                yield from self._sections(child)

    def _words(self, part: Part) -> list[str]:
        """Return what a part is called: itself, or the memory nodes beside it."""
        nodes = self._beside.get(id(part), [])
        if part.kind in ("Package", "Die"):
            number = "" if part.number is None else f" {part.number}"
            return [f"{part.kind.lower()}{number}", *nodes]
        if part.kind in _SHOWN:
            return list(nodes) or [part.kind.removesuffix("Cache")]
        return []


def _node(node: MemoryNode) -> str:
    kind = f" {node.kind}" if node.kind else ""
    size = f" ({amount(node.memory)})" if node.memory is not None else ""
    return f"node {node.number}{kind}{size}"


def _line(
    label: str, indent: str, groups: Sequence[Sequence[int]], marks: Mapping[int, str]
) -> Iterator[str]:
    """Yield cores in brackets, groups apart, wrapped under each other."""
    width = max((len(str(u.bit_length() - 1)) for units in groups for u in units), default=1)
    texts = []
    for units in filter(None, groups):
        cores = (
            "_".join(marks.get(cpu, str(cpu)).rjust(width, "_") for cpu in CpuSet(unit))
            for unit in units
        )
        texts.append(" ".join(f"[{core}]" for core in cores))
    head = f"{indent}{label}  " if label else indent
    hang = " " * min(len(head), 24)
    lines = textwrap.wrap(
        " | ".join(texts),
        WIDTH,
        initial_indent=head,
        subsequent_indent=hang,
        break_long_words=False,
    )
    yield from (line.replace("_", " ") for line in lines)


def _matrix(topology: Topology) -> Iterator[str]:
    latencies = topology.latencies
    if not 2 <= len(latencies.nodes) <= MOST_NODES:
        return
    width = max(len(str(value)) for value in (*latencies.distinct, *latencies.nodes))
    yield "latency  " + " ".join(str(node).rjust(width) for node in latencies.nodes)
    for node, row in zip(latencies.nodes, latencies.values, strict=True):
        yield f"{node:>7}  " + " ".join(str(value).rjust(width) for value in row)
