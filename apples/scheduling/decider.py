"""Dynamite's migration decider: choose tasks to move from loaded to free nodes, by a threshold.

A pure function: it takes the measurements and returns all moves of one global step, each with its reason. The rule
is the paper's; `apples.scheduling.payback` has a rule that also weighs the cost of a move.

References
----------
van Albada et al. 1999, "Dynamite", section "Migration decider", equation 1, figures 4 and 5. Equation 1 is an
image that is lost. This module assumes the weighted mean, since the rule compares C_j with a threshold of 0 to 1.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from apples.errors import UsageError

THRESHOLD = 0.6
"""T: a node with a load index above T gives a task to a node with a capacity above 1 - T."""
OWNER_BACK = 0.3
"""If the mean load of others on an owner-first node is above this, its owner counts as back."""
PRIORITIES: Mapping[str, float] = {"cpu": 1.0}
"""Default k_i: the capacity of the processors alone."""


def available_cpu(wanting: float, cpus: int) -> float:
    """Return c_ij of a node's processors; 0.5 if as many processes want a processor as there are processors.

    Examples
    --------
    >>> available_cpu(0, 2), available_cpu(1, 2), available_cpu(2, 2), available_cpu(9, 2)
    (1.0, 0.75, 0.5, 0.0)
    """
    return 1 - min(1.0, wanting / (2 * cpus))


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """The free part of each attribute of a node, and its tasks.

    Attributes
    ----------
    host
        Its name.
    available
        c_ij: of each attribute (``cpu``, ``memory``, ``swap``, ``network``, ..) the part that is free, 0 to 1.
    tasks
        Numbers of our tasks there; the first moves first.
    site
        Its subnet; a task moves to a node of the same subnet if possible.
    takes
        Whether it accepts tasks.

    Examples
    --------
    >>> NodeCapacity("ada", {"cpu": 0.2, "memory": 0.8}).capacity({"cpu": 3.0, "memory": 1.0})
    0.35
    """

    host: str
    available: Mapping[str, float]
    tasks: tuple[int, ...] = ()
    site: str = "local"
    takes: bool = True

    def __post_init__(self) -> None:
        for name, part in self.available.items():
            if not 0 <= part <= 1:
                raise UsageError(
                    f"{self.host}: available {name}: must be 0 to 1 (is {part})",
                    code="value-range",
                    host=self.host,
                    field=name,
                    value=part,
                    bound=[0, 1],
                )

    def capacity(self, priorities: Mapping[str, float]) -> float:
        """Return C_j, the sum of k_i c_ij over that of k_i; c_ij is 0 for an attribute without a measurement."""
        total = sum(priorities.values())
        return sum(k * self.available.get(name, 0.0) for name, k in priorities.items()) / total


@dataclass(frozen=True, slots=True)
class TaskMove:
    """The move of one task.

    Attributes
    ----------
    task
        Its number.
    source, target
        Indices of the two nodes in the ``nodes`` of `check_for_migration`.
    reason
        The reason, with the numbers.
    """

    task: int
    source: int
    target: int
    reason: str


def check_for_migration(
    nodes: Sequence[NodeCapacity],
    threshold: float = THRESHOLD,
    priorities: Mapping[str, float] = PRIORITIES,
    choose: Callable[[int, int], int | None] | None = None,
) -> list[TaskMove]:
    """Return the moves of one global step: the paper's `CheckForMigration`, its recursion as a loop.

    The load room holds the nodes by falling load L = 1 - C, the capacity room by falling capacity. While L_1 > T
    and C_1 > 1 - T, a task of the first node of the load room moves to the first node of the capacity room, to a
    node of the same site if the capacity room has one. Both nodes leave their rooms, since their new capacities
    are unknown until the next measurement ("default values"). If `choose` returns None, the target stays in the
    capacity room for the next source. A node without tasks of ours is in no load room.

    Parameters
    ----------
    choose
        Returns the task that moves from a node (first index) to another (second index), or None if no task is
        suitable. Default: its first task.

    Raises
    ------
    UsageError
        The threshold is outside 0 to 1, a priority is negative or infinite, or all are 0. Permanent.

    Examples
    --------
    >>> nodes = [NodeCapacity("ada", {"cpu": 0.1}, (0, 1)), NodeCapacity("bob", {"cpu": 0.9})]
    >>> [(move.task, move.target) for move in check_for_migration(nodes)]
    [(0, 1)]
    >>> check_for_migration(nodes)[0].reason
    'load 0.90 of ada is above 0.60, capacity 0.90 of bob above 0.40'
    """
    if not 0 <= threshold <= 1:
        raise UsageError(
            f"threshold: must be between 0 and 1 (is {threshold})",
            code="value-range",
            field="threshold",
            value=threshold,
            bound=[0, 1],
        )
    usable = all(math.isfinite(k) and k >= 0 for k in priorities.values())
    if not usable or sum(priorities.values()) <= 0:
        raise UsageError(
            "priorities: every one must be 0 or more, and one above 0",
            code="value-range",
            field="priorities",
            value=dict(priorities),
            bound=0,
        )
    capacity = [node.capacity(priorities) for node in nodes]
    load_room = [(capacity[i] - 1, i) for i, node in enumerate(nodes) if node.tasks]
    capacity_room = [
        (-capacity[i], i)
        for i, node in enumerate(nodes)
        if node.takes and capacity[i] > 1 - threshold
    ]
    heapq.heapify(load_room)
    moves: list[TaskMove] = []
    while load_room and capacity_room and -load_room[0][0] > threshold:
        giver = heapq.heappop(load_room)[1]
        near = [entry for entry in capacity_room if nodes[entry[1]].site == nodes[giver].site]
        most_free = min(near or capacity_room)
        taker = most_free[1]
        task = choose(giver, taker) if choose else nodes[giver].tasks[0]
        if task is None:
            continue
        capacity_room.remove(most_free)
        reason = (
            f"load {1 - capacity[giver]:.2f} of {nodes[giver].host} is above {threshold:.2f}, "
            f"capacity {capacity[taker]:.2f} of {nodes[taker].host} above {1 - threshold:.2f}"
        )
        moves.append(TaskMove(task, giver, taker, reason))
    return moves
