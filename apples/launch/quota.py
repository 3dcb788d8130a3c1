"""CPU quotas: cgroups that make a part of this machine as slow as the host that it emulates.

A cgroup is named ``apples-JOB-HOST`` and removed after its run. Version 1 of the kernel's interface is used if the
``cpu`` controller is mounted there; version 2 if the group of this process, or a group above it, was delegated. If
neither is writable, runs continue without quotas and print the reason.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from apples.errors import LaunchError
from nws import parse_groups, parse_mounts

PERIOD_MICROSECONDS = 10_000
"""Quota period: short, so that every iteration of a program is slowed, not one in ten for a whole period."""
MIN_QUOTA_MICROSECONDS = 1_000
"""The kernel's minimum."""
MAX_PERIOD_MICROSECONDS = 1_000_000
PREFIX = "apples-"
STALE_SECONDS = 600.0
MAX_NAME = 255


@dataclass(frozen=True, slots=True)
class Controller:
    """A place for cgroups with a CPU quota.

    Attributes
    ----------
    root
        The parent directory of new groups.
    version
        Version of the kernel's interface: 1 or 2.
    """

    root: Path
    version: int

    def create(self, name: str, cpus: float) -> Path:
        """Create a group that limits its processes together to `cpus` CPUs; return its directory."""
        group = self.root / name
        group.mkdir()
        try:
            self._limit(group, cpus)
        except OSError:
            remove(group)
            raise
        return group

    def _limit(self, group: Path, cpus: float) -> None:
        quota, period = limits(cpus)
        if self.version == 2:
            (group / "cpu.max").write_text(f"{quota} {period}")
            return
        (group / "cpu.cfs_period_us").write_text(str(period))
        (group / "cpu.cfs_quota_us").write_text(str(quota))

    def sweep(self, older_than: float = STALE_SECONDS) -> None:
        """Remove old empty groups of runs that were killed together with their supervisors."""
        now = time.time()
        for group in self.root.glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):
                if now - group.stat().st_ctime > older_than:
                    group.rmdir()


@dataclass(frozen=True, slots=True)
class Quotas:
    """The cgroups of one run.

    Attributes
    ----------
    controller
        The place of the groups; None if quotas are impossible or not needed.
    cpus
        Host -> its CPUs.
    groups
        Host -> directory of its group.
    warnings
        A line for each host that will run faster than planned.
    """

    controller: Controller | None = None
    cpus: Mapping[str, float] = field(default_factory=dict)
    groups: Mapping[str, Path] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @classmethod
    def plan(
        cls,
        cpus: Mapping[str, float],
        job: str,
        controller: Callable[[], Controller | str] | None = None,
    ) -> Quotas:
        """Return the groups for hosts with these CPUs; creates none of them yet.

        Parameters
        ----------
        controller
            Returns the place for groups, or the reason why quotas are impossible; by default `find`.
        """
        found = (controller or find)() if cpus else ""
        if isinstance(found, Controller):
            groups = {host: found.root / group_name(job, host) for host in cpus}
            return cls(found, cpus, groups)
        lines = (
            f"{host}: no CPU quota (cgroups are not writable: {found}): runs faster than planned"
            for host in cpus
        )
        return cls(warnings=tuple(lines))

    def create(self) -> None:
        """Create the groups.

        Raises
        ------
        LaunchError
            The kernel rejected a group.
        """
        if self.controller is None:
            return
        self.controller.sweep()
        for host, group in self.groups.items():
            try:
                self.controller.create(group.name, self.cpus[host])
            except OSError as error:
                raise LaunchError(
                    f"{host}: no CPU quota of {self.cpus[host]:g}: {error}",
                    code="quota-refused",
                    host=host,
                    value=self.cpus[host],
                ) from None

    def joined(self, host: str) -> str:
        """Return the ``cgroup.procs`` file of a host's group; empty if it has no group."""
        return str(self.groups[host] / "cgroup.procs") if host in self.groups else ""


def limits(cpus: float) -> tuple[int, int]:
    """Return quota and period in microseconds for a number of CPUs.

    Examples
    --------
    >>> limits(0.4), limits(1.5), limits(0.02)
    ((4000, 10000), (15000, 10000), (1000, 50000))
    """
    period = max(PERIOD_MICROSECONDS, round(MIN_QUOTA_MICROSECONDS / cpus))
    period = min(period, MAX_PERIOD_MICROSECONDS)
    return max(MIN_QUOTA_MICROSECONDS, round(cpus * period)), period


def remove(group: Path) -> None:
    """Remove a group if no process is in it."""
    with contextlib.suppress(OSError):
        group.rmdir()


def group_name(job: str, host: str) -> str:
    """Return the name of a host's group in one run."""
    return f"{PREFIX}{job}-{host}"[:MAX_NAME]


def find(proc: Path = Path("/proc/self")) -> Controller | str:
    """Return the place where this process may create groups with a quota, or the reason why it cannot.

    Examples
    --------
    >>> isinstance(find(), (Controller, str))
    True
    """
    reasons = []
    for version, candidate in _candidates(proc):
        reason = _refusal(candidate, version)
        if reason is None:
            return Controller(candidate, version)
        reasons.append(reason)
    return reasons[0] if reasons else "no cgroup with a cpu controller is mounted"


def writable() -> str | None:
    """Return the reason why this process cannot set CPU quotas; None if it can."""
    found = find()
    return found if isinstance(found, str) else None


def _candidates(proc: Path) -> list[tuple[int, Path]]:
    """Return candidates of interface version and directory: this process's v1 group, then v2 groups upwards."""
    try:
        groups = parse_groups((proc / "cgroup").read_text())
        mounts = parse_mounts((proc / "mountinfo").read_text())
    except OSError:
        return []
    candidates: list[tuple[int, Path]] = []
    for mount in mounts:
        own = mount.path_of(groups)
        if "cpu" in mount.controllers:
            candidates.append((1, Path(mount.point / own)))
        elif mount.version == 2:
            candidates += [(2, Path(mount.point / path)) for path in (own, *own.parents)]
    return sorted(candidates, key=lambda entry: entry[0])


def _refusal(root: Path, version: int) -> str | None:
    """Return the reason why a group with a quota cannot be created in `root`; None if a trial succeeds."""
    if version == 2 and not _delegated(root):
        return f"{root}: the cpu controller is not delegated"
    controller = Controller(root, version)
    try:
        remove(controller.create(f"{PREFIX}probe-{os.getpid()}", 1.0))
    except OSError as error:
        return f"{root}: {error.strerror}"
    return None


def _delegated(root: Path) -> bool:
    """Whether children of a v2 group have the cpu controller and processes may be moved to them."""
    try:
        enabled = (root / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False
    return "cpu" in enabled and os.access(root / "cgroup.procs", os.W_OK)
