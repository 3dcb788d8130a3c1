"""A file of the folder as a form beside its text: both are changed, checked as ``hat check`` does, and saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import hat
from apples.applications import files as user_files
from apples.applications.folder import ENDING, DocumentFolder, FileChangedError, digest_of
from apples.applications.pages import Form
from apples.applications.scaffold import ProgramKind, ScaffoldError, new, new_document
from apples.errors import UsageError, coded, error_kind, unwritable
from apples.io import documents


@dataclass(frozen=True, slots=True)
class EditedFile:
    """A file while it is edited.

    Attributes
    ----------
    name
        From the folder on.
    text
        What it is about to say.
    digest
        Of the file as it was when the form was made.
    """

    name: str
    text: str
    digest: str

    @classmethod
    def read(cls, folder: DocumentFolder, name: str) -> EditedFile:
        """Return a file as it is on the disk.

        Raises
        ------
        UsageError
            It cannot be read, is too large, or is no UTF-8 text.
        """
        text = folder.text(name)
        return cls(name, text, digest_of(text))

    @property
    def changed(self) -> bool:
        """Whether its text is another than that of the file it was made from."""
        return digest_of(self.text) != self.digest

    def check(self, folder: DocumentFolder) -> hat.CheckResult:
        """Return its kind and what is wrong with it, as ``hat check`` would say of the file."""
        return user_files.inspect(folder.file(self.name), text=self.text)

    def form(self, kind: str) -> Form:
        """Return its fields, as a file of a kind."""
        model = user_files.model_of(kind)
        if model is None:
            return Form(missing="Of which kind this file is does not show yet: there is the text.")
        try:
            return Form(hat.fields_of(self.text, model), addable(model))
        except hat.NotEditableError as error:
            return Form(missing=str(error))
        except hat.DocumentError:
            return Form(missing="While the text is as it is there is no form: mend it here.")

    def with_changes(self, folder: DocumentFolder, form: Mapping[str, str]) -> EditedFile:
        """Return it with what was changed in the boxes, and the entry that was asked for.

        Parameters
        ----------
        form
            ``base``, the text that the form was made from; ``f:FIELD``, the boxes; ``add``, a table to add to.

        Raises
        ------
        hat.NotEditableError
            A change would lose a comment.
        UsageError
            There is no such table.
        """
        model = user_files.model_of(self.check(folder).kind)
        if model is None:
            return self
        boxes = {key[2:]: value for key, value in form.items() if key.startswith("f:")}
        try:
            text = (
                hat.merged(form.get("base", ""), self.text, boxes, model) if boxes else self.text
            )
        except hat.DocumentError:  # where the text is checked this is said with its line
            return self
        table = form.get("add")
        if table is not None:
            if table not in addable(model):
                raise UsageError(
                    f"'{hat.printable(table)}': there is no such table to add to",
                    code="value-unknown", field="add", value=table,
                )  # fmt: skip
            count = text.count(f"[[{table}]]") + 1
            end = "" if not text or text.endswith("\n") else "\n"
            text += f'{end}\n[[{table}]]\nname = "new-{count}"\n'
        return replace(self, text=text)

    def save(self, folder: DocumentFolder) -> None:
        """Write it, whole or not at all.

        Raises
        ------
        FileChangedError
            The file is not as it was when the form was made.
        """
        if EditedFile.read(folder, self.name).digest != self.digest:
            raise FileChangedError(
                f"{self.name} changed on disk since you opened it: nothing was saved. "
                "Your text is below; load the page again for theirs",
                file=self.name,
            )  # fmt: skip
        path = folder.file(self.name)
        try:
            with documents.written(path) as stream:
                stream.write(self.text)
        except OSError as error:
            raise unwritable(self.name, error) from None


KINDS_OF_NEW: Mapping[str, str] = {
    "template.toml": "template",
    "user.toml": "user specifications",
    "hosts.toml": "host list",
    "sweep.toml": "parameter sweep",
    "master-worker.toml": "master and workers",
    "pipeline.toml": "pipeline",
}
"""The documents of ``hat new`` that a form can begin with, and what they are."""


def create(folder: DocumentFolder, name: str, kind: str) -> None:
    """Write a new file that says what the scaffold of its kind says.

    Raises
    ------
    UsageError
        It is there already, or its name or its kind is unfit.
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
    """Make the folder of a new agent, as ``hat new`` does, and return the first of its documents.

    Raises
    ------
    UsageError
        Its name or its kind is unfit, or the folder is there already.
    """
    known = {one: one for one in get_args(ProgramKind)}
    if kind not in known:
        raise UsageError(
            f"'{hat.printable(kind)}': known are {', '.join(known)}",
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


def addable(model: type[Any]) -> list[str]:
    """Return the tables of a model of which there may be several, each with a name."""
    whole = hat.schema(model)
    found = []
    for name, entry in whole["properties"].items():
        row = entry.get("items", {}).get("$ref", "").rpartition("/")[2]
        if "name" in whole.get("$defs", {}).get(row, {}).get("required", ()):
            found.append(name)
    return found
