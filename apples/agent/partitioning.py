"""Into how many partitions a program's data is cut, by the user's wish, and what that costs.

Task decomposition of van Albada et al. 1999 ("Job preparation"): a tight fit is one partition a rank; a redundant
one has several, so that a change of hosts moves some of them and cuts nothing anew; a sparse one has fewer than
ranks, so that there is always one to move a partition to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise, repeat

from apples.agent.information import InformationPool
from apples.errors import UsageError
from apples.malleable.balancers.block_table import Decomposition
from apples.malleable.balancers.contract import Measured, Processor
from apples.resources.schedule import Schedule

MANY = 32
"""Partitions a rank, above which no rank computes 7 % longer than another."""


@dataclass(frozen=True, slots=True)
class PartitionCost:
    """How a schedule's data is cut, beside one partition a rank.

    Attributes
    ----------
    decomposition
        As the user wrote it.
    partitions, ranks
        How many there are.
    computing
        How many times as long as with one partition a rank the longest rank computes; borders are apart.
    """

    decomposition: str
    partitions: int
    ranks: int
    computing: float


def asked_decomposition(information: InformationPool) -> Decomposition | None:
    """Return how the user wants the data to be cut; None where that is left to the program.

    Raises
    ------
    UsageError
        The template does not say that its program takes this wish, or it is too large. Permanent.
    """
    asked = information.specifications.preferences.partitions
    if asked is None:
        return None
    if not information.template.partitions:
        raise UsageError(
            f'partitions = "{asked}": {information.template.name} cuts its data itself; a template whose program '
            "declares its blocks by a decomposition says partitions = true",
            code="partitions-unsupported",
            field="partitions",
            value=str(asked),
            template=information.template.name,
        )
    return Decomposition.read(asked)


def idle_ranks(asked: Decomposition) -> int:
    """Return how many ranks have no partition at the start."""
    return asked.number if asked.kind == "sparse" else 0


def decomposition_of(schedule: Schedule, information: InformationPool) -> str:
    """Return the decomposition that a program is told; empty: its own.

    A reference run may have too few ranks to leave some idle: it has one partition a rank.
    """
    asked = asked_decomposition(information)
    if asked is None:
        return ""
    ranks = sum(one.ranks for one in schedule.allocations)
    return "tight" if idle_ranks(asked) >= ranks else str(asked)


def partition_cost(schedule: Schedule, information: InformationPool) -> PartitionCost | None:
    """Return how a schedule's data is cut, where the user has a wish.

    Ranks are as fast as the rows that the planner gave them say.
    """
    asked = asked_decomposition(information)
    if asked is None:
        return None
    ranks = tuple(_ranks(schedule))
    shares, seconds = _shared_out(asked, ranks)
    return PartitionCost(str(asked), len(shares), len(ranks), max(1.0, *seconds))


def host_loads(schedule: Schedule, information: InformationPool) -> tuple[float, ...]:
    """Return how many times as long each host computes as with one partition a rank: its longest rank.

    1 where the user has no wish, or one that makes no difference; 0: its ranks are idle.
    """
    asked = asked_decomposition(information)
    alike = asked is None or asked.kind == "tight" or asked.number > MANY
    if asked is None or alike or idle_ranks(asked) >= sum(a.ranks for a in schedule.allocations):
        return (1.0,) * len(schedule.allocations)
    _, seconds = _shared_out(asked, tuple(_ranks(schedule)))
    ends = list(accumulate(one.ranks for one in schedule.allocations))
    return tuple(max(seconds[a:b]) for a, b in pairwise([0, *ends]))


def _ranks(schedule: Schedule) -> Iterator[Processor]:
    """Yield the ranks of a schedule, as fast as the rows that the planner gave them say."""
    for one in schedule.allocations:
        yield from repeat(Processor(one.host.name, one.rows / one.ranks), one.ranks)


@lru_cache(maxsize=1024)
def _shared_out(
    asked: Decomposition, ranks: tuple[Processor, ...]
) -> tuple[Sequence[float], Sequence[float]]:
    """Return the share of each partition, and what each rank computes beside one partition a rank."""
    table, shares = asked.begin(ranks), asked.shares(ranks)
    now = Measured(shares, table.owners, ranks)
    mean = now.mean()
    return shares, [each / mean for each in now.seconds(now.owners)]
