"""An append-only log: each record is on the disk before its owner acts on it or acknowledges it.

A line is ``checksum number json``: CRC-32 in hexadecimal, the record's number, and the record. The reader takes
every intact line, before and after damage, and reports damaged bytes and missing numbers. After a disk error the
file is never appended to again: the owner first replaces it by a snapshot of its whole state. Records that are
appended together share one sync of the disk (group commit).

A journal may be plain instead: each line is only a JSON object, for a file that users read with other tools.
The reader then detects only incomplete lines.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from apples.errors import LaunchError, coded, system_code
from apples.io.folder import MODE, Folder

Record = dict[str, Any]
MAX_ASIDE: Final = 16
"""Largest number of copies of damaged journals."""
MAX_RECORD_BYTES: Final = 1 << 20
PLAIN_MODE: Final = 0o666
"""Mode of a plain journal's file, less the user's umask."""
BEGIN: Final = "begin"
"""Value of ``do`` in the head, the first record of a journal with checksums."""


class JournalError(LaunchError):
    """A record could not be stored. Transient: the disk is full or failed, and the next write tries it again.

    Permanent if the file is another program's journal.
    """

    code = "log-unwritable"


@dataclass(frozen=True, slots=True)
class Recovered:
    """The content of a journal: its intact records in order, and one line for each problem."""

    records: tuple[Record, ...]
    problems: tuple[str, ...] = ()


class Journal:
    """Appends records durably.

    Parameters
    ----------
    folder, name
        Directory and name of the file.
    schema
        Schema of the records, ``name/version``; a journal with another schema is rejected. Empty: a plain journal.

    Attributes
    ----------
    lines
        Number of records in the file; the owner uses it to decide when to rewrite.
    bytes, least_bytes
        Size of the file now, and when it was last read or rewritten.
    """

    def __init__(self, folder: Folder, schema: str, name: str = "journal") -> None:
        self.lines = 0
        self.bytes = self.least_bytes = 0
        self._folder = folder
        self._schema = schema
        self._name = name
        self._fresh = f"{name}.new"
        self._next = 1
        self._descriptor: int | None = None
        self._broken = ""

    def recover(self) -> Recovered:
        """Read the file and prepare it for appending; a damaged file is copied and then has to be rewritten.

        Raises
        ------
        JournalError
            The file has records of another schema. Permanent.
        OSError
            The file exists and cannot be read.
        """
        self._folder.remove(self._fresh)
        try:
            data = self._folder.read(self._name)
        except FileNotFoundError:
            self._broken = "new"  # written whole before the first record
            return Recovered(())
        records, problems, last = parse(data, sealed=bool(self._schema))
        self._check(records)
        self.lines = len(records)
        self.bytes = self.least_bytes = len(data)
        self._next = last + 1
        if problems or not data.endswith(b"\n"):
            self._set_aside(data)
            self._broken = "damaged"
        else:
            self._descriptor = self._folder.open_file(self._name, os.O_WRONLY | os.O_APPEND)
        return Recovered(tuple(r for r in records if not _is_head(r)), tuple(problems))

    @property
    def whole(self) -> bool:
        """Whether records can be appended; if not, call `rewrite` first."""
        return not self._broken

    def append(self, *records: Record) -> None:
        """Write records under one sync; they are on the disk when this returns.

        Raises
        ------
        JournalError
            Some or all records were not stored. Call `rewrite` before the next `append`.
        """
        if self._broken or self._descriptor is None:
            raise JournalError(
                f"{self._folder.name}/{self._name} must be rewritten: {self._broken}",
                file=f"{self._folder.name}/{self._name}", reason=str(self._broken),
            )  # fmt: skip
        data = self._encoded(records)
        try:
            self._folder.append(self._descriptor, data)
        except OSError as error:
            raise self._failed(error) from error
        self.bytes += len(data)
        self._next += len(records)
        self.lines += len(records)

    def rewrite(self, records: Sequence[Record]) -> None:
        """Replace the file atomically by these records, a snapshot of the current state."""
        if self._schema:
            records = [{"do": BEGIN, "schema": self._schema}, *records]
        data = self._encoded(records)
        try:
            self._folder.remove(self._fresh)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
            mode = MODE if self._schema else PLAIN_MODE
            fresh = self._folder.open_file(self._fresh, flags, mode)
            try:
                self._folder.append(fresh, data)
                self._folder.rename(self._fresh, self._name)
                self._folder.sync()
            except OSError:
                os.close(fresh)
                raise
        except OSError as error:
            raise self._failed(error) from error
        self.close()
        self._descriptor = fresh
        self._next += len(records)
        self.lines = len(records)
        self.bytes = self.least_bytes = len(data)
        self._broken = ""

    def close(self) -> None:
        """Close the descriptor."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def _failed(self, error: OSError) -> JournalError:
        """Close the file, mark it as to be rewritten, and return the error."""
        self._broken = error.strerror or str(error)
        self.close()
        file = f"{self._folder.name}/{self._name}"
        fields = {**coded(error, code=system_code(error)), "file": file}
        return JournalError(f"{file}: {self._broken}", **fields)

    def _check(self, records: Sequence[Record]) -> None:
        for found in (record.get("schema") for record in records if _is_head(record)):
            if self._schema and found != self._schema:
                raise JournalError(
                    f"{self._folder.name}/{self._name}: its records are of {str(found)[:60]}, this "
                    f"program reads {self._schema}; move the file away to begin anew",
                    code="log-foreign", file=f"{self._folder.name}/{self._name}", value=str(found)[:60],
                    known=[self._schema],
                )  # fmt: skip

    def _encoded(self, records: Sequence[Record]) -> bytes:
        if not self._schema:
            return b"".join(map(encode_plain, records))
        return b"".join(encode_record(number, r) for number, r in enumerate(records, self._next))

    def _set_aside(self, data: bytes) -> None:
        """Keep a copy of a damaged journal as evidence, if the disk permits it."""
        taken = [n for n in self._folder.names() if n.startswith(f"{self._name}.bad-")]
        if len(taken) >= MAX_ASIDE:
            return
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            copy = self._folder.open_file(f"{self._name}.bad-{len(taken) + 1}", flags)
            try:
                os.write(copy, data)
            finally:
                os.close(copy)


