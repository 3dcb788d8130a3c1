"""Planning a move of a running job: its rows on the new hosts, and the estimated cost of the move."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import chdir
from dataclasses import replace
from typing import Any

from apples.agent.information import InformationPool, refusal
from apples.agent.launching import host_program, host_survey
from apples.agent.planners import balanced
from apples.agent.rescheduling import as_measured
from apples.agent.session.planning import load
from apples.errors import InfeasibleError, LaunchError, UsageError
from apples.jobs.records import ResizeEstimate
from apples.jobs.spec import JobSpec, read
from apples.jobs.store import StoredJob
from apples.launch.actuators import actuator_class
from apples.launch.actuators.choice import actuator_name, actuator_of
from apples.launch.host_spec import HostSpec
from apples.launch.plan import LaunchPlan, MalleableLimits
from apples.launch.remote.connection import HostConnections
from apples.malleable.control.change_cost import expected_cost
from apples.malleable.control.command import HostShare
from apples.resources import HostList
from apples.weather.sensing import SensingContext

Rows = Mapping[str, int]
"""Rows by host, in the order of the strips."""
START_SECONDS = 2.0
"""Assumed seconds to start processes on new hosts until the job has done it once; the job computes meanwhile."""


def plan(
    job: StoredJob,
    position: Mapping[str, Any],
    weights: Mapping[str, float] | None = None,
    source: str | None = None,
    target: str = "",
) -> tuple[Rows, ResizeEstimate | None, list[HostSpec]]:
    """Return the plan of a move: the new rows, the expected cost, and the host list entries of new hosts.

    Parameters
    ----------
    position
        The status of the job.
    weights
        New hosts, each with a factor on its planned speed; None: balance the rows on the present hosts, unless
        `target` replaces `source`.
    """
    rigid = len(position["hosts"]) != 1 and isinstance(read(job.order()), JobSpec)
    if not position["malleable"] and rigid:
        raise LaunchError(f"job {job.id} cannot be resized", code="run-not-resizable", job=job.id)
    rows = dict(zip(position["hosts"], position["rows"], strict=True))
    if source is not None:
        wanted, information = _in_its_place(job, rows, source, target)
    else:
        wanted, information = balanced_rows(job, rows, weights or dict.fromkeys(rows, 1.0))
    if information is None:
        return wanted, None, []
    places = _places(job, position["hosts"], wanted, information)
    return wanted, _estimate(position, wanted, information), places


def _places(
    job: StoredJob, now: Sequence[str], wanted: Rows, information: InformationPool
) -> list[HostSpec]:
    """Probe the new machines of a scheduler's job, and return their host list entries.

    The scheduler may have got these machines after the job's start, or they did not answer then. The job's present
    hosts are probed too, because two hosts on one machine share its network.

    Raises
    ------
    LaunchError
        A host cannot be used; the message has the reason.
    """
    spec = read(job.order())
    coming = [name for name in wanted if name not in now]
    if "scheduled" not in job.order() or not isinstance(spec, JobSpec) or not coming:
        return []
    actuator = actuator_of(actuator_name(spec.run.actuator, spec.run.hosts), None, spec.run.slurm)
    hosts = [information.hosts[name] for name in wanted]
    if not actuator.sensed_hosts(HostList(tuple(hosts), information.hosts.network)):
        return []
    unseen = replace(
        information, findings={}
    )  # drops the findings about hosts that did not answer at the start
    with HostConnections(job.id, shares=True) as connections:
        actuator.use(connections)
        survey = replace(host_survey(unseen), allowed=tuple(hosts), malleable=True)
        seen = unseen.with_findings(actuator.look(survey))
    for name in coming:
        if reason := refusal(seen, seen.hosts[name]):
            raise LaunchError(
                f"{name} cannot be used: {reason}", code="host-unfit", host=name, reason=reason
            )
    programs = tuple(
        host_program(host, seen.implementation(host), seen)
        for host in hosts
        if not refusal(seen, host)
    )
    plan = LaunchPlan(
        seen.template.name, seen.application.parameters, (), seen.application.rows, seen.hosts,
        findings=seen.findings, malleable=MalleableLimits(programs),
    )  # fmt: skip
    return [one for one in actuator.host_specs(plan) if one.host in coming]


def _in_its_place(
    job: StoredJob, rows: Rows, source: str, target: str
) -> tuple[Rows, InformationPool | None]:
    """Return the rows with `target` in place of `source`, and the pool of the job's files if it has them."""
    if source not in rows:
        raise UsageError(
            f"--from {source}: the job is not there (it is on {', '.join(rows)})",
            code="host-unknown",
            option="--from",
            host=source,
            known=list(rows),
        )
    if target in rows:
        raise UsageError(
            f"--to {target}: the job is there already",
            code="host-in-use",
            option="--to",
            host=target,
        )
    wanted = {target if host == source else host: count for host, count in rows.items()}
    spec = read(job.order())
    if not isinstance(spec, JobSpec):
        return wanted, None
    with chdir(spec.directory):
        information = load(spec.run, weather="static")
    _check_known(information, wanted)
    return wanted, information


