"""``hat``: templates and user specifications: scaffold and check."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

import hat
from apples.cli.files import check_files
from apples.cli.options import Json
from apples.cli.program import Entry, run, show, show_json
from apples.errors import UsageError, coded, unwritable

COMMANDS: Mapping[str, Entry] = {
    "new": Entry("apples.cli.hat:new", "Start an agent of your own in a new folder."),
    "check": Entry("apples.cli.hat:check", "Check templates, user files and host lists."),
    "schema": Entry("apples.cli.files:schema", "Print a JSON Schema."),
}


MODELS: tuple[hat.ProgramKind, ...] = ("rectangle", "pipeline", "sweep", "master-worker")
"""What ``--model`` may say besides ``strip``: each is a kind of scaffold."""


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
    if model not in {"strip", *MODELS}:
        raise UsageError(
            f"--model '{model}': known are strip, {', '.join(MODELS)}",
            code="model-unknown",
            option="--model",
            value=model,
            known=["strip", *MODELS],
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
    asked: dict[hat.ProgramKind, bool] = {
        **{one: model == one for one in MODELS},
        "blocks": blocks,
        "malleable": malleable,
        "c": c,
        "fortran": fortran,
    }
    kind: hat.ProgramKind = next((one for one, wanted in asked.items() if wanted), "rigid")
    try:
        paths = hat.new(name, into, kind=kind)
    except hat.ScaffoldError as error:
        if isinstance(error.__cause__, OSError):
            raise unwritable(str(into / name), error.__cause__) from None
        raise UsageError(str(error), **coded(error)) from None
    if json:
        show_json({"schema": "hat.new/1", "files": [str(path) for path in paths]})
    else:
        for path in paths:
            show(str(path))
        build = "make && " if c or fortran else ""
        show(f"next:  cd {paths[0].parent} && {build}python agent.py")
    return 0


def check(
    files: Annotated[list[Path], typer.Argument(help="Any files that apples reads.")],
    json: Json = False,
) -> int:
    """Report every error with file, line, field and what would be right.

    Example: hat check template.toml user.toml
    """
    return check_files(files, json)
