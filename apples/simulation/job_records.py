"""Collect the jobs of an accounting log while it is read, and build their `Log`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from apples.errors import UsageError
from apples.simulation.swf import DamagedRows, Log


@dataclass
class JobRecord:
    """One record, or the joined records of a heterogeneous job's components."""

    line: int
    number: int
    submit: float
    start: float
    end: float
    limit: float
    allocated: float
    asked: float
    status: float
    values: dict[str, float]
    duration: float = -1.0
    """Run time if the log has no start and no end."""

    def join(self, other: JobRecord) -> None:
        """Add a component: the processors of both, from the first start to the last end."""
        self.submit = min(self.submit, other.submit)
        started = [at for at in (self.start, other.start) if at >= 0]
        self.start = min(started, default=-1.0)
        self.end = max(self.end, other.end)
        self.limit = max(self.limit, other.limit)
        self.allocated += max(0.0, other.allocated)
        self.asked += max(0.0, other.asked)
        self.values["gpus"] = self.values.get("gpus", 0.0) + other.values.get("gpus", 0.0)

    @property
    def processors(self) -> float:
        """The processors that the job occupied, or requested if it has no allocation.

        Slurm allocates more than requested, for example whole nodes with ``--exclusive``.
        """
        return self.allocated if self.allocated > 0 else self.asked

    @property
    def run(self) -> float:
        """The run time in seconds; -1 if unknown."""
        return self.end - self.start if self.start >= 0 and self.end >= 0 else self.duration


@dataclass
class JobRecords:
    """The jobs of a log while it is read, by number, in order of their first record."""

    jobs: dict[int, JobRecord] = field(default_factory=dict)
    names: dict[str, dict[str, int]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    components: dict[str, dict[str, JobRecord]] = field(default_factory=dict)
    """Heterogeneous job -> component number -> last run of the component."""

    def add(self, job: JobRecord, name: str) -> None:
        """Add a record; `name` is sacct's ``JobID``, if present."""
        base, plus, component = name.partition("+")
        if plus and base.isdigit():
            parts = self.components.setdefault(base, {})
            known = next(iter(parts), None)
            if component not in parts:
                self.counts["components of heterogeneous jobs joined"] += 1
            elif component == known:
                self.counts["earlier runs of requeued jobs left out"] += 1
            parts[component] = job
            if known is not None:
                return
        if job.number in self.jobs:  # `--duplicates`: the same job, requeued; its last run counts
            self.counts["earlier runs of requeued jobs left out"] += 1
            del self.jobs[job.number]
        self.jobs[job.number] = job

    def join_components(self) -> None:
        """Join the last runs of the components of each heterogeneous job into one job."""
        for parts in self.components.values():
            first, *others = parts.values()
            for other in others:
                first.join(other)
            self.jobs[first.number] = first
        self.components.clear()

    def code(self, column: str, name: str) -> float:
        """Return the number of a name, in the order of first occurrence from 1."""
        known = self.names.setdefault(column, {})
        return float(known.setdefault(name, len(known) + 1)) if name else -1.0


def log_of(
    records: JobRecords, damaged: DamagedRows, sha256: str, source: str, header: Sequence[str] = ()
) -> Log:
    """Return the log of all jobs; raise `UsageError` for too many damaged rows or no job."""
    records.join_components()
    jobs = list(records.jobs.values())
    damaged.judge(len(jobs))
    if not jobs:
        raise UsageError(f"{source}: holds no job records", code="log-empty", file=source)
    _set_limits(jobs, records)
    more = {name for job in jobs for name in job.values}
    plain: Mapping[str, Callable[[JobRecord], float]] = {
        "job": lambda job: float(job.number),
        "submit": lambda job: job.submit,
        "run": lambda job: job.run,
        "wait": lambda job: job.start - job.submit if job.start >= 0 else -1.0,
        "requested_time": lambda job: job.limit,
        "allocated": lambda job: job.allocated,
        "requested_processors": lambda job: job.processors,
        "status": lambda job: job.status,
    }
    table = {name: np.array([value(job) for job in jobs]) for name, value in plain.items()}
    table |= {
        name: np.array([job.values.get(name, -1.0) for job in jobs]) for name in sorted(more)
    }
    return Log(
        columns=table,
        lines=np.array([job.line for job in jobs], dtype=np.int64),
        header=tuple(header),
        source=source,
        sha256=sha256,
        damaged=damaged,
        notes=(*damaged.notes(), *(f"{count} {what}" for what, count in records.counts.items())),
        names={column: tuple(known) for column, known in records.names.items()},
    )


def _set_limits(jobs: Sequence[JobRecord], records: JobRecords) -> None:
    """Give jobs without a known limit the longest limit of their partition, or of the log."""
    # Slurm plans with the partition's limit. The run time as an estimate would be perfect and would favour
    # backfilling.
    longest: dict[float, float] = {}
    for job in jobs:
        partition = job.values.get("partition", -1.0)
        longest[partition] = max(longest.get(partition, -1.0), job.limit)
    most = max(longest.values())
    for job in jobs:
        if job.limit < 0:
            own = longest[job.values.get("partition", -1.0)]
            job.limit = own if own >= 0 else most
            what = "of its partition" if own >= 0 else "of the log"
            records.counts[
                f"jobs without a limit: the longest {what} counts"
                if job.limit >= 0
                else "jobs without a limit, as all are: their run time counts"
            ] += 1
