"""`SimulatedSlurm`: allocations of nodes that end, follow each other and are given back, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from apples.errors import LaunchError
from apples.launch import SlurmAllocationState, SlurmNode

POOL: Final = "pool"
"""The name of all its allocations."""
LASTING: Final = (5.0, 30.0, 90.0, 150.0, inf)
"""Seconds for which an allocation is asked for."""
UNANSWERED: Final = 0.05
"""Part of the questions that it does not answer."""


@dataclass(frozen=True, slots=True)
class _Allocation:
    """When it begins, when it is said to end, and when it does."""

    number: int
    nodes: tuple[str, ...]
    begin: float
    said: float
    end: float


class SimulatedSlurm:
    """What Slurm says of the allocations of some nodes; after `stop` one has them all for ever.

    Attributes
    ----------
    ends
        When allocations end, in rising order.
    """

    def __init__(self, nodes: Sequence[str], chance: random.Random, stop: float) -> None:
        self._chance, self._stop = chance, stop
        self._nodes = [
            SlurmNode(name, name, ("IDLE",), 1, 1, 1, 1 << 30, 0, "x86_64", (), ("all",))
            for name in nodes
        ]
        self._drawn: list[_Allocation] = []
        for _ in range(chance.randint(1, 3)):
            self._draw_chain(nodes)
        self._add(nodes, stop, inf, inf)
        self.ends = sorted({one.end for one in self._drawn if one.end < inf})

    def _draw_chain(self, nodes: Sequence[str]) -> None:
        """Draw allocations that follow each other: with a gap, at once, or before the last one ends."""
        chance = self._chance
        begin = chance.choice((0.0, 0.0, chance.uniform(0.0, 60.0)))
        while begin < self._stop:
            said = begin + chance.choice(LASTING)
            end = said
            if said == inf or chance.random() < 0.2:  # it is given back
                end = begin + chance.uniform(1.0, min(said - begin, 200.0))
            some = chance.sample(nodes, chance.randint(1, len(nodes)))
            self._add(some, begin, said, end)
            begin = max(begin + 1.0, end + chance.choice((-5.0, 0.0, chance.uniform(0.0, 60.0))))

    def _add(self, nodes: Sequence[str], begin: float, said: float, end: float) -> None:
        number = len(self._drawn) + 1
        self._drawn.append(_Allocation(number, tuple(nodes), begin, said, end))

    def allocations(self, now: float, wall: float) -> list[SlurmAllocationState]:
        """Return the allocations that there are at a time, which is `wall` seconds since 1970.

        Raises
        ------
        LaunchError
            It does not answer.
        """
        if now < self._stop and self._chance.random() < UNANSWERED:
            raise LaunchError("squeue: no answer", code="slurm-command-failed", command="squeue")
        return [
            SlurmAllocationState(one.number, POOL, ",".join(one.nodes), wall + one.said - now)
            for one in self._drawn
            if one.begin <= now < one.end
        ]

    def nodes(self) -> list[SlurmNode]:
        """Return all nodes."""
        return self._nodes

    def gives(self, node: str, now: float) -> bool:
        """Whether an allocation has a node."""
        return any(node in one.nodes and one.begin <= now < one.end for one in self._drawn)
