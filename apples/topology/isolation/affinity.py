"""Plain affinity, for hosts without writable control groups. Its guarantee is advisory.

The processes of a container have its name in their environment, which children inherit. If a job widens its mask,
the next watch resets the mask. A job that also clears its environment is not detected.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import ClassVar

from apples.topology.cpus import CpuSet
from apples.topology.isolation.backend import (
    CpuContainer,
    Guarantee,
    RememberedContainers,
    entering,
    missing,
)
from apples.topology.isolation.freezers import place_threads, signal_members, stop_members

MARK = "APPLES_TOPOLOGY_PEN"
"""The environment variable with the name of a process's container."""


class Affinity(RememberedContainers):
    """Sets the masks of a container's processes.

    Parameters
    ----------
    proc
        Directory of the process files.
    """

    title: ClassVar[str] = "affinity"

    def __init__(self, proc: Path = Path("/proc")) -> None:
        super().__init__(CpuSet.of(os.sched_getaffinity(0)))
        self._proc = proc
        self._admitted: dict[str, set[tuple[int, str]]] = {}

    def fit(self, container: CpuContainer) -> Guarantee:
        """Set the masks of all processes in the container."""
        self.remember(container)
        for process in self.processes(container.name):
            try:
                place_threads(process, container.cpus)
            except OSError as error:  # of another user, or gone
                missing(error)
        return Guarantee.ADVISORY

    def admit(self, name: str, process: int) -> None:
        """Set the masks of the process's threads."""
        container = self.known(name)
        with entering(name, process):
            place_threads(process, container.cpus)
            began = started(process, self._proc)
        self._admitted.setdefault(name, set()).add((process, began))

    def processes(self, name: str) -> frozenset[int]:
        """Return the processes with the container's name in their environment, and live admitted processes."""
        mark = f"{MARK}={name}".encode()
        found = {
            int(entry.name)
            for entry in self._proc.iterdir()
            if entry.name.isdigit() and _bears(entry, mark)
        }
        known = self._admitted.get(name, set())
        return frozenset(
            found | {p for p, start in known if start and started(p, self._proc) == start}
        )

    def freeze(self, name: str) -> None:
        """Send SIGSTOP until no new process appears."""
        stop_members(lambda: self.processes(name))

    def thaw(self, name: str) -> None:
        """Send SIGCONT."""
        signal_members(lambda: self.processes(name), signal.SIGCONT)

    def kill(self, name: str) -> None:
        """Send SIGKILL."""
        signal_members(lambda: self.processes(name))

    def remove(self, name: str) -> bool:
        """Forget the container if it has no process."""
        if self.processes(name):
            return False
        self.containers.pop(name, None)
        self._admitted.pop(name, None)
        return True

    def strays(self, container: CpuContainer) -> frozenset[int]:
        """Return the processes with masks wider than the container."""
        wide = set()
        for process in self.processes(container.name):
            with contextlib.suppress(OSError):
                if not CpuSet.of(os.sched_getaffinity(process)) <= container.cpus:
                    wide.add(process)
        return frozenset(wide)


def started(process: int, proc: Path = Path("/proc")) -> str:
    """Return the start time of a process, in kernel ticks since boot; empty if it is gone or a zombie.

    The process number and this time identify a process until the machine reboots.

    Raises
    ------
    OSError
        This process is short of descriptors or memory, so the other process may still run. Transient.
    """
    try:
        text = (proc / str(process) / "stat").read_text()
    except OSError as error:
        missing(error)
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


def _bears(process: Path, mark: bytes) -> bool:
    try:
        return mark in (process / "environ").read_bytes().split(b"\0")
    except OSError as error:  # of another user, or gone
        missing(error)
        return False
