"""The option ``--messages`` of the commands that arrange hosts or CPUs by the messages of a run."""

from __future__ import annotations

import contextlib

import click

from apples.ui.parameters import option


def _records(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the ids of this user's records that begin with the incomplete text."""
    with contextlib.suppress(Exception):
        from apples.io import record_folders  # noqa: PLC0415 - for this word only

        names = (path.name for path in record_folders.folders())
        return [name for name in names if name.startswith(incomplete)]
    return []


messages_option = option(
    "--messages",
    metavar="RUN",
    help="Place hosts that exchange most data near each other: messages of a run "
    "(id, or its JSON), or rows of bytes.",
    shell_complete=_records,
)
