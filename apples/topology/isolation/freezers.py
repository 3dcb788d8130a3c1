"""Stop or kill all processes of a group at one instant, which a cpuset of version 1 cannot do.

If a job forks faster than its processes can be listed, only the kernel stops it: version 2 kills a group (5.14
and later), the version 1 freezer stops one. On a host with neither, `SignalFreezer` sends signals in several
rounds, and a job that forks faster ends in quarantine. Processes are found by their group, never by a stored
number that may belong to another process by now.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from apples.io.folder import Folder
from apples.topology.cpus import CpuSet
from apples.topology.isolation.backend import missing

AT_ONCE = 200
"""Process descriptors that are open at a time."""
ROUNDS = 50


def signal_members(members: Callable[[], frozenset[int]], number: int = signal.SIGKILL) -> None:
    """Send a signal to every current member.

    Each process is opened first and must then still be a member. If its number was reused before, the new process
    is not a member; if it is reused later, the old descriptor does not reach the new process.

    Raises
    ------
    OSError
        This process is short of descriptors or memory. Transient.
    """
    listed = sorted(members() - {1, os.getpid()})
    for start in range(0, len(listed), AT_ONCE):
        opened: dict[int, int] = {}
        try:
            for process in listed[start : start + AT_ONCE]:
                try:
                    opened[process] = os.pidfd_open(process)
                except OSError as error:
                    missing(error)
            for process in members() & opened.keys():
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(opened[process], number)
        finally:
            for descriptor in opened.values():
                os.close(descriptor)


def stop_members(members: Callable[[], frozenset[int]]) -> None:
    """Send SIGSTOP to every member, and repeat until no new member appears."""
    stopped: frozenset[int] = frozenset()
    for _ in range(ROUNDS):
        running = members() - stopped
        if not running:
            return
        signal_members(members, signal.SIGSTOP)
        stopped |= running


def place_threads(process: int, cpus: CpuSet) -> None:
    """Set the mask of all threads of a process, including threads that start meanwhile.

    Raises
    ------
    OSError
        The process does not exist or belongs to another user, it may use none of the CPUs, or this process is
        short of descriptors.
    """
    placed: set[int] = set()
    for _ in range(ROUNDS):
        found = _threads(process)
        if not found:
            raise ProcessLookupError(f"no such process: {process}")
        if found <= placed:
            return
        for thread in found - placed:
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread, cpus)
            placed.add(thread)


def _threads(process: int) -> set[int]:
    try:
        return {int(path.name) for path in Path(f"/proc/{process}/task").iterdir()}
    except OSError as error:
        missing(error)
        return set()


FREEZE_SECONDS = 0.5
"""Seconds for a group to freeze before it is killed unfrozen."""


class Freezer(ABC):
    """Stops and kills the processes of a container; this base class makes no groups."""

    def make(self, name: str) -> None:  # noqa: B027 - no groups
        """Create the group of a container, if it does not exist."""

    def admit(self, name: str, process: int) -> None:  # noqa: B027 - no groups
        """Move a process into the group."""

    def processes(self, name: str) -> frozenset[int]:  # noqa: ARG002 - no groups
        """Return the processes in the group."""
        return frozenset()

    def names(self) -> frozenset[str]:
        """Return the groups that exist."""
        return frozenset()

    def remove(self, name: str) -> bool:  # noqa: ARG002 - no groups
        """Remove the group; return False while a process is in it."""
        return True

    @abstractmethod
    def freeze(self, name: str) -> None:
        """Stop the processes of the container."""

    @abstractmethod
    def thaw(self, name: str) -> None:
        """Resume the processes of the container."""

    @abstractmethod
    def kill(self, name: str, members: Callable[[], frozenset[int]]) -> None:
        """Kill the processes of the group and of `members`, once."""


class CgroupFreezer(Freezer):
    """Base class of freezers with groups in either hierarchy.

    Parameters
    ----------
    folder
        The directory of the groups.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def make(self, name: str) -> None:
        """Make the directory."""
        with contextlib.suppress(FileExistsError):
            self.folder.make(name)

    def admit(self, name: str, process: int) -> None:
        """Write into ``cgroup.procs``."""
        self.folder.write(f"{name}/cgroup.procs", str(process))

    def processes(self, name: str) -> frozenset[int]:
        """Read ``cgroup.procs``."""
        return members(self.folder, name)

    def names(self) -> frozenset[str]:
        """List the directories."""
        return frozenset(self.folder.folders())

    def remove(self, name: str) -> bool:
        """Remove the directory and all directories inside."""
        return remove_group(self.folder, name)


