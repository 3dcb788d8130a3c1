"""The base of the errors of `nws`: a stable code and fields beside the message."""

from collections.abc import Mapping


class CodedError(Exception):
    """An error with a stable code; the message is one line that a user can act on.

    Parameters
    ----------
    message
        ``where: what is wrong (value); what to do``.
    code
        The error's stable name in kebab case, such as ``series-unknown``; by default the code of the class.
    fields
        Values that the message contains, for programs, as plain JSON; a field of None is left out.
    """

    code = "nws-error"

    def __init__(self, message: object = "", *, code: str = "", **fields: object) -> None:
        super().__init__(message)
        self.code = code or type(self).code
        self.fields: Mapping[str, object] = {
            name: value for name, value in fields.items() if value is not None
        }
