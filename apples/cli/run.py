"""``apples run``: plan, run, verify, and say how far the prediction was off."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from apples.actuator import Actuator, Execution, Outcome
from apples.actuators import LocalActuator
from apples.cli import deciding
from apples.cli.plan import decide
from apples.cli.program import say, show, show_json
from apples.cli.watching import watch
from apples.coordinator import Coordinator
from apples.errors import ApplicationError, UsageError, VerificationError
from apples.feedback import check, remember
from apples.reports.made_by import made_by
from apples.reports.run_document import dry_document, run_document
from apples.reports.run_page import run_page
from apples.reports.run_text import dry_text, run_text
from apples.verification import Reference, sequential

Watch = Callable[[Coordinator, Execution, str], Outcome | None]
ActuatorName = Annotated[str, typer.Option("--actuator", help="local.")]


def run(
    hosts: deciding.Hosts,
    template: deciding.Template,
    user: deciding.User,
    settings: deciding.Settings = None,
    blueprint: deciding.BlueprintName = None,
    weather: deciding.WeatherName = "live",
    planner: deciding.PlannerName = None,
    distance: deciding.DistanceName = None,
    model: deciding.ModelName = None,
    actuator: ActuatorName = "local",
    output: Annotated[Path | None, typer.Option(help="Folder to keep the result in.")] = None,
    report: Annotated[Path | None, typer.Option(help="Page to write about the run.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be run.")] = False,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Do not compare with the sequential run.")
    ] = False,
    json: deciding.Json = False,
) -> int:
    """Plan, run the application, verify its result, and check the prediction.

    Example: apples run --hosts hosts.toml --template template.toml --user user.toml
    """
    information = deciding.information_of(hosts, template, user, settings, weather, model)
    name, method = deciding.blueprint_of(blueprint, information)
    coordinator = deciding.coordinator_of(information, None, planner, distance)
    plan, refusal = decide(name, method, coordinator)
    if refusal is not None:
        raise refusal
    if report is not None:
        make_folder(report)
    started = Coordinator(information, actuator_of(actuator, output))
    started.deliberation = coordinator.deliberation
    if dry_run:
        return _show_dry_run(plan, started, json)
    document = carry_out(plan, started, verify=not no_verify, learn=weather != "static")
    command = shlex.join(["apples", *sys.argv[1:]])
    document["made_by"] = made_by(command)
    if report is not None:
        write_page(report, run_page(document))
    if json:
        show_json(document)
    else:
        show(run_text(document, command))
    if document["verified"] is False:
        raise VerificationError("the result differs from the sequential run's")
    return 0


def write_page(path: Path, page: str) -> None:
    """Write a page, making its folder, and say where it is."""
    make_folder(path)
    path.write_text(page, encoding="utf-8")
    say(f"report: {path}")


def make_folder(path: Path) -> None:
    """Make the folder of a page and see that it may be written, before anything is run for it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UsageError(f"--report {path}: {error.strerror}") from None
    if path.is_dir():
        raise UsageError(f"--report {path}: is a directory, not a file")


def actuator_of(name: str, output: Path | None) -> Actuator:
    """Return the actuator of that name."""
    if name != "local":
        raise UsageError(f"--actuator '{name}': known is local")
    if output is not None:
        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--output {output}: {error.strerror}") from None
    return LocalActuator(output, save=output is not None)


def carry_out(
    plan: deciding.Document,
    coordinator: Coordinator,
    *,
    verify: bool,
    learn: bool,
    reference: Reference | None = None,
    watch: Watch = watch,
) -> deciding.Document:
    """Run what was chosen, verify it if asked, let the models learn, and return the run document."""
    record = coordinator.deliberation
    if record.chosen is None or record.information is None:
        raise ApplicationError("nothing was chosen to run")
    execution = coordinator.actuate(record.chosen)
    outcome = watch(coordinator, execution, record.information.template.name)
    if outcome is None:
        raise ApplicationError("the actuator started nothing")
    verified = None
    if verify:
        reference = reference or sequential(coordinator.information)
        verified = reference.check(outcome.iterations, outcome.sha256)
        if verified is None:
            say("warning: not verified: the program's result has no sha256")
    result = check(record.chosen, outcome)
    if (
        learn and record.information is coordinator.information
    ):  # static plans use no model of ours
        try:
            remember(result, record.information)
        except OSError as error:
            say(f"warning: {error.filename}: {error.strerror}; nothing was learned from this run")
    return run_document(plan, record.chosen, outcome, result, verified)


def _show_dry_run(plan: deciding.Document, coordinator: Coordinator, json: bool) -> int:
    record = coordinator.deliberation
    if record.chosen is None or record.information is None:
        raise ApplicationError("nothing was chosen to run")
    command = coordinator.actuator.command(record.chosen.schedule, coordinator.information)
    document = dry_document(plan, command)
    if json:
        show_json(document)
    else:
        show(dry_text(document["command"]))
    return 0