class CgroupV2Freezer(CgroupFreezer):
    """Groups of the version 2 hierarchy: ``cgroup.kill`` and ``cgroup.freeze``."""

    def freeze(self, name: str) -> None:
        """Freeze the group; return when all processes are frozen."""
        self.folder.write(f"{name}/cgroup.freeze", "1")
        _settle(lambda: "frozen 1" in self.folder.text(f"{name}/cgroup.events"))

    def thaw(self, name: str) -> None:
        """Thaw the group."""
        self.folder.write(f"{name}/cgroup.freeze", "0")

    def kill(self, name: str, members: Callable[[], frozenset[int]]) -> None:
        """Let the kernel kill the group, including processes being forked."""
        with contextlib.suppress(FileNotFoundError):
            self.folder.write(f"{name}/cgroup.kill", "1")
        signal_members(members)


class CgroupV1Freezer(CgroupFreezer):
    """Groups of the version 1 freezer."""

    def freeze(self, name: str) -> None:
        """Freeze the group; repeat the request while it forks; return when all processes are frozen."""

        def asked() -> bool:
            self.folder.write(f"{name}/freezer.state", "FROZEN")
            return self.folder.text(f"{name}/freezer.state") == "FROZEN"

        _settle(asked)

    def thaw(self, name: str) -> None:
        """Thaw the group."""
        self.folder.write(f"{name}/freezer.state", "THAWED")

    def kill(self, name: str, members: Callable[[], frozenset[int]]) -> None:
        """Freeze the group, signal all processes and thaw: they die before they run."""
        with contextlib.suppress(FileNotFoundError):
            self.freeze(name)
        try:
            signal_members(lambda: members() | self.processes(name))
        finally:
            with contextlib.suppress(FileNotFoundError):
                self.thaw(name)


class SignalFreezer(Freezer):
    """Signals, for hosts without groups that can be frozen.

    Parameters
    ----------
    find
        Name -> the processes of the container.
    """

    def __init__(self, find: Callable[[str], frozenset[int]]) -> None:
        self._find = find

    def freeze(self, name: str) -> None:
        """Send SIGSTOP until no new process appears."""
        stop_members(lambda: self._find(name))

    def thaw(self, name: str) -> None:
        """Send SIGCONT."""
        signal_members(lambda: self._find(name), signal.SIGCONT)

    def kill(self, name: str, members: Callable[[], frozenset[int]]) -> None:  # noqa: ARG002 - no groups
        """Send SIGKILL."""
        signal_members(members)


def members(folder: Folder, name: str) -> frozenset[int]:
    """Return the processes of a group and of the groups inside; empty if it does not exist."""
    found: set[int] = set()
    waiting = [name]
    while waiting:
        here = waiting.pop()
        try:
            found |= {int(line) for line in folder.text(f"{here}/cgroup.procs").split()}
            with folder.below(here) as group:
                waiting += [f"{here}/{inner}" for inner in group.folders()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return frozenset(found - {0})


def remove_group(folder: Folder, name: str) -> bool:
    """Remove a group and the groups inside; return False while a process is in any."""
    try:
        with folder.below(name) as group:
            emptied = [remove_group(group, inner) for inner in group.folders()]
        if not all(emptied):
            return False
        folder.drop(name)
    except FileNotFoundError:
        return True
    except OSError:  # EBUSY: a process is alive, or a zombie of version 2 is about to go
        return False
    return True


def _settle(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + FREEZE_SECONDS
    with contextlib.suppress(FileNotFoundError):
        while not done() and time.monotonic() < deadline:
            os.sched_yield()
