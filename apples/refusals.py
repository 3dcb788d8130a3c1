"""Why an action failed, as a value that crosses process boundaries, and the error that it came from."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from apples.errors import (
    ApplesError,
    ApplicationError,
    DeadlineError,
    InfeasibleError,
    LaunchError,
    UsageError,
    VerificationError,
    system_code,
)

ERRORS = (
    UsageError,
    InfeasibleError,
    LaunchError,
    ApplicationError,
    VerificationError,
    DeadlineError,
)


class Failure(NamedTuple):
    """Why an action failed.

    Attributes
    ----------
    message
        One line; several where several problems of a document were found.
    exit_code
        The exit code of a command that fails so.
    code, fields
        As of an `ApplesError`.
    """

    message: str
    exit_code: int
    code: str
    fields: Mapping[str, Any]

    @property
    def line(self) -> str:
        """The message with its code, as a command prints it."""
        return f"{self.message} [{self.code}]"

    def document(self) -> dict[str, Any]:
        """Return it as JSON: `code`, `exit_code`, `message` and `fields`."""
        return {
            "code": self.code,
            "exit_code": self.exit_code,
            "message": self.message,
            "fields": {**self.fields},
        }

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Self:
        """Return the failure of a JSON document; without a valid exit code it is a launch failure."""
        exit_code, fields = document.get("exit_code"), document.get("fields")
        return cls(
            str(document.get("message") or "failed"),
            exit_code if isinstance(exit_code, int) else LaunchError.exit_code,
            str(document.get("code") or ""),
            {str(name): value for name, value in fields.items()}
            if isinstance(fields, dict)
            else {},
        )

    def error(self) -> ApplesError:
        """Return the error that ends a command with this exit code, code and message."""
        kinds = {kind.exit_code: kind for kind in ERRORS}
        error = kinds.get(self.exit_code, ApplesError)(self.message, code=self.code)
        error.fields = self.fields
        return error


def failure_of(error: BaseException) -> Failure:
    """Return why an action failed; `Failure.error` is the way back.

    An `ApplesError`, and an error of `hat` and `nws`, has code and fields of its own. Otherwise an exception
    raised in a user's code is ``user-code-failed``, an error of the operating system ``system-error`` or, if a
    file system is full, ``disk-full``, and any other ``internal-error``. Our own code never raises `SystemExit`,
    so that is a user's.
    """
    if isinstance(error, ApplesError):
        return Failure(str(error), error.exit_code, error.code, error.fields)
    code, fields = getattr(error, "code", None), getattr(error, "fields", None)
    if isinstance(code, str) and isinstance(fields, Mapping):  # of `hat` or `nws`
        return Failure(str(error), UsageError.exit_code, code, fields)
    from apples import plugins  # noqa: PLC0415 - only where something went wrong

    kind, place = type(error).__name__, plugins.where_in_users_code(error)
    if place:
        text = f"{place}: {kind}: {error}"
        found = {**plugins.place_in_users_code(error), "kind": kind}
        return Failure(text, UsageError.exit_code, "user-code-failed", found)
    if isinstance(error, OSError):
        reason, file = error.strerror or str(error), error.filename
        text = f"{file}: {reason}" if file else reason
        found = {"file": str(file)} if file else {}
        return Failure(text, LaunchError.exit_code, system_code(error), found)
    return Failure(f"internal error: {kind}: {error}", 1, "internal-error", {"kind": kind})


RESOURCES = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOMEM})
"""Errors of the system that are about the device written to, not about the name of the file."""


def error_kind(error: OSError) -> type[ApplesError]:
    """Return the class of the error of a user's file that cannot be written: `LaunchError` on a full disk."""
    return LaunchError if error.errno in RESOURCES else UsageError


def unwritable(place: str, error: OSError) -> ApplesError:
    """Return the error of a file that a user named and that cannot be written.

    Parameters
    ----------
    place
        The file as the user named it, after its option if it has one: ``--out page.html``. The error itself may
        name the temporary file beside it.
    """
    option, _, file = place.partition(" ") if place.startswith("--") else ("", "", place)
    code = "disk-full" if error.errno in RESOURCES else "file-unwritable"
    text = f"{place}: {error.strerror or error}"
    return error_kind(error)(text, code=code, file=file, option=option or None)
