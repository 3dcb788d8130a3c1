"""``apples hosts``: what to do with host lists."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from apples.cli.checking import check_files
from apples.cli.deciding import Json

commands = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@commands.callback()
def options() -> None:
    """Check host lists."""


@commands.command()
def check(
    files: Annotated[list[Path], typer.Argument(help="Host lists.")], json: Json = False
) -> int:
    """Report every error of host lists with file, line, field and what would be right.

    Example: apples hosts check hosts.toml
    """
    return check_files(files, json, only="host list")
