"""A file of the folder as a form beside its text: the user changes, checks and saves either."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any, get_args

import hat
from apples.applications import files as user_files
from apples.applications.folder import ENDING, DocumentFolder, FileChangedError, digest_of
from apples.applications.scaffold import ProgramKind, ScaffoldError, new, new_document
from apples.errors import UsageError, coded, error_kind, unwritable
from apples.io import documents

MAX_IN_ROW = 6
ROWS: Mapping[str, Sequence[str]] = {
    "host": ("name", "address", "site", "slots", "seconds_per_point", "free_memory"),
    "link": ("between", "latency", "bandwidth"),
}
"""Fields shown in the row of a list's entry; for other lists the first `MAX_IN_ROW` fields."""


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a file.

    Attributes
    ----------
    table
        Its fields and tables; None without a form.
    missing
        Reason that the form is missing.
    focus
        Name of the field that has the focus when the page is loaded.
    """

    table: hat.FormTable | None = None
    missing: str = ""
    focus: str = ""

    @staticmethod
    def in_row(
        table: hat.FormTable, fields: Sequence[hat.FormField]
    ) -> tuple[list[hat.FormField], list[hat.FormField]]:
        """Return the fields in the row of an entry, and the fields shown when it is unfolded."""
        first = [str(field.loc[-1]) for field in table.columns[:MAX_IN_ROW]]
        names = ROWS.get(table.name, first)
        shown = [field for name in names for field in fields if field.loc[-1] == name]
        return shown, [field for field in fields if field not in shown]


@dataclass(frozen=True, slots=True)
class EditedFile:
    """A file that a user edits.

    Attributes
    ----------
    name
        Path relative to the folder.
    text
        Its text with the changes.
    digest
        Digest of the file when the form was made.
    focus
        Name of the field of the last change.
    """

    name: str
    text: str
    digest: str
    focus: str = ""

    @classmethod
    def read(cls, folder: DocumentFolder, name: str) -> EditedFile:
        """Return a file as it is on the disk.

        Raises
        ------
        UsageError
            It cannot be read, is too large, or is not UTF-8 text.
        """
        text = folder.text(name)
        return cls(name, text, digest_of(text))

    @property
    def changed(self) -> bool:
        """Whether its text differs from that of the file."""
        return digest_of(self.text) != self.digest

    def check(self, folder: DocumentFolder) -> hat.CheckResult:
        """Return its kind and its problems, as ``hat check`` does."""
        return user_files.inspect(folder.file(self.name), text=self.text)

    def form(self, kind: str) -> Form:
        """Return its form, as a file of a kind."""
        model = user_files.model_of(kind)
        if model is None:
            return Form(missing="The kind of this file is not known yet: edit its text.")
        try:
            return Form(hat.form_of(self.text, model), focus=self.focus)
        except hat.NotEditableError as error:
            return Form(missing=str(error))
        except hat.DocumentError:
            return Form(missing="This text is not TOML: correct it below.")

    def with_changes(self, folder: DocumentFolder, form: Mapping[str, str]) -> EditedFile:
        """Return it with the changed boxes, and with an entry added, copied or removed.

        Parameters
        ----------
        form
            ``base``, the text that the form was made from; ``f:FIELD``, the boxes. ``add``, ``copy`` or
            ``remove``, the name of a list, mapping or entry, with ``count:NAME``, ``key:NAME`` and ``value:NAME``.

        Raises
        ------
        hat.NotEditableError
            A change would lose a comment.
        UsageError
            The table does not exist, or a count or name is missing or wrong.
        """
        model = user_files.model_of(self.check(folder).kind)
        if model is None:
            return self
        boxes = {key[2:]: value for key, value in form.items() if key.startswith("f:")}
        try:
            text = (
                hat.merged(form.get("base", ""), self.text, boxes, model) if boxes else self.text
            )
        except hat.DocumentError:  # the check of the text reports it with its line
            return self
        changed = replace(self, text=text)
        for verb, change in (("add", _added), ("copy", _copied), ("remove", _removed)):
            if verb in form:
                changed = change(changed, model, form[verb], form)
        return changed

    def save(self, folder: DocumentFolder) -> None:
        """Write it, whole or not at all.

        Raises
        ------
        FileChangedError
            The file has changed since the form was made.
        """
        if EditedFile.read(folder, self.name).digest != self.digest:
            raise FileChangedError(
                f"{self.name} changed on disk since you opened it: nothing was saved. "
                "Your text is below; load the page again for the text of the file",
                file=self.name,
            )  # fmt: skip
        path = folder.file(self.name)
        try:
            with documents.written(path) as stream:
                stream.write(self.text)
        except OSError as error:
            raise unwritable(self.name, error) from None


MAX_ADDED = 100
SHARED = ("site", "user", "python", "directory")
"""Values that a new host takes from the last host of the list."""
OWN = ("address", "cpus", "allocation")
"""Values that a copy of a host does not take over."""


def _table(edited: EditedFile, model: type[Any], field: str, name: str) -> hat.FormTable:
    """Return a list, mapping or entry of the form by its name."""
    for table in hat.form_of(edited.text, model).walk():
        if table.loc and table.name == name:
            return table
    raise UsageError(
        f"'{hat.printable(name)}': this form has no such table",
        code="value-unknown", field=field, value=name,
    )  # fmt: skip


def _added(edited: EditedFile, model: type[Any], name: str, form: Mapping[str, str]) -> EditedFile:
    """Return the file with new entries of a list or mapping."""
    count = form.get(f"count:{name}", "1")
    if not (count.isdecimal() and 1 <= int(count) <= MAX_ADDED):
        raise UsageError(
            f"'{hat.printable(count)}': must be a number from 1 to {MAX_ADDED}",
            code="value-range", field=f"count:{name}", value=count, bound=MAX_ADDED,
        )  # fmt: skip
    for number in range(int(count)):
        root = hat.form_of(edited.text, model)
        table = _table(edited, model, "add", name)
        if table.kind == "table":
            raise UsageError(
                f"'{hat.printable(name)}': is a single table; no entry can be added",
                code="value-unknown", field="add", value=name,
            )  # fmt: skip
        key = form.get(f"key:{name}", "").strip()
        if table.kind != "list" and not key:
            raise UsageError(
                f"{name}: the new {table.noun} needs a name",
                code="value-missing", field=f"key:{name}",
            )  # fmt: skip
        text, place = hat.add_entry(edited.text, model, table, _values(root, table, form), key)
        first = edited.focus if number else _first_field(text, model, place)
        edited = replace(edited, text=text, focus=first)
    return edited


def _values(root: hat.FormTable, table: hat.FormTable, form: Mapping[str, str]) -> dict[str, Any]:
    """Return the initial values of a new entry."""
    if table.kind == "values":
        value = form.get(f"value:{table.name}", "").strip()
        if not value:
            raise UsageError(
                f"{table.name}: the new {table.noun} needs a value",
                code="value-missing", field=f"value:{table.name}",
            )  # fmt: skip
        return {"value": re.split(r"[,\s]+", value) if table.columns[0].is_list else value}
    values: dict[str, Any] = {}
    if table.kind == "list" and any(column.loc[-1] == "name" for column in table.columns):
        values["name"] = _free_name(table, f"new-{len(table.tables) + 1}")
    if table.name == "host" and table.tables:
        last = {str(field.loc[-1]): field.text for field in table.tables[-1].fields}
        values |= {key: last[key] for key in SHARED if last[key]}
    if table.name == "link":
        values |= _next_pair(root, table)
    return values


def _next_pair(root: hat.FormTable, links: hat.FormTable) -> dict[str, list[str]]:
    """Return the first two sites of a host list without a link, as the ends of a new link."""
    (hosts,) = (table for table in root.tables if table.name == "host")
    sites = dict.fromkeys(
        field.text or field.default
        for host in hosts.tables
        for field in host.fields
        if field.loc[-1] == "site"
    )
    linked = {
        frozenset(field.text.split(", "))
        for link in links.tables
        for field in link.fields
        if field.is_pair
    }
    pairs = combinations_with_replacement(sites, 2)
    pair = next((list(pair) for pair in pairs if frozenset(pair) not in linked), None)
    return {"between": pair} if pair else {}


def _copied(
    edited: EditedFile, model: type[Any], name: str, form: Mapping[str, str]
) -> EditedFile:
    """Return the file with a copy of an entry, under a new name."""
    del form
    entry = _table(edited, model, "copy", name)
    if not entry.loc or not isinstance(entry.loc[-1], int):
        raise UsageError(
            f"'{hat.printable(name)}': is not an entry of a list",
            code="value-unknown", field="copy", value=name,
        )  # fmt: skip
    (entries,) = (
        table
        for table in hat.form_of(edited.text, model).walk()
        if table.kind == "list" and table.loc == entry.loc[:-1]
    )
    named = next((field.text for field in entry.fields if field.loc[-1] == "name"), "")
    values = {"name": _free_name(entries, named)} if named else {}
    without = OWN if entries.name == "host" else ()
    text, place = hat.copy_entry(edited.text, model, entry, values, without)
    return replace(edited, text=text, focus=_first_field(text, model, place))


def _removed(
    edited: EditedFile, model: type[Any], name: str, form: Mapping[str, str]
) -> EditedFile:
    """Return the file without an entry."""
    del form
    for table in hat.form_of(edited.text, model).walk():
        if table.kind == "table":
            continue
        entries = [*(one.loc for one in table.tables), *(one.loc for one in table.fields)]
        for place in entries:
            if hat.field_name(place) == name:
                text = hat.remove_entry(edited.text, place)
                return replace(edited, text=text, focus=table.name)
    raise UsageError(
        f"'{hat.printable(name)}': this form has no such entry",
        code="value-unknown", field="remove", value=name,
    )  # fmt: skip


def _first_field(text: str, model: type[Any], place: hat.Loc) -> str:
    """Return the name of the first field of a table, or of the value at a place."""
    fields = hat.fields_of(text, model)
    return next((field.name for field in fields if field.loc[: len(place)] == place), "")


def _free_name(table: hat.FormTable, name: str) -> str:
    """Return an unused name: the given name with the next number at its end."""
    taken = {field.text for entry in table.tables for field in entry.fields}
    while name in taken:
        stem = name.rstrip("0123456789")
        digits = name[len(stem) :]
        name = f"{stem}{int(digits) + 1:0{len(digits)}d}" if digits else f"{name}-2"
    return name


KINDS_OF_NEW: Mapping[str, str] = {
    "template.toml": "template",
    "user.toml": "user specifications",
    "hosts.toml": "host list",
    "sweep.toml": "parameter sweep",
    "master-worker.toml": "master and workers",
    "pipeline.toml": "pipeline",
}
"""Documents of ``hat new`` that a new form can start from, with descriptions."""


def create(folder: DocumentFolder, name: str, kind: str) -> None:
    """Write a new file with the scaffold's text of its kind.

    Raises
    ------
    UsageError
        The file exists, or its name or its kind is invalid.
    LaunchError
        It cannot be written.
    """
    if not name.endswith(ENDING):
        raise UsageError(
            f"'{hat.printable(name)}': the name of a file ends in {ENDING}",
            code="name-invalid",
            value=name,
        )
    try:
        text = new_document(kind, Path(name).stem)
    except ScaffoldError as error:
        raise UsageError(f"'{hat.printable(name)}': {error}", **coded(error)) from None
    folder.create(name, text)


def start_agent(folder: DocumentFolder, name: str, kind: str) -> str:
    """Make the folder of a new agent, as ``hat new`` does; return the name of its first document.

    Raises
    ------
    UsageError
        The name or kind is invalid, or the folder exists.
    """
    known = {one: one for one in get_args(ProgramKind)}
    if kind not in known:
        raise UsageError(
            f"'{hat.printable(kind)}': unknown; known: {', '.join(known)}",
            code="value-unknown", field="kind", value=kind, known=list(known),
        )  # fmt: skip
    try:
        made = new(name, folder.path, kind=known[kind])
    except ScaffoldError as error:
        if isinstance(error.__cause__, OSError):
            raise error_kind(error.__cause__)(str(error)) from None
        raise UsageError(str(error), **coded(error)) from None
    documents = sorted(path for path in made if path.suffix == ENDING)
    order = [path for path in documents if path.name != "hosts.toml"] or documents
    return str(order[0].relative_to(folder.path))
