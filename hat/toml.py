"""TOML text: from bytes to a table, or the line on which it stops being TOML; and from values to text.

`table_of` reads with `tomllib`, which is quick and knows no lines; what tomlkit adds (`hat.positions`: the
line of each value) is computed only once something is wrong. `dump` writes with tomlkit, which keeps the
comments of a text that is written over.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any, NoReturn

from hat.problem import DocumentError, Problem, field_name, printable, shown

DEEPEST = 64
"""Parts of a key that are read; `tomllib` takes quadratic time for a key of very many."""
MAX_DIGITS = 4300
"""Digits of a number that are read: Python converts no more, and `tomllib` takes a hundred bytes for each."""

POSITION = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")

SET_TWICE = ("Cannot overwrite", "Cannot declare", "Cannot mutate", "Duplicate", "Cannot redefine")
"""How the messages of `tomllib` begin that mean one key has two values."""

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
"""A key of too many parts or a number of too many digits; or a string or a comment, in which there is neither."""


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
    """Return what a TOML text says.

    Raises
    ------
    DocumentError
        With the one place at which the text is no TOML.
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
    """Raise what `tomllib` found with its line; of a key that was set twice its name and both lines."""
    position = POSITION.search(message)
    what = POSITION.sub("", message)
    line, column = text.rstrip("\n").count("\n") + 1, 0
    if position and position[1]:
        line, column = int(position[1]), int(position[2])
    if what.startswith(SET_TWICE):
        from hat.positions import repetition  # noqa: PLC0415 - slow to load, for wrong documents only

        lines = text.split("\n")
        end = sum(len(one) + 1 for one in lines[: line - 1]) + (column or len(lines[line - 1]))
        # What comes after this line may be wrong too, and is left out.
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
    r"""Return a model, a dataclass or a mapping as TOML text that `parse` reads as an equal one.

    Only what was set is written: a default that nobody chose stays out, and so does None.

    Parameters
    ----------
    over
        A TOML text whose comments, order and spelling are kept wherever it says the same. A comment
        above a header counts as the end of the table before it.

    Raises
    ------
    TypeError, ValueError
        For what TOML cannot say: a lone surrogate, an object of another kind.

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
    text.encode()  # a lone surrogate is no text
    return text or "\n"


def _plain(value: object) -> Mapping[str, Any]:
    from pydantic import BaseModel, TypeAdapter  # noqa: PLC0415 - a mapping is written without it

    if isinstance(value, Mapping):
        return value
    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True, exclude_unset=True, exclude_none=True)
    plain = TypeAdapter(type(value)).dump_python(value, by_alias=True, exclude_none=True)
    if not isinstance(plain, Mapping):
        raise TypeError(f"{shown(value)} is no table")
    return plain


def _write(table: Any, wanted: Mapping[str, Any]) -> None:
    """Let a table of tomlkit's say what is wanted, changing only what it says otherwise."""
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
    """Tell whether a value gets headers of its own: a table, or a list of nothing but tables."""
    return isinstance(value, Mapping) or _are_tables(value)


def _are_tables(value: object) -> bool:
    """Tell whether a value is a list of nothing but tables."""
    if not isinstance(value, list | tuple):
        return False
    return bool(value) and all(isinstance(entry, Mapping) for entry in value)


def _item(value: object) -> Any:
    """Return a value as tomlkit's, with an empty line before each header."""
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
