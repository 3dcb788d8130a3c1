"""A fence that does nothing but remember: for rehearsals and for tests of all that stands on a fence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from apples.topology.cpus import CpuSet
from apples.topology.fence import Fence, FenceError, Guarantee, Pen


class DryRun(Fence):
    """Pens of a machine that need not exist.

    Parameters
    ----------
    cpus, mems
        What the machine is said to have.
    reserved
        Name -> CPUs of foreign sets; may be changed between two calls.

    Attributes
    ----------
    done
        Every change in order, as (verb, pen).
    pens
        Name -> `Pen`.
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
        self.pens: dict[str, Pen] = {}
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
        """Return the pens."""
        return frozenset(self.pens)

    def fit(self, pen: Pen) -> Guarantee:
        """Remember the pen."""
        if not pen.cpus <= self._cpus or not pen.cpus:
            raise FenceError(f"{pen.name}: no such CPU on this machine")
        self.done.append(("fit", pen.name))
        self.pens[pen.name] = pen
        return Guarantee.NONE

    def cpus(self, name: str) -> CpuSet:
        """Return what is remembered."""
        return self.pens[name].cpus if name in self.pens else CpuSet()

    def admit(self, name: str, process: int) -> None:
        """Remember the process."""
        if name not in self.pens:
            raise FenceError(f"there is no pen {name}")
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
        """Forget the pen if nobody is in it."""
        if self.inside.get(name):
            return False
        self.done.append(("remove", name))
        self.pens.pop(name, None)
        self.frozen.discard(name)
        return True