def _estimate(
    position: Mapping[str, Any], wanted: Rows, information: InformationPool
) -> ResizeEstimate:
    """Return the estimated cost of a move, from the links' bandwidth or the last change's rate, the slower one."""
    shares = [HostShare.planned(host, count) for host, count in wanted.items()]
    cost = expected_cost(position, shares, information.conditions.bandwidth)
    cold = set(wanted) - {*position["hosts"], *position.get("warm", ())}
    last = (position.get("last_resize") or {}).get("phases", {})
    start = float(last.get("start") or START_SECONDS) if cold else 0.0
    return ResizeEstimate.of(cost, start, wanted)


def balanced_rows(
    job: StoredJob, rows: Rows, weights: Mapping[str, float]
) -> tuple[Rows, InformationPool | None]:
    """Return the rows that balance these hosts: by measured times on present hosts, by the weather on new hosts.

    Return also the pool of the plan; None for an unmodified program.

    Parameters
    ----------
    weights
        Host -> factor on its planned speed.
    """
    spec = read(job.order())
    if not isinstance(spec, JobSpec):  # an unmodified program has no rows
        return dict.fromkeys(weights, 1), None
    information = _information(spec)
    _check_known(information, weights)
    measured = job.record().get("measured") or {"rows": rows, "compute_seconds": {}}
    rows, seconds = measured["rows"], measured["compute_seconds"]
    # The smallest measured slowdown is an error of the model that is assumed to apply to new hosts as well.
    seen = as_measured(information, rows, seconds).slowdown
    bias = min((seen[host] for host in seconds if host in seen), default=1.0)
    known = _weighted(as_measured(information, rows, seconds, bias=bias), weights)
    schedule = balanced(tuple(information.hosts[name] for name in weights), known)
    total = information.application.rows
    if sum(schedule.rows) != total:
        rows_fit = int(sum(schedule.rows))
        raise InfeasibleError(
            f"{', '.join(weights)}: memory for {rows_fit} of {total} rows",
            code="memory-insufficient",
            hosts=list(weights),
            value=total,
            bound=rows_fit,
        )
    return {a.host.name: int(a.rows) for a in schedule.allocations}, information


def _check_known(information: InformationPool, names: Iterable[str]) -> None:
    """Reject a host that is not in the job's host list."""
    unknown = [name for name in names if name not in information.hosts]
    if unknown:
        there = [host.name for host in information.hosts]
        raise UsageError(
            f"unknown host '{unknown[0]}': the job's host list has {', '.join(there)}",
            code="host-unknown",
            host=unknown[0],
            known=there,
        )


def _information(spec: JobSpec) -> InformationPool:
    """Return the information pool of a job's files under the current weather, as its run was planned."""
    with chdir(spec.directory):
        actuator = actuator_class(actuator_name(spec.run.actuator, spec.run.hosts))
        weather = actuator.weather(spec.run.weather)
        return load(spec.run, SensingContext(others=actuator.sensed_hosts), weather=weather)


def _weighted(information: InformationPool, weights: Mapping[str, float]) -> InformationPool:
    """Return the pool with each host faster by its weight."""
    slowdown = dict(information.slowdown)
    for name, weight in weights.items():
        slowdown[name] = slowdown.get(name, 1.0) / weight
    return information.with_what_if(slowdown=slowdown)
