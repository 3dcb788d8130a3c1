"""``hat new | check | schema`` and ``apples hosts``: the files that users write, and the JSON Schemas of all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer

import hat
from apples.applications import files as user_files
from apples.errors import LaunchError, UsageError, coded, unwritable
from apples.ui.command_line import Entry, run, say, show, show_answer, show_json
from apples.ui.options import Json

SCHEMA = "hat.check/1"

COMMANDS: Mapping[str, Entry] = {
    "new": Entry(
        "apples.applications.commands:new", "Start an agent of your own in a new folder."
    ),
    "check": Entry(
        "apples.applications.commands:check", "Check templates, user files and host lists."
    ),
    "schema": Entry("apples.applications.commands:schema", "Print a JSON Schema."),
}

hosts = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
"""What `apples hosts` does with host lists."""


def main() -> None:
    """Run the command line and exit."""
    run(
        "hat",
        COMMANDS,
        "Heterogeneous Application Templates and user specifications.",
        "Exit codes: 0 ok, 2 bad input. Start with: hat new heat",
    )


def new(
    name: Annotated[str, typer.Argument(help="Name of the application.")],
    into: Annotated[Path, typer.Option("--into", help="Folder to make it in.")] = Path(),
    malleable: Annotated[
        bool, typer.Option("--malleable", help="A program whose hosts may change while it runs.")
    ] = False,
    blocks: Annotated[
        bool, typer.Option("--blocks", help="The same, of objects that migrate one by one.")
    ] = False,
    c: Annotated[bool, typer.Option("--c", help="A program in C, which keeps its hosts.")] = False,
    fortran: Annotated[
        bool, typer.Option("--fortran", help="A program in Fortran, which keeps its hosts.")
    ] = False,
    model: Annotated[
        str,
        typer.Option("--model", help="strip, rectangle, pipeline, sweep or master-worker."),
    ] = "strip",
    json: Json = False,
) -> int:
    """Make a folder with template, user file, host list, program and agent that run at once.

    Example: hat new heat; hat new heat --malleable; hat new heat --c
    """
    from apples.applications.scaffold import MODELS, ProgramKind, ScaffoldError  # noqa: PLC0415 - it loads Jinja
    from apples.applications.scaffold import new as new_folder  # noqa: PLC0415 - likewise

    models: tuple[ProgramKind, ...] = ("rectangle", "pipeline", "sweep", "master-worker")
    if model not in {"strip", *models}:
        raise UsageError(
            f"--model '{model}': known are strip, {', '.join(models)}",
            code="model-unknown",
            option="--model",
            value=model,
            known=["strip", *models],
        )
    if model != "strip" and (c or fortran or malleable or blocks):
        raise UsageError(
            f"--model {model}: not with --c, --fortran, --malleable or --blocks",
            code="option-conflict",
            option="--model",
            value=model,
        )
    if (c or fortran) and (malleable or blocks or (c and fortran)):
        raise UsageError(
            "--c and --fortran: one of them, and neither with --malleable nor --blocks:"
            " a program in C or Fortran keeps the hosts it was started on",
            code="option-conflict",
            option="--c" if c else "--fortran",
        )
    asked: dict[ProgramKind, bool] = {
        **{one: model == one for one in models},
        "blocks": blocks,
        "malleable": malleable,
        "c": c,
        "fortran": fortran,
    }
    kind: ProgramKind = next((one for one, wanted in asked.items() if wanted), "rigid")
    try:
        paths = new_folder(name, into, kind=kind)
    except ScaffoldError as error:
        if isinstance(error.__cause__, OSError):
            raise unwritable(str(into / name), error.__cause__) from None
        raise UsageError(str(error), **coded(error)) from None
    if json:
        show_json({"schema": "hat.new/1", "files": [str(path) for path in paths]})
    else:
        for path in paths:
            show(str(path))
        build = "make && " if c or fortran else ""
        step = "python agent.py" if kind in MODELS else "apples run"
        show(f"next:  cd {paths[0].parent} && {build}{step}")
    return 0


def check(
    files: Annotated[list[Path], typer.Argument(help="Any files that apples reads.")],
    json: Json = False,
) -> int:
    """Report every error with file, line, field and what would be right.

    Example: hat check template.toml user.toml
    """
    return check_files(files, json)


def check_files(files: Sequence[Path], json: bool, only: str | None = None) -> int:
    """Print the problems of the files on stderr, each with its code; return 2 if there are any.

    With `json`, stderr has one JSON line.
    """
    results = [user_files.inspect(path, only) for path in files]
    pairs = list(zip(files, results, strict=True))
    entries = [user_files.checked(path, result) for path, result in pairs]
    fine = "\n".join(f"{path}: {one.kind}, ok" for path, one in pairs if not one.problems)
    problems = [problem for result in results for problem in result.problems]
    if not json:
        for problem in problems:
            say(f"{problem} [{problem.code}]")
    show_answer({"schema": SCHEMA, "files": entries}, fine, json)
    if json and problems:
        raise hat.DocumentError(problems)
    return 2 if problems else 0


@hosts.callback()
def hosts_options() -> None:
    """Check host lists, or make one."""


@hosts.command("check")
def check_hosts(
    files: Annotated[list[Path], typer.Argument(help="Host lists.")], json: Json = False
) -> int:
    """Report every error of host lists with file, line, field and what would be right.

    Example: apples hosts check hosts.toml
    """
    return check_files(files, json, only=user_files.HOST_LIST)


@hosts.command("import")
def import_hosts(
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


KINDS = ("template", "user", "hosts", "protocol")
"""What is read; what is printed is in `apples.applications.documents`."""


def schema(
    kind: Annotated[
        str, typer.Argument(help=f"{', '.join(KINDS)}; plan, run, job, .. or nws.forecast, ..")
    ],
) -> int:
    """Print the JSON Schema of a file that is read, or of a document that a command prints.

    Example: apples schema hosts; apples schema plan
    """
    if kind == "template":
        show_json(hat.schema(hat.ApplicationTemplate))
    elif kind == "user":
        show_json(hat.schema(hat.UserSpecifications))
    elif kind == "hosts":
        show_json(hat.schema(user_files.host_list_model()))
    elif kind == "protocol":
        text = resources.files("apples.launch").joinpath("protocol.schema.json").read_text("utf-8")
        show_json(json.loads(text))
    else:
        show_json(hat.schema(_document_type(kind)))
    return 0


def _document_type(kind: str) -> Any:
    """Return the type of a document, asked for as ``plan``, ``apples.plan`` or ``apples.plan/1``."""
    from apples.applications.documents import DOCUMENTS  # noqa: PLC0415 - for schemas only

    name = kind.partition("/")[0]
    found = DOCUMENTS.get(name) or DOCUMENTS.get(f"apples.{name}")
    if found is None:
        short = (one.removeprefix("apples.") for one in DOCUMENTS if one != "apples.hosts")
        known = [*KINDS, "apples.hosts", *short]
        raise UsageError(
            f"schema '{kind}': known are {', '.join(known)}",
            code="schema-unknown",
            value=kind,
            known=known,
        )
    return found
