"""The jobs of a simulation as arrays, and the cleaning rules for a log's records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from apples.errors import UsageError
from apples.scheduling.instants import LATEST, PER_SECOND
from apples.scheduling.jobs import Job, JobKind
from apples.simulation.swf import Log
from apples.ui.units import counted, in_one_line

CLEANING = ("default", "predictsim")


@dataclass(frozen=True)
class Workload:
    """Jobs in order of (submit, id).

    Attributes
    ----------
    job
        Job numbers in the log.
    submit, run, requested
        Seconds. `run` is the time on `processors`; `requested` is at least `run`, unless limits kill.
    processors, minimum, maximum
        Requested processors; minimum and maximum of a malleable job.
    malleable
        Whether the scheduler may resize the job.
    attributes, names
        Further attributes for policies (`user`, `partition`, `qos`, `priority`) and for limits of partitions
        (`memory`, kilobytes per processor, and `gpus`) as numbers; unknown values are -1 (`priority`: 0). `names`
        has the names of the codes 1, 2, .. of a column.
    """

    job: NDArray[np.int64]
    submit: NDArray[np.float64]
    run: NDArray[np.float64]
    processors: NDArray[np.int64]
    requested: NDArray[np.float64]
    minimum: NDArray[np.int64]
    maximum: NDArray[np.int64]
    malleable: NDArray[np.bool_]
    attributes: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return the number of jobs."""
        return in_one_line(
            self, f"{counted(len(self.job), 'job')}, {int(self.malleable.sum())} malleable"
        )

    def __len__(self) -> int:
        return len(self.job)

    def take(self, chosen: NDArray[np.intp] | NDArray[np.bool_] | slice) -> Workload:
        """Return some of the jobs, in the order given."""
        columns = {name: getattr(self, name)[chosen] for name in COLUMNS}
        attributes = {name: column[chosen] for name, column in self.attributes.items()}
        return Workload(**columns, attributes=attributes, names=self.names)

    def jobs(self) -> list[Job]:
        """Return the jobs as values."""
        columns = (
            self.job, self.submit, self.processors, self.requested,
            self.minimum, self.maximum, self.malleable,
        )  # fmt: skip
        jobs = [
            Job(number, at, width, seconds, least, most,
                JobKind.MALLEABLE if soft else JobKind.RIGID)
            for number, at, width, seconds, least, most, soft in zip(
                *(column.tolist() for column in columns), strict=True
            )
        ]  # fmt: skip
        if not self.attributes.keys().isdisjoint(NAMED):
            said = zip(jobs, *map(self.words, NAMED), strict=True)
            jobs = [replace(job, user=u, partition=p, qos=q) for job, u, p, q in said]
        if "priority" in self.attributes:
            numbers = self.attributes["priority"].tolist()
            jobs = [replace(job, priority=one) for job, one in zip(jobs, numbers, strict=True)]
        if "exclusive" in self.attributes:
            alone = self.attributes["exclusive"].astype(bool).tolist()
            jobs = [
                replace(job, exclusive=True) if one else job
                for job, one in zip(jobs, alone, strict=True)
            ]
        return jobs

    @property
    def least(self) -> NDArray[np.int64]:
        """Fewest processors with enough memory and GPUs for each job, a limit for its resizes."""
        known = self.attributes.get("least")
        return np.ones(len(self), dtype=np.int64) if known is None else known.astype(np.int64)

    def words(self, name: str) -> list[str]:
        """Return a column as names; as numbers if the log has no names."""
        if name not in self.attributes:
            return [""] * len(self)
        known = self.names.get(name, ())
        return [
            "" if code < 0 else known[code - 1] if 0 < code <= len(known) else str(code)
            for code in self.attributes[name].astype(np.int64).tolist()
        ]


