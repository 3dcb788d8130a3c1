"""The log of what was decided: a record is on the disk before anything is done or answered.

A line is ``checksum number json``: CRC-32 in hexadecimal, the record's number, and the record. Reading takes
every sound line wherever the damage is; a number that is missing is reported. After an error of the disk
nothing is written to that file again: the whole is written anew, from memory, before the next record.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from apples.errors import LaunchError
from apples.topology.folder import Folder

Record = dict[str, Any]
NAME: Final = "journal"
FRESH: Final = "journal.new"
MOST_ASIDE: Final = 16
LONGEST_LINE: Final = 1 << 20
HEAD: Final = {"do": "begin", "schema": "apples.topologyd-journal/1"}


class JournalError(LaunchError):
    """Nothing was recorded. Transient: the disk is full or failed, and is tried again next time."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was read: the sound records in order, and what is wrong, one line each."""

    records: tuple[Record, ...]
    problems: tuple[str, ...] = ()


class Journal:
    """Appends records durably.

    Parameters
    ----------
    folder
        Where it is kept.

    Attributes
    ----------
    lines
        How many records the file has: whoever keeps the state decides when to rewrite.
    """

    def __init__(self, folder: Folder) -> None:
        self.lines = 0
        self._folder = folder
        self._next = 1
        self._descriptor: int | None = None
        self._broken = ""

    def recover(self) -> Recovered:
        """Read what is there and get ready to append; damage is set aside, never in the way."""
        self._folder.remove(FRESH)
        try:
            data = self._folder.read(NAME)
        except FileNotFoundError:
            self._broken = "new"  # written whole before the first record
            return Recovered(())
        records, problems, last = parse(data)
        self.lines = len(records)
        self._next = last + 1
        if problems or not data.endswith(b"\n"):
            self._set_aside(data)
            self._broken = "damaged"
        else:
            self._descriptor = self._folder.open_file(NAME, os.O_WRONLY | os.O_APPEND)
        return Recovered(tuple(r for r in records if r.get("do") != "begin"), tuple(problems))

    @property
    def whole(self) -> bool:
        """Whether records can be appended; if not, `rewrite` comes first."""
        return not self._broken

    def append(self, record: Record) -> None:
        """Write a record; it is on the disk when this returns.

        Raises
        ------
        JournalError
            It is not. The file must be rewritten before anything else is recorded.
        """
        if self._broken or self._descriptor is None:
            raise JournalError(f"the journal has to be written anew: {self._broken}")
        try:
            self._folder.append(self._descriptor, encode(self._next, record))
        except OSError as error:
            self._fail(error)
            raise JournalError(f"{self._folder.name}/{NAME}: {error.strerror}") from error
        self._next += 1
        self.lines += 1

    def rewrite(self, records: Sequence[Record]) -> None:
        """Replace everything by these records: the state as it is now; all or nothing."""
        lines = [encode(self._next + n, r) for n, r in enumerate([HEAD, *records])]
        try:
            self._folder.remove(FRESH)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
            fresh = self._folder.open_file(FRESH, flags)
            try:
                self._folder.append(fresh, b"".join(lines))
                self._folder.rename(FRESH, NAME)
                self._folder.sync()
            except OSError:
                os.close(fresh)
                raise
        except OSError as error:
            self._fail(error)
            raise JournalError(f"{self._folder.name}/{NAME}: {error.strerror}") from error
        self.close()
        self._descriptor = fresh
        self._next += len(lines)
        self.lines = len(lines)
        self._broken = ""

    def close(self) -> None:
        """Give the descriptor back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def _fail(self, error: OSError) -> None:
        self._broken = error.strerror or str(error)
        self.close()

    def _set_aside(self, data: bytes) -> None:
        """Keep a copy of a damaged journal as evidence; not a promise."""
        taken = [n for n in self._folder.names() if n.startswith("journal.bad-")]
        if len(taken) >= MOST_ASIDE:
            return
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            copy = self._folder.open_file(f"journal.bad-{len(taken) + 1}", flags)
            try:
                os.write(copy, data)
            finally:
                os.close(copy)


def encode(number: int, record: Record) -> bytes:
    """Return the line of a record."""
    text = json.dumps(record, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    body = f"{number} {text}".encode()
    return b"%08x %s\n" % (zlib.crc32(body), body)


def parse(data: bytes) -> tuple[list[Record], list[str], int]:
    """Return the sound records, what is wrong, and the highest number.

    Examples
    --------
    >>> line = encode(1, {"do": "x"})
    >>> parse(line + b"junk" + encode(3, {"do": "y"}) + encode(4, {"do": "z"}))[0]
    [{'do': 'x'}, {'do': 'z'}]
    """
    records: list[Record] = []
    problems: list[str] = []
    last, offset = 0, 0
    for line in data.split(b"\n"):
        found = _parsed(line)
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
    if len(line) > LONGEST_LINE:
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
