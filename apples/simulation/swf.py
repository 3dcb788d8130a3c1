"""Read and write workload logs in the Standard Workload Format (18 columns, `;` comments, .gz).

Reference: Chapin et al. 1999, "Benchmarks and standards for the evaluation of parallel job
schedulers"; the format's page at the Parallel Workloads Archive.
"""

from __future__ import annotations

import gzip
import hashlib
import warnings
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from io import BufferedIOBase, BufferedReader
from pathlib import Path
from typing import IO, cast

import numpy as np
from numpy.typing import NDArray

from apples.errors import UsageError

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
MOST, LEAST = 1e15, 1e-9  # of a value: sums of times stay exact, slowdowns finite
CHUNK = 1 << 22  # bytes read at a time: the whole text is never held


@dataclass(frozen=True)
class Log:
    """The records of a log, in the order of the file.

    Attributes
    ----------
    columns
        Name of a column (`COLUMNS`) -> float64, one entry a record; times in seconds.
    lines
        Line of the file each record stands on, from 1.
    header
        Comment lines without the semicolon.
    source
        Name for messages.
    sha256
        Of the file's bytes as stored; empty for a log that was never a file.
    """

    columns: dict[str, NDArray[np.float64]]
    lines: NDArray[np.int64]
    header: tuple[str, ...] = ()
    source: str = "log"
    sha256: str = ""

    def __len__(self) -> int:
        return len(self.lines)

    def header_value(self, name: str) -> str | None:
        """Return what the header says after `name:`, None if it says nothing."""
        for line in self.header:
            key, colon, value = line.partition(":")
            if colon and key.strip() == name:
                return value.strip()
        return None


NEEDED = ("job", "submit", "run", "allocated", "requested_processors", "requested_time", "status")


def read_swf(path: Path, columns: Sequence[str] = NEEDED) -> Log:
    """Return the named columns of a log.

    Raises
    ------
    UsageError
        No such file, a truncated or damaged gzip, a line without 18 numbers (file and line are
        named). Permanent.
    """
    try:
        return _read(path, columns)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UsageError(f"{path}: damaged or truncated gzip: {error}") from error
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error


@dataclass
class _Digesting(BufferedIOBase):
    """A byte stream that keeps the digest of what was read through it."""

    stream: IO[bytes]
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        data = self.stream.read(-1 if size is None else size)
        self.digest.update(data)
        return data

    def read1(self, size: int = -1, /) -> bytes:
        return self.read(size)


def _read(path: Path, columns: Sequence[str]) -> Log:
    wanted = [COLUMNS.index(name) for name in columns]
    tables: list[NDArray[np.float64]] = []
    lines: list[NDArray[np.int64]] = []
    header: list[str] = []
    with path.open("rb") as stored:
        raw = _Digesting(stored)
        packed = stored.peek(2)[:2] == b"\x1f\x8b"
        text = cast("IO[bytes]", gzip.GzipFile(fileobj=raw) if packed else BufferedReader(raw))
        line = 1
        for chunk in _whole_lines(text):
            table, numbers, comments = _parse(chunk, line, path, wanted)
            tables.append(table)
            lines.append(numbers)
            header += comments
            line += chunk.count(b"\n")
    if not sum(len(numbers) for numbers in lines):
        raise UsageError(f"{path}: holds no job records")
    joined = np.concatenate(tables, axis=1)
    return Log(
        columns={name: joined[i] for i, name in enumerate(columns)},
        lines=np.concatenate(lines),
        header=tuple(header),
        source=str(path),
        sha256=raw.digest.hexdigest(),
    )


def _whole_lines(text: IO[bytes]) -> Iterator[bytes]:
    """Yield the text in pieces that end with a line."""
    rest = b""
    while data := text.read(CHUNK):
        data = rest + data
        cut = data.rfind(b"\n") + 1
        rest = data[cut:]
        if cut:
            yield data[:cut]
    if rest:
        yield rest + b"\n"


def _parse(
    chunk: bytes, first_line: int, path: Path, wanted: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.int64], list[str]]:
    """Return the columns, the line of each record, and the comments of some whole lines."""
    begin = 0
    while chunk.startswith(b";", begin):
        begin = chunk.index(b"\n", begin) + 1
    _, _, comments = _parse_lines(chunk[:begin], first_line, path)
    first_line += len(comments)
    chunk = chunk[begin:]
    table = _parse_fast(chunk, wanted) if chunk else None
    if table is not None:
        return table, np.arange(first_line, first_line + table.shape[1]), comments
    rows, numbers, more = _parse_lines(chunk, first_line, path)
    return np.ascontiguousarray(rows[:, wanted].T), numbers, comments + more


def _parse_fast(chunk: bytes, wanted: Sequence[int]) -> NDArray[np.float64] | None:
    """Return the columns if every line holds 18 plain numbers, None if any does not."""
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
        for k in range(int((stop - at).max(initial=0))):
            here = at + k
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
    """Return whether sums of the values keep whole seconds, and quotients stay finite."""
    size = np.abs(values)
    return bool(((size <= MOST) & ((size >= LEAST) | (size == 0))).all())


def _parse_lines(
    chunk: bytes, first_line: int, path: Path
) -> tuple[NDArray[np.float64], NDArray[np.int64], list[str]]:
    """Do the same line by line, naming the line that is wrong."""
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
        if len(words) != 18:
            raise UsageError(f"{path}:{number}: {len(words)} columns where SWF has 18")
        try:
            row = [float(word) for word in words]
        except ValueError as error:
            raise UsageError(f"{path}:{number}: {error}") from error
        if not np.isfinite(row).all():
            raise UsageError(f"{path}:{number}: a value that is no finite number")
        if not _exact(np.array(row)):
            raise UsageError(
                f"{path}:{number}: a value beyond {MOST:g} or nearer to 0 than {LEAST:g}"
            )
        rows.append(row)
        lines.append(number)
    table = np.array(rows, dtype=np.float64).reshape(-1, 18)
    return table, np.array(lines, dtype=np.int64), comments


def write_swf(path: Path, log: Log) -> None:
    """Write a log; columns it does not have are -1; gzip if the name ends in .gz.

    Numbers keep full precision: what is read back is what was written.
    """
    count = len(log)
    blank = np.full(count, -1.0)
    table = [log.columns.get(name, blank).tolist() for name in COLUMNS]
    text = "".join(f"; {line}\n" for line in log.header) + "".join(
        " ".join(_number(value) for value in row) + "\n" for row in zip(*table, strict=True)
    )
    data = text.encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
