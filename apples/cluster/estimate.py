"""How long a job is going to run, by its application's model, before anybody knows which hosts it gets.

It loads all that planning needs: a fork of the parked interpreter runs it (`apples.jobs.parked`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import chdir
from dataclasses import replace
from typing import Any

from apples.agent.session.planning import load, plan
from apples.cluster.host_preference import HostPreference
from apples.errors import UsageError
from apples.jobs.spec import ProgramSpec, UnitsSpec, read
from apples.resources import read_host_list


def estimate(order: Mapping[str, Any], hosts: int) -> float:
    """Return the seconds that a job takes, its start included, on as many of the hosts that it would get first.

    Of the interval in which four runs of five are to end it is the later bound: by it others are let in before
    the job. Nothing is measured; what past runs have taught counts, unless it is to be planned from static values.

    Parameters
    ----------
    order
        The job's, with its scheduler's host list.

    Raises
    ------
    ApplesError
        There is no plan, or a file does not say what it should.
    """
    spec = read(order)
    if isinstance(spec, ProgramSpec):
        raise UsageError(
            "a program without a template has no model of its run time", code="model-missing"
        )
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
        information = load(run)
        found = plan(run, information)
    if found.refusal is not None:
        raise found.refusal
    chosen = found.estimate
    latest = chosen.interval[1] if chosen.interval else chosen.execution_seconds
    return float(chosen.start_seconds + latest)
