"""`NodeLedger`: allocations on disk, in memory and in the kernel; every change goes through `commit`.

The order is always the same: first the record is on the disk, then the kernel is changed, then the answer is
sent. Changes of the kernel may be repeated, so recovery applies all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from apples.errors import ApplesError, UsageError, coded
from apples.io.folder import Folder
from apples.io.journal import Journal
from apples.topology.cpus import NO_CPUS, CpuSet
from apples.topology.daemon.state import AllocationState, CpuAllocation, NodeState, Record, taken
from apples.topology.isolation.backend import Guarantee, IsolationBackend, IsolationError
from apples.topology.machine import Topology


@dataclass(frozen=True, slots=True)
class DaemonOptions:
    """Limits and times of one daemon.

    Attributes
    ----------
    sharing_factor
        The part of a malleable job's own CPUs that others may take.
    kill_seconds
        Seconds of killing a job's processes before its CPUs go to quarantine.
    claim_seconds
        Seconds after which an allocation without any process is released.
    watch_seconds
        Seconds between two checks of foreign sets, orphans, quarantine and strays.
    most_jobs, most_cpus
        Limits of one principal; the operator has none.
    reserved
        CPUs that are never allocated.
    ignored
        Patterns (`fnmatch`) of paths of foreign sets that are ignored.
    mandatory, default
        The site's requirements, merged with the job's key by key.

    Raises
    ------
    UsageError
        A value out of range. Permanent.
    """

    sharing_factor: float = 0.5
    kill_seconds: float = 2.0
    claim_seconds: float = 60.0
    watch_seconds: float = 1.0
    most_jobs: int = 256
    most_cpus: int = 1 << 16
    reserved: CpuSet = NO_CPUS
    ignored: tuple[str, ...] = ()
    mandatory: str = ""
    default: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.sharing_factor < 1:
            raise UsageError(
                f"sharing factor: must be at least 0 and below 1 (is {self.sharing_factor})",
                code="value-range",
                field="sharing_factor",
                value=self.sharing_factor,
                bound=1,
            )
        for name in ("kill_seconds", "claim_seconds", "watch_seconds"):
            if not 0.01 <= getattr(self, name) <= 86_400:
                raise UsageError(
                    f"{name}: must be from 0.01 to 86400 (is {getattr(self, name)})",
                    code="value-range",
                    field=name,
                    value=getattr(self, name),
                    bound=[0.01, 86_400],
                )


MAX_PROBLEMS: Final = 200
JOURNAL: Final = "apples.topologyd-journal/1"
"""Format of the daemon's journal."""
MARK: Final = 8
"""Digits of the identity in the names of containers."""
SLACK: Final = 1000
SLACK_BYTES: Final = 1 << 25
"""Records, and bytes, of the journal beyond those of the state, after which it is rewritten."""


