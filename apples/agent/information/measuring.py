"""`Measuring`: how a live weather is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from apples.agent.information.pool import InformationPool
from apples.launch.events import Talk, unheard
from apples.launch.remote.connection import HostConnections
from apples.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Measuring:
    """How a live weather is measured.

    Attributes
    ----------
    connections
        Through which other machines are looked at and measured, and which stay open; None: some for that alone.
    propose
        Returns what would be planned under a pool, None where nothing would: then only those links are
        measured that the plan can depend on.
    fresh
        Whether all links are measured, whatever is remembered.
    phase
        Is told what is being done now.
    rounds
        How often each part of this machine is measured.
    """

    connections: HostConnections | None = None
    propose: Callable[[InformationPool], Schedule | None] | None = None
    fresh: bool = False
    phase: Talk = unheard
    rounds: int = 5


IN_FULL = Measuring()
"""Measurements enough for an error before the first forecast, and short enough to wait for."""
BRIEFLY = Measuring(rounds=3)
"""Where an application runs on what is measured: every probe takes CPU time from it."""
