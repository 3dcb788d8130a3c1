"""`rectangles`, `strips_or_rectangles` and `equal_blocks`: planners of hosts that have rectangles of the grid.

`columns` has the algorithm: the partition with the least sum of half perimeters, and its whole rows and columns.
Here its numbers are worked out: seconds of a point and of the borders from the model, which depend on the
rectangles themselves and are asked for again until they settle.
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
"""How often the rectangles are made again with the borders that they turned out to have."""
# The least volume is not the least time: a rectangle has more neighbours than a strip, and each
# costs a latency.
FEW = 16
"""Of up to so many hosts every number of columns is compared; of more, the one with the least half perimeters."""
MIN_ROOM = 9
"""Points that a host must have memory for: one, and those around it."""
TRIED = 2
"""Divisions into columns, the most promising first, that whole rows and columns are found for and have memory."""


def rectangles(resources: ResourceSet, information: InformationPool) -> Schedule:
    """Return the schedule of rectangles with the least largest T_i that was found; empty where none fits.

    The hosts are taken in the order of their shares, in which the sum of half perimeters is least, and in the
    order of the set, in which hosts of a site are side by side. A host that would have a single row and
    delays all others is dropped, unless fewer than `minimum_hosts` would remain.
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
    """Return strips by `time_balancing`, or `rectangles` where these are estimated to be faster.

    A program that takes strips alone has strips.
    """
    strips = time_balancing(resources, information)
    if not information.takes_rectangles:
        return strips
    found = rectangles(resources, information)
    if not found.allocations:
        return strips
    if sum(strips.rows) != information.application.rows or min(strips.rows) < 1:
        return found  # there is no memory, or there are no rows, for strips
    one, other = (information.model_of(each).iteration_seconds(each) for each in (found, strips))
    return found if one < other else strips


def equal_blocks(resources: ResourceSet, information: InformationPool) -> Schedule:
    """Return the schedule that gives every host a block of the same size, as near to a square as p hosts allow.

    HPF's DISTRIBUTE (BLOCK, BLOCK) onto a grid of processors, the paper's method 1: the p hosts in their order,
    row by row, in as many columns as the greatest divisor of p that is not above its root; a prime number of
    hosts has strips. The speed of the hosts is ignored.
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
    """Rectangles of some hosts, what an iteration of them takes, and each host's T_i."""

    hosts: Sequence[Host]
    rectangles: Sequence[Rectangle]
    seconds: float
    busy: Seconds

    @property
    def idle(self) -> Host | None:
        """The host that takes longest, where it could have hardly less to do; None where it could."""
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
        """Rows and columns of the whole."""
        return self.information.application.rows, self.information.application.columns

    def best(self, hosts: Sequence[Host]) -> _Found | None:
        """Return the best rectangles found that give every one of these hosts some points."""
        if not hosts:
            return None
        demands = self.demands(hosts)
        shares = _shares(demands, math.prod(self.grid))
        settled = (self.settled(*each, demands) for each in self.promising(hosts, shares))
        fitting = islice((found for found in settled if found), TRIED)
        return min(fitting, key=lambda found: found.seconds, default=None)

    def demands(self, hosts: Sequence[Host]) -> Demands:
        """Return what hosts take per point where all have the same, borders apart."""
        rows, columns = self.grid
        row = self.model.seconds_per_row(hosts, rows)
        return Demands(row / columns, np.zeros(len(hosts)), self.model.room(hosts))

    def promising(
        self, hosts: Sequence[Host], shares: Seconds
    ) -> list[tuple[list[Host], list[int], list[int]]]:
        """Return hosts in an order, that order, and the sizes of columns; the most promising first."""
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
        """Return the best rectangles of a division, with the borders that they turn out to have."""
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
    """Return how many points each host would compute if all were done together, at most those it has room for."""
    speed, room = 1.0 / demands.point_seconds, demands.room
    if room.sum() <= points:
        return room
    # Points held at the time when each host's room is full, the first such host first.
    full = room / speed
    order = np.argsort(full, kind="stable")
    filled = np.append(0.0, np.cumsum(room[order])[:-1])
    free = np.cumsum(speed[order][::-1])[::-1]  # speed of the hosts whose room is not full before
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
