"""Detects the isolation backends that work on this host: it creates a container and reads the result back."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from apples.errors import LaunchError
from apples.io.folder import Folder
from apples.topology.cpus import CpuSet
from apples.topology.isolation.affinity import Affinity
from apples.topology.isolation.backend import (
    CpuContainer,
    Guarantee,
    IsolationBackend,
    IsolationError,
)
from apples.topology.isolation.cpusets import LEAF, CpusetV1, CpusetV2
from apples.topology.isolation.dry_run import DryRun
from apples.topology.isolation.freezers import CgroupV1Freezer, CgroupV2Freezer, Freezer
from apples.topology.isolation.systemd_scope import SystemdScope
from nws import parse_groups, parse_mounts

ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class CgroupHierarchy:
    """A mounted hierarchy of control groups.

    Attributes
    ----------
    point
        Mount point.
    own
        Directory of this process's group.
    controllers
        Controllers of version 1; empty for version 2, in which each group lists its own.
    """

    point: Path
    own: Path
    controllers: frozenset[str]
    version: int


def hierarchies(root: Path = ROOT) -> list[CgroupHierarchy]:
    """Return the mounted hierarchies with this process's group in each; empty if /proc lists none."""
    try:
        groups = parse_groups((root / "proc/self/cgroup").read_text())
        mounts = parse_mounts((root / "proc/self/mountinfo").read_text())
    except OSError:
        return []
    found = []
    for mount in mounts:
        point = root / mount.point.relative_to("/")
        own = point / mount.path_of(groups)
        found.append(CgroupHierarchy(point, own, mount.controllers, mount.version))
    return found


def with_controller(found: list[CgroupHierarchy], name: str) -> CgroupHierarchy | None:
    """Return the version 1 hierarchy of a controller."""
    return next((h for h in found if name in h.controllers), None)


def unified(found: list[CgroupHierarchy]) -> CgroupHierarchy | None:
    """Return the version 2 hierarchy."""
    return next((h for h in found if h.version == 2), None)


@dataclass(frozen=True, slots=True)
class IsolationLevel:
    """The result of trying a level of isolation.

    Attributes
    ----------
    title
        Name of the level.
    isolation
        The isolation backend, if it works.
    guarantee
        The guarantee of a container that is not exclusive.
    why_not
        The reason in one line, if it does not work; else empty.
    """

    title: str
    isolation: IsolationBackend | None
    guarantee: Guarantee | None
    why_not: str = ""


def _cpuset_v1(root: Path) -> IsolationBackend:
    found = hierarchies(root)
    tree = with_controller(found, "cpuset")
    if tree is None:
        raise IsolationError(
            "no version 1 cpuset tree is mounted", code="cgroup-missing", value="cpuset-v1"
        )
    point, own = _folders(tree)
    return CpusetV1(point, own, _inside(tree), _freezer(found))


def _cpuset_v2(root: Path) -> IsolationBackend:
    tree = unified(hierarchies(root))
    if tree is None:
        raise IsolationError(
            "no version 2 tree is mounted", code="cgroup-missing", value="cpuset-v2"
        )
    if (
        tree.own.name == LEAF and tree.own != tree.point
    ):  # the leaf in which systemd, or we, put the daemon
        tree = replace(tree, own=tree.own.parent)
    elif tree.own.suffix == ".service":
        # If jobs had groups in a service's own group, systemd could not restart the service: a group whose
        # children have controllers accepts no process (EXIT_CGROUP).
        raise IsolationError(
            f"cannot use cgroup v2: {tree.own.name} runs in its own top group; add DelegateSubgroup={LEAF} "
            "to the unit (systemd 254 or later)",
            code="cgroup-not-delegated",
            unit=tree.own.name,
            setting=f"DelegateSubgroup={LEAF}",
        )
    return CpusetV2(*_folders(tree), _inside(tree))


def _systemd(root: Path) -> IsolationBackend:
    if not (root / "run/systemd/system").is_dir():
        raise IsolationError("systemd is not the system's manager", code="systemd-missing")
    found = hierarchies(root)
    tree = unified(found) or with_controller(found, "name=systemd")
    if tree is None:
        raise IsolationError(
            "no tree of systemd's is mounted", code="cgroup-missing", value="systemd-scope"
        )
    return SystemdScope(tree.point)


