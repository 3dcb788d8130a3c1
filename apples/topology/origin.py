"""The machine of Smith et al. 2001 as a model: an SGI Origin 3000, memory nodes around routers in a cube.

A memory node holds four CPUs, a router joins four nodes, the routers are the corners of a hypercube:
between two nodes lie one router, or one more than the edges between theirs.
"""

from __future__ import annotations

from apples.errors import UsageError
from apples.topology.machine import Topology
from apples.topology.parts import Latencies, MemoryNode, Part

CPUS_PER_NODE = 4
NODES_PER_ROUTER = 4
LOCAL, PER_ROUTER = 10, 6
"""Relative latency at home, and what each router adds (10, 16, 22, ...)."""


def origin(cpus: int = 128) -> Topology:
    """Return an Origin of so many CPUs: a power of two from 16 on.

    Examples
    --------
    >>> machine = origin(128)
    >>> len(machine.cpus), len(machine.nodes), machine.latencies.distinct
    (128, 32, (10, 16, 22, 28, 34))
    >>> machine.hops(0, 4), machine.hops(0, 127)
    (1.0, 4.0)
    """
    if cpus < CPUS_PER_NODE * NODES_PER_ROUTER or cpus & (cpus - 1) or cpus > 4096:
        raise UsageError(f"an Origin of {cpus} CPUs: must be a power of two from 16 to 4096")
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
