"""How long a job is going to run, and which hosts suit it best, by its application's model.

It loads all that planning needs and runs a user's model: a child process calls it (`apples.jobs.children`).
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
"""Sets of hosts that are chosen for a job: each takes up to three plans."""
MIN_SHARE: Final = 1e-3
"""The least part of a processor that a host is planned with."""


def estimate(
    order: Mapping[str, Any],
    hosts: int,
    among: Sequence[str] = (),
    shares: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Return the run time of a job on as many of the hosts that it would get first, and its best hosts.

    Nothing is measured; what past runs have taught counts, unless it is to be planned from static values.

    Parameters
    ----------
    order
        The job's, with its scheduler's host list.
    among
        The hosts to choose from; empty: none are chosen.
    shares
        Host -> the part of a processor that others leave there; 1 where not named.

    Returns
    -------
    ``seconds``: the later bound of the interval in which four runs of five end, the start included, since other
    jobs are let in before the job by it. ``choices``: sets of hosts with the seconds of a run on them, the best
    first.

    Raises
    ------
    ApplesError
        There is neither an estimate nor a choice, or a file does not say what it should.
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
    """Return sets of so many hosts, the best first, each with the seconds that a run on them is estimated to take.

    The agent plans as it will when the job is started, by the job's own blueprint, model, objective and wishes,
    under the host list's values, what past runs have taught, and the shares. If it chooses fewer hosts, the
    first of the list are added. A set is taken only where its estimate is better than that of the list's hosts.

    Raises
    ------
    InfeasibleError
        There is no plan on any set.
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
    """Return the pool under the weather that all jobs are planned for: what others leave of hosts' processors."""
    conditions = information.conditions
    hosts = tuple(
        replace(host, cpu=host.cpu * max(MIN_SHARE, min(1.0, shares.get(host.name, 1.0))))
        for host in conditions.hosts
    )
    listed = replace(conditions.hosts, hosts=hosts)
    return replace(information, conditions=replace(conditions, hosts=listed))
