"""`SweepGantt`: a chart of hosts, links and files, with the completion of each waiting task at each cache.

A file moves to a cache once. The files from one site to another share one link and follow one another, in the
order in which the first tasks that need them are placed. After a task is placed, only the caches that share a
booked link are computed again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from apples.applications.parameter_sweep.costs import Indices, Numbers, SweepCosts

KEPT = 0.75
"""Columns of placed tasks are dropped when less than this fraction still waits; a drop copies the chart."""


@dataclass(frozen=True, slots=True)
class TaskBooking:
    """A task on a lane of a host: its files arrive at `files_at`, it runs from `start` to `end`."""

    task: str
    host: str
    lane: int
    files_at: float
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class TransferBooking:
    """A file on the link from its storage's site to that of a cache."""

    file: str
    storage: str
    cache: str
    start: float
    end: float


@dataclass(frozen=True)
class SweepProgress:
    """The state of a sweep that a plan for the remaining tasks starts from.

    Attributes
    ----------
    now
        Seconds; bookings start at this time or later.
    settled
        Names of the tasks that run or are done.
    ready
        By lane: the time until which it is busy; other lanes are free.
    arrivals
        By file and cache: the time of arrival of files that have arrived or are in transfer.
    links
        By numbers of two sites: the time until which the link from the first to the second is busy.
    """

    now: float = 0.0
    settled: frozenset[str] = frozenset()
    ready: Mapping[int, float] = field(default_factory=dict)
    arrivals: Mapping[tuple[str, str], float] = field(default_factory=dict)
    links: Mapping[tuple[int, int], float] = field(default_factory=dict)


