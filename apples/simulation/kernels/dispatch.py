"""Call the compiled kernel of a policy with arrays, and return its result.

Importing this module imports numba and all kernels; `apples.simulation.run` does that when a run needs a kernel.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apples.errors import UsageError
from apples.scheduling.loops.compiled import (
    FOREVER,
    Numbers,
    integers,
    zeros,
)
from apples.scheduling.loops.compression import no_places, shapes_of
from apples.scheduling.loops.profile import blocked_profile
from apples.scheduling.policies import (
    Conservative,
    Easy,
    FirstComeFirstServed,
    FirstFit,
    ShortestJobFirst,
    SlowdownDriven,
)
from apples.scheduling.policies.easy import ORDERS
from apples.scheduling.policy import SchedulingPolicy
from apples.simulation.config import TIES, SimulationConfig, SimulationResult
from apples.simulation.kernels.backfill import EASY, FIRST_FIT, HEAD_ONLY, backfill
from apples.simulation.kernels.conservative import conservative
from apples.simulation.kernels.sharing import sharing_state
from apples.simulation.kernels.slowdown_driven import slowdown_driven
from apples.simulation.workload import Workload, instants

Times = NDArray[np.float64]
POSITION = np.int32  # type of a job's position in a workload
MAX_ROOM = 50_000_000  # maximum size of one table of a kernel


def run_kernel(
    workload: Workload, policy: SchedulingPolicy, config: SimulationConfig, record: bool = False
) -> SimulationResult:
    """Return the result of a built-in policy for which `apples.simulation.run.has_kernel` holds."""
    if config.ties == "predictsim" and not isinstance(policy, Easy):
        raise UsageError(
            "ties=predictsim is defined for --policy easy only",
            code="option-not-applicable",
            option="ties",
            value="predictsim",
        )
    if isinstance(policy, SlowdownDriven):
        return _slowdown_driven(workload, policy, config, record)
    start, seconds = (
        _conservative(workload, config)
        if isinstance(policy, Conservative)
        else _backfill(workload, policy, config)
    )
    need = config.need(workload.processors)
    none = np.zeros(len(workload), dtype=bool)
    end = instants(start + workload.run)
    changes = _rigid_changes(workload, config, start, end) if record else ()
    return SimulationResult(
        start=start,
        end=end,
        resizes=np.zeros(len(workload), dtype=np.int64),
        guest=none,
        mate=none,
        completed=~none,
        node_seconds=float((need * workload.run).sum()),
        engine="numba",
        seconds=seconds,
        changes=changes,
    )


def _rigid_changes(
    workload: Workload, config: SimulationConfig, start: Times, end: Times
) -> tuple[tuple[float, int, int], ...]:
    cores = (config.need(workload.processors) * config.cores_per_node).tolist()
    begun = [(time, k, cores[k]) for k, time in enumerate(start.tolist())]
    ended = [(time, k, 0) for k, time in enumerate(end.tolist())]
    return tuple(sorted(begun + ended, key=lambda change: (change[0], change[2] > 0, change[1])))


def _columns(
    workload: Workload, config: SimulationConfig
) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    return (
        workload.submit,
        workload.run,
        config.need(workload.processors),
        workload.requested,
    )


def _order(workload: Workload, policy: SchedulingPolicy) -> NDArray[np.int32]:
    """Return the positions of the jobs in the order of the queue."""
    name = "fcfs"
    if isinstance(policy, ShortestJobFirst):
        name = "shortest"
    elif isinstance(policy, Easy | FirstComeFirstServed):
        name = policy.order
    if name == "fcfs":
        return np.arange(len(workload), dtype=POSITION)
    keys = np.array([ORDERS[name](job) for job in workload.jobs()])
    return np.argsort(keys, kind="stable").astype(POSITION)


def _backfill(
    workload: Workload, policy: SchedulingPolicy, config: SimulationConfig
) -> tuple[Times, float]:
    jobs = len(workload)
    size = 1 << jobs.bit_length()
    order = _order(workload, policy)
    rank = np.empty(jobs, dtype=POSITION)
    rank[order] = np.arange(jobs, dtype=POSITION)
    # Narrow integers, and at most as many ends as jobs fit: ten million jobs need one gigabyte.
    many, width = ((1 << 31) - 1, np.int32) if config.nodes < 1 << 30 else (1 << 60, np.int64)
    at_once = min(jobs, 2 * config.nodes) + 1  # with ties=predictsim a job may count as gone
    mode = EASY if isinstance(policy, Easy) else HEAD_ONLY
    if isinstance(policy, FirstFit):
        mode = FIRST_FIT
    depth = policy.depth if isinstance(policy, Easy) else -1
    start = zeros(jobs)
    columns = _columns(workload, config)
    began = perf_counter()
    backfill(
        *columns, rank, order, config.nodes, mode, depth,
        TIES.index(config.ties),
        np.full(2 * size, many, dtype=width),
        np.full(2 * size, FOREVER), size, zeros(at_once), integers(at_once),
        np.zeros(jobs, dtype=POSITION), start,
    )  # fmt: skip
    return np.asarray(start, dtype=np.float64), perf_counter() - began


def _conservative(workload: Workload, config: SimulationConfig) -> tuple[Times, float]:
    jobs = len(workload)
    shape, units = shapes_of(config.need(workload.processors), workload.requested)
    start = zeros(jobs)
    columns = _columns(workload, config)
    began = perf_counter()
    conservative(
        *columns, shape, TIES.index(config.ties), blocked_profile(config.nodes, 2 * jobs + 4),
        no_places(units), integers(jobs), zeros(jobs), integers(jobs), start,
    )  # fmt: skip
    return np.asarray(start, dtype=np.float64), perf_counter() - began


def _slowdown_driven(
    workload: Workload, policy: SlowdownDriven, config: SimulationConfig, record: bool
) -> SimulationResult:
    jobs = len(workload)
    submit, run, need, requested = _columns(workload, config)
    most = max(policy.mates, 2)
    state = sharing_state(
        submit, need, requested, workload.malleable, config.nodes, policy.mates, record
    )
    depth = min(policy.depth, jobs)
    nodes = config.need(workload.processors)
    widest = int(nodes.max()) + 1
    cells = (policy.mates + 1) * widest if policy.mates > 2 else 1
    room = cells * min(jobs, config.nodes) if policy.mates > 2 else 1
    if room > MAX_ROOM or policy.mates > MAX_ROOM:
        raise UsageError(
            f"mates={policy.mates}: the exact search among {widest - 1} nodes needs "
            f"{max(room, policy.mates)} numbers, more than {MAX_ROOM}",
            code="value-range",
            option="mates",
            value=policy.mates,
            bound=MAX_ROOM,
        )
    steps = 2 * jobs + 2 * depth + 8
    shape, units = shapes_of(nodes, workload.requested)
    shapes = len(units)
    work: list[Any] = [
        shape, integers(2 * shapes), integers(2 * shapes), zeros(shapes), integers(shapes),
        integers(jobs), integers(jobs), np.full(steps, FOREVER), integers(steps),
        integers(jobs), zeros(jobs), integers(jobs), integers(widest), integers(widest),
        integers(widest), zeros(cells), integers(room), integers(most),
    ]  # fmt: skip
    cut = -1.0 if policy.max_slowdown == "dynamic" else float(policy.max_slowdown)
    began = perf_counter()
    held, log = slowdown_driven(
        state, run, TIES.index(config.ties), policy.share(config.cores_per_node),
        cut, policy.mates, policy.guard, policy.free_nodes,
        config.runtime_model == "worst", depth, policy.protect, *work,
    )  # fmt: skip
    seconds = perf_counter() - began
    return SimulationResult(
        start=np.asarray(state.start, dtype=np.float64),
        end=np.asarray(state.end, dtype=np.float64),
        resizes=np.asarray(state.resizes, dtype=np.int64),
        guest=np.asarray(state.mates) > 0,
        mate=np.asarray(state.lent) > 0,
        completed=np.ones(jobs, dtype=bool),
        node_seconds=float(held),
        engine="numba",
        seconds=seconds,
        changes=tuple((time, k, round(nodes * config.cores_per_node)) for time, k, nodes in log),
    )
