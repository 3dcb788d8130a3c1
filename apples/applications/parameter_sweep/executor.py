"""`SweepExecutor`: what starts the tasks of a sweep and moves its files; the contract, and a simulated one.

The driver decides and an executor does. Time is the executor's: seconds since it was made, real or simulated.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from apples.applications.parameter_sweep.costs import Numbers, SweepCosts


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """A task on a lane is over: its result, or the reason of its failure in one line and the reason's code."""

    task: str
    lane: int
    seconds: float
    result: Mapping[str, Any] = field(default_factory=dict)
    failure: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class FileMoved:
    """A file is whole in a cache; or `failure` says why it is not."""

    file: str
    cache: str
    seconds: float
    failure: str = ""


@dataclass(frozen=True, slots=True)
class HostLost:
    """Nothing more comes from a host: what ran there does not count."""

    host: str
    reason: str


SweepEvent = TaskEnded | FileMoved | HostLost


class SweepExecutor(ABC):
    """Carries out a sweep on the lanes and caches of its costs.

    A call returns at once; what comes of it is an event, exactly one for each `start` that is not stopped and for
    each `move`, unless the host is lost. An executor does not check the order: tasks are started where their
    files are, one a lane, files moved one a link, by whoever drives it.
    """

    @abstractmethod
    def now(self) -> float:
        """Return the seconds since it was made."""

    @abstractmethod
    def start(self, task: str, lane: int) -> None:
        """Start a task on a lane."""

    @abstractmethod
    def stop(self, task: str, lane: int) -> None:
        """End a task that runs on a lane, if it still does: nobody waits for its result."""

    @abstractmethod
    def move(self, file: str, cache: str) -> None:
        """Begin to bring a file from its storage to a cache."""

    @abstractmethod
    def events(self, until: float) -> list[SweepEvent]:
        """Return what has happened; waits for it, at most until that moment."""


class SimulatedSweepExecutor(SweepExecutor):
    """Takes as long as it is told, on a clock of its own.

    Parameters
    ----------
    costs
        Whose lanes and caches.
    compute, transfer
        What tasks on lanes and files into caches take indeed; None: what the costs say.
    failing
        Tasks and hosts that fail together, and with which words.
    lost
        Hosts that are lost, and when.
    """

    def __init__(
        self,
        costs: SweepCosts,
        compute: Numbers | None = None,
        transfer: Numbers | None = None,
        *,
        failing: Mapping[tuple[str, str], str] | None = None,
        lost: Mapping[str, float] | None = None,
    ) -> None:
        self._costs = costs
        self._compute = costs.compute if compute is None else compute
        self._transfer = costs.transfer if transfer is None else transfer
        self._failing = failing or {}
        self._tasks = {task.name: number for number, task in enumerate(costs.sweep.tasks)}
        self._caches = {cache.name: number for number, cache in enumerate(costs.caches)}
        self._now = 0.0
        self._order = count()
        self._due: list[tuple[float, int, SweepEvent]] = []
        self._stopped: set[int] = set()
        self._running: dict[tuple[str, int], int] = {}
        for host, at in (lost or {}).items():
            self._add(at, HostLost(host, "simulated"))

    def now(self) -> float:
        """Return the simulated time."""
        return self._now

    def start(self, task: str, lane: int) -> None:
        """Have it end when its time is over."""
        seconds = float(self._compute[lane, self._tasks[task]])
        failure = self._failing.get((task, self._costs.hosts[lane]), "")
        ended = TaskEnded(task, lane, seconds, {} if failure else {"task": task}, failure)
        self._running[task, lane] = self._add(self._now + seconds, ended)

    def stop(self, task: str, lane: int) -> None:
        """Forget its end."""
        self._stopped.add(self._running.pop((task, lane)))

    def move(self, file: str, cache: str) -> None:
        """Have it there when its time is over."""
        seconds = float(self._transfer[self._costs.sweep.numbers[file], self._caches[cache]])
        self._add(self._now + seconds, FileMoved(file, cache, seconds))

    def events(self, until: float) -> list[SweepEvent]:
        """Return the next, and what happens at the same moment."""
        found: list[SweepEvent] = []
        while (
            self._due and self._due[0][0] <= until and (not found or self._due[0][0] <= self._now)
        ):
            at, number, event = heapq.heappop(self._due)
            if number not in self._stopped:
                self._now = max(self._now, at)
                found.append(event)
        if not found:
            self._now = max(self._now, until)
        return found

    def _add(self, at: float, event: SweepEvent) -> int:
        number = next(self._order)
        heapq.heappush(self._due, (at, number, event))
        return number