class SweepGantt:
    """The chart during planning. Mutable: `place` books.

    Parameters
    ----------
    runner_up
        Whether `second` is updated.

    Attributes
    ----------
    waiting
        Numbers of tasks, ascending: the columns of `first`, `second` and `best`.
    left
        Number of them that are not placed.
    first, second
        By cache and waiting task: completion on the best and second best lane. It is infinite without a lane, if
        the files do not fit into the cache, or after the task is placed.
    tasks, transfers
        The bookings.
    """

    def __init__(
        self, costs: SweepCosts, progress: SweepProgress, *, runner_up: bool = True
    ) -> None:
        sweep, caches = costs.sweep, costs.caches
        self.costs = costs
        self._runner_up = runner_up
        self.tasks: list[TaskBooking] = []
        self.transfers: list[TransferBooking] = []
        self._now = progress.now
        lanes = range(len(costs.hosts))
        self._ready = np.array([max(self._now, progress.ready.get(lane, 0.0)) for lane in lanes])
        self._cache_of_lane = costs.cache_of_lane
        sites = np.array(costs.site)
        self._beside = [np.flatnonzero(sites == site).tolist() for site in costs.site]
        self._sources = sorted(set(costs.source))
        self._link = np.array(
            [
                [max(self._now, progress.links.get((source, site), 0.0)) for site in costs.site]
                for source in self._sources
            ]
        ).reshape(len(self._sources), len(caches))
        self._arrival = np.where(costs.missing, math.inf, self._now)
        for (name, cache), at in progress.arrivals.items():
            column = next(k for k, each in enumerate(caches) if each.name == cache)
            self._arrival[sweep.numbers[name], column] = max(self._now, at)
        self._sizes = np.array([file.size for file in sweep.files])
        held = np.isfinite(self._arrival) & costs.missing
        self._room = np.array([each.capacity for each in caches]) - self._sizes @ held
        self._source = np.array([self._sources.index(site) for site in costs.source], np.int64)
        waiting = [n for n, task in enumerate(sweep.tasks) if task.name not in progress.settled]
        self.waiting: Indices = np.array(waiting, dtype=np.int64)
        self.left = len(waiting)
        self._gone = np.zeros(self.left, dtype=bool)
        self._inputs = {
            n: np.array([sweep.numbers[name] for name in sweep.tasks[n].inputs], dtype=np.int64)
            for n in waiting
        }
        self._readers: list[set[int]] = [set() for _ in sweep.files]
        for number, inputs in self._inputs.items():
            for file in inputs.tolist():
                self._readers[file].add(number)
        self._compute = costs.compute.take(self.waiting, axis=1)
        shape = (len(caches), self.left)
        self.first, self.second = np.empty(shape), np.full(shape, math.inf)
        self._files_at, self._there = np.empty(shape), np.empty(shape)
        self._bytes = np.empty(shape)
        self._move = np.empty((len(caches), len(self._sources), self.left))
        for number in range(len(caches)):
            self._need(number, np.arange(self.left))
            self._arrive(number)
            self._complete(number)

    def best(self) -> tuple[Numbers, Numbers]:
        """Return for each waiting task its completion on the best and on the second best lane of all."""
        return _two_least(self.first.copy(), self.second.copy())

    def best_caches(self) -> tuple[Numbers, Numbers]:
        """Return for each waiting task its completion at the best cache and at the second best."""
        return _two_least(self.first.copy())

    def next_lane(self, column: int) -> int | None:
        """Return the lane that is free first among those that may run the task of `column`; None: no lane."""
        may = np.isfinite(self.first[:, column])[self._cache_of_lane]
        may &= np.isfinite(self.costs.compute[:, int(self.waiting[column])])
        return int(np.where(may, self._ready, math.inf).argmin()) if may.any() else None

    def least_shortage(self) -> tuple[float, float, int]:
        """Return the fewest bytes a waiting task lacks at a cache, the most free bytes of any, and that task."""
        lacks = np.where(self._gone, math.inf, self._bytes.min(axis=0))
        column = int(lacks.argmin())
        return float(lacks[column]), max(0.0, float(self._room.max())), int(self.waiting[column])

    def place(self, column: int, lane: int | None = None) -> TaskBooking:
        """Book the waiting task of `column` and its transfers, on `lane` or where it is completed first."""
        number = int(self.waiting[column])
        if lane is None:
            cache = int(self.first[:, column].argmin())
            lanes = slice(*self.costs.first_lane[cache : cache + 2])
            done = np.maximum(self._ready[lanes], self._files_at[cache, column])
            lane = lanes.start + int((done + self.costs.compute[lanes, number]).argmin())
        else:
            cache = int(self._cache_of_lane[lane])
        changed = self._move_files(number, cache)
        at = max(self._arrival[self._inputs[number], cache], default=self._now)
        start = max(float(self._ready[lane]), float(at))
        end = start + float(self.costs.compute[lane, number])
        self._ready[lane] = end
        booking = TaskBooking(
            self.costs.sweep.tasks[number].name,
            self.costs.hosts[lane],
            lane,
            float(at),
            start,
            end,
        )
        self.tasks.append(booking)
        for file in self._inputs[number].tolist():
            self._readers[file].discard(number)
        self._leave(column)
        for each in changed:
            self._arrive(each)
        for each in changed or (cache,):
            self._complete(each)
        return booking

    def _move_files(self, number: int, cache: int) -> Sequence[int]:
        """Book the files of a task that its cache lacks; return the caches that wait for the same links."""
        costs = self.costs
        wanted = [f for f in self._inputs[number].tolist() if math.isinf(self._arrival[f, cache])]
        if not wanted:
            return ()
        beside = self._beside[cache]
        for file in wanted:
            source = self._source[file]
            start = float(self._link[source, cache])
            end = start + float(costs.transfer[file, cache])
            self._link[source, beside] = end
            self._arrival[file, cache] = end
            self._room[cache] -= self._sizes[file]
            each = costs.sweep.files[file]
            self.transfers.append(
                TransferBooking(each.name, each.storage, costs.caches[cache].name, start, end)
            )
        readers = {reader for file in wanted for reader in self._readers[file]}
        self._need(cache, np.searchsorted(self.waiting, list(readers)))
        return beside

    def _need(self, cache: int, columns: Indices) -> None:
        """Compute the bytes and link seconds that a cache lacks for tasks, and the arrival of the other files."""
        inputs = [self._inputs[number] for number in self.waiting[columns].tolist()]
        task = np.repeat(np.arange(len(inputs)), [len(each) for each in inputs])
        file = np.concatenate([np.empty(0, np.int64), *inputs])
        at = self._arrival[file, cache]
        there = np.full(len(inputs), self._now)
        np.maximum.at(there, task, np.where(np.isinf(at), self._now, at))
        self._there[cache, columns] = there
        task, file = task[np.isinf(at)], file[np.isinf(at)]
        self._bytes[cache, columns] = np.bincount(task, self._sizes[file], len(inputs))
        rows = (len(self._sources), len(inputs))
        cell = self._source[file] * rows[1] + task
        move = np.bincount(cell, self.costs.transfer[file, cache], math.prod(rows)).reshape(rows)
        # If a task needs no file from a site, the state of the link from there does not matter.
        self._move[cache][:, columns] = np.where(move > 0.0, move, -math.inf)

    def _leave(self, column: int) -> None:
        """Mark a placed task: its column becomes infinite; drop such columns once there are many."""
        self._gone[column] = True
        self.left -= 1
        self.first[:, column] = self.second[:, column] = self._files_at[:, column] = math.inf
        if self.left < KEPT * len(self.waiting):
            keep = ~self._gone
            self.waiting, self._gone = self.waiting[keep], self._gone[keep]
            # `compress` keeps rows contiguous; an index would make columns contiguous.
            self.first, self.second = self.first.compress(keep, 1), self.second.compress(keep, 1)
            self._there, self._bytes = self._there.compress(keep, 1), self._bytes.compress(keep, 1)
            self._files_at = self._files_at.compress(keep, 1)
            self._compute = self._compute.compress(keep, 1)
            self._move = self._move.compress(keep, 2)

    def _arrive(self, cache: int) -> None:
        """Compute the arrival of each waiting task's files at a cache; infinite if they do not fit."""
        at = self._files_at[cache]
        moved = self._link[:, cache, None] + self._move[cache]
        np.maximum(self._there[cache], moved.max(axis=0, initial=-math.inf), out=at)
        at[(self._bytes[cache] > self._room[cache]) | self._gone] = math.inf

    def _complete(self, cache: int) -> None:
        """Compute the completions at a cache."""
        lanes = slice(*self.costs.first_lane[cache : cache + 2])
        done = np.maximum(self._ready[lanes, None], self._files_at[cache])
        done += self._compute[lanes]
        if self._runner_up:
            self.first[cache], self.second[cache] = _two_least(done)
        else:
            done.min(axis=0, out=self.first[cache])


def _two_least(first: Numbers, second: Numbers | None = None) -> tuple[Numbers, Numbers]:
    """Return the least and the second least of each column, infinite if missing; both arguments are overwritten.

    Parameters
    ----------
    second
        The runner-up of each number of `first`, of the same shape and not less; infinite by default.
    """
    second = np.full_like(first, math.inf) if second is None else second
    # Fold the lower half onto the upper until one row is left; a row in the middle stays for the next step.
    while (rows := len(first)) > 1:
        half, upper = rows // 2, (rows + 1) // 2
        one, other, runner_up = first[:half], first[upper:], second[:half]
        np.minimum(runner_up, second[upper:], out=runner_up)
        np.minimum(runner_up, np.maximum(one, other), out=runner_up)
        np.minimum(one, other, out=one)
        first, second = first[:upper], second[:upper]
    return first[0], second[0]
