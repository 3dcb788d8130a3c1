"""Writing a model as TOML, so that `parse` gives back an equal one.

Only what was set is written: a default that nobody chose stays out, and so does None.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from typing import Any

from pydantic import BaseModel, TypeAdapter

from hat.problem import shown

BARE = re.compile(r"[A-Za-z0-9_-]+")
ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def dump(value: object) -> str:
    """Return a model, a dataclass or a mapping as TOML text.

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
    """
    return "\n".join(_table(_plain(value), ())).lstrip("\n") + "\n"


def _plain(value: object) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True, exclude_unset=True, exclude_none=True)
    plain = TypeAdapter(type(value)).dump_python(value, by_alias=True, exclude_none=True)
    if not isinstance(plain, Mapping):
        raise TypeError(f"{shown(value)} is no table")
    return plain


def _table(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """Yield the lines of a table's own values, then of the tables below it."""
    for key, value in table.items():
        if not _is_below(value):
            yield f"{_key(key)} = {_value(value)}"
    for key, value in table.items():
        name = ".".join(map(_key, (*path, key)))
        if isinstance(value, Mapping):
            yield from ("", f"[{name}]")
            yield from _table(value, (*path, key))
        elif _is_below(value):
            for entry in value:
                yield from ("", f"[[{name}]]")
                yield from _table(entry, (*path, key))


def _is_below(value: object) -> bool:
    """Tell whether a value gets headers of its own: a table, or a list of nothing but tables."""
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(entry, Mapping) for entry in value)
    return isinstance(value, Mapping)


def _key(key: str) -> str:
    return key if BARE.fullmatch(key) else _text(key)


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return "nan" if math.isnan(value) else repr(value)
        case int():
            return str(int(value))
        case str():
            return _text(value)
        case Mapping() | list() | tuple():
            return _inline(value)
        case datetime() | date() | time():
            return value.isoformat()
        case _:
            raise TypeError(f"TOML has no {type(value).__name__}")


def _inline(value: Mapping[str, object] | Sequence[object]) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"
    return "[" + ", ".join(map(_value, value)) + "]"


def _text(text: str) -> str:
    text.encode()  # a lone surrogate is no text
    return '"' + "".join(map(_character, text)) + '"'


def _character(c: str) -> str:
    if c in ESCAPES:
        return ESCAPES[c]
    return f"\\u{ord(c):04x}" if ord(c) < 32 or ord(c) == 127 else c
