"""Documents and text of a machine, a job's CPUs, the reasons of a refusal, and the topology daemon."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from apples.topology.bindings import Bindings, RankOrder
from apples.topology.broker import BrokerAnswer
from apples.topology.cpus import CpuSet
from apples.topology.documents import (
    FencesDocument,
    FitDocument,
    HostVerdict,
    IsolationEntry,
    RankCpus,
    TopologydDocument,
    TopologyDocument,
    WhyDocument,
)
from apples.topology.isolation.detection import IsolationLevel
from apples.topology.machine import Topology
from apples.topology.parts import Device, MemoryNode, Part
from apples.topology.requirement import Fit
from apples.ui.units import amount, counted

WIDTH = 80
FEW_CORES = 4
"""A part with at most this many cores is printed on one line, with all parts inside."""
_SHOWN = ("Package", "Die", "Group", "L3Cache", "L4Cache")
MAX_NODES = 24
"""Larger latency matrices are omitted; `--json` and the file have them."""
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def draw(topology: Topology, holders: Mapping[str, CpuSet] | None = None) -> str:
    """Return a map of a machine.

    Cores are printed in brackets with the numbers of their CPUs; a CPU of a job is a letter that
    the legend explains.

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
    lines += [_device(device) for device in topology.devices or ()]
    lines += _matrix(topology)
    for kind in topology.kinds:
        lines.append(f"{kind} cores: CPUs {CpuSet(topology.of_kind(kind)) or 'none'}")
    for what, cpus in (("not ours", topology.disallowed), ("offline", topology.offline)):
        if cpus:
            lines.append(f"{what}: CPUs {cpus}")
    return "\n".join([*lines, *legend])


def summary(topology: Topology) -> str:
    """Return the numbers of CPUs, cores, packages and memory nodes in one line."""
    amounts = topology.amounts()
    counts = (
        (len(topology.cpus), "CPU"),
        (len(topology.cores), "core"),
        (len(topology.packages), "package"),
        (len(topology.nodes), "memory node"),
        (amounts["ngpus"], "GPU"),
        (amounts["nnics"], "NIC"),
    )
    text = ", ".join(
        counted(count or 0, name) for count, name in counts if count or name not in ("GPU", "NIC")
    )
    sizes = (("memory", amounts["maxmem"]), ("of it HBM", amounts["hbm"]))
    text += "".join(f", {amount(size)} {name}" for name, size in sizes if size)
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
        """Yield the line of a part, then the indented lines of the parts inside."""
        words = self._words(part)
        inside = list(self._sections(part))
        while len(inside) == 1 and inside[0].cpus == part.cpus:
            part = inside[0]
            words += self._words(part)
            inside = list(self._sections(part))
        label = ", ".join(words)
        cores = [unit for unit in self._units if not unit & ~part.cpus]
        held = sum(section.cpus for section in inside)
        ungrouped = [unit for unit in cores if not unit & held]
        if not inside or (len(cores) <= FEW_CORES and not outermost):
            groups = [[unit for unit in cores if not unit & ~each.cpus] for each in inside]
            yield from _line(label, indent, [*groups, ungrouped], self._marks)
            return
        if label:
            yield f"{indent}{label}"
            indent += "  "
        if ungrouped:
            yield from _line("", indent, [ungrouped], self._marks)
        for section in inside:
            yield from self.lines(section, indent, outermost=False)

    def _sections(self, part: Part) -> Iterator[Part]:
        """Yield the nearest parts inside that get a line."""
        for child in part.children:
            if child.cpus and self._words(child):
                yield child
            elif child.cpus:
                yield from self._sections(child)

    def _words(self, part: Part) -> list[str]:
        """Return the names that a line shows: the part's own, or those of its memory nodes."""
        nodes = self._beside.get(id(part), [])
        if part.kind in ("Package", "Die"):
            number = "" if part.number is None else f" {part.number}"
            return [f"{part.kind.lower()}{number}", *nodes]
        if part.kind in _SHOWN:
            return list(nodes) or [part.kind.removesuffix("Cache")]
        return []


