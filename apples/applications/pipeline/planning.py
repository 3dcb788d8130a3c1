"""`plan_pipeline_file`: from a pipeline's file and a host list to a plan; nothing is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import hat
from apples.applications.documents import PipelineDocument, PipelineTaskInfo, TaskHost
from apples.applications.host_inputs import check_hosts, recorded_weather
from apples.applications.pipeline.document import PipelineFile
from apples.applications.pipeline.estimate import PipelineCosts, PipelinePlan
from apples.applications.pipeline.mapping import PipelineDecision, plan_pipeline
from apples.errors import within
from apples.launch.actuators import actuator_class
from apples.resources import read_host_list
from apples.weather.conditions import Conditions


@dataclass(frozen=True)
class PipelineSpec:
    """The files and options of a plan.

    Attributes
    ----------
    file, hosts
        The files.
    settings
        Parameters that differ from the file, as text.
    weather
        ``static``, or a recorded weather file.
    unit
        Items in a unit; 0: the best number.
    actuator
        Actuator of a run: ``local`` or ``ssh``; empty: local, if all hosts are this machine.
    """

    file: Path = Path("pipeline.toml")
    hosts: Path = Path("hosts.toml")
    settings: Mapping[str, str] = field(default_factory=dict)
    weather: str = "static"
    unit: int = 0
    actuator: str = ""


@dataclass(frozen=True)
class PipelineExecution:
    """The outcome of a run: the plan, its seconds, and whether a single process gave the same result."""

    plan: PipelinePlan
    seconds: float
    verified: bool | None


@dataclass(frozen=True)
class PipelineResult:
    """The decision and the outcome; `execution` is None if no process was started."""

    name: str
    costs: PipelineCosts
    decision: PipelineDecision
    parameters: Mapping[str, float]
    execution: PipelineExecution | None = None

    def document(self) -> PipelineDocument:
        """Return the JSON document."""
        plan, done = self.decision.plan, self.execution
        used = {host for rows in plan.rows.values() for host in rows}
        return {
            "schema": "apples.pipeline/1",
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
            "assumed": list(self.costs.assumed),
            "execution": None if done is None else {
                "mode": done.plan.mode,
                "predicted_seconds": done.plan.seconds,
                "measured_seconds": done.seconds,
                "verified": done.verified,
            },
        }  # fmt: skip


def plan_pipeline_file(spec: PipelineSpec) -> PipelineResult:
    """Return the hosts of each task, the best unit and the predicted duration.

    Raises
    ------
    hat.DocumentError, UsageError
        The files are invalid.
    NoFeasiblePlanError
        No mapping is feasible.
    """
    document = hat.read(spec.file, PipelineFile)
    if spec.unit:
        document = document.model_copy(update={"unit": spec.unit})
    hosts = read_host_list(spec.hosts)
    with within(spec.file):
        check_hosts(hosts, document.hosts, "hosts")
    if spec.actuator:
        actuator_class(spec.actuator)
    usable = tuple(h for h in hosts if not document.hosts or h.name in document.hosts)
    weather = recorded_weather(spec.weather, hosts)
    conditions = Conditions(replace(hosts, hosts=usable), weather)
    parameters = document.settings(spec.settings)
    with within(spec.file):
        costs = PipelineCosts(document, parameters, conditions, usable)
    return PipelineResult(document.name, costs, plan_pipeline(costs), parameters)


def _task(plan: PipelinePlan, task: str) -> PipelineTaskInfo:
    hosts: list[TaskHost] = [
        {"host": host, "rows": rows, "implementation": plan.implementations[task, host]}
        for host, rows in plan.rows[task].items()
    ]
    return {"task": task, "hosts": hosts}
