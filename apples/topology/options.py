"""The option ``--messages`` of the commands that arrange hosts or CPUs by the messages of a run."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer


def _records(incomplete: str) -> list[str]:
    """Return the ids of this user's records that begin so."""
    with contextlib.suppress(Exception):
        from apples.io import record_folders  # noqa: PLC0415 - for this word only

        names = (path.name for path in record_folders.folders())
        return [name for name in names if name.startswith(incomplete)]
    return []


Messages = Annotated[
    str | None,
    typer.Option(
        "--messages",
        metavar="RUN",
        help="Who talks most is nearest: messages of a run (id, or its JSON), or rows of bytes.",
        autocompletion=_records,
    ),
]
