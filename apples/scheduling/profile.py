"""The availability profile: free nodes over time by the estimated ends and the reservations.

What backfilling plans with (Mu'alem and Feitelson 2001): `releases` are the estimated ends of the running
jobs, `Profile` finds the earliest time for a job among them and enters its reservation.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from apples.scheduling.instants import HALF_INSTANT, instant
from apples.scheduling.loops import can_compile
from apples.scheduling.policy import ClusterState

Interval = tuple[float, float, int]
"""Begin, end and nodes of a reservation."""

MANY_WAITING = 1500
"""From so many reservations to decide on, compiled loops decide, if numba is installed."""


def compile_plan() -> None:
    """Import numba and compile the pass of long queues: about 15 s once on a machine, then a second.

    A live scheduler calls it before it listens, so that none of its passes waits for the compiler.
    """
    from apples.scheduling.loops import compression  # noqa: PLC0415 - imports numba

    compression.planned(np.zeros(1), np.ones(1, dtype=np.int64), [], [(1.0, 1)], moves=False)


class Profile:
    """A step function of time: how many nodes are free from now on.

    The steps are two sorted arrays, so that a search compares all of them at once and a reservation moves
    memory instead of objects: with 10,000 reservations a place is found in some tens of microseconds.

    Parameters
    ----------
    releases
        When nodes come free, and how many; a time that is past counts as now.
    reserved
        Reservations held already, entered all at once; one that is past begins now. There may be more of
        them than nodes: see `least`.
    blocked
        What is taken before them, as advance reservations do: down to no node at all, where jobs have more
        than is left.

    Examples
    --------
    >>> profile = Profile(0.0, 2, [(10.0, 3)])
    >>> profile.earliest(4, 5.0)
    10.0
    >>> profile.reserve(0.0, 20.0, 2)
    >>> profile.earliest(4, 5.0)
    20.0
    """

    def __init__(
        self,
        now: float,
        free: int,
        releases: Sequence[tuple[float, int]],
        reserved: Sequence[Interval] = (),
        blocked: Sequence[Interval] = (),
    ) -> None:
        self.now = now
        if blocked:
            free, releases = _left_by(now, free, releases, blocked)
        begins, ends, widths = zip(*reserved, strict=True) if reserved else ((), (), ())
        times, nodes = zip(*releases, strict=True) if releases else ((), ())
        at = np.maximum(np.array((now, *times, *begins, *ends), dtype=np.float64), now)
        taken = np.array(widths, dtype=np.int64)
        change = np.concatenate([np.array((free, *nodes), dtype=np.int64), -taken, taken])
        order = np.argsort(at, kind="stable")
        at, level = at[order], change[order].cumsum()
        last = np.ones(len(at), dtype=np.bool_)  # of each instant, the level after all its changes
        np.not_equal(at[1:], at[:-1], out=last[:-1])
        at, level = at[last], level[last]
        self._count = count = len(at)
        self._times = np.empty(2 * count + 64)
        self._free = np.empty(2 * count + 64, dtype=np.int64)
        self._times[:count] = at
        self._free[:count] = level

    @property
    def times(self) -> list[float]:
        """Times at which the number of free nodes changes, from now on."""
        return list(self._times[: self._count].tolist())

    @property
    def least(self) -> int:
        """Fewest nodes that are free at any time; negative where more is reserved than there is."""
        return int(self._free[: self._count].min())

    def earliest(self, nodes: int, seconds: float, after: float | None = None) -> float:
        """Return the first time from which the nodes are free for so many seconds, inf if there is none.

        Parameters
        ----------
        after
            Where the search begins, one of the times of the profile; by default now.
        """
        times, free = self._times[: self._count], self._free[: self._count]
        first = 0 if after is None else int(times.searchsorted(after, side="right")) - 1
        enough = free[first:] >= nodes
        # Steps at which it begins to be enough, and at which it ends; the last of it may have no end.
        turns = (enough[1:] != enough[:-1]).nonzero()[0] + (first + 1)
        begins, ends = turns[0::2], turns[1::2]
        if enough[0]:
            begins, ends = np.concatenate([[first], ends]), begins
        long = (times[ends] >= times[begins[: len(ends)]] + seconds - HALF_INSTANT).nonzero()[0]
        if len(long):
            return float(times[begins[long[0]]])
        return float(times[begins[-1]]) if len(begins) > len(ends) else inf

    def first_with(self, nodes: int) -> float:
        """Return the first time at which so many nodes are free for however short, inf if never."""
        enough = self._free[: self._count] >= nodes
        step = int(enough.argmax())
        return float(self._times[step]) if enough[step] else inf

    def least_between(self, begin: float, end: float) -> int:
        """Return the fewest nodes that are free at any time in [begin, end)."""
        times = self._times[: self._count]
        first = int(times.searchsorted(begin, side="right")) - 1
        last = int(times.searchsorted(end))
        return int(self._free[first:last].min())

    def reserve(self, begin: float, end: float, nodes: int) -> None:
        """Take nodes away from [begin, end); a negative number gives them back. What is past is left."""
        first, last = self._step_at(begin), self._step_at(instant(end))
        self._free[first:last] -= nodes

    def plan(
        self, promises: Sequence[float], jobs: Sequence[tuple[float, int]], *, moves: bool = False
    ) -> list[float]:
        """Decide one pass of conservative backfilling: return when each job begins, inf if never.

        The same compiled, for long queues and for the kernel: `apples.scheduling.loops.compression.plan`;
        `tests/scheduling/test_profile.py` holds both equal.

        Parameters
        ----------
        promises
            Of the first jobs; the profile holds them.
        jobs
            Seconds and nodes of each, in the order of the queue. Those without a promise are reserved the
            earliest place.
        moves
            Whether the promises are moved up, one after another: each to the earliest time that taking it
            out leaves open, never later than before.
        """
        if len(jobs) - (0 if moves else len(promises)) >= MANY_WAITING and can_compile():
            # Numba is imported here only, which takes a second, unless `compile_plan` has done it.
            from apples.scheduling.loops import compression  # noqa: PLC0415

            begins, self._times, self._free = compression.planned(
                self._times[: self._count], self._free[: self._count], promises, jobs, moves
            )
            self._count = len(self._times)
            return begins
        begins = []
        found: dict[tuple[float, int], float] = {}
        for k, (seconds, nodes) in enumerate(jobs):
            if k < len(promises):
                begins.append(
                    self._moved_up(promises[k], seconds, nodes) if moves else promises[k]
                )
                continue
            # From here on no step rises: a job goes behind those of its shape.
            begin = self.earliest(nodes, seconds, found.get((seconds, nodes)))
            found[seconds, nodes] = begin
            begins.append(begin)
            if begin < inf:
                self.reserve(begin, begin + seconds, nodes)
        return begins

    def _moved_up(self, old: float, seconds: float, nodes: int) -> float:
        """Move a reservation to the earliest time that taking it out leaves open; return when it begins."""
        if self.first_with(nodes) >= old:
            return old
        self.reserve(old, old + seconds, -nodes)
        begin = self.earliest(nodes, seconds)
        self.reserve(begin, begin + seconds, nodes)
        return begin

    def _step_at(self, time: float) -> int:
        """Return the step that begins at a time, made if there is none; the first for what is past."""
        count = self._count
        k = int(self._times[:count].searchsorted(time))
        if (k < count and self._times[k] == time) or time <= self.now:
            return k
        if count == len(self._times):
            self._times = np.concatenate([self._times, np.empty(count)])
            self._free = np.concatenate([self._free, np.empty(count, dtype=np.int64)])
        self._times[k + 1 : count + 1] = self._times[k:count]
        self._free[k + 1 : count + 1] = self._free[k:count]
        self._times[k] = time
        self._free[k] = self._free[k - 1]
        self._count += 1
        return k


def _left_by(
    now: float,
    free: int,
    releases: Sequence[tuple[float, int]],
    blocked: Sequence[Interval],
) -> tuple[int, list[tuple[float, int]]]:
    """Return what is free, and comes free, between the intervals; negative numbers where one begins."""
    plain = Profile(now, free, releases, blocked)
    levels = np.maximum(plain._free[: plain._count], 0)
    steps = zip(plain._times[1 : plain._count].tolist(), np.diff(levels).tolist(), strict=True)
    return int(levels[0]), list(steps)


def releases(cluster: ClusterState) -> list[tuple[float, int]]:
    """Return when nodes come free by the estimated ends, and how many, unsorted.

    Nodes that a guest shares come free with their owner, before whom the guest ends; or with the guest,
    where that overran its estimate. Those that an advance reservation has come free at its end.
    """
    given_back = [(one.end, one.taken) for one in cluster.advance if one.taken]
    return given_back + [
        (
            running.limit
            if running.guest is None
            else max(running.limit, cluster.running[running.guest].limit),
            running.nodes - running.shared,
        )
        for running in cluster.running.values()
        if running.nodes > running.shared
    ]
