"""Read recorded series: CSV of any tool, arrays of NumPy, and exports of Prometheus.

A row without a value (empty, ``NaN``, ``null``) is a missing sample. A row that repeats or precedes the time
before it, or that cannot be read, is left out. Both are counted and the first are named. A file with more
than one row in `MAX_DAMAGED_PART` of the second kind is refused: it is taken for something else.
"""

import csv
import math
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nws.errors import InputError, coded
from nws.forecasters.scored import SamplingGrid
from nws.measurement import checked_value
from nws.sensor import SensorError
from nws.sensors.prometheus import (
    MAX_BYTES,
    MAX_REASONS,
    exported_sample,
    is_export,
    parse_matrix,
    series_text,
)
from nws.stored_text import StoredText

MAX_SAMPLES: Final = 50_000_000
MAX_SERIES: Final = 10_000
MAX_ARRAY_BYTES: Final = 1 << 30
"""Of all arrays of one npz file, unpacked."""
MAX_DAMAGED_PART: Final = 20
"""The greatest part of damaged rows is 1 / `MAX_DAMAGED_PART`."""
TIME_HEADERS: Final = ("timestamp", "time", "datetime", "date", "ts", "@timestamp", "epoch")
"""Headers of the column of times, the first that is there; without any, the first column has them."""
VALUE_HEADER: Final = "value"
MISSING: Final = frozenset({"", "nan", "null", "none", "na", "n/a", "nil", "-"})

_SLASHES = re.compile(r"(\d{4})/(\d\d)/(\d\d)")

Numbers = NDArray[np.float64]


class Recording(dict[str, Numbers]):
    """The series of a file by name; NaN where a sample is missing.

    Attributes
    ----------
    left_out
        Rows without a sample: missing values, repeated times, damaged rows.
    reasons
        The first of them, each with its line.
    notes
        Further remarks, for example the ignored columns.
    periods
        Seconds between two samples of the regular series whose times are known in seconds.
    """

    def __init__(self) -> None:
        super().__init__()
        self.periods: dict[str, float] = {}
        self.left_out = 0
        self.reasons: list[str] = []
        self.notes: list[str] = []


def read_recording(path: Path, column: str | None = None) -> Recording:
    """Return the series of a file.

    Plain text may be packed and encoded as `StoredText` reads it. The content decides the kind:

    - CSV, separated by comma, semicolon or tab: a column of times and one of values. The values are in
      `column`, in the column ``value``, or in the only column beside the times. Behind semicolons and tabs
      a number may have a decimal comma. Lines that begin with ``#`` are comments.
    - The JSON of Prometheus's ``query_range``, the text of ``promtool tsdb dump-openmetrics`` or of
      ``promtool tsdb dump``: each series in it.
    - ``.npz``: each array is a series.

    Times are numbers of any one unit, or ISO 8601; a time without an offset is UTC, in every time zone of
    the reader.

    Parameters
    ----------
    path
        The file.
    column
        Header of the column of values of a CSV; its number, from 1, if the file has no header.

    Raises
    ------
    InputError
        The file cannot be read so; names the line, the column or the array. Permanent.
    """
    recording = Recording()
    if _has_arrays(path):
        recording.update(_arrays(path))
    else:
        lines = StoredText(path).lines()
        start: list[str] = []
        for line in lines:
            start.append(line)
            if line.strip() and not _is_comment(line):
                break
        head = start[-1].lstrip() if start else ""
        if head.startswith("{") and not is_export(head):
            _read_json(path, chain(start, lines), recording)
        elif is_export(head):
            _read_export(path, chain(start, lines), recording)
        else:
            samples = _read_csv(path, chain(start, lines), column, recording)
            samples.put(recording, path.name.split(".")[0] or path.name)
            return recording
    if column is not None:
        raise _invalid(path, "is not a CSV file: --column does not apply", code="option-conflict")
    return recording


def _invalid(path: Path, why: str, *, code: str = "file-invalid", **fields: Any) -> InputError:
    line = f":{fields['line']}" if "line" in fields else ""
    return InputError(f"{path}{line}: {why}", code=code, file=str(path), **fields)


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


# ------------------------------------------------------------------ arrays
def _has_arrays(path: Path) -> bool:
    if path.suffix == ".npz":
        return True
    if not path.is_file():
        return False
    with path.open("rb") as file:
        if file.read(4) != b"PK\x03\x04":
            return False
        try:
            with zipfile.ZipFile(file) as archive:
                return any(name.endswith(".npy") for name in archive.namelist())
        except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
            return False


