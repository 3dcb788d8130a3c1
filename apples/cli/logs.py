"""`apples logs JOB`: what a detached job said; `apples logs fetch | list`: the Parallel Workloads Archive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from apples.jobs import store
from apples.simulation.sources import ARCHIVE, LOGS, fetch_log, log_folder


class Logs(TyperGroup):
    """Takes what is no command of its own for the name of a job."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments mean."""
        known = args[0] in self.commands or args[0].startswith("-")
        return super().resolve_command(ctx, args if known else ["job", *args])


app = typer.Typer(rich_markup_mode=None, no_args_is_help=True, cls=Logs)


@app.callback()
def logs() -> None:
    """Print what a detached job said (apples logs JOB); or the archive of workload logs (fetch, list)."""


@app.command("job")
def of_job(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Id of the job, or how it begins.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Print what a detached job and its supervisor said."""
    found = store.job(job)
    text = found.log.read_text("utf-8", errors="replace")
    if as_json:
        lines = text.splitlines()
        typer.echo(json.dumps({"schema": "apples.joblog/1", "id": found.id, "lines": lines}))
    else:
        typer.echo(text, nl=False)


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="As the archive names it, without .swf.gz.")],
    folder: Annotated[Path | None, typer.Option(help="Where it is kept.")] = None,
    base: Annotated[str, typer.Option(help="Address of the archive or of a mirror.")] = ARCHIVE,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Fetch a log once, check its sum, print its path."""
    path, found = fetch_log(name, folder or log_folder(), base)
    checked = bool(LOGS[name].sha256)
    if not checked:
        typer.echo(f"apples: {name}: no sum is known to check against; sha256 {found}", err=True)
    if as_json:
        typer.echo(json.dumps({"schema": "apples.log/1", "name": name, "path": str(path),
                               "sha256": found, "checked": checked}))  # fmt: skip
    else:
        typer.echo(str(path))


@app.command("list")
def list_logs(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """List the logs whose addresses are known."""
    if as_json:
        known = [{"name": name, "processors": log.processors} for name, log in LOGS.items()]
        typer.echo(json.dumps({"schema": "apples.logs/1", "logs": known}))
        return
    for name, log in LOGS.items():
        typer.echo(f"{name}  {log.processors} processors")
