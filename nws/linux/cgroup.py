"""What the control groups leave us of CPUs and memory: cgroups(7), version 1, 2 or both.

A process is in one group of every hierarchy, and the limits of all groups above hold as well; so
every question walks from our group up to the mount point and takes the tightest answer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from nws.linux.proc import parse_cpu_list

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
