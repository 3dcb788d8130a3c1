"""``apples run``: plan, run, verify, and say how far the prediction was off."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from apples.agent.commands.options import (
    BlueprintName,
    DistanceName,
    Fresh,
    Learned,
    ModelName,
    PlannerName,
    WeatherName,
)
from apples.agent.session.spec import RunSpec
from apples.errors import UsageError
from apples.jobs.commands.options import ActuatorName, NoVerify, SlurmSettings, how_verified
from apples.malleable.control.job_file import ENGINES
from apples.topology.options import Messages
from apples.ui import options
from apples.ui.command_line import say, show_answer

VERIFY_HELP = (
    "Compare with one rank (one with two): full, sample, none; full where that is short beside "
    "the run, else sample."
)
CALIBRATE_HELP = (
    "Whether hosts never measured for this program at this size are measured first (default)."
)
SIGNAL_HELP = "Signal that the program gets before a checkpoint if it catches it; or none."


def run(
    hosts: options.Hosts = None,
    template: options.Template = None,
    user: options.User = None,
    settings: options.Settings = None,
    blueprint: BlueprintName = None,
    weather: WeatherName = "live",
    planner: PlannerName = None,
    distance: DistanceName = None,
    model: ModelName = None,
    learned: Learned = False,
    fresh: Fresh = False,
    messages: Messages = None,
    actuator: ActuatorName = None,
    slurm: SlurmSettings = None,
    output: Annotated[Path | None, typer.Option(help="Folder to keep the result in.")] = None,
    report: Annotated[Path | None, typer.Option(help="Page to write about the run.")] = None,
    timeline: Annotated[
        bool, typer.Option("--timeline", help="Show the run over time, host by host, too.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be run.")] = False,
    verify: Annotated[
        str | None,
        typer.Option("--verify", help=VERIFY_HELP, show_default=False),
    ] = None,
    no_verify: NoVerify = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Let it run on; see apples jobs, wait, resize.")
    ] = False,
    warm: Annotated[
        str, typer.Option("--warm", help="Hosts a,b on which a parked group may wait to grow.")
    ] = "",
    commit: Annotated[
        float | None,
        typer.Option(
            "--commit",
            min=0.0,
            help="Seconds between committed states; 0: none. Default: in memory, now and then.",
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option("--engine", help="How it is resized: auto, merge or restart.")
    ] = "auto",
    count_messages: Annotated[
        bool, typer.Option("--count-messages", help="Tell which host sends which how much.")
    ] = False,
    calibrate: Annotated[
        bool | None,
        typer.Option("--calibrate/--no-calibrate", help=CALIBRATE_HELP, show_default=False),
    ] = None,
    program: Annotated[
        bool,
        typer.Option("--program", help="Run CMD, which knows nothing of us; can be migrated."),
    ] = False,
    on: Annotated[
        str, typer.Option("--on", help="With --program: the host to begin on; several: MPI ranks.")
    ] = "",
    signal: Annotated[str, typer.Option("--signal", help=SIGNAL_HELP)] = "USR1",
    signal_seconds: Annotated[
        float, typer.Option("--signal-seconds", min=0.0, help="How long it may take to be ready.")
    ] = 1.0,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[-- CMD..]", help="With --program: what to run.")
    ] = None,
    json: options.Json = False,
) -> int:
    """Plan, run the application, verify its result, and check the prediction.

    Example: apples run; apples run --hosts hosts.toml --template template.toml --user user.toml
    """
    _check_words(words, engine, program)
    _check_report(report, detach, program)
    _check_calibrate(calibrate, weather, program)
    if program and learned:
        raise UsageError(
            "--learned: not with --program; a program without a template has no learned state",
            code="option-conflict",
            options=["--learned", "--program"],
        )
    if program and count_messages:
        raise UsageError(
            "--count-messages: not with --program; it needs the MPI library of apples",
            code="option-conflict",
            options=["--count-messages", "--program"],
        )
    if program:
        from apples.jobs.commands.jobs import detach_job, run_program  # noqa: PLC0415 - what runs as no job has no use for it
        from apples.jobs.programs import program_spec  # noqa: PLC0415

        job = program_spec(
            words or [], hosts or Path("hosts.toml"), on=on, signal=signal, signal_seconds=signal_seconds,
            weather=weather, output=output,
        )  # fmt: skip
        return detach_job(job, json) if detach else run_program(job, json)
    from apples.topology.message_matrix import messages_of  # noqa: PLC0415 - a program has none

    spec = RunSpec(
        *options.files_of(hosts, template, user), options.settings_of(settings), blueprint,
        weather, planner, distance, model, actuator, options.settings_of(slurm, "--slurm"), output,
        how_verified(verify, no_verify) or "auto",
        warm=_listed(warm), commit_seconds=commit, engine=engine, fresh=fresh, learned=learned,
        count_messages=count_messages, messages=messages_of(messages), calibrate=calibrate is not False,
    )  # fmt: skip
    if dry_run:
        return _show_dry_run(spec, json)
    if detach:
        from apples.jobs import JobSpec  # noqa: PLC0415
        from apples.jobs.commands.jobs import detach_job  # noqa: PLC0415

        return detach_job(JobSpec(spec), json)
    from apples.jobs.commands.foreground import run_here  # noqa: PLC0415 - what runs elsewhere needs none of what this loads

    return run_here(spec, report, json, timeline)


def _show_dry_run(spec: RunSpec, json: bool) -> int:
    """Show what would be started; return the exit code."""
    # A run needs none of these.
    from apples.agent.session.phases import of_this_process  # noqa: PLC0415
    from apples.agent.session.results import dry_document  # noqa: PLC0415
    from apples.agent.session.running import prepare  # noqa: PLC0415
    from apples.agent.text.run import dry_text  # noqa: PLC0415

    prepared = prepare(spec, look=False, talk=say, phases=of_this_process())
    try:
        plan = prepared.plan()
        if plan.refusal is not None:
            raise plan.refusal
        document = dry_document(plan.document(), prepared.command(plan))
    finally:
        prepared.close()
    show_answer(document, dry_text(document["command"]), json)
    return 0


def _check_calibrate(calibrate: bool | None, weather: str, program: bool) -> None:
    """Refuse the option where nothing is calibrated in any case."""
    if calibrate is None or (weather == "live" and not program):
        return
    option = "--calibrate" if calibrate else "--no-calibrate"
    other = "--program" if program else "--weather"
    reason = (
        "a program that is not planned" if program else "only a run under live weather measures"
    )
    raise UsageError(
        f"{option}: not with {other}: {reason}", code="option-conflict", options=[option, other]
    )


def _check_report(report: Path | None, detach: bool, program: bool) -> None:
    """Refuse a page that nobody would write: the command of a job does not see its end."""
    if report is not None and detach:
        raise UsageError(
            "--report: not with --detach; when the job is over: apples report JOB",
            code="option-conflict",
            options=["--report", "--detach"],
        )
    if report is not None and program:
        raise UsageError(
            "--report: not with --program, which has no page",
            code="option-conflict",
            options=["--report", "--program"],
        )


def _check_words(words: list[str] | None, engine: str, program: bool) -> None:
    """Refuse a command line that is nobody's to run, and an unknown engine."""
    if words and not program:
        raise UsageError(
            f"'{shlex.join(words)}': needs --program before -- CMD",
            code="option-missing",
            option="--program",
            value=shlex.join(words),
        )
    if engine not in ENGINES:
        raise UsageError(
            f"--engine '{engine}': known are {', '.join(ENGINES)}",
            code="launcher-unknown",
            option="--engine",
            value=engine,
            known=list(ENGINES),
        )


def _listed(names: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(",") if name.strip())
