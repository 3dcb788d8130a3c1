"""The file that ``--messages`` names: a document, or the result of a record."""

from __future__ import annotations

from pathlib import Path
from typing import overload

from apples.errors import UsageError, coded
from apples.storage import record_folders


@overload
def messages_of(run: str) -> Path: ...


@overload
def messages_of(run: str | None) -> Path | None: ...


def messages_of(run: str | None) -> Path | None:
    """Return the document of a run that ``--messages`` names: a file, or the result of a record.

    Raises
    ------
    UsageError
        There is no such file and no such record, or it cannot be read.
    """
    if run is None:
        return None
    try:
        if Path(run).is_file():
            return Path(run)
    except OSError as error:
        raise UsageError(
            f"--messages: {run[:200]}: {error.strerror}",
            code="file-unreadable",
            option="--messages",
            file=run[:200],
        ) from None
    try:
        return record_folders.named(run) / record_folders.RESULT
    except UsageError as error:
        raise UsageError(
            f"--messages: no file of that name, and {error}",
            **{**coded(error), "option": "--messages"},
        ) from None
