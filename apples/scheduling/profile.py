"""The availability profile: free nodes over time, by estimated ends and reservations.

Backfilling plans with this profile (Mu'alem and Feitelson 2001). `releases` returns the estimated ends of the
running jobs; `Profile` finds the earliest time for a job and enters its reservation.
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
"""From this number of reservations on, compiled loops decide the pass if numba is installed."""


def compile_plan() -> None:
    """Import numba and compile the pass for long queues: about 15 s the first time on a machine, then one second.

    A live scheduler calls it before it listens, so that none of its passes waits for the compiler.
    """
    from apples.scheduling.loops import compression  # noqa: PLC0415 - imports numba

    compression.planned(np.zeros(1), np.ones(1, dtype=np.int64), [], [(1.0, 1)], moves=False)


class Profile:
    """A step function: free nodes over time, from now on.

    The steps are two sorted arrays, so that a search compares all of them at once and a reservation moves
    memory instead of objects: a search takes some tens of microseconds with 10,000 reservations.

    Parameters
    ----------
    releases
        Times at which nodes come free, and their number; a past time counts as now.
    reserved
        Existing reservations; a past start counts as now. They may need more nodes than there are: see `least`.
    blocked
        Intervals that take nodes first, such as advance reservations. If jobs have more nodes than an interval
        leaves, the level is 0, not negative.

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
        last = np.ones(len(at), dtype=np.bool_)  # the level after all changes of an instant
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
        """Fewest nodes that are free at any time; negative if the reservations exceed the nodes."""
        return int(self._free[: self._count].min())

    def earliest(self, nodes: int, seconds: float, after: float | None = None) -> float:
        """Return the first time from which the nodes are free for `seconds`, inf if none.

        Parameters
        ----------
        after
            Time at which the search starts, one of the times of the profile; default: now.
        """
        times, free = self._times[: self._count], self._free[: self._count]
        first = 0 if after is None else int(times.searchsorted(after, side="right")) - 1
        enough = free[first:] >= nodes
        # Steps at which an interval of enough nodes begins and ends; the last interval may have no end.
        turns = (enough[1:] != enough[:-1]).nonzero()[0] + (first + 1)
        begins, ends = turns[0::2], turns[1::2]
        if enough[0]:
            begins, ends = np.concatenate([[first], ends]), begins
        long = (times[ends] >= times[begins[: len(ends)]] + seconds - HALF_INSTANT).nonzero()[0]
        if len(long):
            return float(times[begins[long[0]]])
        return float(times[begins[-1]]) if len(begins) > len(ends) else inf

    def first_with(self, nodes: int) -> float:
        """Return the first time at which the nodes are free for any duration, inf if never."""
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
        """Take nodes from the part of [begin, end) that is not past; a negative number gives them back."""
        first, last = self._step_at(begin), self._step_at(instant(end))
        self._free[first:last] -= nodes

    def plan(
        self, promises: Sequence[float], jobs: Sequence[tuple[float, int]], *, moves: bool = False
    ) -> list[float]:
        """Decide one pass of conservative backfilling; return the start of each job, inf if never.

        `apples.scheduling.loops.compression.plan` is the compiled form for long queues and for the kernel;
        `tests/scheduling/test_profile.py` tests that both are equal.

        Parameters
        ----------
        promises
            Promised starts of the first jobs; the profile contains them.
        jobs
            Seconds and nodes of each job, in the order of the queue. Each job without a promise gets the earliest
            place.
        moves
            Whether the promises move up, one after another: each is removed and made anew at the earliest time,
            never later than before.
        """
        if len(jobs) - (0 if moves else len(promises)) >= MANY_WAITING and can_compile():
            # Only this line imports numba, which takes a second, unless `compile_plan` has done it.
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
            # From here on no step rises: a job begins no earlier than the jobs of its shape before it.
            begin = self.earliest(nodes, seconds, found.get((seconds, nodes)))
            found[seconds, nodes] = begin
            begins.append(begin)
            if begin < inf:
                self.reserve(begin, begin + seconds, nodes)
        return begins

    def _moved_up(self, old: float, seconds: float, nodes: int) -> float:
        """Remove a reservation and make it anew at the earliest time; return its start."""
        if self.first_with(nodes) >= old:
            return old
        self.reserve(old, old + seconds, -nodes)
        begin = self.earliest(nodes, seconds)
        self.reserve(begin, begin + seconds, nodes)
        return begin

    def _step_at(self, time: float) -> int:
        """Return the step that begins at a time, inserted if needed; the first step for a past time."""
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
    """Return the free nodes now and their later changes, less the intervals (negative at the start of one)."""
    plain = Profile(now, free, releases, blocked)
    levels = np.maximum(plain._free[: plain._count], 0)
    steps = zip(plain._times[1 : plain._count].tolist(), np.diff(levels).tolist(), strict=True)
    return int(levels[0]), list(steps)


def releases(cluster: ClusterState) -> list[tuple[float, int]]:
    """Return the times at which nodes come free by the estimated ends, with their number, unsorted.

    Nodes that a guest shares come free at the end of their owner, or of the guest if that is later because it
    overran its estimate. Nodes of an advance reservation come free at its end.
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
