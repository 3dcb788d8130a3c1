"""Edit a document through a form: show its fields as boxes and write changed boxes into the text.

`form_of` returns the fields of a document, generated from the schema of its model. `merged` puts changed boxes
into the text; `add_entry`, `copy_entry` and `remove_entry` change its tables. Order, spelling and comments of
all other lines stay. A change that would lose another value or a comment on another line is an error; the user
can still edit the text.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from hat.document import kept_schema
from hat.problem import DocumentError, HatError, Loc, field_name, shown
from hat.toml import table_of

MAX_FIELDS = 1500
"""Fields of one form; the user edits a larger document as text."""
MAX_PAIR = 2
"""A list limited to this many items has a box of one line."""
NUMBER = re.compile(r"[+-]?(\d[\d_]*)(\.[\d_]+)?([eE][+-]?\d+)?")
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
STRINGS = r'"""(?:[^\\]|\\.)*?"""|\'\'\'.*?\'\'\'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\''
WORDS = {True: "true", False: "false"}


class NotEditableError(HatError):
    """A change that a form cannot make; the user can edit the text instead."""


@dataclass(frozen=True, slots=True)
class FormField:
    """One box of a form.

    Attributes
    ----------
    loc
        Place of its value in the document.
    group
        Name of its table, as in problems; empty at the top.
    help
        Its description.
    text
        Value as text: one item of a list per line, a comma between the items of a pair; empty if the document
        does not set the field.
    default
        Value of a field that is not set, if known.
    unit, example
        From the schema, or empty.
    choices
        Legal values; empty: any.
    is_list, is_pair
        Whether the box has one item per line; whether it has at most two items on one line.
    required
        Whether the document must set it.
    locked
        Reason why only the text can change it; empty if the box can.
    """

    loc: Loc
    group: str
    help: str
    text: str
    default: str = ""
    choices: tuple[str, ...] = ()
    is_list: bool = False
    locked: str = ""
    unit: str = ""
    example: str = ""
    is_pair: bool = False
    required: bool = False

    @property
    def name(self) -> str:
        """Its name in problems."""
        return field_name(self.loc)

    @property
    def label(self) -> str:
        """Its own name, in words."""
        return str(self.loc[-1]).replace("_", " ")


@dataclass(frozen=True, slots=True)
class FormTable:
    """A table of a form, or the list or mapping of its entries.

    Attributes
    ----------
    loc
        Place in the document.
    kind
        ``table``; ``list``, of tables; ``map``, of tables by name; ``values``, of values by name.
    help
        Its description.
    noun
        Name of an entry of a list or mapping, such as ``host``.
    heading
        Name of an entry: its ``name``, its ends, or its number.
    fields
        Boxes of a table; of ``values``, one box per entry.
    tables
        Tables inside a table, or entries.
    columns
        Boxes of an empty entry of a list or mapping.
    """

    loc: Loc
    kind: Literal["table", "list", "map", "values"]
    help: str = ""
    noun: str = ""
    heading: str = ""
    fields: tuple[FormField, ...] = ()
    tables: tuple[FormTable, ...] = ()
    columns: tuple[FormField, ...] = ()

    @property
    def name(self) -> str:
        """Its name in problems."""
        return field_name(self.loc)

    @property
    def label(self) -> str:
        """Its own name, in words."""
        return str(self.loc[-1] if self.loc else "").replace("_", " ")

    @property
    def article(self) -> str:
        """The article of its noun."""
        return "an" if self.noun[:1] in "aeio" else "a"

    def walk(self) -> Iterator[FormTable]:
        """Yield this table and all tables below it, in order."""
        yield self
        for table in self.tables:
            yield from table.walk()


def form_of(text: str, model: type[Any]) -> FormTable:
    """Return the form of a document, in the order of its model.

    Raises
    ------
    DocumentError
        The text is not TOML.
    NotEditableError
        The document has more than `MAX_FIELDS` fields.
    """
    data = table_of(text, "")
    whole = kept_schema(model)
    form = _table(whole, whole, data, (), _commented_lists(text))
    if sum(len(table.fields) for table in form.walk()) > MAX_FIELDS:
        raise NotEditableError(
            f"more than {MAX_FIELDS} fields: change it in the text",
            code="too-many-fields",
            bound=MAX_FIELDS,
        )
    return form


def fields_of(text: str, model: type[Any]) -> list[FormField]:
    """Return the fields of a document, in the order of its model; raises as `form_of`."""
    return [field for table in form_of(text, model).walk() for field in table.fields]


def _table(
    whole: Any, schema: Any, data: Mapping[str, Any], loc: Loc, commented: Collection[Loc]
) -> FormTable:
    """Return a table with its fields, and the tables inside it."""
    fields, tables = [], []
    required = schema.get("required", ())
    for name, entry in schema.get("properties", {}).items():
        kind = _resolved(whole, entry)
        value, place = data.get(name), (*loc, name)
        if "properties" in kind:
            inner = _table(whole, kind, value if isinstance(value, dict) else {}, place, commented)
            tables.append(replace(inner, help=str(entry.get("description", ""))))
        elif "patternProperties" in kind or _rows(whole, kind):
            tables.append(_entries(whole, entry, kind, value, place, commented))
        else:
            field = _field(entry, kind, value, place, commented)
            fields.append(replace(field, required=name in required))
    return FormTable(loc, "table", fields=tuple(fields), tables=tuple(tables))


def _entries(
    whole: Any, entry: Any, kind: Any, value: Any, loc: Loc, commented: Collection[Loc]
) -> FormTable:
    """Return a list or a mapping with its entries."""
    text, noun = str(entry.get("description", "")), entry.get("entry", str(loc[-1]))
    rows = _rows(whole, kind)
    if rows:
        entries = [
            _entry(whole, rows, table, (*loc, i), f"{noun} {i + 1}", commented)
            for i, table in enumerate(value if isinstance(value, list) else [])
            if isinstance(table, dict)
        ]
        columns = _table(whole, rows, {}, loc, ()).fields
        return FormTable(loc, "list", text, noun, tables=tuple(entries), columns=columns)
    below = next(iter(kind["patternProperties"].values()))
    inner = _resolved(whole, below)
    named = value if isinstance(value, dict) else {}
    if "properties" not in inner:
        fields = [
            _field(below, inner, one, (*loc, name), commented) for name, one in named.items()
        ]
        columns = (_field(below, inner, None, loc, ()),)
        return FormTable(loc, "values", text, noun, fields=tuple(fields), columns=columns)
    entries = [
        replace(_entry(whole, inner, table, (*loc, name), name, commented), heading=name)
        for name, table in named.items()
        if isinstance(table, dict)
    ]
    columns = _table(whole, inner, {}, loc, ()).fields
    return FormTable(loc, "map", text, noun, tables=tuple(entries), columns=columns)


def _entry(
    whole: Any,
    schema: Any,
    data: Mapping[str, Any],
    loc: Loc,
    number: str,
    commented: Collection[Loc],
) -> FormTable:
    names = [data.get(key) for key in ("name", "from", "to", "site")]
    name, source, target, site = (one if isinstance(one, str) else "" for one in names)
    between = data.get("between")
    pair = between if isinstance(between, list) else [source, target]
    ends = " and ".join(str(end) for end in pair if end)
    table = _table(whole, schema, data, loc, commented)
    return replace(table, heading=name or ends or site or number)


def _rows(whole: Any, kind: Any) -> Any:
    """Return the schema of a list's tables; None if its items are not tables."""
    items = _resolved(whole, kind.get("items", {})) if kind.get("type") == "array" else {}
    return items if isinstance(items, dict) and "properties" in items else None