def _affinity(root: Path) -> IsolationBackend:
    return Affinity(root / "proc")


def _dry_run(root: Path) -> IsolationBackend:
    del root
    return DryRun(CpuSet.of(os.sched_getaffinity(0)))


BACKENDS: Final[dict[str, Callable[[Path], IsolationBackend]]] = {
    CpusetV1.title: _cpuset_v1,
    CpusetV2.title: _cpuset_v2,
    SystemdScope.title: _systemd,
    Affinity.title: _affinity,
    DryRun.title: _dry_run,
}
"""The levels, strongest first. A dry run is used only on request."""


def probe(title: str, root: Path = ROOT) -> IsolationLevel:
    """Try one level: create a container on one CPU, read it back and remove it."""
    try:
        isolation = BACKENDS[title](root)
        return IsolationLevel(title, isolation, _tried(isolation))
    except (LaunchError, OSError) as error:
        return IsolationLevel(title, None, None, str(error))


def find_backend(
    wanted: str = "auto", root: Path = ROOT
) -> tuple[IsolationBackend, Sequence[IsolationLevel]]:
    """Return the strongest isolation backend that works here, and the result of each level tried.

    Raises
    ------
    IsolationError
        The requested level does not work here, or none does; with the reasons.
    """
    if wanted != "auto" and wanted not in BACKENDS:
        raise IsolationError(
            f"--fence {wanted}: must be one of auto, {', '.join(BACKENDS)}",
            code="isolation-unknown",
            option="--fence",
            value=wanted,
            known=["auto", *BACKENDS],
        )
    titles = [t for t in BACKENDS if t != DryRun.title] if wanted == "auto" else [wanted]
    levels: list[IsolationLevel] = []
    for title in titles:
        levels.append(probe(title, root))
        if levels[-1].isolation is not None:
            return levels[-1].isolation, levels
    raise IsolationError(
        "; ".join(f"{level.title}: {level.why_not}" for level in levels),
        code="isolation-unavailable",
        value=wanted,
        reasons={level.title: level.why_not for level in levels},
    )


def _tried(isolation: IsolationBackend) -> Guarantee:
    cpus, mems = isolation.universe()
    if not cpus or not mems:
        raise IsolationError(
            "no CPU or no memory node is open to this process", code="cpus-unavailable"
        )
    name = f"topologyd-{secrets.token_hex(4)}-probe-0"
    one = CpuSet.of([max(cpus)])
    try:
        given = isolation.fit(CpuContainer(name, one, mems))
        if isolation.cpus(name) != one:
            raise IsolationError(
                f"asked for CPU {one}, the kernel gives {isolation.cpus(name)}",
                code="cpus-not-granted",
                cpus=str(one),
                value=str(isolation.cpus(name)),
            )
    finally:
        isolation.remove(name)
    return given


def _folders(tree: CgroupHierarchy) -> tuple[Folder, Folder]:
    return Folder.open(tree.point), Folder.open(tree.own)


def _inside(tree: CgroupHierarchy) -> tuple[str, ...]:
    return tree.own.relative_to(tree.point).parts


def _freezer(found: list[CgroupHierarchy]) -> Freezer | None:
    """Return the freezer for groups that this host has and this process may use; None without one."""
    second = unified(found)
    for tree, kind, file in (
        (second, CgroupV2Freezer, "cgroup.kill"),
        (with_controller(found, "freezer"), CgroupV1Freezer, "freezer.state"),
    ):
        if tree is None:
            continue
        name = f"topologyd-{secrets.token_hex(4)}-probe-0"
        try:
            freezer = kind(Folder.open(tree.own))
            freezer.make(name)
            try:
                freezer.folder.text(f"{name}/cgroup.procs")
                os.close(freezer.folder.open_file(f"{name}/{file}", os.O_WRONLY))
            finally:
                freezer.remove(name)
        except OSError:
            continue
        return freezer
    return None