def encode_record(number: int, record: Record) -> bytes:
    """Return the line of a record."""
    text = json.dumps(record, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    body = f"{number} {text}".encode()
    return b"%08x %s\n" % (zlib.crc32(body), body)


def encode_plain(record: Record) -> bytes:
    """Return the line of a record in a plain journal."""
    return json.dumps(record).encode() + b"\n"


def parse(data: bytes, *, sealed: bool = True) -> tuple[list[Record], list[str], int]:
    """Return the intact records, one line for each problem, and the highest record number.

    Examples
    --------
    >>> line = encode_record(1, {"do": "x"})
    >>> parse(line + b"junk" + encode_record(3, {"do": "y"}) + encode_record(4, {"do": "z"}))[0]
    [{'do': 'x'}, {'do': 'z'}]
    """
    records: list[Record] = []
    problems: list[str] = []
    last, offset = 0, 0
    for line in data.split(b"\n"):
        found = _parsed(line) if sealed else _parsed_plain(line, last + 1)
        if found is None:
            if line:
                problems.append(f"{len(line)} damaged bytes at {offset}")
        else:
            number, record = found
            if last and number != last + 1:
                problems.append(f"records {last + 1} to {number - 1} are missing")
            last = max(last, number)
            records.append(record)
        offset += len(line) + 1
    return records, problems, last


def _parsed(line: bytes) -> tuple[int, Record] | None:
    if len(line) > MAX_RECORD_BYTES:
        return None
    seal, _, body = line.partition(b" ")
    try:
        if seal != b"%08x" % zlib.crc32(body):
            return None
        number, _, text = body.partition(b" ")
        record = json.loads(text)
        return (int(number), record) if isinstance(record, dict) else None
    except (ValueError, RecursionError):
        return None


def _parsed_plain(line: bytes, number: int) -> tuple[int, Record] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return (number, record) if isinstance(record, dict) else None


def _is_head(record: Record) -> bool:
    return record.get("do") == BEGIN
