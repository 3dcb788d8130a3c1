"""The bytes of the log: records of 32 bytes, each with its own checksum.

    marker 2 | kind 1 | blocks 1 | key 8 | time 8 | value 8 | crc32 4        a measurement
    the same of another kind: a measurement that a compaction wrote again
    marker 2 | kind 1 | blocks 1 | key 8 | length 2 | name, padded | crc32 4 the name behind a key
    marker 2 | kind 1 | blocks 1 | shard 4 | segment 4 | created 8 | 0 | crc32 4     a head

A key is the first 8 bytes of the BLAKE2b of the series' name; every segment names its keys itself
before their first measurement, twice, so that one bad byte costs one record and nothing else.
Little endian throughout. All is a multiple of 32 bytes long, so that an undamaged segment is read
at the speed of NumPy (`nws.memory.journal_format`); after damage the marker is searched for.
"""

import math
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray

# Fixed records with the key instead of the name: variable ones would take three times the bytes and
# a Python loop at every start.
BLOCK: Final = 32
MARKER: Final = b"\xa7W"
MEASUREMENT: Final = 1
NAME: Final = 2
HEAD: Final = 3
# Without a kind of its own, a restart would count rewritten records as late arrivals and change
# the forecasts.
KEPT: Final = 4
"""A measurement again, out of a segment that was removed: whoever follows the log has seen it."""
LONGEST_NAME: Final = 1024
"""Bytes of a series' name that fit into a name record with room to spare."""

MOST_BLOCKS: Final = {MEASUREMENT: 1, NAME: 33, HEAD: 1, KEPT: 1}

_MEASUREMENT = struct.Struct("<2sBBQdd")
_NAME = struct.Struct("<2sBBQH")
_HEAD = struct.Struct("<2sBBIId8x")
_CRC = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class SegmentHead:
    """The header of a segment, its first record."""

    shard: int
    segment: int
    created: float


@lru_cache(maxsize=1 << 17)
def key_of(name: str) -> int:
    """Return the key of a series' name.

    Examples
    --------
    >>> key_of("availableCpu/ada") == key_of("availableCpu/ada") != key_of("availableCpu/bob")
    True
    """
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


def encode_measurements(
    rows: Iterable[tuple[int, float, float]], kind: int = MEASUREMENT
) -> bytes:
    """Return the records of (key, time, value) rows; of kind `KEPT` where they are written again."""
    pack, crc, seal = _MEASUREMENT.pack, zlib.crc32, _CRC.pack
    pieces = []
    for key, time, value in rows:
        body = pack(MARKER, kind, 1, key, time, value)
        pieces.append(body)
        pieces.append(seal(crc(body)))
    return b"".join(pieces)


def encode_name(name: str) -> bytes:
    """Return the record that says which name is behind `key_of(name)`.

    Raises
    ------
    ValueError
        The name is longer than 1024 bytes.
    """
    text = name.encode()
    if len(text) > LONGEST_NAME:
        raise ValueError(f"a series' name of {len(text)} bytes is longer than {LONGEST_NAME}")
    blocks = math.ceil((_NAME.size + len(text) + _CRC.size) / BLOCK)
    body = _NAME.pack(MARKER, NAME, blocks, key_of(name), len(text)) + text
    body = body.ljust(blocks * BLOCK - _CRC.size, b"\0")
    return body + _CRC.pack(zlib.crc32(body))


def encode_head(head: SegmentHead) -> bytes:
    """Return the record that begins a segment."""
    body = _HEAD.pack(MARKER, HEAD, 1, head.shard, head.segment, head.created)
    return body + _CRC.pack(zlib.crc32(body))


def sound_length(data: bytes | memoryview, offset: int) -> int:
    """Return the bytes of the record at `offset` if its checksum is right, else 0."""
    head = bytes(data[offset : offset + 4])
    if len(head) < 4 or head[:2] != MARKER:
        return 0
    kind, blocks = head[2], head[3]
    most = MOST_BLOCKS.get(kind, 0)
    if not 1 <= blocks <= most:
        return 0
    record = bytes(data[offset : offset + blocks * BLOCK])
    if len(record) < blocks * BLOCK:
        return 0
    body, seal = record[: -_CRC.size], record[-_CRC.size :]
    return len(record) if _CRC.pack(zlib.crc32(body)) == seal else 0


def decode_name(record: bytes | memoryview) -> str:
    """Return the name in a sound name record; ValueError if it is not text behind its key."""
    *_, key, length = _NAME.unpack_from(record)
    name = bytes(record[_NAME.size : _NAME.size + length]).decode()
    if key_of(name) != key:
        raise ValueError(f"the name {name!r} is not behind its key")
    return name


def decode_head(record: bytes | memoryview) -> SegmentHead:
    """Return the head in a sound head record."""
    _, _, _, shard, segment, created = _HEAD.unpack_from(record)
    return SegmentHead(shard, segment, created)


LAYOUT: Final = np.dtype(
    [
        ("marker", "<u2"),
        ("kind", "u1"),
        ("blocks", "u1"),
        ("key", "<u8"),
        ("time", "<f8"),
        ("value", "<f8"),
        ("crc", "<u4"),
    ]
)
_MARKER = int.from_bytes(MARKER, "little")


