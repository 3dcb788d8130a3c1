"""The cgroups of a lab's hosts: CPU quota, memory limit and CPU set, in both versions of the kernel's interface.

`groups` computes the files and their contents first, so that they can be read, journalled and tested. `make`
then writes them. Groups are named ``apples-lab-ID/HOST`` below the controller's mount point.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from apples.errors import LaunchError
from apples.lab.document import HostEntry
from apples.launch.quota import limits
from nws import parse_mounts

PREFIX = "apples-lab-"
CONTROLLERS = ("cpu", "memory", "cpuset")
EMPTY_SECONDS = 5.0
"""Time limit for the kernel to empty a group after its processes were killed."""


@dataclass(frozen=True, slots=True)
class LabHierarchy:
    """The hierarchy of one controller: its mount point, and the version of the interface."""

    root: Path
    version: int


Hierarchies = Mapping[str, LabHierarchy]
"""Controller -> its hierarchy."""


@dataclass(frozen=True, slots=True)
class LabCgroup:
    """One directory to make, and the files to write in it, in order.

    Attributes
    ----------
    optional
        Files that a kernel may lack.
    """

    path: Path
    writes: tuple[tuple[str, str], ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def joined(self) -> Path:
        """The file a process writes itself into."""
        return self.path / "cgroup.procs"


def hierarchies(proc: Path = Path("/proc/self")) -> Hierarchies:
    """Return the hierarchy of each controller that this machine has."""
    found: dict[str, LabHierarchy] = {}
    for mount in parse_mounts((proc / "mountinfo").read_text(encoding="utf-8")):
        point = Path(mount.point)
        if mount.version == 1:
            found |= {name: LabHierarchy(point, 1) for name in mount.controllers & {*CONTROLLERS}}
            continue
        with contextlib.suppress(OSError):
            for name in (point / "cgroup.controllers").read_text().split():
                if name in CONTROLLERS:
                    found.setdefault(name, LabHierarchy(point, 2))
    return found


def wanted(host: HostEntry) -> tuple[str, ...]:
    """Return the controllers a host needs.

    Examples
    --------
    >>> wanted(HostEntry(name="ada", cpu=0.4)), wanted(HostEntry(name="bob"))
    (('cpu', 'cpuset'), ())
    """
    asked = {"cpu": host.cpu, "memory": host.memory, "cpuset": host.cpus or host.cpu}
    return tuple(name for name in CONTROLLERS if asked[name])


def placed(hosts: Sequence[HostEntry], own: Sequence[int], first: int = 0) -> list[HostEntry]:
    """Return the hosts; each host with a quota gets CPUs of its own, the quota rounded up to whole CPUs.

    The kernel hands a quota to the CPUs of a group in slices of 5 ms, so the first CPU that asks gets a quota of
    4 ms whole in each period. On several CPUs, a process that sometimes waits then gets nothing while another
    process never waits. On one CPU the two take turns, and a quota above 1 is at least a slice for each CPU.

    Parameters
    ----------
    own
        The CPUs of this machine that may be used.
    first
        Index of the CPU to take first, so that the labs of a machine do not all begin with the same CPU.

    Examples
    --------
    >>> hosts = [HostEntry(name="ada", cpu=0.3), HostEntry(name="bob", cpu=1.2), HostEntry(name="eve", cpu=0.6)]
    >>> [host.cpus for host in placed(hosts, (0, 1, 2))]
    [(0,), (0, 1), (2,)]
    """
    quota = dict.fromkeys([*own[first % len(own) :], *own[: first % len(own)]], 0.0)
    found = list(hosts)

    def place(i: int, cpus: Sequence[int]) -> None:
        for cpu in cpus:
            quota[cpu] += min(1.0, (hosts[i].cpu or math.inf) / len(cpus))
        found[i] = hosts[i].model_copy(update={"cpus": tuple(sorted(cpus))})

    for i, host in enumerate(hosts):
        if host.cpus:
            place(i, host.cpus)
    free = [i for i, host in enumerate(hosts) if host.cpu and not host.cpus]
    for i in sorted(free, key=lambda i: -(hosts[i].cpu or 0.0)):
        place(i, sorted(quota, key=lambda cpu: quota[cpu])[: math.ceil(hosts[i].cpu or 0.0)])
    return found


def groups(host: HostEntry, lab: str, found: Hierarchies, hosts: int = 1) -> list[LabCgroup]:
    """Return the groups of one host, the lab's own above them first.

    Parameters
    ----------
    hosts
        Number of hosts. The group of the lab weighs as many processes, because the kernel divides the CPU among
        groups before it divides it inside each group.

    Examples
    --------
    >>> here = {"cpu": LabHierarchy(Path("/cg/cpu"), 1)}
    >>> for group in groups(HostEntry(name="ada", cpu=0.4), "7", here):
    ...     print(group.path, dict(group.writes))
    /cg/cpu/apples-lab-7 {'cpu.shares': '1024'}
    /cg/cpu/apples-lab-7/ada {'cpu.cfs_period_us': '10000', 'cpu.cfs_quota_us': '4000'}
    """
    asked = [name for name in wanted(host) if name in found]
    made: dict[Path, LabCgroup] = {}
    for name in asked:
        place = found[name]
        above = place.root / f"{PREFIX}{lab}"
        own = above / host.name
        if place.version == 1:
            made[above] = LabCgroup(above, _above_first(name, place, hosts))
            made[own] = LabCgroup(own, *_first(name, host, place))
            continue
        controllers = " ".join(f"+{each}" for each in asked if found[each].version == 2)
        # The kernel divides a CPU among groups first: with the default weight, all hosts of a lab together
        # would weigh as much as one process outside the lab, at any niceness.
        weight = (("cpu.weight", str(min(10_000, 100 * hosts))),) if "cpu" in asked else ()
        made[above] = LabCgroup(above, (("cgroup.subtree_control", controllers), *weight))
        before = made.get(own, LabCgroup(own))
        writes, optional = _second(name, host)
        made[own] = LabCgroup(own, before.writes + writes, before.optional + optional)
    return list(made.values())


def delegations(asked: Iterator[str], found: Hierarchies) -> list[tuple[Path, str]]:
    """Return the controllers to switch on at the top of version 2, each with its file."""
    needed = []
    for name in dict.fromkeys(asked):
        place = found.get(name)
        if place is not None and place.version == 2:
            control = place.root / "cgroup.subtree_control"
            if name not in control.read_text().split():
                needed.append((control, name))
    return needed


def make(made: list[LabCgroup], record: Callable[[str, str], None]) -> None:
    """Create groups and write their files; each group is recorded before it is created.

    Raises
    ------
    LaunchError
        The kernel rejects a write; the message names the file.
    """
    for group in made:
        if not group.path.is_dir():
            record("cgroup", str(group.path))
            group.path.mkdir()
        for name, value in group.writes:
            try:
                (group.path / name).write_text(value)
            except OSError as error:
                if name not in group.optional:
                    where = group.path / name
                    raise LaunchError(
                        f"{where}: {value}: {error.strerror}",
                        code="cgroup-unwritable",
                        file=where,
                        value=value,
                    ) from None


def members(path: Path) -> list[int]:
    """Return the processes of a group and of the groups below it."""
    pids: list[int] = []
    with contextlib.suppress(OSError):
        for file in [path / "cgroup.procs", *path.glob("*/cgroup.procs")]:
            pids += [int(pid) for pid in file.read_text().split()]
    return pids


def remove(path: Path) -> bool:
    """Remove a group and the groups that programs created below it; return whether it was removed."""
    deadline = time.monotonic() + EMPTY_SECONDS
    while path.is_dir():
        for folder, _, _ in os.walk(path, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
        if path.is_dir() and time.monotonic() > deadline:
            return False
        if path.is_dir():
            time.sleep(0.01)
    return True


def _above_first(name: str, place: LabHierarchy, hosts: int) -> tuple[tuple[str, str], ...]:
    """Return the files of the group above the hosts: its weight, and its CPU set, which is empty at first."""
    if name == "cpu":
        return (("cpu.shares", str(1024 * hosts)),)
    if name != "cpuset":
        return ()
    files = ("cpuset.cpus", "cpuset.mems")
    return tuple((file, (place.root / file).read_text().strip()) for file in files)


def _first(
    name: str, host: HostEntry, place: LabHierarchy
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    if name == "cpu":
        quota, period = limits(host.cpu or 0)
        return (("cpu.cfs_period_us", str(period)), ("cpu.cfs_quota_us", str(quota))), ()
    if name == "memory":
        limit, with_swap = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
        return ((limit, str(host.memory)), (with_swap, str(host.memory))), (with_swap,)
    mems = (place.root / "cpuset.mems").read_text().strip()
    return (("cpuset.cpus", _list(host.cpus)), ("cpuset.mems", mems)), ()


def _second(name: str, host: HostEntry) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    if name == "cpu":
        quota, period = limits(host.cpu or 0)
        return (("cpu.max", f"{quota} {period}"),), ()
    if name == "memory":
        return (("memory.max", str(host.memory)), ("memory.swap.max", "0")), ("memory.swap.max",)
    return (("cpuset.cpus", _list(host.cpus)),), ()


def _list(cpus: tuple[int, ...]) -> str:
    return ",".join(map(str, cpus))
