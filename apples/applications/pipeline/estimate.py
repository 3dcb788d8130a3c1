"""`PipelineCosts`: the seconds of tasks and transfers on each host, and the duration of a mapping.

A stage is a task on its hosts, or the transfer from one task to the next. A stage of a unit of u items takes a
fixed time plus u times the time of an item. Pipelined, the first unit passes through all stages; each further
unit ends one turn of the busiest task later, and a task is also busy during the transfers at its two ends.
Alternating, the same hosts do all tasks in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import pairwise
from math import ceil, floor, inf, isqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from apples.applications.documents import Mode
from apples.applications.host_inputs import speeds_of
from apples.applications.pipeline.document import MAX_ITEMS, MAX_ROWS, PipelineFile, evaluated
from apples.errors import UsageError
from apples.resources import Host
from apples.resources.apportionment import apportion
from apples.weather.conditions import Conditions

Numbers = npt.NDArray[Any]
Sets = tuple[tuple[int, ...], ...]
"""By task: the numbers of its hosts."""
BUFFERS = 2
"""Units that each end of an interface buffers: the current unit and the unit in transfer."""


@dataclass(frozen=True, slots=True)
class PipelineStage:
    """A task, or the transfer between two (``a -> b``): seconds for each unit, and for each item."""

    name: str
    unit_seconds: float
    item_seconds: float

    def seconds(self, unit: int) -> float:
        """Return the seconds of a unit of `unit` items."""
        return self.unit_seconds + unit * self.item_seconds


@dataclass(frozen=True)
class PipelinePlan:
    """A mapping with its unit and its duration.

    Attributes
    ----------
    rows
        By task, in the order of the tasks: host -> rows of an item.
    implementations
        By task and host.
    unit
        Items in a unit.
    stages
        In the order in which a unit passes them.
    """

    mode: Mode
    rows: Mapping[str, Mapping[str, int]]
    implementations: Mapping[tuple[str, str], str]
    unit: int
    seconds: float
    stages: tuple[PipelineStage, ...]

    @property
    def bottleneck(self) -> PipelineStage:
        """The slowest stage."""
        return max(self.stages, key=lambda stage: stage.seconds(self.unit))


@dataclass(frozen=True)
class _Edge:
    sender: int
    receiver: int
    size: float
    convert: float


class PipelineCosts:
    """The numbers of one decision.

    Attributes
    ----------
    tasks
        Each after the tasks that send it data.
    items
        Number of items.
    assumed
        The values that were neither given nor measured, one line each.

    Raises
    ------
    UsageError
        An invalid amount, or a task without an implementation on any host. Permanent.
    """

    def __init__(
        self, document: PipelineFile, values: Mapping[str, float], conditions: Conditions, hosts: Sequence[Host]
    ) -> None:  # fmt: skip
        self.hosts, self.document, self.conditions = tuple(hosts), document, conditions
        self.unit = document.unit
        items = evaluated("items", document.items, values)
        if items != int(items) or not 1 <= items <= MAX_ITEMS:
            raise UsageError(
                f"items: must be a whole number from 1 to {MAX_ITEMS} (is {items:g})",
                code="value-range",
                field="items",
                value=items,
                bound=MAX_ITEMS,
            )
        self.items = int(items)
        if self.unit is not None and self.unit > self.items:
            raise UsageError(
                f"unit: must be at most the {self.items} items (is {self.unit})",
                code="value-range",
                field="unit",
                value=self.unit,
                bound=self.items,
            )
        before: dict[str, list[str]] = {task.name: [] for task in document.task}
        for each in document.interface:
            before[each.receiver].append(each.sender)
        self.tasks = tuple(TopologicalSorter(before).static_order())
        by_name = {task.name: task for task in document.task}
        tasks = [by_name[name] for name in self.tasks]
        speeds = speeds_of(self.hosts)
        self.assumed = (*speeds.assumed, *conditions.unknown_links(self.hosts))
        share = [conditions.share(host, host.slots) for host in self.hosts]
        self.point = (
            np.array(list(speeds.seconds.values()))
            / np.array(share)
            / [host.slots for host in self.hosts]
        )
        """By host: seconds of one unit of work, on all its slots together."""
        found = [[document.implementation_on(t.name, host) for host in self.hosts] for t in tasks]
        self.implementations = [[one[0] if one else "" for one in row] for row in found]
        factors = np.array([[one[1] if one else inf for one in row] for row in found])
        work = [evaluated(f"work of task {t.name}", t.work, values) for t in tasks]
        self.seconds = np.array(work)[:, None] * factors * self.point
        for task, row in zip(tasks, factors, strict=True):
            if not np.isfinite(row).any():
                platforms = sorted({host.platform or "unknown" for host in self.hosts})
                raise UsageError(
                    f"task {task.name}: no implementation is for any host's platform ({', '.join(platforms)})",
                    code="implementation-missing",
                    task=task.name,
                    platforms=platforms,
                )
        rows = [evaluated(f"rows of task {t.name}", t.rows, values) for t in tasks]
        for task, many in zip(tasks, rows, strict=True):
            if many != int(many) or not 1 <= many <= MAX_ROWS:
                raise UsageError(
                    f"rows of task {task.name}: must be a whole number from 1 to {MAX_ROWS} (is {many:g})",
                    code="value-range",
                    task=task.name,
                    field="rows",
                    value=many,
                    bound=MAX_ROWS,
                )
        self.rows = [int(each) for each in rows]
        self.exchange = [
            evaluated(f"exchange of task {t.name}", t.exchange, values) for t in tasks
        ]
        self.overhead = [
            evaluated(f"overhead of task {t.name}", t.overhead, values) for t in tasks
        ]
        number = {name: k for k, name in enumerate(self.tasks)}
        self.edges = tuple(
            _Edge(
                number[each.sender], number[each.receiver],
                evaluated(f"bytes from {each.sender} to {each.receiver}", each.bytes, values),
                evaluated(f"convert from {each.sender} to {each.receiver}", each.convert, values),
            )
            for each in document.interface
        )  # fmt: skip
        links = [[conditions.link(a, b).link for b in self.hosts] for a in self.hosts]
        self.latency = np.array([[link.latency for link in row] for row in links])
        self.bandwidth = np.array([[link.bandwidth for link in row] for row in links])

    # ------------------------------------------------------------------------ one mapping
    def split(self, task: int, hosts: Sequence[int]) -> list[int] | None:
        """Return the rows of an item for each host of a task, by speed; None if some host would have none."""
        seconds = self.seconds[task, list(hosts)]
        if not hosts or len(hosts) > self.rows[task] or not np.isfinite(seconds).all():
            return None
        weights = (1.0 / np.maximum(seconds, 1e-300)).tolist()
        return apportion(self.rows[task], weights, [1] * len(hosts))

    def plan(self, mode: Mode, sets: Sets) -> PipelinePlan | None:
        """Return a mapping with its best unit; None if it is infeasible."""
        splits = [self.split(task, hosts) for task, hosts in enumerate(sets)]
        if any(split is None for split in splits):
            return None
        parts = [
            np.array(split) / self.rows[task]
            for task, split in enumerate(splits)
            if split is not None
        ]
        stages, through, busy = self._stages(sets, parts)
        units = self._units(mode, sets, parts)
        if not len(units):
            return None
        seconds = self._seconds(mode, stages, through, busy, units)
        best = int(seconds.argmin())
        return PipelinePlan(
            mode,
            {name: {self.hosts[h].name: int(n) for h, n in zip(sets[t], splits[t] or (), strict=True)}
             for t, name in enumerate(self.tasks)},
            {(name, self.hosts[h].name): self.implementations[t][h]
             for t, name in enumerate(self.tasks) for h in sets[t]},
            int(units[best]), float(seconds[best]), tuple(stages),
        )  # fmt: skip

    def _stages(
        self, sets: Sets, parts: Sequence[Numbers]
    ) -> tuple[list[PipelineStage], list[list[int]], list[list[int]]]:
        """Return the stages; for each stage, its predecessors; for each task, the stages that keep it busy."""
        stages: list[PipelineStage] = []
        at: list[int] = []
        busy: list[list[int]] = [[] for _ in sets]
        incoming = [[e for e in self.edges if e.receiver == t] for t in range(len(self.tasks))]
        before: list[list[int]] = []
        for task, hosts in enumerate(sets):
            came = []
            for edge in incoming[task]:
                stages.append(self._passing(edge, sets, parts))
                before.append([at[edge.sender]])
                came.append(len(stages) - 1)
                busy[edge.sender].append(len(stages) - 1)
            chosen = list(hosts)
            computes = (
                self.seconds[task, chosen]
                + sum(e.convert for e in incoming[task]) * self.point[chosen]
            )
            item = float((computes * parts[task]).max())
            if len(hosts) > 1 and self.exchange[task]:
                pairs = list(pairwise(chosen))
                item += max(
                    2 * self.latency[a, b] + self.exchange[task] / self.bandwidth[a, b]
                    for a, b in pairs
                )
            stages.append(PipelineStage(self.tasks[task], self.overhead[task], item))
            before.append(came)
            at.append(len(stages) - 1)
            busy[task] += [*came, len(stages) - 1]
        return stages, before, busy

    def _passing(self, edge: _Edge, sets: Sets, parts: Sequence[Numbers]) -> PipelineStage:
        """Return the stage of an interface: an item takes the time of the slowest port or site link.

        Both tasks have their rows in the order of their hosts, so a host sends to the hosts with overlapping
        rows. Rows that stay on their host are not sent.
        """
        name = f"{self.tasks[edge.sender]} -> {self.tasks[edge.receiver]}"
        ends = [np.concatenate(([0.0], np.cumsum(parts[t]))) for t in (edge.sender, edge.receiver)]
        sent: dict[tuple[str, object], float] = {}
        latency = 0.0
        for i, a in enumerate(sets[edge.sender]):
            for j, b in enumerate(sets[edge.receiver]):
                low = max(ends[0][i], ends[1][j])
                common = min(ends[0][i + 1], ends[1][j + 1]) - low
                if common <= 1e-12 or a == b:
                    continue
                seconds = common * edge.size / self.bandwidth[a, b]
                latency = max(latency, float(self.latency[a, b]))
                sites = self.hosts[a].site, self.hosts[b].site
                shared = [("from", a), ("to", b)] + (
                    [("between", sites)] if sites[0] != sites[1] else []
                )
                for port in shared:
                    sent[port] = sent.get(port, 0.0) + seconds
        return PipelineStage(name, latency, max(sent.values(), default=0.0))

    def _units(self, mode: Mode, sets: Sets, parts: Sequence[Numbers]) -> Numbers:
        """Return the unit sizes that fit into memory; of sizes with the same number of units, only one.

        Alternating, a host buffers the units of both ends.
        """
        most, kept = self.items, BUFFERS * (2 if mode == "alternating" else 1)
        for edge in self.edges:
            for task in (edge.sender, edge.receiver):
                for host, part in zip(sets[task], parts[task], strict=True):
                    free = self.hosts[host].free_memory
                    if free is not None and edge.size * part > 0:
                        most = min(most, floor(free / (kept * edge.size * float(part))))
        if self.unit is not None:
            return np.array([self.unit] if self.unit <= most else [], dtype=np.int64)
        root = isqrt(self.items)
        counts = [*range(1, root + 1), *(ceil(self.items / k) for k in range(1, root + 2))]
        units = sorted({ceil(self.items / count) for count in counts} | {max(most, 1)})
        return np.array([unit for unit in units if unit <= most], dtype=np.int64)

    def _seconds(
        self, mode: Mode, stages: Sequence[PipelineStage], before: Sequence[Sequence[int]],
        busy: Sequence[list[int]], units: Numbers
    ) -> Numbers:  # fmt: skip
        """Return the seconds of all items, by unit."""
        each = np.array([stage.unit_seconds for stage in stages])[:, None]
        item = np.array([stage.item_seconds for stage in stages])[:, None]
        count = np.ceil(self.items / units)
        if mode == "alternating":
            return np.asarray((count * each + self.items * item).sum(axis=0))
        turn = each + item * units
        done = np.zeros_like(turn)
        for stage, earlier in enumerate(before):
            arrived = done[list(earlier)].max(axis=0) if earlier else 0.0
            done[stage] = arrived + turn[stage]
        slowest = np.max([turn[mine].sum(axis=0) for mine in busy], axis=0)
        return np.asarray(done.max(axis=0) + (count - 1) * slowest)
