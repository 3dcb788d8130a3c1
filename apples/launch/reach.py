"""What hydra starts in place of ssh, once for each host: becomes the ssh that starts a supervisor there.

``python -I -m apples.launch.reach [-x] ADDRESS "PROXY" ARGUMENTS..`` in the folder of the launch file. The
ssh command lines stand there, made by `apples.launch.ssh`; only the run's mark is added, by which the supervisor
there is known, and numbers and addresses of hydra's own, which travel inside the connection.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from apples.launch.hydra import LAUNCH_FILE, TASK_FILE
from apples.launch.job_processes import mark
from apples.launch.remote import bootstrap

SUPERVISOR = "apples.launch.host_agent:serve"
LARGEST_PIPE = 1 << 20
"""The kernel's limit for everybody's pipes: what one host is told must fit."""


def main() -> NoReturn:
    """Become ssh, with the supervisor and its orders waiting in its standard input."""
    address, proxy = parsed(sys.argv[1:])
    launch = json.loads(Path(LAUNCH_FILE).read_text(encoding="utf-8"))
    there = launch["remote"][address]
    task = Path(TASK_FILE).read_text(encoding="utf-8")
    told = orders(there, proxy, task, launch)
    parcel = bootstrap.parcel(SUPERVISOR, told)
    os.dup2(_input(there["number"], parcel), 0)
    output = f"host-{there['number']}"
    if Path(output).exists():  # somebody listens
        os.dup2(os.open(output, os.O_WRONLY), 1)
    marked = [*there["ssh"], mark(launch["job"])]
    os.execvp(marked[0], marked)  # noqa: S606 - an argument list, no shell


def parsed(arguments: list[str]) -> tuple[str, list[str]]:
    """Return the address and the proxy's arguments of what hydra says.

    Examples
    --------
    >>> parsed(["-x", "10.0.0.1", '"/bin/hydra_pmi_proxy"', "--proxy-id", "1"])
    ('10.0.0.1', ['--proxy-id', '1'])
    """
    while arguments and arguments[0].startswith("-"):
        arguments = arguments[1:]
    address, _, *proxy = arguments
    return address, proxy


def orders(
    there: dict[str, Any], proxy: list[str], task: str, launch: dict[str, Any]
) -> dict[str, Any]:
    """Return what a supervisor is told, of a launch file."""
    return {
        "directory": there["folder"],
        "home": there["directory"],
        "job": launch["job"],
        "counting": launch["counting"],
        "proxy": proxy,
        "launch": {"hosts": there["hosts"]},
        "files": {TASK_FILE: task, "bind.py": _bind()},
    }


def _bind() -> str:
    return Path(__file__).with_name("rank_wrapper.py").read_text(encoding="utf-8")


def _input(number: int, parcel: bytes) -> int:
    """Return a pipe that holds the parcel and does not end: ssh's own end is the connection's."""
    name = Path(f"to-{number}")
    if name.exists():
        reader = writer = os.open(name, os.O_RDWR)
    else:
        reader, writer = os.pipe()
        os.set_inheritable(writer, True)
    if len(parcel) > fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ):
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, max(LARGEST_PIPE, len(parcel)))
    os.set_blocking(writer, False)
    if os.write(writer, parcel) < len(parcel):
        sys.exit(f"apples: {len(parcel)} bytes for one host are more than a pipe holds")
    os.set_blocking(writer, True)
    return reader


if __name__ == "__main__":
    main()
