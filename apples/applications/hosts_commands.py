"""``apples hosts``: what to do with host lists."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from apples.applications.commands import check_files
from apples.applications.files import HOST_LIST
from apples.errors import LaunchError, UsageError
from apples.ui.command_line import say, show, show_json
from apples.ui.options import Json

commands = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@commands.callback()
def options() -> None:
    """Check host lists, or make one."""


@commands.command()
def check(
    files: Annotated[list[Path], typer.Argument(help="Host lists.")], json: Json = False
) -> int:
    """Report every error of host lists with file, line, field and what would be right.

    Example: apples hosts check hosts.toml
    """
    return check_files(files, json, only=HOST_LIST)


@commands.command("import")
def import_(
    source: Annotated[str, typer.Argument(help="slurm.")],
    partition: Annotated[str, typer.Option(help="Only the nodes of this partition.")] = "",
    site: Annotated[
        list[str] | None, typer.Option("--site", help="A node feature that stands for a site.")
    ] = None,
    json: Json = False,
) -> int:
    """Print a host list of the cluster this machine belongs to; nodes that take no jobs are left out, and said.

    Example: apples hosts import slurm > hosts.toml
    """
    # Checking a list loads nothing of Slurm.
    from apples.launch.slurm import client  # noqa: PLC0415
    from apples.launch.slurm.nodes import host_entries, host_list, left_out  # noqa: PLC0415

    if source != "slurm":
        raise UsageError(
            f"hosts import '{source}': known is slurm",
            code="source-unknown",
            value=source,
            known=["slurm"],
        )
    nodes = client.nodes(partition)
    for line in left_out(nodes):
        say(f"warning: {line}")
    found = host_entries(nodes, site or ())
    if not found:
        raise LaunchError("Slurm has no node that takes jobs", code="nodes-missing")
    if json:
        show_json({"schema": "apples.hosts/1", "host": found})
    else:
        show(host_list(nodes, site or ()).rstrip())
    return 0
