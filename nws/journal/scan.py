"""Reading a segment: every sound record, wherever the damage is."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from nws.journal.record import (
    BLOCK,
    HEAD,
    MARKER,
    MEASUREMENT,
    NAME,
    Head,
    decode_head,
    decode_name,
    key_of,
    sound_length,
)

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
class Damage:
    """Bytes `start` to `stop` of a segment in which there is no sound record."""

    start: int
    stop: int


@dataclass
class Scan:
    """What a segment holds.

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
    head: Head | None = None
    damages: list[Damage] = field(default_factory=list)


def scan(data: bytes) -> Scan:
    """Return all sound records of a segment and the damage between them.

    Examples
    --------
    >>> from nws.journal.record import encode_measurements
    >>> data = encode_measurements([(7, 10.0, 0.5), (7, 20.0, 0.25)])
    >>> scan(data).rows["value"].tolist()
    [0.5, 0.25]
    >>> scan(b"junk" + data[3:]).damages
    [Damage(start=0, stop=33)]
    """
    return _Scanner(data).run()


class _Scanner:
    """Walks over runs of measurements, found by NumPy, and over all else record by record."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._phases: dict[int, tuple[NDArray[np.void], NDArray[np.int64]]] = {}
        self._runs: list[NDArray[np.void]] = []
        self._places: list[NDArray[np.int64]] = []
        self._found = Scan(np.empty(0, LAYOUT), np.empty(0, np.int64))

    def run(self) -> Scan:
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
                self._found.damages.append(Damage(offset, offset + length))
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
                self._found.damages.append(Damage(start, offset))
                return offset


def _rows(data: bytes, phase: int) -> NDArray[np.void]:
    count = (len(data) - phase) // BLOCK
    return np.frombuffer(data, LAYOUT, count, phase) if count > 0 else np.empty(0, LAYOUT)


def _sound(rows: NDArray[np.void]) -> NDArray[np.bool_]:
    """Return which rows are measurements with the right checksum."""
    right: NDArray[np.bool_] = (
        (rows["marker"] == _MARKER) & (rows["kind"] == MEASUREMENT) & (rows["blocks"] == 1)
    )
    piece = 1 << 16  # stays in the cache
    for begin in range(0, len(rows), piece):
        part = rows[begin : begin + piece]
        right[begin : begin + piece] &= _checksums(part) == part["crc"]
    return right


def _checksums(rows: NDArray[np.void]) -> NDArray[np.uint32]:
    """Return the CRC-32 (that of zlib) of the first 28 bytes of each row."""
    columns = rows.view(np.uint8).reshape(len(rows), BLOCK)[:, : BLOCK - 4].T.copy()
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
