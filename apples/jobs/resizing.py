"""Resizing a running job: its rows on the hosts it is to have, and the command that moves it there."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import chdir

from apples.agent.information import InformationPool
from apples.agent.planners import balanced
from apples.agent.rescheduling import as_measured
from apples.agent.session.actuation import actuator_name, with_learned
from apples.agent.session.planning import load
from apples.errors import InfeasibleError, LaunchError, UsageError
from apples.jobs.records import JobStatus, ResizeResult, conversation
from apples.jobs.spec import JobSpec, read
from apples.jobs.store import StoredJob
from apples.launch.actuators import actuator_class
from apples.launch.actuators.malleable import RESIZE_SECONDS, resized
from apples.malleable.control.client import ControlClient
from apples.malleable.control.command import HostShare, ResizeCommand

Rows = Mapping[str, int]
"""Rows by host, in the order of the strips."""


def resize(job: StoredJob, weights: Mapping[str, float] | None) -> ResizeResult:
    """Move a job to hosts with a factor on the planned speed of each, or balance it anew where it is (None)."""
    talking, epoch, rows = _position(job)
    wanted = balanced_rows(job, rows, weights or dict.fromkeys(rows, 1.0))
    return _move(job, talking, epoch, wanted)


def migrate(job: StoredJob, source: str, target: str) -> ResizeResult:
    """Put one host in another's place."""
    talking, epoch, rows = _position(job)
    if source not in rows:
        raise UsageError(f"--from {source}: the job is not there (it is on {', '.join(rows)})")
    if target in rows:
        raise UsageError(f"--to {target}: the job is there already")
    wanted = {target if host == source else host: count for host, count in rows.items()}
    return _move(job, talking, epoch, wanted)


def _position(job: StoredJob) -> tuple[ControlClient, int, Rows]:
    """Return what speaks with a running job, its epoch and its rows."""
    talking = conversation(job)
    status = talking.status()
    if not status["malleable"] and len(status["hosts"]) != 1:
        raise LaunchError(f"job {job.id} cannot be resized")
    rows = dict(zip(status["hosts"], status["rows"], strict=True))
    return talking, int(status["epoch"]), rows


def _move(job: StoredJob, talking: ControlClient, epoch: int, rows: Rows) -> ResizeResult:
    hosts = tuple(HostShare.planned(host, count) for host, count in rows.items())
    done = resized(talking.resize(ResizeCommand(epoch + 1, hosts), RESIZE_SECONDS))
    return ResizeResult(JobStatus.of(job), done.seconds, done.phases)


def balanced_rows(job: StoredJob, rows: Rows, weights: Mapping[str, float]) -> Rows:
    """Return the rows that balance these hosts: by measured times where the job is, by the weather elsewhere.

    Parameters
    ----------
    weights
        By host: a factor on its planned speed.
    """
    spec = read(job.order())
    if not isinstance(spec, JobSpec):  # a program that knows nothing of us has no rows
        return dict.fromkeys(weights, 1)
    information = _information(spec)
    unknown = [name for name in weights if name not in information.hosts]
    if unknown:
        there = ", ".join(host.name for host in information.hosts)
        raise UsageError(f"unknown host '{unknown[0]}': the job's host list has {there}")
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
    return {a.host.name: int(a.rows) for a in schedule.allocations}


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
