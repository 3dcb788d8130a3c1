"""The parts of a machine: nested `Part`s down to its CPUs, and `MemoryNode`s beside them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A machine, package, cache, core or CPU: each part holds CPUs, one part inside the other.

    Attributes
    ----------
    kind
        hwloc's name: ``Machine``, ``Package``, ``Group``, ``L3Cache``, ``Core``, ``PU``.
    number
        Number of the operating system; None without one.
    cpus
        Mask of the usable CPUs in it; 0 for a package without any.
    children
        Parts inside, by lowest CPU.
    height
        0 for a CPU, else one more than the highest child that has CPUs.
    """

    kind: str
    number: int | None
    cpus: int
    children: tuple[Part, ...] = ()
    height: int = field(init=False)

    def __post_init__(self) -> None:
        heights = [child.height for child in self.children if child.cpus]
        object.__setattr__(self, "height", 1 + max(heights) if heights else 0)

    def walk(self) -> Iterator[Part]:
        """Yield this part and all parts inside, outer before inner."""
        waiting = [self]
        while waiting:
            part = waiting.pop()
            yield part
            waiting.extend(reversed(part.children))


@dataclass(frozen=True, slots=True)
class MemoryNode:
    """A NUMA node.

    Attributes
    ----------
    number
        Number of the operating system.
    cpus
        Mask of the usable CPUs it is local to; 0 for a node without CPUs.
    memory
        Bytes; None if the source does not state it.
    kind
        ``DRAM``, ``HBM`` and the like, or empty.
    """

    number: int
    cpus: int
    memory: int | None = None
    kind: str = ""


class CoreKind(StrEnum):
    """The purpose of a core in a hybrid machine."""

    PERFORMANCE = "performance"
    EFFICIENCY = "efficiency"


class DeviceKind(StrEnum):
    """The purpose of a device."""

    GPU = "gpu"
    NIC = "nic"


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU or a network interface.

    Attributes
    ----------
    name
        Name of the system: ``cuda0``, ``rsmi1``, ``eth0``, ``mlx5_0``; a device without one has its PCI address.
    cpus
        Mask of the usable CPUs that it is local to.
    memory
        Bytes of its own memory; None if the source does not state it.
    model
        Model name of the vendor, or empty.
    aliases
        Other names in the system or a runtime: ``nvml0`` for ``cuda0``, ``mlx5_0`` for ``ib0``.
    """

    name: str
    kind: DeviceKind
    cpus: int
    memory: int | None = None
    model: str = ""
    aliases: tuple[str, ...] = ()

    def called(self, name: str) -> bool:
        """Whether a name is a name of the device, or its kind."""
        return name in (self.name, self.kind, *self.aliases)


@dataclass(frozen=True, slots=True)
class Latencies:
    """The matrix of relative latencies between memory nodes from the firmware (the SLIT).

    Attributes
    ----------
    nodes
        Numbers of the nodes, in the order of rows and columns.
    values
        Rows of the matrix.
    """

    nodes: tuple[int, ...] = ()
    values: tuple[tuple[int, ...], ...] = ()

    @property
    def distinct(self) -> tuple[int, ...]:
        """The different values, ascending."""
        return tuple(sorted({value for row in self.values for value in row}))

    def among(self, nodes: Collection[int]) -> Latencies:
        """Return the rows and columns of some nodes, by their numbers."""
        keep = sorted(
            (i for i, n in enumerate(self.nodes) if n in nodes), key=self.nodes.__getitem__
        )
        rows = tuple(tuple(self.values[i][j] for j in keep) for i in keep)
        return Latencies(tuple(self.nodes[i] for i in keep), rows)


NO_LATENCIES = Latencies()


@dataclass(frozen=True, slots=True)
class Branch:
    """A part of the tree of distances. Nested parts with the same CPUs become one branch, the lowest.

    Attributes
    ----------
    cpus
        Mask.
    height
        Height of the lowest part that holds them.
    children
        Branches below it; empty for a single CPU.
    """

    cpus: int
    height: int
    children: tuple[Branch, ...] = ()

    def walk(self) -> Iterator[Branch]:
        """Yield this branch and all branches inside, outer before inner."""
        yield self
        for child in self.children:
            yield from child.walk()


def branch_of(part: Part, cpus: int) -> Branch:
    """Return the branch of a part that holds some of its CPUs (at least one)."""
    mask = part.cpus & cpus
    inside = [child for child in part.children if child.cpus & mask]
    if len(inside) == 1:
        return branch_of(inside[0], cpus)
    return Branch(mask, part.height, tuple(branch_of(child, cpus) for child in inside))


def node_of_cpu(cpus: int, nodes: Sequence[MemoryNode]) -> dict[int, int]:
    """Return the node of each CPU of a mask: the local node with fewest CPUs, of several the lowest.

    The result has no entry for a CPU without a local node.
    """
    nodes_by_cpu: dict[int, int] = {}
    for node in sorted(nodes, key=lambda node: (-node.cpus.bit_count(), -node.number)):
        mask = node.cpus & cpus
        while mask:
            low = mask & -mask
            nodes_by_cpu[low.bit_length() - 1] = node.number
            mask ^= low
    return nodes_by_cpu
