"""A document as fields of a form, and changed fields as the text again with every comment kept.

`fields_of` shows what a model has and what the text says of it; `merged` puts what somebody changed in the fields
into the text that may have been changed beside them. What the text says otherwise is left as it is: order,
spelling, comments. A change that would lose a comment, or anything else, is refused: the text can still be changed
by hand.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hat.document import kept_schema
from hat.problem import DocumentError, HatError, Loc, field_name, shown
from hat.toml import table_of

MOST_FIELDS = 1500
"""Fields of one form; a document with more is changed as text."""
NUMBER = re.compile(r"[+-]?(\d[\d_]*)(\.[\d_]+)?([eE][+-]?\d+)?")
WORDS = {True: "true", False: "false"}


class NotEditableError(HatError):
    """A change that cannot be made from a form; the text can be changed by hand."""


@dataclass(frozen=True, slots=True)
class FormField:
    """One box of a form.

    Attributes
    ----------
    loc
        Where its value stands.
    group
        The table it is in, as problems name it; empty at the top.
    help
        What it means.
    text
        What the box shows: a list has an item a line; empty where the document does not say it.
    default
        What holds where nothing is said, if that is known.
    choices
        What it may be; empty: anything.
    is_list
        Whether it has an item a line.
    locked
        Why it can be changed in the text only; empty: it can be changed here.
    """

    loc: Loc
    group: str
    help: str
    text: str
    default: str = ""
    choices: tuple[str, ...] = ()
    is_list: bool = False
    locked: str = ""

    @property
    def name(self) -> str:
        """How problems name it."""
        return field_name(self.loc)

    @property
    def label(self) -> str:
        """Its own name."""
        return str(self.loc[-1])


def fields_of(text: str, model: type[Any]) -> list[FormField]:
    """Return the fields of a document, in the order of its model; a list of tables has those of each entry.

    Raises
    ------
    DocumentError
        The text is no TOML.
    NotEditableError
        It has too many.
    """
    data = table_of(text, "")
    whole = kept_schema(model)
    found: list[FormField] = []
    commented = _commented_lists(text)
    for one in _fields(whole, whole, data, ()):
        lost = "it has comments inside: change it in the text"
        found.append(_locked(one, lost) if one.loc in commented else one)
        if len(found) > MOST_FIELDS:
            raise NotEditableError(
                f"more than {MOST_FIELDS} fields: change it in the text",
                code="too-many-fields",
                bound=MOST_FIELDS,
            )
    return found


def _locked(field: FormField, why: str) -> FormField:
    return replace(field, locked=why)


def _fields(whole: Any, table: Any, data: Mapping[str, Any], loc: Loc) -> Iterator[FormField]:
    """Yield the fields of a table: plain ones first, then those of the tables in it."""
    later = []
    for name, entry in table.get("properties", {}).items():
        kind = _resolved(whole, entry)
        value, place = data.get(name), (*loc, name)
        if "properties" in kind or "patternProperties" in kind or _rows(whole, kind):
            later.append((kind, value, place))
        else:
            yield _field(whole, entry, kind, value, place)
    for kind, value, place in later:
        yield from _tables(whole, kind, value, place)


def _tables(whole: Any, kind: Any, value: Any, loc: Loc) -> Iterator[FormField]:
    rows = _rows(whole, kind)
    if rows:
        entries = value if isinstance(value, list) else []
        for i, one in enumerate(entries):
            if isinstance(one, dict):
                yield from _fields(whole, rows, one, (*loc, i))
    elif "properties" in kind:
        yield from _fields(whole, kind, value if isinstance(value, dict) else {}, loc)
    else:
        entry = next(iter(kind["patternProperties"].values()))
        below = _resolved(whole, entry)
        for name, one in value.items() if isinstance(value, dict) else ():
            if "properties" in below and isinstance(one, dict):
                yield from _fields(whole, below, one, (*loc, name))
            else:
                yield _field(whole, entry, below, one, (*loc, name))


def _rows(whole: Any, kind: Any) -> Any:
    """Return the tables that a list consists of; nothing where it is no list of tables."""
    items = _resolved(whole, kind.get("items", {})) if kind.get("type") == "array" else {}
    return items if isinstance(items, dict) and "properties" in items else None


def _resolved(whole: Any, entry: Any) -> Any:
    """Return a schema without references, and without the alternative that nothing is said."""
    if not isinstance(entry, dict):
        return {}
    if "$ref" in entry:
        return _resolved(whole, whole["$defs"][entry["$ref"].rpartition("/")[2]])
    if "anyOf" in entry:
        kinds = [one for one in entry["anyOf"] if one.get("type") != "null"]
        if len(kinds) == 1:
            return _resolved(whole, kinds[0])
        return {"types": [_resolved(whole, one).get("type") for one in kinds]}
    return entry


def _field(whole: Any, entry: Any, kind: Any, value: Any, loc: Loc) -> FormField:
    del whole
    default = entry.get("default")
    choices = tuple(map(str, kind.get("enum", ())))
    if kind.get("type") == "boolean":
        choices = ("true", "false")
    locked = ""
    is_list = kind.get("type") == "array"
    text = _shown(value)
    if text is None or (isinstance(value, list) != is_list and value is not None):
        text, locked = "", "what it says has no box: change it in the text"
    elif choices and text and text not in choices:
        choices = (*choices, text)
    return FormField(
        loc, field_name(loc[:-1]), str(entry.get("description", "")), text,
        (_shown(default) or "").replace("\n", ", "), choices, is_list, locked,
    )  # fmt: skip


def _shown(value: Any) -> str | None:
    """Return what a box shows for a value; None where no box can."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return WORDS[value]
    if isinstance(value, str):
        return None if "\n" in value or "\r" in value else value
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        items = [_shown(one) for one in value]
        plain = all(
            isinstance(one, str | int | float) and item and item == item.strip()
            for one, item in zip(value, items, strict=True)
        )
        return "\n".join(str(item) for item in items) if plain else None
    return None


