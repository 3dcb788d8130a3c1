"""`HostSpec`: how to start the processes of a job on a host.

Standard library only: a job manager loads this module without site packages. `host_spec_builders` makes the specs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

HOSTS_LIMIT = 512
"""Maximum number of hosts of one job."""
SSH_FAILED = 255
"""Exit code of ssh if ssh itself failed or its connection ended; otherwise ssh exits with its command's code."""


@dataclass(frozen=True, slots=True)
class HostSpec:
    """A host that the job may use, and how to start processes there.

    Attributes
    ----------
    slots
        Number of ranks.
    program
        Argument list of the program on that host.
    cpus, cgroup
        CPUs of its ranks; the ``cgroup.procs`` file to which each rank writes itself.
    reach
        Argument list that runs `python` on that host; plain words may be appended. Empty: this machine.
    python, bind, mpiexec
        The interpreter, the file of the rank wrapper, and the MPI launcher. For another machine, their names in
        braces; the supervisor there replaces them by paths.
    options
        Options of `mpiexec`.
    enter
        Argument list put before `mpiexec`: a command that enters the group's environment and then executes it.
    environment
        Variables for its ranks, in addition to the manager's environment.
    warm
        Whether a group of ranks may be started ahead and wait there for a growth of the job.
    directory
        Working directory of the program. Empty: the job's directory, or on another machine the login directory.
    programs
        Words of the program that are files. A file that is not at its path is searched in `directory`.
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
    """Return the host spec that a JSON document describes.

    Raises
    ------
    TypeError, ValueError
        The document is not a host spec.
    """
    names = ("program", "options", "cpus", "reach", "programs", "enter")
    return HostSpec(**{**raw, **{name: tuple(raw.get(name, ())) for name in names}})
