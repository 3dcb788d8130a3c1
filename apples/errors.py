"""Every error that apples raises for a user: a stable code, typed fields, one formatted line, and an exit code.

The exit codes are those of every command: 2 usage or bad input, 3 no feasible plan, 4 resources or launch
failed (also: busy), 5 application failed, 6 verification failed, 7 time-out.

``docs/reference/errors.md`` lists all codes; ``make errors`` generates it from the places that raise them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar


class ApplesError(Exception):
    """Base class of the errors of apples; the message is one line that a user can act on.

    The base classes of `nws` and `hat`, which import nothing of `apples`, take code and fields in the same way;
    ``tests/test_refusals.py`` holds the three equal.

    Parameters
    ----------
    message
        ``where: what is wrong (value); what to do``.
    code
        The error's stable name in kebab case, such as ``host-unknown``; by default the code of the class.
    fields
        Values that the message contains, for programs: `file`, `line`, `field`, `host`, `value`, `bound`, ..
        Each is plain JSON: text, a number, a list or a mapping of these. A path becomes text, and a field of
        None is left out.

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
    """A model, planner or distance returned something that is no number of seconds or rows."""

    exit_code = 2
    code = "model-invalid"


class InfeasibleError(ApplesError):
    """No plan satisfies the constraints. Permanent under this weather."""

    exit_code = 3
    code = "no-feasible-plan"


class LaunchError(ApplesError):
    """The resources could not be had or the program did not start. Often transient."""

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
    """Return the message of an error of a user's code, whose `__str__` may itself fail.

    Examples
    --------
    >>> text_of(ValueError("no rows"))
    'no rows'
    """
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 - a user's code
        return f"its __str__ raised {type(failure).__name__}"


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
        Any exception. One of another library may have attributes of the same names but of other types:
        the `code` of an HTTP error is a number. They are ignored.
    code
        The code of an exception that has none, such as a `ValueError`.

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