def _value(text: str, field: FormField, kinds: Sequence[str]) -> Any:
    """Return what a box says as a value; None: nothing."""
    if field.is_list:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return [_scalar(line, kinds) for line in lines] or None
    return _scalar(text, kinds) if text.strip() else None


def _scalar(text: str, kinds: Sequence[str]) -> Any:
    """Return a text as what its kind takes; what is no such thing stays text, and is refused by its validator."""
    plain = text.strip()
    if "boolean" in kinds and plain in WORDS.values():
        return plain == "true"
    if {"integer", "number"} & {*kinds} and NUMBER.fullmatch(plain):
        try:
            return tomllib.loads(f"x = {plain}")["x"]
        except ValueError:
            return text
    return text


def merged(base: str, text: str, boxes: Mapping[str, str], model: type[Any]) -> str:
    """Return the text with what was changed in the boxes.

    Parameters
    ----------
    base
        The text that the form was made from: what a box shows otherwise was changed.
    text
        What stands beside the form now. Where both changed one value, the text wins.
    boxes
        What the boxes say, by the name of their fields.

    Raises
    ------
    DocumentError
        One of the texts is no TOML.
    NotEditableError
        A change would lose something.
    """
    before = {field.name: field for field in fields_of(base, model)}
    now = before if base == text else {field.name: field for field in fields_of(text, model)}
    whole = kept_schema(model)
    for name, said in boxes.items():
        field, other = before.get(name), now.get(name)
        said = said.replace("\r\n", "\n").replace("\r", "\n")  # noqa: PLW2901 - as a browser sends it
        if field is None or other is None or other.text != field.text:
            continue
        if _same(said, field):
            continue
        if field.locked:
            raise NotEditableError(
                f"{name}: {field.locked}", code="field-not-editable", field=name
            )
        if not field.is_list and "\n" in said.strip():
            raise NotEditableError(
                f"{name}: must be on one line", code="value-invalid", field=name
            )
        text = _with(text, field.loc, _value(said, field, _kinds(whole, field.loc)))
    return text


def _same(said: str, field: FormField) -> bool:
    if field.is_list:
        return [one.strip() for one in said.splitlines() if one.strip()] == field.text.splitlines()
    return said.strip() == field.text.strip()


