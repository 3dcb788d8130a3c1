"""`apples workloads fetch | list`: logs of the Parallel Workloads Archive."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from apples.simulation.sources import ARCHIVE, LOGS, fetch_log, log_folder
from apples.ui.command_line import say, show_answer

commands = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@commands.command()
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
        say(f"apples: {name}: no sum is known to check against; sha256 {found}")
    document = {"schema": "apples.log/1", "name": name, "path": str(path), "sha256": found}
    show_answer({**document, "checked": checked}, str(path), as_json)


@commands.command("list")
def list_logs(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """List the logs whose addresses are known."""
    known = [{"name": name, "processors": log.processors} for name, log in LOGS.items()]
    text = "\n".join(f"{log['name']}  {log['processors']} processors" for log in known)
    show_answer({"schema": "apples.logs/1", "logs": known}, text, as_json)
