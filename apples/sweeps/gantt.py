"""`SweepGantt`: one chart of hosts, links and files, and for each waiting task when it would be done where.

A file moves to a cache once; the files from one site to another follow one another on the link between the two,
in the order in which the tasks that first need them are placed. After a task is placed only what changed is
worked out again: the caches that share a link on which something was booked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from apples.sweeps.costs import Indices, Numbers, SweepCosts

KEPT = 0.75
"""Columns of placed tasks are dropped once fewer than this share wait: each drop copies the chart."""


@dataclass(frozen=True, slots=True)
class TaskBooking:
    """A task on a lane of a host: its files are there at `files_at`, it runs from `start` to `end`."""

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
    """How far a sweep has come: what a plan for the rest has to take as it is.

    Attributes
    ----------
    now
        Seconds; nothing is booked before.
    settled
        Names of the tasks that run or are done.
    ready
        By lane: until when it is busy; a lane not named is free.
    arrivals
        By file and cache, of those that have come or are under way: when they are there.
    links
        By numbers of two sites: until when the link from the one to the other is busy.
    """

    now: float = 0.0
    settled: frozenset[str] = frozenset()
    ready: Mapping[int, float] = field(default_factory=dict)
    arrivals: Mapping[tuple[str, str], float] = field(default_factory=dict)
    links: Mapping[tuple[int, int], float] = field(default_factory=dict)


class SweepGantt:
    """The chart while a plan is made. Mutable: `place` books.

    Parameters
    ----------
    runner_up
        Whether `second` is kept up to date.

    Attributes
    ----------
    waiting
        Numbers of tasks, ascending; the columns of `first`, `second` and `best` are theirs.
    left
        How many of them are not placed.
    first, second
        By cache and waiting task: completion on its best and second best lane; infinite where there is none, the
        files do not fit into the cache, or the task is placed.
    tasks, transfers
        What is booked.
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
        self._inputs = [[sweep.numbers[name] for name in task.inputs] for task in sweep.tasks]
        self._readers: list[list[int]] = [[] for _ in sweep.files]
        for number, inputs in enumerate(self._inputs):
            for file in inputs:
                self._readers[file].append(number)
        self._bytes = np.zeros((len(caches), len(sweep.tasks)))
        self._there = np.full_like(self._bytes, self._now)
        self._move = np.zeros((len(self._sources), *self._bytes.shape))
        for number in range(len(sweep.tasks)):
            for k in range(len(caches)):
                self._need(number, k)
        waiting = [n for n, task in enumerate(sweep.tasks) if task.name not in progress.settled]
        self.waiting: Indices = np.array(waiting, dtype=np.int64)
        self.left = len(waiting)
        self._gone = np.zeros(self.left, dtype=bool)
        self._columns()
        self.first = np.empty((len(caches), self.left))
        self.second = np.full_like(self.first, math.inf)
        self._complete(0, len(caches))

    def best(self) -> tuple[Numbers, Numbers]:
        """Return for each waiting task its completion on the best and on the second best lane of all."""
        first = np.full(len(self.waiting), math.inf)
        second = first.copy()
        for row, other in zip(self.first, self.second, strict=True):
            np.minimum(second, other, out=second)
            np.minimum(second, np.maximum(first, row), out=second)
            np.minimum(first, row, out=first)
        return first, second

    def best_caches(self) -> tuple[Numbers, Numbers]:
        """Return for each waiting task its completion at the best cache and at the second best."""
        first = np.full(len(self.waiting), math.inf)
        second = first.copy()
        for row in self.first:
            np.minimum(second, np.maximum(first, row), out=second)
            np.minimum(first, row, out=first)
        return first, second

    def next_lane(self, column: int) -> int | None:
        """Return the lane that is free first among those that may run the task of `column`; None without one."""
        may = np.isfinite(self.first[:, column])[self.costs.cache_of_lane]
        may &= np.isfinite(self.costs.compute[:, int(self.waiting[column])])
        return int(np.where(may, self._ready, math.inf).argmin()) if may.any() else None

    def least_shortage(self) -> tuple[float, float, int]:
        """Return the least bytes that a waiting task lacks at any cache, the most room of any, and that task."""
        lacks = np.where(self._gone, math.inf, self._w_bytes.min(axis=0))
        column = int(lacks.argmin())
        return float(lacks[column]), max(0.0, float(self._room.max())), int(self.waiting[column])

    def place(self, column: int, lane: int | None = None) -> TaskBooking:
        """Book the waiting task of `column` and its transfers, on `lane` or where it is done first."""
        number = int(self.waiting[column])
        if lane is None:
            cache = int(self.first[:, column].argmin())
            lanes = slice(*self.costs.first_lane[cache : cache + 2])
            done = np.maximum(self._ready[lanes], self._files_at(cache)[column])
            lane = lanes.start + int((done + self.costs.compute[lanes, number]).argmin())
        else:
            cache = int(self.costs.cache_of_lane[lane])
        moved = self._move_files(number, cache)
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
        self._leave(column)
        if moved:  # every cache of the site waits for the same link
            site = self.costs.site[cache]
            self._complete(
                self.costs.site.index(site),
                len(self.costs.site) - self.costs.site[::-1].index(site),
            )
        else:
            self._complete(cache, cache + 1)
        return booking

    def _move_files(self, number: int, cache: int) -> bool:
        """Book the files of a task that its cache does not have; whether there were any."""
        costs = self.costs
        wanted = [f for f in self._inputs[number] if math.isinf(self._arrival[f, cache])]
        site = np.array(costs.site) == costs.site[cache]
        touched: set[int] = set()
        for file in wanted:
            source = self._sources.index(costs.source[file])
            start = float(self._link[source, cache])
            end = start + float(costs.transfer[file, cache])
            self._link[source, site] = end
            self._arrival[file, cache] = end
            self._room[cache] -= self._sizes[file]
            touched.update(self._readers[file])
            each = costs.sweep.files[file]
            self.transfers.append(
                TransferBooking(each.name, each.storage, costs.caches[cache].name, start, end)
            )
        for reader in touched:
            self._need(reader, cache)
        if touched:
            self._columns(cache)
        return bool(wanted)

    def _need(self, number: int, cache: int) -> None:
        """Work out what a cache lacks of a task's files, bytes and seconds a link, and when the rest is there."""
        inputs = self._inputs[number]
        missing = [file for file in inputs if math.isinf(self._arrival[file, cache])]
        self._bytes[cache, number] = sum(self._sizes[file] for file in missing)
        self._there[cache, number] = max(
            (self._arrival[f, cache] for f in inputs if f not in missing), default=self._now
        )
        self._move[:, cache, number] = 0.0
        for file in missing:
            source = self._sources.index(self.costs.source[file])
            self._move[source, cache, number] += self.costs.transfer[file, cache]

    def _columns(self, cache: int | None = None) -> None:
        """Take what the waiting tasks need side by side: all, or of one cache."""
        if cache is None:
            self._w_bytes = self._bytes[:, self.waiting]
            self._w_there = self._there[:, self.waiting]
            self._w_move = self._move[:, :, self.waiting]
            self._w_compute = self.costs.compute[:, self.waiting]
        else:
            self._w_bytes[cache] = self._bytes[cache, self.waiting]
            self._w_there[cache] = self._there[cache, self.waiting]
            self._w_move[:, cache] = self._move[:, cache, self.waiting]

    def _leave(self, column: int) -> None:
        """Let a placed task wait no more: its column is infinite, until there are many of those."""
        self._gone[column] = True
        self.left -= 1
        self.first[:, column] = self.second[:, column] = math.inf
        if self.left < KEPT * len(self.waiting):
            keep = ~self._gone
            self.waiting = self.waiting[keep]
            self.first, self.second = self.first[:, keep], self.second[:, keep]
            self._gone = self._gone[keep]
            self._columns()

    def _files_at(self, cache: int) -> Numbers:
        """Return when the files of each waiting task would be there; infinite where they do not fit."""
        at: Numbers = self._w_there[cache].copy()
        for source, move in enumerate(self._w_move[:, cache]):
            np.maximum(at, np.where(move > 0.0, self._link[source, cache] + move, 0.0), out=at)
        at[(self._w_bytes[cache] > self._room[cache]) | self._gone] = math.inf
        return at

    def _complete(self, begin: int, end: int) -> None:
        """Work out the completions at the caches from `begin` to before `end`."""
        for cache in range(begin, end):
            lanes = slice(*self.costs.first_lane[cache : cache + 2])
            done = np.maximum(self._ready[lanes, None], self._files_at(cache))
            done += self._w_compute[lanes]
            done.min(axis=0, out=self.first[cache])
            if self._runner_up:
                self.second[cache] = _second(done)


def _second(rows: Numbers) -> Numbers:
    """Return the second smallest of each column; infinite where there is one row."""
    least: Numbers = rows[0].copy()
    second: Numbers = np.full(rows.shape[1], math.inf)
    for row in rows[1:]:
        np.minimum(second, np.maximum(least, row), out=second)
        np.minimum(least, row, out=least)
    return second
