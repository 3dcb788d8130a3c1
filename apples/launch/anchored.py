"""What starts a malleable job on this machine: the anchor's job file and its command, built and not run.

The anchor takes the place of mpiexec behind the watchdog; it starts one mpiexec a host itself.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from apples.launch import bind, hydra
from apples.launch.hydra import Command, Segment
from apples.malleable.command import Share
from apples.malleable.job_file import Engine, JobFile, Place

SHARED_MEMORY = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "shm"}
"""Between worlds of one machine: UCX moves 0.4 GB/s there where libfabric's shared memory moves 2."""
JOB_FILE = "job.json"
SECRET_FILE = "secret"  # noqa: S105 - the name of a file
ANNOUNCE_FILE = "control.json"
ANCHOR = "apples.malleable.anchor"
PROGRAM_ANCHOR = "apples.malleable.programs.anchor"


def places(segments: Sequence[Segment], warm: Collection[str] = ()) -> tuple[Place, ...]:
    """Return the hosts a job may use, all of them parts of this machine.

    Parameters
    ----------
    warm
        Hosts on which a parked group may wait for a growth.
    """
    return tuple(
        Place(
            one.host,
            one.ranks,
            one.program,
            sys.executable,
            bind.__file__,
            hydra.mpiexec(),
            hydra.OPTIONS,
            one.cpus,
            one.cgroup,
            environment={**SHARED_MEMORY, **hydra.LOOPBACK, **hydra.ONE_THREAD},
            warm=one.host in warm,
        )
        for one in segments
    )


def command(job: JobFile, secret: bytes, folder: Path | None, anchor: str = ANCHOR) -> Command:
    """Return the command that starts a job's anchor.

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
    argv = (sys.executable, "-m", anchor, JOB_FILE)
    return Command(argv, {**hydra.LOOPBACK, **hydra.ONE_THREAD}, files)


def with_control(job: JobFile, control: Mapping[str, Any]) -> JobFile:
    """Return the job with what its control server is to know."""
    raw = {name: getattr(job, name) for name in JobFile.__dataclass_fields__}
    return JobFile(**{**raw, "control": dict(control)})


def job_of(
    name: str,
    segments: Sequence[Segment],
    members: Sequence[Share],
    task: Mapping[str, Any],
    *,
    minimum: int = 1,
    maximum: int = 0,
    warm: Collection[str] = (),
    commits: Path | None = None,
    commit_seconds: float = 0.0,
    engine: Engine = "auto",
) -> JobFile:
    """Return what the anchor is told.

    Parameters
    ----------
    segments
        Every host the job may ever use.
    members
        The first map.
    """
    return JobFile(
        name,
        str(Path.cwd()),
        places(segments, warm),
        tuple(members),
        json.loads(json.dumps(task, allow_nan=False)),
        minimum,
        maximum,
        "" if commits is None else str(commits),
        commit_seconds,
        engine,
    )