def _resolved(whole: Any, entry: Any) -> Any:
    """Return a schema without references and without the alternative null."""
    if not isinstance(entry, dict):
        return {}
    if "$ref" in entry:
        return _resolved(whole, whole["$defs"][entry["$ref"].rpartition("/")[2]])
    if "anyOf" in entry:
        kinds = [one for one in entry["anyOf"] if one.get("type") != "null"]
        if len(kinds) == 1:
            return _resolved(whole, kinds[0])
        inner = [_resolved(whole, one) for one in kinds]
        items = [_resolved(whole, one.get("items", {})) for one in inner if one.get("items")]
        return {"types": [one.get("type") for one in inner], "items": items[0] if items else {}}
    return entry


def _field(entry: Any, kind: Any, value: Any, loc: Loc, commented: Collection[Loc]) -> FormField:
    choices = tuple(map(str, kind.get("enum", (kind["const"],) if "const" in kind else ())))
    if kind.get("type") == "boolean":
        choices = ("true", "false")
    is_list = kind.get("type") == "array"
    is_pair = is_list and kind.get("maxItems", MAX_PAIR + 1) <= MAX_PAIR
    if "array" in kind.get("types", ()):
        is_list = isinstance(value, list)
    locked = "it has comments inside: change it in the text" if loc in commented else ""
    text = _shown(value)
    if text is None or (isinstance(value, list) != is_list and value is not None):
        text, locked = "", "its value has no box: change it in the text"
    elif choices and text and text not in choices:
        choices = (*choices, text)
    if is_pair:
        text = text.replace("\n", ", ")
    example = next(iter(entry.get("examples", ())), None)
    return FormField(
        loc, field_name(loc[:-1]), str(entry.get("description", "")), text, _in_line(entry.get("default")),
        choices, is_list, locked, str(entry.get("unit", "")), _in_line(example), is_pair,
    )  # fmt: skip


