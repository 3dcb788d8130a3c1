"""Which actuator starts a run, and what it is made with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from apples.errors import UsageError, unwritable
from apples.launch.actuator import Actuator
from apples.launch.actuators import ACTUATORS, LOCAL, actuator_class
from apples.launch.remote.addresses import remote_hosts
from apples.resources import read_host_list
from apples.ui.units import listed


def actuator_name(asked: str | None, hosts: str | Path, far: str = "ssh or slurm") -> str:
    """Return the actuator to use: the one asked for, or local where that is all it can be.

    Parameters
    ----------
    far
        Those that reach other machines, for messages.

    Raises
    ------
    UsageError
        There is none of that name, or hosts are other machines and none was asked for.
    """
    if asked is not None:
        actuator_class(asked)
        return asked
    others = remote_hosts(read_host_list(hosts))
    if others:
        names = listed(host.name for host in others)
        raise UsageError(
            f"{hosts}: {names} {'are other machines' if len(others) > 1 else 'is another machine'}: "
            f"use --actuator {far} (or --actuator local to play them on this one)",
            code="option-missing",
            option="--actuator",
            file=hosts,
            hosts=[host.name for host in others],
        )
    return LOCAL


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
