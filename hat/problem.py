"""The problems of a document: each `Problem` prints one line, and one `DocumentError` holds them all."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass

Loc = tuple[str | int, ...]
"""Place of a value in a document: keys, and indexes of arrays."""

MAX_VALUE = 60
MAX_MESSAGE = 400
MAX_LINES = 50


class HatError(Exception):
    """Base class of the errors of `hat`; the message addresses the user, one line per problem. Permanent.

    `nws` and `apples` have a base class that takes code and fields in the same way; a test holds them equal.

    Parameters
    ----------
    message
        ``where: what is wrong (value); what to do``.
    code
        The error's stable name in kebab case, such as ``field-unknown``; by default the code of the class.
    fields
        Values that the message contains, for programs, as plain JSON; a field of None is left out.
    """

    code = "hat-error"

    def __init__(self, message: object = "", /, *, code: str = "", **fields: object) -> None:
        super().__init__(message)
        self.code = code or type(self).code
        self.fields: Mapping[str, object] = {
            name: value for name, value in fields.items() if value is not None
        }


class InvalidValueError(HatError, ValueError):
    """A value of a document or of a command line is invalid. Permanent."""

    code = "value-invalid"


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a document.

    Attributes
    ----------
    file
        The document, or another source of the value (``--set``).
    line
        Counted from 1; None if the problem has no line.
    field
        Such as ``host[1].cpu``; empty for the whole document.
    message
        The rule, and the value that breaks it.
    suggestion
        The nearest legal name, or empty.
    code
        The problem's stable name in kebab case, such as ``field-unknown``.

    Examples
    --------
    >>> print(Problem("hosts.toml", 8, "host[1].cpu", "must be at most 1 (is 2)", code="value-range"))
    hosts.toml:8: host[1].cpu: must be at most 1 (is 2)
    """

    file: str
    line: int | None
    field: str
    message: str
    suggestion: str = ""
    _: KW_ONLY
    code: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        hint = f"did you mean '{self.suggestion}'?" if self.suggestion else ""
        return ": ".join(filter(None, (printable(place), self.field, self.message, hint)))


class DocumentError(HatError):
    """A document that cannot be used, with every problem found in it.

    Attributes
    ----------
    problems
        In the order of the document; never empty.
    code
        The code of the problems if all have the same code, else ``document-invalid``.
    fields
        File, line and field of the first problem, and all `problems` as a list of mappings.
    """

    code = "document-invalid"

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        codes = {problem.code for problem in self.problems}
        first = asdict(self.problems[0])
        place = {name: first[name] or None for name in ("file", "line", "field")}
        super().__init__(
            self.problems,
            code=codes.pop() if len(codes) == 1 else "",
            **place,
            problems=[asdict(problem) for problem in self.problems[:MAX_LINES]],
        )

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.problems[:MAX_LINES]]
        if more := len(self.problems) - len(lines):
            lines.append(f".. and {more} more")
        return "\n".join(lines)


def printable(text: str, longest: int = MAX_MESSAGE) -> str:
    r"""Return `text` on one line: escape control characters, cut the middle of long text.

    Examples
    --------
    >>> printable("red: \x1b[31m")
    'red: \\x1b[31m'
    """
    if len(text) > longest:
        kept = (longest - 2) // 2
        text = f"{text[:kept]}..{text[-kept:]}"
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shown(value: object) -> str:
    """Return a value as a message shows it: short, printable, in the terms of TOML.

    Examples
    --------
    >>> shown(True), shown("x"), shown([1, 2]), shown({}), shown(2.0)
    ('true', "'x'", 'a list of 2', 'a table', '2.0')
    """
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return f"'{printable(value, MAX_VALUE)}'"
        case int() if value.bit_length() > 128:
            return f"a whole number of {value.bit_length()} bits"
        case dict():
            return "a table"
        case list() | tuple():
            return f"a list of {len(value)}"
        case _:
            return printable(str(value), MAX_VALUE)


def field_name(loc: Sequence[str | int]) -> str:
    """Return a place in a document as a user would write it.

    Examples
    --------
    >>> field_name(("host", 1, "cpu")), field_name(("a b", "c"))
    ('host[1].cpu', '"a b".c')
    """
    name = ""
    for part in loc:
        if isinstance(part, int):
            name += f"[{part}]"
        else:
            bare = re.fullmatch(r"[A-Za-z0-9_-]{1,60}", part)
            key = part if bare else f'"{printable(part, MAX_VALUE)}"'
            name += f".{key}" if name else key
    return printable(name)


def nearest(name: str, legal: Collection[str]) -> str:
    """Return the legal name that was probably meant, or an empty text.

    Examples
    --------
    >>> nearest("bandwith", ["latency", "bandwidth"]), nearest("time", ["execution_time"])
    ('bandwidth', 'execution_time')
    """
    if len(name) > MAX_VALUE:
        return ""
    folded = {word.casefold(): word for word in legal if len(word) <= MAX_VALUE}
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    if close:
        return folded[close[0]]
    longer = [word for word in legal if len(name) >= 3 and name in word]
    return longer[0] if len(longer) == 1 else ""
