"""Every error that apples raises for a user: a stable code, typed fields, one formatted line, and an exit code.

`failure_of` turns any exception into a `Failure`, which crosses process boundaries as JSON.

The exit codes are those of every command: 2 usage or bad input, 3 no feasible plan, 4 resources or launch
failed (also: busy), 5 application failed, 6 verification failed, 7 time-out.

This module is sent over ssh and runs without site packages, so it imports the standard library only.
``docs/reference/errors.md`` lists all codes; ``make errors`` generates it from the places that raise them.
"""

from __future__ import annotations

import errno
import math
import numbers
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, Self


class ApplesError(Exception):
    """Base class of the errors of apples; the message is one line that a user can act on.

    The base classes of `nws` and `hat`, which import nothing of `apples`, have the same code and fields;
    ``tests/test_errors.py`` compares the three.

    Parameters
    ----------
    message
        ``where: what is wrong (value); what to do``.
    code
        The error's stable name in kebab case, such as ``host-unknown``; by default the code of the class.
    fields
        Values in the message, for programs: `file`, `line`, `field`, `host`, `value`, `bound`, .. Each is plain
        JSON: text, a number, a list or a mapping of these. A path becomes text, and a field of None is left out.

    Examples
    --------
    >>> error = UsageError("no host 'eva'", code="host-unknown", file="hosts.toml", host="eva")
    >>> error.code, error.fields["host"], error.exit_code
    ('host-unknown', 'eva', 2)
    """

    exit_code: ClassVar[int] = 1
    code = "internal-error"

    def __init__(self, message: object = "", /, *, code: str = "", **fields: Any) -> None:
        super().__init__(message)
        self.code = code or type(self).code
        self.fields: Mapping[str, Any] = {
            name: os.fspath(value) if isinstance(value, os.PathLike) else value
            for name, value in fields.items()
            if value is not None
        }


class UsageError(ApplesError):
    """Bad input: an option, a file, a name. Permanent until the input changes."""

    exit_code = 2
    code = "usage"


class ModelError(ApplesError):
    """A model, planner or distance returned an invalid number of seconds or rows."""

    exit_code = 2
    code = "model-invalid"


class InfeasibleError(ApplesError):
    """No plan satisfies the constraints. Permanent under this weather."""

    exit_code = 3
    code = "no-feasible-plan"


class LaunchError(ApplesError):
    """The resources are unavailable or the program did not start. Often transient."""

    exit_code = 4
    code = "launch-failed"


class ManagerUnreachableError(LaunchError):
    """A resource manager does not answer, so a schedule cannot be checked against it. Transient."""

    code = "manager-unreachable"


class ApplicationError(ApplesError):
    """The program started and then failed, or wrote a line outside the protocol."""

    exit_code = 5
    code = "application-failed"


class VerificationError(ApplesError):
    """The program's result differs from that of the sequential run."""

    exit_code = 6
    code = "verification-failed"


class DeadlineError(ApplesError):
    """A wait took longer than its deadline."""

    exit_code = 7
    code = "deadline-exceeded"


def text_of(error: BaseException) -> str:
    r"""Return the message of an error of a user's code, on one line.

    Examples
    --------
    >>> text_of(ValueError("no rows:\n  none"))
    'no rows: none'
    """
    return " ".join(_message_of(error).split())


def repr_of(value: object) -> str:
    """Return a value of a user's code as a message shows it: on one line, of at most 200 characters.

    Examples
    --------
    >>> repr_of("near"), len(repr_of("x" * 1000))
    ("'near'", 200)
    """
    try:
        text = repr(value)
    except Exception as failure:  # noqa: BLE001 - a user's code
        text = f"a {type(value).__name__} (its __repr__ raised {type(failure).__name__})"
    return " ".join(text.split())[:200]


def _message_of(error: BaseException) -> str:
    """Return the message of an error, even if its `__str__` fails."""
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 - a user's code
        return f"its __str__ raised {type(failure).__name__}"


users_code: dict[str, str] = {}
"""Files that users' code was loaded from, with the option that loaded each; the loader fills it."""


def where_in_users_code(error: BaseException) -> str:
    """Return the option that loaded the code that raised an error, with file and line; empty for other code."""
    place = place_in_users_code(error)
    return (
        f"{users_code[place['file']]} failed at {place['file']}:{place['line']}" if place else ""
    )


def place_in_users_code(error: BaseException) -> dict[str, Any]:
    """Return `file` and `line` of the user's code that raised an error; empty for other code."""
    place: dict[str, Any] = {}
    step = error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        if file in users_code:
            place = {"file": file, "line": step.tb_lineno}
        step = step.tb_next
    return place


def place_of_function(function: object) -> dict[str, Any]:
    """Return `file` and `line` where a function, or the function of a `partial`, begins; empty for others."""
    code = getattr(getattr(function, "func", function), "__code__", None)
    return {"file": code.co_filename, "line": code.co_firstlineno} if code else {}


SYSTEM_CODES: Mapping[int | None, str] = {errno.ENOSPC: "disk-full", errno.EDQUOT: "disk-full"}


def system_code(error: OSError) -> str:
    """Return the code of an error of the operating system: ``disk-full`` or ``system-error``."""
    return SYSTEM_CODES.get(error.errno, "system-error")


def unusable(place: str | os.PathLike[str], error: OSError) -> LaunchError:
    """Return the error of a file or directory of ours that the operating system does not let us use."""
    return LaunchError(
        f"{place}: {error.strerror or error}",
        **{**coded(error, code=system_code(error)), "file": place},
    )


