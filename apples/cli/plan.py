"""``apples plan``: choose hosts and strips, say why, start nothing."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from apples.agent.coordinator import Blueprint, Coordinator
from apples.agent.explanation import remedy, thresholds
from apples.agent.information import elsewhere
from apples.agent.planners import equal_strips
from apples.cli import deciding
from apples.cli.program import show, show_json
from apples.errors import UsageError
from apples.resources import read_host_list
from apples.schedule import Estimate, NoFeasiblePlanError
from apples.views.plan_document import explained, plan_document
from apples.views.plan_text import explained_text, plan_text


def plan(
    hosts: deciding.Hosts,
    template: deciding.Template,
    user: deciding.User,
    settings: deciding.Settings = None,
    blueprint: deciding.BlueprintName = None,
    weather: deciding.WeatherName = "live",
    planner: deciding.PlannerName = None,
    distance: deciding.DistanceName = None,
    model: deciding.ModelName = None,
    explain: Annotated[bool, typer.Option("--explain", help="The whole argument.")] = False,
    json: deciding.Json = False,
) -> int:
    """Choose hosts and strips for an application; print the plan and start nothing.

    Example: apples plan --hosts hosts.toml --template template.toml --user user.toml
    """
    information = deciding.information_of(hosts, template, user, settings, weather, model)
    name, method = deciding.blueprint_of(blueprint, information)
    coordinator = deciding.coordinator_of(information, None, planner, distance)
    document, refusal = decide(name, method, coordinator)
    if explain and refusal is None:
        changes = thresholds(coordinator, method)
        document = explained(document, coordinator.deliberation, changes, equal(coordinator))
    if json:
        show_json(document)
    else:
        face = explained_text if explain else plan_text
        show(face(document, run_command(hosts, template, user)))
    if refusal is not None:
        raise refusal
    return 0


def decide(
    name: str, method: Blueprint, coordinator: Coordinator
) -> tuple[dict[str, Any], NoFeasiblePlanError | None]:
    """Run a blueprint that starts nothing; return the plan document, and why there is no plan."""
    record, refusal = coordinator.deliberation, None
    try:
        coordinator.deliberate(method)
    except NoFeasiblePlanError as error:
        help_ = remedy(coordinator.information, record)
        refusal = NoFeasiblePlanError(error.rejections, help_)
    else:
        if record.chosen is None:
            raise UsageError(f"blueprint '{name}' ended without asking for the best candidate")
    document = plan_document(name, record, coordinator.information)
    if refusal is not None:
        document["remedy"] = refusal.remedy
    return document, refusal


def equal(coordinator: Coordinator) -> Estimate | None:
    """Return what equal strips on the chosen hosts would take."""
    record = coordinator.deliberation
    if record.chosen is None or record.information is None:
        return None
    resources = record.chosen.schedule.resources
    if len(resources) > record.information.application.rows:
        return None
    schedule = equal_strips(resources, record.information)
    return coordinator.estimator.estimate(schedule, record.information)


def run_command(hosts: Path, template: Path, user: Path) -> str:
    """Return the command that runs what was planned, with this command's own options."""
    given = sys.argv[2:] if len(sys.argv) > 2 and sys.argv[1] == "plan" else []
    kept = [a for a in given if a not in {"--explain", "--json"}]
    options = kept or ["--hosts", str(hosts), "--template", str(template), "--user", str(user)]
    if elsewhere(read_host_list(hosts)):
        options = [*options, "--actuator", "ssh"]
    return f"apples run {shlex.join(options)}"
