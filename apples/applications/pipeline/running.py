"""`run_pipeline`: the best plan, run as one MPI program and verified.

The rows of all tasks are concatenated, so the first row of a rank determines its task. Launchers, application
protocol and digests of results are those of all other applications.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path

from apples.applications.pipeline.estimate import PipelinePlan
from apples.applications.pipeline.planning import (
    PipelineExecution,
    PipelineResult,
    PipelineSpec,
    plan_pipeline_file,
)
from apples.errors import UsageError, VerificationError
from apples.launch.actuators.choice import actuator_name, actuator_of
from apples.launch.actuators.local import LocalActuator
from apples.launch.plan import HostProgram, LaunchPlan, refuse_assumed_weeks, strips_of
from apples.launch.this_host import PYTHON
from apples.resources import Host, HostList, Network, read_host_list
from apples.resources.schedule import Allocation

RESERVED_PARAMETERS = ("rows", "unit", "iterations")
"""Parameters that the agent passes in addition to the program's own."""
MAX_SILENCE_FACTOR = 5.0
"""Multiple of the predicted time that a program may run without any message."""


def run_pipeline(
    spec: PipelineSpec,
    *,
    verify: bool = True,
    began: Callable[[PipelineResult], None] | None = None,
) -> PipelineResult:
    """Run the best plan and compare its result with that of the same program as a single process.

    If tasks alternate, each host has ranks of every task in turn, because MPI numbers a host's ranks
    consecutively. On one host with one slot, a single rank does all tasks.

    Parameters
    ----------
    began
        Called with the plan before any process is started.

    Raises
    ------
    hat.DocumentError, UsageError
        The files are invalid, or the program file is.
    NoFeasiblePlanError
        No mapping is feasible.
    LaunchError, ApplicationError, VerificationError
        The program cannot be started, fails, or gives another result.
    """
    result = plan_pipeline_file(spec)
    document, hosts = result.costs.document, read_host_list(spec.hosts)
    if not document.program:
        raise UsageError(
            f"{spec.file}: program is missing: the command that is run, as a list",
            code="field-missing",
            file=spec.file,
            field="program",
        )
    for name in RESERVED_PARAMETERS:
        if name in document.parameters:
            raise UsageError(
                f"{spec.file}: parameters.{name}: must be another name: the plan gives it",
                code="name-reserved",
                file=spec.file,
                field=f"parameters.{name}",
            )
    plan = result.decision.plan
    actuator = actuator_of(actuator_name(spec.actuator or None, spec.hosts), None)
    used = {host for rows in plan.rows.values() for host in rows}
    unmeasured = [
        host.name for host in hosts if host.seconds_per_point is None and host.name in used
    ]
    refuse_assumed_weeks(unmeasured, plan.seconds)
    if began:
        began(result)
    outcome = actuator.actuate(_launch(result, plan, hosts, spec)).outcome()
    verified = None
    if verify and outcome is not None:
        alone = Host("alone", slots=1)
        rows = sum(result.costs.rows)
        one = _launch_of(
            result, plan, HostList((alone,), Network()), spec, [Allocation(alone, rows)]
        )
        reference = LocalActuator().actuate(one).outcome()
        verified = reference is not None and reference.sha256 == outcome.sha256
        if not verified:
            raise VerificationError(
                "the result is not that of the same program as one process",
                code="result-differs",
                value=outcome.sha256,
                bound=reference.sha256 if reference else None,
            )
    seconds = outcome.seconds if outcome else 0.0
    return replace(result, execution=PipelineExecution(plan, seconds, verified))


def _launch(
    result: PipelineResult, plan: PipelinePlan, hosts: HostList, spec: PipelineSpec
) -> LaunchPlan:
    used = tuple({hosts[host] for rows in plan.rows.values() for host in rows})
    if len(used) == 1 and used[0].slots == 1:
        shares = [Allocation(used[0], sum(result.costs.rows))]
    else:
        shares = [
            Allocation(hosts[host], rows)
            for task in plan.rows.values()
            for host, rows in task.items()
        ]
    return _launch_of(result, plan, hosts, spec, shares)


def _launch_of(
    result: PipelineResult, plan: PipelinePlan, hosts: HostList, spec: PipelineSpec,
    shares: Sequence[Allocation],
) -> LaunchPlan:  # fmt: skip
    """Return the launch of some shares of the tasks' concatenated rows."""
    costs = result.costs
    links = len(plan.rows) - 1
    iterations = ceil(costs.items / plan.unit) + links
    given = {"rows": sum(costs.rows), "unit": plan.unit, "iterations": iterations}
    folder = spec.file.absolute().parent

    def program(share: Allocation) -> HostProgram:
        words, remote = (
            _command(result.costs.document.program, folder, python)
            for python in (sys.executable, PYTHON)
        )
        files = tuple(word for word in remote if word.startswith(str(folder)))
        return HostProgram(share.host, "", words, remote, files)

    silence = max(60.0, MAX_SILENCE_FACTOR * plan.seconds)
    order = {
        name: number for number, name in enumerate(dict.fromkeys(s.host.name for s in shares))
    }
    strips = sorted(strips_of(shares, program), key=lambda strip: order[strip.host.name])
    return LaunchPlan(
        result.name, {**result.parameters, **given}, tuple(strips), given["rows"], hosts,
        iterations, plan.seconds / iterations, silence,
    )  # fmt: skip


def _command(words: Sequence[str], folder: Path, python: str) -> tuple[str, ...]:
    filled = [word.replace(PYTHON, python) for word in words]
    return tuple(str(folder / word) if (folder / word).is_file() else word for word in filled)
