"""The served pages of the files that users write: one function a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import hat
from apples.ui.page import render
from apples.ui.web.frame import Frame

TEMPLATES = "apples.applications"


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a file.

    Attributes
    ----------
    fields
        In order; empty where there is no form.
    addable
        Tables of which another can be added.
    missing
        Why there is no form.
    """

    fields: Sequence[hat.FormField] = ()
    addable: Sequence[str] = ()
    missing: str = ""


def files_page(
    frame: Frame,
    files: Sequence[tuple[str, hat.CheckResult]],
    documents: Mapping[str, str],
    agents: Sequence[str],
) -> str:
    """Return the files of the folder with what is wrong with each, and forms for new ones.

    Parameters
    ----------
    documents, agents
        What a new file, and a new folder, may be.
    """
    return render(
        "files.html.j2", TEMPLATES, frame=frame, files=files, documents=documents, agents=agents
    )


def delete_page(frame: Frame, name: str, text: str, digest: str) -> str:
    """Return the question whether a file of some text is to be deleted."""
    return render(
        "file_delete.html.j2", TEMPLATES, frame=frame, name=name, text=text, digest=digest
    )


def file_page(
    frame: Frame,
    name: str,
    text: str,
    digest: str,
    changed: bool,
    found: hat.CheckResult,
    form: Form,
) -> str:
    """Return one file: what is wrong with it, its fields, and its text beside them.

    Parameters
    ----------
    digest
        Of the file on the disk when it was read, so that it is saved over that only.
    changed
        Whether the text is another than the file's.
    """
    groups = [
        (group, list(those)) for group, those in groupby(form.fields, key=lambda one: one.group)
    ]
    problems: dict[str, list[hat.Problem]] = {}
    for problem in found.problems:
        problems.setdefault(problem.field, []).append(problem)
    return render(
        "file.html.j2", TEMPLATES, frame=frame, name=name, text=text, digest=digest, changed=changed, found=found,
        groups=groups, problems_of=problems, addable=form.addable, without_form=form.missing,
    )  # fmt: skip
