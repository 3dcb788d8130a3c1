"""The start of a malleable job: builds the job file and the command of its manager, without running it.

The job manager (`apples.malleable.manager`) replaces mpiexec below the run's supervisor, on this machine. On each
host, a node supervisor starts an mpiexec for it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from apples.launch import hydra
from apples.launch.host_spec import HostSpec
from apples.launch.hydra import LaunchCommand
from apples.malleable.control.command import HostShare
from apples.malleable.control.job_file import JobFile

JOB_FILE = "job.json"
CONTROL_SOCKET = "control"
MANAGER = "apples.malleable.manager.job_manager"
PROGRAM_MANAGER = "apples.malleable.migration.manager"


def command(job: JobFile, folder: Path | None, manager: str = MANAGER) -> LaunchCommand:
    """Return the command that starts a job's manager.

    Parameters
    ----------
    folder
        Folder of the control socket; None: the run's own directory, which is removed with the run.
    """
    control = CONTROL_SOCKET if folder is None else str(folder / CONTROL_SOCKET)
    files = {JOB_FILE: replace(job, control=control).dumps()}
    argv = (sys.executable, "-m", manager, JOB_FILE)
    alone = not any(spec.reach for spec in job.hosts)
    environment = {**(hydra.LOOPBACK if alone else {}), **hydra.ONE_THREAD}
    return LaunchCommand(argv, environment, files, forks=True)


def describe_job(
    name: str,
    places: Sequence[HostSpec],
    members: Sequence[HostShare],
    task: Mapping[str, Any],
    *,
    minimum: int = 1,
    maximum: int = 0,
    commits: Path | None = None,
    commit_seconds: float | None = None,
    attempt: int = 1,
    epoch: int = 0,
    scheduled: bool = False,
) -> JobFile:
    """Return the job file for the job manager.

    Parameters
    ----------
    places
        All hosts that the job may use.
    members
        The first map.
    attempt, epoch, scheduled
        As in `JobFile`: from the second start on the job begins with its last commit.
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
        attempt=attempt,
        epoch=epoch,
        scheduled=scheduled,
    )
