"""How a program's data is cut, by the user's preference; `models.partitioned` has its price."""

from __future__ import annotations

from typing import TYPE_CHECKING

from apples.agent.information import InformationPool
from apples.resources.schedule import Schedule

if TYPE_CHECKING:
    from apples.agent.documents import Partitions
    from apples.malleable.balancers.block_table import Decomposition


def min_ranks(asked: Decomposition) -> int:
    """Return the fewest ranks of a schedule: with fewer none would own a partition."""
    from apples.agent.models.partitioned import idle_ranks  # noqa: PLC0415 - few users prefer one

    return idle_ranks(asked) + 1


def decomposition_of(schedule: Schedule, information: InformationPool) -> str:
    """Return the decomposition for the program; empty: its own.

    A reference run may have too few ranks to leave some idle: it has one partition a rank.

    Raises
    ------
    UsageError
        The program does not take the user's preference (`InformationPool.decomposition`). Permanent.
    """
    asked = information.decomposition
    if asked is None:
        return ""
    ranks = sum(allocation.ranks for allocation in schedule.allocations)
    return str(asked) if ranks >= min_ranks(asked) else "tight"


def partition_cost(schedule: Schedule, information: InformationPool) -> Partitions | None:
    """Return how a schedule's data is cut; None without a preference of the user.

    Raises
    ------
    UsageError
        As `decomposition_of`.
    """
    asked = information.decomposition
    if asked is None:
        return None
    from apples.agent.models.partitioned import shared_out  # noqa: PLC0415 - few users prefer one

    shares, seconds = shared_out(asked, schedule)
    return {
        "decomposition": str(asked),
        "partitions": len(shares),
        "ranks": len(seconds),
        "computing": max(1.0, *seconds),
    }
