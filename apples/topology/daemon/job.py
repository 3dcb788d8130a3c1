"""`Job`: what the daemon knows of one allocation; a value, written to the journal whole."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from apples.topology.cpus import NO_CPUS, CpuSet
from apples.topology.fence import Pen


class JobState(StrEnum):
    """Where an allocation is in its life."""

    RUNNING = "running"
    """It has its CPUs and its pen."""
    SUSPENDED = "suspended"
    """Its processes are stopped and its CPUs are given back."""
    RELEASING = "releasing"
    """Its processes are being killed; its CPUs are not free yet."""
    QUARANTINED = "quarantined"
    """They could not be killed: its CPUs stay out of use until they are gone."""


class Until(StrEnum):
    """What ends an allocation that nobody deallocates."""

    KEEPER = "keeper"
    """The end of the process that asked for it."""
    EMPTY = "empty"
    """The end of the last process in it."""
    TOLD = "told"
    """Nothing."""


@dataclass(frozen=True, slots=True)
class Job:
    """One allocation.

    Attributes
    ----------
    job
        The name its owner chose.
    number
        Of the allocation: never used twice, so that a job of the same name is another.
    principal
        Whose it is: ``uid:1000`` or ``token:ada``.
    state
        Where it is in its life.
    owns
        The CPUs it was given: what it has when nobody shares with it.
    holds
        The CPUs it runs on now: less while a guest has some, and what is borrowed.
    mems
        Memory nodes.
    exclusive
        CPUSET_CPU_EXCLUSIVE: never shared.
    least
        CPUs it cannot do without; 0: it cannot be resized (not malleable).
    requirement
        As it was given, for the resume.
    count
        CPUs asked for.
    until, keeper
        What ends it, and the process (number and start) that asked for it.
    was
        While suspended: the CPUs it owned.
    """

    job: str
    number: int
    principal: str
    state: JobState = JobState.RUNNING
    owns: CpuSet = NO_CPUS
    holds: CpuSet = NO_CPUS
    mems: CpuSet = NO_CPUS
    exclusive: bool = False
    least: int = 0
    requirement: str = ""
    count: int = 1
    until: Until = Until.TOLD
    keeper: str = ""
    was: CpuSet = NO_CPUS

    def pen(self, mark: str) -> Pen:
        """Return where its processes may run."""
        return Pen(self.name(mark), self.holds, self.mems, self.exclusive)

    def name(self, mark: str) -> str:
        """Return the name of its pen."""
        return f"topologyd-{mark}-{self.job}-{self.number}"

    @property
    def malleable(self) -> bool:
        """Whether it can be resized while it runs."""
        return self.least > 0

    @property
    def taken(self) -> CpuSet:
        """What is not free because of it."""
        return self.owns | self.holds

    def change(self, **changes: Any) -> Job:
        """Return it with some attributes changed."""
        return replace(self, **changes)

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        found: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            found[field.name] = str(value) if isinstance(value, CpuSet) else value
        return found

    @staticmethod
    def parse(document: dict[str, Any]) -> Job:
        """Return the job of a `document`.

        Raises
        ------
        ValueError, KeyError, TypeError, UsageError
            It is none.
        """
        sets = {name: CpuSet.parse(document[name]) for name in ("owns", "holds", "mems", "was")}
        rest = {
            **document,
            **sets,
            "state": JobState(document["state"]),
            "until": Until(document["until"]),
        }
        return Job(**rest)
