"""Single lines that are lost, late, doubled or out of order, between a scheduler and its jobs.

Connections are made or not; lines are lost, late, doubled and out of order; a partition stops what goes
one way or both. (TCP does less harm: it loses the whole rest of a connection.)
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from adversaries.protocol.network import Clockwork, Thunk


@dataclass(frozen=True, slots=True)
class NetworkFaults:
    """What goes wrong until `stop`.

    Attributes
    ----------
    loss, duplication
        Probability for each line.
    delay
        Longest delay of a line in seconds; mostly it is far shorter.
    partitions
        How many, of up to `partition_seconds`, each way for itself.
    crashes
        Probability that an agent dies while it waits.
    """

    stop: float = 120.0
    loss: float = 0.1
    duplication: float = 0.1
    delay: float = 3.0
    partitions: int = 3
    partition_seconds: float = 30.0
    crashes: float = 0.1


class SimulatedNetwork:
    """Carries lines between one job and its agents, badly until the faults stop.

    Attributes
    ----------
    lost, doubled
        How many lines were.
    """

    def __init__(self, clock: Clockwork, chance: random.Random, faults: NetworkFaults) -> None:
        self.clock, self.chance, self.faults = clock, chance, faults
        self.lost = self.doubled = 0
        self._cuts = [
            (begin, begin + chance.uniform(1.0, faults.partition_seconds), chance.choice("<>="))
            for begin in (chance.uniform(0.0, faults.stop) for _ in range(faults.partitions))
        ]

    @property
    def _faulty(self) -> bool:
        return self.clock.now < self.faults.stop

    def cut(self, direction: str) -> bool:
        """Whether a partition stops what goes in this direction now: ``<`` to the agent, ``>`` to the job."""
        now = self.clock.now
        return self._faulty and any(
            begin <= now < end and which in {"=", direction} for begin, end, which in self._cuts
        )

    def carry(self, direction: str, deliver: Thunk) -> None:
        """Deliver once, twice or never; soon or late."""
        copies = 1
        if self.cut(direction) or self._happens(self.faults.loss):
            self.lost += 1
            return
        if self._happens(self.faults.duplication):
            self.doubled += 1
            copies = 2
        for _ in range(copies):
            self.clock.after(self.latency(), deliver)

    def latency(self) -> float:
        """Return how long a line takes."""
        usual = self.chance.uniform(0.0005, 0.02)
        return self.chance.uniform(0.0, self.faults.delay) if self._happens(0.1) else usual

    def _happens(self, probability: float) -> bool:
        return self._faulty and self.chance.random() < probability