def _arrays(path: Path) -> dict[str, Numbers]:
    with path.open("rb") as file:
        if not zipfile.is_zipfile(file):
            raise _invalid(path, "not an npz file")
    series = {}
    try:
        _check_sizes(path)
        arrays = np.load(path, allow_pickle=False)
    except (
        ValueError,
        OSError,
        EOFError,
        zipfile.BadZipFile,
        zlib.error,
        NotImplementedError,
        RuntimeError,
    ) as error:
        if isinstance(error, InputError):
            raise
        raise _invalid(path, f"not an npz file: {error}") from error
    with arrays:
        for name in arrays.files:
            try:
                array = arrays[name]
            except (
                ValueError,
                OSError,
                EOFError,
                zipfile.BadZipFile,
                zlib.error,
                RuntimeError,  # encrypted, or a method of packing that zipfile does not have
                MemoryError,
                SyntaxError,
                TypeError,
            ) as error:
                raise _invalid(
                    path, f"{name}: not an array of numbers: {error}", field=name
                ) from error
            series[name] = _checked(array, path, name)
    if not series:
        raise _invalid(path, "must contain an array", code="file-empty")
    return series


def _check_sizes(path: Path) -> None:
    """Refuse arrays that would not fit in memory, by their headers, before unpacking."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        sizes = {member.filename: member.file_size for member in members}
        _check_total(path, sizes)
        for member in members:
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise _invalid(path, f"{member.filename:.80}: unknown compression")
            if not member.filename.endswith(".npy"):
                continue
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                read = {
                    (1, 0): np.lib.format.read_array_header_1_0,
                    (2, 0): np.lib.format.read_array_header_2_0,
                }.get(version)
                if read is None:  # 3.0 has names of fields: it is no row of numbers
                    raise _invalid(path, f"{member.filename:.80}: must be one row of numbers")
                shape, _, kind = read(file)
            count = math.prod(shape)
            if count > MAX_SAMPLES:
                raise _too_many(path, member.filename.removesuffix(".npy"), count)
            sizes[member.filename] = max(member.file_size, count * kind.itemsize)
        _check_total(path, sizes)


def _check_total(path: Path, sizes: Mapping[str, int]) -> None:
    for what, value, bound in (
        ("series", len(sizes), MAX_SERIES),
        ("bytes of arrays", sum(sizes.values()), MAX_ARRAY_BYTES),
    ):
        if value > bound:
            raise _invalid(
                path, f"more than {bound} {what}", code="file-too-large", value=value, bound=bound
            )


def _checked(array: Any, path: Path, name: str) -> Numbers:
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in "fiu":
        kind = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else "bytes"
        raise _invalid(path, f"{name}: must be one row of numbers (is {kind})", field=name)
    if not len(array):
        raise _invalid(path, f"{name}: is empty", code="file-empty", field=name)
    if len(array) > MAX_SAMPLES:
        raise _too_many(path, name, len(array))
    values = array.astype(np.float64)
    known = values[~np.isnan(values)]
    if (np.abs(known) > 1e300).any():
        raise _invalid(path, f"{name}: a value is infinite or larger than 1e300", field=name)
    return values


def _too_many(path: Path, name: str, count: int) -> InputError:
    return _invalid(
        path,
        f"{name}: must have at most {MAX_SAMPLES} samples (has {count})",
        code="too-many-samples",
        field=name,
        value=count,
        bound=MAX_SAMPLES,
    )


# ------------------------------------------------------------------ samples
@dataclass
class _Damage:
    """Rows that are left out, counted; the first damaged one is named when the file is refused."""

    path: Path
    recording: Recording
    count: int = 0
    rows: int = 0
    first: str = ""
    fields: dict[str, Any] = field(default_factory=dict)

    def leave_out(self, line: int, why: str) -> None:
        self.recording.left_out += 1
        if len(self.recording.reasons) < MAX_REASONS:
            self.recording.reasons.append(f"line {line}: {why}")

    def add(self, line: int, why: str, **fields: Any) -> None:
        self.leave_out(line, why)
        self.count += 1
        if not self.first:
            self.first, self.fields = why, {"line": line, **fields}

    def judge(self) -> None:
        """Refuse a file with too many damaged rows."""
        if self.count * MAX_DAMAGED_PART > self.rows:
            more = f" ({self.count} of {self.rows} rows are damaged)" if self.rows > 1 else ""
            raise _invalid(self.path, self.first + more, **self.fields)


class _Samples:
    """A series while it is read: one value a sampling period, NaN where one is missing."""

    def __init__(self, damage: _Damage, name: str) -> None:
        self.values: list[float] = []
        self.in_seconds = True
        self._damage = damage
        self._name = name
        self._grid = SamplingGrid()
        self._before = -math.inf

    def add(self, time: float, value: float, line: int) -> None:
        """Append a sample; NaN is a missing one."""
        if not time > self._before:
            repeated = time == self._before
            why = "repeats the time" if repeated else "is not later than the time"
            self._damage.add(line, f"{why} of the row before", field="timestamp")
            return
        if self.values:
            self.values += [math.nan] * self._grid.missing(time - self._before)
            self._grid.update(time - self._before)
        if self.values or not math.isnan(value):
            self.values.append(value)
        self._before = time
        if len(self.values) > MAX_SAMPLES:
            raise _too_many(self._damage.path, self._name, len(self.values))

    def put(self, recording: Recording, name: str) -> None:
        """Put the series into a recording."""
        recording[name] = np.array(self.values)
        period = self._grid.regular_period
        if self.in_seconds and period is not None:
            recording.periods[name] = period


# ------------------------------------------------------------------ CSV
@dataclass
class _Dialect:
    """How a CSV writes its numbers, and where they stand."""

    delimiter: str
    columns: int
    time: int
    value: int
    decimal: str = ""
    dated: bool = False

    def number(self, text: str) -> float:
        """Return a number; a decimal comma only where commas do not separate columns."""
        if self.delimiter != "," and ("," in text or "." in text):
            mark = "," if "," in text else "."
            self.decimal = self.decimal or mark
            if mark != self.decimal or text.count(",") + text.count(".") > 1:
                raise ValueError(f"{text:.40}: its decimal mark is not that of the rows before")
            text = text.replace(",", ".")
        return float(text)

    def seconds(self, text: str) -> float:
        try:
            number = self.number(text)
        except ValueError:
            seconds = _date(text)
            self.dated = True
            return seconds
        return checked_value(number)


def _date(text: str) -> float:
    """Return the seconds since 1970 of an ISO 8601 time; without an offset it is UTC."""
    time = datetime.fromisoformat(_SLASHES.sub(r"\1-\2-\3", text.removesuffix(" UTC"), count=1))
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _read_csv(
    path: Path, lines: Iterator[str], column: str | None, recording: Recording
) -> _Samples:
    damage = _Damage(path, recording)
    samples = _Samples(damage, path.stem)
    first = ""
    dialect: _Dialect | None = None
    passed = 0
    for line in lines:
        if line.strip() and not _is_comment(line):
            first = line
            break
        passed += 1
    delimiter = next((mark for mark in "\t;" if mark in first), ",")
    for number, line in enumerate(chain((first,), lines), passed + 1):
        try:
            row = _cells(line, delimiter)
        except csv.Error as error:
            if dialect is None:
                raise _invalid(path, str(error), line=number) from error
            damage.rows += 1
            damage.add(number, str(error))
            continue
        if not any(row) or row[0].startswith("#"):
            continue
        if dialect is None:
            dialect, heading = _dialect(row, delimiter, column, path, number, recording)
            if heading:
                continue
        damage.rows += 1
        _add_row(row, number, dialect, damage, samples)
    damage.judge()
    if not samples.values:
        raise _invalid(path, "must contain lines of 'timestamp,value'", code="file-empty")
    return samples


def _cells(line: str, delimiter: str) -> list[str]:
    """Return the cells of a row; it ends with its line, for no sample takes several."""
    if line.count('"') % 2 and not _is_comment(line):
        raise csv.Error('a " without its other')
    cells = next(csv.reader((line,), delimiter=delimiter, skipinitialspace=True), [])
    return [cell.strip() for cell in cells]


def _add_row(
    row: Sequence[str], number: int, dialect: _Dialect, damage: _Damage, samples: _Samples
) -> None:
    if len(row) != dialect.columns:
        why = f"has {len(row)} columns where the first row has {dialect.columns}"
        damage.add(number, why, value=dialect.delimiter.join(row)[:80])
        return
    given = row[dialect.value]
    missing = given.casefold() in MISSING
    try:
        time = dialect.seconds(row[dialect.time])
        value = math.nan if missing else checked_value(dialect.number(given))
    except (ValueError, OverflowError):
        pair = f"{row[dialect.time]},{given}"
        damage.add(number, f"must be 'timestamp,value' (is {pair!r:.80})", value=pair[:80])
        return
    if missing:
        damage.leave_out(number, f"no value ({given!r})")
    samples.in_seconds = dialect.dated  # numbers may be times of any unit
    samples.add(time, value, number)


def _dialect(
    row: Sequence[str],
    delimiter: str,
    column: str | None,
    path: Path,
    line: int,
    recording: Recording,
) -> tuple[_Dialect, bool]:
    """Return where times and values stand, and whether this first row is a header."""
    plain = _Dialect(delimiter, len(row), 0, 1)
    try:
        plain.seconds(row[0])
        heading = False
    except (ValueError, OverflowError):
        heading = True
    if len(row) < 2:
        raise _invalid(
            path,
            f"must be 'timestamp,value' (is {row[0]!r:.80}); CSV, the JSON of query_range, OpenMetrics, a dump of "
            "promtool and .npz are read",
            line=line,
            value=row[0][:80],
        )
    names = [cell.casefold() for cell in row] if heading else [str(k + 1) for k in range(len(row))]
    time = next((names.index(name) for name in TIME_HEADERS if name in names), 0)
    others = [place for place in range(len(row)) if place != time]
    shown = [row[place] if heading else names[place] for place in others]
    if column is not None:
        chosen = [place for place in others if names[place] == column.strip().casefold()]
    elif VALUE_HEADER in names:
        chosen = [place for place in others if names[place] == VALUE_HEADER]
    else:
        chosen = others
    if len(chosen) != 1:
        listed = ", ".join(shown[:10]) + (" .." if len(shown) > 10 else "")
        wrong = "--column: no column of the file" if column is not None and not chosen else ""
        several = "several columns of values; choose one with --column"
        raise _invalid(
            path,
            f"{wrong or several} (columns: {listed:.300})",
            code="columns-differ",
            line=line,
            value=column,
            known=shown[:100],
        )
    ignored = [name for name, place in zip(shown, others, strict=True) if place != chosen[0]]
    if ignored:
        listed = ", ".join(ignored[:5]) + (" .." if len(ignored) > 5 else "")
        recording.notes.append(f"columns ignored: {listed:.300}")
    return _Dialect(delimiter, len(row), time, chosen[0]), heading


# ------------------------------------------------------------------ Prometheus
def _read_json(path: Path, lines: Iterator[str], recording: Recording) -> None:
    text, size = [], 0
    for line in lines:
        text.append(line)
        size += len(line) + 1
        if size > MAX_BYTES:
            raise _invalid(
                path,
                f"more than {MAX_BYTES} bytes of JSON",
                code="file-too-large",
                bound=MAX_BYTES,
            )
    try:
        matrix = parse_matrix("\n".join(text), stale=True)
    except SensorError as error:
        raise InputError(
            f"{path}: {error}; of JSON, the answers of query_range are read",
            **coded(error),
            file=str(path),
        ) from error
    damage = _Damage(path, recording)
    for series in matrix:
        name = series_text(series.labels) or path.stem
        samples = _Samples(damage, name)
        for number, (time, value) in enumerate(series.samples, 1):
            damage.rows += 1
            if math.isinf(value) or not math.isfinite(time) or abs(value) > 1e300:
                damage.add(number, f"sample {number} of {name} is infinite")
                continue
            if math.isnan(value):
                damage.leave_out(number, f"no value of {name} (sample {number})")
            samples.add(time, value, number)
        if samples.values:
            samples.put(recording, name)
    damage.judge()
    if not recording:
        raise _invalid(path, "holds no samples", code="file-empty")


def _read_export(path: Path, lines: Iterator[str], recording: Recording) -> None:
    damage = _Damage(path, recording)
    series: dict[str, _Samples] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or _is_comment(line):
            continue
        damage.rows += 1
        try:
            labels, time, value = exported_sample(line.strip())
            if math.isinf(value) or abs(value) > 1e300:
                raise InputError(f"{value:g} is not a measurement")
        except ValueError as error:
            damage.add(number, str(error))
            continue
        name = series_text(labels)
        if math.isnan(value):
            damage.leave_out(number, f"no value of {name}")
        if name not in series and len(series) >= MAX_SERIES:
            raise _invalid(
                path, f"more than {MAX_SERIES} series", code="file-too-large", bound=MAX_SERIES
            )
        series.setdefault(name, _Samples(damage, name)).add(time, value, number)
    damage.judge()
    for name, samples in series.items():
        if samples.values:
            samples.put(recording, name)
    if not recording:
        raise _invalid(path, "holds no samples", code="file-empty")
