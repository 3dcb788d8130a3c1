"""What cpusets of both versions of the kernel's interface have in common."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from apples.storage.folder import Folder
from apples.topology.cpus import CpuSet
from apples.topology.fence import Fence, FenceError, Pen
from apples.topology.isolation.brakes import Brake
from apples.topology.isolation.signals import place_threads

MOST_GROUPS = 20_000
EVERY = CpuSet.of(range(1024))
"""A mask that no set is wider than, on machines of up to 1,024 CPUs; the set's own numbers are added."""


class Cpusets(Fence):
    """Pens are groups beside each other, with a brake that stops and kills what is in them.

    Parameters
    ----------
    point, own
        The top of the mounted tree, and the group in which pens are made.
    inside
        Names of the groups from the top to `own`.
    brake
        What stops and kills.
    mine
        CPUs that this process may use; None: its mask.
    """

    def __init__(
        self,
        point: Folder,
        own: Folder,
        inside: tuple[str, ...],
        brake: Brake,
        mine: CpuSet | None,
    ) -> None:
        self.point = point
        self.own = own
        self._inside = inside
        self.brake = brake
        self._mine = CpuSet.of(os.sched_getaffinity(0)) if mine is None else mine

    def cpus(self, name: str) -> CpuSet:
        """Read ``cpuset.cpus``."""
        try:
            return CpuSet.parse(self.own.text(f"{name}/cpuset.cpus"))
        except FileNotFoundError:
            return CpuSet()

    def admit(self, name: str, process: int) -> None:
        """Write into ``cgroup.procs``, which moves all threads, then widen their masks."""
        try:
            self._enter(name, process)
            place_threads(process, EVERY | self.cpus(name))
        except OSError as error:
            raise FenceError(f"process {process} cannot enter {name}: {error}") from error

    def freeze(self, name: str) -> None:
        """Apply the brake."""
        self._braked(self.brake.freeze, name)

    def thaw(self, name: str) -> None:
        """Release the brake."""
        self._braked(self.brake.thaw, name)

    def kill(self, name: str) -> None:
        """Kill by the brake."""
        self.brake.kill(name, lambda: self.processes(name))

    def _enter(self, name: str, process: int) -> None:
        self.brake.admit(name, process)

    def _write(self, name: str, file: str, text: str) -> None:
        self.own.write(f"{name}/{file}", text)

    def _braked(self, act: Callable[[str], None], name: str) -> None:
        try:
            act(name)
        except OSError as error:
            raise FenceError(f"{name}: {error}") from error


def refusal(pen: Pen, error: OSError) -> FenceError:
    """Return the kernel's word for what was asked of it."""
    why = {
        errno.EACCES: "outside the set above it, or no right to",
        errno.EINVAL: "overlaps an exclusive set, or no such memory node",
        errno.ERANGE: "no such CPU on this machine",
        errno.ENOSPC: "would be left without CPU or memory node",
        errno.EBUSY: "in use by a child set",
    }.get(error.errno or 0, error.strerror or str(error))
    return FenceError(f"{pen.name}: CPUs {pen.cpus} on memory nodes {pen.mems}: {why}")


def partial_sets(
    point: Folder, inside: tuple[str, ...], whole: str = "cpuset.cpus"
) -> dict[str, CpuSet]:
    """Return name -> CPUs of every set that is a real part of the machine and not above us.

    A set of all CPUs, as containers' parents have it, reserves nothing; those inside it are looked at.
    `whole` is the file that holds the CPUs of the top.
    """
    every = CpuSet.parse(point.text(whole))
    above = {inside[: n + 1] for n in range(len(inside))}
    found: dict[str, CpuSet] = {}
    waiting: list[tuple[str, ...]] = [()]
    seen = 0
    while waiting and seen < MOST_GROUPS:
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
    except OSError:  # it went away while it was read, or has no such file
        return CpuSet()


def _children(point: Folder, here: tuple[str, ...]) -> list[str]:
    if not here:
        return point.folders()
    try:
        with point.below("/".join(here)) as group:
            return group.folders()
    except OSError:  # likewise
        return []
