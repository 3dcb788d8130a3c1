"""The command line to a host of the list: ssh with the user's own configuration, or srun. Nothing is started.

What a file names reaches a remote shell only as the interpreter's path, quoted; everything else travels
inside the connection. ssh itself sees checked words only: a destination or login that could be an option
or be expanded in a ProxyCommand is refused.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from apples.errors import UsageError
from apples.resources import Host, HostList
from apples.resources.host import (
    ADDRESS_PATTERN,
    ALLOCATION_PATTERN,
    NAME_PATTERN,
    PROGRAM_PATTERN,
    USER_PATTERN,
)

CONNECT_SECONDS = 4
"""For the connection alone; a host that takes longer counts as dead."""
OPTIONS = (
    "BatchMode=yes",  # never ask: there may be nobody
    f"ConnectTimeout={CONNECT_SECONDS}",
    "ServerAliveInterval=5",  # a host that vanished is noticed within 15 s
    "ServerAliveCountMax=3",
    "ClearAllForwardings=yes",
    "RequestTTY=no",
    "LogLevel=ERROR",
)
# ControlMaster=no stops ssh from offering its connection to others; only ControlPath=none stops it
# from using theirs.
OWN = ("ControlMaster=no", "ControlPath=none")
"""A connection others share would outlive us, or we it, whatever the user's configuration says."""
SHARED = ("ControlMaster=auto", "ControlPersist=15")
INHERITED = (
    "SSH_CONNECTION",
    *(f"SLURM_{it}" for it in ("CPUS_PER_TASK", "TASKS_PER_NODE", "NTASKS", "NPROCS", "NNODES")),
)
"""What the batch script's or the login's own would say of a step that it does not fit."""
STEP = (
    *("env", *(word for name in INHERITED for word in ("-u", name))),
    *("srun", "--overlap", "--mpi=none", "--cpu-bind=none", "--unbuffered", "--quiet"),
    "--chdir=/",
)
"""A step beside others, that binds nothing: its ranks are ours to place."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How one host is reached.

    Attributes
    ----------
    name
        How plans and reports call it.
    address
        What ssh is told to connect to: an address, or an alias of the configuration.
    python
        The interpreter there.
    user
        Login; empty: what the configuration says.
    config
        Path of an ssh configuration in place of the user's own; empty: that.
    allocation
        Number of the Slurm job by whose steps it is reached in place of ssh; empty: none.

    Raises
    ------
    UsageError
        A word that ssh or a shell could take for something else. Permanent.
    """

    name: str
    address: str
    python: str
    user: str = ""
    config: str = ""
    allocation: str = ""

    def __post_init__(self) -> None:
        for field, pattern in (
            ("address", ADDRESS_PATTERN),
            ("user", USER_PATTERN),
            ("python", PROGRAM_PATTERN),
            ("name", NAME_PATTERN),
            ("allocation", ALLOCATION_PATTERN),
        ):
            value = getattr(self, field)
            if not re.fullmatch(pattern, value) or "\n" in value:
                raise UsageError(
                    f"host {self.name!r}: {field} {value!r} must not reach ssh",
                    code="value-invalid",
                    host=self.name,
                    field=field,
                    value=value,
                )
        if not self.python:
            raise UsageError(
                f"host {self.name!r}: no python to start there",
                code="value-missing",
                host=self.name,
                field="python",
            )


def reach(host: Host, hosts: HostList) -> Reach:
    """Return how a host of the list is reached; a host without a python has this one's path."""
    python = host.python or sys.executable
    return Reach(
        host.name, host.reached_at, python, host.user, configuration(hosts), host.allocation
    )


def configuration(hosts: HostList) -> str:
    """Return the path of the list's ssh configuration, relative to the list's own folder."""
    if not hosts.ssh_config:
        return ""
    path = Path(hosts.ssh_config).expanduser()
    return str(Path(hosts.source or ".").absolute().parent / path)


def command(reach: Reach, words: Sequence[str] = (), shared: str = "") -> list[str]:
    """Return the argument list that runs the host's interpreter with `words`.

    Words that mean nothing to a shell may be added to it: ssh puts a space before each.

    Parameters
    ----------
    shared
        The socket of a login that others share (`sharing`), begun where there is none; empty: it has its own.

    Examples
    --------
    >>> command(Reach("ada", "10.0.0.1", "/opt/my python"), ["-I", "-c", "pass"])[-2:]
    ['10.0.0.1', "exec '/opt/my python' -I -c pass"]
    >>> command(Reach("n1", "n1", "/bin/python3", allocation="47"), ["-I"])[-6:]
    ['--jobid=47', 'sh', '-c', 'exec /bin/python3 "$@"', 'sh', '-I']
    """
    if reach.allocation:
        line = f'exec {_quoted(reach.python)} "$@"'  # what is added comes to the words
        return [*step(reach.name, reach.allocation), "sh", "-c", line, "sh", *words]
    argv = ["ssh", *(["-F", reach.config] if reach.config else [])]
    sharing = (*SHARED, f"ControlPath={shared}") if shared else OWN
    for option in (*OPTIONS, *sharing):
        argv += ["-o", option]
    argv += ["-l", reach.user] if reach.user else []
    return [*argv, "-a", "-x", "-T", "--", reach.address, _line(reach.python, words)]


def step(node: str, allocation: str) -> tuple[str, ...]:
    """Return the argument list to which is added what one task on a node is to be.

    Examples
    --------
    >>> step("n1", "4711")[-4:]
    ('--nodes=1', '--ntasks=1', '--nodelist=n1', '--jobid=4711')
    """
    return (*STEP, "--nodes=1", "--ntasks=1", f"--nodelist={node}", f"--jobid={allocation}")


def configured(reach: Reach) -> list[str]:
    """Return the argument list that prints what the configuration says of a host; connects to nobody."""
    return ["ssh", *(["-F", reach.config] if reach.config else []), "-G", "--", reach.address]


def _line(python: str, words: Sequence[str]) -> str:
    """Return the line the login's shell reads."""
    return " ".join(["exec", _quoted(python), *map(shlex.quote, words)])


def _quoted(python: str) -> str:
    return f'"$HOME"/{shlex.quote(python[2:])}' if python.startswith("~/") else shlex.quote(python)
