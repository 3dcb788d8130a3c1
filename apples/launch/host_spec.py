"""`HostSpec`: how the processes of a job get to a host that the job may use.

A job manager loads this file, without site packages: standard library only. `host_spec_builders` makes the specs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

HOSTS_LIMIT = 512
"""Hosts of one job."""
SSH_FAILED = 255
"""The exit code of an ssh that failed itself or whose connection ended, and of no command that it ran."""


@dataclass(frozen=True, slots=True)
class HostSpec:
    """A host the job may use, and how its processes get there.

    Attributes
    ----------
    slots
        Ranks it runs.
    program
        Argument list of the program there.
    cpus, cgroup
        CPUs its ranks may run on; the ``cgroup.procs`` file they write themselves into.
    reach
        Argument list that runs `python` there, to which plain words are added; empty: it is here.
    python, bind, mpiexec
        What runs there: the interpreter, the file that becomes one rank, the MPI launcher. Elsewhere their
        names in braces, for the supervisor there to fill in.
    options
        Options of that mpiexec.
    enter
        Words before that mpiexec: what puts the ranks of a group where they belong and then becomes it.
    environment
        Variables added to the manager's own for its ranks.
    warm
        Whether a parked group may wait there for a growth.
    directory
        Where the program works there; empty: the job's own directory, or elsewhere the login's.
    programs
        Words of the program that are files, looked for in that directory where they are not at their path.
    """

    host: str
    slots: int
    program: tuple[str, ...]
    python: str
    bind: str
    mpiexec: str
    options: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()
    cgroup: str = ""
    reach: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    warm: bool = False
    directory: str = ""
    programs: tuple[str, ...] = ()
    enter: tuple[str, ...] = ()


def place_of(raw: Mapping[str, Any]) -> HostSpec:
    """Return the host of a document.

    Raises
    ------
    TypeError, ValueError
        It is none.
    """
    names = ("program", "options", "cpus", "reach", "programs", "enter")
    return HostSpec(**{**raw, **{name: tuple(raw.get(name, ())) for name in names}})
