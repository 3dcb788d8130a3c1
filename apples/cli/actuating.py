"""Which actuator a run goes through, and which hosts are other machines then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from apples.agent.conditions import listed
from apples.agent.information import InformationPool, elsewhere
from apples.agent.models import recall
from apples.cli.deciding import settings_of
from apples.errors import UsageError
from apples.launch.actuator import Actuator
from apples.launch.actuators import actuator_class
from apples.launch.actuators.local import LocalActuator
from apples.launch.actuators.malleable import MalleableActuator
from apples.resources import Host, HostList, read_host_list

ActuatorName = Annotated[
    str | None,
    typer.Option(
        "--actuator",
        help="local, ssh, slurm, or your own as module:name; local where all hosts are this machine.",
    ),
]
SlurmSettings = Annotated[
    list[str] | None,
    typer.Option("--slurm", help="What the site wants to be told: partition=NAME, minutes=N, .."),
]


def actuator_name(asked: str | None, hosts: Path) -> str:
    """Return the actuator to use: the one asked for, or local where that is all it can be.

    Raises
    ------
    UsageError
        There is none of that name, or hosts are other machines and none was asked for.
    """
    if asked is not None:
        actuator_class(asked)
        return asked
    others = elsewhere(read_host_list(hosts))
    if others:
        names = listed(host.name for host in others)
        raise UsageError(
            f"{hosts}: {names} {'are other machines' if len(others) > 1 else 'is another machine'}: "
            "say --actuator ssh or slurm (or --actuator local to play them on this one)"
        )
    return LocalActuator.name


def actuator_of(name: str, output: Path | None, slurm: Sequence[str] | None = None) -> Actuator:
    """Return the actuator of that name."""
    kind = actuator_class(name)
    if slurm and not kind.takes_options:
        raise UsageError(f"--slurm {slurm[0]}: is for --actuator slurm")
    if output is not None:
        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--output {output}: {error.strerror}") from None
    options = settings_of(slurm or (), "--slurm")
    return kind.create(output, save=output is not None, options=options)


def malleable_of(
    name: str, output: Path | None, information: InformationPool, what: str, **elastic: Any
) -> Actuator:
    """Return the actuator of a job that is moved while it runs, through the actuator of that name.

    Parameters
    ----------
    what
        Option that makes it move, for messages.

    Raises
    ------
    UsageError
        The template is of no malleable program, or there is no allocation of Slurm's to move it in.
    """
    if not information.template.malleable:
        raise UsageError(
            f"{what}: moves the application while it runs, and the template of "
            f"{information.template.name} does not say 'malleable = true'"
        )
    through = actuator_class(name).create(output, save=output is not None)
    return MalleableActuator(output, save=output is not None, through=through, **elastic)


def others_of(name: str, hosts: HostList) -> Sequence[Host]:
    """Return the hosts that are other machines and measured over ssh.

    None for local; none for slurm, where a job has its CPUs to itself; for ssh all that are not here.
    """
    return actuator_class(name).sensed_hosts(hosts)


def weather_of(name: str, weather: str) -> str:
    """Return the weather an actuator plans under: in a job the host list's values are the live ones."""
    return actuator_class(name).weather(weather)


def remembering(information: InformationPool) -> InformationPool:
    """Return the pool with the calibrations and what past runs taught."""
    template = information.template
    return replace(information, learned=recall(template.name, template.version))
