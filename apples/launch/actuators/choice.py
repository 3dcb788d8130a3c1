"""Choose and create the actuator of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from apples.errors import UsageError, unwritable
from apples.launch.actuator import Actuator
from apples.launch.actuators import ACTUATORS, LOCAL, SSH, actuator_class
from apples.launch.remote.addresses import remote_hosts
from apples.resources import read_host_list


def actuator_name(asked: str | None, hosts: str | Path) -> str:
    """Return the name of the actuator: `asked`, else ssh if the list has other machines, else local.

    Raises
    ------
    UsageError
        `asked` is not the name of an actuator. Permanent.
    """
    if asked is not None:
        actuator_class(asked)
        return asked
    return SSH if remote_hosts(read_host_list(hosts)) else LOCAL


def actuator_of(
    name: str, output: Path | None, options: Mapping[str, str] | None = None
) -> Actuator:
    """Return a new actuator of that name.

    Raises
    ------
    UsageError
        The name is unknown, the actuator takes no such option, `output` cannot be created, or a user's own class
        is abstract or takes other arguments.
    """
    kind = actuator_class(name)
    if options and not kind.takes_options:
        first = next(f"{option}={value}" for option, value in options.items())
        raise UsageError(
            f"--slurm {first}: is for --actuator slurm, and ssh where nodes are behind a queue",
            code="option-not-applicable",
            option="--slurm",
            value=first,
        )
    if output is not None:
        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(f"--output {output}", error) from None
    try:
        return kind.create(output, save=output is not None, options=options or {})
    except TypeError as error:
        if name in ACTUATORS:
            raise
        raise UsageError(
            f"--actuator '{name}': cannot be made: {error}",
            code="launcher-invalid",
            option="--actuator",
            value=name,
        ) from error
