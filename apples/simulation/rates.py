"""How fast a job runs on what it has (D'Amico et al. 2019, equations 5 and 6; speed-up models)."""

from __future__ import annotations

from apples.scheduling.policy import ClusterState, RunningJob
from apples.simulation.setting import Setting
from apples.simulation.speedup import linear


def rate_of(running: RunningJob, state: ClusterState, setting: Setting) -> float:
    """Return seconds of work a second; 1 on the nodes the job asked for, where places do not matter."""
    rate = _rate_of(running, state, setting)
    return rate if setting.slowdown is None else rate / setting.slowdown(running)


def _rate_of(running: RunningJob, state: ClusterState, setting: Setting) -> float:
    part = 1.0
    if running.guest is not None:
        part = 1.0 - state.running[running.guest].share
    elif running.shared and setting.runtime_model == "worst":
        part = running.share
    elif running.shared:
        own = running.nodes - running.shared
        part = (own + running.share * running.shared) / running.nodes
    need = state.nodes_for(running.job.processors)
    if running.nodes == need and (part == 1.0 or setting.speedup is linear):
        return part
    cores = setting.cores_per_node
    return setting.speedup(running.nodes * cores * part) / setting.speedup(need * cores)


def cores_of(running: RunningJob, state: ClusterState) -> int:
    """Return the cores a job has now."""
    nodes = running.nodes - running.shared * (1.0 - running.share)
    if running.guest is not None:
        nodes = running.nodes * (1.0 - state.running[running.guest].share)
    return round(nodes * state.cores_per_node)
