"""The Linux kernel's figures of CPUs, threads and memory: /proc, parsed, and the limits of control groups.

Sources: proc(5); cgroups(7), version 1, 2 or both. A process is in one group of every hierarchy,
and the limits of all groups above hold as well; so every question walks from our group up to the
mount point and takes the tightest answer.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from nws.errors import InputError

KERNEL_THREAD: Final = 0x00200000
"""PF_KTHREAD of the kernel's sched.h."""
SCHED_IDLE: Final = 5
RUNNABLE: Final = "R"


@dataclass(frozen=True, slots=True)
class ThreadState:
    """What ``/proc/PID/task/TID/stat`` says of a thread, as far as we want to know it."""

    state: str
    nice: int
    kernel: bool = False
    threads: int = 1
    idle: bool = False
    cpu: int | None = None


def parse_running(loadavg: str) -> int:
    """Return how many threads are runnable, this one included: field 4 of /proc/loadavg.

    Examples
    --------
    >>> parse_running("0.20 0.18 0.12 3/804 11206")
    3
    """
    return int(loadavg.split()[3].partition("/")[0])


def parse_thread(stat: str) -> ThreadState:
    """Return what a line of stat says of a thread.

    State (field 3), niceness (19), whether it is the kernel's (a flag in 9), how many threads its process
    has (20), whether it runs only where nothing else does (policy, 41) and on which CPU it was last (39). The
    name before them may hold anything.

    Examples
    --------
    >>> parse_thread("7 (a ) R) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 39 19 2 0")
    ThreadState(state='S', nice=19, kernel=False, threads=2, idle=False, cpu=None)

    Raises
    ------
    ValueError
        It is no such line.
    """
    fields = stat.rpartition(")")[2].split()
    if len(fields) < 18:
        raise ValueError("no line of /proc/PID/stat")
    kernel = bool(int(fields[6]) & KERNEL_THREAD)
    idle = len(fields) > 38 and int(fields[38]) == SCHED_IDLE
    cpu = int(fields[36]) if len(fields) > 36 else None
    return ThreadState(fields[0], int(fields[16]), kernel, int(fields[17]), idle, cpu)


def parse_cpu_list(text: str) -> frozenset[int]:
    """Return the CPUs of a list in the kernel's notation.

    Examples
    --------
    >>> sorted(parse_cpu_list("0-2,8"))
    [0, 1, 2, 8]
    """
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def parse_state(stat: str) -> tuple[str, int]:
    """Return the state of a thread and how many threads its process has: a part of `parse_thread`, in less time.

    Examples
    --------
    >>> parse_state("7 (a ) R) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 39 19 2 0")
    ('S', 2)

    Raises
    ------
    ValueError
        It is no line of /proc/PID/stat.
    """
    fields = stat.rpartition(")")[2].split(None, 18)
    if len(fields) < 18:
        raise ValueError("no line of /proc/PID/stat")
    return fields[0], int(fields[17])


def online_cpus(root: Path = Path("/")) -> frozenset[int]:
    """Return the CPUs of this machine that are on."""
    return parse_cpu_list((root / "sys/devices/system/cpu/online").read_text())


def parse_allowed_cpus(status: str) -> frozenset[int]:
    """Return the CPUs that a thread may run on: Cpus_allowed_list of its status."""
    return parse_cpu_list(_line(status, "Cpus_allowed_list:"))


def parse_available_memory(meminfo: str) -> int:
    r"""Return MemAvailable in bytes: what can be had without swapping, caches given back.

    Examples
    --------
    >>> parse_available_memory("MemTotal: 2048 kB\nMemAvailable:    1024 kB\n")
    1048576
    """
    return int(_line(meminfo, "MemAvailable:").split()[0]) * 1024


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """What the CPUs did so far, in ticks: all together, and what the hypervisor took away."""

    total: int
    stolen: int

    def stolen_since(self, earlier: "CpuTimes") -> float:
        """Return the share of the time that was stolen since `earlier`, 0..1.

        Counters of a virtual machine jump and even go back (node_exporter #742): then nothing is
        known and 0 is told.
        """
        total, stolen = self.total - earlier.total, self.stolen - earlier.stolen
        return stolen / total if 0 < stolen <= total else 0.0


def parse_cpu_times(stat: str, cpus: Collection[int]) -> CpuTimes:
    r"""Return the times of some CPUs in /proc/stat: guest times are part of user's already.

    Examples
    --------
    >>> parse_cpu_times("cpu 9\ncpu0 1 1 1 5 0 0 0 2 0 0\ncpu1 8 0 0 0 0 0 0 0\n", {0})
    CpuTimes(total=10, stolen=2)
    """
    total = stolen = 0
    for line in stat.splitlines():
        name, _, rest = line.partition(" ")
        if name[:3] == "cpu" and name[3:].isdigit() and int(name[3:]) in cpus:
            ticks = [int(field) for field in rest.split()[:8]]
            total += sum(ticks)
            stolen += ticks[7] if len(ticks) > 7 else 0
    return CpuTimes(total, stolen)


