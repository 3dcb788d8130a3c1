"""Read and write workload logs in the Standard Workload Format (18 columns, `;` comments, .gz).

Reference: Chapin et al. 1999, "Benchmarks and standards for the evaluation of parallel job
schedulers"; the format's page at the Parallel Workloads Archive.
"""

from __future__ import annotations

import gzip
import warnings
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apples.errors import UsageError
from nws import StoredText

COLUMNS = [
    "job",
    "submit",
    "wait",
    "run",
    "allocated",
    "cpu_time",
    "used_memory",
    "requested_processors",
    "requested_time",
    "requested_memory",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding",
    "think_time",
]
KINDS = (
    "SWF (18 columns of numbers), sacct --parsable2 with its header, Batsim JSON, accounting of PBS, "
    "lsb.acct of LSF, accounting of SGE"
)
"""The kinds of workload logs that `read_log` reads."""
MOST, LEAST = 1e15, 1e-9  # bounds of a value: sums of times stay exact, slowdowns finite


MAX_COMMENTS = 100_000
"""Maximum number of comment lines in a log: archived logs have a few hundred, with user names some thousands."""
LARGEST_PART = 20
"""At most one record of this number may be damaged; a text with more damaged rows is not a log."""


def is_whole(word: str) -> bool:
    """Return whether a word is a whole number of at least 0 with at most 15 digits."""
    return word.isascii() and word.isdigit() and len(word) < 16


class RowError(ValueError):
    """An unreadable row of a log.

    Attributes
    ----------
    problem
        A code, such as ``value-range``.
    column
        Column of the value; empty for the whole row.
    """

    def __init__(self, problem: str, reason: str, column: str = "") -> None:
        super().__init__(f"{column} {reason}" if column else reason)
        self.problem = problem
        self.column = column


@dataclass
class DamagedRows:
    """The unreadable rows of a log, skipped and counted, up to one record in `LARGEST_PART`.

    Attributes
    ----------
    source
        The log, for messages.
    count, first
        Their number, and the first of them: file, line and error.
    place
        Error fields of the first: file, line, column and problem.
    """

    source: str
    count: int = 0
    first: str = ""
    place: dict[str, Any] = field(default_factory=dict)

    def add(self, line: int, error: RowError, good: int) -> None:
        """Count a damaged row; `good` records were read before it.

        Raises
        ------
        UsageError
            The rows are too many for a log of any length. Permanent.
        """
        if not self.count:
            self.first = f"{self.source}:{line}: {error}"
            self.place = {
                "file": self.source, "line": line, "field": error.column or None, "problem": error.problem,
            }  # fmt: skip
        self.count += 1
        if self.count > 1000:
            self.judge(good)

    def judge(self, good: int) -> None:
        """Raise for a text with too many damaged rows; `good` records were read.

        Raises
        ------
        UsageError
            The text is not a log; the message begins with the first damaged row. Permanent.
        """
        if self.count * LARGEST_PART > self.count + good:
            more = (
                f" ({self.count} of {self.count + good} rows so far are damaged)" if good else ""
            )
            raise UsageError(
                self.first + more,
                code="rows-damaged",
                **self.place,
                value=self.count,
                rows=self.count + good,
            )

    def notes(self) -> tuple[str, ...]:
        """Return a note on the damaged rows; empty without damaged rows."""
        if not self.count:
            return ()
        return (f"{self.count} damaged rows left out, the first: {self.first}",)


@dataclass(frozen=True)
class Log:
    """The records of a log, in the order of the file.

    Attributes
    ----------
    columns
        Name of a column (`COLUMNS`) -> float64 array, one entry for each record; times in seconds.
    lines
        Line number of each record in the file, from 1.
    header
        Comment lines without the semicolon.
    source
        Name for messages.
    sha256
        SHA-256 of the file's bytes as stored; empty for a log without a file.
    damaged
        Skipped rows.
    notes
        Changes of the records during reading, one line each, for the user.
    names
        Column with codes of names (``partition``) -> the names of the codes 1, 2, ..
    noticed
        Columns of `NOTICED` that were not requested: partition numbers, or whether a job has a value.
    """

    columns: dict[str, NDArray[np.float64]]
    lines: NDArray[np.int64]
    header: tuple[str, ...] = ()
    source: str = "log"
    sha256: str = ""
    damaged: DamagedRows = field(default_factory=lambda: DamagedRows("log"))
    notes: tuple[str, ...] = ()
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    noticed: Mapping[str, NDArray[np.int32] | NDArray[np.bool_]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.lines)

    def header_value(self, name: str) -> str | None:
        """Return the header's text after `name:`, None without such a line."""
        for line in self.header:
            key, colon, value = line.partition(":")
            if colon and key.strip() == name:
                return value.strip()
        return None


NOTICED = ("partition", "preceding", "requested_memory")
"""Columns that are counted even if they are not requested; stored compactly, since logs are long."""

