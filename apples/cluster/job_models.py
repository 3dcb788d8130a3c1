"""Run time and best hosts of a job by its application's model.

The module loads the whole planning code and runs a user's model, so a child process calls it
(`apples.jobs.children`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import chdir, suppress
from dataclasses import replace
from typing import Any, Final

from apples.agent.information import InformationPool
from apples.agent.session.planning import load, plan
from apples.agent.session.spec import RunSpec
from apples.cluster.host_preference import HostPreference
from apples.errors import ApplesError, InfeasibleError, UsageError
from apples.jobs.spec import JobSpec, ProgramSpec, UnitsSpec, read
from apples.resources import read_host_list
from apples.resources.schedule import Estimate

MAX_CHOICES: Final = 3
"""Sets of hosts that are chosen for a job; each takes up to three plans."""
MIN_SHARE: Final = 1e-3
"""Smallest part of a processor with which a host is planned."""


def estimate(
    order: Mapping[str, Any],
    hosts: int,
    among: Sequence[str] = (),
    shares: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Return the run time of a job on the `hosts` hosts that it would get first, and its best hosts.

    Nothing is measured; results of past runs count, unless the job plans with static values.

    Parameters
    ----------
    order
        The job's order, with its scheduler's host list.
    among
        The hosts to choose from; empty: no choice is made.
    shares
        Host -> the part of a processor that others leave there; 1 for hosts that are absent.

    Returns
    -------
    ``seconds``: the upper bound of the interval in which four runs of five end, the start included; backfilling
    uses it to let other jobs start first. ``choices``: sets of hosts with the seconds of a run on them, the best
    first.

    Raises
    ------
    ApplesError
        Neither an estimate nor a choice exists, or a file is invalid.
    """
    spec = read(order)
    if isinstance(spec, ProgramSpec):
        raise UsageError(
            "a program without a template has no model of its run time", code="model-missing"
        )
    answer: dict[str, Any] = {"choices": []}
    if among and isinstance(spec, JobSpec):
        with chdir(spec.directory), suppress(InfeasibleError):
            answer["choices"] = choose(spec, among, hosts, shares or {})
    try:
        answer["seconds"] = _seconds(spec, hosts)
    except ApplesError:
        if not answer["choices"]:
            raise
    return answer


def _seconds(spec: JobSpec | UnitsSpec, hosts: int) -> float:
    listed = read_host_list(spec.hosts if isinstance(spec, UnitsSpec) else spec.run.hosts)
    if not 1 <= hosts <= len(listed):
        raise UsageError(
            f"hosts: must be between 1 and {len(listed)} (is {hosts})",
            code="value-range",
            field="hosts",
            value=hosts,
            bound=len(listed),
        )
    first = HostPreference.of(listed).best([host.name for host in listed], hosts, ())
    if isinstance(spec, UnitsSpec):
        from apples.jobs.units import estimate_job  # noqa: PLC0415 - for such jobs only

        with chdir(spec.directory):
            return estimate_job(replace(spec, on=tuple(first)))
    run = replace(spec.run, on=tuple(first), weather="static", learned=spec.run.uses_learned)
    with chdir(spec.directory):
        found = plan(run, load(run))
    if found.refusal is not None:
        raise found.refusal
    chosen = found.estimate
    latest = chosen.interval[1] if chosen.interval else chosen.execution_seconds
    return float(chosen.start_seconds + latest)


def choose(
    spec: JobSpec, among: Sequence[str], count: int, shares: Mapping[str, float]
) -> list[tuple[list[str], float]]:
    """Return sets of `count` hosts, the best first, each with the estimated seconds of a run on them.

    The agent plans as at the start of the job, by the job's own blueprint, model, objective and preferences, with
    the values of the host list, the results of past runs, and the shares. If it chooses fewer hosts, the first of
    the list are added. A set is taken only if its estimate is better than that of the list's first hosts.

    Raises
    ------
    InfeasibleError
        No set has a plan.
    """
    run = replace(spec.run, weather="static", learned=spec.run.uses_learned)
    information = _under(load(run), shares)
    limited = _at_most(information, count)
    prefer = HostPreference.of(information.hosts).under(shares)
    choices: list[tuple[list[str], float]] = []
    rest = list(among)
    while len(rest) >= count and len(choices) < MAX_CHOICES:
        listed = prefer.best(rest, count)
        best = _estimate(run, limited, rest)
        wanted = (
            []
            if best is None
            else [host.host.name for host in best.hosts if host.host.name in rest]
        )
        chosen = [*dict.fromkeys((*wanted, *listed, *rest))][:count]
        otherwise = _estimate(run, information, listed)
        better = _estimate(run, information, chosen) if {*chosen} != {*listed} else None
        if better is None or (otherwise is not None and otherwise.value <= better.value):
            chosen, better = list(listed), otherwise
        if better is not None:
            choices.append((chosen, better.turnaround_seconds))
        rest = [host for host in rest if host not in chosen]
    if not choices:
        raise InfeasibleError(
            f"no plan on any of {', '.join(map(str, among))}",
            code="hosts-infeasible",
            hosts=list(among),
        )
    return choices


def _estimate(run: RunSpec, information: InformationPool, on: Sequence[str]) -> Estimate | None:
    """Return the agent's choice among hosts; None: they have no plan."""
    found = plan(replace(run, on=tuple(on)), information)
    return None if found.refusal is not None else found.estimate


def _at_most(information: InformationPool, hosts: int) -> InformationPool:
    """Return the pool with a maximum number of hosts, unless its user allows fewer."""
    specifications = information.specifications
    limits = specifications.constraints
    most = min(hosts, limits.maximum_hosts or hosts)
    constraints = limits.model_copy(update={"maximum_hosts": most})
    return replace(
        information, specifications=specifications.model_copy(update={"constraints": constraints})
    )


def _under(information: InformationPool, shares: Mapping[str, float]) -> InformationPool:
    """Return the pool with the processor shares that others leave, which all jobs are planned with."""
    conditions = information.conditions
    hosts = tuple(
        replace(host, cpu=host.cpu * max(MIN_SHARE, min(1.0, shares.get(host.name, 1.0))))
        for host in conditions.hosts
    )
    listed = replace(conditions.hosts, hosts=hosts)
    return replace(information, conditions=replace(conditions, hosts=listed))
