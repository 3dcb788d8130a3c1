"""The availability profile: free nodes over time by the estimated ends and the reservations.

What backfilling plans with (Mu'alem and Feitelson 2001): `releases` are the estimated ends of the running
jobs, `Profile` finds the earliest time for a job among them and enters its reservation.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from math import inf

from apples.scheduling.policy import ClusterState


class Profile:
    """A step function of time: how many nodes are free from now on.

    Examples
    --------
    >>> profile = Profile(0.0, 2, [(10.0, 3)])
    >>> profile.earliest(4, 5.0)
    10.0
    >>> profile.reserve(0.0, 20.0, 2)
    >>> profile.earliest(4, 5.0)
    20.0
    """

    def __init__(self, now: float, free: int, releases: Iterable[tuple[float, int]]) -> None:
        self.now = now
        self._times = [now]
        self._free = [free]
        for time, nodes in sorted(releases):
            if time > self._times[-1]:
                self._times.append(time)
                self._free.append(self._free[-1])
            self._free[-1] += nodes

    def earliest(self, nodes: int, seconds: float) -> float:
        """Return the first time from which the nodes are free for so many seconds."""
        begin: float | None = None
        for time, free in zip(self._times, self._free, strict=True):
            if begin is not None and time >= begin + seconds:
                return begin
            if free < nodes:
                begin = None
            elif begin is None:
                begin = time
        return inf if begin is None else begin

    def reserve(self, begin: float, end: float, nodes: int) -> None:
        """Take nodes away from [begin, end); a negative number gives them back."""
        first, last = self._step_at(begin), self._step_at(end)
        for k in range(first, last):
            self._free[k] -= nodes

    def _step_at(self, time: float) -> int:
        k = bisect_left(self._times, time)
        if k == len(self._times) or self._times[k] != time:
            self._times.insert(k, time)
            self._free.insert(k, self._free[k - 1])
        return k


def releases(cluster: ClusterState) -> list[tuple[float, int]]:
    """Return when nodes come free by the estimated ends, and how many, unsorted.

    Nodes that a guest shares come free with their owner; the guest ends before it.
    """
    return [
        (running.limit, running.nodes - running.shared)
        for running in cluster.running.values()
        if running.nodes > running.shared
    ]