def _line(text: str, label: str) -> str:
    _, found, rest = f"\n{text}".partition(f"\n{label}")
    if not found:
        raise InputError(f"there is no line {label!r}", code="line-missing", value=label)
    return rest.partition("\n")[0]


ROOT = Path("/")
UNLIMITED = 1 << 60
"""Bytes above which a limit of version 1 means that there is none (it writes 2^63 - a page)."""


@dataclass(frozen=True, slots=True)
class Mount:
    """Where a hierarchy is mounted, the group seen there, and its controllers (v2: none)."""

    point: PurePosixPath
    group: PurePosixPath
    controllers: frozenset[str]
    version: int


def parse_mounts(mountinfo: str) -> tuple[Mount, ...]:
    """Return the cgroup mounts among those of /proc/self/mountinfo."""
    mounts = []
    for line in mountinfo.splitlines():
        ours, _, kind = line.partition(" - ")
        kinds = kind.split()
        if kinds and kinds[0] in {"cgroup", "cgroup2"}:
            _, _, _, group, point = ours.split()[:5]
            version = 2 if kinds[0] == "cgroup2" else 1
            options = frozenset(kinds[-1].split(",")) if version == 1 else frozenset[str]()
            mounts.append(Mount(PurePosixPath(point), PurePosixPath(group), options, version))
    return tuple(mounts)


def parse_groups(cgroup: str) -> dict[str, PurePosixPath]:
    """Return the group of each controller in /proc/self/cgroup; version 2 is under ``""``."""
    groups = {}
    for line in cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            groups[controller] = PurePosixPath(path)
    return groups


def cpu_quota(root: Path = ROOT) -> float | None:
    """Return how many CPUs' worth of time our groups may use; None if there is no limit."""
    return _tightest(_quota(version, group) for version, group in _groups(root, "cpu"))


def available_memory(root: Path = ROOT) -> float | None:
    """Return the bytes our groups may still have: limit less working set; None without limit.

    The working set is the usage without file pages that nobody has used lately, which the
    kernel drops first.
    """
    return _tightest(_memory(version, group) for version, group in _groups(root, "memory"))


def allowed_cpus(root: Path = ROOT) -> frozenset[int] | None:
    """Return the CPUs that our cpuset allows; None if nothing says so."""
    for version, group in _groups(root, "cpuset"):
        name = "cpuset.cpus.effective" if version == 2 else "cpuset.effective_cpus"
        cpus = parse_cpu_list(_read(group / name))
        if cpus:
            return cpus
    return None


def parse_quota(quota: str, period: str) -> float | None:
    """Return quota / period in CPUs; None for version 1's -1 and version 2's ``max``.

    Examples
    --------
    >>> parse_quota("150000", "100000"), parse_quota("max", "100000"), parse_quota("-1", "100000")
    (1.5, None, None)
    """
    return int(quota) / int(period) if quota.isdigit() and int(period) > 0 else None


def parse_memory(limit: str, usage: str, stat: str, inactive: str) -> float | None:
    r"""Return the bytes between the working set and `limit`, at least 0; None without a limit.

    `inactive` names the line of `stat` that counts the file pages to be dropped first.

    Examples
    --------
    >>> parse_memory("1000", "700", "cache 400\ninactive_file 200\n", "inactive_file")
    500.0
    """
    if not limit.isdigit() or int(limit) > UNLIMITED:
        return None
    pages = dict(line.split() for line in stat.splitlines())
    working_set = max(0, int(usage) - int(pages.get(inactive, "0")))
    return float(max(0, int(limit) - working_set))


def _quota(version: int, group: Path) -> float | None:
    if version == 2:
        quota, _, period = _read(group / "cpu.max").partition(" ")
        return parse_quota(quota, period or "100000")
    return parse_quota(
        _read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us") or "100000"
    )


def _memory(version: int, group: Path) -> float | None:
    limit, usage, inactive = (
        ("memory.max", "memory.current", "inactive_file")
        if version == 2
        else ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    )
    return parse_memory(
        _read(group / limit), _read(group / usage) or "0", _read(group / "memory.stat"), inactive
    )


def _groups(root: Path, controller: str) -> Iterator[tuple[int, Path]]:
    """Yield version and directory of each group that limits us, our own before those above."""
    groups = parse_groups(_read(root / "proc/self/cgroup"))
    for mount in parse_mounts(_read(root / "proc/self/mountinfo")):
        if mount.version == 1 and controller not in mount.controllers:
            continue
        group = groups.get(controller if mount.version == 1 else "", mount.group)
        inside = group.relative_to(mount.group) if group.is_relative_to(mount.group) else "."
        own = mount.point / inside
        for directory in (own, *own.parents):
            if directory.is_relative_to(mount.point):
                yield mount.version, root / directory.relative_to("/")


def _tightest(limits: Iterator[float | None]) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _read(path: Path) -> str:
    """Return the text, stripped; nothing where there is no such file: then it limits nothing."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
