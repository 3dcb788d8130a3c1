"""``apples learned`` and ``apples forget``: show the learned state of applications, and remove it."""

from __future__ import annotations

from typing import Annotated

import typer

from apples.agent.describe_corrections import applications, forget_named, named
from apples.agent.text.plan import learned_document, learned_text
from apples.ui import options
from apples.ui.command_line import show_answer


def learned(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="APPLICATION|HOST",
            help="An application, its folder, or a host; all applications if left out.",
        ),
    ] = None,
    json: options.Json = False,
) -> int:
    """Show measured speeds and corrections: value, runs, and the error with and without each.

    Example: apples learned heat
    """
    chosen = applications() if name is None else named(name)
    show_answer(learned_document(chosen), lambda: learned_text(chosen), json)
    return 0


def forget(
    name: Annotated[
        str,
        typer.Argument(metavar="APPLICATION|HOST", help="An application, its folder, or a host."),
    ],
    every: Annotated[
        bool, typer.Option("--all", help="The application of this name in every folder.")
    ] = False,
    json: options.Json = False,
) -> int:
    """Remove the learned state of an application, or of a host from all applications.

    Example: apples forget heat
    """
    removed = forget_named(name, every=every)
    document = {"schema": "apples.forgotten/1", "removed": removed}
    show_answer(document, lambda: "\n".join(f"forgotten: {line}" for line in removed), json)
    return 0
