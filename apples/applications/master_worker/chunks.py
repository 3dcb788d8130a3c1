"""`UnitPool`: the next units of work of a lane, by weighted factoring, and the state of all units.

Hummel, Schmidt, Uma and Wein 1996: each round shares out half of the remaining units in proportion to the lanes'
expected rates, so that chunks become small towards the end and lanes end together. Here a lane takes its share
when it asks, by the weights of that moment. Every unit counts once, even if lanes join, leave or are lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from math import ceil

FACTOR = 0.5
"""Fraction of the waiting units that a round of chunks shares out."""
MAX_UNITS = 1000
"""Maximum of a chunk. A lane returns units only after its current unit."""


class UnitPool:
    """The units of a run, numbered from 0. Standard library only, because it is sent to the master's host.

    Parameters
    ----------
    count
        Number of units.
    most
        Maximum of units in a chunk.

    Attributes
    ----------
    held
        By lane: its units that are not done, in the order they were handed out.
    done
        Number of units that are done or given up.
    possible_crash_units
        Units that a lane had when its process ended. One of them may have ended it, so each is done alone.

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
        # The unit that ended a worker is unknown, because results of quick units travel together.
        # Reporting each unit before its start would cost every run a message or a write a unit.
        self.possible_crash_units: set[int] = set()
        self._over: set[int] = set()

    @property
    def waiting(self) -> int:
        """Number of units that no lane has, without the possible crash units."""
        return self.count - self._next + len(self._returned)

    def take(
        self, lane: str, weights: Mapping[str, float], avoid: Collection[int] = ()
    ) -> list[int]:
        """Return the next units of a lane: its share of half of the waiting units, at least one if any waits.

        Parameters
        ----------
        weights
            Units a second of each lane.
        avoid
            Units that failed on this lane's host; other hosts should try them.
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
        """Return the possible crash unit that an idle lane should do alone; empty if none waits."""
        chunk = [unit for unit in self._alone if unit not in avoid][:1]
        for unit in chunk:
            self._alone.remove(unit)
        self._hold(lane, chunk)
        return chunk

    def copy(
        self, lane: str, weights: Mapping[str, float], avoid: Collection[int] = ()
    ) -> list[int]:
        """Return units of another lane that this idle lane should do too; empty if that gains nothing.

        The units are the later half of those of the lane that is expected to end last, if this lane would do the
        first of them sooner. The first result of a unit counts.

        Parameters
        ----------
        avoid
            Units that are not copied.
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
        """Record that a lane has done a unit; return whether it is the first to do so.

        Raises
        ------
        KeyError
            The lane never had that unit.
        """
        del self.held[lane][unit]
        if unit in self._over:
            return False
        self._over.add(unit)
        self.done += 1
        return True

    def leave(self, lane: str, *, suspect: bool = False) -> list[int]:
        """Return the units of a lane that left or was lost. They wait again unless another lane has them.

        With `suspect`, one of the units may have ended the process, so each is done alone from now on.
        """
        had = [unit for unit in self.held.pop(lane, {}) if unit not in self._over]
        self.possible_crash_units.update(had if suspect else ())
        self._wait_again(had)
        return had

    def give_back(self, lane: str, unit: int) -> None:
        """Make a unit that a lane could not do wait again, unless another lane has it or has done it."""
        del self.held[lane][unit]
        self._wait_again([] if unit in self._over else [unit])

    def give_up(self, unit: int) -> bool:
        """Give up a unit, so that no lane does it any more; return whether it is done already."""
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
