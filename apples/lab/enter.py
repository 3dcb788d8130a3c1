"""Runs a command on an emulated host: in its namespaces and cgroups.

Run by path as ``python -I -S enter.py JSON COMMAND...``; standard library only. The JSON names the host's
first process, the start time of that process, and the cgroups. Standard streams and the exit code are the
command's own. The command ends with this process; with ``log`` it continues and writes to that file.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
from typing import Any, NoReturn

NAMESPACES = 0x00020000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000
"""Mounts, name, shared memory, processes, network."""
PR_SET_PDEATHSIG = 1
GONE, CANNOT_START = 126, 127
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    """Enter the host and run the command."""
    order, argv = json.loads(sys.argv[1]), sys.argv[2:]
    here = os.getcwd()  # noqa: PTH109 - pathlib is slow to load
    try:
        _enter(order)
    except OSError as error:
        sys.stderr.write(f"apples lab: {order['host']}: cannot enter: {error}\n")
        return GONE
    with contextlib.suppress(OSError):
        os.chdir(here)
    child = os.fork()
    if child == 0:
        _become(argv, order.get("log", ""))
    return 0 if order.get("log") else _wait(child)


def _enter(order: dict[str, Any]) -> None:
    first = os.pidfd_open(order["pid"])
    if started(order["pid"]) != order["started"]:
        raise OSError("the host is gone")
    for path in order["cgroups"]:
        with open(path, "w", encoding="ascii") as stream:  # noqa: PTH123
            stream.write("0")
    if LIBC.setns(first, NAMESPACES) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    os.close(first)


def started(pid: int) -> int:
    """Return the start time of a process, in the kernel's ticks; 0 if the process does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:  # noqa: PTH123
            return int(stream.read().rpartition(b")")[2].split()[19])
    except OSError:
        return 0


def _become(argv: list[str], log: str) -> NoReturn:
    try:
        if log:
            os.setsid()
            _redirect(log)
        else:
            LIBC.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execvp(argv[0], argv)  # noqa: S606 - an argument list, no shell
    except OSError as error:
        sys.stderr.write(f"apples lab: {argv[0]}: {error.strerror}\n")
        sys.stderr.flush()
    finally:
        os._exit(CANNOT_START)


def _redirect(log: str) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor, standard in ((null, 0), (out, 1), (out, 2)):
        os.dup2(descriptor, standard)


def _wait(child: int) -> int:
    """Forward signals until the command ends; return its exit code, 128 and more for a signal."""
    for number in PASSED_ON:
        signal.signal(number, lambda caught, _: os.kill(child, caught))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
