"""Connections that fail, for the simulation: pure, and the same for the same seed.

Connections are made or not, are cut, and are slow; for some time all of one direction or of both are cut.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass

Thunk = Callable[[], None]


@dataclass(frozen=True, slots=True)
class NetworkFaults:
    """What goes wrong until `stop`.

    Attributes
    ----------
    cuts
        Probability for each line that its connection is cut.
    delay
        Longest delay of a line in seconds; mostly it is far shorter.
    outages
        How many times, of up to `outage_seconds`, every connection is cut that sends a line one way.
    crashes
        Probability that an agent dies while it waits.
    """

    stop: float = 120.0
    cuts: float = 0.1
    delay: float = 3.0
    outages: int = 3
    outage_seconds: float = 30.0
    crashes: float = 0.1


class Clockwork:
    """Simulated time: what is to happen, in order."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self._queue: list[tuple[float, int, Thunk]] = []
        self._count = 0

    def after(self, seconds: float, act: Thunk) -> None:
        """Have `act` called `seconds` from now."""
        self._count += 1
        heapq.heappush(self._queue, (self.now + seconds, self._count, act))

    def run(self, until: float, each: Thunk, over: Callable[[], bool]) -> None:
        """Let time pass until it is over; call `each` after every event."""
        while self._queue and self._queue[0][0] <= until and not over():
            self.now, _, act = heapq.heappop(self._queue)
            self.events += 1
            act()
            each()


class SimulatedNetwork:
    """Says which lines between one job and its agents arrive, and when; perfect after the faults stop.

    Attributes
    ----------
    cuts
        How many connections it has cut.
    """

    def __init__(self, clock: Clockwork, chance: random.Random, faults: NetworkFaults) -> None:
        self.clock, self.chance, self.faults = clock, chance, faults
        self.cuts = 0
        self._outages = [
            (begin, begin + chance.uniform(1.0, faults.outage_seconds), chance.choice("<>="))
            for begin in (chance.uniform(0.0, faults.stop) for _ in range(faults.outages))
        ]

    @property
    def _faulty(self) -> bool:
        return self.clock.now < self.faults.stop

    def fails(self, direction: str) -> bool:
        """Whether the connection of a line is cut: ``<`` to the agent, ``>`` to the job."""
        now = self.clock.now
        out = any(
            begin <= now < end and which in {"=", direction} for begin, end, which in self._outages
        )
        failed = self._faulty and (out or self.chance.random() < self.faults.cuts)
        self.cuts += failed
        return failed

    def latency(self) -> float:
        """Return how long a line takes."""
        usual = self.chance.uniform(0.0005, 0.02)
        slow = self._faulty and self.chance.random() < 0.1
        return self.chance.uniform(0.0, self.faults.delay) if slow else usual
