"""Which control groups this process is in, and where their directories are: cgroups(7)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One mounted tree of groups.

    Attributes
    ----------
    point
        Where it is mounted.
    own
        The directory of the group that this process is in.
    controllers
        Of version 1; empty for version 2, whose groups name their own.
    """

    point: Path
    own: Path
    controllers: frozenset[str]
    version: int


def hierarchies(root: Path = ROOT) -> list[Hierarchy]:
    """Return the trees that are mounted here, our own group in each; none where /proc has no answer."""
    try:
        groups = _groups((root / "proc/self/cgroup").read_text())
        lines = (root / "proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        ours, _, kind = line.partition(" - ")
        kinds = kind.split()
        if not kinds or kinds[0] not in {"cgroup", "cgroup2"}:
            continue
        _, _, _, seen, point = ours.split()[:5]
        version = 2 if kinds[0] == "cgroup2" else 1
        controllers = frozenset(kinds[-1].split(",")) if version == 1 else frozenset[str]()
        group = next((groups[c] for c in (controllers or {""}) if c in groups), seen)
        mounted = root / point.lstrip("/")
        # A group outside what is mounted (a container without a namespace of its own): its top is ours.
        inside = group.removeprefix(seen.rstrip("/")) if group.startswith(seen) else ""
        found.append(Hierarchy(mounted, mounted / inside.lstrip("/"), controllers, version))
    return found


def with_controller(found: list[Hierarchy], name: str) -> Hierarchy | None:
    """Return the version 1 tree of a controller."""
    return next((h for h in found if name in h.controllers), None)


def unified(found: list[Hierarchy]) -> Hierarchy | None:
    """Return the version 2 tree."""
    return next((h for h in found if h.version == 2), None)


def _groups(text: str) -> dict[str, str]:
    groups = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            groups[controller] = path
    return groups
