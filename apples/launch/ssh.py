"""The command that starts a run over several hosts: hydra over the system's ssh. Pure, like `hydra`.

The machine file holds addresses, never names, so that nobody looks one up. hydra starts one connection a
host through `apples.launch.reach`, and on it a supervisor (`apples.launch.host_agent`) that starts hydra's
proxy and ends whatever the run has there when the connection does. Ranks get their environment and program
through the connection; hydra carries none (``-genvnone``).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from apples.errors import LaunchError
from apples.launch import rank_wrapper as bind
from apples.launch.hydra import (
    LAUNCH_FILE,
    ONE_THREAD,
    TASK_FILE,
    LaunchCommand,
    RankGroup,
    check,
    mpiexec,
)
from apples.launch.remote import bootstrap
from apples.launch.remote import ssh as line
from apples.launch.remote.ssh import Reach

MACHINE_FILE = "machines"
RELAY, RELAY_ASKS, RELAY_WAITS, RELAY_BETWEEN = "relay", "relay-asks", "relay-waits", "\x1f"
# The shell waits at a pipe until the run is over: hydra takes a launcher that ends before its
# proxy for a failed one. `-launcher manual` would leave the proxy of this machine to us as well.
RELAY_LINES = f"""{{ set +x; }} 2>/dev/null
words=$(printf '%s\\037' "$@")
printf '%s\\n' "$words" >{RELAY_ASKS}
read -r _ <{RELAY_WAITS}
exit 0
"""
"""hydra adds an -x, meant for ssh, which would make the shell talk. One write for all words: none mix."""
CARRIED = ("LANG", "LC_ALL", "TZ", "PYTHONHASHSEED")
CARRIED_BEGIN = ("OMP_", "MKL_", "OPENBLAS_", "NUMBA_", "UCX_", "FI_", "MPIR_CVAR_")
"""Variables of the agent that ranks elsewhere get too; no other leaves this machine."""
CARRY = "APPLES_CARRY"
"""Names more of them, separated by commas."""


@dataclass(frozen=True, slots=True)
class LaunchTarget:
    """One rank group and where it runs.

    Attributes
    ----------
    rank_group
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

    rank_group: RankGroup
    address: str
    reach: Reach | None = None
    directory: str = ""
    programs: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def command(
    targets: Sequence[LaunchTarget],
    task: Mapping[str, Any],
    *,
    job: str,
    here: str,
    directory: Path,
    counting: Mapping[str, str] | None = None,
) -> LaunchCommand:
    """Return the command that runs `targets`, in rank order.

    Parameters
    ----------
    job
        Name of the run: its folder on the other hosts is ``/tmp/apples-JOB-INDEX``.
    here
        This machine's address, as the others reach it.
    directory
        Where ranks on this machine work.
    counting
        By what ranks on other machines count their messages; None: nobody asked.

    Raises
    ------
    LaunchError
        A program that no process can be started with, two targets at one address, or no mpiexec.
    """
    addresses = [target.address for target in targets if target.reach]
    if len(set(addresses)) < len(addresses):
        twice = next(a for a in addresses if addresses.count(a) > 1)
        raise LaunchError(
            f"two hosts at address {twice}: MPI cannot tell them apart",
            code="address-taken",
            value=twice,
        )
    argv = [mpiexec(), *options(here)]
    for index, target in enumerate(targets):
        check(target.rank_group)
        argv += [":"] if index else []
        argv += ["-n", str(target.rank_group.ranks)]
        argv += _own(index) if target.reach is None else ["-wdir", _folder(job, index), *_there()]
    return LaunchCommand(
        tuple(argv),
        {"HYDRA_LAUNCHER_EXTRA_ARGS": "-I -m apples.launch.reach"},
        {
            MACHINE_FILE: "".join(f"{s.address}:{s.rank_group.ranks}\n" for s in targets),
            TASK_FILE: json.dumps(task, indent=1, allow_nan=False),
            LAUNCH_FILE: _launch_file(targets, job, directory, counting),
        },
    )


def relayed(command: LaunchCommand) -> LaunchCommand:
    """Return the command whose proxies are started through connections that are open already.

    hydra starts a line of shell for each host, which says what hydra wants started and waits for the end.
    """
    argv = list(command.argv)
    argv[argv.index("-launcher-exec") + 1] = "/bin/sh"
    return replace(
        command,
        argv=tuple(argv),
        environment={**command.environment, "HYDRA_LAUNCHER_EXTRA_ARGS": RELAY},
        files={**command.files, RELAY: RELAY_LINES},
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
    """Return what starts a rank in the folder that the supervisor furnished."""
    return ["./python", "-I", "-S", "bind.py", LAUNCH_FILE, "0"]


def _folder(job: str, index: int) -> str:
    """Return the run's folder on one host: made by its supervisor, which refuses one that exists."""
    return f"/tmp/apples-{job}-{index}"  # noqa: S108 - a name nobody can guess


def _launch_file(
    targets: Sequence[LaunchTarget],
    job: str,
    directory: Path,
    counting: Mapping[str, str] | None,
) -> str:
    remote: dict[str, Any] = {}
    for index, target in enumerate(targets):
        if target.reach is not None:
            remote[target.address] = {
                "number": len(remote),
                "ssh": line.command(target.reach, bootstrap.words(site=False)),
                "folder": _folder(job, index),
                "directory": target.directory,
                "hosts": [{**_entry(targets, index), "programs": target.programs}],
            }
    own = [{} if target.reach else _entry(targets, i) for i, target in enumerate(targets)]
    where = {"job": job, "directory": str(directory.absolute()), "counting": counting}
    document = {**where, "hosts": own, "remote": remote}
    return json.dumps(document, indent=1)


def _entry(targets: Sequence[LaunchTarget], index: int) -> dict[str, Any]:
    target = targets[index]
    rank_group = target.rank_group
    local = target.reach is None
    return {
        "host": rank_group.host,
        "program": rank_group.program,
        "cpus": rank_group.cpus if local else (),
        "cgroup": rank_group.cgroup,
        "ranks": rank_group.ranks,
        "first_rank": sum(before.rank_group.ranks for before in targets[:index]),
        "rank_cpus": rank_group.rank_cpus,
        "environment": {
            **ONE_THREAD,
            **carried(),
            **target.environment,
            "APPLES_TASK": TASK_FILE,
        },
    }


def remote_hosts(targets: Sequence[LaunchTarget]) -> list[str]:
    """Return the names of the hosts that are not this machine, in the order of their pipes."""
    return [target.rank_group.host for target in targets if target.reach is not None]
