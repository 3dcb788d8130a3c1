"""An isolation backend that only remembers: for rehearsals, and for tests of everything that uses a backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from apples.topology.cpus import CpuSet
from apples.topology.isolation.backend import (
    CpuContainer,
    Guarantee,
    IsolationBackend,
    IsolationError,
)


class DryRun(IsolationBackend):
    """Containers of a machine that need not exist.

    Parameters
    ----------
    cpus, mems
        What the machine is said to have.
    reserved
        Name -> CPUs of foreign sets; may be changed between two calls.

    Attributes
    ----------
    done
        Every change in order, as (verb, container).
    containers
        Name -> `CpuContainer`.
    inside
        Name -> processes said to be in it.
    stubborn
        Names whose processes do not die.
    """

    title: ClassVar[str] = "dry-run"

    def __init__(
        self,
        cpus: CpuSet,
        mems: CpuSet | None = None,
        reserved: Mapping[str, CpuSet] | None = None,
    ) -> None:
        self._cpus, self._mems = cpus, mems or CpuSet.of([0])
        self.reserved = dict(reserved or {})
        self.done: list[tuple[str, str]] = []
        self.containers: dict[str, CpuContainer] = {}
        self.inside: dict[str, set[int]] = {}
        self.stubborn: set[str] = set()
        self.frozen: set[str] = set()

    def universe(self) -> tuple[CpuSet, CpuSet]:
        """Return what was said."""
        return self._cpus, self._mems

    def sets(self) -> Mapping[str, CpuSet]:
        """Return `reserved`."""
        return dict(self.reserved)

    def names(self) -> frozenset[str]:
        """Return the containers."""
        return frozenset(self.containers)

    def fit(self, container: CpuContainer) -> Guarantee:
        """Remember the container."""
        if not container.cpus <= self._cpus or not container.cpus:
            raise IsolationError(
                f"{container.name}: no such CPU on this machine",
                code="cpus-not-ours",
                container=container.name,
                cpus=str(container.cpus),
                known=str(self._cpus),
            )
        self.done.append(("fit", container.name))
        self.containers[container.name] = container
        return Guarantee.NONE

    def cpus(self, name: str) -> CpuSet:
        """Return what is remembered."""
        return self.containers[name].cpus if name in self.containers else CpuSet()

    def admit(self, name: str, process: int) -> None:
        """Remember the process."""
        if name not in self.containers:
            raise IsolationError(
                f"there is no container {name}", code="container-unknown", container=name
            )
        self.done.append(("admit", name))
        self.inside.setdefault(name, set()).add(process)

    def processes(self, name: str) -> frozenset[int]:
        """Return what is remembered."""
        return frozenset(self.inside.get(name, ()))

    def freeze(self, name: str) -> None:
        """Remember it."""
        self.done.append(("freeze", name))
        self.frozen.add(name)

    def thaw(self, name: str) -> None:
        """Remember it."""
        self.done.append(("thaw", name))
        self.frozen.discard(name)

    def kill(self, name: str) -> None:
        """Forget its processes, unless it is stubborn."""
        self.done.append(("kill", name))
        if name not in self.stubborn:
            self.inside.pop(name, None)

    def remove(self, name: str) -> bool:
        """Forget the container if no process is in it."""
        if self.inside.get(name):
            return False
        self.done.append(("remove", name))
        self.containers.pop(name, None)
        self.frozen.discard(name)
        return True
