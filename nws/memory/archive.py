"""What is left of measurements that are too old to be kept one by one: means, lows and highs of slots.

    archive/300/19723.rows      slots of five minutes, a file a day
    archive/3600/657.rows       slots of an hour, a file thirty days

A file is a sequence of records of 44 bytes, each with its own checksum; the last of a series and slot
counts. So a year of 1,000 series takes 1.2 GB, whatever the rate at which they were measured.
"""

import contextlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nws.memory.column import SeriesColumn
from nws.memory.journal_files import Files, number_in, write_all
from nws.memory.journal_format import checksums, key_of

DAY: Final = 86400.0
SUFFIX: Final = ".rows"
LAG: Final = 60.0
"""Seconds after the end of a slot in which its last measurements may still come."""
ROW: Final = np.dtype(
    [
        ("key", "<u8"),
        ("slot", "<u4"),
        ("count", "<u4"),
        ("mean", "<f8"),
        ("low", "<f8"),
        ("high", "<f8"),
        ("crc", "<u4"),
    ]
)
LAST_SLOT: Final = 1 << 32
Row = tuple[Any, ...]
"""Key, slot, count, mean, low and high."""
Rows = NDArray[np.void]


@dataclass(frozen=True, slots=True)
class Tier:
    """A resolution, and for how long it is kept.

    Attributes
    ----------
    step
        Seconds of a slot.
    age
        Seconds after which a file of slots is let go.
    file
        Seconds that a file covers.
    """

    step: float
    age: float
    file: float


TIERS: Final = (Tier(300.0, 60 * DAY, DAY), Tier(3600.0, 400 * DAY, 30 * DAY))


@dataclass(frozen=True, slots=True)
class Slot:
    """What was measured in `step` seconds from `start` on: `count` values, their mean, low and high."""

    start: float
    step: float
    count: int
    mean: float
    low: float
    high: float


