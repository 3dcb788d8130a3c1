"""Determine how a rank ended, from mpiexec's exit codes and the kernel's counters of out-of-memory kills.

Standard library only: supervisors load this module, on this machine and on other hosts.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable

from apples.launch.job_processes import read, zombie_status

THIS_MACHINE = "127.0.0.1"
"""Address of mpiexec's only proxy if all ranks run on its own machine."""
EXIT_CODES = re.compile(
    r"(?:\[mpiexec@[^\]]*\] Exit codes: )?\[([^\]]+)\] (-?[0-9]{1,5}(?:,-?[0-9]{1,5})*)"
)
"""A line of ``mpiexec -print-all-exitcodes``: a proxy's address, and the wait status of each of its ranks."""


class ExitCodes:
    """The end of each rank, from the lines that ``mpiexec -print-all-exitcodes`` prints when it ends.

    mpiexec prints a line for each proxy in the order of the machine file, except for lost proxies.

    Parameters
    ----------
    machines
        Address and number of ranks of each proxy, in rank order.

    Attributes
    ----------
    ends
        Rank -> its end in words; ranks without a status in mpiexec are left out.

    Examples
    --------
    >>> codes = ExitCodes([("10.0.0.1", 2), ("10.0.0.2", 1), ("10.0.0.3", 1)])
    >>> codes.take("[mpiexec@head] Exit codes: [10.0.0.1] 256,15"), codes.take("[10.0.0.3] 9")
    (True, True)
    >>> codes.ends
    {0: 'exit code 1', 1: 'killed by SIGTERM', 3: 'killed by SIGKILL'}
    >>> codes.take("[10.0.0.9] 9"), codes.take("computing")
    (False, False)
    """

    def __init__(self, machines: Iterable[tuple[str, int]]) -> None:
        self.ends: dict[int, str] = {}
        self._first: list[tuple[str, int]] = []
        ranks = 0
        for address, number in machines:
            self._first.append((address, ranks))
            ranks += number
        self._printed = 0

    def take(self, line: str) -> bool:
        """Parse a line of mpiexec; return whether it has exit codes."""
        match = EXIT_CODES.fullmatch(line)
        left = self._first[self._printed :]
        place = next(
            (i for i, (address, _) in enumerate(left) if match and address == match[1]), None
        )
        if match is None or place is None:
            return False
        statuses = [int(word) for word in match[2].split(",")]
        if any(status >= 0 and not is_end(status) for status in statuses):
            return False
        self._printed += place + 1
        for rank, status in enumerate(statuses, left[place][1]):
            if status >= 0:
                self.ends[rank] = how_it_ended(status)
        return True


def is_end(status: int) -> bool:
    """Whether a number is the wait status of a process that ended.

    Examples
    --------
    >>> is_end(9), is_end(5 << 8), is_end(0x7F), is_end(1 << 16)
    (True, True, False, False)
    """
    return status < 1 << 16 and (os.WIFEXITED(status) or os.WIFSIGNALED(status))


def how_unreaped(pid: int) -> str:
    """Return how a process ended if its parent has not reaped it yet; otherwise empty.

    A proxy of hydra may fail when a rank ends, before it reports the rank's status. For example, it stops at a
    broken pipe while it answers a killed rank, and mpiexec then prints no exit codes.
    """
    # A kernel that denies access shows 0. Therefore exit code 0 is taken from mpiexec only.
    return how_it_ended(status) if (status := zombie_status(pid)) else ""


def with_memory(how: str, memory: str) -> str:
    """Return the end of a rank: `memory` if `how` is unknown or a SIGKILL, else `how`.

    Parameters
    ----------
    memory
        Result of `OutOfMemoryKills.how_it_ended`, or a supervisor's report that may contain it; empty: unknown.
        The counters include other processes of the machine, so they never replace a known end other than SIGKILL.

    Examples
    --------
    >>> memory = "killed by SIGKILL; the memory limit of its group was hit (oom_kill 1)"
    >>> with_memory("exit code 3", memory), with_memory("killed by SIGSEGV", "")
    ('exit code 3', 'killed by SIGSEGV')
    >>> with_memory("killed by SIGKILL", memory) == with_memory("", memory) == memory
    True
    """
    return memory or how if how in ("", "killed by SIGKILL") else how


