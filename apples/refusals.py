"""Why an action failed, as a value that crosses process boundaries, and the error that it came from."""

from __future__ import annotations

import errno
import math
import numbers
import re
import sys
from collections.abc import Iterable, Mapping
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
    text_of,
)

ERRORS = (
    UsageError,
    InfeasibleError,
    LaunchError,
    ApplicationError,
    VerificationError,
    DeadlineError,
)


EXIT_CODES = frozenset({1, *(kind.exit_code for kind in ERRORS)})

MAX_LINE_CHARACTERS = 2_000
MAX_LINES = 100
MAX_TEXT_CHARACTERS = 4_096
"""Of one text in a field: as long as the longest path of Linux."""
MAX_FIELDS_CHARACTERS = 60_000
MAX_FIELD_DEPTH = 6

CODE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
MAX_CODE_CHARACTERS = 64


def shortened(text: str, longest: int) -> str:
    """Return a text with its middle cut if it is longer than `longest` characters.

    Examples
    --------
    >>> shortened("0123456789", 6)
    '01..89'
    """
    kept = (longest - 2) // 2
    return text if len(text) <= longest else f"{text[:kept]}..{text[-kept:]}"


def bounded_message(message: str) -> str:
    """Return a message of at most `MAX_LINES` lines of at most `MAX_LINE_CHARACTERS`."""
    lines = message.split("\n", MAX_LINES)
    if len(lines) > MAX_LINES:
        lines[MAX_LINES:] = [".. and more lines"]
    return "\n".join(shortened(line, MAX_LINE_CHARACTERS) for line in lines)


def valid_code(code: object) -> str:
    """Return a code if it is in kebab case and at most `MAX_CODE_CHARACTERS` long, else an empty text."""
    valid = isinstance(code, str) and len(code) <= MAX_CODE_CHARACTERS and CODE.fullmatch(code)
    return str(code) if valid else ""


def plain_fields(fields: Mapping[Any, Any]) -> dict[str, Any]:
    """Return fields as JSON: bounded in size and depth, without NaN and infinity.

    The values may come from a user's code, from a file or from another process. A number that is not finite, and
    an object that JSON does not have, becomes text. Values after `MAX_FIELDS_CHARACTERS` are left out.

    Examples
    --------
    >>> plain_fields({"value": float("nan"), "bound": 2, "hosts": ("ada", "bob")})
    {'value': 'nan', 'bound': 2, 'hosts': ['ada', 'bob']}
    """
    return dict(_FieldSpace().items(fields, 0))


class _FieldSpace:
    """The characters that the fields of one error may still have."""

    def __init__(self) -> None:
        self._left = MAX_FIELDS_CHARACTERS

    def items(self, mapping: Mapping[Any, Any], depth: int) -> Iterable[tuple[str, Any]]:
        """Yield names and plain values while there is space."""
        for name, value in mapping.items():
            if self._left <= 0:
                return
            yield self._text(name), self.plain(value, depth + 1)

    def plain(self, value: Any, depth: int) -> Any:
        """Return a value as JSON."""
        if value is None or isinstance(value, bool):
            self._left -= 5
            return value
        if isinstance(value, numbers.Real):
            return self._number(value)
        if isinstance(value, Mapping) and depth < MAX_FIELD_DEPTH:
            return dict(self.items(value, depth))
        if isinstance(value, list | tuple | set | frozenset) and depth < MAX_FIELD_DEPTH:
            elements = []
            for element in value:
                if self._left <= 0:
                    break
                elements.append(self.plain(element, depth + 1))
            return elements
        if isinstance(value, Mapping | list | tuple | set | frozenset):
            return ".."
        return self._text(value)

    def _number(self, value: numbers.Real) -> int | float | str:
        self._left -= 20
        if isinstance(value, numbers.Integral):
            number = int(value)
            bits = number.bit_length()
            return number if bits <= 128 else f"a whole number of {bits} bits"
        return float(value) if math.isfinite(value) else self._text(value)

    def _text(self, value: object) -> str:
        try:
            text = shortened(str(value), MAX_TEXT_CHARACTERS)
        except Exception:  # noqa: BLE001 - the __str__ of a user's class
            text = f"a {type(value).__name__}"
        self._left -= len(text) + 2
        return text


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
        """Return it as JSON of bounded size: `code`, `exit_code`, `message` and `fields`."""
        return {
            "code": self.code,
            "exit_code": self.exit_code,
            "message": bounded_message(self.message),
            "fields": plain_fields(self.fields),
        }

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Self:
        """Return the failure of a JSON document of another process.

        Without the exit code of an error it is a launch failure. A code that is not in kebab case is dropped.
        """
        exit_code, fields = document.get("exit_code"), document.get("fields")
        return cls(
            bounded_message(str(document.get("message") or "failed")),
            exit_code
            if type(exit_code) is int and exit_code in EXIT_CODES
            else LaunchError.exit_code,
            valid_code(document.get("code")),
            plain_fields(fields) if isinstance(fields, dict) else {},
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
        code = valid_code(error.code) or type(error).code
        return _failure(text_of(error), error.exit_code, code, error.fields)
    if _is_coded(error):
        return _failure(text_of(error), UsageError.exit_code, error.code, error.fields)  # type: ignore[attr-defined]
    from apples import plugins  # noqa: PLC0415 - only where something went wrong

    kind, place = type(error).__name__, plugins.where_in_users_code(error)
    if place:
        text = f"{place}: {kind}: {text_of(error)}"
        found = {**plugins.place_in_users_code(error), "kind": kind}
        return _failure(text, UsageError.exit_code, "user-code-failed", found)
    if isinstance(error, OSError):
        reason, file = error.strerror or text_of(error), error.filename
        text = f"{file}: {reason}" if file else str(reason)
        found = {"file": str(file)} if file else {}
        return _failure(text, LaunchError.exit_code, system_code(error), found)
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
        # Python holds the bytes of a name that is no UTF-8 as surrogates. Our own code never makes one.
        text = f"{error.object!r}: must be valid UTF-8"
        return _failure(text, UsageError.exit_code, "name-not-utf8", {"value": error.object})
    text = f"internal error: {kind}: {text_of(error)}"
    return _failure(text, 1, "internal-error", {"kind": kind})


def _failure(message: str, exit_code: int, code: str, fields: Mapping[str, Any]) -> Failure:
    return Failure(bounded_message(message), exit_code, code, fields)


def _is_coded(error: BaseException) -> bool:
    """Return whether an error is one of `hat`, `nws` or `apples.program`; each of these has a code and fields.

    An error of another library may have attributes of these names, with other meanings.
    """
    for name, kind in CODED_ERRORS:
        module = sys.modules.get(name)  # an error of a module that is not loaded was not raised
        if module is not None and isinstance(error, getattr(module, kind, ())):
            return bool(valid_code(getattr(error, "code", ""))) and isinstance(
                getattr(error, "fields", None), Mapping
            )
    return False


CODED_ERRORS = (
    ("hat.problem", "HatError"),
    ("nws.errors", "CodedError"),
    ("apples.program", "TaskError"),
)


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
