"""`RectangleModel`: T_i = A_i P_i + C_i for a grid cut into rectangles, one per host.

A_i = rows_i * columns_i; P_i is that of the strip model. C_i is a sum over all rectangles that share a part of
a side with that of host i: sending and receiving the points along that part. With columns of unequal rows, a
host has several neighbours on a side. A message to each neighbour costs the full latency; the bytes are
proportional to the shared part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from apples.agent.models.model import ModelTemplate, Seconds
from apples.agent.models.strip import StripModel
from apples.errors import ModelError
from apples.resources import Host
from apples.resources.schedule import Allocation, Rectangle

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Contacts:
    """The places where two rectangles touch along a side: their indices, and the points of the shared part.

    Each pair appears once, with the upper or left rectangle first. Corners do not count as contact.
    """

    first: Indices
    second: Indices
    points: Indices


def contacts(rectangles: Sequence[Rectangle]) -> Contacts:
    """Return the contacts of rectangles that do not overlap.

    Examples
    --------
    A tall rectangle at the left, two beside it:

    >>> touching = contacts([Rectangle(0, 9, 0, 4), Rectangle(0, 3, 4, 6), Rectangle(3, 6, 4, 6)])
    >>> list(zip(touching.first.tolist(), touching.second.tolist(), touching.points.tolist()))
    [(1, 2, 6), (0, 1, 3), (0, 2, 6)]
    """
    top, height, left, width = np.array(
        [(r.first_row, r.rows, r.first_column, r.columns) for r in rectangles], dtype=np.int64
    ).T
    upright = _along(top + height, top, left, left + width)
    across = _along(left + width, left, top, top + height)
    return Contacts(*(np.concatenate(both) for both in zip(upright, across, strict=True)))


def _along(
    end: Indices, begin: Indices, low: Indices, high: Indices
) -> tuple[Indices, Indices, Indices]:
    """Return the pairs where one rectangle ends at the other's beginning, and their shared part of [low, high).

    All lines are laid end to end on one axis. On it, sides that end at a line do not overlap, nor do sides that
    begin there, so the sides that touch a given side are consecutive in order.
    """
    stretch = int(high.max()) + 1
    ending, beginning = np.argsort(end * stretch + low), np.argsort(begin * stretch + low)
    place, other = (end * stretch)[ending], (begin * stretch)[beginning]
    one = np.searchsorted(other + high[beginning], place + low[ending], side="right")
    past = np.searchsorted(other + low[beginning], place + high[ending], side="left")
    count = np.maximum(past - one, 0)
    before = np.repeat(np.cumsum(count) - count, count)
    first = np.repeat(ending, count)
    second = beginning[np.repeat(one, count) + np.arange(len(before)) - before]
    points = np.minimum(high[first], high[second]) - np.maximum(low[first], low[second])
    return first, second, points


def covered_once(rectangles: Sequence[Rectangle], rows: int, columns: int) -> int:
    """Return the number of grid points in exactly one rectangle, of the rectangles that lie inside the grid.

    Examples
    --------
    >>> covered_once([Rectangle(0, 2, 0, 3), Rectangle(0, 2, 2, 2)], rows=2, columns=4)
    6
    """
    inside = [
        (one.first_row, one.first_row + one.rows, one.first_column, one.first_column + one.columns)
        for one in rectangles
        if min(one.rows, one.columns) >= 1
        and 0 <= one.first_row <= rows - one.rows
        and 0 <= one.first_column <= columns - one.columns
    ]
    top, bottom, left, right = np.array(inside, dtype=np.int64).reshape(-1, 4).T
    down, across = np.unique((top, bottom)), np.unique((left, right))
    changes = np.zeros((len(down), len(across)), dtype=np.int64)
    for row, column, change in (
        (top, left, 1),
        (top, right, -1),
        (bottom, left, -1),
        (bottom, right, 1),
    ):
        places = np.searchsorted(down, row), np.searchsorted(across, column)
        np.add.at(changes, places, change)
    layers = changes.cumsum(axis=0).cumsum(axis=1)[:-1, :-1]
    return int((np.diff(down)[:, None] * np.diff(across) * (layers == 1)).sum())


@dataclass(frozen=True)
class RectangleModel(StripModel):
    """The strip model for hosts with rectangles; its methods expect the hosts in the order of `rectangles`.

    Rows are `Allocation.rows`: the number of full-width rows with as many points. Borders are exchanged every
    iteration, also by an implementation that makes several sweeps per exchange with strips.

    Attributes
    ----------
    rectangles
        Rectangles of the hosts of the set, in its order.
    """

    rectangles: tuple[Rectangle, ...] = ()

    @classmethod
    def like(cls, model: ModelTemplate) -> RectangleModel:
        """Return the model under the conditions of a strip model, still without rectangles.

        Raises
        ------
        ModelError
            The model is not a strip model, so it has no costs for rectangles. Permanent.
        """
        if type(model) is not StripModel:
            raise ModelError(
                f"the model {type(model).__name__} does not estimate rectangles",
                code="rectangles-unsupported",
                model=type(model).__name__,
            )
        known = {one.name: getattr(model, one.name) for one in fields(model) if one.init}
        return cls(**{**known, "sweeps": 1})

    def room(self, resources: Sequence[Host]) -> Seconds:
        """Return the number of points that each host's memory holds, with a border of one point all around."""
        free = np.array([self.free_memory(host) for host in resources])
        room = (free - self.application.fixed_bytes) / self.application.point_bytes
        return np.asarray(np.maximum(room, 0.0))

    def memory_of(self, allocation: Allocation) -> float:
        """Return arrays * (rows + 2) * (columns + 2) * element_bytes, plus the replicated data."""
        mine = allocation.rectangle
        if mine is None:
            return super().memory_of(allocation)
        return self.application.rectangle_memory(mine.rows, mine.columns)

    # -------------------------------------------------------------- communication
    def communication(self, resources: Sequence[Host]) -> Seconds:
        """Return C_i: the seconds at the sides shared with others, less the credit of quotas."""
        return self.communication_at(resources, self.rectangles)

    def communication_at(
        self, resources: Sequence[Host], rectangles: Sequence[Rectangle]
    ) -> Seconds:
        """Return C_i of the hosts with these rectangles."""
        touching = contacts(rectangles)
        transfers = self._transfers(resources, touching)
        seconds = self._at_contacts(touching, transfers, len(resources))
        return seconds - self._quota_credit(resources, seconds) if self.links else seconds

    def touching(self, resources: Sequence[Host]) -> list[tuple[Host, Host]]:
        """Return the pairs of hosts that share a part of a side."""
        found = contacts(self.rectangles)
        return [
            (resources[i], resources[j])
            for i, j in zip(found.first.tolist(), found.second.tolist(), strict=True)
        ]

    def border_seconds(self, resources: Sequence[Host]) -> list[float]:
        """Return the seconds at the part of a side that each pair of `touching` shares."""
        return [float(each) for each in self._transfers(resources, contacts(self.rectangles))]

    def _at_contacts(self, touching: Contacts, seconds: Seconds, count: int) -> Seconds:
        """Return the seconds of each host at all its contacts: their sum, or the longest if they overlap."""
        if self.borders_at_once:
            longest = np.zeros(count)
            np.maximum.at(longest, touching.first, seconds)
            np.maximum.at(longest, touching.second, seconds)
            return longest
        both = (touching.first, seconds, count), (touching.second, seconds, count)
        return np.asarray(sum(np.bincount(*each) for each in both), dtype=float)

    def _transfers(self, resources: Sequence[Host], touching: Contacts) -> Seconds:
        """Return the seconds of each contact, with the bandwidth of shared links divided.

        Contacts between the same two sites differ only by their length, unless a host has a link of its own. So
        few links must be computed for many hosts.
        """
        first, second = touching.first, touching.second
        sites: dict[str, int] = {}
        site = np.array([sites.setdefault(host.site, len(sites)) for host in resources])
        own = np.array([host.name in self._own_links for host in resources])
        place = np.arange(len(resources)) + len(sites)
        one, other = (
            np.where(own[first] | own[second], place[k], site[k]) for k in (first, second)
        )
        _, which, inverse = np.unique(
            one * (len(sites) + len(resources)) + other, return_index=True, return_inverse=True
        )
        parts = np.array(
            [self._parts(resources[first[k]], resources[second[k]]) for k in which]
        ).reshape(-1, 2)[inverse]
        share = touching.points / self.application.columns
        messages, sizes = parts[:, 0], parts[:, 1] * share
        if not self.links:
            return np.asarray(messages + sizes)
        least, most = np.minimum(site[first], site[second]), np.maximum(site[first], site[second])
        link = least * len(sites) + most
        crossing = np.bincount(link, sizes, len(sites) ** 2)[link]
        return np.asarray(messages + np.where(least == most, sizes, crossing))

    def _parts(self, a: Host, b: Host) -> tuple[float, float]:
        """Return the seconds of the messages and of the bytes of a border with the length of a row."""
        if self.links.of(a, b) is not None:
            border = self._border(a, b)
            return border.messages, border.size
        ways = (self.conditions.link(a, b), self.conditions.link(b, a))
        return (
            self._border_wait(a, b)
            + sum(way.seconds(0.0, self._messages, self.risk) for way in ways),
            sum(way.seconds(self.application.border_bytes, 0.0, self.risk) for way in ways),
        )

    def _link_error(self, resources: Sequence[Host]) -> Seconds:
        """Return the relative standard deviation of C_i from the errors of its links."""
        touching = contacts(self.rectangles)
        seconds = self._transfers(resources, touching)
        pairs = self.touching(resources)
        relative = np.array([self._relative_error(a, b) for a, b in pairs], dtype=float)
        mean = self._at_contacts(touching, seconds, len(resources))
        both = self._at_contacts(touching, seconds * relative, len(resources))
        return np.divide(both, mean, out=np.zeros_like(mean), where=mean > 0)
