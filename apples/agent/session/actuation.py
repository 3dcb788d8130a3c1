"""What an agent adds to an actuator: moves while the application runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from apples.agent.information import InformationPool
from apples.errors import UsageError
from apples.launch.actuator import Actuator


def malleable_of(
    through: Actuator, output: Path | None, information: InformationPool, option: str, **job: Any
) -> Actuator:
    """Return the actuator of a job that is moved while it runs, on the hosts that another actuator reaches.

    Parameters
    ----------
    option
        What makes it move, for messages.
    job
        As `MalleableActuator` takes it.

    Raises
    ------
    UsageError
        The template is of no malleable program, or that actuator cannot move a job.
    """
    if not information.template.malleable:
        raise UsageError(
            f"{option}: moves the application while it runs, and the template of "
            f"{information.template.name} does not say 'malleable = true'",
            code="program-not-malleable",
            option=option,
            template=information.template.name,
        )
    from apples.malleable.actuator import MalleableActuator  # noqa: PLC0415 - for such jobs only

    return MalleableActuator(output, save=output is not None, through=through, **job)