def _in_line(value: Any) -> str:
    """Return a default or an example as text of one line."""
    return (_shown(value) or "").replace("\n", ", ")


def _shown(value: Any) -> str | None:
    """Return the text of a value in its box; None if no box can show it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return WORDS[value]
    if isinstance(value, str):
        return None if "\n" in value or "\r" in value else value
    if isinstance(value, int | float):
        return _number_text(value)
    if isinstance(value, list):
        items = [_shown(one) for one in value]
        plain = all(
            isinstance(one, str | int | float) and item and item == item.strip()
            for one, item in zip(value, items, strict=True)
        )
        return "\n".join(str(item) for item in items) if plain else None
    return None


def _number_text(value: float) -> str:
    """Return a number as a user writes it: ``1e8``, not ``100000000.0``; of the same type and value."""
    short = re.sub(r"e([+-])0*", lambda sign: "e" + sign[1].strip("+"), f"{value:g}")
    same = isinstance(value, float) and float(short) == value and {*short} & {".", "e"}
    return short if same else repr(value)


def _value(text: str, field: FormField, kinds: Sequence[str]) -> Any:
    """Return the value of a box's text; None if the text is empty."""
    if field.is_list:
        return [_scalar(item, kinds) for item in _items(text, field)] or None
    return _scalar(text, kinds) if text.strip() else None


def _items(text: str, field: FormField) -> list[str]:
    """Return the items of a list's box: one per line, or separated by commas in a pair."""
    parts = re.split(r"[,\n]", text) if field.is_pair else text.splitlines()
    return [part.strip() for part in parts if part.strip()]


def _scalar(text: str, kinds: Sequence[str]) -> Any:
    """Return a text as a value of its kind; other text stays text, and the validator rejects it."""
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
    """Return the text with the changed boxes in it.

    Parameters
    ----------
    base
        Text that the form was made from; a box that differs from it was changed.
    text
        Current text beside the form. If text and box both changed a value, the text wins.
    boxes
        Text of each box, by the name of its field.

    Raises
    ------
    DocumentError
        One of the texts is not TOML.
    NotEditableError
        A change would lose a comment or another value.
    """
    before = {field.name: field for field in fields_of(base, model)}
    now = before if base == text else {field.name: field for field in fields_of(text, model)}
    whole = kept_schema(model)
    for name, box in boxes.items():
        field, other = before.get(name), now.get(name)
        new = box.replace("\r\n", "\n").replace("\r", "\n")  # a browser sends CR LF
        if field is None or other is None or other.text != field.text or _same(new, field):
            continue
        if field.locked:
            raise NotEditableError(
                f"{name}: {field.locked}", code="field-not-editable", field=name
            )
        if (field.is_pair or not field.is_list) and "\n" in new.strip():
            raise NotEditableError(
                f"{name}: must be on one line", code="value-invalid", field=name
            )
        text = _with(text, field.loc, _value(new, field, _kinds(whole, field.loc)))
    return text


def _same(text: str, field: FormField) -> bool:
    if field.is_list:
        return _items(text, field) == _items(field.text, field)
    return text.strip() == field.text.strip()


def _kinds(whole: Any, loc: Loc) -> Sequence[str]:
    """Return the types that the schema accepts at a place; for a list, the types of its items."""
    kind = whole
    for part in loc:
        if isinstance(part, int):
            kind = _resolved(whole, kind.get("items", {}))
        elif "properties" in kind:
            kind = _resolved(whole, kind["properties"].get(part, {}))
        else:
            kind = _resolved(whole, next(iter(kind.get("patternProperties", {"": {}}).values())))
    if kind.get("type") == "array":
        prefix = kind.get("prefixItems", ({},))[0]
        kind = _resolved(whole, kind.get("items", prefix))
    if "array" in kind.get("types", ()):
        kind = kind["items"] or {"types": ["integer", "number", "string"]}
    return kind.get("types") or [kind.get("type", "string")]