def coded(error: object, *, code: str = "") -> dict[str, Any]:
    """Return code and fields of an error of `nws` or `hat`, to raise an error of ours with the same.

    Parameters
    ----------
    error
        Any exception. Exceptions of other libraries may have attributes of the same names but of other types: for
        example, the `code` of an HTTP error is a number. They are ignored.
    code
        The code for an exception that has none, such as a `ValueError`.

    Examples
    --------
    >>> coded(UsageError("no host 'eva'", code="host-unknown", host="eva"))
    {'host': 'eva', 'code': 'host-unknown'}
    >>> coded(ValueError("no name"), code="name-invalid")
    {'code': 'name-invalid'}
    """
    own, fields = getattr(error, "code", ""), getattr(error, "fields", {})
    if not isinstance(own, str) or not isinstance(fields, Mapping):
        own, fields = "", {}
    return {**{str(name): value for name, value in fields.items()}, "code": own or code}


@contextmanager
def within(file: object) -> Iterator[None]:
    """Prefix the usage errors of a block with the file that they are about, and add it as their field `file`.

    Examples
    --------
    >>> with within("sweep.toml"):
    ...     raise UsageError("work: must be positive", code="value-range", field="work")
    Traceback (most recent call last):
    apples.errors.UsageError: sweep.toml: work: must be positive
    """
    try:
        yield
    except UsageError as error:
        fields = {"file": str(file), **error.fields}
        raise UsageError(f"{file}: {error}", code=error.code, **fields) from None


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
"""Maximum length of a text in a field: the longest path of Linux."""
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

    The values may come from a user's code, from a file or from another process. Infinite numbers, NaN, and
    objects that JSON lacks become text. Values beyond `MAX_FIELDS_CHARACTERS` are left out.

    Examples
    --------
    >>> plain_fields({"value": float("nan"), "bound": 2, "hosts": ("ada", "bob")})
    {'value': 'nan', 'bound': 2, 'hosts': ['ada', 'bob']}
    """
    return dict(_FieldSpace().items(fields, 0))


class _FieldSpace:
    """The number of characters that remain for the fields of one error."""

    def __init__(self) -> None:
        self._left = MAX_FIELDS_CHARACTERS

    def items(self, mapping: Mapping[Any, Any], depth: int) -> Iterable[tuple[str, Any]]:
        """Yield names and plain values while characters remain."""
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
    """The reason that an action failed.

    Attributes
    ----------
    message
        One line; several lines for several problems of a document.
    exit_code
        The exit code of a command with this failure.
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

        If the exit code is no exit code of an error, it is a launch failure. A code that is not in kebab case is
        dropped.
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
    """Return an error as a `Failure`; `Failure.error` is the inverse.

    An `ApplesError`, and an error of `hat`, `nws` or a program's task, has code and fields of its own.
    Otherwise an exception raised in a user's code is ``user-code-failed``, an error of the operating system
    ``system-error`` or, if a file system is full, ``disk-full``, and any other ``internal-error``. Our own code
    never raises `SystemExit`, so that is a user's.
    """
    if isinstance(error, ApplesError):
        code = valid_code(error.code) or type(error).code
        return _failure(_message_of(error), error.exit_code, code, error.fields)
    if _is_coded(error):
        return _failure(_message_of(error), UsageError.exit_code, error.code, error.fields)  # type: ignore[attr-defined]
    kind, place = type(error).__name__, where_in_users_code(error)
    if place:
        text = f"{place}: {kind}: {text_of(error)}"
        found = {**place_in_users_code(error), "kind": kind}
        return _failure(text, UsageError.exit_code, "user-code-failed", found)
    if isinstance(error, OSError):
        reason, file = error.strerror or text_of(error), error.filename
        text = f"{file}: {reason}" if file else str(reason)
        found = {"file": str(file)} if file else {}
        return _failure(text, LaunchError.exit_code, system_code(error), found)
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
        # Python stores the bytes of a name that is not UTF-8 as surrogates. Our own code never makes a surrogate.
        text = f"{error.object!r}: must be valid UTF-8"
        return _failure(text, UsageError.exit_code, "name-not-utf8", {"value": error.object})
    text = f"internal error: {kind}: {text_of(error)}"
    return _failure(text, 1, "internal-error", {"kind": kind})


def _failure(message: str, exit_code: int, code: str, fields: Mapping[str, Any]) -> Failure:
    return Failure(bounded_message(message), exit_code, code, fields)


OUR_PACKAGES = frozenset({__name__.partition(".")[0], "nws", "hat"})


def _is_coded(error: BaseException) -> bool:
    """Return whether an error of ours is no `ApplesError` but has a code and fields.

    `hat`, `nws` and the module that programs import have such classes; a user's code may derive from them.
    An error of another library may have attributes of these names with other meanings.
    """
    return (
        any(str(kind.__module__).partition(".")[0] in OUR_PACKAGES for kind in type(error).__mro__)
        and bool(valid_code(getattr(error, "code", "")))
        and isinstance(getattr(error, "fields", None), Mapping)
    )


RESOURCES = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOMEM})
"""System errors of the storage device, independent of the file's name."""


def error_kind(error: OSError) -> type[ApplesError]:
    """Return the class of the error of a user's file that cannot be written: `LaunchError` on a full device."""
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
