"""`rectangles`, `strips_or_rectangles` and `equal_blocks`: planners that give hosts rectangles of the grid.

`columns` has the algorithm: the partition with the least sum of half perimeters, and its whole rows and
columns. This module computes its input from the model: seconds per point and at the borders. These depend on
the rectangles themselves, so they are iterated until they converge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from apples.agent.information import InformationPool
from apples.agent.models.model import Seconds
from apples.agent.models.rectangle import RectangleModel
from apples.agent.planners.columns import (
    Demands,
    cut,
    division,
    divisions,
    proportional,
    rectangles_of,
)
from apples.agent.planners.time_balancing import time_balancing
from apples.resources import Host, ResourceSet
from apples.resources.apportionment import equal_parts
from apples.resources.schedule import Allocation, Rectangle, Schedule

ROUNDS = 4
"""Iterations of rectangles and their borders."""
# The least volume is not the least time: a rectangle has more neighbours than a strip, and each adds a latency.
FEW = 16
"""Up to this number of hosts, every number of columns is compared; above, the least half perimeters decide."""
MIN_ROOM = 9
"""Least points in a host's memory: one point and the eight around it."""
TRIED = 2
"""Promising divisions into columns for which whole rows and columns are computed."""


def rectangles(resources: ResourceSet, information: InformationPool) -> Schedule:
    """Return the best schedule of rectangles found, with the least maximal T_i; empty if none fits.

    It tries the hosts in the order of their shares, with the least sum of half perimeters, and in the order of
    the set, with hosts of a site side by side. A host with a single row that delays all others is dropped,
    unless fewer than `minimum_hosts` would remain.
    """
    plan = _Planning(information.for_rectangles)
    room = plan.model.room(resources) >= MIN_ROOM
    able = [plan.information.implementation(host) != "" for host in resources]
    usable = [all(fits) for fits in zip(room, able, strict=True)]
    hosts = [host for host, fits in zip(resources, usable, strict=True) if fits]
    dropped = [host for host, fits in zip(resources, usable, strict=True) if not fits]
    best = plan.best(hosts)
    fewest = max(1, information.specifications.constraints.minimum_hosts)
    while best is not None and len(hosts) > fewest and (idle := best.idle) is not None:
        others = [host for host in hosts if host is not idle]
        shorter = plan.best(others)
        if shorter is None or shorter.seconds > best.seconds:
            break
        best, hosts = shorter, others
        dropped.append(idle)
    if best is None:
        return Schedule((), "rectangles", tuple(resources))
    return _schedule(plan.information, best.hosts, best.rectangles, "rectangles", dropped)


def strips_or_rectangles(resources: ResourceSet, information: InformationPool) -> Schedule:
    """Return strips by `time_balancing`, or `rectangles` if these are estimated to be faster.

    A program that accepts only strips gets strips.
    """
    strips = time_balancing(resources, information)
    if not information.takes_rectangles:
        return strips
    found = rectangles(resources, information)
    if not found.allocations:
        return strips
    if sum(strips.rows) != information.application.rows or min(strips.rows) < 1:
        return found  # too little memory or too few rows for strips
    one, other = (information.model_of(each).iteration_seconds(each) for each in (found, strips))
    return found if one < other else strips


def equal_blocks(resources: ResourceSet, information: InformationPool) -> Schedule:
    """Return the schedule with equal blocks on all hosts, as nearly square as p hosts allow.

    This is HPF's DISTRIBUTE (BLOCK, BLOCK) onto a grid of processors, the paper's method 1. The p hosts stand
    in their order, row by row; the number of columns is the greatest divisor of p up to its square root. A
    prime number of hosts gets strips. The hosts' performance is ignored.
    """
    information = information.for_rectangles
    application = information.application
    across = next(k for k in range(math.isqrt(len(resources)), 0, -1) if len(resources) % k == 0)
    down = len(resources) // across
    widths = equal_parts(application.columns, across)
    heights = equal_parts(application.rows, down)
    blocks = rectangles_of([down] * across, widths, heights * across)
    hosts = [resources[row * across + column] for column in range(across) for row in range(down)]
    return _schedule(information, hosts, blocks, "square_blocks", ())


@dataclass(frozen=True, slots=True)
class _Found:
    """Rectangles of a set of hosts, their iteration time, and each host's T_i."""

    hosts: Sequence[Host]
    rectangles: Sequence[Rectangle]
    seconds: float
    busy: Seconds

    @property
    def idle(self) -> Host | None:
        """The host with the longest time if it has only one row, so that it cannot have less work; else None."""
        last = int(self.busy.argmax())
        return self.hosts[last] if self.rectangles[last].rows == 1 else None


