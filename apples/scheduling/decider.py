"""Dynamite's migration decider: which task leaves which node for which other, by two rooms and a threshold.

Pure: what was measured goes in, all moves of one global step come out, each with its reason. The rule is the
paper's; `apples.scheduling.payback` has the one that also asks what a move costs.

References
----------
van Albada et al. 1999, "Dynamite", section "Migration decider", equation 1, figures 4 and 5. Equation 1 is an
image that is lost: it is taken for the weighted mean, since the rule compares C_j with a threshold of 0 to 1.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from apples.errors import UsageError

THRESHOLD = 0.6
"""T: a node whose load index is above it gives a task away, to one whose capacity is above 1 - T."""
OWNER_BACK = 0.3
"""Mean load of others from which on the owner of a node that belongs first to its owner counts as back."""
PRIORITIES: Mapping[str, float] = {"cpu": 1.0}
"""k_i where nobody says: the capacity of the processors alone."""


def available_cpu(wanting: float, cpus: int) -> float:
    """Return c_ij of the processors of a node where so many processes want one: half with one process each.

    Examples
    --------
    >>> available_cpu(0, 2), available_cpu(1, 2), available_cpu(2, 2), available_cpu(9, 2)
    (1.0, 0.75, 0.5, 0.0)
    """
    return 1 - min(1.0, wanting / (2 * cpus))


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """What a node has left, by attribute, and the tasks it has.

    Attributes
    ----------
    host
        Its name.
    available
        c_ij: of each attribute (``cpu``, ``memory``, ``swap``, ``network``, ..) the part that is free, 0 to 1.
    tasks
        Numbers of our tasks there, that first which leaves first.
    site
        Its subnet: tasks go to a node of the same one if they can.
    takes
        Whether it can be given a task, however much it has left.

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
        """Return C_j, the sum of k_i c_ij over that of k_i; attributes that nobody measured count as used up."""
        total = sum(priorities.values())
        return sum(k * self.available.get(name, 0.0) for name, k in priorities.items()) / total


@dataclass(frozen=True, slots=True)
class TaskMove:
    """A task that is to be moved.

    Attributes
    ----------
    task
        Its number.
    source, target
        Places of the two nodes in what was decided on.
    reason
        Why, with the numbers.
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

    While L_1 > T and C_1 > 1 - T, with L = 1 - C, a task of the first node of the load room goes to the first of
    the capacity room, to one of the same site if there is one with room; both leave their rooms, since what they
    have then is known only when it is measured again ("default values"). If no task of the first is fit, the node
    with capacity stays for the next. A node without tasks of ours gives none:
    no move would lower its load.

    Parameters
    ----------
    choose
        Returns which task of a node (first) goes to another (second), None: none is fit; default: its first.

    Raises
    ------
    UsageError
        A threshold outside 0 to 1, or priorities that are none. Permanent.

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
