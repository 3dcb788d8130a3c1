"""Order the hosts of a plan so that hosts that exchange most data are near each other.

A planner orders hosts by its model: for strips the selector's chain, for rectangles columns of hosts. If the
bytes between each two ranks are known, another order of the same hosts may be better.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from apples.agent.information import InformationPool
from apples.agent.models.rectangle import contacts
from apples.resources import names
from apples.resources.schedule import Schedule

if TYPE_CHECKING:
    from apples.topology.mapping import Array
    from apples.topology.message_matrix import MessageMatrix

TOLERANCE = 1.03
"""Largest growth of a host's work, as a factor, when it takes the rectangle of another host."""
WORTH = 0.02
"""Part of bytes times distance that another order must save; smaller savings are noise of the counts."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """A schedule with its hosts ordered by their messages.

    Attributes
    ----------
    schedule
        The schedule with the best order found; the planner's schedule if no other order is better.
    source
        Source of the messages: ``counted`` in a run, or ``declared`` by it or by the rectangles' borders.
    ranks
        Number of ranks of the messages.
    before, after
        Bytes times distance in the planner's order and in this order. None if the schedule has another number
        of ranks than the messages, so that its ranks cannot be matched to theirs.
    """

    schedule: Schedule
    source: str
    ranks: int
    before: float | None = None
    after: float | None = None


def arranged(
    schedule: Schedule, information: InformationPool, counted: MessageMatrix | None = None
) -> Arrangement | None:
    """Return a schedule with its hosts in the order of least bytes times distance; None without known messages.

    With strips, each host keeps its rows and takes the place of a host with as many ranks. With rectangles,
    each host takes one of the schedule's rectangles, as large as its own within `TOLERANCE`. None also if the
    hosts' distances do not differ.

    Parameters
    ----------
    counted
        Bytes between ranks. None: use the borders of rectangles; strips stay in the selector's order.
    """
    ranks = sum(one.ranks for one in schedule.allocations)
    if counted is not None and len(counted.ranks) != ranks:
        return Arrangement(schedule, counted.source, len(counted.ranks))
    messages = _counted(schedule, counted) if counted else _borders(schedule)
    if messages is None:
        return None
    from apples.agent.launching import distances  # noqa: PLC0415 - strips in the selector's order do not need it
    from apples.resources.distances import between  # noqa: PLC0415
    from apples.topology.mapping import PlacementProblem, place  # noqa: PLC0415
    from apples.topology.message_matrix import MAX_RANKS_SHOWN  # noqa: PLC0415

    told = distances(schedule.resources, information, MAX_RANKS_SHOWN)
    if counted is None and not told:
        return None
    of_rectangles = bool(schedule.rectangles)
    sizes = [float(r.points) for r in schedule.rectangles] or [
        float(one.ranks) for one in schedule.allocations
    ]
    apart = np.array(between(names(schedule.resources), told))
    tolerated = TOLERANCE if of_rectangles else 1.0
    problem = PlacementProblem(
        messages,
        apart,
        sizes,
        sizes,
        weight=float(messages.sum() * apart.max()) / (TOLERANCE - 1),
        room=(1,) * len(sizes),
        tolerated=tolerated,
    )
    here = range(len(sizes))
    order = place(problem, begin=here)
    before, after = problem.talk(here), problem.talk(order)
    source = counted.source if counted else "declared"
    fits = problem.seconds(order).max() <= tolerated * (1 + 1e-9)
    if not (fits and after < (1 - WORTH) * before):
        return Arrangement(schedule, source, ranks, before, before)
    return Arrangement(_in_order(schedule, order), source, ranks, before, after)


def _in_order(schedule: Schedule, order: tuple[int, ...]) -> Schedule:
    """Return a schedule in which place k goes to the host with the number ``order[k]``."""
    old = schedule.allocations
    if not schedule.rectangles:
        return replace(schedule, allocations=tuple(old[host] for host in order))
    taken = zip(old, order, strict=True)
    return replace(
        schedule,
        allocations=tuple(
            replace(place, host=old[host].host, implementation=old[host].implementation)
            for place, host in taken
        ),
    )


def _counted(schedule: Schedule, counted: MessageMatrix) -> Array:
    """Return the bytes between the places of a schedule: the sum over the ranks of each place."""
    ends = list(accumulate(one.ranks for one in schedule.allocations))
    place = np.searchsorted(ends, np.arange(ends[-1]), side="right")
    found = np.zeros((len(ends), len(ends)))
    np.add.at(found, (place[:, None], place[None, :]), np.array(counted.bytes, dtype=float))
    return found


def _borders(schedule: Schedule) -> Array | None:
    """Return the points of the border between each two rectangles; None without rectangles."""
    rectangles = schedule.rectangles
    if not rectangles:
        return None
    touching = contacts(rectangles)
    found = np.zeros((len(rectangles), len(rectangles)))
    found[touching.first, touching.second] = touching.points
    return found
