"""A machine of partitions: assign each job to a partition, and simulate all partitions together.

A partition has equal nodes and its own queue, so it is simulated as a separate machine. Each of its jobs gets the
nodes that it needs for its processors, memory and GPUs. Partitions share only the clock and the dependencies
between jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from apples.scheduling.passes import PolicyFailure
from apples.scheduling.policy import AdvanceReservation
from apples.simulation.config import Partition, SimulationConfig, SimulationResult
from apples.simulation.workload import Workload

KILOBYTE = 1024
MAX_NAMED = 10
"""Maximum number of unknown partitions in messages."""

V = TypeVar("V")


@dataclass(frozen=True)
class PartitionShare:
    """The part of a simulation in one partition.

    Attributes
    ----------
    positions
        Positions of its jobs in the whole workload.
    workload
        Its jobs, with all processors of the nodes that they need.
    config
        Configuration of a machine with only this partition.
    """

    positions: NDArray[np.intp]
    workload: Workload
    config: SimulationConfig


@dataclass(frozen=True)
class JobNeeds:
    """The nodes of a partition that each job needs.

    Attributes
    ----------
    nodes
        Nodes for processors, memory and GPUs; more than any machine has if the job fits on no node.
    least
        Nodes for memory and GPUs alone: the minimum for a resize.
    reason
        0 if the job fits; otherwise the index of the reason in `refusals`.
    """

    nodes: NDArray[np.int64]
    least: NDArray[np.int64]
    reason: NDArray[np.int64]


def refusals(part: Partition) -> tuple[str, ...]:
    """Return the possible reasons why a job does not fit into a partition, in order of the checks; "" first."""
    memory = "" if part.memory is None else f"{part.memory:,} bytes"
    return (
        "",
        f"a processor needs more memory than a node of partition {part.name} has ({memory})",
        f"asks for GPUs, and partition {part.name} has none",
        f"asks for more processors than partition {part.name} has ({part.processors})",
        f"needs more nodes for its memory than partition {part.name} has ({part.nodes})",
        f"needs more nodes for its GPUs than partition {part.name} has ({part.nodes})",
    )


def needs_of(workload: Workload, part: Partition) -> JobNeeds:
    """Return the nodes that each job of a workload would need in a partition."""
    count, width = len(workload), workload.processors
    for_width = -(-width // part.cores)
    for_memory = np.ones(count, dtype=np.int64)
    for_gpus = np.ones(count, dtype=np.int64)
    reason = np.zeros(count, dtype=np.int64)
    memory = _asked(workload, "memory") * KILOBYTE
    if part.memory is not None:
        fit = _processes_a_node(memory, part.memory)
        reason = np.where(fit == 0, 1, reason)
        for_memory = -(-width // np.maximum(fit, 1))
    gpus = np.ceil(_asked(workload, "gpus")).astype(np.int64)
    if part.gpus is not None:
        reason = np.where((reason == 0) & (gpus > 0) & (part.gpus == 0), 2, reason)
        for_gpus = np.maximum(1, -(-gpus // max(part.gpus, 1)))
    for place, nodes in ((3, for_width), (4, for_memory), (5, for_gpus)):
        reason = np.where((reason == 0) & (nodes > part.nodes), place, reason)
    least = np.maximum(for_memory, for_gpus)
    return JobNeeds(np.maximum(for_width, least), least, reason)


def _asked(workload: Workload, name: str) -> NDArray[np.float64]:
    """Return the requests of the jobs for a resource; 0 if unknown."""
    asked = workload.attributes.get(name)
    return np.zeros(len(workload)) if asked is None else np.maximum(asked, 0.0)


def _processes_a_node(memory: NDArray[np.float64], most: int) -> NDArray[np.int64]:
    """Return the number of processes with `memory` bytes each that fit into a node of `most` bytes."""
    fit = np.divide(float(most), memory, out=np.full(len(memory), np.inf), where=memory > 0)
    whole: NDArray[np.int64] = np.minimum(np.floor(fit), 2.0**53).astype(np.int64)
    return whole


def named_partition(
    workload: Workload, partitions: Sequence[Partition]
) -> tuple[NDArray[np.int64], Counter[str]]:
    """Return the index of the partition that each job names (-1: none), and the unknown names with counts."""
    codes = workload.attributes.get("partition")
    found = np.full(len(workload), -1, dtype=np.int64)
    unknown: Counter[str] = Counter()
    if codes is None:
        return found, unknown
    names = workload.names.get("partition", ())
    by_name = {part.name: place for place, part in enumerate(partitions)}
    by_number = {part.number: place for place, part in enumerate(partitions)}
    for code, count in zip(
        *(one.tolist() for one in np.unique(codes, return_counts=True)), strict=True
    ):
        if code < 0:
            continue
        if names:
            word = names[int(code) - 1]
            place = next((by_name[one] for one in word.split(",") if one in by_name), -1)
        else:
            word = f"{code:g}"
            place = by_number.get(code, -1)
        if place < 0:
            unknown[word] += count
        found[codes == code] = place
    return found, unknown


def default_of(partitions: Sequence[Partition]) -> int:
    """Return the index of the partition for jobs that name none."""
    return next((place for place, part in enumerate(partitions) if part.default), 0)


def limits_of(partitions: Sequence[Partition]) -> Iterator[str]:
    """Yield the attributes of jobs that the partitions of a machine need."""
    if partitions:
        yield "partition"
    if any(part.memory is not None for part in partitions):
        yield "memory"
    if any(part.gpus is not None for part in partitions):
        yield "gpus"


def unknown_partitions(workload: Workload, partitions: Sequence[Partition]) -> Iterator[str]:
    """Yield a line for each unknown partition that jobs name, by falling number of jobs."""
    if not partitions:
        return
    _, unknown = named_partition(workload, partitions)
    for name, count in unknown.most_common(MAX_NAMED):
        yield (
            f"{count} jobs of partition {name}, which the machine file does not have: "
            f"they go to {partitions[default_of(partitions)].name}, or where they fit"
        )
    more = unknown.most_common()[MAX_NAMED:]
    if more:
        yield f"{sum(count for _, count in more)} jobs of {len(more)} further such partitions"


def assign(
    workload: Workload, partitions: Sequence[Partition]
) -> tuple[NDArray[np.int64], list[JobNeeds], dict[int, str]]:
    """Return the partition index of each job, the needs in each partition, and the jobs that fit into none.

    A job that names a partition goes there. Another job goes to the default partition or, if it does not fit
    there, to the first partition into which it fits.
    """
    needs = [needs_of(workload, part) for part in partitions]
    named, _ = named_partition(workload, partitions)
    fits = np.array([need.reason == 0 for need in needs])
    default = default_of(partitions)
    other = np.where(~fits[default] & fits.any(axis=0), fits.argmax(axis=0), default)
    chosen = np.where(named >= 0, named, other)
    rejected = {}
    for place, (part, need) in enumerate(zip(partitions, needs, strict=True)):
        words = refusals(part)
        bad = np.flatnonzero((chosen == place) & (need.reason > 0))
        for job, reason in zip(workload.job[bad].tolist(), need.reason[bad].tolist(), strict=True):
            rejected[job] = words[reason]
    return chosen, needs, rejected


def shares_of(
    workload: Workload, config: SimulationConfig
) -> tuple[list[PartitionShare], NDArray[np.int64], dict[int, str]]:
    """Return the parts of a simulation, the partition index of each job, and the jobs that fit nowhere."""
    chosen, needs, rejected = assign(workload, config.partitions)
    shares, before = [], 0
    for place, (part, need) in enumerate(zip(config.partitions, needs, strict=True)):
        mine = np.flatnonzero((chosen == place) & (need.reason == 0))
        jobs = _entered(workload.take(mine), part, need, mine)
        shares.append(PartitionShare(mine, jobs, _config_of(config, part, before, jobs)))
        before += part.nodes
    return shares, chosen, rejected


def _entered(jobs: Workload, part: Partition, need: JobNeeds, mine: NDArray[np.intp]) -> Workload:
    """Return the jobs of a partition, each with all processors of the nodes that it needs there."""
    nodes, least = need.nodes[mine], need.least[mine]
    wider = nodes > -(-jobs.processors // part.cores)
    width = np.where(wider, nodes * part.cores, jobs.processors)
    floor = np.where(least > 1, least * part.cores, 1)
    minimum = np.where(jobs.malleable, np.minimum(np.maximum(jobs.minimum, floor), width), width)
    maximum = np.where(
        jobs.malleable, np.minimum(np.maximum(jobs.maximum, width), part.processors), width
    )
    attributes = dict(jobs.attributes)
    if part.memory is not None or part.gpus is not None:
        attributes["least"] = np.minimum(floor, width).astype(np.float64)
        alone = _leaves_too_little(jobs, part, -(-minimum // part.cores)) & jobs.malleable
        if alone.any():
            attributes["exclusive"] = alone.astype(np.float64)
    return replace(jobs, processors=width, minimum=minimum, maximum=maximum, attributes=attributes)


def _leaves_too_little(
    jobs: Workload, part: Partition, nodes: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return whether each job takes more than half of its nodes' memory or GPUs: then no job shares them."""
    alone = np.zeros(len(jobs), dtype=bool)
    if part.memory is not None:
        taken = -(-jobs.processors // nodes) * _asked(jobs, "memory") * KILOBYTE
        alone |= taken > part.memory / 2
    if part.gpus is not None:
        alone |= -(-np.ceil(_asked(jobs, "gpus")).astype(np.int64) // nodes) > part.gpus / 2
    return alone


def _config_of(
    config: SimulationConfig, part: Partition, before: int, jobs: Workload
) -> SimulationConfig:
    """Return the configuration of a partition; `before` nodes precede its nodes in the file."""
    mine = frozenset(jobs.job.tolist())
    return replace(
        config,
        partitions=(),
        nodes=part.nodes,
        cores_per_node=part.cores,
        speed=part.speed,
        failures=tuple(
            replace(one, node=one.node - before)
            for one in config.failures
            if before <= one.node < before + part.nodes
        ),
        owners=tuple(
            replace(one, node=one.node - before)
            for one in config.owners
            if before <= one.node < before + part.nodes
        ),
        advance=tuple(one for one in config.advance if _home_of(one, config) is part),
        cancellations=_of_jobs(config.cancellations, mine),
        demands=_of_jobs(config.demands, mine),
    )


def _home_of(reservation: AdvanceReservation, config: SimulationConfig) -> Partition:
    """Return the partition of a reservation: that of the reservation's name, otherwise the default partition."""
    named = [part for part in config.partitions if part.name == reservation.name]
    return named[0] if named else config.partitions[default_of(config.partitions)]


def _of_jobs(given: Mapping[int, V], jobs: frozenset[int]) -> dict[int, V]:
    return {job: value for job, value in given.items() if job in jobs}


def joined(
    workload: Workload,
    shares: Sequence[PartitionShare],
    results: Sequence[SimulationResult | None],
    chosen: NDArray[np.int64],
    rejected: Mapping[int, str],
) -> SimulationResult:
    """Return the joined result of all partitions; a result of None is a partition without jobs."""
    count = len(workload)
    columns = {
        "start": np.full(count, np.nan),
        "end": np.full(count, np.nan),
        "resizes": np.zeros(count, dtype=np.int64),
        "guest": np.zeros(count, dtype=bool),
        "mate": np.zeros(count, dtype=bool),
        "completed": np.zeros(count, dtype=bool),
    }
    there = [
        (share.positions, one)
        for share, one in zip(shares, results, strict=True)
        if one is not None
    ]
    for positions, one in there:
        for name, column in columns.items():
            column[positions] = getattr(one, name)
    changes = [
        (time, int(positions[k]), cores)
        for positions, one in there
        for time, k, cores in one.changes
    ]
    every = [one for _, one in there]
    seconds = tuple(0.0 if one is None else one.node_seconds for one in results)
    return SimulationResult(
        **columns,
        node_seconds=sum(seconds),
        engine=", ".join(sorted({one.engine for one in every})) or "none",
        seconds=sum(one.seconds for one in every),
        restarts=sum(one.restarts for one in every),
        reservations=tuple(taken for one in every for taken in one.reservations),
        refused_starts=sum(one.refused_starts for one in every),
        first_refused=next((one.first_refused for one in every if one.first_refused), ""),
        killed=sum(one.killed for one in every),
        work_lost=sum(one.work_lost for one in every),
        work_saved=sum(one.work_saved for one in every),
        changes=tuple(sorted(changes, key=lambda change: change[0])),
        rejected={**rejected, **{job: why for one in every for job, why in one.rejected.items()}},
        held={job: why for one in every for job, why in one.held.items()},
        passes=sum(one.passes for one in every),
        failed_passes=sum(one.failed_passes for one in every),
        failures=tuple(_failures_of(every)),
        partition=chosen,
        partition_node_seconds=seconds,
    )


def _failures_of(results: Sequence[SimulationResult]) -> Iterator[tuple[PolicyFailure, int]]:
    """Yield the first failure of each kind in all partitions, with the number of failures."""
    kinds: dict[str, list[tuple[PolicyFailure, int]]] = {}
    for one in results:
        for failure, count in one.failures:
            kinds.setdefault(failure.kind, []).append((failure, count))
    for found in kinds.values():
        yield min((one for one, _ in found), key=lambda one: one.time), sum(n for _, n in found)
