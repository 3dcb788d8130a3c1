"""Import of a directory that apples 0.2 wrote: a log of measurements in segments, and an archive of slots.

A segment is a sequence of blocks of 32 bytes, each record with its own checksum:

    marker 2 | kind 1 | blocks 1 | key 8 | time 8 | value 8 | crc32 4        a measurement (kind 1 or 4)
    marker 2 | kind 2 | blocks 1 | key 8 | length 2 | name, padded | crc32 4 the name behind a key

A file of the archive is a sequence of slots of 44 bytes; the last one of a series and start counts. A
damaged block is skipped and counted. The states of the forecasters are not imported: they begin with the samples.
"""

import math
import sqlite3
import struct
import time
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Final

from nws.measurement import LARGEST, SeriesName
from nws.memory.connection import DATABASE, opened
from nws.memory.slots import TIERS, Slot, add_slots

BLOCK: Final = 32
MARKER: Final = b"\xa7W"
NAME: Final = 2
MEASUREMENTS: Final = frozenset({1, 4})
MAX_BLOCKS: Final = 33
ASIDE: Final = "apples-0.2"
"""The folder that the imported files are moved to."""
CACHE_KIB: Final = 1 << 16
"""Page cache of an import: measurements of many series come in turns."""

_MEASUREMENT = struct.Struct("<2sBBQdd")
_NAME = struct.Struct("<2sBBQH")
_SLOT = struct.Struct("<QIIddd")
_CRC = struct.Struct("<I")
_INSERT: Final = """
INSERT OR IGNORE INTO samples (series, time, value, position) VALUES (?, ?, ?, total_changes())
"""
FOLDERS: Final = ("shard-*", "archive", "states")


@dataclass(slots=True)
class Losses:
    """Parts of old files that are not imported: records, slots, damaged bytes, and bytes of a torn tail."""

    records: int = 0
    slots: int = 0
    damaged: int = 0
    torn: int = 0


def is_old(directory: Path) -> bool:
    """Whether a directory has a log of apples 0.2, and no database yet."""
    return not (directory / DATABASE).exists() and any(directory.glob("shard-*/*.log"))


def import_old(directory: Path, capacity: int) -> str:
    """Make the database of an old directory, move the old files aside, and return a line about it.

    Parameters
    ----------
    capacity
        Measurements of each series to keep one by one.

    Raises
    ------
    OSError, StorageError
        A file cannot be read or written. The old files stay as they were.
    """
    losses = Losses()
    fresh = directory / f"{DATABASE}.new"
    for path in directory.glob(f"{DATABASE}.new*"):  # of an import that was interrupted
        path.unlink()
    with closing(opened(fresh)) as connection:
        connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
        connection.execute("BEGIN IMMEDIATE")
        names = _import_samples(connection, directory, losses)
        _import_slots(connection, directory, names, capacity, losses)
        (stored,) = connection.execute("SELECT count(*) FROM samples").fetchone()
        connection.execute("COMMIT")
    fresh.replace(directory / DATABASE)
    aside = _move_aside(directory)
    line = f"{stored} measurements of {len(names)} series were imported from the format of apples 0.2; "
    if losses.torn:
        line += f"{losses.torn} bytes of a record that was not written whole were left out; "
    if losses.records or losses.slots or losses.damaged:
        return (
            f"{line}{losses.records} damaged records, {losses.slots} slots and {losses.damaged} bytes "
            f"could not be read: keep {aside}"
        )
    return f"{line}remove {aside} once you need no way back"


def finish_import(directory: Path) -> str | None:
    """Move old files aside that lie beside a database, and return a line about it; None if there are none.

    So they lie after an import that was interrupted behind its last write.
    """
    if not any(directory.glob("shard-*/*.log")):
        return None
    aside = _move_aside(directory)
    return (
        f"files of apples 0.2 lay beside the database, and were moved to {aside} without an import"
    )


def _move_aside(directory: Path) -> Path:
    """Move the old files to a folder that has none of them yet, and return it."""
    paths = [path for pattern in FOLDERS for path in directory.glob(pattern)]
    folders = (directory / (f"{ASIDE}-{number}" if number > 1 else ASIDE) for number in count(1))
    aside = next(
        folder for folder in folders if not any((folder / path.name).exists() for path in paths)
    )
    aside.mkdir(mode=0o700, exist_ok=True)
    for path in paths:
        path.replace(aside / path.name)
    return aside