def _device(device: Device) -> str:
    size = f" ({amount(device.memory)})" if device.memory is not None else ""
    model = f" {device.model}" if device.model else ""
    return f"{device.kind} {device.name}{model}{size}, near CPUs {CpuSet(device.cpus) or 'none'}"


def _node(node: MemoryNode) -> str:
    kind = f" {node.kind}" if node.kind else ""
    size = f" ({amount(node.memory)})" if node.memory is not None else ""
    return f"node {node.number}{kind}{size}"


def _line(
    label: str, indent: str, groups: Sequence[Sequence[int]], marks: Mapping[int, str]
) -> Iterator[str]:
    """Yield cores in brackets, groups separated, as wrapped lines."""
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
    if not 2 <= len(latencies.nodes) <= MAX_NODES:
        return
    width = max(len(str(value)) for value in (*latencies.distinct, *latencies.nodes))
    yield "latency  " + " ".join(str(node).rjust(width) for node in latencies.nodes)
    for node, row in zip(latencies.nodes, latencies.values, strict=True):
        yield f"{node:>7}  " + " ".join(str(value).rjust(width) for value in row)


# ---------------------------------------------------------------- CPUs of a job and of a daemon
def topology_document(topology: Topology) -> TopologyDocument:
    """Return a machine as ``apples.topology/1``."""
    return {
        "schema": "apples.topology/1",
        "pus": len(topology.cpus),
        "cores": len(topology.cores),
        "packages": len(topology.packages),
        "numa_nodes": len(topology.nodes),
        "latencies": list(topology.latencies.distinct),
        "cpus": list(topology.cpus),
        "disallowed": list(topology.disallowed),
        "offline": list(topology.offline),
        "nodes": [
            {"node": n.number, "cpus": list(CpuSet(n.cpus)), "memory": n.memory, "kind": n.kind}
            for n in topology.nodes
        ],
        "devices": [
            {
                "name": device.name,
                "kind": device.kind.value,
                "cpus": list(CpuSet(device.cpus)),
                "memory": device.memory,
                "model": device.model,
                "aliases": list(device.aliases),
            }
            for device in topology.devices or ()
        ],
        "kinds": [
            {"kind": kind.value, "cpus": list(CpuSet(topology.of_kind(kind)))}
            for kind in topology.kinds
        ],
        "matrix": {
            "nodes": list(topology.latencies.nodes),
            "values": [list(row) for row in topology.latencies.values],
        },
    }


def fit_document(found: Fit, bound: Bindings, order: RankOrder | None = None) -> FitDocument:
    """Return the CPUs of a job as ``apples.fit/1``; `order` gives the CPUs of each rank with ``--messages``."""
    ranks: RankCpus | None = (
        {
            "cpus": [list(share) for share in order.shares],
            "byte_hops": order.cost,
            "byte_hops_in_order": order.before,
        }
        if order
        else None
    )
    return {
        "schema": "apples.fit/1",
        "cpus": list(found.cpus),
        "radius": found.radius,
        "centre": found.centre,
        "total": found.total,
        "memory": list(found.memory),
        "devices": list(found.devices),
        "bindings": {
            "taskset": bound.taskset,
            "hwloc_bind": bound.hwloc_bind,
            "srun": bound.srun,
            "omp_places": bound.omp_places,
            "gomp_cpu_affinity": bound.gomp_cpu_affinity,
        },
        "ranks": ranks,
    }


