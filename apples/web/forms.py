"""A file of the folder as a form beside its text: both are changed, checked as ``hat check`` does, and saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import hat
from apples import user_files
from apples.errors import LaunchError, UsageError
from apples.refusals import unwritable
from apples.storage import documents
from apples.views.served import Form
from apples.web.folder import DocumentFolder


class FileChangedError(LaunchError):
    """A file was changed by somebody else since its form was made."""


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
                raise UsageError(f"'{hat.printable(table)}': there is no such table to add to")
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
                f"{self.name} was changed meanwhile by somebody else: nothing was saved. "
                "Your text is below; load the page again for theirs"
            )
        path = folder.file(self.name)
        try:
            with documents.written(path) as stream:
                stream.write(self.text)
        except OSError as error:
            raise unwritable(self.name, error) from None


def digest_of(text: str) -> str:
    """Return what tells one text from another."""
    return sha256(text.encode("utf-8", "replace")).hexdigest()


def addable(model: type[Any]) -> list[str]:
    """Return the tables of a model of which there may be several, each with a name."""
    whole = hat.schema(model)
    found = []
    for name, entry in whole["properties"].items():
        row = entry.get("items", {}).get("$ref", "").rpartition("/")[2]
        if "name" in whole.get("$defs", {}).get(row, {}).get("required", ()):
            found.append(name)
    return found
