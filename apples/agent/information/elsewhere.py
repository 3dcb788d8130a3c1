"""What a run needs of the hosts that are other machines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from apples.agent.information.pool import InformationPool, program_of
from apples.launch.remote.fitness import Needs

Talk = Callable[[str], object]
"""Is told, a line each, what could not be measured."""
PROBE = "apples.topology.sources.probe"
"""The module that goes along to another machine to describe its CPUs."""


def unheard(line: str) -> None:
    """Hear nothing: what is unfit stands in the pool as well."""
    del line


def needs_of(information: InformationPool) -> Needs:
    """Return what a host must have to run the application's program."""
    modules: dict[str, None] = {}
    commands: dict[str, None] = {}
    programs: dict[str, None] = {}
    for one in information.template.implementations:
        modules.update(dict.fromkeys(one.requires.modules))
        commands.update(dict.fromkeys(one.requires.commands))
        programs.update(dict.fromkeys(own_files(information, program_of(information, one.name))))
    return Needs(tuple(modules), tuple(commands), tuple(programs), PROBE)


def own_files(information: InformationPool, program: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a program that are files of the template's folder."""
    folder = information.folder.absolute()
    return tuple(w for w in program if Path(w).is_absolute() and Path(w).is_relative_to(folder))
