"""The bytes of the log: records of 32 bytes, each with its own checksum.

    marker 2 | kind 1 | blocks 1 | key 8 | time 8 | value 8 | crc32 4        a measurement
    marker 2 | kind 1 | blocks 1 | key 8 | length 2 | name, padded | crc32 4 the name behind a key
    marker 2 | kind 1 | blocks 1 | shard 4 | segment 4 | created 8 | 0 | crc32 4     a head

A key is the first 8 bytes of the BLAKE2b of the series' name; every segment names its keys itself
before their first measurement, twice, so that one bad byte costs one record and nothing else.
Little endian throughout. All is a multiple of 32 bytes long, so that an undamaged segment is read
at the speed of NumPy (`nws.journal.scan`); after damage the marker is searched for.
"""

import math
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final

BLOCK: Final = 32
MARKER: Final = b"\xa7W"
MEASUREMENT: Final = 1
NAME: Final = 2
HEAD: Final = 3
LONGEST_NAME: Final = 1024
"""Bytes of a series' name that fit into a name record with room to spare."""

MOST_BLOCKS: Final = {MEASUREMENT: 1, NAME: 33, HEAD: 1}

_MEASUREMENT = struct.Struct("<2sBBQdd")
_NAME = struct.Struct("<2sBBQH")
_HEAD = struct.Struct("<2sBBIId8x")
_CRC = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Head:
    """What the first record of a segment says of it."""

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


def encode_measurements(rows: Iterable[tuple[int, float, float]]) -> bytes:
    """Return the records of (key, time, value) rows."""
    pack, crc, seal = _MEASUREMENT.pack, zlib.crc32, _CRC.pack
    pieces = []
    for key, time, value in rows:
        body = pack(MARKER, MEASUREMENT, 1, key, time, value)
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


def encode_head(head: Head) -> bytes:
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


def decode_head(record: bytes | memoryview) -> Head:
    """Return the head in a sound head record."""
    _, _, _, shard, segment, created = _HEAD.unpack_from(record)
    return Head(shard, segment, created)
