"""``apples run``: plan, run, verify, and print the error of the prediction."""

from __future__ import annotations

from pathlib import Path

from apples.agent.session.spec import RunSpec
from apples.applications.files import PIPELINE
from apples.errors import UsageError
from apples.jobs.commands.models import (
    GRID,
    application_of,
    dask_option,
    heuristic_option,
    master_option,
    planning_options,
    unit_option,
    workers_option,
)
from apples.jobs.commands.options import (
    actuator_name_option,
    how_verified,
    listed,
    no_verify_option,
    slurm_settings_option,
)
from apples.ui import options
from apples.ui.command_line import command, say, show_answer
from apples.ui.parameters import FILE, Excludes, number, option

VERIFY_HELP = (
    "Compare with one rank (one with two): full, sample, none; full where that is short beside "
    "the run, else sample. Master/worker: units to repeat; default: sample. Pipeline: full or none."
)
CALIBRATE_HELP = (
    "Whether hosts never measured for this program at this size are measured first (default)."
)


RUN_ONLY = ("--report", "--timeline", "--detach", "--calibrate")
"""Options without an effect in a dry run."""


@command(
    rules=(
        Excludes("--report", "--detach"),
        Excludes("--timeline", "--detach"),
        *(Excludes("--dry-run", name) for name in RUN_ONLY),
    )
)
@planning_options
@actuator_name_option
@slurm_settings_option
@option(
    "--output",
    metavar="FOLDER",
    type=FILE,
    help="Folder for the result. Parameter sweep: default NAME-results; a task with a result there is not run.",
)
@option("--report", type=FILE, help="Page to write about the run.")
@option("--timeline", is_flag=True, help="Show the run over time, host by host, too.")
@option("--dry-run", is_flag=True, help="Print the plan and the commands; start nothing.")
@option("--verify", metavar="NAME", help=VERIFY_HELP, show_default=False)
@no_verify_option
@option(
    "--detach",
    is_flag=True,
    help="Start it as a job that outlives this command; see apples jobs, wait, resize.",
)
@option(
    "--warm",
    metavar="HOST,..",
    default="",
    help="Hosts on which idle ranks stay started, so that the run grows onto them sooner.",
)
@option(
    "--commit",
    metavar="SECONDS",
    type=number(0.0),
    help="Seconds between commits on disk; 0: no commits. Default: commits in memory only.",
)
@option(
    "--count-messages",
    is_flag=True,
    help="Record the messages and bytes between each pair of hosts.",
)
@option("--calibrate/--no-calibrate", default=None, help=CALIBRATE_HELP, show_default=False)
@heuristic_option
@dask_option
@master_option
@workers_option
@unit_option
@options.json_option
def run(
    hosts: Path | None,
    template: Path | None,
    user: Path | None,
    settings: tuple[str, ...],
    blueprint: str | None,
    weather: str | None,
    planner: str | None,
    distance: str | None,
    model: str | None,
    learned: bool,
    fresh: bool,
    messages: str | None,
    actuator: str | None,
    slurm: tuple[str, ...],
    output: Path | None,
    report: Path | None,
    timeline: bool,
    dry_run: bool,
    verify: str | None,
    no_verify: bool,
    detach: bool,
    warm: str,
    commit: float | None,
    count_messages: bool,
    calibrate: bool | None,
    heuristic: str,
    dask: str,
    master: str,
    workers: str,
    unit: int | None,
    json: bool,
) -> int:
    """Plan, run the application, verify its result, and check the prediction.

    The template's model decides: a grid in strips or rectangles, a parameter sweep, a pipeline of tasks, or a
    master with workers. Without --template: template.toml, or the only one of sweep.toml, pipeline.toml and
    master-worker.toml. A sweep that was interrupted continues: a task with a result is not run again.

    Example: apples run; apples run --hosts hosts.toml --template sweep.toml
    """
    kind, file = application_of(template)
    ways = ("full", "none") if kind == PIPELINE else ("full", "sample", "none")
    how = how_verified(verify, no_verify, ways)
    if kind != GRID:
        from apples.jobs.commands.applications import ModelRequest, run_model, show_plan  # noqa: PLC0415 - a grid does without

        request = ModelRequest(
            file, hosts or Path("hosts.toml"), options.settings_of(settings), weather or "static", json,
            output=output, heuristic=heuristic, dask=dask, master=master, workers=listed(workers), unit=unit or 0,
            actuator=actuator or "", verify=how,
        )  # fmt: skip
        return show_plan(kind, request) if dry_run else run_model(kind, request)
    weather = weather or "live"
    if calibrate is not None and weather != "live":
        option = "--calibrate" if calibrate else "--no-calibrate"
        raise UsageError(
            f"{option} does not apply: only a run under live weather measures (--weather {weather})",
            code="option-conflict",
            options=[option, "--weather"],
        )
    from apples.topology.message_matrix import messages_of  # noqa: PLC0415 - other models have none

    spec = RunSpec(
        *options.files_of(hosts, template, user), options.settings_of(settings), blueprint,
        weather, planner, distance, model, actuator, options.settings_of(slurm, "--slurm"), output,
        how or "auto",
        warm=listed(warm), commit_seconds=commit, fresh=fresh, learned=learned,
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
    """Print the commands that a run would start; return the exit code."""
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
