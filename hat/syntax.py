"""From bytes to text to a table, or the line on which it stops being UTF-8 or TOML."""

from __future__ import annotations

import re
import tomllib
from typing import Any, NoReturn

from hat.lines import DEEPEST, KeyLines, key_lines
from hat.problem import DocumentError, Problem, field_name, printable

POSITION = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")

SET_TWICE = ("Cannot overwrite", "Cannot declare", "Cannot mutate", "Duplicate", "Cannot redefine")
"""How the messages of `tomllib` begin that mean one key has two values."""


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
    # tomllib takes quadratic time for a key of very many parts, so such a key is refused first
    if any(line.count(".") > DEEPEST for line in text.split("\n")):
        deep = key_lines(text).deep
        if deep is not None:
            _refuse(source, deep, f"a key of more than {DEEPEST} parts")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        _explain(str(error), text, source)
    except RecursionError:
        _refuse(source, None, "is nested too deeply")
    except ValueError as error:  # whole numbers of more digits than Python converts
        _refuse(source, None, f"is not valid TOML: {printable(str(error).partition(';')[0])}")


def _explain(message: str, text: str, source: str) -> NoReturn:
    """Raise what `tomllib` found with its line, and the name of a key that was set twice."""
    position = POSITION.search(message)
    what = POSITION.sub("", message)
    line, column = _line(text), 0
    if position and position[1]:
        line, column = int(position[1]), int(position[2])
    if what.startswith(SET_TWICE):
        _explain_duplicate(key_lines(text), line, source)
    where = f" (column {column})" if column else " (at the end)"
    _refuse(source, line, f"is not valid TOML: {what[:1].lower()}{what[1:]}{where}")


def _explain_duplicate(lines: KeyLines, line: int, source: str) -> None:
    """Raise with the key's name and both lines, where the scanner found the repetition."""
    at_most = [twice for twice in lines.duplicates if twice.line <= line]
    if at_most:
        twice = at_most[-1]
        message = f"is set twice (first on line {twice.first})"
        raise DocumentError([Problem(source, twice.line, field_name(twice.loc), message)])


def _line(text: str) -> int:
    return text.rstrip("\n").count("\n") + 1


def _refuse(source: str, line: int | None, message: str) -> NoReturn:
    raise DocumentError([Problem(source, line, "", printable(message))])
