"""Cpusets by both versions of the kernel's interface: a container is a control group with ``cpuset.cpus``.

Version 1 (nearest to the cpusets of IRIX). The kernel (Linux 6.18) has these rules: both ``cpuset.mems`` and
``cpuset.cpus`` must be set before a process can enter; a child set lies inside its parent;
``cpu_exclusive`` forbids overlapping sibling sets but does not keep processes off the CPUs; a set with a
process cannot be removed; a process that enters keeps its own mask if that is narrower, and from 6.2 on the
kernel applies that mask again after later changes of the set. So an entering process gets a mask of all CPUs,
which the set then narrows.

Version 2, below a group that was delegated to us. A group with processes has no controllers for its
children, so this process first moves into its own leaf, and jobs get leaves beside it. The group's own
``cpuset.cpus`` is never written, because systemd resets it whenever it reloads. The tests use version 2 in a
directory that behaves as the kernel's documentation specifies; ``make vm`` uses a real kernel.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Mapping
from typing import ClassVar

from apples.io.folder import Folder
from apples.topology.cpus import CpuSet
from apples.topology.isolation.backend import (
    NAME,
    CpuContainer,
    Guarantee,
    IsolationBackend,
    IsolationError,
    entering,
    missing,
)
from apples.topology.isolation.freezers import (
    CgroupV2Freezer,
    Freezer,
    SignalFreezer,
    members,
    place_threads,
    remove_group,
)

MAX_GROUPS = 20_000
EVERY = CpuSet.of(range(1024))
"""A mask of all CPUs of machines with up to 1,024 CPUs; the set's own numbers are added."""


class Cpusets(IsolationBackend):
    """Containers are sibling groups; a freezer stops and kills their processes.

    Parameters
    ----------
    point, own
        The top of the mounted tree, and the group in which containers are made.
    inside
        Names of the groups from the top to `own`.
    freezer
        Stops and kills processes.
    mine
        CPUs that this process may use; None: its mask.
    """

    def __init__(
        self,
        point: Folder,
        own: Folder,
        inside: tuple[str, ...],
        freezer: Freezer,
        mine: CpuSet | None,
    ) -> None:
        self.point = point
        self.own = own
        self._inside = inside
        self.freezer = freezer
        self._mine = CpuSet.of(os.sched_getaffinity(0)) if mine is None else mine

    def cpus(self, name: str) -> CpuSet:
        """Read ``cpuset.cpus``."""
        try:
            return CpuSet.parse(self.own.text(f"{name}/cpuset.cpus"))
        except FileNotFoundError:
            return CpuSet()

    def admit(self, name: str, process: int) -> None:
        """Write into ``cgroup.procs``, which moves all threads, then widen their masks."""
        with entering(name, process):
            self._enter(name, process)
            place_threads(process, EVERY | self.cpus(name))

    def freeze(self, name: str) -> None:
        """Apply the freezer."""
        self._applied(self.freezer.freeze, name)

    def thaw(self, name: str) -> None:
        """Release the freezer."""
        self._applied(self.freezer.thaw, name)

    def kill(self, name: str) -> None:
        """Kill by the freezer."""
        self.freezer.kill(name, lambda: self.processes(name))

    def _enter(self, name: str, process: int) -> None:
        self.freezer.admit(name, process)

    def _write(self, name: str, file: str, text: str) -> None:
        self.own.write(f"{name}/{file}", text)

    def _applied(self, act: Callable[[str], None], name: str) -> None:
        try:
            act(name)
        except OSError as error:
            raise IsolationError(
                f"{name}: {error}",
                code="isolation-refused",
                container=name,
                reason=errno.errorcode.get(error.errno or 0),
            ) from error


def refusal(container: CpuContainer, error: OSError) -> IsolationError:
    """Return an error with the kernel's reason for refusing a container."""
    why = {
        errno.EACCES: "outside the set above it, or no right to",
        errno.EINVAL: "overlaps an exclusive set, or no such memory node",
        errno.ERANGE: "no such CPU on this machine",
        errno.ENOSPC: "would be left without CPU or memory node",
        errno.EBUSY: "in use by a child set",
    }.get(error.errno or 0, error.strerror or str(error))
    return IsolationError(
        f"{container.name}: CPUs {container.cpus} on memory nodes {container.mems}: {why}",
        code="isolation-refused",
        container=container.name,
        cpus=str(container.cpus),
        mems=str(container.mems),
        reason=errno.errorcode.get(error.errno or 0),
    )


