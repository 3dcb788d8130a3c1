"""`PartitionedModel`: model of a schedule in which ranks own whole partitions of the data, not planned rows.

Task decomposition of van Albada et al. 1999 ("Job preparation"). A tight decomposition has one partition per
rank, as planners assume. A redundant decomposition has several equal partitions per rank; a rank owns a whole
number of them, more or less than its planned rows. A sparse decomposition has fewer partitions than ranks: some
ranks own none, compute nothing and have no borders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise, repeat

import numpy as np
import numpy.typing as npt

from apples.agent.models.model import ModelTemplate, Rows, Seconds
from apples.malleable.balancers.block_table import Decomposition
from apples.malleable.balancers.contract import Measured, Processor
from apples.resources import Host
from apples.resources.schedule import Allocation, Schedule

MAX_PARTITIONS = 32
"""With more partitions per rank, no rank computes 7 % longer than another, so the planned rows are used."""


def idle_ranks(asked: Decomposition) -> int:
    """Return the number of ranks without a partition at the start."""
    return asked.number if asked.kind == "sparse" else 0


def shared_out(
    asked: Decomposition, schedule: Schedule
) -> tuple[Sequence[float], Sequence[float]]:
    """Return the share of each partition, and each rank's computing relative to one partition per rank.

    The speed of a rank is taken as proportional to its planned rows.
    """
    return _shared_out(asked, tuple(_ranks(schedule)))


def host_loads(asked: Decomposition, schedule: Schedule) -> tuple[float, ...]:
    """Return the computing of each host's longest rank, relative to one partition per rank.

    It is 0 if all ranks of a host are idle. It is 1 if the decomposition makes no difference, or if no rank has
    a partition (such a schedule is refused).
    """
    ranks = sum(a.ranks for a in schedule.allocations)
    alike = asked.kind == "tight" or asked.number > MAX_PARTITIONS
    if alike or idle_ranks(asked) >= ranks:
        return (1.0,) * len(schedule.allocations)
    _, seconds = shared_out(asked, schedule)
    ends = list(accumulate(a.ranks for a in schedule.allocations))
    return tuple(max(seconds[a:b]) for a, b in pairwise([0, *ends]))


def _ranks(schedule: Schedule) -> Iterator[Processor]:
    for allocation in schedule.allocations:
        rank = Processor(allocation.host.name, max(allocation.rows, 1e-9) / allocation.ranks)
        yield from repeat(rank, allocation.ranks)


@lru_cache(maxsize=1024)
def _shared_out(
    asked: Decomposition, ranks: tuple[Processor, ...]
) -> tuple[Sequence[float], Sequence[float]]:
    table, shares = asked.begin(ranks), asked.shares(ranks)
    now = Measured(shares, table.owners, ranks)
    mean = now.mean()
    return shares, [seconds / mean for seconds in now.seconds(now.owners)]


@dataclass(frozen=True)
class PartitionedModel(ModelTemplate):
    """The model of one schedule under a decomposition; its methods expect the schedule's hosts in order.

    Attributes
    ----------
    model
        Model of the planned schedule.
    working
        Model of only those hosts that own a partition.
    loads
        Computing of each host relative to the plan; 0: it owns no partition.
    """

    model: ModelTemplate
    working: ModelTemplate
    loads: tuple[float, ...]

    @cached_property
    def _works(self) -> npt.NDArray[np.bool_]:
        return np.array(self.loads) > 0

    def _those(self, resources: Sequence[Host]) -> tuple[Host, ...]:
        return tuple(h for h, load in zip(resources, self.loads, strict=True) if load > 0)

    @property
    def follows_rows(self) -> bool:
        """False: hosts do not compute in proportion to their planned rows."""
        return False

    @property
    def knows_co_run_slowdown(self) -> bool:
        """Whether the planned model has a separate factor for hosts that are not alone."""
        return self.model.knows_co_run_slowdown

    @property
    def borders_at_once(self) -> bool:
        """Whether a host's two borders overlap, so that the longer counts."""
        return self.model.borders_at_once

    @property
    def shares_processors(self) -> bool:
        """Whether a host's computation depends on the other hosts of the set."""
        return self.model.shares_processors

    def computation(self, resources: Sequence[Host], rows: Rows) -> Seconds:
        """Return the seconds each host computes on its partitions, 0 if it owns none, shape (hosts,)."""
        return np.asarray(np.array(self.loads) * self.model.computation(resources, rows))

    def communication(self, resources: Sequence[Host]) -> Seconds:
        """Return C_i, 0 if a host owns no partition, shape (hosts,)."""
        seconds = np.zeros(len(resources))
        seconds[self._works] = self.working.communication(self._those(resources))
        return seconds

    def lateness(self, resources: Sequence[Host], busy: Seconds) -> float:
        """Return the lateness of the hosts that own a partition."""
        return self.working.lateness(self._those(resources), busy[self._works])

    def border_seconds(self, resources: Sequence[Host]) -> list[float]:
        """Return the seconds of each border of `touching`."""
        return self.working.border_seconds(self._those(resources))

    def touching(self, resources: Sequence[Host]) -> list[tuple[Host, Host]]:
        """Return the pairs of hosts that own partitions and exchange borders."""
        return self.working.touching(self._those(resources))

    def memory(self, rows: float) -> float:
        """Return the bytes a strip of `rows` rows needs."""
        return self.model.memory(rows)

    def memory_of(self, allocation: Allocation) -> float:
        """Return the bytes that a host needs for its planned part of the grid."""
        return self.model.memory_of(allocation)

    def caps(self, resources: Sequence[Host], total: int) -> npt.NDArray[np.int64]:
        """Return the most rows each host has memory for, shape (hosts,)."""
        return self.model.caps(resources, total)

    def draw(
        self, resources: Sequence[Host], rows: Rows, generator: np.random.Generator, count: int
    ) -> Seconds:
        """Return draws of T: draws for the planned rows, times each host's busy time relative to the plan."""
        planned = self.model.busy_seconds(resources, rows)
        planned *= self.model.lateness(resources, planned)
        busy = self.busy_seconds(resources, rows)
        busy *= self.lateness(resources, busy)
        return np.asarray(self.model.draw(resources, rows, generator, count) * busy / planned)