def _with(text: str, loc: Loc, value: Any) -> str:
    """Return a text with the value at a place replaced, or removed if `value` is None; the rest stays."""
    import tomlkit  # noqa: PLC0415 - slow to load, for changes only

    wanted = _changed(table_of(text, ""), loc, value)
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
        raise _not_from_the_form(loc, f"set to {shown(value)}", value=shown(value))
    return changed


def _not_from_the_form(loc: Loc, change: str, **fields: str) -> NotEditableError:
    name = field_name(loc)
    return NotEditableError(
        f"{name} cannot be {change} from the form: change it in the text",
        code="field-not-editable",
        field=name,
        **fields,
    )


def _equal(one: Any, other: Any) -> bool:
    return repr(one) == repr(other) or one == other


def _changed(data: dict[str, Any], loc: Loc, value: Any) -> dict[str, Any]:
    """Return a copy of a document with the value at a place replaced, or removed if `value` is None."""
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
    """Change a tomlkit document; if a line is removed, its comment stays on a line of its own."""
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


def add_entry(
    text: str, model: type[Any], table: FormTable, values: Mapping[str, Any], key: str = ""
) -> tuple[str, Loc]:
    """Return the text with another entry of a list or mapping, and the entry's place.

    Parameters
    ----------
    table
        The list or mapping; from the form of this text.
    values
        First values of the entry. For a mapping of values: the one value, under any name.
    key
        Name of the entry in a mapping.

    Raises
    ------
    NotEditableError
        The entries are written inline, or the mapping has the key.
    """
    data = table_of(text, "")
    place = (*table.loc, key if table.kind != "list" else len(table.tables))
    if table.kind == "values":
        if any(field.loc == place for field in table.fields):
            raise _not_from_the_form(place, "added twice")
        (value,) = values.values()
        schema = kept_schema(model)
        kinds = _kinds(schema, place)
        box = FormField(place, "", "", "", is_list=isinstance(value, list))
        inner = _value("\n".join(value) if box.is_list else value, box, kinds)
        return _with(text, place, inner), place
    wanted = copy.deepcopy(data)
    node: Any = wanted
    for part in table.loc[:-1]:
        node = node[part] if isinstance(part, int) else node.setdefault(part, {})
    if table.kind == "list":
        node.setdefault(table.loc[-1], []).append(dict(values))
    else:
        node = node.setdefault(table.loc[-1], {})
        if key in node:
            raise _not_from_the_form(place, "added twice")
        node[key] = dict(values)
    spans = _spans(text)
    lines = text.splitlines(keepends=True)
    # Insert after the last entry; without entries after the enclosing table; without it at the end.
    around = [loc for loc in (table.loc, table.loc[:-1]) if loc]
    ends = ([span.end for span in spans if span.loc[: len(loc)] == loc] for loc in around)
    last = max(next(filter(None, ends), [len(lines)]))
    if lines[:last] and not lines[last - 1].endswith("\n"):
        lines[last - 1] += "\n"
    names = [_toml_key(part) for part in place if isinstance(part, str)]
    header = f"[[{'.'.join(names)}]]" if table.kind == "list" else f"[{'.'.join(names)}]"
    lines[last:last] = ["\n" if last else "", header + "\n", *_assignments(values)]
    return _checked("".join(lines), wanted, place, "added"), place


def copy_entry(
    text: str,
    model: type[Any],
    entry: FormTable,
    values: Mapping[str, Any],
    without: Collection[str] = (),
) -> tuple[str, Loc]:
    """Return the text with a copy of an entry of a list after the last, and the copy's place.

    Parameters
    ----------
    values
        Values of the copy that differ, such as its name.
    without
        Keys that the copy does not have.
    """
    node: Any = table_of(text, "")
    for part in entry.loc:
        node = node[part]
    kept = {key: value for key, value in node.items() if key not in without}
    place = entry.loc[:-1]
    tables = form_of(text, model).walk()
    table = next(table for table in tables if table.loc == place)
    return add_entry(text, model, table, {**kept, **values})


