"""`SweepExecutor` starts the tasks of a sweep and moves its files: the contract, and a simulated executor.

The driver decides and an executor acts. The executor also defines the time: seconds since its creation, real or
simulated.
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
    """The end of a task on a lane: its result, or the reason of its failure in one line and the reason's code."""

    task: str
    lane: int
    seconds: float
    result: Mapping[str, Any] = field(default_factory=dict)
    failure: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class FileMoved:
    """The end of a file transfer to a cache; `failure` has the reason if it failed."""

    file: str
    cache: str
    seconds: float
    failure: str = ""


@dataclass(frozen=True, slots=True)
class HostLost:
    """The loss of a host. Running tasks there are lost, and no more events come from it."""

    host: str
    reason: str


SweepEvent = TaskEnded | FileMoved | HostLost


class SweepExecutor(ABC):
    """Carries out a sweep on the lanes and caches of its costs.

    A call returns at once. Its outcome is an event: exactly one for each `move` and for each `start` that is not
    stopped, unless the host is lost. The caller is responsible for the order: it starts tasks only after their
    files have arrived, one task a lane, and moves one file a link.
    """

    @abstractmethod
    def now(self) -> float:
        """Return the seconds since the executor was created."""

    @abstractmethod
    def start(self, task: str, lane: int) -> None:
        """Start a task on a lane."""

    @abstractmethod
    def stop(self, task: str, lane: int) -> None:
        """Stop a task if it still runs on a lane; it gives no event."""

    @abstractmethod
    def move(self, file: str, cache: str) -> None:
        """Start to move a file from its storage to a cache."""

    @abstractmethod
    def events(self, until: float) -> list[SweepEvent]:
        """Return the next events; wait for one until the time `until` at most."""


class SimulatedSweepExecutor(SweepExecutor):
    """Simulates tasks and transfers of given durations on its own clock.

    Parameters
    ----------
    costs
        The lanes and caches.
    compute, transfer
        Actual seconds of tasks on lanes and of files into caches; None: those of the costs.
    failing
        Pairs of task and host that fail, with the reason.
    lost
        Hosts that are lost, with the time.
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
        """Schedule the end of the task."""
        seconds = float(self._compute[lane, self._tasks[task]])
        failure = self._failing.get((task, self._costs.hosts[lane]), "")
        ended = TaskEnded(task, lane, seconds, {} if failure else {"task": task}, failure)
        self._running[task, lane] = self._add(self._now + seconds, ended)

    def stop(self, task: str, lane: int) -> None:
        """Cancel the scheduled end of the task."""
        self._stopped.add(self._running.pop((task, lane)))

    def move(self, file: str, cache: str) -> None:
        """Schedule the arrival of the file."""
        seconds = float(self._transfer[self._costs.sweep.numbers[file], self._caches[cache]])
        self._add(self._now + seconds, FileMoved(file, cache, seconds))

    def events(self, until: float) -> list[SweepEvent]:
        """Return the next event and all events of the same moment."""
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
