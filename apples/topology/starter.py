"""Becomes a job's command: it enters the job's container first, then calls exec, so no instruction runs outside.

Run by path as ``python -I -S starter.py SOCKET JOB COMMAND...``; standard library only. It asks the daemon to
move this process; the kernel gives the daemon its process id. With ``-N`` for the socket it waits on its
descriptor N until its parent has moved it, and dies with its parent. The answer lists the memory nodes to prefer;
the preference survives the exec.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import socket
import sys
from typing import NoReturn

# Run by path and without site packages: the root of our packages is found from this file.
sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120
from apples.io.connection import LineConnection
from apples.io.sockets import socket_name

CANNOT_START = 127
CANNOT_BIND = 4
PR_SET_PDEATHSIG = 1
SECONDS = 60.0
SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237, "ppc64le": 261, "s390x": 270, "riscv64": 237}
PREFERRED, PREFERRED_MANY = 1, 5


def main() -> NoReturn:
    """Enter the container, then execute the command."""
    place, job, *command = sys.argv[1:]
    try:
        prefer_memory(
            _wait_for_parent(int(place[1:])) if place.startswith("-") else _bound(place, job)
        )
    except (OSError, ValueError) as error:
        _end(CANNOT_BIND, f"{job}: {error}")
    for number in (
        signal.SIGPIPE,
        signal.SIGXFSZ,
    ):  # Python ignores these signals; a command would inherit that
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606 - an argument list, no shell
    except OSError as error:
        _end(CANNOT_START, f"{command[0]}: {error.strerror}")


def _bound(place: str, job: str) -> str:
    """Ask the daemon to move this process; return the memory nodes to prefer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(SECONDS)
        with socket_name(place) as name:
            asking.connect(name)
        connection = LineConnection(asking)
        connection.send({"verb": "bind", "job": job})
        answer = connection.receive(SECONDS)
    if answer is None or not answer.get("ok"):
        raise OSError("no answer" if answer is None else answer.get("error", "refused"))
    return str(answer["prefer"])


def _wait_for_parent(go: int) -> str:
    """Wait until the parent has moved this process; return the memory nodes to prefer."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    with os.fdopen(go, "rb") as pipe:
        line = pipe.readline()
    if not line:
        raise OSError("the parent of this process went away")
    return line.decode().strip()


def prefer_memory(nodes: str) -> bool:
    """Make this process and its children take memory from some nodes while they have any (mbind(2)).

    Return whether the kernel accepted it; a machine without NUMA does not. `nodes` is a list such as ``0-1,4``.
    """
    mask = 0
    for part in filter(None, nodes.split(",")):
        first, _, last = part.partition("-")
        for node in range(int(first), int(last or first) + 1):
            mask |= 1 << node
    number = SET_MEMPOLICY.get(platform.machine())
    if not mask or number is None:
        return False
    words = (ctypes.c_ulong * 16)()
    width = ctypes.sizeof(ctypes.c_ulong) * 8
    for index in range(len(words)):
        words[index] = mask >> index * width & ((1 << width) - 1)
    libc = ctypes.CDLL(None, use_errno=True)
    kinds = (PREFERRED_MANY, PREFERRED) if mask & mask - 1 else (PREFERRED,)
    bits = len(words) * width
    return any(libc.syscall(number, kind, words, bits) == 0 for kind in kinds)


def _end(code: int, why: str) -> NoReturn:
    sys.stderr.write(f"apples exec: {why}\n")
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