@dataclass(frozen=True, slots=True)
class _Planning:
    """The search for the rectangles of a set under one pool."""

    information: InformationPool

    @property
    def model(self) -> RectangleModel:
        """The model of rectangles."""
        return self.information.rectangle_model

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the whole grid."""
        return self.information.application.rows, self.information.application.columns

    def best(self, hosts: Sequence[Host]) -> _Found | None:
        """Return the best rectangles found in which each of these hosts has points."""
        if not hosts:
            return None
        demands = self.demands(hosts)
        shares = _shares(demands, math.prod(self.grid))
        settled = (self.settled(*each, demands) for each in self.promising(hosts, shares))
        fitting = islice((found for found in settled if found), TRIED)
        return min(fitting, key=lambda found: found.seconds, default=None)

    def demands(self, hosts: Sequence[Host]) -> Demands:
        """Return the demands of hosts with equal parts, without borders."""
        rows, columns = self.grid
        row = self.model.seconds_per_row(hosts, rows)
        return Demands(row / columns, np.zeros(len(hosts)), self.model.room(hosts))

    def promising(
        self, hosts: Sequence[Host], shares: Seconds
    ) -> list[tuple[list[Host], list[int], list[int]]]:
        """Return ordered hosts, their order, and the sizes of columns, the most promising first."""
        rows, columns = self.grid
        orders = [np.argsort(-shares, kind="stable").tolist(), list(range(len(hosts)))]
        orders = orders[: 1 + (orders[0] != orders[1])]
        if len(hosts) > FEW:
            return [
                ([hosts[i] for i in order], order, division(shares[order], rows, columns))
                for order in orders
            ]
        found = []
        for order in orders:
            mine = [hosts[i] for i in order]
            for sizes in divisions(shares[order], columns):
                near = proportional(sizes, shares[order].tolist(), rows, columns)
                if near is not None:
                    found.append((self.judged(mine, near).seconds, (mine, order, sizes)))
        found.sort(key=lambda each: each[0])
        return [each for _, each in found]

    def settled(
        self, hosts: Sequence[Host], order: Sequence[int], sizes: Sequence[int], demands: Demands
    ) -> _Found | None:
        """Return the best rectangles of a division, iterated with the borders of the last rectangles."""
        rows, columns = self.grid
        mine, best = demands.in_order(order), None
        for _ in range(ROUNDS if len(hosts) <= FEW else 2):
            found = cut(sizes, mine, rows, columns)
            if found is None:
                return best
            judged = self.judged(hosts, found)
            if best is not None and judged.seconds >= best.seconds:
                return best
            best = judged
            points = np.array([one.points for one in found], dtype=float)
            border = self.model.communication_at(hosts, found)
            mine = Demands((judged.busy - border) / points, border, mine.room)
        return best

    def judged(self, hosts: Sequence[Host], found: Sequence[Rectangle]) -> _Found:
        """Return rectangles with the model's estimate of them."""
        rows = np.array([one.points for one in found]) / self.grid[1]
        busy = self.model.computation(hosts, rows) + self.model.communication_at(hosts, found)
        seconds = float(busy.max()) * self.model.lateness(hosts, busy)
        return _Found(hosts, found, seconds, busy)


def _shares(demands: Demands, points: int) -> Seconds:
    """Return the points of each host if all finish at the same time, at most the points in its memory."""
    speed, room = 1.0 / demands.point_seconds, demands.room
    if room.sum() <= points:
        return room
    # Total points when the memory of each host is full, in the order in which the hosts fill up.
    full = room / speed
    order = np.argsort(full, kind="stable")
    filled = np.append(0.0, np.cumsum(room[order])[:-1])
    free = np.cumsum(speed[order][::-1])[::-1]  # speed of the hosts that are not full before
    seconds = (points - filled) / free
    return np.asarray(np.minimum(speed * seconds[np.argmax(seconds <= full[order])], room))


def _schedule(
    information: InformationPool,
    hosts: Sequence[Host],
    blocks: Sequence[Rectangle],
    planner: str,
    dropped: Sequence[Host],
) -> Schedule:
    columns = information.application.columns
    allocations = tuple(
        Allocation(host, one.points / columns, information.implementation(host), one)
        for host, one in zip(hosts, blocks, strict=True)
    )
    return Schedule(allocations, planner, tuple(dropped))
