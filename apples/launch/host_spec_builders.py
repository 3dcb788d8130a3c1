"""Build the `HostSpec` of a part of this machine, of a host over ssh, and of a node of a Slurm allocation.

The builders are separate from `HostSpec` because a job manager loads that class without site packages.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from apples.launch import hydra
from apples.launch import rank_wrapper as bind
from apples.launch.host_spec import HostSpec
from apples.launch.hydra import RankGroup
from apples.launch.remote import ssh as line
from apples.launch.remote.ssh import Reach
from apples.launch.ssh import LaunchTarget, carried
from apples.launch.this_host import PYTHON

SHARED_MEMORY = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "shm"}
"""Transport between worlds on one machine: libfabric's shared memory moves 2 GB/s, UCX only 0.4 GB/s."""
QUIET = {"UCX_LOG_LEVEL": "error"}
"""Suppress UCX's warning about one of its own pooled requests, printed whenever a world leaves."""


@dataclass(frozen=True, slots=True)
class AllocatedNode:
    """A node of an allocation: number of the allocation, interpreter and working directory on the node."""

    allocation: str
    python: str
    directory: str


def local_spec(rank_group: RankGroup, *, warm: bool = False) -> HostSpec:
    """Return the spec of a host on this machine, for a job with all its hosts on this machine."""
    environment = {**SHARED_MEMORY, **hydra.LOOPBACK, **hydra.ONE_THREAD}
    return _here(rank_group, environment, warm)


def remote_spec(target: LaunchTarget, *, warm: bool = False) -> HostSpec:
    """Return the spec of a host over ssh, or of this machine, for a job with other machines."""
    rank_group = target.rank_group
    environment = {**QUIET, **hydra.ONE_THREAD, **carried(), **target.environment}
    if target.reach is None:
        return _here(rank_group, environment, warm)
    # Each job has its own login: a login that a user's jobs share may end at any time, with all its sessions.
    reach = line.command(target.reach)
    return replace(
        _there(rank_group, reach, environment, warm),
        directory=target.directory,
        programs=target.programs,
    )


def allocation_spec(rank_group: RankGroup, node: AllocatedNode, *, warm: bool = False) -> HostSpec:
    """Return the spec of a node of this process's Slurm allocation; a separate step starts processes there."""
    environment = {**QUIET, **hydra.ONE_THREAD, **carried()}
    name = rank_group.host
    reach = line.command(Reach(name, name, node.python, allocation=node.allocation))
    return replace(_there(rank_group, reach, environment, warm), directory=node.directory)


def _there(
    rank_group: RankGroup,
    reach: Sequence[str],
    environment: Mapping[str, str],
    warm: bool,
) -> HostSpec:
    """Return the spec of a host on another machine; its supervisor replaces the names in braces."""
    return HostSpec(
        rank_group.host,
        rank_group.ranks,
        rank_group.program,
        PYTHON,
        "{apples.launch.rank_wrapper}",
        "{mpiexec}",
        hydra.OPTIONS,
        reach=tuple(reach),
        environment=environment,
        warm=warm,
    )


def _here(rank_group: RankGroup, environment: Mapping[str, str], warm: bool) -> HostSpec:
    return HostSpec(
        rank_group.host,
        rank_group.ranks,
        rank_group.program,
        sys.executable,
        bind.__file__,
        hydra.mpiexec(),
        hydra.OPTIONS,
        rank_group.cpus,
        rank_group.cgroup,
        environment=environment,
        warm=warm,
    )
