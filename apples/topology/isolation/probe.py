"""Tries which rung of the ladder holds on this host, by making a pen and looking what the kernel did."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from apples.errors import LaunchError
from apples.storage.folder import Folder
from apples.topology.cpus import CpuSet
from apples.topology.fence import Fence, FenceError, Guarantee, Pen
from apples.topology.isolation.affinity import Affinity
from apples.topology.isolation.brakes import Brake, FreezerBrake, UnifiedBrake
from apples.topology.isolation.cpuset_v1 import CpusetV1
from apples.topology.isolation.cpuset_v2 import LEAF, CpusetV2
from apples.topology.isolation.dry_run import DryRun
from apples.topology.isolation.hierarchies import (
    ROOT,
    Hierarchy,
    hierarchies,
    unified,
    with_controller,
)
from apples.topology.isolation.systemd_scope import SystemdScope


@dataclass(frozen=True, slots=True)
class Rung:
    """What came of trying one rung.

    Attributes
    ----------
    title
        Its name.
    fence
        The fence, where it holds.
    guarantee
        What it gives a pen that is not exclusive.
    why_not
        Why it does not hold, in one line; empty where it does.
    """

    title: str
    fence: Fence | None
    guarantee: Guarantee | None
    why_not: str = ""


def _cpuset_v1(root: Path) -> Fence:
    found = hierarchies(root)
    tree = with_controller(found, "cpuset")
    if tree is None:
        raise FenceError("no version 1 cpuset tree is mounted")
    point, own = _folders(tree)
    return CpusetV1(point, own, _inside(tree), _brake(found))


def _cpuset_v2(root: Path) -> Fence:
    tree = unified(hierarchies(root))
    if tree is None:
        raise FenceError("no version 2 tree is mounted")
    if tree.own.name == LEAF and tree.own != tree.point:  # where systemd, or we, put the daemon
        tree = replace(tree, own=tree.own.parent)
    return CpusetV2(*_folders(tree), _inside(tree))


def _systemd(root: Path) -> Fence:
    if not (root / "run/systemd/system").is_dir():
        raise FenceError("systemd is not the system's manager")
    found = hierarchies(root)
    tree = unified(found) or with_controller(found, "name=systemd")
    if tree is None:
        raise FenceError("no tree of systemd's is mounted")
    return SystemdScope(tree.point)


def _affinity(root: Path) -> Fence:
    return Affinity(root / "proc")


def _dry_run(root: Path) -> Fence:
    del root
    return DryRun(CpuSet.of(os.sched_getaffinity(0)))


LADDER: Final[dict[str, Callable[[Path], Fence]]] = {
    CpusetV1.title: _cpuset_v1,
    CpusetV2.title: _cpuset_v2,
    SystemdScope.title: _systemd,
    Affinity.title: _affinity,
    DryRun.title: _dry_run,
}
"""The rungs, strongest first. A dry run is taken only when it is asked for by name."""


def probe(title: str, root: Path = ROOT) -> Rung:
    """Try one rung: a pen is made on one CPU, read back and removed."""
    try:
        fence = LADDER[title](root)
        return Rung(title, fence, _tried(fence))
    except (LaunchError, OSError) as error:
        return Rung(title, None, None, str(error))


def find_fence(wanted: str = "auto", root: Path = ROOT) -> tuple[Fence, Sequence[Rung]]:
    """Return the strongest fence that holds here, and what came of each rung that was tried.

    Raises
    ------
    FenceError
        The one that was asked for does not hold, or none does: with the reasons.
    """
    if wanted != "auto" and wanted not in LADDER:
        raise FenceError(f"--fence {wanted}: one of auto, {', '.join(LADDER)} is wanted")
    titles = [t for t in LADDER if t != DryRun.title] if wanted == "auto" else [wanted]
    rungs: list[Rung] = []
    for title in titles:
        rungs.append(probe(title, root))
        if rungs[-1].fence is not None:
            return rungs[-1].fence, rungs
    raise FenceError("; ".join(f"{rung.title}: {rung.why_not}" for rung in rungs))


def _tried(fence: Fence) -> Guarantee:
    cpus, mems = fence.universe()
    if not cpus or not mems:
        raise FenceError("no CPU or no memory node is open to this process")
    name = f"topologyd-{secrets.token_hex(4)}-probe-0"
    one = CpuSet.of([max(cpus)])
    try:
        given = fence.fit(Pen(name, one, mems))
        if fence.cpus(name) != one:
            raise FenceError(f"asked for CPU {one}, the kernel gives {fence.cpus(name)}")
    finally:
        fence.remove(name)
    return given


def _folders(tree: Hierarchy) -> tuple[Folder, Folder]:
    return Folder.open(tree.point), Folder.open(tree.own)


def _inside(tree: Hierarchy) -> tuple[str, ...]:
    return tree.own.relative_to(tree.point).parts


def _brake(found: list[Hierarchy]) -> Brake | None:
    """Return what can stop a group at once, if the host has it and lets us."""
    second = unified(found)
    for tree, kind, file in (
        (second, UnifiedBrake, "cgroup.kill"),
        (with_controller(found, "freezer"), FreezerBrake, "freezer.state"),
    ):
        if tree is None:
            continue
        name = f"topologyd-{secrets.token_hex(4)}-probe-0"
        try:
            brake = kind(Folder.open(tree.own))
            brake.make(name)
            try:
                brake.folder.text(f"{name}/cgroup.procs")
                os.close(brake.folder.open_file(f"{name}/{file}", os.O_WRONLY))
            finally:
                brake.remove(name)
        except OSError:
            continue
        return brake
    return None
