"""Which hosts of a list are this machine, which are others, and what a run needs of those."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

from apples.agent.information.pool import InformationPool
from apples.launch.remote.fitness import Needs
from apples.resources import Host, HostList

Talk = Callable[[str], object]
"""Is told, a line each, what could not be measured."""
PROBE = "apples.topology.probe"
"""The module that goes along to another machine to describe its CPUs."""


def unheard(line: str) -> None:
    """Hear nothing: what is unfit stands in the pool as well."""
    del line


def is_here(host: Host) -> bool:
    """Whether a host of the list is this machine, or a part of it."""
    if host.cpus:
        return True
    import psutil  # noqa: PLC0415 - a decision about other machines only does not pay for it

    own = {"localhost", "localhost.localdomain", socket.gethostname()}
    own |= {a.address for addresses in psutil.net_if_addrs().values() for a in addresses}
    return host.reached_at in own


def elsewhere(hosts: HostList) -> tuple[Host, ...]:
    """Return the hosts that the list itself says are other machines.

    By an address, a login, or an ssh configuration for all; a bare name is played here by the local
    actuator, as in the examples.
    """
    return tuple(
        host
        for host in hosts
        if (host.address or host.user or hosts.ssh_config) and not is_here(host)
    )


def needs_of(information: InformationPool) -> Needs:
    """Return what a host must have to run the application's program."""
    modules: dict[str, None] = {}
    commands: dict[str, None] = {}
    programs: dict[str, None] = {}
    for one in information.template.implementations:
        modules.update(dict.fromkeys(one.requires.modules))
        commands.update(dict.fromkeys(one.requires.commands))
        programs.update(dict.fromkeys(own_files(information, information.program(one.name))))
    return Needs(tuple(modules), tuple(commands), tuple(programs), PROBE)


def own_files(information: InformationPool, program: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a program that are files of the template's folder."""
    folder = information.folder.absolute()
    return tuple(w for w in program if Path(w).is_absolute() and Path(w).is_relative_to(folder))
