"""The command that starts a run over several hosts: hydra over the system's ssh. Pure, like `hydra`.

The machine file holds addresses, never names, so that nobody looks one up. hydra starts one connection a
host through `apples.launch.reach`, and on it a guard (`apples.launch.guard`) that starts hydra's proxy and
ends whatever the run has there when the connection does. Ranks get their environment and program through
the connection; hydra carries none (``-genvnone``).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from apples.errors import LaunchError
from apples.launch import bind
from apples.launch.hydra import (
    LAUNCH_FILE,
    ONE_THREAD,
    TASK_FILE,
    LaunchCommand,
    RankGroup,
    check,
    mpiexec,
)
from apples.launch.remote import shipping
from apples.launch.remote import ssh as line
from apples.launch.remote.ssh import Reach

MACHINE_FILE = "machines"
CARRIED = ("LANG", "LC_ALL", "TZ", "PYTHONHASHSEED")
CARRIED_BEGIN = ("OMP_", "MKL_", "OPENBLAS_", "NUMBA_", "UCX_", "FI_", "MPIR_CVAR_")
"""Variables of the agent that ranks elsewhere get too; no other leaves this machine."""
CARRY = "APPLES_CARRY"
"""Names more of them, separated by commas."""


@dataclass(frozen=True, slots=True)
class LaunchTarget:
    """One segment and where it runs.

    Attributes
    ----------
    segment
        Ranks and program; `cpus` and `cgroup` mean this machine only, `rank_cpus` its host.
    address
        The number of its host, for the machine file.
    reach
        How ssh gets there; None: this machine.
    directory
        Where the program works there; empty: the login's own.
    programs
        Words of the program that are files of the template's folder: looked for there too.
    environment
        Variables for its ranks only.
    """

    segment: RankGroup
    address: str
    reach: Reach | None = None
    directory: str = ""
    programs: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def command(
    seats: Sequence[LaunchTarget], task: Mapping[str, Any], *, job: str, here: str, directory: Path
) -> LaunchCommand:
    """Return the command that runs `seats`, in rank order.

    Parameters
    ----------
    job
        Name of the run: its folder on the other hosts is ``/tmp/apples-JOB-INDEX``.
    here
        This machine's address, as the others reach it.
    directory
        Where ranks on this machine work.

    Raises
    ------
    LaunchError
        A program that no process can be started with, two seats at one address, or no mpiexec.
    """
    addresses = [seat.address for seat in seats if seat.reach]
    if len(set(addresses)) < len(addresses):
        twice = next(a for a in addresses if addresses.count(a) > 1)
        raise LaunchError(f"two hosts at address {twice}: MPI cannot tell them apart")
    argv = [mpiexec(), *options(here)]
    for index, seat in enumerate(seats):
        check(seat.segment)
        argv += [":"] if index else []
        argv += ["-n", str(seat.segment.ranks)]
        argv += _own(index) if seat.reach is None else ["-wdir", _folder(job, index), *_there()]
    return LaunchCommand(
        tuple(argv),
        {"HYDRA_LAUNCHER_EXTRA_ARGS": "-I -m apples.launch.reach"},
        {
            MACHINE_FILE: "".join(f"{s.address}:{s.segment.ranks}\n" for s in seats),
            TASK_FILE: json.dumps(task, indent=1, allow_nan=False),
            LAUNCH_FILE: _launch_file(seats, job, directory),
        },
    )


def options(here: str) -> list[str]:
    """Return mpiexec's options; this machine is called by its address, so no name is looked up."""
    return [
        "-disable-auto-cleanup",  # a rank's end is judged by the agent
        *("-launcher", "ssh", "-launcher-exec", sys.executable, "-rmk", "user"),
        *("-localhost", here, "-f", MACHINE_FILE, "-genvnone"),
    ]


def carried(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that ranks on other hosts are given.

    Examples
    --------
    >>> carried({"UCX_TLS": "tcp,self", "AWS_SECRET": "x", "EDITOR": "vi", "APPLES_CARRY": "EDITOR"})
    {'UCX_TLS': 'tcp,self', 'EDITOR': 'vi'}
    """
    named = {*CARRIED, *(word.strip() for word in environment.get(CARRY, "").split(","))}
    return {k: v for k, v in environment.items() if k in named or k.startswith(CARRIED_BEGIN)}


def _own(index: int) -> list[str]:
    return [sys.executable, "-I", "-S", bind.__file__, LAUNCH_FILE, str(index)]


def _there() -> list[str]:
    """Return what starts a rank in the folder that the guard furnished."""
    return ["./python", "-I", "-S", "bind.py", LAUNCH_FILE, "0"]


def _folder(job: str, index: int) -> str:
    """Return the run's folder on one host: made by its guard, which refuses one that exists."""
    return f"/tmp/apples-{job}-{index}"  # noqa: S108 - a name nobody can guess


def _launch_file(seats: Sequence[LaunchTarget], job: str, directory: Path) -> str:
    remote: dict[str, Any] = {}
    for index, seat in enumerate(seats):
        if seat.reach is not None:
            remote[seat.address] = {
                "number": len(remote),
                "ssh": line.command(seat.reach, shipping.words(site=False)),
                "folder": _folder(job, index),
                "directory": seat.directory,
                "hosts": [{**_entry(seats, index), "programs": seat.programs}],
            }
    own = [{} if seat.reach else _entry(seats, i) for i, seat in enumerate(seats)]
    document = {"job": job, "directory": str(directory.absolute()), "hosts": own, "remote": remote}
    return json.dumps(document, indent=1)


def _entry(seats: Sequence[LaunchTarget], index: int) -> dict[str, Any]:
    seat = seats[index]
    segment = seat.segment
    local = seat.reach is None
    return {
        "host": segment.host,
        "program": segment.program,
        "cpus": segment.cpus if local else (),
        "cgroup": segment.cgroup,
        "first_rank": sum(before.segment.ranks for before in seats[:index]),
        "rank_cpus": segment.rank_cpus,
        "environment": {
            **ONE_THREAD,
            **carried(),
            **seat.environment,
            "APPLES_TASK": TASK_FILE,
        },
    }


def remote_hosts(seats: Sequence[LaunchTarget]) -> list[str]:
    """Return the names of the hosts that are not this machine, in the order of their pipes."""
    return [seat.segment.host for seat in seats if seat.reach is not None]