def instants(times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return times rounded to the microsecond, as `apples.scheduling.instants.instant` does."""
    if (np.rint(times) == times).all():  # nearly every log has whole seconds
        return times
    known = (times >= 0.0) & (times < LATEST)
    return np.where(known, np.rint(times * PER_SECOND) / PER_SECOND, times)


COLUMNS = ("job", "submit", "run", "processors", "requested", "minimum", "maximum", "malleable")
"""Columns that every workload has."""
ATTRIBUTES = {
    "user": "user", "partition": "partition", "qos": "queue", "memory": "requested_memory",
    "gpus": "gpus",
}  # fmt: skip
"""Optional attribute of a job -> its column in a log."""
NAMED = ("user", "partition", "qos")
"""Attributes of `ATTRIBUTES` that a policy can read."""


def _late(submit: NDArray[np.float64], number: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether each record but the first is before its predecessor in the order (submit, number)."""
    late: NDArray[np.bool_] = submit[1:] < submit[:-1]
    late |= (submit[1:] == submit[:-1]) & (number[1:] < number[:-1])
    return late


def rigid(
    submit: NDArray[np.float64],
    run: NDArray[np.float64],
    processors: NDArray[np.int64],
    requested: NDArray[np.float64],
    job: NDArray[np.int64] | None = None,
) -> Workload:
    """Return a workload of rigid jobs, sorted by (submit, id), with times rounded to the microsecond."""
    submit, requested, rounded = instants(submit), instants(requested), instants(run)
    if rounded is not run:
        run = np.where(rounded > 0.0, rounded, run)  # keep run times above 0
    number = np.arange(1, len(submit) + 1) if job is None else job
    if _late(submit, number).any():
        order = np.lexsort((number, submit))
        number, submit, processors = number[order], submit[order], processors[order]
        run, requested = run[order], requested[order]
    return Workload(
        job=number,
        submit=submit,
        run=run,
        processors=processors,
        requested=np.maximum(requested, run),
        minimum=processors,
        maximum=processors,
        malleable=np.zeros(len(submit), dtype=bool),
    )


@dataclass(frozen=True)
class Cleaning:
    """Changes by the cleaning rule: dropped records by reason, reordered records.

    `notes` has the changes by reading the log, and the columns that the simulation ignores.
    """

    dropped: Mapping[str, int] = field(default_factory=dict)
    reordered: int = 0
    raised: int = 0  # requests under the run time
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [f"dropped {count} ({reason})" for reason, count in self.dropped.items() if count]
        if self.reordered:
            parts.append(f"reordered {self.reordered}")
        if self.raised:
            parts.append(f"raised {self.raised} requests to the run time")
        parts += self.notes
        return ", ".join(parts)


def clean(
    log: Log,
    processors: int,
    rule: str = "default",
    strict: bool = False,
    looked_at: Sequence[str] = (),
    limits_kill: bool = False,
) -> tuple[Workload, Cleaning]:
    """Return the usable jobs, and the changes by cleaning.

    The processors of a job are its request, or its allocation if the request is unknown. A job without processors,
    without a run time, or larger than the machine is dropped. A request below the run time is raised to it; if
    limits kill, only an unknown request is. Under "predictsim" (Gaussier et al. 2015, "strong filter") the run
    time is cut to the request. Of several records with one number the first counts. The order is (submit, number);
    no time is shifted. `looked_at` are columns of `NOT_LOOKED_AT` that the simulation uses.

    Raises
    ------
    UsageError
        The rule is unknown, or no job remains. With `strict`, a record would be dropped or reordered; the error
        has the line of the first. Permanent.
    """
    if rule not in CLEANING:
        raise UsageError(
            f"cleaning rule {rule!r}: not one of {', '.join(CLEANING)}",
            code="value-unknown",
            option="clean",
            value=rule,
            known=[*CLEANING],
        )
    columns = log.columns
    asked, used = columns["requested_processors"], columns["allocated"]
    width = np.where(asked > 0, asked, used)
    run, request = columns["run"], columns["requested_time"]
    if rule == "predictsim":
        run = np.where(request > 0, np.minimum(run, request), run)
    keep, dropped = _usable(log, width, run, processors, strict)
    number, submit = columns["job"][keep].astype(np.int64), instants(columns["submit"][keep])
    late = _late(submit, number)
    if strict and late.any():
        _refuse(log, keep[late.argmax() + 1], "out of order of submission")
    if late.any():
        order = np.lexsort((number, submit))
        keep, number, submit = keep[order], number[order], submit[order]
    run, request, width = run[keep], request[keep], np.ceil(width[keep]).astype(np.int64)
    workload = replace(
        rigid(submit, run, width, request, number),
        attributes={
            name: columns[column][keep] for name, column in ATTRIBUTES.items() if column in columns
        },
        names={name: log.names.get(column, ()) for name, column in ATTRIBUTES.items()},
    )
    raised = int((request < run).sum())
    if limits_kill:
        known = request > 0
        raised = int((~known).sum())
        workload = replace(workload, requested=np.where(known, instants(request), workload.run))
    notes = (*log.notes, *_not_looked_at(log, keep, looked_at))
    return workload, Cleaning(dropped, int(late.sum()), raised, notes)


def _usable(
    log: Log,
    width: NDArray[np.float64],
    run: NDArray[np.float64],
    processors: int,
    strict: bool,
) -> tuple[NDArray[np.intp], dict[str, int]]:
    """Return the usable records, and the number of other records by reason."""
    if strict and log.damaged.count:
        raise UsageError(
            f"{log.damaged.first} (--strict)",
            code="rows-damaged",
            **log.damaged.place,
            value=log.damaged.count,
        )
    reasons = {
        "no processors": width <= 0,
        "no run time": run <= 0,
        f"more than {processors} processors": width > processors,
    }
    bad = np.zeros(len(log), dtype=bool)
    dropped = {}
    for reason, match in reasons.items():
        if strict and match.any():
            _refuse(log, match.argmax(), reason)
        dropped[reason] = int((match & ~bad).sum())
        bad |= match
    keep = np.flatnonzero(~bad)
    again, reason = _repeated(log.columns["job"][keep]), "the number of an earlier job"
    if strict and again.any():
        _refuse(log, keep[again.argmax()], reason)
    dropped[reason] = int(again.sum())
    keep = keep[~again]
    if not len(keep):
        raise UsageError(
            f"{log.source}: no job can run on {processors} processors",
            code="no-job-fits",
            log=log.source,
            processors=processors,
        )
    return keep, dropped


def _refuse(log: Log, record: np.intp, why: str) -> NoReturn:
    """Raise the error of a strict run for a record of its log."""
    raise UsageError(
        f"{log.source}:{log.lines[record]}: {why} (--strict)",
        code="record-unusable",
        file=log.source,
        line=int(log.lines[record]),
        reason=why,
    )


#: Column of a log -> the property of a job that a simulation ignores.
NOT_LOOKED_AT = {
    "gpus": "ask for GPUs",
    "priority": "have a priority",
    "preceding": "wait for another job's end",
    "requested_memory": "ask for memory",
}


def _not_looked_at(log: Log, keep: NDArray[np.intp], looked_at: Sequence[str]) -> Iterator[str]:
    """Yield notes with the number of jobs that have a property which this simulation ignores."""
    columns = {**log.noticed, **log.columns}
    for name, what in NOT_LOOKED_AT.items():
        found = name in columns and name not in looked_at
        count = int((columns[name][keep] > 0).sum()) if found else 0
        if count:
            yield f"{count} jobs {what}: not looked at"
    if "partition" in columns and "partition" not in looked_at:
        partitions = len(np.unique(columns["partition"][keep]))
        if partitions > 1:
            yield f"{partitions} partitions taken as one"


def with_priorities(workload: Workload, log: Log, factors: Mapping[str, float]) -> Workload:
    """Return the workload with the priorities of its log.

    With `factors` (name or number -> priority), these are the priorities of the queues or qualities of service;
    otherwise sacct's ``Priority``, otherwise the numbers of SWF's queues. An unknown priority is 0.

    Raises
    ------
    UsageError
        The log has no priorities. Permanent.
    """
    queues = workload.attributes.get("qos")
    if factors:
        found = np.array([factors.get(word, 0.0) for word in workload.words("qos")])
    elif "priority" in log.columns:
        first = dict(
            zip(log.columns["job"][::-1].tolist(), log.columns["priority"][::-1], strict=True)
        )
        found = np.array([first[number] for number in workload.job.tolist()])
    elif queues is not None and not workload.names.get("qos"):
        found = queues
    else:
        raise UsageError(
            f"{log.source}: has no priorities (sacct's column Priority, SWF's numbers of queues): "
            "--option priorities=NAME:NUMBER,.. gives them to qualities of service",
            code="priorities-missing",
            file=log.source,
        )
    attributes = {**workload.attributes, "priority": np.maximum(found, 0.0)}
    return replace(workload, attributes=attributes)


def dependencies_of(
    log: Log, workload: Workload
) -> tuple[dict[int, tuple[int, float]], Counter[str]]:
    """Return job -> (predecessor, seconds of delay after it), and the number of ignored dependencies by reason.

    A predecessor that is not among the jobs counts as ended. Dependencies in a cycle are ignored.
    """
    columns, counts = log.columns, Counter[str]()
    present = set(workload.job.tolist())
    think = columns.get("think_time", np.zeros(len(log)))
    before = columns["preceding"]
    asked = {
        number: (first, max(0.0, seconds))
        for number, first, seconds in zip(
            *(column[before > 0].tolist() for column in (columns["job"], before, think)),
            strict=True,
        )
        if number in present
    }
    found = {}
    for number, (first, seconds) in asked.items():
        if first in present:
            found[int(number)] = int(first), seconds
        else:
            counts["jobs after one that is not among them: they do not wait"] += 1
    settled: set[int] = set()
    for number in list(found):
        path: dict[int, None] = {}
        at = number
        while at in found and at not in settled and at not in path:
            path[at] = None
            at = found[at][0]
        if at in path:
            ring = list(path)[list(path).index(at) :]
            counts["jobs that wait for one another in a ring: they do not wait"] += len(ring)
            for one in ring:
                del found[one]
        settled.update(path)
    return found, counts


def _repeated(numbers: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return whether each entry occurred before."""
    if (numbers[1:] > numbers[:-1]).all():  # most logs have rising numbers: no need to sort them
        return np.zeros(len(numbers), dtype=bool)
    repeated = np.ones(len(numbers), dtype=bool)
    repeated[np.unique(numbers, return_index=True)[1]] = False
    return repeated


def mark_malleable(
    workload: Workload,
    fraction: float,
    seed: int,
    *,
    minimum: float = 0.5,
    maximum: float = 1.0,
    most: int | None = None,
) -> Workload:
    """Return the workload with a random fraction of its jobs malleable.

    Sets of one seed are nested: a job that is malleable at 0.2 is malleable at 0.3.

    Parameters
    ----------
    fraction
        Fraction of the jobs, in [0, 1].
    minimum, maximum
        Bounds of a malleable job as multiples of its requested processors (at least 1 processor, at most `most`,
        those of the machine).
    """
    if not 0 <= fraction <= 1:
        raise UsageError(
            f"malleable fraction {fraction:g} lies outside 0..1",
            code="value-range",
            option="--malleable-fraction",
            value=fraction,
            bound=[0, 1],
        )
    if not 0 < minimum <= 1 <= maximum < np.inf:
        raise UsageError(
            f"bounds {minimum:g}..{maximum:g} must hold 1 and be positive",
            code="value-range",
            field="minimum",
            value=[minimum, maximum],
            bound=1,
        )
    chosen = np.random.default_rng(seed).random(len(workload)) < fraction
    width = workload.processors
    least = np.maximum(1, np.ceil(width * minimum)).astype(np.int64)
    upper = np.minimum(np.floor(width * maximum), 2.0**62 if most is None else most)
    return replace(
        workload,
        malleable=chosen,
        minimum=np.where(chosen, least, width),
        maximum=np.where(chosen, np.maximum(upper.astype(np.int64), width), width),
    )


def slice_jobs(workload: Workload, begin: float = -np.inf, end: float = np.inf) -> Workload:
    """Return the jobs submitted in [begin, end) seconds of the log."""
    return workload.take((workload.submit >= begin) & (workload.submit < end))
