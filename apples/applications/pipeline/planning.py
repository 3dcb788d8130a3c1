"""`plan_pipeline_file`: from a pipeline's file and a host list to a plan; nothing is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import hat
from apples.applications.pipeline.document import PipelineFile
from apples.applications.pipeline.estimate import PipelineCosts, PipelinePlan
from apples.applications.pipeline.mapping import PipelineDecision, plan_pipeline
from apples.errors import UsageError, within
from apples.launch.actuators import actuator_class
from apples.resources import Host, read_host_list
from apples.ui.units import listed
from apples.weather.conditions import Conditions
from apples.weather.source import read_weather
from nws import Weather

SCHEMA = "apples.pipeline/1"


@dataclass(frozen=True)
class PipelineSpec:
    """What to plan, and for what.

    Attributes
    ----------
    file, hosts
        The files.
    settings
        Parameters that are other than in the file, as text.
    weather
        ``static``, or a recorded weather file.
    unit
        Items that pass at a time, whatever would be best; 0: the best.
    actuator
        What starts a run: ``local`` or ``ssh``; empty: local, where all hosts are this machine.
    """

    file: Path = Path("pipeline.toml")
    hosts: Path = Path("hosts.toml")
    settings: Mapping[str, str] = field(default_factory=dict)
    weather: str = "static"
    unit: int = 0
    actuator: str = ""


@dataclass(frozen=True)
class PipelineExecution:
    """What came of a run: the plan that was started, its seconds, and whether one process came to the same."""

    plan: PipelinePlan
    seconds: float
    verified: bool | None


@dataclass(frozen=True)
class PipelineResult:
    """What was decided, and what came of it; `execution` is None where nothing was started."""

    name: str
    costs: PipelineCosts
    decision: PipelineDecision
    parameters: Mapping[str, float]
    execution: PipelineExecution | None = None

    def document(self) -> dict[str, Any]:
        """Return the JSON document."""
        plan, done = self.decision.plan, self.execution
        used = {host for rows in plan.rows.values() for host in rows}
        return {
            "schema": SCHEMA,
            "name": self.name,
            "items": self.costs.items,
            "mode": plan.mode,
            "unit": plan.unit,
            "predicted_seconds": plan.seconds,
            "bottleneck": plan.bottleneck.name,
            "tasks": [_task(plan, task) for task in plan.rows],
            "stages": [
                {"stage": stage.name, "seconds": stage.seconds(plan.unit)} for stage in plan.stages
            ],
            "others": [
                {"mode": other.mode, "unit": other.unit, "predicted_seconds": other.seconds,
                 "bottleneck": other.bottleneck.name}
                for other in self.decision.plans[1:]
            ],
            "unused": [host.name for host in self.costs.hosts if host.name not in used],
            "assumed": [*_assumed(self.costs.hosts), *self.costs.conditions.unknown_links(self.costs.hosts)],
            "execution": done and {
                "mode": done.plan.mode,
                "predicted_seconds": done.plan.seconds,
                "measured_seconds": done.seconds,
                "verified": done.verified,
            },
        }  # fmt: skip


def plan_pipeline_file(spec: PipelineSpec) -> PipelineResult:
    """Return which hosts would do which task, with which unit, and how long it would take.

    Raises
    ------
    hat.DocumentError, UsageError
        What is wrong in the files.
    NoFeasiblePlanError
        There is no mapping.
    """
    document = hat.read(spec.file, PipelineFile)
    if spec.unit:
        document = document.model_copy(update={"unit": spec.unit})
    hosts = read_host_list(spec.hosts)
    known = [host.name for host in hosts]
    for name in document.hosts:
        if name not in known:
            near = hat.nearest(name, known)
            hint = f"; did you mean '{near}'?" if near else ""
            raise UsageError(
                f"{spec.file}: hosts: '{name}' is no host of {hosts.source}{hint}",
                code="host-unknown",
                file=spec.file,
                field="hosts",
                host=name,
                host_list=hosts.source,
            )
    if spec.actuator:
        actuator_class(spec.actuator)
    usable = tuple(h for h in hosts if not document.hosts or h.name in document.hosts)
    weather = Weather()
    if spec.weather != "static":
        if not Path(spec.weather).exists():
            raise UsageError(
                f"--weather '{spec.weather}': neither static nor a file of that name",
                code="file-missing",
                option="--weather",
                file=spec.weather,
            )
        weather = read_weather(spec.weather, hosts)
    conditions = Conditions(replace(hosts, hosts=usable), weather)
    parameters = document.settings(spec.settings)
    with within(spec.file):
        costs = PipelineCosts(document, parameters, conditions, usable)
    return PipelineResult(document.name, costs, plan_pipeline(costs), parameters)


def _task(plan: PipelinePlan, task: str) -> dict[str, Any]:
    hosts = [
        {"host": host, "rows": rows, "implementation": plan.implementations[task, host]}
        for host, rows in plan.rows[task].items()
    ]
    return {"task": task, "hosts": hosts}


def _assumed(hosts: tuple[Host, ...]) -> tuple[str, ...]:
    unknown = [host.name for host in hosts if host.seconds_per_point is None]
    why = "1 second" if len(unknown) == len(hosts) else "like the median of the others"
    said = f"seconds_per_point of {listed(unknown)}: not given, taken as {why}"
    return (said,) if unknown else ()
