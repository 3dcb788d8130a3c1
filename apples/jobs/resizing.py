"""Resizing a running job: its rows on the hosts it is to have, and the command that moves it there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import chdir
from typing import Any

from apples.agent.information import InformationPool
from apples.agent.planners import balanced
from apples.agent.rescheduling import as_measured
from apples.agent.session.actuation import actuator_name, with_learned
from apples.agent.session.planning import load
from apples.errors import InfeasibleError, LaunchError, UsageError
from apples.jobs.records import PlannedMove, ResizeEstimate, conversation
from apples.jobs.spec import JobSpec, read
from apples.jobs.store import StoredJob
from apples.launch.actuators import actuator_class
from apples.malleable.control.change_cost import expected_cost
from apples.malleable.control.client import ControlClient
from apples.malleable.control.command import HostShare

Rows = Mapping[str, int]
"""Rows by host, in the order of the strips."""
START_SECONDS = 2.0
"""What starting processes on new hosts takes, where this job has not done it yet; the job computes meanwhile."""


def resize(job: StoredJob, weights: Mapping[str, float] | None) -> PlannedMove:
    """Plan a move to hosts with a factor on the planned speed of each, or a new balance where it is (None)."""
    talking, position, rows = _position(job)
    wanted, information = balanced_rows(job, rows, weights or dict.fromkeys(rows, 1.0))
    return _planned(job, talking, position, wanted, information)


def migrate(job: StoredJob, source: str, target: str) -> PlannedMove:
    """Plan to put one host in another's place."""
    talking, position, rows = _position(job)
    if source not in rows:
        raise UsageError(f"--from {source}: the job is not there (it is on {', '.join(rows)})")
    if target in rows:
        raise UsageError(f"--to {target}: the job is there already")
    wanted = {target if host == source else host: count for host, count in rows.items()}
    spec = read(job.order())
    information = None
    if isinstance(spec, JobSpec):
        with chdir(spec.directory):
            information = load(spec.run, "static")
    return _planned(job, talking, position, wanted, information)


def _position(job: StoredJob) -> tuple[ControlClient, Mapping[str, Any], Rows]:
    """Return what speaks with a running job, what it says of itself, and its rows."""
    talking = conversation(job)
    status = talking.status()
    if not status["malleable"] and len(status["hosts"]) != 1:
        raise LaunchError(f"job {job.id} cannot be resized")
    return talking, status, dict(zip(status["hosts"], status["rows"], strict=True))


def _planned(
    job: StoredJob,
    talking: ControlClient,
    position: Mapping[str, Any],
    wanted: Rows,
    information: InformationPool | None,
) -> PlannedMove:
    """Return a move with what it will take, over the links or at the last change's pace where that is slower."""
    if information is None:
        return PlannedMove(job, talking, position, wanted, None)
    _check_known(information, wanted)
    shares = [HostShare.planned(host, count) for host, count in wanted.items()]
    cost = expected_cost(position, shares, information.conditions.bandwidth)
    cold = set(wanted) - {*position["hosts"], *position.get("warm", ())}
    last = (position.get("last_resize") or {}).get("phases", {})
    start = float(last.get("start") or START_SECONDS) if cold else 0.0
    return PlannedMove(job, talking, position, wanted, ResizeEstimate.of(cost, start, wanted))


def balanced_rows(
    job: StoredJob, rows: Rows, weights: Mapping[str, float]
) -> tuple[Rows, InformationPool | None]:
    """Return the rows that balance these hosts: by measured times where the job is, by the weather elsewhere.

    The pool they were planned with comes along, None where the job is a program that knows nothing of us.

    Parameters
    ----------
    weights
        By host: a factor on its planned speed.
    """
    spec = read(job.order())
    if not isinstance(spec, JobSpec):  # a program that knows nothing of us has no rows
        return dict.fromkeys(weights, 1), None
    information = _information(spec)
    _check_known(information, weights)
    measured = job.record().get("measured") or {"rows": rows, "compute_seconds": {}}
    rows, seconds = measured["rows"], measured["compute_seconds"]
    # What the model leaves out everywhere is the least it leaves out where the job is.
    seen = as_measured(information, rows, seconds).slowdown
    bias = min((seen[host] for host in seconds if host in seen), default=1.0)
    known = _weighted(as_measured(information, rows, seconds, bias=bias), weights)
    schedule = balanced(tuple(information.hosts[name] for name in weights), known)
    total = information.application.rows
    if sum(schedule.rows) != total:
        names = ", ".join(weights)
        raise InfeasibleError(f"{names}: memory for {sum(schedule.rows):.0f} of {total} rows")
    return {a.host.name: int(a.rows) for a in schedule.allocations}, information


def _check_known(information: InformationPool, names: Iterable[str]) -> None:
    """Refuse a host that the job's list does not have."""
    unknown = [name for name in names if name not in information.hosts]
    if unknown:
        there = ", ".join(host.name for host in information.hosts)
        raise UsageError(f"unknown host '{unknown[0]}': the job's host list has {there}")


def _information(spec: JobSpec) -> InformationPool:
    """Return the pool of a job's files under this moment's weather, as its run was planned."""
    with chdir(spec.directory):
        actuator = actuator_class(actuator_name(spec.run.actuator, spec.run.hosts))
        weather = actuator.weather(spec.run.weather)
        information = load(spec.run, weather, actuator.sensed_hosts)
    return information if weather == spec.run.weather else with_learned(information)


def _weighted(information: InformationPool, weights: Mapping[str, float]) -> InformationPool:
    """Return the pool with each host as much faster as its weight says."""
    slowdown = dict(information.slowdown)
    for name, weight in weights.items():
        slowdown[name] = slowdown.get(name, 1.0) / weight
    return information.with_what_if(slowdown=slowdown)