class NodeLedger:
    """The CPUs of each job of a host, on disk and in the kernel.

    Parameters
    ----------
    topology
        The machine.
    isolation
        The isolation backend.
    folder
        Directory of the journal.
    identity
        Identity of that directory (`identity_of`); its first digits mark the containers of this daemon.
    clock
        Returns seconds since the epoch.
    slack_bytes
        Bytes of the journal beyond the size of the state, after which it is rewritten.

    Attributes
    ----------
    version
        Version of the free map; each change increments it. A restart of the daemon resets it and changes `epoch`.
    problems
        Messages for the operator, the newest last.
    unfitted
        Jobs whose containers differ from the ledger, because the kernel refused a change. The watch retries.
    """

    def __init__(
        self,
        topology: Topology,
        isolation: IsolationBackend,
        folder: Folder,
        identity: str,
        options: DaemonOptions | None = None,
        *,
        clock: Callable[[], float] = time.time,
        slack_bytes: int = SLACK_BYTES,
    ) -> None:
        self.topology = topology
        self.isolation = isolation
        self.options = options or DaemonOptions()
        self.clock = clock
        self._slack_bytes = slack_bytes
        self.state = NodeState()
        # Not SQLite: the state is a few kB with one writer, tests kill the daemon at each step, and
        # the unit can be confined more tightly without a database.
        self.journal = Journal(folder, JOURNAL)
        self.mark = identity[:MARK]
        self.guarantees: dict[str, Guarantee] = {}
        self.problems: list[str] = []
        self.unfitted: set[str] = set()
        self.version = 0
        self.epoch = time.time_ns()
        self._universe = NO_CPUS
        self._mems = NO_CPUS
        self._foreign: Mapping[str, CpuSet] = {}
        self.rescan()

    @property
    def universe(self) -> CpuSet:
        """CPUs that may be allocated: known, allowed and not reserved."""
        return (self._universe & self.topology.cpus) - self.options.reserved

    @property
    def mems(self) -> CpuSet:
        """Memory nodes that this process may use."""
        return self._mems

    @property
    def foreign(self) -> Mapping[str, CpuSet]:
        """Path -> CPUs of each foreign set."""
        return self._foreign

    @property
    def free(self) -> CpuSet:
        """CPUs outside all jobs and foreign sets."""
        found = self.universe - taken(self.state.jobs.values())
        for held in self._foreign.values():
            found -= held
        return found

    def rescan(self) -> None:
        """Read the usable CPUs and the foreign cpusets again."""
        universe, mems = self.isolation.universe()
        ours = f"topologyd-{self.mark}-"
        sets = self.isolation.sets()
        foreign = {
            path: cpus
            for path, cpus in sets.items()
            if not path.rpartition("/")[2].startswith(ours)
            and not any(fnmatchcase(path, pattern) for pattern in self.options.ignored)
        }
        if (universe, foreign) != (self._universe, self._foreign):
            self.version += 1
        self._universe, self._mems, self._foreign = universe, mems, foreign
        for path, held in foreign.items():
            for job in self.state.jobs.values():
                if held & job.holds:
                    self.report(f"CPUs {held & job.holds} of {job.job} are in the set {path} too")

    def commit(self, jobs: Mapping[str, CpuAllocation | None], **more: Any) -> None:
        """Record the new state of some jobs (None: ended), with further fields of the record.

        Raises
        ------
        JournalError
            The journal cannot be written. Nothing has changed.
        """
        record: Record = {
            "do": "jobs",
            "jobs": {n: None if j is None else j.document() for n, j in jobs.items()},
            **more,
        }
        self.record(record)
        if jobs:
            self.version += 1

    def record(self, record: Record) -> None:
        """Write a record and apply it."""
        if not self.journal.whole:
            self.journal.rewrite(self.state.records())
        self.journal.append(record)
        self.state.apply(record)
        journal = self.journal
        entries = len(self.state.jobs) + len(self.state.attached)
        if (
            journal.lines > SLACK + 2 * entries
            or journal.bytes > self._slack_bytes + 2 * journal.least_bytes
        ):
            try:
                self.journal.rewrite(self.state.records())
            except ApplesError as error:
                self.report(str(error))  # the record is on the disk; the next commit retries

    def fit(self, names: Iterable[str]) -> None:
        """Change the containers of some jobs to match the ledger: first shrink containers, then grow them.

        Raises
        ------
        IsolationError
            The kernel refused a change; the other containers are changed.
        """
        found = (self.state.jobs.get(name) for name in names)
        jobs = [job for job in found if job is not None and job.state is AllocationState.RUNNING]
        refused: IsolationError | None = None
        # First pass: every job leaves the CPUs that it loses. Second pass: every job gets its new CPUs. Between
        # the passes a CPU may be idle, but no CPU has two jobs at any moment.
        for job in jobs:
            here = self.isolation.cpus(job.name(self.mark))
            if here and not here <= job.holds and here & job.holds:
                refused = self._fitted(job.change(holds=here & job.holds)) or refused
        for job in jobs:
            why = self._fitted(job)
            (self.unfitted.add if why else self.unfitted.discard)(job.job)
            refused = why or refused
        if refused:
            raise IsolationError(str(refused), **coded(refused))

    def refit(self, names: Iterable[str]) -> None:
        """Do the same as `fit` without a waiting client: report a refusal; the watch retries."""
        try:
            self.fit(names)
        except IsolationError as error:
            self.report(str(error))

    def _fitted(self, job: CpuAllocation) -> IsolationError | None:
        """Change the job's container; return the refusal without its traceback, which would make a cycle."""
        try:
            self.guarantees[job.job] = self.isolation.fit(job.container(self.mark))
        except (IsolationError, OSError) as error:
            return IsolationError(str(error), **coded(error))
        return None

    def report(self, problem: str) -> None:
        """Add a message for the operator, once."""
        if problem not in self.problems:
            self.problems = [*self.problems[1 - MAX_PROBLEMS :], problem]

    def containers(self) -> frozenset[str]:
        """Return the names of the containers with this daemon's mark."""
        ours = f"topologyd-{self.mark}-"
        return frozenset(name for name in self.isolation.names() if name.startswith(ours))


def boot() -> str:
    """Return the id of this start of the machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"