def fit_text(found: Fit, bound: Bindings, order: RankOrder | None = None) -> str:
    """Return the CPUs of a job and the options that bind it to them."""
    lines = [
        f"CPUs {found.cpus}",
        f"radius {found.radius:.4g} hops from CPU {found.centre}, {found.total:.4g} over all pairs",
    ]
    if found.memory:
        lines.append(f"memory nodes {found.memory}")
    if found.devices:
        lines.append(f"near {', '.join(found.devices)}")
    if order:
        lines += _order_lines(order)
    affinity = f"  GOMP_CPU_AFFINITY='{bound.gomp_cpu_affinity}'"
    return "\n".join([*lines, *bindings_lines(bound), affinity])


def _order_lines(order: RankOrder) -> Iterator[str]:
    """Yield the CPUs of each rank, and the cost as a percentage of that of the topology's own order."""
    if order.cost < order.before:
        text = f"ranks in turn on CPUs {' '.join(map(str, order.shares))}"
        yield from textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
        yield f"{order.cost / order.before:.0%} of the bytes x hops that the topology's own order has"
    else:
        yield "ranks in the topology's own order: no other has less bytes x hops"


def bindings_lines(bound: Bindings) -> list[str]:
    """Return the commands that bind a program to its CPUs."""
    commands = (bound.taskset, bound.hwloc_bind, bound.srun, f"OMP_PLACES='{bound.omp_places}'")
    return [f"  {line}" for line in commands]


def why_document(answers: Mapping[str, BrokerAnswer], ranking: Sequence[str]) -> WhyDocument:
    """Return the hosts that can satisfy a requirement, and the reasons of the others, as ``apples.why/1``."""
    hosts: list[HostVerdict] = [
        {
            "host": name,
            "verdict": answer.verdict.value,
            "reason": answer.reason,
            "found": answer.found,
            "needed": answer.needed,
            "key": answer.key,
            "radius": answer.quality[0] if answer else None,
        }
        for name, answer in answers.items()
    ]
    return {"schema": "apples.why/1", "hosts": hosts, "ranking": list(ranking)}


def why_text(answers: Mapping[str, BrokerAnswer], ranking: Sequence[str]) -> str:
    """Return the verdicts of the hosts as text: a line a host."""
    best = f"; best: {ranking[0]}" if ranking else ""
    lines = [f"{len(ranking)} of {len(answers)} can{best}"]
    width = max(map(len, answers))
    for name, answer in answers.items():
        reason = f"radius {answer.quality[0]:.4g}" if answer else answer.reason
        lines.append(f"{name:<{width}}  {answer.verdict:<7}  {reason}")
    return "\n".join(lines)


def fences_document(levels: Sequence[IsolationLevel]) -> FencesDocument:
    """Return the levels of isolation and whether each works on this machine, as ``apples.fences/1``."""
    entries: list[IsolationEntry] = [
        {
            "fence": level.title,
            "holds": level.isolation is not None,
            "guarantee": level.guarantee.value if level.guarantee else None,
            "why_not": level.why_not or None,
        }
        for level in levels
    ]
    return {"schema": "apples.fences/1", "fences": entries}


def fences_text(document: FencesDocument) -> str:
    """Return the levels of isolation as text: a line a level."""
    lines = []
    for entry in document["fences"]:
        verdict = entry["guarantee"] if entry["holds"] else f"no: {entry['why_not']}"
        lines.append(f"{entry['fence']:<14} {verdict}")
    return "\n".join(lines)


def daemon_text(status: TopologydDocument) -> str:
    """Return the state of the topology daemon: its CPUs, its jobs and its problems."""
    lines = [f"{status['fence']}: CPUs {status['universe']}, free {status['free'] or 'none'}"]
    for job in status["jobs"]:
        lent = "" if job["owns"] == job["cpus"] else f" (owns {job['owns'] or 'none'})"
        cpus = job["cpus"] or "none"
        lines.append(f"{job['job']:<24} {job['state']:<11} CPUs {cpus}{lent}  {job['principal']}")
    foreign = status["foreign"].items()
    lines += [f"{path}: CPUs {cpus} are reserved by others" for path, cpus in foreign]
    return "\n".join([*lines, *(f"note: {problem}" for problem in status["problems"])])
