"""``apples run``: plan, run, verify, and say how far the prediction was off."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from apples.agent.coordinator import Coordinator
from apples.agent.information import InformationPool, at_a_glance
from apples.agent.launching import launch_plan
from apples.agent.learning import check, remember
from apples.agent.rescheduling import Tended
from apples.agent.verification import Reference, sequential
from apples.cli import deciding, unmodified
from apples.cli.actuating import (
    ActuatorName,
    SlurmSettings,
    actuator_name,
    actuator_of,
    malleable_of,
    others_of,
    remembering,
    weather_of,
)
from apples.cli.choosing import Choice, choose
from apples.cli.detaching import detach, order_of
from apples.cli.job_face import face
from apples.cli.program import say, show, show_json
from apples.cli.watching import watch
from apples.errors import ApplicationError, UsageError, VerificationError
from apples.launch.actuator import Execution, Outcome
from apples.malleable.job_file import ENGINES
from apples.views.made_by import made_by
from apples.views.run_document import dry_document, run_document
from apples.views.run_page import run_page
from apples.views.run_text import dry_text, run_text

Watch = Callable[[Coordinator, Execution, str], Outcome | None]
NoTemplate = Annotated[
    Path | None, typer.Option("--template", help="Application template (TOML).")
]
NoUser = Annotated[Path | None, typer.Option("--user", help="User specifications (TOML).")]


def run(
    hosts: deciding.Hosts,
    template: NoTemplate = None,
    user: NoUser = None,
    settings: deciding.Settings = None,
    blueprint: deciding.BlueprintName = None,
    weather: deciding.WeatherName = "live",
    planner: deciding.PlannerName = None,
    distance: deciding.DistanceName = None,
    model: deciding.ModelName = None,
    actuator: ActuatorName = None,
    slurm: SlurmSettings = None,
    output: Annotated[Path | None, typer.Option(help="Folder to keep the result in.")] = None,
    report: Annotated[Path | None, typer.Option(help="Page to write about the run.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be run.")] = False,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Do not compare with the sequential run.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Let it run on; see apples jobs, wait, resize.")
    ] = False,
    warm: Annotated[
        str, typer.Option("--warm", help="Hosts a,b on which a parked group may wait to grow.")
    ] = "",
    commit: Annotated[
        float, typer.Option("--commit", min=0.0, help="Seconds between committed states.")
    ] = 0.0,
    engine: Annotated[
        str, typer.Option("--engine", help="How it is resized: auto, merge or restart.")
    ] = "auto",
    program: Annotated[
        bool,
        typer.Option("--program", help="Run CMD, which knows nothing of us; can be migrated."),
    ] = False,
    on: Annotated[str, typer.Option("--on", help="With --program: the host to begin on.")] = "",
    signal: Annotated[str, typer.Option("--signal", help=unmodified.SIGNAL_HELP)] = "USR1",
    signal_seconds: Annotated[
        float, typer.Option("--signal-seconds", min=0.0, help="How long it may take to be ready.")
    ] = 1.0,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[-- CMD..]", help="With --program: what to run.")
    ] = None,
    json: deciding.Json = False,
) -> int:
    """Plan, run the application, verify its result, and check the prediction.

    Example: apples run --hosts hosts.toml --template template.toml --user user.toml
    """
    if program:
        order = unmodified.order_of_program(
            hosts, words or [], on=on, signal=signal, signal_seconds=signal_seconds,
            weather=weather, output=output,
        )  # fmt: skip
        return unmodified.run_program(order, detached=detach, json=json)
    template, user = _demand(words, template, user, engine)
    elastic = {"warm": _listed(warm), "commit_seconds": commit, "engine": engine}
    through = actuator_name(actuator, hosts)
    if detach:
        actuator_of(through, output, slurm)
        return _detached(
            order_of(
                hosts, template, user, output, settings=settings, blueprint=blueprint,
                weather=weather, planner=planner, distance=distance, model=model,
                verify=not no_verify, actuator=through, slurm=slurm or [], **elastic,
            ),
            json,
        )  # fmt: skip
    others, sky = partial(others_of, through), weather_of(through, weather)
    information = deciding.information_of(hosts, template, user, settings, sky, model, others)
    information = information if sky == weather else remembering(information)
    name, method = deciding.blueprint_of(blueprint, information)
    moving = partial(malleable_of, through, output, information, f"--blueprint {name}", **elastic)
    choice = choose(
        name, method, information, actuator_of(through, output, slurm), moving,
        planner=planner, distance=distance, looks=not dry_run,
    )  # fmt: skip
    if report is not None:
        make_folder(report)
    fresh = partial(at_a_glance, others=others) if sky == "live" else same
    started = starting(choice, fresh)
    if dry_run:
        return _show_dry_run(choice.plan, started, json)
    document = carry_out(choice.plan, started, verify=not no_verify, learn=weather != "static")
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


def _detached(order: deciding.Document, json: bool) -> int:
    """Start a job that outlives this command, and show it."""
    job = detach(order, "")
    document = face(job)
    if json:
        show_json(document)
    else:
        runs = "runs on" if document["state"] == "running" else "waits for Slurm to give it"
        show(f"{job.id} {runs} {', '.join(document['hosts'])}")
        show(f"next: apples wait {job.id}")
    return 0


def _demand(
    words: list[str] | None, template: Path | None, user: Path | None, engine: str
) -> tuple[Path, Path]:
    """Return template and user file of an application; who runs a program names neither."""
    if words or template is None or user is None:
        raise UsageError("needs --template and --user, or --program -- CMD")
    if engine not in ENGINES:
        raise UsageError(f"--engine '{engine}': known are {', '.join(ENGINES)}")
    return template, user


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


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


def same(information: InformationPool) -> InformationPool:
    """Return the pool as it is: who plans under a given sky has no other."""
    return information


def starting(choice: Choice, fresh: Callable[[InformationPool], InformationPool]) -> Coordinator:
    """Return the coordinator that starts what was chosen; `fresh` gives a pool this moment's weather."""
    before = choice.coordinator
    started = Coordinator(
        before.present,
        choice.starter,
        selector=before.selector,
        planner=before.planner,
        fresh=fresh,
    )
    started.deliberation = before.deliberation
    return started


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
    if record.policy is not None:
        coordinator.tell = lambda decision: say(decision.explanation)
        execution = coordinator.tend(execution, record.policy)
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
        learn
        and record.information.learned is coordinator.information.learned
        and not execution.moved
    ):  # static plans use no model of ours
        try:
            remember(result, record.information)
        except OSError as error:
            say(f"warning: {error.filename}: {error.strerror}; nothing was learned from this run")
    document = run_document(plan, record.chosen, outcome, result, verified)
    decisions = execution.decisions if isinstance(execution, Tended) else []
    document["execution"]["moved"] = execution.moved
    document["execution"]["redistributions"] = [one.document() for one in decisions]
    return document


def _show_dry_run(plan: deciding.Document, coordinator: Coordinator, json: bool) -> int:
    record = coordinator.deliberation
    if record.chosen is None or record.information is None:
        raise ApplicationError("nothing was chosen to run")
    command = coordinator.actuator.command(
        launch_plan(record.chosen.schedule, coordinator.information)
    )
    document = dry_document(plan, command)
    if json:
        show_json(document)
    else:
        show(dry_text(document["command"]))
    return 0