def remove_entry(text: str, loc: Loc) -> str:
    """Return the text without an entry of a list or mapping, and without the comments on its lines.

    Comment lines before its header and after its last value stay.

    Raises
    ------
    NotEditableError
        The entry is written inline in a list.
    """
    spans = [span for span in _spans(text) if span.loc[: len(loc)] == loc]
    if not spans:
        if isinstance(loc[-1], int):
            raise _not_from_the_form(loc, "removed")
        return _with(text, loc, None)
    wanted = copy.deepcopy(table_of(text, ""))
    node: Any = wanted
    for part in loc[:-1]:
        node = node[part]
    del node[loc[-1]]
    if not node and isinstance(loc[-1], int):
        node = wanted
        for part in loc[:-2]:
            node = node[part]
        del node[loc[-2]]
    lines = text.splitlines(keepends=True)
    for span in reversed(spans):
        start, end = span.start, span.end
        blank_after = end >= len(lines) or not lines[end].strip()
        while start and blank_after and not lines[start - 1].strip():
            start -= 1
        del lines[start:end]
    return _checked("".join(lines), wanted, loc, "removed")


def _checked(text: str, wanted: Mapping[str, Any], loc: Loc, change: str) -> str:
    """Return a changed text if it parses to the wanted document; else raise `NotEditableError`."""
    try:
        same = _equal(_without_empty(table_of(text, "")), _without_empty(wanted))
    except DocumentError:
        same = False
    if not same:
        raise _not_from_the_form(loc, change)
    return text


def _without_empty(data: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the empty tables at the top of a document: removing the last entry leaves an empty mapping."""
    return {key: value for key, value in data.items() if value != {}}


def _toml_key(name: str) -> str:
    import tomlkit  # noqa: PLC0415 - as in `_with`

    return name if BARE_KEY.fullmatch(name) else tomlkit.item(name).as_string()


def _assignments(values: Mapping[str, Any]) -> list[str]:
    """Return a line for each value of a table."""
    import tomlkit  # noqa: PLC0415 - as in `_with`

    def written(value: Any) -> str:
        if isinstance(value, dict):
            inner = ", ".join(f"{_toml_key(key)} = {written(one)}" for key, one in value.items())
            return f"{{{inner}}}"
        return str(tomlkit.item(value).as_string())

    return [f"{_toml_key(key)} = {written(value)}\n" for key, value in values.items()]


@dataclass(frozen=True, slots=True)
class _Span:
    """Line range of a table, from its header to the end of its last value."""

    loc: Loc
    start: int
    end: int


def _spans(text: str) -> list[_Span]:
    """Return the line range of each table with a header, in order."""
    spans: list[_Span] = []
    counts: Counter[Loc] = Counter()
    for number, line in _statements(text):
        if not line.startswith("["):
            if spans:
                spans[-1] = replace(spans[-1], end=number[1])
            continue
        try:
            header: Any = tomllib.loads(line)
        except tomllib.TOMLDecodeError:
            return []
        path = []
        while isinstance(header, dict) and header:
            ((name, header),) = header.items()
            path.append(name)
        loc: Loc = ()
        for part in path[:-1]:
            loc = (*loc, part)
            loc = (*loc, counts[loc] - 1) if loc in counts else loc
        loc = (*loc, path[-1])
        if isinstance(header, list):
            counts[loc] += 1
            loc = (*loc, counts[loc] - 1)
        spans.append(_Span(loc, number[0], number[1]))
    return spans


def _statements(text: str) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield each header and assignment with its first line and the line after its last."""
    depth, begun, start = 0, -1, 0
    tokens = rf"{STRINGS}|#[^\n]*|[\[\]{{}}]|\n|[^\s\[\]{{}}#\"']+"
    number = 0
    for token in re.finditer(tokens, text, re.DOTALL):
        word = token[0]
        if word == "\n":
            if depth == 0 and begun >= 0:
                yield (begun, number + 1), text[start : token.start()].strip()
                begun = -1
            number += 1
            continue
        if not word.startswith("#") and begun < 0:
            begun, start = number, token.start()
        depth += (word in ("[", "{")) - (word in ("]", "}"))
        number += word.count("\n")
    if begun >= 0:
        yield (begun, number + 1), text[start:].strip()


def comments_of(text: str) -> Counter[str]:
    """Return the comments of a TOML text, each with its count.

    Examples
    --------
    >>> comments_of('a = "#no"  # yes')
    Counter({'yes': 1})
    """
    found = re.finditer(rf"{STRINGS}|#(?P<note>[^\n]*)", text, re.DOTALL)
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
