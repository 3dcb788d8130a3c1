"""Measure a program's computing kernel on one host, by the program's ``calibrate`` mode."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

from apples.errors import ApplicationError, DeadlineError
from apples.launch import ssh
from apples.launch.events import Calibration, Outcome, Progress, Talk, to_stderr
from apples.launch.hydra import RankGroup, command
from apples.launch.plan import Parameters, calibrate_task
from apples.launch.processes import job_name
from apples.launch.remote.connection import HostConnection, log_in
from apples.launch.remote.preflight import address_towards
from apples.launch.run import Run
from apples.launch.ssh import LaunchTarget
from apples.resources import Host

CALIBRATION_SECONDS = 60.0
"""Time limit until the program is ready, and for each size."""
MAX_LINES = 20
"""Limit of the program's output lines that are printed, besides its events."""


def calibrate(
    host: Host,
    program: Sequence[str],
    implementation: str,
    parameters: Parameters,
    sizes: Sequence[int],
    *,
    silence_seconds: float = CALIBRATION_SECONDS,
    within_seconds: float = math.inf,
    talk: Talk = to_stderr,
    target: LaunchTarget | None = None,
    threads: int = 0,
) -> tuple[Calibration, ...]:
    """Return the measurements of one process of `program` on the host's CPUs, an entry for each size.

    No CPU quota is set: the program reports processor time, which a quota does not change.

    Parameters
    ----------
    program
        Argument list that starts the implementation.
    sizes
        Rows of the strips to measure.
    silence_seconds
        Time limit until the program is ready, and then for each size; other output does not extend it.
    within_seconds
        If the program has measured a size after this time, it is ended, and the other sizes are left out. A finite
        limit also leaves out sizes that take longer than `silence_seconds`.
    target
        The login and the program on another machine; None: the host is this machine.
    threads
        Number of threads of the process, if the implementation uses threads; else 0.

    Raises
    ------
    LaunchError
        The program cannot be started, or was not ready within `silence_seconds`.
    ApplicationError
        The program failed, violated the protocol, left a size out, or ran the application instead.
    DeadlineError
        The program measured no size for `silence_seconds`.
    """
    task = calibrate_task(implementation, parameters, sizes, threads)
    job = job_name()
    connections: list[HostConnection] = []
    if target is None:
        rank_groups = (RankGroup(host.name, 1, tuple(program), host.cpus),)
        order = command(rank_groups, task, host.directory)
    else:
        rank_groups = (target.rank_group,)
        here = target.back or address_towards([target.address]) or "127.0.0.1"
        order = ssh.command([target], task, job=job, here=here, directory=Path.cwd())
        connections += [log_in(target.reach, job)] if target.reach else []
    run = Run(
        order, rank_groups, startup_seconds=silence_seconds, silence_seconds=silence_seconds,
        event_seconds=silence_seconds, talk=talk, most_lines=MAX_LINES, job=job, connections=connections,
    )  # fmt: skip
    found: list[Calibration] = []
    began = time.monotonic()
    try:
        for event in run.events():
            if isinstance(event, Calibration):
                found.append(event)
            elif isinstance(event, Progress | Outcome):
                run.cancel()
                raise ApplicationError(
                    "ran the application in mode 'calibrate'",
                    code="calibration-missing",
                    implementation=implementation,
                    host=host.name,
                )
            if found and len(found) < len(sizes) and time.monotonic() - began > within_seconds:
                run.cancel()
                return tuple(found)
    except DeadlineError:
        if not found or math.isinf(within_seconds):
            raise
        return tuple(found)
    run.finish()
    missing = set(sizes) - {one.rows for one in found}
    if missing:
        raise ApplicationError(
            f"no calibration came for {min(missing)} rows",
            code="calibration-missing",
            implementation=implementation,
            host=host.name,
            rows=min(missing),
        )
    return tuple(found)
