"""The command that starts a run with the wheel's own mpiexec, on this machine.

Pure functions: nothing is started or written here. What a user named (programs, paths, host names) goes
into the launch file, as JSON, and never onto the launcher's command line, where a ``:`` or a ``-`` would
mean something; the command line holds only paths of this installation and numbers.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from apples.errors import LaunchError
from apples.launch import rank_wrapper as bind
from apples.launch.rank_ends import THIS_MACHINE
from apples.ui.units import in_one_line

TASK_FILE = "task.json"
LAUNCH_FILE = "launch.json"
MACHINE_FILE = "machines"
"""One line a host, ``ADDRESS:RANKS``, in rank order; runs of this machine have none."""
FOREIGN = ("PMI_", "PMIX_", "HYDRA_", "HYDI_", "MPIEXEC_", "MPI_LOCAL", "OMPI_")
"""Variables of a launcher that the agent itself may run under, which would confuse ours."""
OURS = ("MPIEXEC_PORT_RANGE",)
"""Of these the user may set: between which ports hydra listens."""

# No UCX_TLS here: UCX over tcp on lo alone cannot connect worlds, so it chooses the transport.
LOOPBACK: Mapping[str, str] = {"UCX_NET_DEVICES": "lo"}
"""The ranks of one machine listen on no other interface."""
ONE_THREAD: Mapping[str, str] = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"
)
"""A rank is one slot; threads of its libraries would take its neighbours' CPUs."""


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """What an actuator would run, complete: command line, variables and files.

    Started by hand it gives the same job, except over ssh: there the agent starts the proxies that mpiexec prints.

    Attributes
    ----------
    argv
        The command line, one argument each; never passed to a shell.
    environment
        Variables added to the caller's own.
    files
        File name -> text of every file the command line names (task, machine file, script), to be
        written into the directory the command is started in.
    forks
        Whether the command is ``python -m MODULE ..`` and the run's supervisor forks itself and calls ``main`` of
        that module, which saves the start of an interpreter.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    forks: bool = False

    def __repr__(self) -> str:
        """Return the beginning of the command line."""
        return in_one_line(self, shlex.join(self.argv))


@dataclass(frozen=True, slots=True)
class RankGroup:
    """The ranks of one host.

    Attributes
    ----------
    host
        Name of the host.
    ranks
        How many processes.
    program
        Argument list of the program.
    cpus
        CPUs they may run on; empty: any.
    cgroup
        The ``cgroup.procs`` file they write themselves into; empty: none.
    rank_cpus
        The CPUs of each rank in turn; empty: those of all.
    threads
        How many CPUs a rank has use for.
    messages
        Bytes that each of the ranks sends to each, by which they get their CPUs; empty: nobody knows.
    """

    host: str
    ranks: int
    program: tuple[str, ...]
    cpus: tuple[int, ...] = ()
    cgroup: str = ""
    rank_cpus: tuple[tuple[int, ...], ...] = ()
    threads: int = 1
    messages: tuple[tuple[int, ...], ...] = ()


def command(
    rank_groups: Sequence[RankGroup], task: Mapping[str, Any], directory: str | Path = ""
) -> LaunchCommand:
    """Return the command that runs `rank_groups`, in rank order, on this machine.

    Parameters
    ----------
    directory
        Where the program works; the caller's own when empty.

    Raises
    ------
    LaunchError
        A program that no process can be started with, or no mpiexec. Permanent.
    """
    argv = [mpiexec(), *OPTIONS]
    for index, rank_group in enumerate(rank_groups):
        check(rank_group)
        argv += [":"] if index else []
        argv += ["-n", str(rank_group.ranks), sys.executable, "-I", "-S", bind.__file__]
        argv += [LAUNCH_FILE, str(index)]
    return LaunchCommand(
        tuple(argv),
        {"APPLES_TASK": TASK_FILE, **LOOPBACK, **ONE_THREAD},
        {
            TASK_FILE: json.dumps(task, indent=1, allow_nan=False),
            LAUNCH_FILE: _launch_file(rank_groups, Path(directory or Path.cwd())),
        },
    )


RANK_ENDS = ("-disable-auto-cleanup", "-print-all-exitcodes")
"""The agent judges a rank's end, since hydra takes exit(0) for success; mpiexec prints how each rank ended."""
OPTIONS = (
    *RANK_ENDS,
    *("-launcher", "fork", "-rmk", "user"),  # this machine, also inside another scheduler's job
    *("-iface", "lo", "-localhost", THIS_MACHINE, "-hosts", THIS_MACHINE),  # no name is looked up
)


def mpiexec() -> str:
    """Return the path of the mpiexec that the wheel put beside this interpreter.

    Raises
    ------
    LaunchError
        There is none.
    """
    places = (Path(sys.executable).parent, Path(sysconfig.get_path("scripts")))
    for place in places:
        if os.access(place / "mpiexec", os.X_OK):
            return str(place / "mpiexec")
    raise LaunchError(
        f"no mpiexec in {places[0]}: install the 'mpich' wheel there (pip install mpich)",
        code="mpi-missing",
        file=places[0] / "mpiexec",
    )


def environment(added: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment without another launcher's variables, and with `added`."""
    kept = {k: v for k, v in os.environ.items() if k in OURS or not k.startswith(FOREIGN)}
    return {**kept, **added}


def _launch_file(rank_groups: Sequence[RankGroup], directory: Path) -> str:
    hosts = [
        {
            "host": s.host,
            "program": s.program,
            "cpus": s.cpus,
            "cgroup": s.cgroup,
            "ranks": s.ranks,
            "first_rank": sum(before.ranks for before in rank_groups[:i]),
            "rank_cpus": s.rank_cpus,
        }
        for i, s in enumerate(rank_groups)
    ]
    return json.dumps({"directory": str(directory.absolute()), "hosts": hosts}, indent=1)


def check(rank_group: RankGroup) -> None:
    """Refuse ranks that no process can be started for."""
    if rank_group.ranks < 1:
        raise LaunchError(
            f"{rank_group.host}: {rank_group.ranks} ranks cannot be started",
            code="ranks-invalid",
            host=rank_group.host,
            value=rank_group.ranks,
        )
    if not rank_group.program or not rank_group.program[0]:
        raise LaunchError(
            f"{rank_group.host}: the template names no program",
            code="program-missing",
            host=rank_group.host,
        )
    if any("\0" in argument for argument in rank_group.program):
        raise LaunchError(
            f"{rank_group.host}: an argument of the program has a zero byte",
            code="program-invalid",
            host=rank_group.host,
        )
