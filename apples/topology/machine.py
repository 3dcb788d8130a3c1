"""`Topology`: the parts, memory nodes and distances of one machine, independent of their source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import or_

from apples.errors import LaunchError
from apples.topology.cpus import NO_CPUS, CpuSet
from apples.topology.hops import Hops
from apples.topology.parts import (
    NO_LATENCIES,
    Branch,
    CoreKind,
    Device,
    DeviceKind,
    Latencies,
    MemoryNode,
    Part,
    branch_of,
    node_of_cpu,
)

HIGH_BANDWIDTH = frozenset({"HBM", "MCDRAM"})
"""Kinds of memory nodes with high bandwidth and little capacity."""


@dataclass(frozen=True, eq=False)
class Topology:
    """One machine. Compared by identity; derived values are cached.

    Attributes
    ----------
    root
        The machine with the parts inside; only CPUs that this process may use.
    nodes
        Memory nodes by number, those without CPUs included.
    latencies
        The matrix between nodes; empty if the source has none.
    disallowed, offline
        CPUs that the machine has but this process may not use, and CPUs that are switched off or unknown.
    name
        Name of the source.
    devices
        GPUs and network interfaces under their hwloc names; None: the source does not look for devices.
    kinds
        Masks of the performance and efficiency cores' CPUs; empty if all cores are of one kind.

    Examples
    --------
    >>> from apples.topology import synthetic
    >>> machine = synthetic("package:2 core:4 pu:2")
    >>> len(machine.cpus), len(machine.cores), machine.hops(0, 1), machine.hops(0, 15)
    (16, 8, 1.0, 3.0)
    """

    root: Part
    nodes: tuple[MemoryNode, ...] = ()
    latencies: Latencies = NO_LATENCIES
    disallowed: CpuSet = NO_CPUS
    offline: CpuSet = NO_CPUS
    name: str = ""
    devices: tuple[Device, ...] | None = None
    kinds: Mapping[CoreKind, int] = field(default_factory=dict)

    @cached_property
    def cpus(self) -> CpuSet:
        """The CPUs that may be used."""
        return CpuSet(self.root.cpus)

    @cached_property
    def cores(self) -> tuple[CpuSet, ...]:
        """The CPUs of each core; a CPU outside all cores counts as a core of its own."""
        return self._sets("Core")

    @cached_property
    def packages(self) -> tuple[CpuSet, ...]:
        """The CPUs of each package; an empty set for a package without usable CPUs."""
        return self._sets("Package")

    @cached_property
    def hops(self) -> Hops:
        """The distance between two CPUs: ``hops(a, b)``."""
        return Hops(self.root, self.nodes, self.latencies)

    @cached_property
    def units(self) -> tuple[int, ...]:
        """Masks of the smallest units that share no core: the cores, and each CPU outside all cores."""
        cores = [core.mask for core in self.cores if core]
        without_core = CpuSet(self.root.cpus & ~sum(cores))
        return tuple(
            sorted([*cores, *(1 << cpu for cpu in without_core)], key=lambda mask: mask & -mask)
        )

    @cached_property
    def lone_cpus(self) -> int:
        """Mask of the CPUs that share their core with no other."""
        return sum(unit for unit in self.units if unit.bit_count() == 1)

    @cached_property
    def core_radius(self) -> float:
        """The most hops between two CPUs of a core."""
        return max(self.hops.centre(unit)[0] for unit in self.units)

    @cached_property
    def node_cpus(self) -> tuple[int, ...]:
        """Masks of the CPUs of each memory node; one mask of all CPUs without a node."""
        masks: dict[int, int] = {}
        for cpu, node in node_of_cpu(self.root.cpus, self.nodes).items():
            masks[node] = masks.get(node, 0) | 1 << cpu
        return tuple(masks.values()) or (self.root.cpus,)

    @cached_property
    def branch(self) -> Branch:
        """The machine as a tree of the parts that differ in their CPUs."""
        return branch_of(self.root, self.root.cpus)

    def amounts(self) -> dict[str, int | None]:
        """Return the amounts that ``select[..]`` compares, by LSF's names, in bytes or counts; None: unknown.

        Examples
        --------
        >>> from apples.topology import synthetic
        >>> synthetic("package:2 core:4 pu:2").amounts()["ncores"]
        8
        """
        sizes = [(node.kind, node.memory) for node in self.nodes if node.kind != "GPUMemory"]
        known = [(kind, size) for kind, size in sizes if size is not None]
        return {
            "ngpus": self._count(DeviceKind.GPU),
            "nnics": self._count(DeviceKind.NIC),
            "ncpus": len(self.cpus),
            "ncores": len(self.cores),
            "maxmem": sum(size for _, size in known) if known else None,
            "hbm": sum(size for kind, size in known if kind in HIGH_BANDWIDTH) if known else None,
        }

    def of_kind(self, kind: CoreKind) -> int:
        """Return the mask of the CPUs of a kind of core. If all cores are alike, they are performance cores."""
        if not self.kinds:
            return self.root.cpus if kind is CoreKind.PERFORMANCE else 0
        return self.kinds.get(kind, 0) & self.root.cpus

    def near(self, name: str) -> int | None:
        """Return the mask of the CPUs local to a device or to a kind of devices; None for an unknown name."""
        masks = [device.cpus for device in self.devices or () if device.called(name)]
        return reduce(or_, masks) if masks else None

    def _count(self, kind: DeviceKind) -> int | None:
        if self.devices is None:
            return None
        return sum(device.kind is kind for device in self.devices)

    def memory_of(self, cpus: CpuSet) -> CpuSet:
        """Return the memory nodes local to some CPUs; if none has memory, the nearest that has."""
        near = {n.number for n in self.nodes if n.cpus & cpus.mask and n.memory != 0}
        for domain in self.hops.domains:
            served = any(n.number in near and n.cpus & domain.cpus for n in self.nodes)
            if domain.cpus & cpus.mask and not served:
                near |= self._nearest_memory(domain.node)
        return CpuSet.of(near)

    def _nearest_memory(self, node: int | None) -> set[int]:
        having = [n.number for n in self.nodes if n.memory != 0]
        if node in self.latencies.nodes:
            row = self.latencies.values[self.latencies.nodes.index(node)]
            far = dict(zip(self.latencies.nodes, row, strict=True))
            having.sort(key=lambda number: (far.get(number, float("inf")), number))
        return set(having[:1])

    def _sets(self, kind: str) -> tuple[CpuSet, ...]:
        return tuple(CpuSet(part.cpus) for part in self.root.walk() if part.kind == kind)


def restricted(topology: Topology, cpus: CpuSet, memory: CpuSet | None = None) -> Topology:
    """Return the topology with only these CPUs; parts without any are removed.

    Parameters
    ----------
    memory
        Numbers of the usable memory nodes; None: all.

    Raises
    ------
    LaunchError
        None of the CPUs is on the machine.

    Examples
    --------
    >>> from apples.topology import synthetic
    >>> rest = restricted(synthetic("package:2 core:2 pu:1"), CpuSet.parse("2-3"))
    >>> str(rest.cpus), len(rest.packages), str(rest.disallowed)
    ('2-3', 1, '0-1')
    """
    if topology.cpus <= cpus and memory is None:
        return topology
    root = _rest(topology.root, cpus.mask)
    if root is None:
        raise LaunchError(
            f"none of the CPUs {cpus} that may be used is among {topology.cpus} of {topology.name}",
            code="cpus-not-ours",
            cpus=str(cpus),
            known=str(topology.cpus),
        )
    nodes = tuple(
        replace(node, cpus=node.cpus & cpus.mask)
        for node in topology.nodes
        if memory is None or node.number in memory
    )
    return replace(
        topology,
        root=root,
        nodes=nodes,
        devices=None
        if topology.devices is None
        else tuple(replace(device, cpus=device.cpus & cpus.mask) for device in topology.devices),
        latencies=topology.latencies.among({node.number for node in nodes}),
        disallowed=topology.disallowed | (topology.cpus - cpus),
    )


def _rest(part: Part, mask: int) -> Part | None:
    if not part.cpus & mask:
        return None
    inside = tuple(rest for child in part.children if (rest := _rest(child, mask)) is not None)
    return replace(part, cpus=part.cpus & mask, children=inside)
