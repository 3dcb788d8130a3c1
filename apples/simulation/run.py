"""Simulate a workload under a policy."""

from __future__ import annotations

from typing import Literal

from apples.errors import UsageError
from apples.scheduling.policy import SchedulingPolicy
from apples.simulation.compiled import COMPILED, was_compiled
from apples.simulation.engine import Engine
from apples.simulation.fast import CORES, run_fast, runs_fast
from apples.simulation.setting import Schedule, Setting
from apples.simulation.workload import Workload

EngineName = Literal["auto", "events"]


def first_compilation(
    policy: SchedulingPolicy, setting: Setting, engine: EngineName = "auto"
) -> str:
    """Return the name of the core that this run has to compile, empty if it need not."""
    if not COMPILED or engine != "auto" or not runs_fast(policy, setting):
        return ""
    name, function = CORES.get(type(policy), ("EASY", "backfill"))
    return "" if was_compiled(function) else name


def simulate(
    workload: Workload,
    policy: SchedulingPolicy,
    setting: Setting,
    *,
    engine: EngineName = "auto",
    record: bool = False,
) -> Schedule:
    """Return what becomes of the jobs.

    Parameters
    ----------
    engine
        `auto`: a fast core where there is one for the policy and the setting, else the general
        event loop; `events`: always the latter. Both give the same schedule, bit for bit.
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
    >>> simulate(jobs, Easy(), Setting(nodes=4)).start.tolist()
    [0.0, 5.0]
    """
    too_large = workload.processors > setting.processors
    if too_large.any():
        job = int(workload.job[too_large][0])
        raise UsageError(f"job {job} is larger than the machine of {setting.processors}")
    if engine == "auto" and runs_fast(policy, setting):
        if COMPILED:  # compile, or load what was compiled, outside the time that is reported
            run_fast(workload.take(slice(0, 1)), policy, setting)
        return run_fast(workload, policy, setting, record)
    return Engine(workload, policy, setting, record).run()
