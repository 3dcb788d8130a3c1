"""Read past jobs from Slurm's accounting: the output of ``sacct --parsable2``.

Reference: the manual page of sacct; its dates are local time without an offset.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import inf, isfinite

from apples.errors import UsageError
from apples.simulation.job_records import JobRecord, JobRecords, log_of
from apples.simulation.swf import MOST, DamagedRows, Log, RowError, is_whole
from nws import StoredText

FIELDS = ("JobIDRaw", "Submit", "Start", "End", "Timelimit", "AllocCPUS", "State")
"""Required columns of a log; `ALIASES` has replacements."""
ALIASES = {"AllocCPUS": "NCPUS", "Timelimit": "TimelimitRaw"}
"""Columns of the same content, by sacct's manual; ``TimelimitRaw`` is in minutes."""
FREE_TEXT = (
    "JobName", "SubmitLine", "Comment", "AdminComment", "SystemComment", "Extra", "WorkDir", "Reason",
    "Constraints", "StdOut", "StdErr", "StdIn", "FailedNode", "WCKey",
)  # fmt: skip
"""Columns with text of users; sacct escapes neither ``|`` nor a line break in them."""
MAX_RECORD_LINES = 1000
MAX_RECORD_CHARACTERS = 1 << 20
NOT_YET = frozenset({"", "Unknown", "None", "N/A"})
UNLIMITED = frozenset({"", "UNLIMITED", "Partition_Limit", "INVALID"})
MULTIPLES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
STATUS = {"COMPLETED": 1.0, "CANCELLED": 5.0}
"""Status in SWF: 1 completed, 5 cancelled, 0 failed."""

_MEMORY = re.compile(r"([0-9.]+)([KMGTP]?)([nc]?)")
_GPU = re.compile(r"(?:^|,)gres/gpu(:[^=,]+)?=(\d+)(?=,|$)")
_JOB_ID = re.compile(r"\d{1,15}(?:\.\w+)?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*|\d{9,11}")
_STATE = re.compile(r"[A-Z_]+(?: by \d+|\+)?")
_STARTS = frozenset({"after", "afterburstbuffer", "expand"})
"""Kinds of Slurm's dependencies that do not wait for a job's end."""
_AFTER = re.compile(r"(?:--dependency[= ]|(?:^|\s)-d ?)\s*(\S+)")


def is_sacct(line: str) -> bool:
    """Return whether a line is a header of ``sacct --parsable2``; it may lack some of `FIELDS`."""
    columns = {*line.split("|")}
    return len(columns & {"JobID", *FIELDS}) > 1


def read_sacct(text: StoredText, pieces: Iterator[bytes], source: str) -> Log:
    """Return the jobs in the output of ``sacct --parsable2`` with at least the columns `FIELDS`.

    ``NCPUS`` may replace ``AllocCPUS``, and ``TimelimitRaw`` ``Timelimit``. Without ``ReqCPUS`` a job's request is
    its allocation. Lines that begin with ``#`` may precede the header. If text fields contain line breaks or ``|``
    and only one reading is possible, the record is restored and counted. Every other row with too many or too few
    columns is damaged.

    Job steps are skipped. The components of a heterogeneous job are one job if the column ``JobID`` identifies
    them. The last run of a requeued job counts. An unknown limit (UNLIMITED, INVALID, the partition's) becomes the
    longest limit of its partition, or of the log. ``Partition``, ``QOS``, ``User``, ``Priority``, ``ReqMem``,
    ``ReqTRES``, ``AllocTRES``, ``Eligible`` and the dependencies in ``SubmitLine`` are read if present. Times are
    seconds since 1970. sacct writes local time without an offset, which is read as UTC: use ``TZ=UTC sacct`` if
    that matters.

    Raises
    ------
    UsageError
        A column is missing, or there are more damaged rows than `DamagedRows` accepts. Permanent.
    """
    lines = _lines(pieces)
    line, header = next(
        ((number, text) for number, text in lines if text.strip() and not text.startswith("#")),
        (1, ""),
    )
    table = _Table(header.split("|"))
    if table.missing:
        raise UsageError(
            f"{source}:{line}: sacct columns missing: {', '.join(table.missing)}; "
            f"write the log with sacct --parsable2 --format={','.join(FIELDS)}",
            code="columns-missing",
            file=source,
            line=line,
            columns=table.missing,
        )
    records, damaged = JobRecords(), DamagedRows(source)
    for number, words in table.rows(lines, records):
        try:
            given = table.named(words, records)
            if "." not in given["JobIDRaw"]:
                records.add(_job(given, number, records), given.get("JobID", ""))
        except ValueError as error:
            row_error = (
                error if isinstance(error, RowError) else RowError("value-invalid", str(error))
            )
            damaged.add(number, row_error, len(records.jobs))
    return log_of(records, damaged, text.sha256, source)


