"""Messages for the errors of pydantic's validation; each states the rule that the value breaks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic_core import ErrorDetails

from hat.problem import Loc, nearest, printable, shown

Json = Mapping[str, Any]

RULES: Mapping[str, str] = {
    "missing": "is missing",
    "finite_number": "must be a finite number",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "string_type": "must be text in quotes",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must have the form {pattern}",
    "list_type": "must be a list in [ ]",
    "tuple_type": "must be a list in [ ]",
    "set_type": "must be a list in [ ]",
    "frozen_set_type": "must be a list in [ ]",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "dataclass_type": "must be a table",
    "mapping_type": "must be a table",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "byte_size": 'must be a number of bytes, such as 500000 or "2 GiB"',
    "byte_size_unit": 'must be a number of bytes, such as 500000 or "2 GiB"',
    "recursion_loop": "must not contain itself",
}
"""Message by pydantic's name of the error; the error's context replaces the names in braces."""

UNKNOWN_FIELD = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
"""pydantic's names for an unknown field, of a model and of a dataclass."""

AUTHORS = frozenset({"value_error", "assertion_error", "fault"})
"""Errors with a message that the author of a model wrote; it is used unchanged."""


CODES: Mapping[str, str] = {
    "missing": "field-missing",
    **dict.fromkeys(UNKNOWN_FIELD, "field-unknown"),
    **dict.fromkeys(("literal_error", "enum"), "value-unknown"),
    **dict.fromkeys(
        (
            *("greater_than", "greater_than_equal", "less_than", "less_than_equal"),
            *("multiple_of", "int_parsing_size", "finite_number"),
            *("string_too_short", "string_too_long", "too_short", "too_long"),
        ),
        "value-range",
    ),
    **dict.fromkeys(
        ("int_parsing", "int_from_float", "float_parsing", "bool_parsing"), "value-type"
    ),
    **dict.fromkeys(("byte_size", "byte_size_unit"), "value-type"),
}
"""The code of an error, by pydantic's name of it; the rest are ``value-type`` or ``value-invalid``."""


def code(error: ErrorDetails) -> str:
    """Return the code of an error: the code of a `Fault` or a coded error, else by pydantic's name."""
    kind, context = error["type"], error.get("ctx", {})
    if kind in AUTHORS:
        own = context.get("code") or getattr(context.get("error"), "code", None)
        return str(own or "value-invalid")
    return CODES.get(kind) or ("value-type" if kind.endswith("_type") else "value-invalid")


def rule(error: ErrorDetails) -> str:
    """Return the rule that the value breaks, without the value."""
    kind, context = error["type"], error.get("ctx", {})
    if kind in AUTHORS:
        return re.sub(r"^(Value error|Assertion failed), ", "", error["msg"])
    template = RULES.get(kind)
    if template is None:
        return re.sub(r"^Input should ", "must ", error["msg"])
    text = template.format_map({key: _limit(value) for key, value in context.items()})
    return text.replace(" 1 entries", " an entry").replace(" 1 characters", " a character")


def is_echo(error: ErrorDetails) -> bool:
    """Return whether pydantic reports a list as too short only because some of its entries are invalid."""
    if error["type"] != "too_short":
        return False
    return len(error["input"]) >= int(error["ctx"]["min_length"])


def message(errors: Iterable[ErrorDetails]) -> str:
    """Return one message for one field; a union's alternatives are joined by "or"."""
    found = list(errors)
    rules = list(dict.fromkeys(rule(error) for error in found))
    if found[0]["type"] in {*AUTHORS, "missing"}:
        return printable("; ".join(rules))
    text = " or ".join([rules[0], *(r.removeprefix("must be ") for r in rules[1:])])
    return f"{printable(text)} ({_value(found[0])})"


def suggestion(error: ErrorDetails) -> str:
    """Return the nearest legal value of a choice, or the suggestion of the model's author."""
    if error["type"] in {"literal_error", "enum"} and isinstance(error["input"], str):
        return nearest(error["input"], re.findall(r"'([^']*)'", error["ctx"]["expected"]))
    return str(error.get("ctx", {}).get("suggestion", ""))


def _limit(value: object) -> str:
    """Return a number of a rule as a user would write it, a pattern without its anchors."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return re.sub(r"^\^|(\$|\\[zZ])$", "", str(value)) if isinstance(value, str) else str(value)


def _value(error: ErrorDetails) -> str:
    value = error["input"]
    if error["type"] in {"too_short", "too_long"}:
        return f"has {len(value)}"
    if error["type"] in {"string_too_short", "string_too_long"}:
        return f"has {len(value)}: {shown(value)}"
    return f"is {shown(value)}"


def trimmed(loc: Loc, data: object, *, keep_last: bool) -> Loc:
    """Return the part of pydantic's `loc` that is in the document, without names of types and union branches.

    Examples
    --------
    >>> trimmed(("x", "int"), {"x": "a"}, keep_last=False)
    ('x',)
    """
    place: list[str | int] = []
    for i, part in enumerate(loc):
        below = _entry(data, part)
        if below is not None:
            data = below
        elif not (keep_last and i == len(loc) - 1):
            continue
        place.append(part)
    return tuple(place)


def _entry(data: object, part: str | int) -> object | None:
    """Return the value at a key or an index; None if it is missing (TOML has no None)."""
    if isinstance(part, int):
        return data[part] if isinstance(data, list) and part < len(data) else None
    return data.get(part) if isinstance(data, dict) else None


def legal_names(schema: Json, loc: Loc) -> list[str]:
    """Return the names that a table may have, by a JSON Schema and the table's place."""
    nodes = [schema]
    for part in loc:
        nodes = [below for node in _alternatives(schema, nodes) for below in _below(node, part)]
    return [name for node in _alternatives(schema, nodes) for name in node.get("properties", {})]


def _alternatives(schema: Json, nodes: Iterable[Json]) -> Iterator[Json]:
    """Yield the schemas of `nodes`, with references and unions resolved."""
    waiting, seen = list(nodes), set()
    while waiting:
        node = waiting.pop()
        yield node
        for name in ("anyOf", "oneOf", "allOf"):
            waiting.extend(node.get(name, ()))
        reference = node.get("$ref", "")
        if reference and reference not in seen:
            seen.add(reference)
            waiting.append(schema["$defs"][reference.rpartition("/")[2]])


def _below(node: Json, part: str | int) -> Iterator[Json]:
    if isinstance(part, int):
        found = [node.get("items"), *node.get("prefixItems", ())[part : part + 1]]
    else:
        found = [node.get("properties", {}).get(part), node.get("additionalProperties")]
    yield from (schema for schema in found if isinstance(schema, dict))
