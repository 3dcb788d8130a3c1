"""Shell completion of the parameters of a template.

A word that cannot be completed is no error: the shell then offers no names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import click


def parameters(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the parameters of the template that begin with the incomplete text."""
    with contextlib.suppress(Exception):
        import hat  # noqa: PLC0415

        template = hat.read(
            ctx.params.get("template") or Path("template.toml"), hat.ApplicationTemplate
        )
        return beginning_with(incomplete, (f"{name}=" for name in template.parameters))
    return []


def beginning_with(beginning: str, names: Iterable[str]) -> list[str]:
    """Return the names that begin with a text."""
    return [name for name in names if name.startswith(beginning)]