def partial_sets(
    point: Folder, inside: tuple[str, ...], whole: str = "cpuset.cpus"
) -> dict[str, CpuSet]:
    """Return name -> CPUs of every set that is a proper part of the machine and no ancestor of this process's.

    A set of all CPUs reserves nothing, for example the parent of containers; the sets inside it are examined.
    `whole` is the file with the CPUs of the top.
    """
    every = CpuSet.parse(point.text(whole))
    above = {inside[: n + 1] for n in range(len(inside))}
    found: dict[str, CpuSet] = {}
    waiting: list[tuple[str, ...]] = [()]
    seen = 0
    while waiting and seen < MAX_GROUPS:
        here = waiting.pop()
        seen += 1
        for name in _children(point, here):
            path = (*here, name)
            held = _held(point, path)
            if path not in above and held and held <= every != held:
                found["/".join(path)] = held
            else:
                waiting.append(path)
    return found


def _held(point: Folder, path: tuple[str, ...]) -> CpuSet:
    try:
        return CpuSet.parse(point.text("/".join((*path, "cpuset.cpus"))))
    except OSError as error:  # it was removed meanwhile, or has no such file
        missing(error)
        return CpuSet()


def _children(point: Folder, here: tuple[str, ...]) -> list[str]:
    if not here:
        return point.folders()
    try:
        with point.below("/".join(here)) as group:
            return group.folders()
    except OSError as error:  # likewise
        missing(error)
        return []


class CpusetV1(Cpusets):
    """Containers are sibling cpusets in the group of this process.

    Parameters
    ----------
    point, own, inside, mine
        As of `Cpusets`.
    freezer
        Stops and kills processes; None: signals do.
    """

    title: ClassVar[str] = "cpuset-v1"

    def __init__(
        self,
        point: Folder,
        own: Folder,
        inside: tuple[str, ...] = (),
        freezer: Freezer | None = None,
        mine: CpuSet | None = None,
    ) -> None:
        freezer = freezer or SignalFreezer(lambda name: members(own, name))
        super().__init__(point, own, inside, freezer, mine)

    def universe(self) -> tuple[CpuSet, CpuSet]:
        """Return the effective CPUs and memory nodes of our group, without CPUs that this process may not use."""
        cpus = CpuSet.parse(self.own.text("cpuset.effective_cpus")) & self._mine
        return cpus, CpuSet.parse(self.own.text("cpuset.effective_mems"))

    def sets(self) -> Mapping[str, CpuSet]:
        """Return every set that is a proper part of the machine and not an ancestor of this process's."""
        return partial_sets(self.point, self._inside)

    def names(self) -> frozenset[str]:
        """Return the names of the containers: groups with a cpuset, and groups that only the freezer has."""
        found = {*self.own.folders(), *self.freezer.names()}
        return frozenset(name for name in found if NAME.fullmatch(name))

    def fit(self, container: CpuContainer) -> Guarantee:
        """Write memory nodes, CPUs and the flag."""
        try:
            self.freezer.make(container.name)
            with contextlib.suppress(FileExistsError):
                self.own.make(container.name)
            self._write(container.name, "cpuset.mems", str(container.mems))
            self._write(container.name, "cpuset.cpus", str(container.cpus))
            self._write(container.name, "cpuset.memory_migrate", "1")
            if not container.exclusive:
                self._write(container.name, "cpuset.cpu_exclusive", "0")
        except OSError as error:
            raise refusal(container, error) from error
        if container.exclusive:
            # A foreign set of all CPUs (a container's parent) forbids the flag. The flag only forbids
            # overlapping sets; the daemon keeps other managed jobs off in either case.
            with contextlib.suppress(OSError):
                self._write(container.name, "cpuset.cpu_exclusive", "1")
            return Guarantee.EXCLUSIVE
        return Guarantee.CONTAINED

    def _enter(self, name: str, process: int) -> None:
        super()._enter(name, process)
        self._write(name, "cgroup.procs", str(process))

    def processes(self, name: str) -> frozenset[int]:
        """Return the processes in the group or in the freezer's group."""
        return members(self.own, name) | self.freezer.processes(name)

    def remove(self, name: str) -> bool:
        """Remove both groups."""
        return remove_group(self.own, name) and self.freezer.remove(name)


LEAF = "topologyd"


