"""The function of the simulator: simulate a workload under a policy."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from importlib import import_module
from typing import Literal

import numpy as np

from apples.errors import UsageError
from apples.scheduling.ledger import OVERDUE_SECONDS
from apples.scheduling.loops import can_compile
from apples.scheduling.policies import (
    Conservative,
    Easy,
    FirstComeFirstServed,
    FirstFit,
    ShortestJobFirst,
    SlowdownDriven,
)
from apples.scheduling.policy import SchedulingPolicy
from apples.simulation.config import SimulationConfig, SimulationResult
from apples.simulation.engine import EventEngine, Precedence, run_on_one_clock
from apples.simulation.partitioned import joined, shares_of
from apples.simulation.speedup import linear
from apples.simulation.workload import Workload

EngineName = Literal["auto", "events", "kernel"]
ENGINES: tuple[EngineName, ...] = ("auto", "events", "kernel")

#: Policies with a compiled kernel -> (name of the kernel in messages, its function, jobs). Kernels are 50 to 90
#: times faster than the event engine; `tests/simulation/test_oracles.py` tests that both give equal results, bit
#: for bit. The event engine simulates `jobs` jobs in at most about the time to load numba and the kernel.
KERNELS: Mapping[type[SchedulingPolicy], tuple[str, str, int]] = {
    FirstComeFirstServed: ("EASY", "backfill", 6000),
    FirstFit: ("EASY", "backfill", 6000),
    ShortestJobFirst: ("EASY", "backfill", 6000),
    Easy: ("EASY", "backfill", 6000),
    Conservative: ("conservative", "conservative", 2000),
    SlowdownDriven: ("SD-Policy", "slowdown_driven", 1000),
}
DISPATCH = "apples.simulation.kernels.dispatch"


class _KernelUse:
    """Decides whether `engine="auto"` loads the kernels, which do not pay for small simulations only."""

    def __init__(self) -> None:
        self._spent = 0.0

    def pays(self, policy: SchedulingPolicy, jobs: int) -> bool:
        """Return whether the kernels are loaded, or worth loading for a simulation of `jobs` jobs."""
        _, _, most = KERNELS[type(policy)]
        return DISPATCH in sys.modules or self._spent + jobs / most > 1.0

    def note_events(self, policy: SchedulingPolicy, jobs: int) -> None:
        """Add `jobs` jobs that the event engine simulated."""
        self._spent += jobs / KERNELS[type(policy)][2]


_kernel_use = _KernelUse()


def has_kernel(policy: SchedulingPolicy, config: SimulationConfig, workload: Workload) -> bool:
    """Return whether a compiled kernel gives exactly the result of the event engine."""
    unknown = config.checkpoint is not None and config.checkpoint.cost > 0.0
    if isinstance(policy, Conservative):
        unknown |= policy.order != "fcfs"
    if config.has_events or unknown or type(policy) not in KERNELS:
        return False
    if config.kills and policy.uses_malleable and workload.malleable.any():
        return False  # kernels do not detect that a resized job reaches its limit
    over = workload.run - workload.requested
    if config.kills and not config.grace:  # kernels end rigid jobs at their limit
        over = over[over <= 2 * OVERDUE_SECONDS]
    if (over > 0).any():  # kernels do not support overruns
        return False
    if isinstance(policy, SlowdownDriven):
        alone = "exclusive" in workload.attributes
        return config.speedup is linear and not policy.needs_node_ids and not alone
    return True


def first_compilation(
    policy: SchedulingPolicy,
    config: SimulationConfig,
    workload: Workload,
    engine: EngineName = "auto",
) -> str:
    """Return the name of the kernel that this run has to compile, empty without compilation."""
    if not _uses_kernel(policy, config, workload, engine):
        return ""
    import_module(DISPATCH)
    compiled = import_module("apples.scheduling.loops.compiled")
    name, function, _ = KERNELS[type(policy)]
    return "" if compiled.was_compiled(function) else name


def _uses_kernel(
    policy: SchedulingPolicy, config: SimulationConfig, workload: Workload, engine: EngineName
) -> bool:
    """Return whether a simulation uses a compiled kernel."""
    if engine == "events" or not (can_compile() and has_kernel(policy, config, workload)):
        return False
    return engine == "kernel" or _kernel_use.pays(policy, len(workload))


def simulate(
    workload: Workload,
    policy: SchedulingPolicy,
    config: SimulationConfig,
    *,
    engine: EngineName = "auto",
    record: bool = False,
) -> SimulationResult:
    """Return the result of a simulation.

    Parameters
    ----------
    engine
        `auto`: a compiled kernel if numba and a kernel for the policy and the configuration exist and the log is
        not small, otherwise the event engine. `kernel`: a compiled kernel for small logs, too. `events`: the event
        engine. All give the same result, bit for bit.
    record
        Whether to record every change of a job's cores.

    Raises
    ------
    UsageError
        A job is larger than the machine, two jobs have one number, a decision of the policy cannot be carried out,
        or the policy leaves jobs waiting for ever. Permanent.

    Examples
    --------
    >>> import numpy as np
    >>> from apples.scheduling.policies import Easy
    >>> from apples.simulation.workload import rigid
    >>> jobs = rigid(np.zeros(2), np.array([5.0, 3.0]), np.array([3, 2]), np.array([5.0, 3.0]))
    >>> simulate(jobs, Easy(), SimulationConfig(nodes=4)).start.tolist()
    [0.0, 5.0]
    """
    if config.partitions:
        return _simulate_partitions(workload, policy, config, engine, record)
    too_large = workload.processors > config.processors
    if too_large.any():
        job = int(workload.job[too_large][0])
        raise UsageError(
            f"job {job} is larger than the machine of {config.processors}",
            code="job-too-large",
            job=job,
            value=int(workload.processors[too_large][0]),
            bound=config.processors,
        )
    if not _uses_kernel(policy, config, workload, engine):
        if has_kernel(policy, config, workload):
            _kernel_use.note_events(policy, len(workload))
        return EventEngine(workload, policy, config, record).run()
    dispatch = import_module(DISPATCH)
    killed = workload.run > workload.requested + OVERDUE_SECONDS
    if killed.any():
        workload = replace(workload, run=np.where(killed, workload.requested, workload.run))
    # Compile or load the kernel here, outside the reported time.
    dispatch.run_kernel(workload.take(slice(0, 1)), policy, config)
    result: SimulationResult = dispatch.run_kernel(workload, policy, config, record)
    if killed.any():
        result = replace(result, completed=~killed, killed=int(killed.sum()))
    return result


def _simulate_partitions(
    workload: Workload,
    policy: SchedulingPolicy,
    config: SimulationConfig,
    engine: EngineName,
    record: bool,
) -> SimulationResult:
    """Return the result of a machine of partitions, each with its own copy of the policy.

    Partitions are independent unless jobs depend on others; only then they share one clock.
    """
    shares, chosen, rejected = shares_of(workload, config)
    used = [share for share in shares if len(share.workload)]
    policies = [deepcopy(policy) for _ in used]
    if config.dependencies and used:
        precedence = Precedence(frozenset(workload.job.tolist()), config.dependencies)
        submitted = dict(zip(workload.job.tolist(), workload.submit.tolist(), strict=True))
        precedence.ended.update((job, submitted[job]) for job in rejected)
        results = run_on_one_clock(
            [
                EventEngine(share.workload, one, share.config, record, precedence)
                for share, one in zip(used, policies, strict=True)
            ]
        )
    else:
        results = [
            simulate(share.workload, one, share.config, engine=engine, record=record)
            for share, one in zip(used, policies, strict=True)
        ]
    found = iter(results)
    all_of_them = [next(found) if len(share.workload) else None for share in shares]
    return joined(workload, shares, all_of_them, chosen, rejected)
