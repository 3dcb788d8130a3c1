"""Read what Slurm's accounting says of past jobs: the output of ``sacct --parsable2``.

Reference: the manual page of sacct; its dates are local time without an offset.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf, isfinite

import numpy as np

from apples.errors import UsageError
from apples.simulation.packed import LogText
from apples.simulation.swf import MOST, DamagedRows, Log, RowError

FIELDS = ("JobIDRaw", "Submit", "Start", "End", "Timelimit", "AllocCPUS", "ReqCPUS", "State")
"""Columns that a log cannot do without."""
NOT_YET = frozenset({"", "Unknown", "None", "N/A"})
UNLIMITED = frozenset({"", "UNLIMITED", "Partition_Limit", "INVALID"})
MULTIPLES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
STATUS = {"COMPLETED": 1.0, "CANCELLED": 5.0}
"""Of SWF: 1 completed, 5 cancelled, 0 failed."""

_MEMORY = re.compile(r"([0-9.]+)([KMGTP]?)([nc]?)")
_GPU = re.compile(r"gres/gpu(?::[^=,]+)?=(\d+)")
_AFTER = re.compile(r"(?:--dependency[= ]|(?:^|\s)-d ?)\s*(\S+)")


@dataclass
class _Job:
    """One record, or several that ran as one: a heterogeneous job's components."""

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

    def join(self, other: _Job) -> None:
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
    def run(self) -> float:
        return self.end - self.start if self.start >= 0 and self.end >= 0 else -1.0


