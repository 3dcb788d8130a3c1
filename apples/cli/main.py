"""The `apples` command."""

from __future__ import annotations

import sys

import typer

from apples.cli.logs import app as logs
from apples.cli.report import report
from apples.cli.simulate import simulate
from apples.cli.sweep import sweep
from apples.errors import ApplesError

app = typer.Typer(rich_markup_mode=None, add_completion=False, no_args_is_help=True)
app.command()(simulate)
app.command()(sweep)
app.add_typer(logs, name="logs")
app.command()(report)


@app.callback()
def apples() -> None:
    """Application-level scheduling."""


def main() -> None:
    """Run the command; an error is one line and its exit code."""
    try:
        app(standalone_mode=True)
    except ApplesError as error:
        typer.echo(f"apples: {error}", err=True)
        sys.exit(error.exit_code)