@dataclass(frozen=True, slots=True)
class DamagedStretch:
    """Bytes `start` to `stop` of a segment in which there is no sound record."""

    start: int
    stop: int


@dataclass
class SegmentScan:
    """The content of a segment.

    Attributes
    ----------
    rows
        The measurements, in the order of the log (`LAYOUT`), and `offsets` where they begin.
    names
        The name behind each key.
    head
        What the first record says, if it is sound.
    damages
        The stretches without a sound record; one that reaches the end is a torn tail.
    """

    rows: NDArray[np.void]
    offsets: NDArray[np.int64]
    names: dict[int, str] = field(default_factory=dict)
    head: SegmentHead | None = None
    damages: list[DamagedStretch] = field(default_factory=list)


def scan(data: bytes) -> SegmentScan:
    """Return all sound records of a segment and the damage between them.

    Examples
    --------
    >>> from nws.memory.journal_format import encode_measurements
    >>> data = encode_measurements([(7, 10.0, 0.5), (7, 20.0, 0.25)])
    >>> scan(data).rows["value"].tolist()
    [0.5, 0.25]
    >>> scan(b"junk" + data[3:]).damages
    [DamagedStretch(start=0, stop=33)]
    """
    return _Scanner(data).run()


class _Scanner:
    """Walks over runs of measurements, found by NumPy, and over all else record by record."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._phases: dict[int, tuple[NDArray[np.void], NDArray[np.int64]]] = {}
        self._runs: list[NDArray[np.void]] = []
        self._places: list[NDArray[np.int64]] = []
        self._found = SegmentScan(np.empty(0, LAYOUT), np.empty(0, np.int64))

    def run(self) -> SegmentScan:
        offset = 0
        while offset < len(self._data):
            stop = self._end_of_run(offset)
            if stop > offset:
                self._take_run(offset, stop)
            else:
                stop = self._other(offset)
            offset = stop
        if self._runs:
            self._found.rows = np.concatenate(self._runs)
            self._found.offsets = np.concatenate(self._places)
        return self._found

    def _end_of_run(self, offset: int) -> int:
        """Return where the run of sound measurements that begins at `offset` ends."""
        phase = offset % BLOCK
        if phase not in self._phases:
            rows = _rows(self._data, phase)
            self._phases[phase] = rows, np.flatnonzero(~_sound(rows))
        rows, bad = self._phases[phase]
        index = offset // BLOCK
        place = int(np.searchsorted(bad, index))
        return phase + BLOCK * (int(bad[place]) if place < len(bad) else len(rows))

    def _take_run(self, start: int, stop: int) -> None:
        rows, _ = self._phases[start % BLOCK]
        self._runs.append(rows[start // BLOCK : stop // BLOCK])
        self._places.append(np.arange(start, stop, BLOCK, dtype=np.int64))

    def _other(self, offset: int) -> int:
        """Take in the record at `offset` that is no measurement, or skip to the next sound one."""
        length = sound_length(self._data, offset)
        if not length:
            return self._skip(offset)
        record = self._data[offset : offset + length]
        if record[2] == HEAD:
            self._found.head = self._found.head or decode_head(record)
        elif record[2] == NAME:
            try:
                name = decode_name(record)
            except ValueError:  # a right checksum over a wrong name: written by someone else
                self._found.damages.append(DamagedStretch(offset, offset + length))
            else:
                self._found.names[key_of(name)] = name
        return offset + length

    def _skip(self, start: int) -> int:
        offset = start
        while True:
            offset = self._data.find(MARKER, offset + 1)
            if offset < 0:
                offset = len(self._data)
            if offset == len(self._data) or sound_length(self._data, offset):
                self._found.damages.append(DamagedStretch(start, offset))
                return offset


def _rows(data: bytes, phase: int) -> NDArray[np.void]:
    count = (len(data) - phase) // BLOCK
    return np.frombuffer(data, LAYOUT, count, phase) if count > 0 else np.empty(0, LAYOUT)


def _sound(rows: NDArray[np.void]) -> NDArray[np.bool_]:
    """Return which rows are measurements with the right checksum."""
    kinds = (rows["kind"] == MEASUREMENT) | (rows["kind"] == KEPT)
    right: NDArray[np.bool_] = (rows["marker"] == _MARKER) & kinds & (rows["blocks"] == 1)
    piece = 1 << 16  # stays in the cache
    for begin in range(0, len(rows), piece):
        part = rows[begin : begin + piece]
        right[begin : begin + piece] &= checksums(part) == part["crc"]
    return right


def checksums(rows: NDArray[np.void]) -> NDArray[np.uint32]:
    """Return the CRC-32 (that of zlib) of all but the last four bytes of each row."""
    width = rows.dtype.itemsize
    columns = rows.view(np.uint8).reshape(len(rows), width)[:, : width - 4].T.copy()
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in columns:
        crc = _TABLE[(crc ^ column) & 0xFF] ^ (crc >> np.uint32(8))
    return crc ^ np.uint32(0xFFFFFFFF)


def _table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> np.uint32(1)) ^ np.uint32(0xEDB88320), table >> 1)
    return table.astype(np.uint32)


_TABLE: Final = _table()
