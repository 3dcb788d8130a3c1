"""Plain affinity: where there are no control groups to write to. It is no containment, and says so.

The processes of a container are those that bear its name in their environment, which children inherit; a job
that widens its mask is seen by the next watch and put back, and one that also clears its environment is
lost from sight.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from apples.topology.cpus import CpuSet
from apples.topology.isolation.backend import (
    CpuContainer,
    Guarantee,
    IsolationBackend,
    IsolationError,
)
from apples.topology.isolation.freezers import SignalFreezer, place_threads

MARK = "APPLES_TOPOLOGY_PEN"
"""The variable that a job's processes bear."""


class Affinity(IsolationBackend):
    """Containers are kept in memory only; a daemon that restarts makes them anew.

    Parameters
    ----------
    proc
        Where processes are listed.
    """

    title: ClassVar[str] = "affinity"

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._containers: dict[str, CpuContainer] = {}
        self._admitted: dict[str, set[tuple[int, str]]] = {}
        self.freezer = SignalFreezer(self.processes)
        self._mine = CpuSet.of(os.sched_getaffinity(0))

    def universe(self) -> tuple[CpuSet, CpuSet]:
        """Return our own mask, and node 0: memory cannot be bound from outside."""
        return self._mine, CpuSet.of([0])

    def sets(self) -> Mapping[str, CpuSet]:
        """Return nothing: what is not open to us is in no set that we could see."""
        return {}

    def names(self) -> frozenset[str]:
        """Return the containers in memory."""
        return frozenset(self._containers)

    def fit(self, container: CpuContainer) -> Guarantee:
        """Set the masks of all processes that are in it."""
        if not container.cpus <= self._mine:
            raise IsolationError(
                f"{container.name}: not all of its CPUs are open to this process",
                code="cpus-not-ours",
                container=container.name,
                cpus=str(container.cpus),
                known=str(self._mine),
            )
        self._containers[container.name] = container
        for process in self.processes(container.name):
            with contextlib.suppress(OSError):
                place_threads(process, container.cpus)
        return Guarantee.ADVISORY

    def cpus(self, name: str) -> CpuSet:
        """Return what was last fitted."""
        return self._containers[name].cpus if name in self._containers else CpuSet()

    def admit(self, name: str, process: int) -> None:
        """Set the masks of its threads."""
        if name not in self._containers:
            raise IsolationError(
                f"there is no container {name}", code="container-unknown", container=name
            )
        try:
            place_threads(process, self._containers[name].cpus)
        except OSError as error:
            raise IsolationError(
                f"process {process} cannot be placed: {error}",
                code="process-not-placed",
                container=name,
                value=process,
            ) from error
        self._admitted.setdefault(name, set()).add((process, started(process, self._proc)))

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
        """Send SIGSTOP."""
        self.freezer.freeze(name)

    def thaw(self, name: str) -> None:
        """Send SIGCONT."""
        self.freezer.thaw(name)

    def kill(self, name: str) -> None:
        """Send SIGKILL."""
        self.freezer.kill(name, lambda: self.processes(name))

    def remove(self, name: str) -> bool:
        """Forget the container if no process is in it."""
        if self.processes(name):
            return False
        self._containers.pop(name, None)
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
    """
    try:
        text = (proc / str(process) / "stat").read_text()
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


def _bears(process: Path, mark: bytes) -> bool:
    try:
        return mark in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
