"""Cpusets of the kernel's version 1 interface: the nearest to those of IRIX.

What the kernel does (Linux 6.18): both ``cpuset.mems`` and ``cpuset.cpus`` must be set before a process can
enter; a child set lies inside its parent; ``cpu_exclusive`` forbids overlapping sets beside it and keeps
nobody off the CPUs; a set with a survivor cannot be removed; a process that enters keeps the narrower mask
of its own that it came with, and from 6.2 on that mask is remembered through later changes of the set. So
whoever enters gets a mask of all CPUs, which the set then narrows and widens.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import ClassVar

from apples.storage.folder import Folder
from apples.topology.cpus import CpuSet
from apples.topology.fence import NAME, Guarantee, Pen
from apples.topology.isolation.brakes import Brake, SignalBrake, members, remove_group
from apples.topology.isolation.cpusets import Cpusets, partial_sets, refusal


class CpusetV1(Cpusets):
    """Pens are cpusets beside each other in the group that this process is in.

    Parameters
    ----------
    point, own, inside, mine
        As of `Cpusets`.
    brake
        What stops and kills; signals where None.
    """

    title: ClassVar[str] = "cpuset-v1"

    def __init__(
        self,
        point: Folder,
        own: Folder,
        inside: tuple[str, ...] = (),
        brake: Brake | None = None,
        mine: CpuSet | None = None,
    ) -> None:
        brake = brake or SignalBrake(lambda name: members(own, name))
        super().__init__(point, own, inside, brake, mine)

    def universe(self) -> tuple[CpuSet, CpuSet]:
        """Return what our own group has in effect; CPUs that we may not use ourselves are left out."""
        cpus = CpuSet.parse(self.own.text("cpuset.effective_cpus")) & self._mine
        return cpus, CpuSet.parse(self.own.text("cpuset.effective_mems"))

    def sets(self) -> Mapping[str, CpuSet]:
        """Return every set that is a real part of the machine and not above us."""
        return partial_sets(self.point, self._inside)

    def names(self) -> frozenset[str]:
        """List the groups, and those of the brake that lost theirs."""
        found = {*self.own.folders(), *self.brake.names()}
        return frozenset(name for name in found if NAME.fullmatch(name))

    def fit(self, pen: Pen) -> Guarantee:
        """Write memory nodes, CPUs and the flag."""
        try:
            self.brake.make(pen.name)
            with contextlib.suppress(FileExistsError):
                self.own.make(pen.name)
            self._write(pen.name, "cpuset.mems", str(pen.mems))
            self._write(pen.name, "cpuset.cpus", str(pen.cpus))
            self._write(pen.name, "cpuset.memory_migrate", "1")
            if not pen.exclusive:
                self._write(pen.name, "cpuset.cpu_exclusive", "0")
        except OSError as error:
            raise refusal(pen, error) from error
        if pen.exclusive:
            # A foreign set over everything (a container's parent) forbids the flag. What it adds is that
            # no other set may overlap; other managed jobs are kept off by the daemon either way.
            with contextlib.suppress(OSError):
                self._write(pen.name, "cpuset.cpu_exclusive", "1")
            return Guarantee.EXCLUSIVE
        return Guarantee.CONTAINED

    def _enter(self, name: str, process: int) -> None:
        super()._enter(name, process)
        self._write(name, "cgroup.procs", str(process))

    def processes(self, name: str) -> frozenset[int]:
        """Return who is in the group or in the brake's."""
        return members(self.own, name) | self.brake.processes(name)

    def remove(self, name: str) -> bool:
        """Remove both groups."""
        return remove_group(self.own, name) and self.brake.remove(name)
