"""The JSON document of a failed command, as a type."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict


class ErrorDocument(TypedDict):
    """A command with ``--json`` that fails prints this line on standard error."""

    schema: Literal["apples.error/1"]
    code: str
    """Code of the error."""
    exit_code: int
    """Exit code of the command."""
    message: str
    """The line that the command prints without ``--json``."""
    fields: dict[str, Any]
    """Fields of the error, for example file, line, field, host and value."""