@dataclass
class _Records:
    """The jobs of a log while it is read, by number, in order of their first record."""

    jobs: dict[int, _Job] = field(default_factory=dict)
    names: dict[str, dict[str, int]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    components: dict[str, int] = field(default_factory=dict)

    def add(self, job: _Job, name: str) -> None:
        """Enter a record; `name` is what sacct calls ``JobID``, where it is there."""
        base, plus, _ = name.partition("+")
        if plus and base.isdigit():
            self.counts["components of heterogeneous jobs joined"] += 1
            if base in self.components:
                self.jobs[self.components[base]].join(job)
                return
            self.components[base] = job.number
        if job.number in self.jobs:  # `--duplicates`: the same job, requeued; its last run counts
            self.counts["earlier runs of requeued jobs left out"] += 1
            del self.jobs[job.number]
        self.jobs[job.number] = job

    def code(self, column: str, name: str) -> float:
        """Return the number of a name: 1 for the first that is met."""
        known = self.names.setdefault(column, {})
        return float(known.setdefault(name, len(known) + 1)) if name else -1.0


def read_sacct(text: LogText, pieces: Iterator[bytes], source: str) -> Log:
    """Return the jobs of ``sacct --parsable2`` with at least the columns `FIELDS`.

    Job steps are left out; the components of a heterogeneous job are one job where the column
    ``JobID`` tells them; of a requeued job the last run counts. A limit that is not known
    (UNLIMITED, INVALID, the partition's) is the longest of its partition, or of the log. ``Partition``,
    ``QOS``, ``User``, ``Priority``, ``ReqMem``, ``ReqTRES``, ``AllocTRES``, ``Eligible`` and the dependencies
    in ``SubmitLine`` are read where they are there. Times are seconds since 1970. One without an offset, as
    sacct writes local time, is read as UTC: use ``TZ=UTC sacct`` where that matters.

    Raises
    ------
    UsageError
        A missing column; more damaged rows than `DamagedRows` lets pass. Permanent.
    """
    lines = _lines(pieces)
    _, header = next(lines)
    columns = header.split("|")
    missing = [name for name in FIELDS if name not in columns]
    if missing:
        raise UsageError(
            f"{source}:1: sacct columns missing: {', '.join(missing)}",
            code="columns-missing",
            file=source,
            line=1,
            columns=missing,
        )
    at = {name: place for place, name in enumerate(columns)}
    records, damaged = _Records(), DamagedRows(source)
    for number, line in lines:
        words = line.split("|")
        if not line.strip() or "." in words[at["JobIDRaw"] if len(words) > at["JobIDRaw"] else 0]:
            continue
        if len(words) != len(columns):
            damaged.add(
                number,
                RowError(
                    "columns-differ", f"{len(words)} columns where the header has {len(columns)}"
                ),
                len(records.jobs),
            )
            continue
        given = {name: words[place] for name, place in at.items()}
        try:
            records.add(_job(given, number, records), given.get("JobID", ""))
        except ValueError as error:
            row_error = (
                error if isinstance(error, RowError) else RowError("value-invalid", str(error))
            )
            damaged.add(number, row_error, len(records.jobs))
    return _log(records, damaged, text, source)


def _log(records: _Records, damaged: DamagedRows, text: LogText, source: str) -> Log:
    jobs = list(records.jobs.values())
    damaged.judge(len(jobs))
    if not jobs:
        raise UsageError(f"{source}: holds no job records", code="log-empty", file=source)
    _set_limits(jobs, records)
    more = {name for job in jobs for name in job.values}
    plain: Mapping[str, Callable[[_Job], float]] = {
        "job": lambda job: float(job.number),
        "submit": lambda job: job.submit,
        "run": lambda job: job.run,
        "wait": lambda job: job.start - job.submit if job.start >= 0 else -1.0,
        "requested_time": lambda job: job.limit,
        "allocated": lambda job: job.allocated,
        "requested_processors": lambda job: job.asked,
        "status": lambda job: job.status,
    }
    table = {name: np.array([value(job) for job in jobs]) for name, value in plain.items()}
    table |= {
        name: np.array([job.values.get(name, -1.0) for job in jobs]) for name in sorted(more)
    }
    return Log(
        columns=table,
        lines=np.array([job.line for job in jobs], dtype=np.int64),
        source=source,
        sha256=text.sha256,
        damaged=damaged,
        notes=(*damaged.notes(), *(f"{count} {what}" for what, count in records.counts.items())),
        names={column: tuple(known) for column, known in records.names.items()},
    )


def _lines(pieces: Iterator[bytes]) -> Iterator[tuple[int, str]]:
    number = 0
    for piece in pieces:
        for line in piece.decode("utf-8", "replace").split("\n")[:-1]:
            number += 1
            yield number, line.rstrip("\r")


def _job(given: Mapping[str, str], line: int, records: _Records) -> _Job:
    """Return one record.

    Raises
    ------
    RowError
        A value that cannot be read; names its column.
    """
    name = given["JobIDRaw"]
    if not name.isdigit() or len(name) > 15:
        raise RowError("value-type", f"{name[:40]!r} is no whole number", "JobIDRaw")
    submit = _time(given, "Submit")
    if submit < 0:
        raise RowError(
            "value-type", f"{given['Submit'][:40]!r} is no date like 2026-01-31T12:00:00", "Submit"
        )
    start, end = _time(given, "Start"), _time(given, "End")
    if 0 <= end < start:
        raise RowError("value-range", f"{given['End']} lies before Start {given['Start']}", "End")
    allocated, asked = _count(given, "AllocCPUS"), _count(given, "ReqCPUS")
    return _Job(
        line, int(name), submit, start, end, time_limit(given["Timelimit"]), allocated, asked,
        STATUS.get(given["State"].split(" ")[0], 0.0),
        dict(_values(given, asked if asked > 0 else allocated, records)),
    )  # fmt: skip


def _values(
    given: Mapping[str, str], processors: float, records: _Records
) -> Iterator[tuple[str, float]]:
    """Yield the columns that a log may have, by SWF's names (``gpus`` and ``eligible`` beside them)."""
    for column, name in (("partition", "Partition"), ("queue", "QOS"), ("user", "User")):
        if name in given:
            yield column, records.code(column, given[name])
    resources = given.get("ReqTRES") or given.get("AllocTRES", "")
    tres = dict(word.split("=", 1) for word in resources.split(",") if "=" in word)
    memory = _memory(given.get("ReqMem") or tres.get("mem", ""), processors, tres)
    if memory is not None:
        yield "requested_memory", memory
    if given.get("Priority"):
        yield "priority", _priority(given["Priority"])
    gpus = _GPU.search(resources)
    if gpus:
        yield "gpus", float(gpus[1])
    if "Eligible" in given:
        yield "eligible", _time(given, "Eligible")
    after = _AFTER.search(given.get("SubmitLine", ""))
    if after:
        numbers = [int(word) for word in re.findall(r"\d{1,15}", after[1].split("+")[0])]
        if len(numbers) > 1:
            records.counts["jobs after several others: the last of them counts"] += 1
        if numbers:
            yield "preceding", float(max(numbers))


def _set_limits(jobs: Sequence[_Job], records: _Records) -> None:
    """Give jobs without a known limit the longest limit of their partition, or of the log."""
    # Slurm plans with the partition's limit. With the run time in its place, the estimate would be
    # perfect, which flatters backfilling.
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


def _time(given: Mapping[str, str], name: str) -> float:
    word = given[name]
    if word in NOT_YET:
        return -1.0
    try:
        time = datetime.fromisoformat(word)
    except ValueError:
        raise RowError(
            "value-type", f"{word[:40]!r} is no date like 2026-01-31T12:00:00", name
        ) from None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _count(given: Mapping[str, str], name: str) -> float:
    word = given[name]
    if not word:
        return -1.0
    try:
        count = float(word)
    except ValueError:
        count = inf
    if not (isfinite(count) and 0 <= count <= MOST):
        raise RowError(
            "value-type", f"{word[:40]!r} is no number of processors (sacct --noconvert)", name
        )
    return count


def _priority(word: str) -> float:
    if not word.isdigit() or len(word) > 15:
        raise RowError("value-type", f"{word[:40]!r} is no whole number", "Priority")
    return float(word)


def time_limit(word: str) -> float:
    """Return the seconds of [days-]hours:minutes[:seconds]; -1 where no limit is known."""
    if word in UNLIMITED:
        return -1.0
    days, dash, clock = word.rpartition("-")
    parts = clock.split(":")
    try:
        numbers = [float(part) for part in parts]
        whole = float(days) if dash else 0.0
    except ValueError:
        numbers, whole = [], inf
    if dash:  # days-hours[:minutes[:seconds]]
        numbers = [*numbers, 0.0, 0.0][:3] if len(numbers) <= 3 else []
    elif len(numbers) == 2:  # minutes:seconds
        numbers = [0.0, *numbers]
    if len(numbers) != 3 or not (0 <= whole <= 1e9 and all(0 <= one <= 1e9 for one in numbers)):
        raise RowError("value-type", f"{word[:40]!r} is no limit like 1-12:00:00", "Timelimit")
    hours, minutes, seconds = numbers
    return (whole * 24 + hours) * 3600 + minutes * 60 + seconds


def _memory(word: str, processors: float, tres: Mapping[str, str]) -> float | None:
    """Return SWF's memory, kilobytes a processor; None where nothing can be made of it."""
    found = _MEMORY.fullmatch(word)
    try:
        amount = float(found[1]) if found else -1.0
        nodes = float(tres.get("node", "1"))
    except ValueError:
        return None
    if found is None or amount < 0 or not nodes > 0:
        return None
    amount *= MULTIPLES[found[2]] / 1024
    if found[3] == "c":
        return amount
    whole = amount * nodes if found[3] == "n" else amount
    return whole / processors if processors > 0 else None
