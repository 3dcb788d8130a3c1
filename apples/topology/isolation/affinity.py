"""Plain affinity, for hosts without control groups to write to. Its guarantee is advisory.

The processes of a container are those with its name in their environment, which children inherit. The next watch
finds a job that widens its mask and puts it back. A job that also clears its environment is not found.
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
"""The environment variable with the container of a job's processes."""


class Affinity(RememberedContainers):
    """Sets the masks of a container's processes.

    Parameters
    ----------
    proc
        Where processes are listed.
    """

    title: ClassVar[str] = "affinity"

    def __init__(self, proc: Path = Path("/proc")) -> None:
        super().__init__(CpuSet.of(os.sched_getaffinity(0)))
        self._proc = proc
        self._admitted: dict[str, set[tuple[int, str]]] = {}

    def fit(self, container: CpuContainer) -> Guarantee:
        """Set the masks of all processes that are in it."""
        self.remember(container)
        for process in self.processes(container.name):
            try:
                place_threads(process, container.cpus)
            except OSError as error:  # of another user, or gone
                missing(error)
        return Guarantee.ADVISORY

    def admit(self, name: str, process: int) -> None:
        """Set the masks of its threads."""
        container = self.known(name)
        with entering(name, process):
            place_threads(process, container.cpus)
            began = started(process, self._proc)
        self._admitted.setdefault(name, set()).add((process, began))

    def processes(self, name: str) -> frozenset[int]:
        """Search the environments, and add those that were admitted and live."""
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
        """Forget the container if no process is in it."""
        if self.processes(name):
            return False
        self.containers.pop(name, None)
        self._admitted.pop(name, None)
        return True

    def strays(self, container: CpuContainer) -> frozenset[int]:
        """Return processes whose mask is wider than the container."""
        wide = set()
        for process in self.processes(container.name):
            with contextlib.suppress(OSError):
                if not CpuSet.of(os.sched_getaffinity(process)) <= container.cpus:
                    wide.add(process)
        return frozenset(wide)


def started(process: int, proc: Path = Path("/proc")) -> str:
    """Return when a process began, in the kernel's ticks since the boot; empty if it is gone or a zombie.

    Together with its number this names a process for as long as the machine is up.

    Raises
    ------
    OSError
        This process is short of descriptors or memory, so the other one may still run. Transient.
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
