"""Build the command that starts a run on several hosts: hydra, with proxies that the agent starts. Pure functions.

The machine file has addresses, never names, so that hydra looks up no name. mpiexec prints the command line of
each proxy and waits (``-launcher manual``). The agent starts the proxies: on another host through the open ssh
connection to its host agent (`apples.launch.host_agent`), on this machine through this machine's host agent. When
its connection ends, a host agent ends all processes of the run on its host. Ranks get their environment and
program through the connection; hydra passes no environment on (``-genvnone``).
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
"""A line of mpiexec with the command line of a proxy; the proxy id is the index of a host in the machine file."""
PROXIES_END = b"HYDRA_LAUNCH_END"
"""Line of mpiexec after the lines of all proxies."""
CARRIED = ("LANG", "LC_ALL", "TZ", "PYTHONHASHSEED")
CARRIED_BEGIN = ("OMP_", "MKL_", "OPENBLAS_", "NUMBA_", "UCX_", "FI_", "MPIR_CVAR_")
"""Names and prefixes of the agent's variables that are passed to ranks on other machines; no others are."""
CARRY = "APPLES_CARRY"
"""Variable with the names of more variables to pass on, separated by commas."""


@dataclass(frozen=True, slots=True)
class LaunchTarget:
    """One rank group and its host.

    Attributes
    ----------
    rank_group
        Ranks and program. `cpus` and `cgroup` apply only on this machine; `rank_cpus` applies on any host.
    address
        IP address of the host, for the machine file.
    reach
        The login to the host; None: this machine.
    directory
        Working directory of the program on the host; empty: the login directory.
    programs
        Words of the program that are files of the template's folder; they are also searched in `directory`.
    environment
        Variables for these ranks only.
    back
        Address of this machine as that host reaches it; empty: the same as for the other hosts.
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
        This machine's address, as the other hosts reach it.
    directory
        Working directory of ranks on this machine.
    counting
        Data for counting messages on other machines (`MessageCounts.carried`); None: do not count.

    Raises
    ------
    LaunchError
        A program is invalid, two targets have the same address, a target has only an IPv6 address, or mpiexec is
        missing.
    """
    addresses = [target.address for target in targets if target.reach]
    for target in targets:
        if over := next((one for one in (target.address, target.back) if ":" in one), ""):
            raise LaunchError(
                f"{target.rank_group.host}: has an IPv6 address only ({over}), but mpiexec needs "
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
    """Return mpiexec's options. They name this machine by its address, so that hydra looks up no name."""
    return [
        *RANK_ENDS,
        *("-launcher", "manual", "-rmk", "user"),
        *("-localhost", here, "-f", MACHINE_FILE, "-genvnone"),
    ]


def carried(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables of `environment` that are passed to ranks on other hosts.

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
    """Return the command line of a rank on another host, relative to the run's folder there."""
    return ["./python", "-I", "-S", "bind.py", LAUNCH_FILE, "0"]


def _folder(job: str, index: int) -> str:
    """Return the run's folder on one host; its supervisor creates it and fails if it already exists."""
    return f"/tmp/apples-{job}-{index}"  # noqa: S108 - the job name is random


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
    """Return the configuration of each host agent on another machine, in the order of `remote_hosts`."""
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
    """Return for each proxy id the index of its host in `remote_hosts`; None: this machine.

    hydra treats successive lines of the machine file with the same address as one host. The list is empty for a
    command of another launcher.
    """
    launch = json.loads(command.files.get(LAUNCH_FILE, "{}"))
    if "remote" not in launch:
        return []
    addresses = [line.rpartition(":")[0] for line in command.files[MACHINE_FILE].splitlines()]
    remote = [there["address"] for there in launch["remote"]]
    return [remote.index(a) if a in remote else None for a, _ in groupby(addresses)]


def proxy_way_back(command: LaunchCommand, host: int, argv: Sequence[str]) -> list[str]:
    """Return the command line of a proxy, with this machine's address as the proxy's host reaches it.

    mpiexec prints the same address for all proxies, but listens on all addresses of this machine.
    """
    back = json.loads(command.files[LAUNCH_FILE])["remote"][host]["back"]
    words = list(argv)
    if back and "--control-port" in words:
        port = words.index("--control-port") + 1
        words[port] = f"{back}:{words[port].rpartition(':')[2]}"
    return words


def proxy_of(line: bytes) -> tuple[int, list[str]] | None:
    """Return the id and the command line of the proxy that a line of mpiexec requests; None for other lines.

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
