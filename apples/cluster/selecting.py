"""Which of some hosts a job would rather have, by its application's model: the agent's own selection and estimate.

It loads all that planning needs: a fork of the parked interpreter runs it (`apples.jobs.parked`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import chdir
from dataclasses import replace
from typing import Any

from apples.agent.information import InformationPool
from apples.agent.rescheduling import as_measured
from apples.agent.session.planning import load, plan
from apples.agent.session.spec import RunSpec
from apples.errors import InfeasibleError, UsageError
from apples.jobs.spec import JobSpec, read
from apples.resources.schedule import Estimate

LEAST_SHARE = 1e-3
"""Of a processor: so much a host gives at least."""


def select(
    order: Mapping[str, Any],
    among: Sequence[str],
    count: int,
    beside: Sequence[str],
    instead: Sequence[str],
    shares: Mapping[str, float],
    speeds: Mapping[str, float],
) -> dict[str, Any]:
    """Return so many of some hosts, what a run on them is estimated to take, and on those it would get otherwise.

    The agent plans as it will when the job is started, by the job's own blueprint, model, objective and wishes;
    under the host list's values, what past runs have taught, and the shares that all jobs are told. What it
    chooses is filled up with `instead` where it is fewer hosts, and taken only where the estimate of it is better.

    Parameters
    ----------
    order
        The job's, with its scheduler's host list.
    among, count
        The hosts, and how many of them.
    beside
        Those that it has and keeps.
    instead
        What it gets where the model sees no better.
    shares
        Host -> the part of a processor that others leave there; 1 where not named.
    speeds
        Host -> rows a second that the running job has measured there.

    Raises
    ------
    ApplesError
        There is no plan on either, or a file does not say what it should.
    """
    spec = read(order)
    if not isinstance(spec, JobSpec):
        raise UsageError(
            "only an application with a template has a model of its hosts", code="model-missing"
        )
    run = replace(spec.run, weather="static", learned=spec.run.uses_learned)
    with chdir(spec.directory):
        information = load(run)
        information = _measured(_under(information, shares), speeds)
        found = _estimate(run, _at_most(information, len(beside) + count), (*beside, *among))
        wanted = [] if found is None else [host.host.name for host in found.hosts]
        best = [host for host in wanted if host in among][:count]
        best += [host for host in dict.fromkeys((*instead, *among)) if host not in best]
        chosen = best[:count]
        otherwise = _estimate(run, information, (*beside, *instead))
        better = None
        if set(chosen) != set(instead):
            better = _estimate(run, information, (*beside, *chosen))
    if better is not None and (otherwise is None or better.value < otherwise.value):
        return _answer(chosen, better, otherwise)
    if otherwise is None:
        raise InfeasibleError(
            f"no plan on any of {', '.join(map(str, among))}",
            code="hosts-infeasible",
            hosts=list(among),
        )
    return _answer(list(instead), otherwise, otherwise)


def _answer(hosts: list[str], chosen: Estimate, otherwise: Estimate | None) -> dict[str, Any]:
    return {
        "hosts": hosts,
        "seconds": chosen.turnaround_seconds,
        "otherwise": None if otherwise is None else otherwise.turnaround_seconds,
    }


def _estimate(run: RunSpec, information: InformationPool, on: Sequence[str]) -> Estimate | None:
    """Return what the agent chooses among hosts; None: there is no plan on them."""
    found = plan(replace(run, on=tuple(on)), information)
    return None if found.refusal is not None else found.estimate


def _at_most(information: InformationPool, hosts: int) -> InformationPool:
    """Return the pool with so many hosts as the most that its user allows, unless that is fewer."""
    specifications = information.specifications
    limits = specifications.constraints
    most = min(hosts, limits.maximum_hosts or hosts)
    constraints = limits.model_copy(update={"maximum_hosts": most})
    return replace(
        information, specifications=specifications.model_copy(update={"constraints": constraints})
    )


def _under(information: InformationPool, shares: Mapping[str, float]) -> InformationPool:
    """Return the pool under the weather that all jobs are told: what others leave of hosts' processors."""
    conditions = information.conditions
    hosts = tuple(
        replace(host, cpu=host.cpu * max(LEAST_SHARE, min(1.0, shares.get(host.name, 1.0))))
        for host in conditions.hosts
    )
    listed = replace(conditions.hosts, hosts=hosts)
    return replace(information, conditions=replace(conditions, hosts=listed))


def _measured(information: InformationPool, speeds: Mapping[str, float]) -> InformationPool:
    """Return the pool in which hosts are as fast as a running job has measured them."""
    known = {host: speed for host, speed in speeds.items() if host in information.hosts}
    if not known:
        return information
    rows = max(1, information.application.rows // len(known))
    return as_measured(
        information, dict.fromkeys(known, rows), {host: rows / known[host] for host in known}
    )
