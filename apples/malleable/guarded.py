"""Processes below a guard: started, looked at, ended. Standard library only."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

LINE_LIMIT = 1 << 20
HELLO = b"apples.far_guard/1\n"
"""What a guard at the far end of a connection says first."""
FIELDS = {"output": ("line",), "errors": ("line",), "said": ("rank", "message"), "lost": ("why",)}
PR_SET_PDEATHSIG = 1
SHARED = "/dev/shm"  # noqa: S108 - where MPI puts the memory its ranks share, and leaves it when they are killed


def become(argv: list[str], environment: dict[str, str], guard: int) -> None:
    """Turn this child into the launcher, which dies with the guard; in a group that hydra may kill."""
    try:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(2, 1)
        if os.getppid() == guard:
            os.execve(argv[0], argv, environment)  # noqa: S606 - an argument list, no shell
    except OSError as error:
        sys.stderr.write(f"apples: cannot start {argv[0]}: {error.strerror}\n")
        sys.stderr.flush()
    finally:
        os._exit(127)


def children(ancestor: int) -> list[int]:
    """Return every descendant of a process, parents first."""
    below: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib is slow to load
        if name.isdigit():
            below.setdefault(parent(int(name)), []).append(int(name))
    found, waiting = [], [ancestor]
    while waiting:
        mine = below.get(waiting.pop(), [])
        found += mine
        waiting += mine
    return found


def below_launcher(launcher: int) -> tuple[set[int], set[int]]:
    """Return a launcher's proxies and their ranks."""
    below: dict[int, set[int]] = {}
    for pid in children(launcher):
        below.setdefault(parent(pid), set()).add(pid)
    proxies = below.get(launcher, set())
    return proxies, {rank for proxy in proxies for rank in below.get(proxy, ())}


def parent(pid: int) -> int:
    """Return the parent of a process; 0 when it is gone."""
    fields = _stat(pid).split()
    return int(fields[1]) if fields else 0


def state(pid: int) -> str:
    """Return the letter of a process's state; X when it is gone."""
    return _stat(pid)[:1].decode() or "X"


def _stat(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:  # noqa: PTH123 - pathlib is slow to load
            return stream.read().rpartition(b") ")[2]
    except OSError:
        return b""


def end(pid: int) -> None:
    """Kill a descendant of this process."""
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def clear(ancestor: int, spare: int = 0) -> None:
    """Kill and reap all descendants until none is left but `spare`, which is only waited for elsewhere."""
    while found := [pid for pid in children(ancestor) if pid != spare]:
        for pid in found:
            end(pid)
        for pid in found:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.002)


def unname(pids: set[int]) -> None:
    """Take the names off the memory that all ranks have mapped now: nobody needs them any more."""
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/maps") as stream:  # noqa: PTH123
            names = {line.split()[-1] for line in stream if f"{SHARED}/mpich_shm_" in line}
            for name in names:
                os.unlink(name)  # noqa: PTH108


def sweep(pids: set[int]) -> None:
    """Remove the memory files of ranks that are gone: they are named by process."""
    for name in os.listdir(SHARED):  # noqa: PTH208
        if name.split(":")[0] in {str(pid) for pid in pids}:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(SHARED, name))  # noqa: PTH108, PTH118


def message(line: bytes) -> dict[str, Any] | None:
    """Return what a guard says in a line; None where no guard says such a thing."""
    try:
        said = json.loads(line)
    except ValueError:
        return None
    if not isinstance(said, dict) or "say" not in said:
        return None
    complete = all(name in said for name in FIELDS.get(said["say"], ()))
    return said if complete else None


class Relay:
    """A pipe of a path that the ranks write to, where the agent's own cannot be reached.

    Parameters
    ----------
    say
        Called with ``line=`` for each line.
    """

    def __init__(self, path: str, say: Callable[..., None]) -> None:
        os.mkfifo(path, 0o600)
        self.handle = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._say, self._rest = say, b""

    def read(self) -> None:
        """Pass on the lines that came."""
        *lines, rest = (self._rest + os.read(self.handle, 1 << 16)).split(b"\n")
        self._rest = rest[:LINE_LIMIT]
        for line in lines:
            self._say(line=line.decode(errors="replace"))