def how_it_ended(status: int) -> str:
    """Return the end of a process in words, from its wait status.

    Examples
    --------
    >>> how_it_ended(9), how_it_ended(5 << 8)
    ('killed by SIGKILL', 'exit code 5')
    """
    code = os.waitstatus_to_exitcode(status)
    return f"killed by {signal_name(-code)}" if code < 0 else f"exit code {code}"


def signal_name(number: int) -> str:
    """Return the name of a signal; ``signal NUMBER`` if it has no name.

    Examples
    --------
    >>> signal_name(11), signal_name(40)
    ('SIGSEGV', 'signal 40')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class OutOfMemoryKills:
    """Counts out-of-memory kills by the kernel from now on, in the cgroup of a process and on the machine."""

    def __init__(self, pid: int) -> None:
        self._file = memory_account(
            read(f"/proc/{pid}/cgroup").decode(errors="replace"),
            read("/proc/self/mountinfo").decode(errors="replace"),
        )
        self._before = self._count()

    def _count(self) -> tuple[int, int]:
        return oom_kills(read(self._file)), oom_kills(read("/proc/vmstat"))

    def how_it_ended(self) -> str:
        """Return words for an out-of-memory kill since this object was created; empty if the kernel made none."""
        group, machine = (
            now - before for now, before in zip(self._count(), self._before, strict=True)
        )
        if group > 0:
            return f"killed by SIGKILL; the memory limit of its group was hit (oom_kill {group})"
        if machine > 0:
            return (
                "killed by SIGKILL; the kernel ended processes for lack of memory "
                f"(oom_kill {machine} on this machine)"
            )
        return ""


def oom_kills(account: bytes) -> int:
    r"""Return the value of ``oom_kill`` in the text of a kernel file; 0 without such a line.

    Examples
    --------
    >>> oom_kills(b"low 0\noom 2\noom_kill 1\noom_group_kill 0\n"), oom_kills(b"")
    (1, 0)
    """
    for line in account.splitlines():
        name, _, number = line.partition(b" ")
        if name == b"oom_kill" and number.isdigit():
            return int(number)
    return 0


def memory_account(groups: str, mounts: str) -> str:
    r"""Return the path of the file that counts out-of-memory kills in a process's cgroup; empty if unknown.

    Parameters
    ----------
    groups, mounts
        Text of the process's ``/proc/PID/cgroup`` and of ``/proc/self/mountinfo``.

    Examples
    --------
    >>> mount = "30 25 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw"
    >>> memory_account("0::/user.slice/app", mount)
    '/sys/fs/cgroup/user.slice/app/memory.events'
    >>> mount = "33 28 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"
    >>> memory_account("4:memory:/lab/ada\n0::/", mount)
    '/sys/fs/cgroup/memory/lab/ada/memory.oom_control'
    """
    paths = {}
    for line in groups.splitlines():
        number, names, path = [*line.split(":", 2), "", ""][:3]
        if "memory" in names.split(","):
            paths["cgroup"] = path
        elif number == "0":
            paths["cgroup2"] = path
    files = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(), [*after.split(" ", 2), "", "", ""][:3]
        if len(fields) < 5 or (kind == "cgroup" and "memory" not in options.split(",")):
            continue
        if kind in paths:
            root, path = fields[3].rstrip("/"), paths[kind]
            inside = path.removeprefix(root)
            name = "memory.oom_control" if kind == "cgroup" else "memory.events"
            files[kind] = "/".join((fields[4].rstrip("/"), inside.strip("/"), name)).replace(
                "//", "/"
            )
    return files.get("cgroup", files.get("cgroup2", ""))
