"""Which actuator starts a run, and what it is made with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from apples.errors import UsageError, unwritable
from apples.launch.actuator import Actuator
from apples.launch.actuators import ACTUATORS, LOCAL, SSH, actuator_class
from apples.launch.remote.addresses import remote_hosts
from apples.resources import read_host_list


def actuator_name(asked: str | None, hosts: str | Path) -> str:
    """Return the actuator to use: the one asked for, else ssh where the list has other machines, else local.

    Raises
    ------
    UsageError
        There is none of that name. Permanent.
    """
    if asked is not None:
        actuator_class(asked)
        return asked
    return SSH if remote_hosts(read_host_list(hosts)) else LOCAL


def actuator_of(
    name: str, output: Path | None, options: Mapping[str, str] | None = None
) -> Actuator:
    """Return the actuator of that name.

    Raises
    ------
    UsageError
        There is none, an option is not for it, `output` cannot be made, or a user's own class is abstract or
        takes other arguments.
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
