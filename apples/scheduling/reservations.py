"""Advance reservations: nodes that no job may use for a time, for example for maintenance or a course.

One rule applies: no job may run, by its estimated end, into a reservation for which too few nodes would remain.
`Margin` checks the rule; the ledger uses it for every decision, policies use it through `Room`. Policies with a
profile enter `blocks` into it, and `profile.releases` includes the nodes that come back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from math import inf

from apples.scheduling.instants import HALF_INSTANT
from apples.scheduling.policy import AdvanceReservation, ClusterState
from apples.scheduling.profile import Interval, releases

Use = tuple[int, float, float]
"""Nodes, and the estimated start and end of their use."""


def blocks(cluster: ClusterState) -> list[Interval]:
    """Return the intervals for which reservations still have to take nodes."""
    now = cluster.time
    return [
        (max(one.begin, now), one.end, one.nodes - one.taken)
        for one in cluster.advance
        if one.nodes > one.taken
    ]


def nodes_left(cluster: ClusterState, until: float) -> int:
    """Return the fewest nodes that the reservations leave to jobs now and at any moment before a time."""
    # A past start of a reservation counts no more nodes than now, since the list holds no reservation that is
    # over.
    moments = [cluster.time, *(one.begin for one in cluster.advance if one.begin < until)]
    return cluster.nodes - max(
        sum(one.nodes for one in cluster.advance if one.begin <= at < one.end) for at in moments
    )


class Margin:
    """The nodes that jobs with an estimated end inside or after a reservation may still get.

    Parameters
    ----------
    now, free, ends
        As for a `Profile`: nodes free now, and the estimated ends at which others come free.
    advance
        The reservations that are not over.

    Examples
    --------
    Of four nodes three are reserved from 100 s on, and one job has a node until 200 s.

    >>> margin = Margin(0.0, 3, [(200.0, 1)], [AdvanceReservation(100.0, 150.0, 3)])
    >>> margin.take((1, 0.0, 101.0)), margin.take((3, 0.0, 100.0))
    (False, True)
    """

    def __init__(
        self,
        now: float,
        free: int,
        ends: Iterable[tuple[float, int]],
        advance: Iterable[AdvanceReservation],
    ) -> None:
        self._missing = [one for one in advance if one.nodes > one.taken]
        self._free = free
        self.begins = sorted({max(one.begin, now) for one in self._missing})
        # Spare nodes of the first reservations, computed on demand: most reservations begin after all jobs.
        self.spare: list[int] = []
        ends = sorted(ends) if self._missing else ()
        self._times, self._nodes = [end for end, _ in ends], [0, *accumulate(n for _, n in ends)]

    @classmethod
    def of(cls, cluster: ClusterState) -> Margin:
        """Return the margin of a state; leaving nodes count as free."""
        if not cluster.advance:
            return cls(cluster.time, 0, (), ())
        free = cluster.free + cluster.leaving
        return cls(cluster.time, free, releases(cluster), cluster.advance)

    def _reach(self, until: float) -> None:
        """Compute the spare nodes of all reservations that begin before a time."""
        while len(self.spare) < len(self.begins) and self.begins[len(self.spare)] < until:
            at = self.begins[len(self.spare)]
            due = sum(one.nodes - one.taken for one in self._missing if one.begin <= at < one.end)
            there = self._free + self._nodes[bisect_right(self._times, at)]
            self.spare.append(there - due)

    def crossed(self, *uses: Use) -> float:
        """Return the start of the first reservation that these uses would leave too few nodes, inf if none."""
        self._reach(max(end for _, _, end in uses))
        for at, spare in zip(self.begins, self.spare, strict=False):
            more = _used_at(at, uses)
            if more > 0 and more > spare:
                return at
        return inf

    def take(self, *uses: Use) -> bool:
        """Take nodes until their estimated ends unless a reservation would lack them; return the success.

        A negative number gives back.
        """
        if not self.begins:
            return True
        if self.crossed(*uses) < inf:
            return False
        for k, at in enumerate(self.begins[: len(self.spare)]):
            self.spare[k] -= _used_at(at, uses)
        return True


class Room:
    """The nodes that a pass may still give to jobs.

    Attributes
    ----------
    free
        Nodes free now.
    margin
        The limit that reservations put on them.
    """

    def __init__(self, cluster: ClusterState) -> None:
        self.now = cluster.time
        self.free = cluster.free
        self.margin = Margin.of(cluster)

    def take(self, nodes: int, end: float) -> bool:
        """Take free nodes until an estimated end, unless too few are free or a reservation needs them before.

        A negative number gives back.
        """
        if nodes > self.free or not self.margin.take((nodes, self.now, end)):
            return False
        self.free -= nodes
        return True


def _used_at(time: float, uses: Iterable[Use]) -> int:
    return sum(nodes for nodes, begin, end in uses if begin <= time < end - HALF_INSTANT)
