"""Snapshots of the load monitor as series of the weather service, which forecasts them like all others.

capacityCpu/ada           free part of ada's processors, c_ij; also Memory, Swap, Disk, Network
wantedCpus/ada            processes that want a processor of ada
wantedCpus/ada/1f2e3d4c   those of a job
usedCpus/ada/1f2e3d4c     processor time a second of the job's processes there
usedMemory/ada/1f2e3d4c   their resident bytes
usedCpus/ada/1f2e3d4c.rank3, usedMemory/ada/1f2e3d4c.rank3
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from apples.weather.load.snapshot import NOBODY, NodeSnapshot, ProcessCapacity
from nws import (
    USED_CPUS,
    USED_MEMORY,
    WANTED_CPUS,
    Client,
    DeliveryQueue,
    Measurement,
    SeriesName,
    ServiceError,
)

MAX_SERIES: Final = 5000
"""Maximum number of series of one monitor: jobs come and go, but the service keeps every series."""
SHORTEST_SECONDS: Final = 1e-3
"""Minimum interval of two snapshots for a rate."""
MAX_WAITING: Final = 1000
"""Maximum number of snapshots that wait while a message is sent."""


class LoadSeries:
    """Makes measurements of snapshots.

    Parameters
    ----------
    most
        Maximum number of series; further series are left out.

    Attributes
    ----------
    problem
        Reason for the latest omission; empty: nothing is left out.

    Examples
    --------
    >>> one = NodeSnapshot("ada", 9.0, 2, {"": 1.0}, {"memory": 0.5})
    >>> [(str(m.series), m.value) for m in LoadSeries().measurements(one)]
    [('capacityCpu/ada', 0.75), ('capacityMemory/ada', 0.5), ('wantedCpus/ada', 1.0)]
    """

    def __init__(self, most: int = MAX_SERIES) -> None:
        self._most = most
        self._named: dict[tuple[str, str, str | None], SeriesName | None] = {}
        self._before: dict[tuple[str, str], tuple[float, float]] = {}
        self.problem = ""

    def measurements(self, one: NodeSnapshot) -> list[Measurement]:
        """Return the measurements of a single snapshot, not of a mean; CPU use from the second snapshot on."""
        found = []
        for resource, peer, value in self._values(one):
            name = self._name(resource, one.host, peer)
            if name is not None:
                found.append(Measurement(name, one.time, value))
        return found

    def _values(self, one: NodeSnapshot) -> Iterator[tuple[str, str | None, float]]:
        for attribute, part in one.available.items():
            yield f"capacity{attribute.title()}", None, part
        yield WANTED_CPUS, None, sum(one.wanting.values())
        for job in dict.fromkeys([*one.jobs, *one.wanting]):
            if job != NOBODY:
                yield WANTED_CPUS, job, one.wanting.get(job, 0.0)
        parts = {job: has for job, has in one.jobs.items() if job != NOBODY}
        parts |= {f"{job}.rank{rank}": has for (job, rank), has in one.ranks.items()}
        now = {(one.host, peer): (one.time, has.cpu_seconds) for peer, has in parts.items()}
        for peer, has in parts.items():
            yield USED_MEMORY, peer, float(has.memory)
            used = self._cpus(one, peer, has)
            if used is not None:
                yield USED_CPUS, peer, used
        elsewhere = {key: seen for key, seen in self._before.items() if key[0] != one.host}
        self._before = elsewhere | now

    def _cpus(self, one: NodeSnapshot, peer: str, has: ProcessCapacity) -> float | None:
        """Return the processor time a second since the previous snapshot; None if processes have ended since."""
        then, seconds = self._before.get((one.host, peer), (one.time, 0.0))
        if one.time - then < SHORTEST_SECONDS or has.cpu_seconds < seconds:
            return None
        return (has.cpu_seconds - seconds) / (one.time - then)

    def _name(self, resource: str, host: str, peer: str | None) -> SeriesName | None:
        key = (resource, host, peer)
        if key not in self._named:
            if len(self._named) >= self._most:
                self.problem = f"more than {self._most} series: the others are left out"
                return None
            try:
                self._named[key] = SeriesName(*key)
            except ValueError as error:
                self._named[key], self.problem = None, f"{error}; it is left out"
        return self._named[key]


class LoadReporter:
    """Sends snapshots to a weather service, in a thread of its own, so that a slow service delays no caller.

    Parameters
    ----------
    store
        The service.
    every
        Seconds between two messages.
    problem
        Called from that thread with the fault of the service or of a series, when the fault changes; empty: no
        fault.
    """

    def __init__(self, store: Client, every: float, problem: Callable[[str], None]) -> None:
        self._queue, self._series, self._every = DeliveryQueue(store), LoadSeries(), every
        self._tell, self._told = problem, ""
        self._heard: deque[NodeSnapshot] = deque(maxlen=MAX_WAITING)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._send, name="series", daemon=True)
        self._thread.start()

    def hear(self, one: NodeSnapshot) -> None:
        """Queue a snapshot; safe from any thread."""
        self._heard.append(one)

    def close(self) -> None:
        """Send the queued snapshots once, and stop."""
        self._ending.set()
        self._thread.join()

    def _send(self) -> None:
        while not self._ending.wait(self._every):
            self._deliver()
        self._deliver()

    def _deliver(self) -> None:
        while self._heard:
            self._queue.take(self._series.measurements(self._heard.popleft()))
        try:
            self._queue.deliver()
            problem = self._queue.refused or self._series.problem
        except ServiceError as error:
            problem = f"{error}; measurements wait until it answers"
        if problem != self._told:
            self._told = problem
            self._tell(problem)
