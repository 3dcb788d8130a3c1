"""`HostGiver`: who gives a run its hosts while it runs, and what it is told of the run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RunStanding:
    """Where a run is, and how far.

    Attributes
    ----------
    master, hosts
        The master's host, which it cannot leave, for the results are there; and all hosts that it is on.
    done, count
        Units.
    rates
        By host: the units a second that its workers were seen to do.
    asks
        Fewest and most hosts that it asks for.
    """

    master: str
    hosts: tuple[str, ...]
    done: int
    count: int
    rates: Mapping[str, float] = field(default_factory=dict)
    asks: tuple[int, int] | None = None


class HostGiver(ABC):
    """Gives a run hosts. Everything is called from the run's own loop, and none of it may take long."""

    @abstractmethod
    def hear(self, standing: RunStanding) -> None:
        """Take in where the run is; about once a second, and when its hosts have changed."""

    @abstractmethod
    def order(self) -> tuple[str, ...]:
        """Return all hosts that the run is to be on; empty: as it is. An order stands until it is answered."""

    @abstractmethod
    def answer(self, standing: RunStanding, refusal: str = "") -> None:
        """Take in that an order was carried out, or why it was not; what it leaves is empty."""
