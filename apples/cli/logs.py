"""`apples logs JOB`: what a detached job said; `apples logs fetch | list`: the Parallel Workloads Archive."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from apples import jobs as service
from apples.cli.program import pass_through, say, show_answer, show_json
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
    text = service.log(job)
    if as_json:
        found = service.status(job).id
        show_json({"schema": "apples.joblog/1", "id": found, "lines": text.splitlines()})
    else:
        pass_through(text)


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
        say(f"apples: {name}: no sum is known to check against; sha256 {found}")
    document = {"schema": "apples.log/1", "name": name, "path": str(path), "sha256": found}
    show_answer({**document, "checked": checked}, str(path), as_json)


@app.command("list")
def list_logs(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """List the logs whose addresses are known."""
    known = [{"name": name, "processors": log.processors} for name, log in LOGS.items()]
    text = "\n".join(f"{log['name']}  {log['processors']} processors" for log in known)
    show_answer({"schema": "apples.logs/1", "logs": known}, text, as_json)
