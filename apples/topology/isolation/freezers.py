"""Stopping or killing all processes of a group at one instant, which a cpuset of version 1 cannot.

A job that forks faster than one can read the list of its processes is caught by the kernel only: the
version 2 tree kills a group (5.14 and later), the version 1 freezer stops one. Where a host has neither,
`SignalFreezer` sends signals round after round, and a job that outruns it ends in quarantine. Processes are
signalled and placed by the group they are in, never by a number that may be another process's by now.
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
"""Descriptors of processes that are open at a time."""
ROUNDS = 50


def signal_members(members: Callable[[], frozenset[int]], number: int = signal.SIGKILL) -> None:
    """Send a signal to every member there is now.

    Each is opened first and must be a member still: a number that was freed and given to another process in
    between is no member, and one that is freed later cannot be reached through the old descriptor.

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
    """Send SIGSTOP to every member, and again until no new one appears."""
    stopped: frozenset[int] = frozenset()
    for _ in range(ROUNDS):
        running = members() - stopped
        if not running:
            return
        signal_members(members, signal.SIGSTOP)
        stopped |= running


def place_threads(process: int, cpus: CpuSet) -> None:
    """Set the mask of all threads of a process, also of those that appear meanwhile.

    Raises
    ------
    OSError
        There is no such process, it is another user's, none of the CPUs is open to it, or this process is short
        of descriptors.
    """
    placed: set[int] = set()
    for _ in range(ROUNDS):
        found = _threads(process)
        if not found:
            raise ProcessLookupError(f"there is no process {process}")
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
"""How long a group may take to come to rest before it is killed as it is."""


class Freezer(ABC):
    """Stops and kills the processes of a container; by default without groups of its own."""

    def make(self, name: str) -> None:  # noqa: B027 - no groups
        """Make the group of a container; nothing happens where it exists."""

    def admit(self, name: str, process: int) -> None:  # noqa: B027 - no groups
        """Move a process into the group."""

    def processes(self, name: str) -> frozenset[int]:  # noqa: ARG002 - no groups
        """Return the processes in the group."""
        return frozenset()

    def names(self) -> frozenset[str]:
        """Return the groups that exist."""
        return frozenset()

    def remove(self, name: str) -> bool:  # noqa: ARG002 - no groups
        """Remove the group; False while a process is in it."""
        return True

    @abstractmethod
    def freeze(self, name: str) -> None:
        """Stop the processes of the container."""

    @abstractmethod
    def thaw(self, name: str) -> None:
        """Let them run again."""

    @abstractmethod
    def kill(self, name: str, members: Callable[[], frozenset[int]]) -> None:
        """Kill the processes of the group and of `members`, once."""


class CgroupFreezer(Freezer):
    """Base class: a freezer by groups of either tree.

    Parameters
    ----------
    folder
        The directory in which groups are made.
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
        """Remove the directory and those inside."""
        return remove_group(self.folder, name)


class CgroupV2Freezer(CgroupFreezer):
    """Groups of the version 2 tree: ``cgroup.kill`` and ``cgroup.freeze``."""

    def freeze(self, name: str) -> None:
        """Freeze, and return when all are."""
        self.folder.write(f"{name}/cgroup.freeze", "1")
        _settle(lambda: "frozen 1" in self.folder.text(f"{name}/cgroup.events"))

    def thaw(self, name: str) -> None:
        """Thaw."""
        self.folder.write(f"{name}/cgroup.freeze", "0")

    def kill(self, name: str, members: Callable[[], frozenset[int]]) -> None:
        """Let the kernel kill the group, forks in flight included."""
        with contextlib.suppress(FileNotFoundError):
            self.folder.write(f"{name}/cgroup.kill", "1")
        signal_members(members)


class CgroupV1Freezer(CgroupFreezer):
    """Groups of the version 1 freezer."""

    def freeze(self, name: str) -> None:
        """Freeze, and return when all are; a group that keeps forking is asked again."""

        def asked() -> bool:
            self.folder.write(f"{name}/freezer.state", "FROZEN")
            return self.folder.text(f"{name}/freezer.state") == "FROZEN"

        _settle(asked)

    def thaw(self, name: str) -> None:
        """Thaw."""
        self.folder.write(f"{name}/freezer.state", "THAWED")

    def kill(self, name: str, members: Callable[[], frozenset[int]]) -> None:
        """Freeze, signal all, thaw: they die before they run."""
        with contextlib.suppress(FileNotFoundError):
            self.freeze(name)
        try:
            signal_members(lambda: members() | self.processes(name))
        finally:
            with contextlib.suppress(FileNotFoundError):
                self.thaw(name)


class SignalFreezer(Freezer):
    """Signals, where a host has no groups that can be stopped.

    Parameters
    ----------
    find
        Name -> the processes that belong to it.
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
    """Return the processes of a group and of the groups inside; empty where there is none."""
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
    """Remove a group and the groups inside; False while a process is in one of them."""
    try:
        with folder.below(name) as group:
            emptied = [remove_group(group, inner) for inner in group.folders()]
        if not all(emptied):
            return False
        folder.drop(name)
    except FileNotFoundError:
        return True
    except OSError:  # EBUSY: a survivor, or a zombie of the version 2 tree about to go
        return False
    return True


def _settle(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + FREEZE_SECONDS
    with contextlib.suppress(FileNotFoundError):
        while not done() and time.monotonic() < deadline:
            os.sched_yield()
