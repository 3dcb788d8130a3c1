"""The init process of an emulated host: it makes the namespaces and reaps. All processes of the host end with it.

Run by path as ``python -I -S host_init.py``; standard library only. Standard input is one JSON object: the
host's name, the file for its ``/etc/hosts``, directories that it shares under ``/run``, and cgroups to
join. It prints the process id of the first process, as this machine sees it, then ``ready``.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
from typing import Any

NEW_MOUNT, NEW_NAME, NEW_IPC, NEW_PID, NEW_NETWORK = (
    0x00020000,
    0x04000000,
    0x08000000,
    0x20000000,
    0x40000000,
)
BIND, MOVE, RECURSIVE, PRIVATE = 4096, 8192, 16384, 1 << 18
LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    """Make the namespaces, and start their first process, which stays."""
    order = json.loads(sys.stdin.readline())
    for path in order["cgroups"]:
        with open(path, "w", encoding="ascii") as stream:  # noqa: PTH123 - pathlib is slow to load
            stream.write("0")
    # No other process keeps these namespaces. `ip netns` would leave a mount on /run/netns;
    # killing this process ends the host.
    _checked(LIBC.unshare(NEW_MOUNT | NEW_NAME | NEW_IPC | NEW_PID | NEW_NETWORK), "unshare")
    first = os.fork()
    if first == 0:
        _live(order)
    _say(f"{first}\n")
    return 0


def _live(order: dict[str, Any]) -> None:
    """Be the host: set it up, then reap its children until the end."""
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        socket.sethostname(order["host"])
        _mount(None, "/", None, RECURSIVE | PRIVATE)
        _own_files(order)
        _say("ready\n")
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        while True:
            signal.sigwait({signal.SIGCHLD})
            _bury()
    except BaseException as error:  # noqa: BLE001 - this process has no caller
        sys.stderr.write(f"{order['host']}: {error}\n")
        sys.stderr.flush()
    finally:
        os._exit(1)


def _own_files(order: dict[str, Any]) -> None:
    """Show the host its own processes, interfaces, names, shared memory and run-time directory."""
    shared = {name: os.open(path, os.O_PATH) for name, path in order["shared"].items()}
    _mount("proc", "/proc", "proc")
    cgroups = os.path.isdir("/sys/fs/cgroup")  # noqa: PTH112 - pathlib is slow to load
    kept = os.open("/sys/fs/cgroup", os.O_PATH) if cgroups else -1
    _mount("tmpfs", "/run", "tmpfs", data="mode=755")
    if cgroups:
        os.mkdir("/run/cgroup")  # noqa: PTH102
        _mount(f"/proc/self/fd/{kept}", "/run/cgroup", None, BIND | RECURSIVE)
    _mount("sysfs", "/sys", "sysfs")
    if cgroups:
        _mount("/run/cgroup", "/sys/fs/cgroup", None, MOVE)
        os.rmdir("/run/cgroup")  # noqa: PTH106
    if os.path.isdir("/dev/shm"):  # noqa: PTH112, S108 - the host's own shared memory, by its usual name
        _mount("tmpfs", "/dev/shm", "tmpfs", data="mode=1777")  # noqa: S108
    for name, directory in shared.items():
        os.makedirs(f"/run/{name}")  # noqa: PTH103
        _mount(f"/proc/self/fd/{directory}", f"/run/{name}", None, BIND)
    os.makedirs("/run/sshd", mode=0o755)  # noqa: PTH103
    _mount(order["names"], "/etc/hosts", None, BIND)
    for descriptor in (*shared.values(), kept):
        if descriptor >= 0:
            os.close(descriptor)


def _mount(
    source: str | None, target: str, kind: str | None, flags: int = 0, data: str = ""
) -> None:
    words = [word.encode() if word else None for word in (source, target, kind)]
    _checked(LIBC.mount(*words, flags, data.encode() or None), f"mount {target}")


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _bury() -> None:
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


def _say(line: str) -> None:
    os.write(1, line.encode())


if __name__ == "__main__":
    sys.exit(main())
