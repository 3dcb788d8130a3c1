"""The command that starts a run over several hosts: hydra with proxies that the agent starts. Pure, like `hydra`.

The machine file holds addresses, never names, so that no name is looked up. mpiexec prints the command line of
each proxy and waits (``-launcher manual``). The agent starts the proxies: on another host through the open ssh
connection to its host agent (`apples.launch.host_agent`), here through that of this machine. A host agent ends
what the run has on its host when its connection ends. Ranks get their environment and program through the
connection; hydra carries none (``-genvnone``).
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from apples.errors import LaunchError
from apples.launch import rank_wrapper as bind
from apples.launch.hydra import (
    LAUNCH_FILE,
    MACHINE_FILE,
    ONE_THREAD,
    RANK_ENDS,
    TASK_FILE,
    LaunchCommand,
    RankGroup,
    check,
    mpiexec,
)
from apples.launch.remote import bootstrap
from apples.launch.remote import ssh as line
from apples.launch.remote.ssh import Reach

PROXY = re.compile(rb"HYDRA_LAUNCH: (.*hydra_pmi_proxy) (.*--proxy-id ([0-9]{1,9})) *")
"""A line of mpiexec: the command line of a proxy, whose number counts the hosts of the machine file."""
PROXIES_END = b"HYDRA_LAUNCH_END"
"""The line of mpiexec after those of all proxies."""
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
    back
        The address by which its host reaches this machine; empty: as the others.
    """

    rank_group: RankGroup
    address: str
    reach: Reach | None = None
    directory: str = ""
    programs: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    back: str = ""


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
        A program that no process can be started with, two targets at one address, one that has IPv6 alone, or no
        mpiexec.
    """
    addresses = [target.address for target in targets if target.reach]
    for target in targets:
        if over := next((one for one in (target.address, target.back) if ":" in one), ""):
            raise LaunchError(
                f"{target.rank_group.host}: is reached over IPv6 alone ({over}), and mpiexec speaks "
                "IPv4: give both machines IPv4 addresses, or run it as a malleable job",
                code="address-family",
                host=target.rank_group.host,
                value=over,
            )
    if len(set(addresses)) < len(addresses):
        twice = next(a for a in addresses if addresses.count(a) > 1)
        raise LaunchError(
            f"two hosts have the address {twice}: MPI cannot distinguish them",
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
        {},
        {
            MACHINE_FILE: "".join(f"{s.address}:{s.rank_group.ranks}\n" for s in targets),
            TASK_FILE: json.dumps(task, indent=1, allow_nan=False),
            LAUNCH_FILE: _launch_file(targets, job, directory, counting),
        },
    )


def options(here: str) -> list[str]:
    """Return mpiexec's options; this machine is called by its address, so no name is looked up."""
    return [
        *RANK_ENDS,
        *("-launcher", "manual", "-rmk", "user"),
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
    remote = [
        {
            "address": target.address,
            "ssh": line.command(target.reach, bootstrap.words(site=False)),
            "folder": _folder(job, index),
            "back": target.back,
            "directory": target.directory,
            "hosts": [{**_entry(targets, index), "programs": target.programs}],
        }
        for index, target in enumerate(targets)
        if target.reach is not None
    ]
    own = [{} if target.reach else _entry(targets, i) for i, target in enumerate(targets)]
    where = {"job": job, "directory": str(directory.absolute()), "counting": counting}
    document = {**where, "hosts": own, "remote": remote}
    return json.dumps(document, indent=1)


def host_orders(command: LaunchCommand) -> list[dict[str, Any]]:
    """Return what each host agent on another machine is given when it starts, in the order of `remote_hosts`."""
    launch = json.loads(command.files[LAUNCH_FILE])
    wrapper = Path(bind.__file__).read_text(encoding="utf-8")
    return [
        {
            "directory": there["folder"],
            "home": there["directory"],
            "job": launch["job"],
            "counting": launch["counting"],
            "launch": {"hosts": there["hosts"]},
            "files": {TASK_FILE: command.files[TASK_FILE], "bind.py": wrapper},
        }
        for there in launch["remote"]
    ]


def proxy_hosts(command: LaunchCommand) -> list[int | None]:
    """Return for each proxy, by its number, the index of its host in `remote_hosts`; None: this machine.

    hydra counts successive lines of the machine file with the same address as one host. A command of another
    launcher has none.
    """
    launch = json.loads(command.files.get(LAUNCH_FILE, "{}"))
    if "remote" not in launch:
        return []
    addresses = [line.rpartition(":")[0] for line in command.files[MACHINE_FILE].splitlines()]
    remote = [there["address"] for there in launch["remote"]]
    return [remote.index(a) if a in remote else None for a, _ in groupby(addresses)]


def proxy_way_back(command: LaunchCommand, host: int, argv: Sequence[str]) -> list[str]:
    """Return the command line of a proxy that connects to mpiexec on the way of its own host.

    mpiexec prints the same address of this machine for all proxies, and listens on every one.
    """
    back = json.loads(command.files[LAUNCH_FILE])["remote"][host]["back"]
    words = list(argv)
    if back and "--control-port" in words:
        port = words.index("--control-port") + 1
        words[port] = f"{back}:{words[port].rpartition(':')[2]}"
    return words


def proxy_of(line: bytes) -> tuple[int, list[str]] | None:
    """Return the number and the command line of the proxy that a line of mpiexec asks for; None: another line.

    Examples
    --------
    >>> proxy_of(b"HYDRA_LAUNCH: /bin/hydra_pmi_proxy --control-port 10.0.0.1:4711 --proxy-id 1 ")
    (1, ['/bin/hydra_pmi_proxy', '--control-port', '10.0.0.1:4711', '--proxy-id', '1'])
    """
    found = PROXY.fullmatch(line)
    return (int(found[3]), [os.fsdecode(found[1]), *found[2].decode().split()]) if found else None


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
    """Return the names of the hosts that are not this machine, in the order of their connections."""
    return [target.rank_group.host for target in targets if target.reach is not None]
