"""One shard of the log together with the series in memory whose measurements it holds."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nws.measurement import SeriesName
from nws.memory.column import SeriesColumn
from nws.memory.journal import GroupCommitWriter, JournalShard, position_of
from nws.memory.journal_format import KEPT, SegmentScan, key_of

Arrival = tuple[SeriesColumn, float, float]


class StorageListener(ABC):
    """Hears of every measurement that was stored, in the order of its shard's log."""

    @abstractmethod
    def arrived(self, arrivals: Sequence[tuple[SeriesColumn, int, float, float]]) -> None:
        """Take in (column, position, time, value) of measurements that are on the disk now.

        Called in the shard's thread; never before the measurement could be read again.
        """

    @abstractmethod
    def replayed(
        self,
        column: SeriesColumn,
        positions: NDArray[np.int64],
        times: NDArray[np.float64],
        values: NDArray[np.float64],
    ) -> None:
        """Take in what the log held of one series when it was opened, in its order.

        What a compaction wrote again is not among it: it came long before.
        """

    @abstractmethod
    def rewritten(self, column: SeriesColumn, position: int) -> None:
        """Hear that a compaction wrote measurements of a series again, the last at `position`.

        Whoever follows the series from a state has taken them in; whoever has none finds them in
        the column.
        """


class SeriesShard:
    """Series in memory whose measurements go to one shard.

    Parameters
    ----------
    shard
        Where they go; recovered here.
    make
        Makes the column of a series.
    listener
        Who hears of what was stored.

    Attributes
    ----------
    version
        Another number whenever a series holds something for the first time, or no more.
    """

    def __init__(
        self,
        shard: JournalShard,
        make: Callable[[SeriesName], SeriesColumn],
        listener: StorageListener | None,
    ) -> None:
        self.shard = shard
        self.lock = Lock()
        self.columns: dict[str, SeriesColumn] = {}
        self.unnamed = 0
        self.version = 0
        self._keys: dict[int, SeriesColumn] = {}
        self._make = make
        self._listener = listener
        self._recover()
        self.writer = GroupCommitWriter(shard)

    def column(self, text: str) -> SeriesColumn:
        """Return the column of a series, made if need be. Hold the lock.

        Raises
        ------
        ValueError
            It is no name of a series, or its key is another's (once in 10^10 pairs).
        """
        found = self.columns.get(text)
        if found is None:
            found = self._make(SeriesName.parse(text))
            other = self._keys.setdefault(key_of(text), found)
            if other.text != text:
                raise ValueError(f"the key of {text} is taken by {other.text}")
            self.columns[text] = found
        return found

    def submit(self, rows: Sequence[Arrival], done: Callable[[int], object]) -> "Future[int]":
        """Store rows; ``done(count of new ones)`` and the future once they are on the disk."""
        keyed = [(key_of(column.text), time, value) for column, time, value in rows]
        names = {key_of(column.text): column.text for column in {row[0] for row in rows}}

        def stored(first: int) -> None:
            done(self._insert(rows, first))

        return self.writer.submit(keyed, names, stored)

    def drop_empty(self, texts: Sequence[str]) -> None:
        """Forget those of the series of which nothing was stored after all."""
        with self.lock:
            for text in texts:
                column = self.columns.get(text)
                if column is not None and not len(column):
                    self.version += 1
                    del self.columns[text]
                    del self._keys[key_of(text)]

    def compact(self, covered: Callable[[str], int]) -> bool:
        """Write what is still kept of the oldest segment again, and remove that segment.

        Not before the saved states of all its series have taken it in (``covered(series)`` is the
        position up to which they have), for no listener hears of what is written again. To be called
        in the shard's thread. Return whether a segment was removed.

        Raises
        ------
        LogError, OSError
            Transient: the disk is full or failed; nothing is lost.
        """
        oldest = next(iter(self.shard.segments()), self.shard.segment)
        if oldest >= self.shard.segment:
            return False
        found = self.shard.read(oldest)
        end = position_of(oldest + 1, 0)
        kept: list[tuple[int, float, float]] = []
        for key, places in _by_key(found.rows["key"]):
            column = self._keys.get(key)
            if column is None:
                continue
            last = position_of(oldest, int(found.offsets[places[-1]]))
            if covered(column.text) < min(last, end):
                return False
            with self.lock:
                for place in places:
                    at, value = float(found.rows["time"][place]), float(found.rows["value"][place])
                    if column.value_at(at) == value:
                        kept.append((key, at, value))
        if kept:
            self.shard.append(kept, {key: self._keys[key].text for key, _, _ in kept}, KEPT)
        self.shard.drop(oldest)
        return True

    def _insert(self, rows: Sequence[Arrival], first: int) -> int:
        arrivals = []
        with self.lock:
            for place, (column, time, value) in enumerate(rows):
                kept = self.columns.setdefault(column.text, column)
                self._keys.setdefault(key_of(column.text), kept)
                self.version += not len(kept)
                if kept.insert(time, value):
                    arrivals.append((kept, first + 32 * place, time, value))
        if self._listener is not None and arrivals:
            self._listener.arrived(arrivals)
        return len(arrivals)

    def _recover(self) -> None:
        names: dict[int, str] = {}
        waiting: list[tuple[int, SegmentScan, NDArray[np.int64]]] = []
        for segment, found in self.shard.recover():
            names.update(found.names)
            for key, places in _by_key(found.rows["key"]):
                if key in names:
                    self._replay(names[key], segment, found, places)
                else:
                    waiting.append((segment, found, places))
        for segment, found, places in waiting:
            key = int(found.rows["key"][places[0]])
            if key in names:
                self._replay(names[key], segment, found, places)
            else:
                self.unnamed += len(places)

    def _replay(
        self, text: str, segment: int, found: SegmentScan, places: NDArray[np.int64]
    ) -> None:
        try:
            column = self.column(text)
        except ValueError:
            self.unnamed += len(places)
            return
        times = np.ascontiguousarray(found.rows["time"][places])
        values = np.ascontiguousarray(found.rows["value"][places])
        positions = found.offsets[places] + position_of(segment, 0)
        new = found.rows["kind"][places] != KEPT
        later = len(times) == 1 or bool(np.all(np.diff(times) > 0))
        if later and times[0] > column.newest:
            column.extend_with_later(times.tobytes(), values.tobytes())
        else:
            new &= np.array(column.extend(times.tolist(), values.tolist()))
        again = positions[found.rows["kind"][places] == KEPT]
        positions, times, values = positions[new], times[new], values[new]
        if self._listener is not None and len(times):
            self._listener.replayed(column, positions, times, values)
        if self._listener is not None and len(again):
            self._listener.rewritten(column, int(again[-1]))


def _by_key(keys: NDArray[Any]) -> list[tuple[int, NDArray[np.int64]]]:
    """Return each key with the places where it stands, in their order."""
    if not len(keys):
        return []
    order = np.argsort(keys, kind="stable")
    sorted_keys = keys[order]
    cuts = np.flatnonzero(sorted_keys[1:] != sorted_keys[:-1]) + 1
    return [(int(keys[places[0]]), places) for places in np.split(order, cuts)]
