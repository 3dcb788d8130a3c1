"""Looks at the hosts of a list through Slurm: does it know them, are they in service, in the allocation."""

from __future__ import annotations

import os
from collections.abc import Mapping

from apples.errors import LaunchError
from apples.launch.plan import HostSurvey
from apples.launch.remote.fitness import Finding, Fitness
from apples.launch.slurm import client, names
from apples.launch.slurm.nodes import Node
from apples.launch.talk import Talk


def own_allocation() -> str:
    """Return the number of the allocation this process is in; empty where it is in none."""
    return os.environ.get("SLURM_JOB_ID", "")


def looked(
    survey: HostSurvey, talk: Talk, *, partition: str = "", allocation: str = ""
) -> Mapping[str, Fitness]:
    """Ask Slurm about every host nobody has looked at.

    Parameters
    ----------
    allocation
        Its number, where nodes outside are of no use.

    Raises
    ------
    LaunchError
        Slurm does not answer.
    """
    unseen = [host.name for host in survey.hosts if host.name not in survey.findings]
    if not unseen:
        return {}
    known = {node.name: node for node in client.nodes(partition)}
    allocated = _allocated() if allocation else None
    found = {}
    for name in unseen:
        if allocated is not None:
            reason = "" if name in allocated else f"it is not in allocation {allocation}"
        else:
            reason = _refusal(known.get(name), partition)
        finding = Finding("slurm", "fail" if reason else "ok", reason or "in service")
        found[name] = Fitness(name, (finding,))
        if reason:
            talk(f"warning: {name} cannot be used: {reason}")
    return found


def _refusal(node: Node | None, partition: str) -> str:
    """Return why no rank may be sent to a node; empty where one may."""
    if node is None:
        where = f" in partition '{partition}'" if partition else ""
        return f"Slurm knows no node of that name{where}"
    return node.refusal


def _allocated() -> frozenset[str]:
    """Return the nodes of the allocation this process is in."""
    text = os.environ.get("SLURM_JOB_NODELIST", "") or os.environ.get("SLURM_NODELIST", "")
    try:
        return frozenset(names.expand(text))
    except ValueError as error:
        raise LaunchError(f"SLURM_JOB_NODELIST: {error}") from None
