"""What starts a malleable job: the job file and the command of its manager, built and not run.

The job manager (`apples.malleable.manager`) takes the place of mpiexec below the run's supervisor, on this
machine; it has one mpiexec started a host, by the node's supervisor there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from apples.launch import bind, hydra
from apples.launch.hydra import LaunchCommand, RankGroup
from apples.launch.remote import sharing
from apples.launch.remote import ssh as line
from apples.launch.remote.ssh import step
from apples.launch.ssh import LaunchTarget, carried
from apples.malleable.control.command import HostShare, HostSpec
from apples.malleable.control.job_file import EngineName, JobFile

SHARED_MEMORY = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "shm"}
"""Between worlds of one machine: UCX moves 0.4 GB/s there where libfabric's shared memory moves 2."""
QUIET = {"UCX_LOG_LEVEL": "error"}
"""UCX warns of a pooled request of its own whenever a world leaves."""
JOB_FILE = "job.json"
SECRET_FILE = "secret"  # noqa: S105 - the name of a file
ANNOUNCE_FILE = "control.json"
MANAGER = "apples.malleable.manager.job_manager"
PYTHON = "{python}"
"""A host's own interpreter, which the node's supervisor knows."""
PROGRAM_MANAGER = "apples.malleable.migration.manager"


@dataclass(frozen=True, slots=True)
class AllocatedNode:
    """How a node of an allocation is used: the allocation's number, the interpreter and directory there."""

    allocation: str
    python: str
    directory: str


def local_spec(rank_group: RankGroup, *, warm: bool = False) -> HostSpec:
    """Return a host that is a part of this machine, as all the others are."""
    environment = {**SHARED_MEMORY, **hydra.LOOPBACK, **hydra.ONE_THREAD}
    return _here(rank_group, environment, warm)


def remote_spec(target: LaunchTarget, *, warm: bool = False) -> HostSpec:
    """Return a host where others are other machines: reached over ssh, or this machine beside them."""
    rank_group = target.rank_group
    environment = {**QUIET, **hydra.ONE_THREAD, **carried(), **target.environment}
    if target.reach is None:
        return _here(rank_group, environment, warm)
    # The login that a user's jobs share may end at any time: then each goes on with one of its own. A step of
    # Slurm's ends with its connection.
    reach = line.command(target.reach, shared=sharing.socket_name(target.reach), begins=False)
    return replace(
        _there(rank_group, target.reach.python, reach, environment, warm),
        again=() if target.reach.allocation else tuple(line.command(target.reach)),
        directory=target.directory,
        programs=target.programs,
    )


def allocation_spec(rank_group: RankGroup, node: AllocatedNode, *, warm: bool = False) -> HostSpec:
    """Return a node of the Slurm allocation this process is in: reached by a step of its own."""
    environment = {**QUIET, **hydra.ONE_THREAD, **carried()}
    reach = (*step(rank_group.host, node.allocation), node.python)
    return replace(
        _there(rank_group, node.python, reach, environment, warm), directory=node.directory
    )


def _there(
    rank_group: RankGroup,
    python: str,
    reach: Sequence[str],
    environment: Mapping[str, str],
    warm: bool,
) -> HostSpec:
    """Return a host elsewhere; what stands in braces the node's supervisor fills in."""
    return HostSpec(
        rank_group.host,
        rank_group.ranks,
        tuple(PYTHON if word == python else word for word in rank_group.program),
        PYTHON,
        "{apples.launch.bind}",
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


def command(
    job: JobFile, secret: bytes, folder: Path | None, manager: str = MANAGER
) -> LaunchCommand:
    """Return the command that starts a job's manager.

    Parameters
    ----------
    folder
        Where the secret is and where the port is announced; the run's own directory, which is gone with
        the run, when None.
    """
    where = {"secret": SECRET_FILE, "announce": ANNOUNCE_FILE}
    files: dict[str, str] = {}
    if folder is None:
        files[SECRET_FILE] = secret.hex()
    else:
        where = {name: str(folder / file) for name, file in where.items()}
    files[JOB_FILE] = with_control(job, where).dumps()
    argv = (sys.executable, "-m", manager, JOB_FILE)
    alone = not any(local_spec.reach for local_spec in job.hosts)
    return LaunchCommand(argv, {**(hydra.LOOPBACK if alone else {}), **hydra.ONE_THREAD}, files)


def with_control(job: JobFile, control: Mapping[str, Any]) -> JobFile:
    """Return the job with what its control server is to know."""
    raw = {name: getattr(job, name) for name in JobFile.__dataclass_fields__}
    return JobFile(**{**raw, "control": dict(control)})


def job_file(
    name: str,
    places: Sequence[HostSpec],
    members: Sequence[HostShare],
    task: Mapping[str, Any],
    *,
    minimum: int = 1,
    maximum: int = 0,
    commits: Path | None = None,
    commit_seconds: float | None = None,
    engine: EngineName = "auto",
    attempt: int = 1,
    epoch: int = 0,
    scheduled: bool = False,
) -> JobFile:
    """Return what the job manager is told.

    Parameters
    ----------
    places
        Every host the job may ever use.
    members
        The first map.
    attempt, epoch, scheduled
        As in `JobFile`: from the second attempt on the job begins with its last commit.
    """
    return JobFile(
        name,
        str(Path.cwd()),
        tuple(places),
        tuple(members),
        json.loads(json.dumps(task, allow_nan=False)),
        minimum,
        maximum,
        "" if commits is None else str(commits),
        commit_seconds,
        engine,
        attempt=attempt,
        epoch=epoch,
        scheduled=scheduled,
    )