def _import_samples(
    connection: sqlite3.Connection, directory: Path, losses: Losses
) -> dict[int, str]:
    """Store the sound measurements of all segments, the first of a time, and return the series by key."""
    names: dict[int, str] = {}
    numbers: dict[int, int] = {}
    for path in sorted(directory.glob("shard-*/*.log")):
        for kind, key, record in _records(path.read_bytes(), losses):
            if kind == NAME:
                losses.records += not _learn(names, key, record)
            elif kind in MEASUREMENTS:
                *_, at, value = _MEASUREMENT.unpack_from(record)
                if not (0 <= at <= LARGEST and -LARGEST <= value <= LARGEST):
                    losses.records += 1
                    continue
                number = numbers.setdefault(key, len(numbers) + 1)
                connection.execute(_INSERT, (number, at, value))
    for key in numbers.keys() - names.keys():
        losses.records += connection.execute(
            "DELETE FROM samples WHERE series = ?", (numbers[key],)
        ).rowcount
    known = {key: name for key, name in names.items() if key in numbers}
    connection.executemany(
        "INSERT INTO series (id, name, created) VALUES (?, ?, ?)",
        [(numbers[key], name, time.time()) for key, name in known.items()],
    )
    return known


def _import_slots(
    connection: sqlite3.Connection,
    directory: Path,
    names: Mapping[int, str],
    capacity: int,
    losses: Losses,
) -> None:
    """Store the slots of the series, and delete all but the latest of their measurements."""
    slots = _slots(directory, names, losses)
    step = TIERS[0].step
    for key, name in names.items():
        number, latest = connection.execute(
            "SELECT series, min(time) FROM (SELECT series, time FROM samples WHERE series = "
            "(SELECT id FROM series WHERE name = ?) ORDER BY time DESC LIMIT ?)",
            (name, capacity),
        ).fetchone()
        begin = math.floor(latest / step) * step  # the begin of a slot
        connection.execute("DELETE FROM samples WHERE series = ? AND time < ?", (number, begin))
        connection.execute("UPDATE series SET folded = ? WHERE id = ?", (begin, number))
        add_slots(connection, number, _before(slots.get(key, []), begin))


def _before(slots: list[Slot], begin: float) -> list[Slot]:
    """Return the finest slots before a time, and before these the coarser: none covers a time twice."""
    kept: list[Slot] = []
    for tier in TIERS:
        if kept:
            begin = math.floor(kept[0].start / tier.step) * tier.step
        finer = [s for s in slots if s.step == tier.step and s.start + s.step <= begin]
        kept = [*finer, *kept]
    return kept


def _records(data: bytes, losses: Losses) -> Iterator[tuple[int, int, bytes]]:
    """Yield kind, key and bytes of each record with a right checksum."""
    offset = 0
    while offset < len(data):
        blocks = (
            data[offset + 3]
            if data[offset : offset + 2] == MARKER and len(data) - offset >= BLOCK
            else 0
        )
        record = data[offset : offset + blocks * BLOCK]
        body, crc = record[: -_CRC.size], record[-_CRC.size :]
        if 1 <= blocks <= MAX_BLOCKS and _CRC.pack(zlib.crc32(body)) == crc:
            yield record[2], int.from_bytes(record[4:12], "little"), record
            offset += len(record)
        else:
            following = data.find(MARKER, offset + 1)
            skipped = (len(data) if following < 0 else following) - offset
            if following < 0 and skipped < MAX_BLOCKS * BLOCK:
                losses.torn += skipped
            else:
                losses.damaged += skipped
            offset += skipped


def _learn(names: dict[int, str], key: int, record: bytes) -> bool:
    """Take in the name behind a key; return whether it is the name of a series."""
    *_, length = _NAME.unpack_from(record)
    try:
        name = record[_NAME.size : _NAME.size + length].decode()
        if _key_of(name) != key:
            return False
        names[key] = str(SeriesName.parse(name))
    except ValueError:
        return False
    return True


def _key_of(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


def _slots(directory: Path, keys: Collection[int], losses: Losses) -> dict[int, list[Slot]]:
    """Return the sound slots of the archive of each series, oldest first."""
    found: dict[tuple[int, float, float], Slot] = {}
    for tier in TIERS:
        for path in sorted(directory.glob(f"archive/{tier.step:.0f}/*.rows"), key=_number):
            data = path.read_bytes()
            size = _SLOT.size + _CRC.size
            losses.torn += len(data) % size
            for offset in range(0, len(data) - size + 1, size):
                body = data[offset : offset + _SLOT.size]
                key, number, count, mean, low, high = _SLOT.unpack(body)
                (crc,) = _CRC.unpack_from(data, offset + _SLOT.size)
                if zlib.crc32(body) == crc and key in keys and count > 0 and low <= mean <= high:
                    slot = Slot(number * tier.step, tier.step, count, mean, low, high)
                    found[key, tier.step, slot.start] = slot
                else:
                    losses.slots += 1
    slots: dict[int, list[Slot]] = {}
    for key, step, start in sorted(found):
        slots.setdefault(key, []).append(found[key, step, start])
    return slots


def _number(path: Path) -> tuple[int, str]:
    return (int(path.stem) if path.stem.isascii() and path.stem.isdigit() else 0, path.stem)
