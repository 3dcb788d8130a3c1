"""``apples run-program``: run an unmodified program as a job that can be moved."""

from __future__ import annotations

from pathlib import Path

import click

from apples.errors import UsageError
from apples.ui import options
from apples.ui.command_line import command, say, show_answer
from apples.ui.parameters import FILE, TYPED, Excludes, argument, number, option

SIGNAL_HELP = "Signal that the program gets before a checkpoint if it catches it; or none."


@command(rules=(Excludes("--on", "--weather"), Excludes("--dry-run", "--detach")))
@argument(
    "words",
    nargs=-1,
    required=True,
    metavar="CMD",
    help="The command and its arguments, after --.",
)
@options.hosts_option
@option(
    "--on",
    metavar="HOST,..",
    default="",
    help="The first host; several: an MPI program with a rank on each.",
)
@option(
    "--weather",
    metavar="NAME",
    default="live",
    help="live or static: how the first host is chosen without --on.",
)
@option("--signal", metavar="NAME", default="USR1", help=SIGNAL_HELP)
@option(
    "--signal-seconds",
    metavar="SECONDS",
    type=number(0.0),
    default=1.0,
    help="Time limit of the program's answer to the signal.",
)
@option(
    "--output",
    metavar="FOLDER",
    type=FILE,
    help="Folder of its files output and errors. Default: the job's.",
)
@option(
    "--detach",
    is_flag=True,
    help="Start it as a job that outlives this command; see apples jobs, wait, resize.",
)
@option("--dry-run", is_flag=True, help="Print the plan and the commands; start nothing.")
@options.json_option
def run_program(
    words: tuple[str, ...],
    hosts: Path | None,
    on: str,
    weather: str,
    signal: str,
    signal_seconds: float,
    output: Path | None,
    detach: bool,
    dry_run: bool,
    json: bool,
) -> int:
    """Run an unmodified program as a job; apples resize moves it to another host by CRIU.

    Example: apples run-program -- ./simulate input.dat; apples run-program --on ada,bob -- ./solver
    """
    # The help of the command prints without these.
    from apples.jobs import service  # noqa: PLC0415
    from apples.jobs.commands.jobs import detach_job  # noqa: PLC0415
    from apples.jobs.programs import dry_program_document, program_spec  # noqa: PLC0415
    from apples.jobs.text.job import dry_program_text, program_text  # noqa: PLC0415

    context = click.get_current_context()
    if signal == "none" and context.get_parameter_source("signal_seconds") is TYPED:
        raise UsageError(
            "--signal-seconds does not apply: --signal none sends no signal",
            code="option-not-applicable",
            option="--signal-seconds",
        )
    spec = program_spec(
        words, hosts or Path("hosts.toml"), on=on, signal=signal, signal_seconds=signal_seconds, weather=weather,
        output=output,
    )  # fmt: skip
    if dry_run:
        document = dry_program_document(spec)
        show_answer(document, lambda: dry_program_text(document), json)
        return 0
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
    if detach:
        return detach_job(spec, json)
    record = service.run_program(spec, talk=say)
    if record.document is not None:
        show_answer(record.document, program_text(record.document), json)
    return record.exit_code
