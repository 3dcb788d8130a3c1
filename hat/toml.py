"""Read TOML text into a table, or report the line that is not TOML; write values as TOML text.

`table_of` reads with `tomllib`, which is quick and does not record lines. `hat.positions` computes the line of
each value with tomlkit, only for a document with problems. `dump` writes with tomlkit, which keeps the comments
of the text that it updates.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any, NoReturn

from hat.problem import DocumentError, Problem, field_name, printable, shown

DEEPEST = 64
"""Maximal parts of a key; the time of `tomllib` is quadratic in the parts."""
MAX_DIGITS = 4300
"""Maximal digits of a number: Python converts no more, and `tomllib` needs a hundred bytes for each."""

POSITION = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")

SET_TWICE = ("Cannot overwrite", "Cannot declare", "Cannot mutate", "Duplicate", "Cannot redefine")
"""First words of the messages of `tomllib` that report a key with two values."""

PART = r"""(?: [A-Za-z0-9_-]++ | "(?:[^"\\\n]++|\\.)*+" | '[^'\n]*+' ) [ \t]*+ \. [ \t]*+"""
LONG_NUMBER = re.compile(f"[0-9A-Fa-f_]{{{MAX_DIGITS + 1}}}")
BOMB = re.compile(
    rf"(?P<deep> (?: {PART} ){{{DEEPEST}}} ) | (?P<long> {LONG_NUMBER.pattern} )"
    r"""
    | \"\"\" (?:[^"\\]++|\\.|"{1,2}(?!"))*+        (?:"{3,5}|\\?\Z)
    | \'\'\' (?:[^']++|'{1,2}(?!'))*+              (?:'{3,5}|\Z)
    | "      (?:[^"\\\n]++|\\[^\n])*+              (?:"|\\?(?=\n|\Z))
    | '      [^'\n]*+                              (?:'|(?=\n|\Z))
    | \# [^\n]*+
    """,
    re.VERBOSE | re.DOTALL,
)
"""A key of too many parts or a number of too many digits. The pattern skips strings and comments."""


# ------------------------------------------------------------------------------- reading
def text_of(content: str | bytes, source: str) -> str:
    r"""Return a document's text, line ends as ``\n``, without a byte order mark."""
    text = content if isinstance(content, str) else _decoded(content, source)
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def _decoded(content: bytes, source: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        _refuse(source, line, f"is not UTF-8 text (byte 0x{content[error.start]:02x})")


def table_of(text: str, source: str) -> dict[str, Any]:
    """Return the table of a TOML text.

    Raises
    ------
    DocumentError
        With the first place at which the text is not TOML.
    """
    if any(line.count(".") > DEEPEST for line in text.split("\n")) or LONG_NUMBER.search(text):
        for match in BOMB.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            if match["deep"]:
                _refuse(source, line, f"a key of more than {DEEPEST} parts")
            if match["long"]:
                _refuse(source, line, f"a number of more than {MAX_DIGITS} digits")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        _explain(str(error), text, source)
    except RecursionError:
        _refuse(source, None, "is nested too deeply")


def _explain(message: str, text: str, source: str) -> NoReturn:
    """Raise the error of `tomllib` with its line; for a key that is set twice, with its name and both lines."""
    position = POSITION.search(message)
    what = POSITION.sub("", message)
    line, column = text.rstrip("\n").count("\n") + 1, 0
    if position and position[1]:
        line, column = int(position[1]), int(position[2])
    if what.startswith(SET_TWICE):
        from hat.positions import repetition  # noqa: PLC0415 - slow to load, for wrong documents only

        lines = text.split("\n")
        end = sum(len(one) + 1 for one in lines[: line - 1]) + (column or len(lines[line - 1]))
        # The text after this line may have other mistakes, so it is left out.
        if twice := repetition("\n".join(lines[:line]) + "\n", end):
            loc, first, again = twice
            said = f"is set twice (first on line {first})"
            raise DocumentError(
                [Problem(source, again, field_name(loc), said, code="field-repeated")]
            )
    where = f" (column {column})" if column else " (at the end)"
    _refuse(source, line, f"is not valid TOML: {what[:1].lower()}{what[1:]}{where}")


def _refuse(source: str, line: int | None, message: str) -> NoReturn:
    raise DocumentError([Problem(source, line, "", printable(message), code="file-invalid")])


# ------------------------------------------------------------------------------- writing
def dump(value: object, *, over: str = "") -> str:
    r"""Return a model, a dataclass or a mapping as TOML text; `parse` reads the text as an equal object.

    Only fields that were set are written: defaults and None are left out.

    Parameters
    ----------
    over
        A TOML text to update. Where its values stay equal, comments, order and spelling stay too. A comment
        above a header counts as the end of the table before it.

    Raises
    ------
    TypeError, ValueError
        TOML cannot represent the value: a lone surrogate, or an object of another kind.

    Examples
    --------
    >>> print(dump({"name": "heat", "data": [{"name": "old"}], "structure": {"rows": "grid"}}))
    name = "heat"
    <BLANKLINE>
    [[data]]
    name = "old"
    <BLANKLINE>
    [structure]
    rows = "grid"
    <BLANKLINE>
    >>> dump({"cpu": 0.5, "slots": 2}, over="cpu = 1.0  # dedicated\n")
    'cpu = 0.5  # dedicated\nslots = 2\n'
    """
    import tomlkit  # noqa: PLC0415 - slow to load, and reading does not need it

    document = tomlkit.parse(over)
    _write(document, _plain(value))
    text = tomlkit.dumps(document).lstrip("\n")
    text.encode()  # raises for a lone surrogate
    return text or "\n"


def _plain(value: object) -> Mapping[str, Any]:
    from pydantic import BaseModel, TypeAdapter  # noqa: PLC0415 - a mapping is written without it

    if isinstance(value, Mapping):
        return value
    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True, exclude_unset=True, exclude_none=True)
    plain = TypeAdapter(type(value)).dump_python(value, by_alias=True, exclude_none=True)
    if not isinstance(plain, Mapping):
        raise TypeError(f"{shown(value)} is not a table")
    return plain


def _write(table: Any, wanted: Mapping[str, Any]) -> None:
    """Set a tomlkit table to the wanted values; change only the values that differ."""
    says = table.unwrap()
    for key in says.keys() - wanted.keys():
        del table[key]
    for key, value in sorted(wanted.items(), key=lambda pair: _has_headers(pair[1])):
        old = table.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            _write(old, value)
        elif _are_tables(value) and _are_tables(old):
            for i, entry in enumerate(value):
                if i < len(old):
                    _write(old[i], entry)
                else:
                    old.append(_item(entry))
            del old[len(value) :]
        elif old is None or repr(says[key]) != repr(value):
            table[key] = _item(value)


def _has_headers(value: object) -> bool:
    """Return whether a value gets headers of its own: a table, or a list of tables only."""
    return isinstance(value, Mapping) or _are_tables(value)


def _are_tables(value: object) -> bool:
    """Return whether a value is a list of tables only."""
    if not isinstance(value, list | tuple):
        return False
    return bool(value) and all(isinstance(entry, Mapping) for entry in value)


def _item(value: object) -> Any:
    """Return a value as a tomlkit item, with an empty line before each header."""
    import tomlkit  # noqa: PLC0415 - as in `dump`

    if isinstance(value, Mapping):
        table = tomlkit.table(is_super_table=False)
        table.trivia.indent = "\n"
        _write(table, value)
        return table
    if isinstance(value, list | tuple) and _has_headers(value):
        tables = tomlkit.aot()
        for entry in value:
            tables.append(_item(entry))
        return tables
    return tomlkit.item(value)
