"""The base of the errors of `nws`: a stable code and fields beside the message."""

from collections.abc import Mapping
from typing import Any


class CodedError(Exception):
    """An error with a stable code; the message is one line that a user can act on.

    `hat` and `apples` have a base class that takes code and fields in the same way; a test holds them equal.

    Parameters
    ----------
    message
        ``where: what is wrong (value); what to do``.
    code
        The error's stable name in kebab case, such as ``series-unknown``; by default the code of the class.
    fields
        Values that the message contains, for programs, as plain JSON; a field of None is left out.

    Examples
    --------
    >>> error = InputError("level: must be below 1 (is 2)", code="value-range", field="level", value=2)
    >>> error.code, error.fields
    ('value-range', {'field': 'level', 'value': 2})
    """

    code = "nws-error"

    def __init__(self, message: object = "", /, *, code: str = "", **fields: object) -> None:
        super().__init__(message)
        self.code = code or type(self).code
        self.fields: Mapping[str, object] = {
            name: value for name, value in fields.items() if value is not None
        }


class InputError(CodedError, ValueError):
    """An option, a file or a message of a user is invalid. Permanent until it changes."""

    code = "value-invalid"


class SeriesUnknownError(CodedError, LookupError):
    """Nothing was measured of a series yet. Transient."""

    code = "series-unknown"


class NotStartedError(CodedError, TimeoutError):
    """A service did not start in time. Transient."""

    code = "service-not-started"


def coded(error: object, code: str = "") -> dict[str, Any]:
    """Return code and fields of an error, to raise another error with the same.

    Parameters
    ----------
    error
        Any exception.
    code
        The code of an exception that has none, such as a `ValueError`.

    Examples
    --------
    >>> coded(SeriesUnknownError("no measurement of cpu/ada", series="cpu/ada"))
    {'series': 'cpu/ada', 'code': 'series-unknown'}
    >>> coded(ValueError("no number"), "value-invalid")
    {'code': 'value-invalid'}
    """
    own, fields = getattr(error, "code", ""), getattr(error, "fields", {})
    if not isinstance(own, str) or not isinstance(fields, Mapping):  # of another library
        own, fields = "", {}
    return {**{str(name): value for name, value in fields.items()}, "code": own or code}