class _Table:
    """The columns of a log, and the assembly of its lines to records."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = columns
        self.at = {name: place for place, name in enumerate(columns)}
        self.missing = [
            name for name in FIELDS if name not in self.at and ALIASES.get(name) not in self.at
        ]
        self.free = [self.at[name] for name in FREE_TEXT if name in self.at]
        last = len(columns) - 1 - (columns[-1] == "")  # --parsable ends each line with a |
        self.ends_with_text = last in self.free
        self.whole = last + 1 if self.ends_with_text else len(columns)

    def begins(self, words: Sequence[str]) -> bool:
        """Return whether a line begins a record: a job number and a submission time are in their columns."""
        at, submit = self.at["JobIDRaw"], self.at["Submit"]
        return (
            len(words) > max(at, submit)
            and _JOB_ID.fullmatch(words[at]) is not None
            and _DATE.fullmatch(words[submit]) is not None
        )

    def rows(
        self, lines: Iterator[tuple[int, str]], records: JobRecords
    ) -> Iterator[tuple[int, list[str]]]:
        """Yield the first line number and the words of each record; words may contain line breaks."""
        size = len(self.columns)
        row: list[str] = []
        first, joined, length = 0, 0, 0
        for number, line in lines:
            words = line.split("|")
            whole = len(row) >= self.whole
            own = not row or self.begins(words) or (not line.strip() and not whole)
            fragment = (
                len(words) < size and self.ends_with_text and not _is_short_row(words, self.at)
                if whole
                else len(row) + len(words) - 1 <= size
            )
            length += len(line) + 1
            full = joined >= MAX_RECORD_LINES or length > MAX_RECORD_CHARACTERS
            if own or not fragment or full:
                if row:
                    yield first, row
                first, joined, length = number, 0, len(line)
                row = words if line.strip() else []
                continue
            if not joined and line.strip():
                records.counts["records put together from several lines"] += 1
            joined += 1
            row[-1] += f"\n{words[0]}"
            row += words[1:]
        if row:
            yield first, row

    def named(self, words: Sequence[str], records: JobRecords) -> dict[str, str]:
        """Return the words by column.

        Raises
        ------
        RowError
            The number of words is wrong, and not exactly one reading is possible.
        """
        surplus = len(words) - len(self.columns)
        if surplus > 0:
            readings = [
                reading
                for place in self.free
                if self._possible(
                    reading := [
                        *words[:place], "|".join(words[place : place + surplus + 1]),
                        *words[place + surplus + 1 :],
                    ]
                )
            ]  # fmt: skip
            needed = {tuple(self._needed(reading)) for reading in readings}
            if len(needed) == 1:
                records.counts["records with | inside a text field"] += 1
                words = readings[0]
        if len(words) != len(self.columns):
            raise RowError(
                "columns-differ", f"{len(words)} columns where the header has {len(self.columns)}"
            )
        given = {name: words[place] for name, place in self.at.items()}
        for name, alias in ALIASES.items():
            if name not in given:
                given[name] = given[alias]
        return given

    def _needed(self, words: Sequence[str]) -> list[str]:
        return [word for place, word in enumerate(words) if place not in self.free]

    def _possible(self, words: Sequence[str]) -> bool:
        """Return whether the columns other than text have valid values."""
        if not self.begins(words):
            return False
        given = {name: words[place] for name, place in self.at.items()}
        dates = (given["Start"], given["End"])
        count = given[ALIASES["AllocCPUS"]] if "AllocCPUS" not in given else given["AllocCPUS"]
        return (
            all(word in NOT_YET or _DATE.fullmatch(word) for word in dates)
            and (not count or count.isdigit())
            and _STATE.fullmatch(given["State"]) is not None
        )


def _is_short_row(words: Sequence[str], at: Mapping[str, int]) -> bool:
    """Return whether a line looks like a truncated row: it has a job number in its column."""
    return (
        len(words) > 1 and len(words) > at["JobIDRaw"]
        and _JOB_ID.fullmatch(words[at["JobIDRaw"]]) is not None
    )  # fmt: skip


def _lines(pieces: Iterator[bytes]) -> Iterator[tuple[int, str]]:
    number = 0
    for piece in pieces:
        for line in piece.decode("utf-8", "replace").split("\n")[:-1]:
            number += 1
            yield number, line.rstrip("\r")


def _job(given: Mapping[str, str], line: int, records: JobRecords) -> JobRecord:
    """Return one record.

    Raises
    ------
    RowError
        A value cannot be read; the error has its column.
    """
    name = given["JobIDRaw"]
    if not is_whole(name):
        raise RowError("value-type", f"{name[:40]!r} is not a whole number", "JobIDRaw")
    submit = _time(given, "Submit")
    if submit < 0:
        raise RowError(
            "value-type",
            f"{given['Submit'][:40]!r} is not a date like 2026-01-31T12:00:00",
            "Submit",
        )
    start, end = _time(given, "Start"), _time(given, "End")
    if 0 <= end < start:
        raise RowError("value-range", f"{given['End']} lies before Start {given['Start']}", "End")
    allocated = _count(given, "AllocCPUS")
    asked = _count(given, "ReqCPUS") if "ReqCPUS" in given else allocated
    return JobRecord(
        line, int(name), submit, start, end, _limit(given), allocated, asked,
        STATUS.get(given["State"].split(" ")[0], 0.0),
        dict(_values(given, allocated if allocated > 0 else asked, records)),
    )  # fmt: skip


def _values(
    given: Mapping[str, str], processors: float, records: JobRecords
) -> Iterator[tuple[str, float]]:
    """Yield the optional columns of a log by SWF's names, and ``gpus`` and ``eligible``."""
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
    gpus = _GPU.findall(resources)
    if gpus:
        # The untyped entry is the total of the typed entries; only some sites have it.
        total = [count for kind, count in gpus if not kind]
        yield "gpus", sum(float(count[:15]) for count in total[:1] or [one for _, one in gpus])
    if "Eligible" in given:
        yield "eligible", _time(given, "Eligible")
    after = _AFTER.search(given.get("SubmitLine", ""))
    if after:
        numbers = _predecessors(after[1], records)
        if len(numbers) > 1:
            records.counts["jobs after several others: the last of them counts"] += 1
        if numbers:
            yield "preceding", float(max(numbers))


