"""The simulator's one verb: simulate a workload under a policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from apples.errors import UsageError
from apples.scheduling.policies import (
    Conservative,
    Easy,
    Equipartition,
    FirstComeFirstServed,
    FirstFit,
    ShortestJobFirst,
    SlowdownDriven,
)
from apples.scheduling.policy import SchedulingPolicy
from apples.simulation.config import SimulationConfig, SimulationResult
from apples.simulation.engine import EventEngine
from apples.simulation.speedup import linear
from apples.simulation.workload import Workload

EngineName = Literal["auto", "events"]

#: Policies that exist in two forms on purpose: as a value (`apples.scheduling.policies`), which the event
#: engine, a live scheduler and a reader use, and as a compiled kernel of the name given here, 50 to 90 times
#: faster. `tests/simulation/test_oracles.py` holds all of them equal, bit for bit.
KERNELS: Mapping[type[SchedulingPolicy], tuple[str, str]] = {
    FirstComeFirstServed: ("EASY", "backfill"),
    FirstFit: ("EASY", "backfill"),
    ShortestJobFirst: ("EASY", "backfill"),
    Easy: ("EASY", "backfill"),
    Conservative: ("conservative", "conservative"),
    Equipartition: ("equipartition", "equipartition"),
    SlowdownDriven: ("SD-Policy", "slowdown_driven"),
}


def has_kernel(policy: SchedulingPolicy, config: SimulationConfig, workload: Workload) -> bool:
    """Return whether a compiled kernel does exactly what the event engine would do."""
    if config.has_events or type(policy) not in KERNELS:
        return False
    if isinstance(policy, Equipartition) and config.acknowledges:
        return False  # its kernel frees nodes at once
    if (workload.run > workload.requested).any():  # the kernels know no overruns
        return False
    if isinstance(policy, SlowdownDriven):
        return config.speedup is linear and not policy.needs_node_ids
    return True


def first_compilation(
    policy: SchedulingPolicy,
    config: SimulationConfig,
    workload: Workload,
    engine: EngineName = "auto",
) -> str:
    """Return the name of the kernel that this run has to compile, empty if it need not."""
    if engine != "auto" or not has_kernel(policy, config, workload):
        return ""
    from apples.simulation.kernels import compiled  # noqa: PLC0415 - with numba, half a second

    name, function = KERNELS[type(policy)]
    return name if compiled.COMPILED and not compiled.was_compiled(function) else ""


def simulate(
    workload: Workload,
    policy: SchedulingPolicy,
    config: SimulationConfig,
    *,
    engine: EngineName = "auto",
    record: bool = False,
) -> SimulationResult:
    """Return what becomes of the jobs.

    Parameters
    ----------
    engine
        `auto`: a compiled kernel where there is one for the policy and the configuration, else the event
        engine; `events`: always the latter. Both give the same result, bit for bit.
    record
        Whether to keep every change of a job's cores.

    Raises
    ------
    UsageError
        A job larger than the machine, two jobs of one number, a policy that decides what cannot be
        done or leaves jobs waiting for ever. Permanent.

    Examples
    --------
    >>> import numpy as np
    >>> from apples.scheduling.policies import Easy
    >>> from apples.simulation.workload import rigid
    >>> jobs = rigid(np.zeros(2), np.array([5.0, 3.0]), np.array([3, 2]), np.array([5.0, 3.0]))
    >>> simulate(jobs, Easy(), SimulationConfig(nodes=4)).start.tolist()
    [0.0, 5.0]
    """
    too_large = workload.processors > config.processors
    if too_large.any():
        job = int(workload.job[too_large][0])
        raise UsageError(f"job {job} is larger than the machine of {config.processors}")
    if engine == "events" or not has_kernel(policy, config, workload):
        return EventEngine(workload, policy, config, record).run()
    from apples.simulation.kernels import compiled, dispatch  # noqa: PLC0415 - with numba, half a second

    if compiled.COMPILED:  # compile, or load what was compiled, outside the time that is reported
        dispatch.run_kernel(workload.take(slice(0, 1)), policy, config)
    return dispatch.run_kernel(workload, policy, config, record)
