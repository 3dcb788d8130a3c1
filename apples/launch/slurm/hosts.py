"""The host list of a Slurm cluster, from what Slurm says of its nodes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import hat
from apples.launch.slurm.nodes import SlurmNode
from apples.resources import HostListDocument

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


def left_out(nodes: Sequence[SlurmNode]) -> Iterator[str]:
    """Yield a line about each node that no host list can or should name."""
    for node in nodes:
        if not NAME.fullmatch(node.name):
            yield f"node {node.name!r} left out: a host's name is letters, digits, '.', '_' and '-'"
        elif node.refusal:
            yield f"node {node.name} left out: {node.refusal}"


def host_list(nodes: Sequence[SlurmNode], site_features: Sequence[str] = ()) -> str:
    """Return the text of ``hosts.toml`` for the nodes that jobs may be sent to.

    A slot is a core; processors that are hardware threads of one are not counted twice. Speeds are left
    out: `apples calibrate` measures them.

    Parameters
    ----------
    site_features
        Features that stand for sites: a node that has one of them is at that site.

    Raises
    ------
    hat.DocumentError
        What Slurm says makes no host list.
    """
    content = {"host": entries(nodes, site_features)}
    text = "# Written by: apples hosts import slurm\n" + hat.dump(content)
    hat.parse(text, HostListDocument, source="sinfo")
    return text


def entries(nodes: Sequence[SlurmNode], site_features: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the hosts as the entries of a host list."""
    kept = [n for n in nodes if NAME.fullmatch(n.name) and not n.refusal]
    return [_host(node, site_features) for node in kept]


def _host(node: SlurmNode, site_features: Sequence[str]) -> dict[str, Any]:
    host: dict[str, Any] = {"name": node.name}
    site = next((f for f in site_features if f in node.features), "")
    if site:
        host["site"] = site
    if node.cores > 1:
        host["slots"] = min(node.cores, 4096)
    if node.memory > node.allocated_memory:
        host["free_memory"] = node.memory - node.allocated_memory
    if node.platform:
        host["platform"] = node.platform
    return host
