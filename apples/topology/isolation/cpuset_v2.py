"""Cpusets of the kernel's version 2 interface, below a group that was delegated to us.

The rule that a group with processes has no controllers for its children means: this process goes into a
leaf of its own first, and jobs into leaves beside it. The group's own ``cpuset.cpus`` is never written:
systemd resets it whenever it reloads. Not run on the machine it was written on, which has the version 1
interface: tested against a directory that behaves as the kernel's documents say.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import ClassVar

from apples.storage.folder import Folder
from apples.topology.cpus import CpuSet
from apples.topology.fence import NAME, FenceError, Guarantee, Pen
from apples.topology.isolation.brakes import UnifiedBrake
from apples.topology.isolation.cpusets import Cpusets, partial_sets, refusal

LEAF = "topologyd"


class CpusetV2(Cpusets):
    """Pens are groups beside the leaf that this process is in.

    Parameters
    ----------
    point, own, inside, mine
        As of `Cpusets`; `own` was delegated to us.

    Raises
    ------
    FenceError
        The group was not delegated, or the tree has no cpuset controller.
    """

    title: ClassVar[str] = "cpuset-v2"

    def __init__(
        self,
        point: Folder,
        own: Folder,
        inside: tuple[str, ...] = (),
        mine: CpuSet | None = None,
    ) -> None:
        super().__init__(point, own, inside, UnifiedBrake(own), mine)
        try:
            self._prepare()
        except OSError as error:
            raise FenceError(f"{own.name} is not delegated to us: {error}") from error

    def _prepare(self) -> None:
        """Have the cpuset controller in the groups that will be made."""
        if "cpuset" in self.own.text("cgroup.subtree_control").split():
            return
        if "cpuset" not in self.own.text("cgroup.controllers").split():
            raise FenceError(f"{self.own.name} has no cpuset controller")
        if self._inside:  # the top alone may have processes and controllers for its children
            with contextlib.suppress(FileExistsError):
                self.own.make(LEAF)
            for process in self.own.text("cgroup.procs").split():
                self.own.write(f"{LEAF}/cgroup.procs", process)
        self.own.write("cgroup.subtree_control", "+cpuset")

    def universe(self) -> tuple[CpuSet, CpuSet]:
        """Return what our own group has in effect; CPUs that we may not use ourselves are left out."""
        cpus = CpuSet.parse(self.own.text("cpuset.cpus.effective")) & self._mine
        return cpus, CpuSet.parse(self.own.text("cpuset.mems.effective"))

    def sets(self) -> Mapping[str, CpuSet]:
        """Return every set that is a real part of the machine and not above us."""
        return partial_sets(self.point, self._inside, "cpuset.cpus.effective")

    def names(self) -> frozenset[str]:
        """List the groups."""
        return frozenset(name for name in self.own.folders() if NAME.fullmatch(name))

    def fit(self, pen: Pen) -> Guarantee:
        """Write memory nodes and CPUs; an exclusive pen is made a partition where the kernel lets us."""
        try:
            self.brake.make(pen.name)
            self._write(pen.name, "cpuset.mems", str(pen.mems))
            self._write(pen.name, "cpuset.cpus", str(pen.cpus))
            isolated = self._partition(pen)
            inside = CpuSet.parse(self.own.text(f"{pen.name}/cpuset.cpus.effective"))
        except OSError as error:
            raise refusal(pen, error) from error
        if inside != pen.cpus:
            raise FenceError(f"{pen.name}: asked for CPUs {pen.cpus}, the kernel gives {inside}")
        if not pen.exclusive:
            return Guarantee.CONTAINED
        return Guarantee.ISOLATED if isolated else Guarantee.EXCLUSIVE

    def _partition(self, pen: Pen) -> bool:
        """Make a partition of an exclusive pen, an ordinary group of another; whether it is one now."""
        try:
            state = self.own.text(f"{pen.name}/cpuset.cpus.partition")
        except FileNotFoundError:  # before 5.x there are none
            return False
        if not pen.exclusive:
            if state != "member":
                self._write(pen.name, "cpuset.cpus.partition", "member")
            return False
        with contextlib.suppress(OSError):
            self._write(pen.name, "cpuset.cpus.exclusive", str(pen.cpus))
        with contextlib.suppress(OSError):
            self._write(pen.name, "cpuset.cpus.partition", "root")
        if self.own.text(f"{pen.name}/cpuset.cpus.partition") == "root":
            return True
        self._write(pen.name, "cpuset.cpus.partition", "member")  # "root invalid (...)"
        return False

    def processes(self, name: str) -> frozenset[int]:
        """Read ``cgroup.procs``."""
        return self.brake.processes(name)

    def remove(self, name: str) -> bool:
        """Remove the group and those inside."""
        return self.brake.remove(name)