def _kinds(whole: Any, loc: Loc) -> Sequence[str]:
    """Return the types that the schema takes at a place; of a list those of its items."""
    kind = whole
    for part in loc:
        if isinstance(part, int):
            kind = _resolved(whole, kind.get("items", {}))
        elif "properties" in kind:
            kind = _resolved(whole, kind["properties"].get(part, {}))
        else:
            kind = _resolved(whole, next(iter(kind.get("patternProperties", {"": {}}).values())))
    if kind.get("type") == "array":
        kind = _resolved(whole, kind.get("items", {}))
    return kind.get("types") or [kind.get("type", "string")]


def _with(text: str, loc: Loc, value: Any) -> str:
    """Return a text that says another value at a place, or nothing there; everything else stays."""
    import tomlkit  # noqa: PLC0415 - slow to load, for changes only

    wanted = _said(table_of(text, ""), loc, value)
    try:
        document = tomlkit.parse(text)
        _write(document, loc, value)
        changed = tomlkit.dumps(document)
        kept = _equal(table_of(changed, ""), wanted) and not comments_of(text) - comments_of(
            changed
        )
    except (DocumentError, ValueError, TypeError, LookupError, AttributeError):
        kept, changed = False, text
    if not kept:
        name = field_name(loc)
        raise NotEditableError(
            f"{name} cannot be set to {shown(value)} from the form: change it in the text",
            code="field-not-editable",
            field=name,
            value=shown(value),
        )
    return changed


def _equal(one: Any, other: Any) -> bool:
    return repr(one) == repr(other) or one == other


def _said(data: dict[str, Any], loc: Loc, value: Any) -> dict[str, Any]:
    """Return what the changed text is to say."""
    wanted = copy.deepcopy(data)
    node: Any = wanted
    for part in loc[:-1]:
        node = node[part] if isinstance(part, int) else node.setdefault(part, {})
    if value is None:
        node.pop(loc[-1], None)
    else:
        node[loc[-1]] = value
    return wanted


def _write(document: Any, loc: Loc, value: Any) -> None:
    """Change a document of tomlkit's; the comment of a line that goes stays as a line."""
    import tomlkit  # noqa: PLC0415 - as in `_with`

    node = document
    for part in loc[:-1]:
        if not isinstance(part, int) and part not in node:
            node[part] = tomlkit.table()
        node = node[part]
    if value is not None:
        node[loc[-1]] = value
        return
    container = getattr(node, "value", node)
    places = [
        k for k, (key, _) in enumerate(container.body) if key is not None and key.key == loc[-1]
    ]
    note = container.body[places[0]][1].trivia.comment
    del node[loc[-1]]
    if note:
        container.body[places[0]] = (None, tomlkit.comment(note.lstrip("# ")))


def comments_of(text: str) -> Counter[str]:
    """Return the comments of a TOML text, each with how often it stands there.

    Examples
    --------
    >>> comments_of('a = "#no"  # yes')
    Counter({'yes': 1})
    """
    strings = r'"""(?:[^\\]|\\.)*?"""|\'\'\'.*?\'\'\'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\''
    found = re.finditer(rf"{strings}|#(?P<note>[^\n]*)", text, re.DOTALL)
    return Counter(one["note"].strip(" \t#\r") for one in found if one["note"] is not None)


# tomlkit loses the comments inside an array that is replaced.
def _commented_lists(text: str) -> set[Loc]:
    """Return the places of arrays that have comments inside."""
    if "#" not in text:
        return set()
    import tomlkit  # noqa: PLC0415 - as in `_with`

    return {
        loc for loc, array in _arrays(tomlkit.parse(text), ()) if comments_of(array.as_string())
    }


def _arrays(node: Any, loc: Loc) -> Iterator[tuple[Loc, Any]]:
    from tomlkit.items import Array  # noqa: PLC0415 - as in `_with`

    if isinstance(node, Array):
        yield loc, node
    elif isinstance(node, Mapping):
        for name, below in node.items():
            yield from _arrays(below, (*loc, name))
    elif isinstance(node, list):
        for i, below in enumerate(node):
            yield from _arrays(below, (*loc, i))