NEEDED = ("job", "submit", "run", "allocated", "requested_processors", "requested_time", "status")


def read_swf(path: Path, columns: Sequence[str] = NEEDED) -> Log:
    """Return the named columns of a log.

    Raises
    ------
    UsageError
        The file does not exist, its gzip is truncated or damaged, or a line lacks 18 numbers; the error has file
        and line. Permanent.
    """
    text = StoredText(path, error=UsageError)
    return parse_swf(text, text, str(path), columns)


def parse_swf(
    text: StoredText, pieces: Iterable[bytes], source: str, columns: Sequence[str]
) -> Log:
    """Return the named columns of a text; each piece consists of whole lines.

    Raises
    ------
    UsageError
        The text has no records, more comments than a header has, or more damaged rows than `DamagedRows` accepts.
        Permanent.
    """
    more = [name for name in NOTICED if name not in columns]
    wanted = [COLUMNS.index(name) for name in (*columns, *more)]
    tables = [array("d") for _ in columns]  # grow in place: memory holds a long log only once
    noticed: list[list[NDArray[np.int32] | NDArray[np.bool_]]] = []
    lines: list[NDArray[np.int64]] = []
    header: list[str] = []
    damaged = DamagedRows(source)
    line, records = 1, 0
    for piece in pieces:
        if len(header) + piece.count(b"\n;") > MAX_COMMENTS:
            raise UsageError(
                f"{source}: more than {MAX_COMMENTS} lines of comments: not a log",
                code="file-invalid",
                file=source,
                bound=MAX_COMMENTS,
            )
        if piece.strip():
            table, numbers, comments = _parse(piece, line, damaged, records, wanted)
            for grown, column in zip(tables, table, strict=False):
                grown.frombytes(column.tobytes())
            noticed.append(
                [_noticed(*one) for one in zip(more, table[len(columns) :], strict=True)]
            )
            lines.append(numbers)
            records += len(numbers)
            header += comments
        line += piece.count(b"\n")
    damaged.judge(records)
    if not records:
        raise UsageError(f"{source}: holds no job records", code="log-empty", file=source)
    return Log(
        columns={name: np.frombuffer(grown) for name, grown in zip(columns, tables, strict=True)},
        lines=np.concatenate(lines),
        header=tuple(header),
        source=source,
        sha256=text.sha256,
        damaged=damaged,
        notes=damaged.notes(),
        noticed={
            name: np.concatenate(parts)
            for name, parts in zip(more, zip(*noticed, strict=True), strict=True)
        },
    )


def _noticed(name: str, column: NDArray[np.float64]) -> NDArray[np.int32] | NDArray[np.bool_]:
    """Return partition numbers for the column ``partition``, otherwise whether each job has a value."""
    if name == "partition":
        return np.clip(column, -1, 2**31 - 1).astype(np.int32)
    return column > 0


def _parse(
    chunk: bytes, first_line: int, damaged: DamagedRows, records: int, wanted: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.int64], list[str]]:
    """Return the columns, the line number of each record, and the comments of a chunk of whole lines."""
    begin = 0
    while chunk.startswith(b";", begin):
        begin = chunk.index(b"\n", begin) + 1
    _, _, comments = _parse_lines(chunk[:begin], first_line, damaged, records)
    first_line += len(comments)
    chunk = chunk[begin:]
    table = _parse_fast(chunk, wanted) if chunk else None
    if table is not None:
        return table, np.arange(first_line, first_line + table.shape[1]), comments
    rows, numbers, more = _parse_lines(chunk, first_line, damaged, records)
    return np.ascontiguousarray(rows[:, wanted].T), numbers, comments + more


def _parse_fast(chunk: bytes, wanted: Sequence[int]) -> NDArray[np.float64] | None:
    """Return the columns if every line has 18 plain numbers, otherwise None."""
    if chunk.translate(None, b"0123456789- \t\r\n.eE+"):
        return None
    codes = np.frombuffer(chunk, dtype=np.uint8)
    word = codes > 32
    edges = np.flatnonzero(word[1:] != word[:-1]) + 1
    if word[0]:
        edges = np.concatenate(([0], edges))
    begins, ends = edges[0::2], edges[1::2]  # the chunk ends with a newline: always pairs
    line_ends = np.flatnonzero(codes == 10)
    if not np.array_equal(
        np.searchsorted(begins, line_ends), np.arange(1, len(line_ends) + 1) * 18
    ):
        return None
    integers = chunk.translate(None, b"0123456789- \t\r\n") == b""
    if not integers or (ends - begins).max(initial=0) > 15:
        return _parse_floats(chunk, len(line_ends), wanted)
    minus = np.flatnonzero(codes == 45)
    if not word[minus + 1].all() or word[minus - 1].any():
        return None
    table = np.empty((len(wanted), len(line_ends)))
    for row, column in enumerate(wanted):
        at, stop = begins[column::18], ends[column::18]
        negative = codes[at] == 45
        at = at + negative
        value = np.zeros(len(at))
        size = stop - at
        shortest = int(size.min()) if len(size) else 0
        for k in range(int(size.max(initial=0))):
            here = at + k
            if k < shortest:  # all have this digit
                value *= 10.0
                value += codes[here] - 48.0
                continue
            inside = here < stop
            digit = codes[np.where(inside, here, 0)] - 48.0
            value = np.where(inside, value * 10.0 + digit, value)
        table[row] = np.where(negative, -value, value)
    return table


