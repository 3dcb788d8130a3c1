"""A topology without the CPUs and memory nodes that are not ours: what an outer allocation leaves."""

from __future__ import annotations

from dataclasses import replace

from apples.errors import LaunchError
from apples.topology.cpus import CpuSet
from apples.topology.machine import Topology
from apples.topology.parts import Part


def restricted(topology: Topology, cpus: CpuSet, memory: CpuSet | None = None) -> Topology:
    """Return the topology with these CPUs alone; parts of which nothing is left are gone.

    Parameters
    ----------
    memory
        Numbers of the memory nodes that may be used; None: all.

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
            f"none of the CPUs {cpus} that may be used is among {topology.cpus} of {topology.name}"
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
        latencies=topology.latencies.among({node.number for node in nodes}),
        disallowed=topology.disallowed | (topology.cpus - cpus),
    )


def _rest(part: Part, mask: int) -> Part | None:
    if not part.cpus & mask:
        return None
    inside = tuple(rest for child in part.children if (rest := _rest(child, mask)) is not None)
    return replace(part, cpus=part.cpus & mask, children=inside)
