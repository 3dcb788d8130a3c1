"""Advance reservations: nodes that are kept from jobs for a time, for maintenance or a course.

The rule is one: no job may run, by its estimated end, into a reservation for which too few nodes would remain.
`Margin` says what fits under it; the ledger asks it about every decision, policies by the `Room` they give nodes
out of. Those that draw a profile enter `blocks` into it, and `profile.releases` has the nodes that come back.
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
"""Nodes, and from when to when they are estimated to be used."""


def blocks(cluster: ClusterState) -> list[Interval]:
    """Return what the reservations are still to take, of nodes that are free or will be."""
    now = cluster.time
    return [
        (max(one.begin, now), one.end, one.nodes - one.taken)
        for one in cluster.advance
        if one.nodes > one.taken
    ]


def nodes_left(cluster: ClusterState, until: float) -> int:
    """Return the fewest nodes that the reservations leave to jobs now and at any moment before a time."""
    # At a moment that is past no more are counted than now: what is over is not in the list.
    moments = [cluster.time, *(one.begin for one in cluster.advance if one.begin < until)]
    return cluster.nodes - max(
        sum(one.nodes for one in cluster.advance if one.begin <= at < one.end) for at in moments
    )


class Margin:
    """The nodes that may still be given to jobs which are estimated to run into a reservation.

    Parameters
    ----------
    now, free, ends
        As of a `Profile`: nodes that are free, and when others come free by the estimated ends.
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
        # Of the reservations that were asked about so far: most lie beyond all jobs.
        self.spare: list[int] = []
        ends = sorted(ends) if self._missing else ()
        self._times, self._nodes = [end for end, _ in ends], [0, *accumulate(n for _, n in ends)]

    @classmethod
    def of(cls, cluster: ClusterState) -> Margin:
        """Return the margin of a state; nodes that are being left count as free."""
        if not cluster.advance:
            return cls(cluster.time, 0, (), ())
        free = cluster.free + cluster.leaving
        return cls(cluster.time, free, releases(cluster), cluster.advance)

    def _reach(self, until: float) -> None:
        """See that the spare nodes of all reservations are known that begin before a time."""
        while len(self.spare) < len(self.begins) and self.begins[len(self.spare)] < until:
            at = self.begins[len(self.spare)]
            due = sum(one.nodes - one.taken for one in self._missing if one.begin <= at < one.end)
            there = self._free + self._nodes[bisect_right(self._times, at)]
            self.spare.append(there - due)

    def crossed(self, *uses: Use) -> float:
        """Return when the first reservation begins for which these would leave too few nodes, inf if none."""
        self._reach(max(end for _, _, end in uses))
        for at, spare in zip(self.begins, self.spare, strict=False):
            more = _used_at(at, uses)
            if more > 0 and more > spare:
                return at
        return inf

    def take(self, *uses: Use) -> bool:
        """Take nodes until their estimated ends, unless a reservation lacks them then; return whether.

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
        What reservations leave of them.
    """

    def __init__(self, cluster: ClusterState) -> None:
        self.now = cluster.time
        self.free = cluster.free
        self.margin = Margin.of(cluster)

    def take(self, nodes: int, end: float) -> bool:
        """Take free nodes until an estimated end, unless they are too few or reserved by then.

        A negative number gives back.
        """
        if nodes > self.free or not self.margin.take((nodes, self.now, end)):
            return False
        self.free -= nodes
        return True


def _used_at(time: float, uses: Iterable[Use]) -> int:
    return sum(nodes for nodes, begin, end in uses if begin <= time < end - HALF_INSTANT)