def _parse_floats(chunk: bytes, records: int, wanted: Sequence[int]) -> NDArray[np.float64] | None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            values = np.fromstring(chunk, sep=" ")
        except (DeprecationWarning, ValueError):
            return None
    if len(values) != 18 * records or not np.isfinite(values).all() or not _exact(values):
        return None
    return np.ascontiguousarray(values.reshape(-1, 18)[:, wanted].T)


def _exact(values: NDArray[np.float64]) -> bool:
    """Return whether sums of the values are exact to a second, and quotients finite."""
    size = np.abs(values)
    return bool(((size <= MOST) & ((size >= LEAST) | (size == 0))).all())


def _parse_lines(
    chunk: bytes, first_line: int, damaged: DamagedRows, records: int
) -> tuple[NDArray[np.float64], NDArray[np.int64], list[str]]:
    """Parse line by line; skip and count the damaged lines."""
    rows: list[list[float]] = []
    lines: list[int] = []
    comments: list[str] = []
    for number, line in enumerate(chunk.split(b"\n")[:-1], first_line):
        words = line.split()
        if not words:
            continue
        if words[0].startswith(b";"):
            comments.append(line.strip()[1:].strip().decode("utf-8", "replace"))
            continue
        try:
            row = _record(words)
        except RowError as error:
            damaged.add(number, error, records + len(rows))
            continue
        rows.append(row)
        lines.append(number)
    table = np.array(rows, dtype=np.float64).reshape(-1, 18)
    return table, np.array(lines, dtype=np.int64), comments


def _record(words: Sequence[bytes]) -> list[float]:
    """Return the 18 numbers of a record.

    Raises
    ------
    RowError
        The record has not 18 numbers, or a number outside the bounds.
    """
    if len(words) != len(COLUMNS):
        raise RowError("columns-differ", f"{len(words)} columns where SWF has 18")
    try:
        row = [float(word) for word in words]
    except ValueError as error:
        raise RowError("value-type", str(error)) from None
    if not np.isfinite(row).all():
        raise RowError("value-invalid", "a value that is not a finite number")
    if not _exact(np.array(row)):
        raise RowError("value-range", f"a value beyond {MOST:g} or nearer to 0 than {LEAST:g}")
    return row


def write_swf(path: Path, log: Log) -> None:
    """Write a log, with -1 for missing columns and gzip if the name ends in .gz.

    Numbers have full precision, so that reading them back is exact.
    """
    count = len(log)
    blank = np.full(count, -1.0)
    table = [log.columns.get(name, blank).tolist() for name in COLUMNS]
    text = "".join(f"; {line}\n" for line in log.header) + "".join(
        " ".join(_number(value) for value in row) + "\n" for row in zip(*table, strict=True)
    )
    data = text.encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


OWN_HEADER = ("Version", "MaxJobs", "MaxRecords", "UnixStartTime", "MaxProcs")


def convert_to_swf(log: Log, path: Path, processors: int | None = None) -> None:
    """Write a log of any kind in the Standard Workload Format.

    Times count from the first submission, as the format requires. The header has ``UnixStartTime``, ``MaxProcs``
    if known, the names of partitions and queues, and the other header lines of the log. Values without a column in
    SWF are omitted.
    """
    columns = dict(log.columns)
    start = float(columns["submit"].min())
    columns["submit"] = columns["submit"] - start
    began = (log.header_value("UnixStartTime") or "").split(" ")[0]
    if is_whole(began):
        start += int(began)
    name = Path(log.source).name.encode("utf-8", "backslashreplace").decode()
    size = str(processors) if processors else log.header_value("MaxProcs")
    names = [
        f"{column.capitalize()}: {number} {_one_line(name)}"
        for column in ("partition", "queue")
        for number, name in enumerate(log.names.get(column, ()), 1)
    ]
    header = (
        "Version: 2.2",
        f"Conversion: apples, from {_one_line(name)}",
        f"MaxJobs: {len(log)}",
        f"MaxRecords: {len(log)}",
        f"UnixStartTime: {start:.0f}",
        *([f"MaxProcs: {size}"] if size else []),
        *names,
        *(line for line in log.header if line.partition(":")[0].strip() not in OWN_HEADER),
    )
    write_swf(path, replace(log, columns=columns, header=header))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
