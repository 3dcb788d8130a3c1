"""Build the command that starts a run with the wheel's own mpiexec, on this machine.

Pure functions: they start no process and write no file. Words of the user (programs, paths, host names) go into
the launch file, as JSON. They never go onto the launcher's command line, where ``:`` and ``-`` are syntax; it has
only paths of this installation and numbers.
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
"""File with a line ``ADDRESS:RANKS`` for each host, in rank order; runs on this machine only do not have it."""
FOREIGN = ("PMI_", "PMIX_", "HYDRA_", "HYDI_", "MPIEXEC_", "MPI_LOCAL", "OMPI_")
"""Prefixes of variables of other launchers. The agent may run under one; our launcher would misread them."""
OURS = ("MPIEXEC_PORT_RANGE",)
"""Exception to `FOREIGN`, for the user: the range of hydra's listening ports."""

# UCX_TLS is not set: UCX cannot connect several worlds over TCP on lo alone, so it must choose the transport.
LOOPBACK: Mapping[str, str] = {"UCX_NET_DEVICES": "lo"}
"""Let ranks of a run on one machine listen only on the loopback interface."""
ONE_THREAD: Mapping[str, str] = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"
)
"""Limit libraries to one thread: a rank is one slot, and more threads would take the CPUs of other ranks."""


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """The complete command of an actuator: command line, variables and files.

    Started by hand, it gives the same job, except over ssh, where the agent starts the proxies that
    mpiexec prints.

    Attributes
    ----------
    argv
        The argument list; never passed to a shell.
    environment
        Variables to add to the caller's environment.
    files
        File name -> text of every file that the command line names (task, machine file, script). The caller writes
        them into the working directory of the command.
    forks
        Whether the supervisor runs the command ``python -m MODULE ..`` by a fork of itself that calls the module's
        ``main``, which saves the start of an interpreter.
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
        Number of processes.
    program
        Argument list of the program.
    cpus
        CPUs of the host; empty: any.
    cgroup
        The ``cgroup.procs`` file to which each rank writes itself; empty: none.
    rank_cpus
        The CPUs of each rank, in rank order; empty: `cpus` for all ranks.
    threads
        Number of CPUs that a rank can use.
    messages
        Bytes that each rank sends to each other rank, from which CPUs are chosen; empty: unknown.
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
        Working directory of the program; empty: that of the caller.

    Raises
    ------
    LaunchError
        A program is invalid, or mpiexec is missing. Permanent.
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
"""mpiexec must not end ranks, since hydra takes exit(0) for success: it prints exit codes, and the agent
decides."""
OPTIONS = (
    *RANK_ENDS,
    *("-launcher", "fork", "-rmk", "user"),  # this machine, also inside another scheduler's job
    *("-iface", "lo", "-localhost", THIS_MACHINE, "-hosts", THIS_MACHINE),  # avoids a name lookup
)


def mpiexec() -> str:
    """Return the path of the mpiexec that the wheel installed beside this interpreter.

    Raises
    ------
    LaunchError
        mpiexec is not installed there.
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
    """Return this process's environment plus `added`, without variables of other launchers."""
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
    """Raise LaunchError for a rank group without ranks or with an invalid program."""
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
