"""``apples calibrate --learned | --forget``: show the learned state of applications, and remove it."""

from __future__ import annotations

from apples.agent.describe_corrections import applications, forget_named, named
from apples.agent.text.plan import learned_document, learned_text
from apples.errors import UsageError
from apples.ui.command_line import show_answer


def show_learned(name: str | None, json: bool) -> int:
    """Print measured speeds and corrections of an application or a host; of all applications without a name."""
    chosen = applications() if name is None else named(name)
    show_answer(learned_document(chosen), lambda: learned_text(chosen), json)
    return 0


def forget(name: str | None, every: bool, json: bool) -> int:
    """Remove the learned state of an application, or of a host from all applications."""
    if name is None:
        raise UsageError(
            "--forget: no name (give an application, its folder, or a host)",
            code="argument-missing",
            argument="APPLICATION|HOST",
        )
    removed = forget_named(name, every=every)
    document = {"schema": "apples.forgotten/1", "removed": removed}
    show_answer(document, lambda: "\n".join(f"forgotten: {line}" for line in removed), json)
    return 0
