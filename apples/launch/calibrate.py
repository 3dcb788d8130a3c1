"""Measures a program's own kernel on one host, by its ``calibrate`` mode."""

from __future__ import annotations

from collections.abc import Sequence

from apples.errors import ApplicationError
from apples.launch.events import Calibration
from apples.launch.hydra import Segment, command
from apples.launch.run import Run, Talk, to_stderr
from apples.launch.task import Parameters, calibrate_task
from apples.resources import Host

CALIBRATION_SECONDS = 300.0
"""One size may take this long before the program counts as silent."""


def calibrate(
    host: Host,
    program: Sequence[str],
    implementation: str,
    parameters: Parameters,
    sizes: Sequence[int],
    *,
    silence_seconds: float = CALIBRATION_SECONDS,
    talk: Talk = to_stderr,
) -> tuple[Calibration, ...]:
    """Return what one process of `program` measures on the host's CPUs, one entry for each size.

    No quota is set: the program reports processor time, which a quota does not change.

    Parameters
    ----------
    program
        Argument list that starts the implementation.
    sizes
        Rows of the strips to measure.

    Raises
    ------
    LaunchError
        The program cannot be started or was never ready.
    ApplicationError
        It failed, broke the protocol, or left a size out.
    DeadlineError
        It was silent for `silence_seconds`.
    """
    segments = (Segment(host.name, 1, tuple(program), host.cpus),)
    task = calibrate_task(implementation, parameters, sizes)
    order = command(segments, task, host.directory)
    run = Run(order, segments, silence_seconds=silence_seconds, talk=talk)
    found = tuple(event for event in run.events() if isinstance(event, Calibration))
    run.finish()
    missing = set(sizes) - {one.rows for one in found}
    if missing:
        raise ApplicationError(
            f"{implementation} on {host.name}: no calibration came for {min(missing)} rows"
        )
    return found
