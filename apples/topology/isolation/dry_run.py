"""An isolation backend without effect, for rehearsals and for tests of code that uses a backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from apples.topology.cpus import CpuSet
from apples.topology.isolation.backend import (
    CpuContainer,
    Guarantee,
    RememberedContainers,
)


class DryRun(RememberedContainers):
    """Containers of an imaginary machine.

    Parameters
    ----------
    cpus, mems
        The CPUs and memory nodes of the machine.
    reserved
        Name -> CPUs of foreign sets; may change between calls.

    Attributes
    ----------
    done
        All changes in order, as (verb, container).
    inside
        Name -> the admitted processes.
    stubborn
        Names of containers whose processes survive a kill.
    """

    title: ClassVar[str] = "dry-run"

    def __init__(
        self,
        cpus: CpuSet,
        mems: CpuSet | None = None,
        reserved: Mapping[str, CpuSet] | None = None,
    ) -> None:
        super().__init__(cpus)
        self._mems = mems or CpuSet.of([0])
        self.reserved = dict(reserved or {})
        self.done: list[tuple[str, str]] = []
        self.inside: dict[str, set[int]] = {}
        self.stubborn: set[str] = set()
        self.frozen: set[str] = set()

    def universe(self) -> tuple[CpuSet, CpuSet]:
        """Return the CPUs and memory nodes of the machine."""
        return self._mine, self._mems

    def sets(self) -> Mapping[str, CpuSet]:
        """Return `reserved`."""
        return dict(self.reserved)

    def fit(self, container: CpuContainer) -> Guarantee:
        """Store the container."""
        self.remember(container)
        self.done.append(("fit", container.name))
        return Guarantee.NONE

    def admit(self, name: str, process: int) -> None:
        """Store the process."""
        self.known(name)
        self.done.append(("admit", name))
        self.inside.setdefault(name, set()).add(process)

    def processes(self, name: str) -> frozenset[int]:
        """Return the admitted processes."""
        return frozenset(self.inside.get(name, ()))

    def freeze(self, name: str) -> None:
        """Record the freeze."""
        self.done.append(("freeze", name))
        self.frozen.add(name)

    def thaw(self, name: str) -> None:
        """Record the thaw."""
        self.done.append(("thaw", name))
        self.frozen.discard(name)

    def kill(self, name: str) -> None:
        """Forget the container's processes, unless it is stubborn."""
        self.done.append(("kill", name))
        if name not in self.stubborn:
            self.inside.pop(name, None)

    def remove(self, name: str) -> bool:
        """Forget the container if it has no process."""
        if self.inside.get(name):
            return False
        self.done.append(("remove", name))
        self.containers.pop(name, None)
        self.frozen.discard(name)
        return True
