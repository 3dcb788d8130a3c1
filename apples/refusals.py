"""What kept something from being done, as words and an exit code that can be told to another process, and back."""

from __future__ import annotations

import errno

from apples.errors import (
    ApplesError,
    ApplicationError,
    DeadlineError,
    InfeasibleError,
    LaunchError,
    UsageError,
)

ERRORS = (UsageError, InfeasibleError, LaunchError, ApplicationError, DeadlineError)


def refusal_of(error: Exception | SystemExit) -> tuple[str, int]:
    """Return what kept something from being done, in words, and its exit code; `error_of` is the way back.

    Nothing of ours ends by `SystemExit`: what does is a user's code, and nothing was answered.
    """
    if isinstance(error, ApplesError):
        return str(error), error.exit_code
    if getattr(error, "problems", None):  # a hat.DocumentError, by its face
        return str(error), UsageError.exit_code
    from apples.plugins import where_in_users_code  # noqa: PLC0415 - only where something went wrong

    kind, whose = type(error).__name__, where_in_users_code(error)
    if whose:
        return f"{whose}: {kind}: {error}", UsageError.exit_code
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or error}", LaunchError.exit_code
    return f"internal error: {kind}: {error}", ApplesError.exit_code


RESOURCES = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOMEM})
"""Why the system refuses to write where not the name is wrong but what is written to."""


def error_kind(error: OSError) -> type[ApplesError]:
    """Return what it is that a file which a user named cannot be written: `LaunchError` on a full disk."""
    return LaunchError if error.errno in RESOURCES else UsageError


def unwritable(place: str, error: OSError) -> ApplesError:
    """Return the refusal of a file that a user named and that cannot be written."""
    return error_kind(error)(f"{place}: {error.strerror or error}")


def error_of(text: str, code: int) -> ApplesError:
    """Return the error of these words that ends a command with this exit code."""
    kinds = {kind.exit_code: kind for kind in ERRORS}
    return kinds.get(code, ApplesError)(text)
