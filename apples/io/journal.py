"""An append-only log of records: a record is on the disk before anything is done or answered.

A line is ``checksum number json``: CRC-32 in hexadecimal, the record's number, and the record. Reading takes
every sound line wherever the damage is, and reports damaged bytes and missing numbers. After an error of the
disk nothing is written to that file again: the owner writes its whole state anew (a snapshot), and goes on.
Several records that are appended together share one sync of the disk (group commit).

A journal may be plain instead: each line is a JSON object alone, for a file that users read with other tools.
Then only a torn line is noticed.
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
"""Copies of damaged journals that are kept."""
MAX_RECORD_BYTES: Final = 1 << 20
PLAIN_MODE: Final = 0o666
"""Of a plain journal, less the user's umask."""
BEGIN: Final = "begin"
"""What the head, the first record of a sealed journal, says that it does."""


class JournalError(LaunchError):
    """Nothing was recorded. Transient: the disk is full or failed, and is tried again next time.

    Permanent where the file is another program's journal.
    """

    code = "log-unwritable"


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was read: the sound records in order, and what is wrong, one line each."""

    records: tuple[Record, ...]
    problems: tuple[str, ...] = ()


class Journal:
    """Appends records durably.

    Parameters
    ----------
    folder, name
        Where it is kept.
    schema
        Which records they are, ``name/version``; another journal is refused. Empty: a plain journal.

    Attributes
    ----------
    lines
        How many records the file has: the owner of the state decides when to rewrite.
    bytes, least_bytes
        How long it is, and how long it was when it was last read or rewritten.
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
        """Read what is there and get ready to append; damage is set aside, never in the way.

        Raises
        ------
        JournalError
            It has records of another schema. Permanent.
        OSError
            The file is there and cannot be read.
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
        """Whether records can be appended; if not, `rewrite` comes first."""
        return not self._broken

    def append(self, *records: Record) -> None:
        """Write records under one sync; they are on the disk when this returns.

        Raises
        ------
        JournalError
            They are not, or not all. The file must be rewritten before anything else is recorded.
        """
        if self._broken or self._descriptor is None:
            raise JournalError(
                f"{self._folder.name}/{self._name} has to be written anew: {self._broken}",
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
        """Replace everything by these records: the state as it is now; all or nothing."""
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
        """Give the descriptor back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def _failed(self, error: OSError) -> JournalError:
        """Close the file, which has to be rewritten, and return the error."""
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
        """Keep a copy of a damaged journal as evidence; not a promise."""
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
    """Return the sound records, what is wrong, and the highest number.

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