class CpusetV2(Cpusets):
    """Containers are groups beside the leaf of this process.

    Parameters
    ----------
    point, own, inside, mine
        As of `Cpusets`; `own` was delegated to us.

    Raises
    ------
    IsolationError
        The group was not delegated, or the hierarchy has no cpuset controller.
    """

    title: ClassVar[str] = "cpuset-v2"

    def __init__(
        self,
        point: Folder,
        own: Folder,
        inside: tuple[str, ...] = (),
        mine: CpuSet | None = None,
    ) -> None:
        super().__init__(point, own, inside, CgroupV2Freezer(own), mine)
        try:
            self._prepare()
        except OSError as error:
            raise IsolationError(
                f"{own.name}: the group is not delegated to this user: {error}",
                code="cgroup-not-delegated",
                file=own.name,
            ) from error

    def _prepare(self) -> None:
        """Enable the cpuset controller for the groups of containers."""
        if "cpuset" in self.own.text("cgroup.subtree_control").split():
            return
        if "cpuset" not in self.own.text("cgroup.controllers").split():
            raise IsolationError(
                f"{self.own.name} has no cpuset controller",
                code="cgroup-controller-missing",
                file=self.own.name,
                controller="cpuset",
            )
        # systemd before version 254 puts a restarted daemon into the unit's own group, which accepts
        # no process while its children have controllers (status 219/CGROUP).
        if self._inside:  # only the top may have both processes and controllers for its children
            with contextlib.suppress(FileExistsError):
                self.own.make(LEAF)
            for process in self.own.text("cgroup.procs").split():
                self.own.write(f"{LEAF}/cgroup.procs", process)
        self.own.write("cgroup.subtree_control", "+cpuset")

    def universe(self) -> tuple[CpuSet, CpuSet]:
        """Return the effective CPUs and memory nodes of our group, without CPUs that this process may not use."""
        cpus = CpuSet.parse(self.own.text("cpuset.cpus.effective")) & self._mine
        return cpus, CpuSet.parse(self.own.text("cpuset.mems.effective"))

    def sets(self) -> Mapping[str, CpuSet]:
        """Return every set that is a proper part of the machine and not an ancestor of this process's."""
        return partial_sets(self.point, self._inside, "cpuset.cpus.effective")

    def names(self) -> frozenset[str]:
        """List the groups."""
        return frozenset(name for name in self.own.folders() if NAME.fullmatch(name))

    def fit(self, container: CpuContainer) -> Guarantee:
        """Write memory nodes and CPUs; make an exclusive container a partition if the kernel allows it."""
        try:
            self.freezer.make(container.name)
            self._write(container.name, "cpuset.mems", str(container.mems))
            self._write(container.name, "cpuset.cpus", str(container.cpus))
            isolated = self._partition(container)
            inside = CpuSet.parse(self.own.text(f"{container.name}/cpuset.cpus.effective"))
        except OSError as error:
            raise refusal(container, error) from error
        if inside != container.cpus:
            raise IsolationError(
                f"{container.name}: asked for CPUs {container.cpus}, the kernel gives {inside}",
                code="cpus-not-granted",
                container=container.name,
                cpus=str(container.cpus),
                value=str(inside),
            )
        if not container.exclusive:
            return Guarantee.CONTAINED
        return Guarantee.ISOLATED if isolated else Guarantee.EXCLUSIVE

    def _partition(self, container: CpuContainer) -> bool:
        """Make an exclusive container a partition and others plain groups; return whether it is a partition."""
        try:
            state = self.own.text(f"{container.name}/cpuset.cpus.partition")
        except FileNotFoundError:  # kernels before 5.x have no partitions
            return False
        if not container.exclusive:
            if state != "member":
                self._write(container.name, "cpuset.cpus.partition", "member")
            return False
        with contextlib.suppress(OSError):
            self._write(container.name, "cpuset.cpus.exclusive", str(container.cpus))
        with contextlib.suppress(OSError):
            self._write(container.name, "cpuset.cpus.partition", "root")
        if self.own.text(f"{container.name}/cpuset.cpus.partition") == "root":
            return True
        self._write(container.name, "cpuset.cpus.partition", "member")  # "root invalid (...)"
        return False

    def processes(self, name: str) -> frozenset[int]:
        """Read ``cgroup.procs``."""
        return self.freezer.processes(name)

    def remove(self, name: str) -> bool:
        """Remove the group and all groups inside."""
        return self.freezer.remove(name)