def _predecessors(words: str, records: JobRecords) -> list[int]:
    """Return the predecessors of a job; `words` as in ``afterok:17:18,afterany:20``."""
    numbers = []
    for dependency in re.split("[,?]", words.strip("'\"")):
        kind, *jobs = dependency.split(":")
        if kind[:1].isdigit():
            jobs = [kind, *jobs]  # without a kind: afterany
        if kind in _STARTS:
            records.counts["dependencies on the start of a job left out"] += 1
            continue
        found = (re.match(r"\d{1,15}", job) for job in jobs)
        numbers += [int(number[0]) for number in found if number]
    return numbers


def _time(given: Mapping[str, str], name: str) -> float:
    word = given[name]
    if word in NOT_YET:
        return -1.0
    try:
        time = datetime.fromisoformat(word) if "-" in word else _epoch(word)
    except (ValueError, OverflowError, OSError):
        raise RowError(
            "value-type", f"{word[:40]!r} is not a date like 2026-01-31T12:00:00", name
        ) from None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _epoch(word: str) -> datetime:
    """Return a time given in seconds since 1970 (``SLURM_TIME_FORMAT=%s``)."""
    if not _DATE.fullmatch(word):
        raise ValueError(word)
    return datetime.fromtimestamp(int(word), UTC)


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
            "value-type", f"{word[:40]!r} is not a number of processors (sacct --noconvert)", name
        )
    return count


def _priority(word: str) -> float:
    if not is_whole(word):
        raise RowError("value-type", f"{word[:40]!r} is not a whole number", "Priority")
    return float(word)


def _limit(given: Mapping[str, str]) -> float:
    """Return the limit in seconds, of ``Timelimit`` or of ``TimelimitRaw`` in minutes."""
    word = given["Timelimit"]
    if "TimelimitRaw" in given and word == given["TimelimitRaw"] and word.isdigit():
        return time_limit(f"{word}:00")
    return time_limit(word)


def time_limit(word: str) -> float:
    """Return the seconds of [days-]hours:minutes[:seconds]; -1 for an unknown limit."""
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
        raise RowError("value-type", f"{word[:40]!r} is not a limit like 1-12:00:00", "Timelimit")
    hours, minutes, seconds = numbers
    return (whole * 24 + hours) * 3600 + minutes * 60 + seconds


def _memory(word: str, processors: float, tres: Mapping[str, str]) -> float | None:
    """Return the memory as in SWF, kilobytes per processor; None for an unknown format."""
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
