"""What kept something from being done, as words and an exit code that can be told to another process, and back."""

from __future__ import annotations

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


def error_of(text: str, code: int) -> ApplesError:
    """Return the error of these words that ends a command with this exit code."""
    kinds = {kind.exit_code: kind for kind in ERRORS}
    return kinds.get(code, ApplesError)(text)
