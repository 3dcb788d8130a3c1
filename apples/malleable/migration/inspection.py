"""The open resources of a program, and the reasons why some of them cannot be moved to another host.

They are read from /proc, for the program's root process and all its descendants. CRIU would reject most of them
too, but later and with its own messages. It can be forced to move some of them, for example sockets and terminals,
but their other end does not exist on the target.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from apples.malleable.migration.criu import GHOST_BYTES

PROC = Path("/proc")
HARMLESS = {f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom")}
EVENTS = ("eventfd", "eventpoll", "signalfd", "timerfd", "inotify", "pidfd")
NAMESPACES = ("mnt", "pid", "net", "ipc", "uts", "user")
# Any socket is a reason to reject: CRIU 4.1.1 fails on SO_PASSSEC of Linux 6.18, and the other end
# would not move with it.
PROTOCOLS = ("tcp", "tcp6", "udp", "udp6", "raw", "raw6", "unix", "netlink", "packet")
TERMINAL = re.compile(r"/dev/(pts/|tty|ptmx|console|pty)")
DELETED = " (deleted)"


@dataclass(slots=True)
class ProgramInspection:
    """A program's processes, the paths that it needs on the target, and the reasons why it cannot move.

    Attributes
    ----------
    closing
        File descriptors of sockets that the program closes before its checkpoint.
    """

    pids: list[int] = field(default_factory=list)
    closing: Collection[int] = ()
    files: set[str] = field(default_factory=set)
    reasons: list[str] = field(default_factory=list)


def inspect(root: int, closing: Collection[int] = ()) -> ProgramInspection:
    """Inspect `root` and its descendants; processes that end meanwhile are left out."""
    found = ProgramInspection(pids=tree(root), closing=closing)
    for pid in found.pids:
        try:
            found.reasons += _process(pid, found)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def tree(root: int) -> list[int]:
    """Return `root` and its descendants, parents first."""
    pids = [root]
    for pid in pids:
        for task in _entries(PROC / str(pid) / "task"):
            children = _text(PROC / str(pid) / "task" / task / "children").split()
            pids += [int(child) for child in children]
    return pids


def catches(pid: int, number: int) -> bool:
    """Whether a process has its own handler for a signal; most signals kill a process without a handler."""
    found = re.search(r"^SigCgt:\s*([0-9a-f]+)", _text(PROC / str(pid) / "status"), re.MULTILINE)
    return bool(found and int(found[1], 16) >> (number - 1) & 1)


def kernel() -> str:
    """Return an identity of this kernel and pid namespace; emulated hosts on one machine may share it."""
    return (
        f"{_text(PROC / 'sys/kernel/random/boot_id').strip()} {(PROC / 'self/ns/pid').readlink()}"
    )


def state(pid: int) -> str:
    """Return the letter of a process's state, for example ``R``, ``S`` or ``T``; empty if it is gone."""
    return _text(PROC / str(pid) / "stat").rpartition(") ")[2][:1]


def _process(pid: int, found: ProgramInspection) -> Iterator[str]:
    """Yield the reasons why a process cannot be moved; add the paths that it needs to `found`."""
    base = PROC / str(pid)
    who = f"process {pid} ({_text(base / 'comm').strip()})"
    fields = _text(base / "stat").rpartition(") ")[2].split()
    if len(fields) > 4 and fields[4] != "0":
        yield f"{who} has a terminal"
    if tracer := re.search(r"^TracerPid:\s*([1-9]\d*)", _text(base / "status"), re.MULTILINE):
        yield f"{who} is being traced by process {tracer[1]}"
    for name in NAMESPACES:
        if (base / "ns" / name).readlink() != (PROC / "self/ns" / name).readlink():
            yield f"{who} is in a {name} namespace of its own"
    found.files.add(str((base / "cwd").readlink()))
    yield from _descriptors(base, who, found)
    yield from _maps(base, who, found)


def _descriptors(base: Path, who: str, found: ProgramInspection) -> Iterator[str]:
    for number in sorted(map(int, _entries(base / "fd"))):
        try:
            yield from _descriptor(base, number, who, found)
        except FileNotFoundError:  # closed meanwhile
            continue


def _maps(base: Path, who: str, found: ProgramInspection) -> Iterator[str]:
    for path in _mapped(base):
        if path.startswith("/SYSV"):
            yield f"{who} uses System V shared memory"
        elif path.startswith("/dev/") and not path.startswith(("/dev/shm/", "/dev/zero")):  # noqa: S108
            yield f"{who} maps the device {path}"
        elif not path.endswith(DELETED):
            found.files.add(path)


def _descriptor(base: Path, number: int, who: str, found: ProgramInspection) -> Iterator[str]:
    """Yield the reason why an open file cannot be moved, or add its path to `found`."""
    target = str((base / "fd" / str(number)).readlink())
    what = f"{who} has file descriptor {number}"
    if target.startswith("socket:") and number in found.closing:
        return
    if target.startswith("socket:"):
        yield f"{who} has a socket open: {_socket(base, target)} (file descriptor {number})"
    elif target.startswith("pipe:"):
        if outside := _other_end(target, set(found.pids)):
            yield f"{what} on a pipe to process {outside}, which would stay behind"
    elif target.startswith("anon_inode:"):
        if not any(name in target for name in EVENTS):
            yield f"{what} on {target.removeprefix('anon_inode:')}, which has no life outside the kernel"
    elif TERMINAL.match(target):
        yield f"{who} has a terminal open: {target} (file descriptor {number})"
    elif target not in HARMLESS and not target.startswith("/memfd:"):
        yield from _file(base / "fd" / str(number), target, what, found)


def _file(opened: Path, target: str, what: str, found: ProgramInspection) -> Iterator[str]:
    mode = opened.stat()
    if stat.S_ISFIFO(mode.st_mode):
        yield f"{what} on the named pipe {target}; its other end would stay behind"
    elif stat.S_ISCHR(mode.st_mode) or stat.S_ISBLK(mode.st_mode):
        yield f"{what} on the device {target}"
    elif mode.st_nlink == 0:
        if mode.st_size > GHOST_BYTES:
            yield f"{what} on a removed file of {mode.st_size} bytes, more than {GHOST_BYTES} travel"
        found.files.add(str(Path(target.removesuffix(DELETED)).parent))
    elif not target.startswith("/proc/"):
        found.files.add(target)


def _socket(base: Path, target: str) -> str:
    """Return the kind of a socket, for example ``TCP``."""
    inode = target.partition("[")[2].rstrip("]")
    for protocol in PROTOCOLS:
        for line in _text(base / "net" / protocol).splitlines()[1:]:
            if inode in line.split():
                return "unix" if protocol == "unix" else protocol.rstrip("6").upper()
    return "of a kind that is listed nowhere"


def _other_end(target: str, own: set[int]) -> int:
    """Return a process outside the program that holds the same pipe; 0 if no such process exists."""
    for name in _entries(PROC):
        if name.isdigit() and int(name) not in own:
            for number in _entries(PROC / name / "fd"):
                try:
                    if str((PROC / name / "fd" / number).readlink()) == target:
                        return int(name)
                except OSError:
                    continue
    return 0


def _mapped(base: Path) -> set[str]:
    """Return the paths of mapped files."""
    paths = {
        line.split(maxsplit=5)[5] for line in _text(base / "maps").splitlines() if " /" in line
    }
    return {path for path in paths if path.startswith("/") and not path.startswith("/memfd:")}


def _entries(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names are wanted, of thousands of folders
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
