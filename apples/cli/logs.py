"""`apples logs`: workload logs of the Parallel Workloads Archive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from apples.simulator.archive import ARCHIVE, LOGS, fetch_log, log_folder

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def logs() -> None:
    """Workload logs of the Parallel Workloads Archive."""


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
