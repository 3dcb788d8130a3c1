"""`HostProvider`: gives a run its hosts while it runs, and receives the status of the run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The hosts and the progress of a run.

    Attributes
    ----------
    master, hosts
        The master's host, which the run cannot leave because it has the results; and all hosts of the run.
    done, count
        Units that are done, and all units.
    rates
        By host: the measured units a second of its workers.
    asks
        The fewest and the most hosts that the run requests.
    """

    master: str
    hosts: tuple[str, ...]
    done: int
    count: int
    rates: Mapping[str, float] = field(default_factory=dict)
    asks: tuple[int, int] | None = None


class HostProvider(ABC):
    """Gives hosts to a run. The run's loop calls each method, so each must return quickly."""

    @abstractmethod
    def report(self, status: RunStatus) -> None:
        """Receive the status of the run: about once a second, and when its hosts have changed."""

    @abstractmethod
    def order(self) -> tuple[str, ...]:
        """Return all hosts that the run should have; empty: no change. It stands until `answer` is called."""

    @abstractmethod
    def answer(self, status: RunStatus, refusal: str = "") -> None:
        """Receive the end of an order: done, or refused with a reason and without effect."""
