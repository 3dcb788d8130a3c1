"""The state of the daemon, built from records. It is pure, so a replay of the journal gives the same state.

A record contains the changed allocations in full. So the next record of a job also repairs the loss of an earlier
one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from apples.topology.cpus import NO_CPUS, CpuSet
from apples.topology.isolation.backend import CpuContainer


class AllocationState(StrEnum):
    """The phase of an allocation."""

    RUNNING = "running"
    """The job has its CPUs and its container."""
    SUSPENDED = "suspended"
    """Its processes are stopped and its CPUs are free."""
    RELEASING = "releasing"
    """Its processes are being killed; its CPUs are not free yet."""
    QUARANTINED = "quarantined"
    """Its processes cannot be killed; its CPUs stay out of use until they are gone."""


class EndCondition(StrEnum):
    """The condition that ends an allocation which no client deallocates."""

    KEEPER = "keeper"
    """The end of the process that requested it."""
    EMPTY = "empty"
    """The end of the last process in it."""
    IDLE = "idle"
    """No process was in it for the claim time (60 s); so a job may end its processes and start others."""
    TOLD = "told"
    """None."""


@dataclass(frozen=True, slots=True)
class CpuAllocation:
    """The CPUs and the container of a job.

    Attributes
    ----------
    job
        Name of the job, chosen by its owner.
    number
        Number of the allocation, never reused; it distinguishes jobs of the same name.
    principal
        Its owner, for example ``uid:1000``.
    state
        Phase of the allocation.
    owns
        The CPUs of the allocation; the job runs on them while it shares with no other job.
    holds
        The CPUs that it runs on now: without CPUs lent to a guest, with borrowed CPUs.
    mems
        Memory nodes.
    exclusive
        CPUSET_CPU_EXCLUSIVE: never shared.
    least
        Minimum of CPUs; 0: the job cannot be resized (not malleable).
    requirement
        Requirement as text, for the resume.
    count
        Number of requested CPUs.
    until, keeper
        Its end condition, and the process that allocated it (number and start time).
    was
        While suspended: the CPUs it owned before.
    """

    job: str
    number: int
    principal: str
    state: AllocationState = AllocationState.RUNNING
    owns: CpuSet = NO_CPUS
    holds: CpuSet = NO_CPUS
    mems: CpuSet = NO_CPUS
    exclusive: bool = False
    least: int = 0
    requirement: str = ""
    count: int = 1
    until: EndCondition = EndCondition.TOLD
    keeper: str = ""
    was: CpuSet = NO_CPUS

    def container(self, mark: str) -> CpuContainer:
        """Return the container of the job's processes."""
        return CpuContainer(self.name(mark), self.holds, self.mems, self.exclusive)

    def name(self, mark: str) -> str:
        """Return the name of the container."""
        return f"topologyd-{mark}-{self.job}-{self.number}"

    def is_repeated_by(self, wanted: CpuAllocation) -> bool:
        """Whether a request for `wanted` repeats the request of this allocation."""
        names = ("principal", "requirement", "count", "least", "until")
        owned = self.until is not EndCondition.KEEPER or self.keeper == wanted.keeper
        return owned and all(getattr(self, name) == getattr(wanted, name) for name in names)

    @property
    def malleable(self) -> bool:
        """Whether the job can be resized while it runs."""
        return self.least > 0

    @property
    def taken(self) -> CpuSet:
        """The CPUs that are not free because of this job."""
        return self.owns | self.holds

    def change(self, **changes: Any) -> CpuAllocation:
        """Return a copy with some attributes changed."""
        return replace(self, **changes)

    def document(self) -> dict[str, Any]:
        """Return the allocation as a JSON object."""
        found: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            found[each.name] = str(value) if isinstance(value, CpuSet) else value
        return found

    @staticmethod
    def parse(document: dict[str, Any]) -> CpuAllocation:
        """Return the job of a `document`.

        Raises
        ------
        ValueError, KeyError, TypeError, UsageError
            The document is not an allocation.
        """
        sets = {name: CpuSet.parse(document[name]) for name in ("owns", "holds", "mems", "was")}
        rest = {
            **document,
            **sets,
            "state": AllocationState(document["state"]),
            "until": EndCondition(document["until"]),
        }
        return CpuAllocation(**rest)


Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AttachedRequirement:
    """The requirement of a job that has no CPUs yet.

    Attributes
    ----------
    requirement
        Text, for example ``CPUSET[MAX_RADIUS=1]``.
    principal
        Its owner.
    at
        Time of the request, in seconds since the epoch.
    """

    requirement: str
    principal: str
    at: float


@dataclass
class NodeState:
    """The jobs of a host, and the requirements of future jobs.

    Attributes
    ----------
    jobs
        Name -> `CpuAllocation`.
    attached
        Name of a future job -> `AttachedRequirement`. An allocation contains its own requirement.
    number
        The highest number of any allocation.
    boot
        Id of the machine's boot in which the jobs were started.
    """

    jobs: dict[str, CpuAllocation] = field(default_factory=dict)
    attached: dict[str, AttachedRequirement] = field(default_factory=dict)
    number: int = 0
    boot: str = ""

    def apply(self, record: Record) -> None:
        """Apply a record.

        Raises
        ------
        ValueError, KeyError, TypeError, UsageError
            The record is invalid. Nothing has changed.
        """
        jobs = {name: _job(name, document) for name, document in record.get("jobs", {}).items()}
        attached = {
            name: AttachedRequirement(**entry) for name, entry in record.get("attach", {}).items()
        }
        for name, job in jobs.items():
            self.attached.pop(name, None)
            if job is None:
                self.jobs.pop(name, None)
            else:
                self.jobs[name] = job
                self.number = max(self.number, job.number)
        self.number = max(self.number, record.get("number", 0))
        self.boot = str(record.get("boot", self.boot))
        self.attached |= attached
        for name in record.get("forget", ()):
            self.attached.pop(name, None)

    def records(self) -> list[Record]:
        """Return records that build this state from an empty one."""
        found: list[Record] = [{"do": "boot", "boot": self.boot, "number": self.number}]
        found += [{"do": "jobs", "jobs": {n: j.document()}} for n, j in self.jobs.items()]
        found += [{"do": "attach", "attach": {n: asdict(it)}} for n, it in self.attached.items()]
        return found


def taken(jobs: Iterable[CpuAllocation]) -> CpuSet:
    """Return the CPUs that are not free because of some jobs."""
    found = NO_CPUS
    for job in jobs:
        found |= job.taken
    return found


def _job(name: str, document: dict[str, Any] | None) -> CpuAllocation | None:
    if document is None:
        return None
    job = CpuAllocation.parse(document)
    if job.job != name:
        raise ValueError(f"a record of {job.job} under the name {name}")
    return job
