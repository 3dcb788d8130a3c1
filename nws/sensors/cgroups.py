"""Control groups: the one parser of cgroup mounts and paths in `nws` and `apples`, and the limits of our groups.

Sources: cgroups(7) and proc(5), version 1, 2 or both. A process is in one group of every hierarchy,
and the limits of all groups above hold as well. So every function starts at the process's group, goes up to the
mount point and returns the tightest limit.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from nws.sensors.linux import ROOT, parse_cpu_list

UNLIMITED: Final = 1 << 60
"""Bytes above which a limit of version 1 means no limit: the kernel writes 2^63 - a page."""
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
"""A space, tab, newline or backslash of a path in mountinfo, as three octal digits."""


@dataclass(frozen=True, slots=True)
class CgroupMount:
    """One mounted cgroup hierarchy.

    Attributes
    ----------
    point
        The mount point.
    group
        The group that is visible at the mount point.
    controllers
        The mount options of version 1, which name its controllers; empty for version 2.
    version
        1 or 2.
    """

    point: PurePosixPath
    group: PurePosixPath
    controllers: frozenset[str]
    version: int

    def path_of(self, groups: Mapping[str, PurePosixPath]) -> PurePosixPath:
        """Return the path of a process's group below the mount point.

        It is ``.`` where the group lies outside of the mount, as in a container without a cgroup
        namespace: then the group at the mount point is the process's nearest visible group.

        Parameters
        ----------
        groups
            The process's groups, as `parse_groups` returns them.

        Examples
        --------
        >>> (mount,) = parse_mounts("9 1 0:2 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw")
        >>> [str(mount.path_of(parse_groups(f"0::{path}"))) for path in ("/docker/abc/job", "/docker/abcd")]
        ['job', '.']
        """
        names = self.controllers or {""}
        group = next((groups[name] for name in sorted(names) if name in groups), self.group)
        inside = group.is_relative_to(self.group) and ".." not in group.parts
        return group.relative_to(self.group) if inside else PurePosixPath()


def parse_mounts(mountinfo: str) -> tuple[CgroupMount, ...]:
    """Return the cgroup mounts in the text of /proc/PID/mountinfo."""
    mounts = []
    for line in mountinfo.splitlines():
        fields, kinds = (part.split() for part in line.partition(" - ")[::2])
        if len(fields) >= 5 and kinds and kinds[0] in {"cgroup", "cgroup2"}:
            group, point = (PurePosixPath(_ESCAPED.sub(_unescaped, text)) for text in fields[3:5])
            version = 2 if kinds[0] == "cgroup2" else 1
            options = frozenset(kinds[-1].split(",")) if version == 1 else frozenset[str]()
            mounts.append(CgroupMount(point, group, options, version))
    return tuple(mounts)


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 8))


def parse_groups(cgroup: str) -> dict[str, PurePosixPath]:
    """Return the group of each controller in the text of /proc/PID/cgroup; version 2 is under ``""``."""
    groups = {}
    for line in cgroup.splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        for controller in controllers.split(",") if path else ():
            groups[controller] = PurePosixPath(path)
    return groups


def cpu_quota(root: Path = ROOT) -> float | None:
    """Return the CPU seconds per second that our groups may use; None without a limit."""
    return _tightest(_quota(version, group) for version, group in _groups(root, "cpu"))


def available_memory(root: Path = ROOT) -> float | None:
    """Return the bytes our groups may still have: limit less working set; None without limit.

    The working set is the usage without file pages that were not used lately; the kernel drops these first.
    """
    return _tightest(_memory(version, group) for version, group in _groups(root, "memory"))


def allowed_cpus(root: Path = ROOT) -> frozenset[int] | None:
    """Return the CPUs that our cpuset allows; None without a cpuset."""
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
        own = mount.path_of(groups)
        for path in (own, *own.parents):
            yield mount.version, root / mount.point.relative_to("/") / path


def _tightest(limits: Iterator[float | None]) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _read(path: Path) -> str:
    """Return the text of a file, stripped; empty if the file is missing: then it sets no limit."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
