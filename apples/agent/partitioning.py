"""Decomposition of a program's data by the user's preference; `models.partitioned` has its cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from apples.agent.information import InformationPool
from apples.resources.schedule import Schedule

if TYPE_CHECKING:
    from apples.agent.documents import Partitions
    from apples.malleable.balancers.block_table import Decomposition


def min_ranks(asked: Decomposition) -> int:
    """Return the least number of ranks of a schedule: with fewer, no rank would own a partition."""
    from apples.agent.models.partitioned import idle_ranks  # noqa: PLC0415 - few users prefer one

    return idle_ranks(asked) + 1


def decomposition_of(schedule: Schedule, information: InformationPool) -> str:
    """Return the decomposition for the program; empty: the program's default.

    A reference run with too few ranks for idle ranks has one partition per rank.

    Raises
    ------
    UsageError
        The program does not support the user's preference (`InformationPool.decomposition`). Permanent.
    """
    asked = information.decomposition
    if asked is None:
        return ""
    ranks = sum(allocation.ranks for allocation in schedule.allocations)
    return str(asked) if ranks >= min_ranks(asked) else "tight"


def partition_cost(schedule: Schedule, information: InformationPool) -> Partitions | None:
    """Return the partitions of a schedule's data and their cost; None without a preference of the user.

    Raises
    ------
    UsageError
        As in `decomposition_of`.
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
