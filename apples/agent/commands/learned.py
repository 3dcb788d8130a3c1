"""``apples learned`` and ``apples forget``: show the learned state of applications, and remove it."""

from __future__ import annotations

from typing import Annotated

import typer

import hat
from apples.agent.describe_corrections import applications, forget_named
from apples.agent.text.plan import learned_document, learned_text
from apples.errors import UsageError
from apples.ui import options
from apples.ui.command_line import show_answer


def learned(
    application: Annotated[
        str | None,
        typer.Argument(
            metavar="APPLICATION", help="Name or folder; all applications if left out."
        ),
    ] = None,
    json: options.Json = False,
) -> int:
    """Show measured speeds and corrections: value, runs, and the error with and without each.

    Example: apples learned heat
    """
    known = applications()
    chosen = [state for state in known if application in (None, *state.names)]
    if application is not None and not chosen:
        raise unknown(application, [name for state in known for name in state.names])
    show_answer(learned_document(chosen), lambda: learned_text(chosen), json)
    return 0


def forget(
    name: Annotated[
        str,
        typer.Argument(metavar="APPLICATION|HOST", help="An application, its folder, or a host."),
    ],
    json: options.Json = False,
) -> int:
    """Remove the learned state of an application, or of a host from all applications.

    Example: apples forget heat
    """
    removed = forget_named(name)
    if not removed:
        known = applications()
        legal = [each for state in known for each in (*state.names, *state.hosts)]
        raise unknown(name, legal)
    document = {"schema": "apples.forgotten/1", "removed": removed}
    show_answer(document, lambda: "\n".join(f"forgotten: {line}" for line in removed), json)
    return 0


def unknown(name: str, known: list[str]) -> UsageError:
    """Return the error of a name that no learned state has."""
    near = hat.nearest(name, known)
    hint = f"; did you mean '{near}'?" if near else "; `apples learned` lists what is stored"
    return UsageError(
        f"'{hat.printable(name)}': no learned state of this application or host{hint}",
        code="learned-unknown",
        value=name,
        known=sorted(set(known))[:20],
    )
