"""`UnitPool`: which units of work a lane is handed next, by weighted factoring, and which are done.

Hummel, Schmidt, Uma and Wein 1996: half of what is left is shared out by what each lane is expected to do, then
half of the rest, so that the chunks become small where lanes would else end apart. Here a lane takes its share
when it asks, by the weights of that moment. Nothing is counted twice, whoever joins, leaves or is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from math import ceil

FACTOR = 0.5
"""The part of what waits that a round of chunks shares out."""
MAX_UNITS = 1000
"""Of a chunk: what is handed out does not come back before a lane has ended the unit it is at."""


class UnitPool:
    """The units of a run, by number, from 0 on. Standard library only: it travels to the master's host.

    Parameters
    ----------
    count
        How many units there are.
    most
        How many are handed out at a time.

    Attributes
    ----------
    held
        By lane: the units that it was handed and has not done, in that order.
    done
        How many units are done, or given up.
    possible_crash_units
        Units that a lane had when its process ended, one of which may have ended it: each is done alone.

    Examples
    --------
    >>> pool = UnitPool(8)
    >>> pool.take("ada", {"ada": 3.0, "bob": 1.0}), pool.take("bob", {"ada": 3.0, "bob": 1.0})
    ([0, 1, 2], [3])
    >>> pool.finish("ada", 0), pool.leave("ada"), pool.take("bob", {"bob": 1.0})
    (True, [1, 2], [1, 2, 4])
    """

    def __init__(self, count: int, most: int = MAX_UNITS) -> None:
        self.count, self.done = count, 0
        self._most = most
        self.held: dict[str, dict[int, None]] = {}
        self._next = 0
        self._returned: deque[int] = deque()
        self._alone: deque[int] = deque()
        # The unit that ended a worker is unknown: results of quick units travel together. Noting
        # each unit beforehand would cost every run a message or a write a unit.
        self.possible_crash_units: set[int] = set()
        self._over: set[int] = set()

    @property
    def waiting(self) -> int:
        """How many units nobody has, without those that are to be done alone."""
        return self.count - self._next + len(self._returned)

    def take(
        self, lane: str, weights: Mapping[str, float], avoid: Collection[int] = ()
    ) -> list[int]:
        """Return the units that a lane is handed: its share of half of what waits, at least one while any does.

        Parameters
        ----------
        weights
            Units a second of each lane that works.
        avoid
            Units that came back and are for others to try.
        """
        share = weights[lane] / sum(weights.values())
        size = min(self.waiting, self._most, max(1, ceil(FACTOR * self.waiting * share)))
        chunk = [unit for unit in self._returned if unit not in avoid][:size]
        for unit in chunk:
            self._returned.remove(unit)
        until = min(self.count, self._next + size - len(chunk))
        chunk += range(self._next, until)
        self._next = until
        self._hold(lane, chunk)
        return chunk

    def take_alone(self, lane: str, avoid: Collection[int] = ()) -> list[int]:
        """Return the one suspect that a lane which has nothing is handed; none where none waits."""
        chunk = [unit for unit in self._alone if unit not in avoid][:1]
        for unit in chunk:
            self._alone.remove(unit)
        self._hold(lane, chunk)
        return chunk

    def copy(
        self, lane: str, weights: Mapping[str, float], avoid: Collection[int] = ()
    ) -> list[int]:
        """Return units that another lane has and this one is to do too, for it would stand idle; none if no use.

        They are the later half of what the lane has that is expected to end last, where this one would do the
        first of them sooner. Whoever does a unit first has done it.

        Parameters
        ----------
        avoid
            Units that are to be left to whoever has them.
        """
        own = {*self.held.get(lane, {}), *self._over, *avoid}
        left = {
            other: [unit for unit in units if unit not in own]
            for other, units in self.held.items()
            if other != lane
        }
        times = {other: len(units) / weights.get(other, 1e-12) for other, units in left.items()}
        last = max(times, key=lambda other: times[other], default=None)
        if last is None or not left[last] or times[last] * weights[lane] <= 1.0:
            return []
        chunk = left[last][len(left[last]) // 2 :]
        chunk = [unit for unit in chunk if unit not in self.possible_crash_units] or chunk[:1]
        self._hold(lane, chunk)
        return chunk

    def finish(self, lane: str, unit: int) -> bool:
        """Take note that a lane has done a unit; whether nobody had before.

        Raises
        ------
        KeyError
            The lane was never handed that unit.
        """
        del self.held[lane][unit]
        if unit in self._over:
            return False
        self._over.add(unit)
        self.done += 1
        return True

    def leave(self, lane: str, *, suspect: bool = False) -> list[int]:
        """Return the units that a lane had when it left or was lost, which wait again unless another has them.

        Where its process ended, which one of them may have caused, each of them is done alone from now on.
        """
        had = [unit for unit in self.held.pop(lane, {}) if unit not in self._over]
        self.possible_crash_units.update(had if suspect else ())
        self._wait_again(had)
        return had

    def give_back(self, lane: str, unit: int) -> None:
        """Have a unit that a lane could not do wait again, unless another has it or has done it."""
        del self.held[lane][unit]
        self._wait_again([] if unit in self._over else [unit])

    def give_up(self, unit: int) -> bool:
        """Have nobody do a unit any more; whether somebody has done it already."""
        for waiting in (self._returned, self._alone):
            if unit in waiting:
                waiting.remove(unit)
        if unit in self._over:
            return True
        self._over.add(unit)
        self.done += 1
        return False

    def _wait_again(self, units: Collection[int]) -> None:
        others = {unit for held in self.held.values() for unit in held}
        for unit in units:
            if unit not in others:
                (self._alone if unit in self.possible_crash_units else self._returned).append(unit)

    def _hold(self, lane: str, chunk: list[int]) -> None:
        self.held.setdefault(lane, {}).update(dict.fromkeys(chunk))