class Archive:
    """Slots of all series, the finest from the measurements, each coarser from the one before.

    One thread at a time adds; any may read.

    Parameters
    ----------
    directory
        Where the files are; made if it is not there.
    tiers
        The resolutions, ascending; each step a multiple of the one before.
    size
        Bytes of all files; the oldest goes when there are more.
    files
        What reads and writes.

    Examples
    --------
    >>> import tempfile
    >>> from nws.measurement import SeriesName
    >>> ada = SeriesColumn(SeriesName("availableCpu", "ada"), 100)
    >>> _ = ada.extend([60.0 * step for step in range(20)], [0.25, 0.75] * 10)
    >>> archive = Archive(Path(tempfile.mkdtemp(), "archive"))
    >>> archive.add([ada], now=1000.0)
    3
    >>> [(slot.start, slot.count, slot.mean) for slot in archive.read("availableCpu/ada", 0, 600)]
    [(0.0, 5, 0.45), (300.0, 5, 0.55)]
    """

    def __init__(
        self,
        directory: Path,
        tiers: Sequence[Tier] = TIERS,
        size: float = math.inf,
        files: Files | None = None,
    ) -> None:
        self.directory = directory
        self.tiers = tuple(tiers)
        self._size = size
        self._files = files or Files()
        self._adding = Lock()
        for tier in self.tiers:
            self._files.make_directory(self._folder(tier))
        self._done: dict[int, tuple[int, int]] = {}  # the latest slot of a series, and its count
        self._floor = -1
        self._pending: list[dict[int, set[int]]] = [{} for _ in self.tiers]
        self._recover()

    def add(
        self,
        columns: Iterable[SeriesColumn],
        now: float,
        pause: Callable[[], object] | None = None,
    ) -> int:
        """Archive the slots of series that are over by `now`; return how many of the finest.

        The latest slot of a series is archived once more if more was measured in it since: what is
        imported comes in pieces.

        Raises
        ------
        OSError
            Transient: nothing of it counts, and it is tried again the next time.
        """
        finest = self.tiers[0]
        over = math.floor((now - LAG) / finest.step)
        kept = math.floor((now - max(tier.age for tier in self.tiers)) / finest.step)
        pause = pause or _go_on
        with self._adding:
            keyed: dict[int, SeriesColumn] = {}
            for column in columns:
                keyed[key_of(column.text)] = column
                pause()
            self._look_back(keyed, max(0, kept), pause)
            found: list[Row] = []
            done: dict[int, tuple[int, int]] = {}
            for key, column in keyed.items():
                latest, count = self._done.get(key, (self._floor, 0))
                first = max(latest, kept, 0)
                if column.newest < first * finest.step:
                    continue
                times, values = column.arrays(first * finest.step)
                slots = np.floor(times / finest.step).astype(np.int64)
                rows = _summed(key, slots, np.ones(len(slots)), values, values, values)
                rows = [row for row in rows if row[1] < over]
                if rows and rows[0][1] == latest and rows[0][2] <= count:
                    del rows[0]
                if rows:
                    done[key] = rows[-1][1:3]
                    found += rows
                pause()
            # What a file of the finest begins is coarsened before the next file: so what a killed
            # process has left undone belongs to the last file that it wrote of a series.
            for part in self._by_file(finest, found) or [[]]:
                self._append(0, part)
                for place in range(1, len(self.tiers)):
                    self._coarser(place, now)
            self._done |= done
        return len(found)

    def read(
        self, series: str, start: float, stop: float, step: float | None = None
    ) -> list[Slot]:
        """Return the slots of a series that begin in `start` to `stop`, oldest first.

        Of the resolution that is nearest below `step`, coarser where that is no longer kept and
        finer where it is not yet made; two resolutions never cover the same seconds.
        """
        key = np.uint64(key_of(series))
        wanted = max(
            (p for p, tier in enumerate(self.tiers) if step is not None and tier.step <= step),
            default=0,
        )
        found: list[Slot] = []
        end = stop
        for place in range(wanted, len(self.tiers)):  # what is finer covers the latest
            slots = self._slots(place, key, start, end)
            found = slots + found
            if slots:
                whole = self.tiers[place + 1].step if place + 1 < len(self.tiers) else 0.0
                end = math.floor(slots[0].start / whole) * whole if whole else start
        for place in reversed(range(wanted)):
            begin = found[-1].start + found[-1].step if found else start
            found += self._slots(place, key, begin, stop)
        return found

    def tidy(self, now: float) -> int:
        """Remove the files that are too old, and the oldest of what is too much; return how many."""
        removed = 0
        kept: list[tuple[float, int, Path]] = []
        for tier in self.tiers:
            for path in self._paths(tier):
                end = (_number(path) + 1) * tier.file
                if end < now - tier.age:
                    self._files.remove(path)
                    removed += 1
                else:
                    kept.append((end, path.stat().st_size, path))
        kept.sort(key=lambda each: each[0])
        total = sum(size for _, size, _ in kept)
        for _, size, path in kept[:-1]:
            if total <= self._size:
                break
            self._files.remove(path)
            total -= size
            removed += 1
        return removed

    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(_bytes(path) for tier in self.tiers for path in self._paths(tier))

    def _recover(self) -> None:
        """See what is archived already: of the finest, from the last two files."""
        latest = self._paths(self.tiers[0])[-2:]
        for path in latest:
            self._see(_sound(self._rows(path)))
        if latest:
            tier = self.tiers[0]
            self._floor = math.floor(_number(latest[0]) * tier.file / tier.step) - 1
        for place in range(1, len(self.tiers)):
            self._look_for_pending(place)

    def _see(self, rows: Rows) -> None:
        """Remember the latest slot of each series in `rows`."""
        rows = _latest(rows)
        rows = rows[np.append(rows["key"][1:] != rows["key"][:-1], True)[: len(rows)]]
        for key, slot, count in _columns(rows["key"], rows["slot"], rows["count"]):
            if slot >= self._done.get(key, (-1, 0))[0]:
                self._done[key] = slot, count

    def _look_back(
        self, keyed: Mapping[int, SeriesColumn], kept: int, pause: Callable[[], object]
    ) -> None:
        """See what is archived of series of which older measurements are there than `_recover` looked at.

        They were silent for two days before the last process ended, or their past was imported.
        """
        tier = self.tiers[0]
        begin = (self._floor + 1) * tier.step
        older = {
            key: column.oldest
            for key, column in keyed.items()
            if column.oldest < begin and key not in self._done
        }
        if not older:
            return
        keys = np.array(sorted(older), np.uint64)
        # The file before, too: of the last one that was written hours may have to be made yet.
        first = math.floor(max(min(older.values()), kept * tier.step) / tier.file) - 1
        for path in self._paths(tier):
            if first * tier.file <= _number(path) * tier.file < begin:
                rows = self._rows(path)
                rows = _sound(rows[np.isin(rows["key"], keys)])
                self._see(rows)
                if len(self.tiers) > 1:
                    self._note_what_is_not_made(1, rows)
                pause()
        for key in older:
            self._done.setdefault(key, (-1, 0))

    def _look_for_pending(self, place: int) -> None:
        """Find the slots that were over, or begun, when the last process ended.

        It may have ended, or the power, in the middle of a write: a slot is done for those series
        alone that have a row of it, and the last two files of the finer are always looked at.
        """
        finer, tier = self.tiers[place - 1], self.tiers[place]
        ratio = round(tier.step / finer.step)
        made = [_sound(self._rows(path)) for path in self._paths(tier)[-1:]]
        paths = self._paths(finer)[-2:]
        first = max((int(rows["slot"].max()) + 1 for rows in made if len(rows)), default=0)
        if paths:
            first = min(first, math.floor(_number(paths[0]) * finer.file / tier.step))
        self._note_what_is_not_made(place, _sound(self._between(finer, first * ratio, LAST_SLOT)))

    def _note_what_is_not_made(self, place: int, rows: Rows) -> None:
        """Note for which slots and series this tier has less than `rows`, of the tier before, hold."""
        if not len(rows):
            return
        tier = self.tiers[place]
        ratio = round(tier.step / self.tiers[place - 1].step)
        rows = _latest(rows)
        keys, slots = rows["key"], rows["slot"] // ratio
        first = np.flatnonzero(
            np.append(True, (keys[1:] != keys[:-1]) | (slots[1:] != slots[:-1]))
        )
        held = np.add.reduceat(rows["count"].astype(np.int64), first)
        done = _latest(_sound(self._between(tier, int(slots.min()), int(slots.max()) + 1)))
        made = {(k, s): c for k, s, c in _columns(done["key"], done["slot"], done["count"])}
        for key, slot, count in _columns(keys[first], slots[first], held):
            if count > made.get((key, slot), 0):
                self._pending[place].setdefault(slot, set()).add(key)

    def _note(self, place: int, rows: Iterable[tuple[int, int]]) -> None:
        ratio = round(self.tiers[place].step / self.tiers[place - 1].step)
        pending = self._pending[place]
        for key, slot in rows:
            pending.setdefault(slot // ratio, set()).add(key)

    # Hours are made of slots, not of measurements: at 1 Hz the ring of 2,000 is shorter than an
    # hour.
    def _coarser(self, place: int, now: float) -> None:
        """Make the slots of a tier that are over out of those of the tier before."""
        finer, tier = self.tiers[place - 1], self.tiers[place]
        over = math.floor((now - LAG - finer.step) / tier.step)
        ratio = round(tier.step / finer.step)
        pending = self._pending[place]
        slots = sorted(each for each in pending if each < over)
        # A file of the finer at a time: what wants to be made may lie a year apart.
        for _, part in groupby(slots, lambda slot: math.floor(slot * tier.step / finer.file)):
            group = list(part)
            rows = _sound(self._between(finer, group[0] * ratio, (group[-1] + 1) * ratio))
            self._append(
                place, self._made_of(rows, ratio, {slot: pending[slot] for slot in group})
            )
            for slot in group:
                del pending[slot]

    def _made_of(self, rows: Rows, ratio: int, wanted: Mapping[int, Collection[int]]) -> list[Row]:
        """Return a row of the next tier for each slot and key that is `wanted`."""
        rows = _latest(rows)
        keys, first = np.unique(rows["key"], return_index=True)
        found: list[Row] = []
        for key, begin, end in zip(keys.tolist(), first, [*first[1:], len(rows)], strict=False):
            part = rows[begin:end]
            made = _summed(
                key,
                part["slot"].astype(np.int64) // ratio,
                part["count"].astype(float),
                part["mean"],
                part["low"],
                part["high"],
            )
            found += [row for row in made if key in wanted.get(row[1], ())]
        return found

    def _append(self, place: int, rows: Sequence[Row]) -> None:
        """Write rows to the files of their slots, and return when they are on the disk."""
        tier = self.tiers[place]
        for part in self._by_file(tier, rows):
            packed = np.array([(*row, 0) for row in part], ROW)
            packed["crc"] = checksums(packed)
            path = self._folder(tier) / f"{_file_of(part[0], tier)}{SUFFIX}"
            fresh = not path.exists()
            if not fresh and path.stat().st_size % ROW.itemsize:  # a record was cut off
                self._files.truncate(path, path.stat().st_size // ROW.itemsize * ROW.itemsize)
            descriptor = self._files.open_append(path)
            try:
                write_all(self._files, descriptor, packed.tobytes())
                self._files.datasync(descriptor)
            finally:
                self._files.close(descriptor)
            if fresh:
                self._files.sync_directory(path.parent)
        if place + 1 < len(self.tiers):
            self._note(place + 1, ((row[0], row[1]) for row in rows))

    def _by_file(self, tier: Tier, rows: Iterable[Row]) -> list[list[Row]]:
        """Return the rows in parts, each of one file, the oldest first."""
        found: dict[int, list[Row]] = {}
        for row in rows:
            found.setdefault(_file_of(row, tier), []).append(row)
        return [found[number] for number in sorted(found)]

    def _slots(self, place: int, key: np.uint64, start: float, stop: float) -> list[Slot]:
        tier = self.tiers[place]
        first, last = math.ceil(start / tier.step), math.ceil(stop / tier.step)
        rows = _latest(_sound(self._between(tier, first, last, key)))
        return [
            Slot(
                int(r["slot"]) * tier.step,
                tier.step,
                int(r["count"]),
                *(float(r[n]) for n in ENDS),
            )
            for r in rows
        ]

    def _between(self, tier: Tier, first: int, last: int, key: np.uint64 | None = None) -> Rows:
        """Return the rows of slots `first` to `last`, that one not; of one series, or of all."""
        found = [np.empty(0, ROW)]
        for path in self._paths(tier):
            begin = _number(path) * tier.file / tier.step
            if begin < last and begin + tier.file / tier.step > first:
                rows = self._rows(path)
                if key is not None:  # first: a day of all series is a thousand times as long
                    rows = rows[rows["key"] == key]
                found.append(rows[(rows["slot"] >= max(0, first)) & (rows["slot"] < last)])
        return np.concatenate(found)

    def _rows(self, path: Path) -> Rows:
        with contextlib.suppress(OSError):  # let go meanwhile
            data = self._files.read(path)
            return np.frombuffer(data, ROW, len(data) // ROW.itemsize)
        return np.empty(0, ROW)

    def _paths(self, tier: Tier) -> list[Path]:
        paths = self._folder(tier).glob(f"*{SUFFIX}")
        return sorted((p for p in paths if number_in(p.name, "", SUFFIX) is not None), key=_number)

    def _folder(self, tier: Tier) -> Path:
        return self.directory / f"{tier.step:.0f}"


ENDS: Final = ("mean", "low", "high")


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # let go meanwhile
        return 0


def _number(path: Path) -> int:
    return int(path.stem)


def _file_of(row: Row, tier: Tier) -> int:
    return int(row[1] * tier.step // tier.file)


def _go_on() -> None:
    """Let nobody go first."""


def _sound(rows: Rows) -> Rows:
    """Return the rows whose checksum is right."""
    sound: Rows = rows[checksums(rows) == rows["crc"]]
    return sound


def _columns(*columns: NDArray[Any]) -> Iterable[tuple[Any, ...]]:
    """Return the rows of some columns as plain numbers."""
    return zip(*(column.tolist() for column in columns), strict=True)


def _latest(rows: Rows) -> Rows:
    """Return one row a series and slot, the last that was written, in the order of both."""
    rows = rows[np.lexsort((rows["slot"], rows["key"]))]  # stable: the last one written stays last
    keys, slots = rows["key"], rows["slot"]
    last: Rows = rows[
        np.append((keys[1:] != keys[:-1]) | (slots[1:] != slots[:-1]), True)[: len(rows)]
    ]
    return last


def _summed(
    key: int,
    slots: NDArray[np.int64],
    counts: NDArray[np.float64],
    means: NDArray[np.float64],
    lows: NDArray[np.float64],
    highs: NDArray[np.float64],
) -> list[Row]:
    """Return a row (key, slot, count, mean, low, high) for each slot; `slots` ascend."""
    if not len(slots):
        return []
    different, first = np.unique(slots, return_index=True)
    totals = np.add.reduceat(counts, first)
    parts = counts / np.repeat(totals, np.diff([*first, len(slots)]))
    mean = np.add.reduceat(means * parts, first)
    low, high = np.minimum.reduceat(lows, first), np.maximum.reduceat(highs, first)
    mean = np.minimum(np.maximum(mean, low), high)
    columns = _columns(different, totals.astype(np.int64), mean, low, high)
    return [(key, *row) for row in columns]
