"""An isolation backend that only remembers: for rehearsals, and for tests of everything that uses a backend."""

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
    """Containers of a machine that need not exist.

    Parameters
    ----------
    cpus, mems
        The CPUs and memory nodes of the machine.
    reserved
        Name -> CPUs of foreign sets; may be changed between two calls.

    Attributes
    ----------
    done
        Every change in order, as (verb, container).
    inside
        Name -> the processes that were admitted.
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
        """Remember the container."""
        self.remember(container)
        self.done.append(("fit", container.name))
        return Guarantee.NONE

    def admit(self, name: str, process: int) -> None:
        """Remember the process."""
        self.known(name)
        self.done.append(("admit", name))
        self.inside.setdefault(name, set()).add(process)

    def processes(self, name: str) -> frozenset[int]:
        """Return the processes that were admitted."""
        return frozenset(self.inside.get(name, ()))

    def freeze(self, name: str) -> None:
        """Record it."""
        self.done.append(("freeze", name))
        self.frozen.add(name)

    def thaw(self, name: str) -> None:
        """Record it."""
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
