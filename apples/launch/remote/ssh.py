"""Build the command line to a host of the list: ssh with the user's own configuration, or srun. Pure functions.

Of the words in a host list, only the quoted path of the interpreter reaches a remote shell. All else is sent
inside the connection. ssh itself gets only validated words: a destination or login that could be an option, or be
expanded in a ProxyCommand, is rejected.
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
"""Time limit for the connection alone; a host that takes longer counts as dead."""
OPTIONS = (
    "BatchMode=yes",  # never prompt: no user may be there to answer
    f"ConnectTimeout={CONNECT_SECONDS}",
    "ServerAliveInterval=5",  # notices a vanished host within 15 s
    "ServerAliveCountMax=3",
    "ClearAllForwardings=yes",
    "RequestTTY=no",
    "LogLevel=ERROR",
)
# ControlMaster=no keeps ssh from sharing its connection; only ControlPath=none keeps it from using a shared one.
OWN = ("ControlMaster=no", "ControlPath=none")
"""Options that prevent a shared connection, which may end before or after this process."""
SHARED = ("ControlMaster=auto", "ControlPersist=15")
INHERITED = (
    "SSH_CONNECTION",
    *(f"SLURM_{it}" for it in ("CPUS_PER_TASK", "TASKS_PER_NODE", "NTASKS", "NPROCS", "NNODES")),
)
"""Variables to remove for a step: inherited from a batch script or login, they would be wrong for the step."""
STEP = (
    *("env", *(word for name in INHERITED for word in ("-u", name))),
    *("srun", "--overlap", "--mpi=none", "--cpu-bind=none", "--unbuffered", "--quiet"),
    "--chdir=/",
)
"""Command of a step that runs beside other steps and binds no CPUs: apples chooses the CPUs of its ranks."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The login to one host.

    Attributes
    ----------
    name
        Name of the host in plans and reports.
    address
        Destination for ssh: an address, or an alias of the configuration.
    python
        Path of the interpreter on the host.
    user
        Login name; empty: that of the configuration.
    config
        Path of an ssh configuration; empty: the user's own configuration.
    allocation
        Number of the Slurm job that has the host; its steps replace ssh. Empty: use ssh.

    Raises
    ------
    UsageError
        ssh or a shell could misinterpret a field. Permanent.
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
    """Return the login to a host of the list; `python` defaults to the path of this interpreter."""
    python = host.python or sys.executable
    return Reach(
        host.name, host.reached_at, python, host.user, configuration(hosts), host.allocation
    )


def configuration(hosts: HostList) -> str:
    """Return the path of the list's ssh configuration, which is relative to the list's folder; empty: none."""
    if not hosts.ssh_config:
        return ""
    path = Path(hosts.ssh_config).expanduser()
    return str(Path(hosts.source or ".").absolute().parent / path)


def command(reach: Reach, words: Sequence[str] = (), shared: str = "") -> list[str]:
    """Return the argument list that runs the host's interpreter with `words`.

    Words without shell syntax may be appended: ssh puts a space before each.

    Parameters
    ----------
    shared
        Socket path of a shared login (`sharing`), which is started if it does not exist; empty: an unshared login.

    Examples
    --------
    >>> command(Reach("ada", "10.0.0.1", "/opt/my python"), ["-I", "-c", "pass"])[-2:]
    ['10.0.0.1', "exec '/opt/my python' -I -c pass"]
    >>> command(Reach("n1", "n1", "/bin/python3", allocation="47"), ["-I"])[-6:]
    ['--jobid=47', 'sh', '-c', 'exec /bin/python3 "$@"', 'sh', '-I']
    """
    if reach.allocation:
        line = f'exec {_quoted(reach.python)} "$@"'  # appended words follow `words`
        return [*step(reach.name, reach.allocation), "sh", "-c", line, "sh", *words]
    argv = ["ssh", *(["-F", reach.config] if reach.config else [])]
    sharing = (*SHARED, f"ControlPath={shared}") if shared else OWN
    for option in (*OPTIONS, *sharing):
        argv += ["-o", option]
    argv += ["-l", reach.user] if reach.user else []
    return [*argv, "-a", "-x", "-T", "--", reach.address, _line(reach.python, words)]


def step(node: str, allocation: str) -> tuple[str, ...]:
    """Return the argument list of a step with one task on a node; append the task's command to it.

    Examples
    --------
    >>> step("n1", "4711")[-4:]
    ('--nodes=1', '--ntasks=1', '--nodelist=n1', '--jobid=4711')
    """
    return (*STEP, "--nodes=1", "--ntasks=1", f"--nodelist={node}", f"--jobid={allocation}")


def configured(reach: Reach) -> list[str]:
    """Return the argument list that prints the ssh configuration of a host, without a connection."""
    return ["ssh", *(["-F", reach.config] if reach.config else []), "-G", "--", reach.address]


def login(reach: Reach) -> str:
    """Return the command line that logs into a host as a run does, for a message.

    Examples
    --------
    >>> login(Reach("ada", "10.0.0.1", "/bin/python3", user="guest", config="my config"))
    "ssh -F 'my config' -l guest 10.0.0.1"
    """
    config = ["-F", reach.config] if reach.config else []
    user = ["-l", reach.user] if reach.user else []
    return shlex.join(["ssh", *config, *user, reach.address])


def _line(python: str, words: Sequence[str]) -> str:
    """Return the command line for the login's shell."""
    return " ".join(["exec", _quoted(python), *map(shlex.quote, words)])


def _quoted(python: str) -> str:
    return f'"$HOME"/{shlex.quote(python[2:])}' if python.startswith("~/") else shlex.quote(python)
